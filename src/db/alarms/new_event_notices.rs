//! Notices of events that are no raids: opened in the transaction that stores the event, for the users whose rules want it.

use chrono::TimeDelta;

use crate::{
    db::{
        access,
        engine::{error::DbError, pool::Db, prelude::*},
        maps, markets,
        notices::{
            alarm_rules, channels,
            new_notices::{self, NewNotice},
        },
        paired_servers,
        schema::notices,
    },
    domain::{
        channels::noticed_event::NoticedEvent,
        ids::{GameServerId, ServerId, UserId},
        limits::EVENT_NOTICES_PER_HOUR,
        timeline::{TimelineEntry, TimelineOwner},
    },
};

/// Opens a notice of a new event for each user who may watch a server of its, whose rules for that server send events of
/// this kind, and who has a channel.
pub fn open(db: &mut Db, owner: &TimelineOwner, entry: &TimelineEntry) -> Result<(), DbError> {
    let Some(event) = NoticedEvent::of(entry) else { return Ok(()) };
    let servers = match owner {
        TimelineOwner::Server(server) => vec![server.clone()],
        TimelineOwner::GameServer(game_server) => paired_with(db, game_server)?,
        TimelineOwner::User(_) => return Ok(()),
    };
    for server in servers {
        let wanting = alarm_rules::wanting(db, &server, event.kind)?;
        if wanting.is_empty() {
            continue;
        }
        let watchers = access::watchers(db, &server)?;
        let wanting: Vec<UserId> = wanting.into_iter().filter(|user| watchers.contains(user)).collect();
        for user in channels::reachable(db, &wanting)? {
            open_for(db, &server, &user, entry, &event)?;
        }
    }
    Ok(())
}

/// The paired servers that are shown the events of this game server.
fn paired_with(db: &mut Db, game_server: &GameServerId) -> Result<Vec<ServerId>, DbError> {
    let Some((address, port)) = game_server.as_str().rsplit_once(':') else { return Ok(Vec::new()) };
    let Ok(port) = port.parse() else { return Ok(Vec::new()) };
    // Events are many, and rules that want them are few.
    if !alarm_rules::are_any_at(db, address, port)? {
        return Ok(Vec::new());
    }
    let latest = [markets::world(db, game_server)?, maps::world(db, address, port)?];
    let paired = paired_servers::at(db, address, port)?;
    let shown = paired.into_iter().filter(|paired| latest.iter().all(|world| paired.shares(world.as_ref())));
    Ok(shown.map(|paired| paired.id).collect())
}

fn open_for(
    db: &mut Db,
    server: &ServerId,
    user: &UserId,
    entry: &TimelineEntry,
    event: &NoticedEvent,
) -> Result<(), DbError> {
    let of_user = notices::table.filter(notices::user_id.eq(user.as_str())).filter(notices::event.is_not_null());
    let recent: i64 = of_user.filter(notices::opened_at.gt(entry.ts - TimeDelta::hours(1))).count().get_result(db)?;
    if recent >= EVENT_NOTICES_PER_HOUR {
        return Ok(());
    }
    let event = serde_json::to_string(event).expect("an event is plain data");
    let new = NewNotice { incident: &entry.id, opened_at: entry.ts, due_at: entry.ts, event: Some(&event) };
    new_notices::open_for(db, server, user, new)
}
