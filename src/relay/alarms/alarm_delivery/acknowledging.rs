//! Users who take note of incidents while the database does not answer: the ledger and its journal keep that as they keep
//! alarms.

use std::{collections::BTreeMap, rc::Rc};

use super::{AlarmDelivery, IncidentNews};
use crate::{
    db::{
        alarms::incidents::{ACKNOWLEDGED, LedgerWrite, StoredIncident},
        notices::notice_queue::NoticeKey,
    },
    domain::{ids::UserId, time::Timestamp},
    relay::alarms::ledger::SavedTo,
};

/// Outcome of an acknowledgement that the database did not take in time.
#[derive(Debug, PartialEq)]
pub enum KeptAcknowledgement {
    /// Kept, so that it survives a kill.
    Kept(Box<StoredIncident>),
    /// Neither the database nor the journal has it: it is to be given again.
    NotKept,
    /// No such incident is shown.
    UnknownIncident,
}

impl AlarmDelivery {
    /// The incident, or the one that it is a part of, as it is known without the database; `None` if it is not shown.
    pub fn find(&self, incident: &str) -> Option<StoredIncident> {
        let id = self.whole_of(incident).unwrap_or_else(|| incident.to_owned());
        let raids = self.raids.borrow();
        let (facts, title) = (raids.get(&id)?.clone(), raids.title(&id).map(str::to_owned));
        Some(StoredIncident { title, ..StoredIncident::unheard(id, facts) })
    }

    /// The notices of an incident to a user: each of its parts may have rung before it was one.
    pub(super) fn notices_of(&self, incident: &str, user: &UserId) -> Vec<NoticeKey> {
        let merged = self.merged.borrow();
        let parts = merged.iter().filter(|(_, whole)| *whole == incident).map(|(part, _)| part.as_str());
        parts.chain([incident]).map(|id| NoticeKey { incident: id.to_owned(), user: user.clone() }).collect()
    }

    /// Keeps that a user, who may, has taken note of an incident. Nothing more of it rings for them from then on.
    pub async fn keep_acknowledgement(
        self: Rc<Self>,
        incident: String,
        user: UserId,
        at: Timestamp,
    ) -> (KeptAcknowledgement, IncidentNews) {
        let Some(mut known) = self.find(&incident) else {
            return (KeptAcknowledgement::UnknownIncident, IncidentNews::default());
        };
        let mut news = IncidentNews::default();
        // One that is shown is kept already.
        if !known.incident.acks.contains_key(&user) {
            let acks = BTreeMap::from([(known.id.clone(), BTreeMap::from([(user.clone(), at)]))]);
            let kept = self.ledger.write(LedgerWrite { acks, ..Default::default() }).await;
            // By now it may be a part of another one.
            known = self.find(&known.id).unwrap_or(known);
            let (server, incident) = (self.server.as_str(), known.id.as_str());
            match kept {
                SavedTo::Database => {}
                SavedTo::Journal => {
                    log::warn!(server, incident; "an acknowledgement waits in the journal for the database");
                    for notice in self.notices_of(incident, &user) {
                        self.context.early_alarms.changes.keep_acknowledged(notice, self.context.clock.moment());
                    }
                }
                SavedTo::Neither => {
                    log::error!(server, incident; "an acknowledgement is kept nowhere");
                    return (KeptAcknowledgement::NotKept, news);
                }
            }
            news = self.acknowledged(&known.id, &user, at);
            known.incident.acks.entry(user).or_insert(at);
        }
        ACKNOWLEDGED.clone_into(&mut known.state);
        (KeptAcknowledgement::Kept(Box::new(known)), news)
    }
}
