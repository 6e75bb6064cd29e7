//! Messages of notices, as their users are shown them. [`notice_queue`](crate::db::notices::notice_queue) queues them
//! and stores how they end.

use std::collections::BTreeSet;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        notices::notice_queue::NoticeDeliveryState,
        schema::deliveries,
    },
    domain::{ids::UserId, time::Timestamp},
};

/// A message by a channel, and how far it came.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = deliveries)]
pub struct StoredDelivery {
    pub channel_id: String,
    /// Rounds of the rules before this one.
    pub round: i32,
    /// The word of its [`NoticeDeliveryState`].
    pub state: String,
    /// Attempts that failed.
    pub attempts: i32,
    /// When it was due first.
    pub queued_at: Timestamp,
    /// The next attempt; `None` once it has come to an end.
    pub due_at: Option<Timestamp>,
    /// Status of the newest answer.
    pub status: Option<i32>,
    /// The word of the newest [`ChannelFault`](crate::domain::channels::user_channel::ChannelFault).
    pub reason: Option<String>,
    pub ended_at: Option<Timestamp>,
}

impl StoredDelivery {
    /// The state of the delivery; an unknown word makes the row one that cannot be read.
    pub fn state(&self) -> Result<NoticeDeliveryState, DbError> {
        NoticeDeliveryState::parse(&self.state).ok_or_else(|| DbError::malformed("state"))
    }

    /// Fails on what its columns alone do not say.
    pub(in crate::db) fn check(&self) -> Result<(), DbError> {
        self.state().map(drop)
    }
}

/// The messages of an alarm to this user, oldest first.
pub fn list(db: &mut Db, incident: &str, user: &UserId) -> Result<Vec<StoredDelivery>, DbError> {
    let of_notice = deliveries::table
        .filter(deliveries::incident_id.eq(incident))
        .filter(deliveries::user_id.eq(user.as_str()))
        .filter(deliveries::round.ge(0));
    let ordered = of_notice.order((deliveries::queued_at, deliveries::round, deliveries::channel_id));
    Ok(ordered.select(StoredDelivery::as_select()).load(db)?)
}

/// The ids among these of messages that were taken, as far as that is stored.
pub fn accepted(db: &mut Db, ids: &[String]) -> Result<BTreeSet<String>, DbError> {
    let accepted = deliveries::table
        .filter(deliveries::id.eq_any(ids))
        .filter(deliveries::state.eq(NoticeDeliveryState::Accepted.word()));
    Ok(accepted.select(deliveries::id).load::<String>(db)?.into_iter().collect())
}
