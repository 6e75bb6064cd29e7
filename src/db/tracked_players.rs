//! Players that the owner of a paired server keeps an eye on, and whether they are online.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        player_sessions,
        schema::tracked_players,
    },
    domain::{
        ids::{ServerId, UserId},
        player_name::NameKey,
        player_session::{OpenSession, SessionStep},
        time::Timestamp,
    },
};

/// A player who is tracked at a paired server.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = tracked_players)]
pub struct TrackedPlayer {
    pub id: String,
    #[diesel(deserialize_as = String)]
    pub server_id: ServerId,
    /// The name under which the player is looked for.
    pub tracker_name: String,
    /// Its [`NameKey`], unique at the server.
    pub name_key: String,
    pub tag: Option<String>,
    pub note: Option<String>,
    /// SteamID64, as the owner knows it.
    pub platform_id: Option<String>,
    #[diesel(deserialize_as = String)]
    pub author_id: UserId,
    pub created_at: Timestamp,
    /// When the open session began; `None`: not online, as far as it is known.
    pub online_since: Option<Timestamp>,
    pub last_seen_at: Option<Timestamp>,
    /// Looks since then that did not find the player, in the open session.
    pub missed: i32,
}

impl TrackedPlayer {
    /// The session that has not ended.
    pub fn open_session(&self) -> Option<OpenSession> {
        let (began_at, seen_at) = (self.online_since?, self.last_seen_at?);
        Some(OpenSession { began_at, seen_at, missed: self.missed })
    }
}

/// A player to be tracked at a paired server, as the user named them.
#[derive(Clone, Debug)]
pub struct NewTrackedPlayer {
    pub id: String,
    pub server: ServerId,
    pub tracker_name: String,
    pub key: NameKey,
    pub tag: Option<String>,
    pub note: Option<String>,
    pub author: UserId,
}

/// Change of a tracked player; `None` stays, `Some(None)` is removed.
#[derive(Clone, Debug, Default)]
pub struct TrackedPlayerChange {
    pub tag: Option<Option<String>>,
    pub note: Option<Option<String>>,
    pub platform_id: Option<Option<String>>,
}

/// Adds a player; `Conflict` if one of this name is tracked at the server.
pub fn insert(db: &mut Db, new: &NewTrackedPlayer, now: Timestamp) -> Result<TrackedPlayer, DbError> {
    let row = (
        tracked_players::id.eq(&new.id),
        tracked_players::server_id.eq(new.server.as_str()),
        tracked_players::tracker_name.eq(&new.tracker_name),
        tracked_players::name_key.eq(new.key.as_str()),
        tracked_players::tag.eq(new.tag.as_deref()),
        tracked_players::note.eq(new.note.as_deref()),
        tracked_players::author_id.eq(new.author.as_str()),
        tracked_players::created_at.eq(now),
        tracked_players::missed.eq(0),
    );
    diesel::insert_into(tracked_players::table).values(row).execute(db)?;
    get(db, &new.server, &new.id)
}

/// The player, or `NotFound`.
pub fn get(db: &mut Db, server: &ServerId, id: &str) -> Result<TrackedPlayer, DbError> {
    let player = tracked_players::table.find(id).filter(tracked_players::server_id.eq(server.as_str()));
    Ok(player.select(TrackedPlayer::as_select()).first(db)?)
}

/// The players tracked at a server, by name.
pub fn list(db: &mut Db, server: &ServerId) -> Result<Vec<TrackedPlayer>, DbError> {
    let players = tracked_players::table
        .filter(tracked_players::server_id.eq(server.as_str()))
        .order(tracked_players::name_key)
        .select(TrackedPlayer::as_select())
        .load(db)?;
    Ok(players)
}

