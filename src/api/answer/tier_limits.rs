//! Holds the owner of a server to what their tier unlocks, where tiers are enforced. Existing guests and watches stay.

use crate::{
    api::answer::error::ApiError,
    db::{
        engine::{error::DbError, pool::Db},
        guests,
        money::tiers,
        paired_servers,
    },
    domain::{
        ids::{ServerId, UserId},
        money::tier::{Entitlements, Tier},
        time::Timestamp,
    },
};

/// Refusal of one more.
#[derive(Debug)]
pub struct TierLimit {
    tier: Option<Tier>,
    most: u32,
    what: &'static str,
}

impl From<TierLimit> for ApiError {
    fn from(TierLimit { tier, most, what }: TierLimit) -> Self {
        let who = tier.map_or_else(
            || "Without a subscription there are".to_owned(),
            |tier| format!("The tier {} has", tier.word()),
        );
        Self::LimitReached(format!("{who} {most} {what} at most; `/me` says what is used."))
    }
}

/// The limit of guests, if this server has reached it. Later invitations to it wait until the transaction ends.
pub fn guests(db: &mut Db, owner: &UserId, server: &ServerId, now: Timestamp) -> Result<Option<TierLimit>, DbError> {
    paired_servers::lock(db, server)?;
    let count = guests::list(db, server, now)?.len();
    let tier = tiers::effective_of(db, owner, now)?.tier;
    let most = Entitlements::of(tier).guests_per_server;
    Ok((count >= most as usize).then_some(TierLimit { tier, most, what: "guests of one server" }))
}

/// The limit of watched shops, if their owner has reached it. Lock the
/// owner ([`users::lock`](crate::db::users::lock)) before.
pub fn watched_shops(db: &mut Db, owner: &UserId, now: Timestamp) -> Result<Option<TierLimit>, DbError> {
    let used = tiers::used(db, owner, now)?.watched_shops;
    let tier = tiers::effective_of(db, owner, now)?.tier;
    let most = Entitlements::of(tier).watched_shops;
    Ok((used >= most).then_some(TierLimit { tier, most, what: "watched shops" }))
}
