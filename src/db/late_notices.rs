//! Notices for a user who has a first channel, or again one that works, while alarms go on already.

use crate::{
    db::{
        access,
        engine::{error::DbError, pool::Db},
        incidents, new_notices,
    },
    domain::{access::Action, escalation::QUIET_AFTER, ids::UserId, incident::Incident, time::Timestamp},
};

/// Opens a notice of each alarm that goes on, and of which the user has none. The first step counts from the alarm, as for
/// everyone else: counted from now, the alarm could be over before it.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn open(db: &mut Db, user: &UserId, now: Timestamp) -> Result<(), DbError> {
    let servers = access::servers_of(db, user)?;
    for (server, _) in servers.into_iter().filter(|(_, role)| role.may(Action::Watch)) {
        let shown = incidents::shown(db, &server.id, now)?;
        let goes_on = |incident: &Incident| {
            !incident.drill && incident.last_at + QUIET_AFTER > now && !incident.acks.contains_key(user)
        };
        for stored in shown.into_iter().filter(|stored| goes_on(&stored.incident)) {
            let opened_at = stored.incident.first_at.min(now);
            new_notices::open_for(db, &server.id, user, &stored.id, opened_at, now, None)?;
        }
    }
    Ok(())
}