/// Number of players tracked at a server.
pub fn count(db: &mut Db, server: &ServerId) -> Result<usize, DbError> {
    let of_server = tracked_players::table.filter(tracked_players::server_id.eq(server.as_str()));
    let count: i64 = of_server.count().get_result(db)?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Every paired server with tracked players.
pub fn list_servers(db: &mut Db) -> Result<Vec<ServerId>, DbError> {
    let servers: Vec<String> = tracked_players::table.select(tracked_players::server_id).distinct().load(db)?;
    Ok(servers.into_iter().map(ServerId::from).collect())
}

/// Changes the player and gives it as it is then, or `NotFound`.
pub fn update(
    db: &mut Db,
    server: &ServerId,
    id: &str,
    change: &TrackedPlayerChange,
) -> Result<TrackedPlayer, DbError> {
    let of_server = || tracked_players::table.find(id).filter(tracked_players::server_id.eq(server.as_str()));
    if let Some(tag) = &change.tag {
        diesel::update(of_server()).set(tracked_players::tag.eq(tag.as_deref())).execute(db)?;
    }
    if let Some(note) = &change.note {
        diesel::update(of_server()).set(tracked_players::note.eq(note.as_deref())).execute(db)?;
    }
    if let Some(platform_id) = &change.platform_id {
        diesel::update(of_server()).set(tracked_players::platform_id.eq(platform_id.as_deref())).execute(db)?;
    }
    get(db, server, id)
}

/// Tracks a player no longer, and forgets the sessions; false when there is no such player.
pub fn delete(db: &mut Db, server: &ServerId, id: &str) -> Result<bool, DbError> {
    let player = tracked_players::table.find(id).filter(tracked_players::server_id.eq(server.as_str()));
    Ok(diesel::delete(player).execute(db)? == 1)
}

/// Stores what a look at `now` changes for this player. [`seen`] comes after it.
pub fn step(db: &mut Db, player: &TrackedPlayer, step: &SessionStep, now: Timestamp) -> Result<(), DbError> {
    let row = || tracked_players::table.find(player.id.as_str());
    if step.ends
        && let Some(session) = player.open_session()
    {
        player_sessions::insert(db, &player.id, session.began_at, session.seen_at)?;
        let ended = (tracked_players::online_since.eq(None::<Timestamp>), tracked_players::missed.eq(0));
        diesel::update(row()).set(ended).execute(db)?;
    }
    if step.begins {
        let began = (
            tracked_players::online_since.eq(now),
            tracked_players::last_seen_at.eq(now),
            tracked_players::missed.eq(0),
        );
        diesel::update(row()).set(began).execute(db)?;
    } else if step.is_back || step.missed.is_some() {
        diesel::update(row()).set(tracked_players::missed.eq(step.missed.unwrap_or(0))).execute(db)?;
    }
    Ok(())
}

/// The players of this server who are online and not missing were seen now.
pub fn seen(db: &mut Db, server: &ServerId, now: Timestamp) -> Result<(), DbError> {
    let online = tracked_players::table
        .filter(tracked_players::server_id.eq(server.as_str()))
        .filter(tracked_players::online_since.is_not_null())
        .filter(tracked_players::missed.eq(0));
    diesel::update(online).set(tracked_players::last_seen_at.eq(now)).execute(db)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{
        engine::pool::Pool,
        testing::{self, later, now},
    };

    pub fn add(pool: &Pool, server: &ServerId, name: &str) -> Result<TrackedPlayer, DbError> {
        let new = NewTrackedPlayer {
            id: format!("{server}/{name}"),
            server: server.clone(),
            tracker_name: name.to_owned(),
            key: NameKey::of(name).unwrap(),
            tag: Some("raider".into()),
            note: None,
            author: "owner".into(),
        };
        pool.write_blocking(|db| insert(db, &new, now()))
    }

    #[test]
    fn a_server_tracks_a_name_once_and_changes_what_is_given() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let server = testing::server(pool, "owner", "one").id;
            let vex = add(pool, &server, "Vex").unwrap();
            assert_eq!((vex.tag.as_deref(), vex.author_id.as_str(), vex.online_since), (Some("raider"), "owner", None));
            assert!(matches!(add(pool, &server, "VEX"), Err(DbError::Conflict)));
            add(pool, &server, "Ada").unwrap();
            let names = || -> Vec<String> {
                let players = pool.read_blocking(|db| list(db, &server)).unwrap();
                players.into_iter().map(|player| player.tracker_name).collect()
            };
            assert_eq!(names(), ["Ada", "Vex"]);
            assert_eq!(pool.read_blocking(|db| count(db, &server)).unwrap(), 2);
            assert_eq!(pool.read_blocking(list_servers).unwrap(), ["one".into()]);

            let change =
                |change: TrackedPlayerChange| pool.write_blocking(|db| update(db, &server, &vex.id, &change)).unwrap();
            let noted = change(TrackedPlayerChange { note: Some(Some("armed".into())), ..Default::default() });
            assert_eq!((noted.tag.as_deref(), noted.note.as_deref()), (Some("raider"), Some("armed")));
            let cleared = change(TrackedPlayerChange { tag: Some(None), ..Default::default() });
            assert_eq!((cleared.tag, cleared.note.as_deref()), (None, Some("armed")));
            let other = pool.write_blocking(|db| update(db, &"two".into(), &vex.id, &TrackedPlayerChange::default()));
            assert!(matches!(other, Err(DbError::NotFound)), "of another server");

            let delete = |server: &ServerId| pool.write_blocking(|db| delete(db, server, &vex.id)).unwrap();
            assert!(!delete(&"two".into()));
            assert!(delete(&server) && !delete(&server));
            assert_eq!(names(), ["Ada"]);
        });
    }

    #[test]
    fn looks_open_extend_and_end_a_session() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let server = testing::server(pool, "owner", "one").id;
            let id = add(pool, &server, "Vex").unwrap().id;
            add(pool, &server, "Ada").unwrap();
            let player = || pool.read_blocking(|db| get(db, &server, &id)).unwrap();
            let look = |change: SessionStep, at| {
                pool.write_blocking(|db| {
                    let player = get(db, &server, &id)?;
                    step(db, &player, &change, at)?;
                    seen(db, &server, at)
                })
                .unwrap();
            };
            let sessions = || pool.read_blocking(|db| player_sessions::list(db, &id, 9)).unwrap();
            look(SessionStep { begins: true, ..Default::default() }, now());
            look(SessionStep::default(), later(60));
            let online = OpenSession { began_at: now(), seen_at: later(60), missed: 0 };
            assert_eq!(player().open_session(), Some(online));
            look(SessionStep { missed: Some(1), ..Default::default() }, later(120));
            assert_eq!(player().open_session(), Some(OpenSession { missed: 1, ..online }));
            look(SessionStep { is_back: true, ..Default::default() }, later(180));
            assert_eq!(player().open_session(), Some(OpenSession { seen_at: later(180), ..online }));
            assert!(sessions().is_empty());
            look(SessionStep { ends: true, ..Default::default() }, later(300));
            assert_eq!((player().open_session(), player().last_seen_at), (None, Some(later(180))));
            look(SessionStep { begins: true, ..Default::default() }, later(400));
            look(SessionStep { ends: true, begins: true, ..Default::default() }, later(500));
            let past: Vec<_> = sessions().iter().map(|session| (session.began_at, session.ended_at)).collect();
            assert_eq!(past, [(later(400), later(400)), (now(), later(180))], "the newest first");
            assert_eq!(player().online_since, Some(later(500)));
            let ada = pool.read_blocking(|db| list(db, &server)).unwrap().remove(0);
            assert_eq!((ada.online_since, ada.last_seen_at), (None, None));

            pool.write_blocking(|db| delete(db, &server, &id)).unwrap();
            assert!(sessions().is_empty());
        });
    }
}
