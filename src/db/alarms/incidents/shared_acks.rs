//! Acknowledgements that reach the ledger behind the game connection of their server: another node had kept them, or they are
//! of an incident that it had announced. They are news of nodes, so that the one that has the server shows them.

use super::{acks, merged_incident::merged_into};
use crate::{
    db::{
        engine::{error::DbError, pool::Db},
        node_news,
    },
    domain::{ids::ServerId, node_news::NodeNews},
};

/// In place of the process whose news they are: that one hears of them, too.
const OF_NO_PROCESS: &str = "";

/// Lets the nodes know who has taken note of this incident, or of the one that it is a part of.
pub(super) fn share(db: &mut Db, server: &ServerId, incident: &str) -> Result<(), DbError> {
    let whole = merged_into(db, incident)?;
    let incident = whole.as_deref().unwrap_or(incident);
    for (user, at) in acks::of(db, incident)? {
        let id = format!("{incident} {user}");
        let (server, incident) = (server.clone(), incident.to_owned());
        let news = NodeNews::Acknowledged { server, incident, user: user.into(), at };
        node_news::add(db, OF_NO_PROCESS, &[(id, news)], at)?;
    }
    Ok(())
}
