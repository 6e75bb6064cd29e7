//! Facts that decide the tier of a user, read in one go.

use std::collections::HashMap;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        money::{beta_testers, subscriptions},
        schema::{guests, paired_servers, shop_watches, users},
        users::User,
    },
    domain::{
        ids::{PlatformId, UserId},
        money::tier::{EffectiveTier, effective},
        time::Timestamp,
    },
};

/// Usage of what a tier limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierUse {
    /// Guests and open invitations of the server that has most.
    pub guests_per_server: u32,
    /// Watched shops of all own servers.
    pub watched_shops: u32,
}

/// The tier of a user now.
pub fn effective_of(db: &mut Db, user: &UserId, now: Timestamp) -> Result<EffectiveTier, DbError> {
    let account: Option<String> = users::table.find(user.as_str()).select(users::platform_id).first(db).optional()?;
    let beta = match account {
        Some(account) => beta_testers::find(db, &PlatformId::from(account))?.map(|tester| tester.entry),
        None => None,
    };
    Ok(effective(&subscriptions::list_for(db, user)?, beta.as_ref(), now))
}

/// The tier of each of these users now.
pub fn effective_of_all(
    db: &mut Db,
    members: &[User],
    now: Timestamp,
) -> Result<HashMap<UserId, EffectiveTier>, DbError> {
    if members.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<UserId> = members.iter().map(|user| user.id.clone()).collect();
    let accounts: Vec<PlatformId> = members.iter().map(|user| user.platform_id.clone()).collect();
    let subscriptions = subscriptions::list_for_all(db, &ids)?;
    let testers = beta_testers::find_all(db, &accounts)?;
    let tier = |user: &User| {
        let own = subscriptions.get(&user.id).map(Vec::as_slice).unwrap_or_default();
        (user.id.clone(), effective(own, testers.get(&user.platform_id), now))
    };
    Ok(members.iter().map(tier).collect())
}

/// The user's usage of what a tier limits.
pub fn used(db: &mut Db, user: &UserId, now: Timestamp) -> Result<TierUse, DbError> {
    let own = paired_servers::table.filter(paired_servers::owner_id.eq(user.as_str())).select(paired_servers::id);
    let own: Vec<String> = own.load(db)?;
    let watched: i64 = shop_watches::table.filter(shop_watches::server_id.eq_any(&own)).count().get_result(db)?;
    let is_open = guests::user_id.is_not_null().or(guests::expires_at.is_null()).or(guests::expires_at.gt(now));
    let guests_of_servers: Vec<(String, i64)> = guests::table
        .filter(guests::server_id.eq_any(&own))
        .filter(is_open)
        .group_by(guests::server_id)
        .select((guests::server_id, diesel::dsl::count_star()))
        .load(db)?;
    let most = guests_of_servers.into_iter().map(|(_, count)| count).max().unwrap_or(0);
    let small = |count: i64| u32::try_from(count).unwrap_or(u32::MAX);
    Ok(TierUse { guests_per_server: small(most), watched_shops: small(watched) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        db::{
            guests::{Invitee, invite},
            testing::{self, later, now},
        },
        domain::money::tier::{BetaEntry, Tier},
    };

    #[test]
    fn a_beta_tester_has_their_tier_and_what_is_used_is_counted() {
        testing::on_each_database(|pool| {
            testing::user(pool, "ann");
            testing::server(pool, "ann", "one");
            let entry = BetaEntry { tier: Tier::Operator, expires_at: Some(later(9)) };
            pool.write_blocking(|db| {
                beta_testers::put(db, &"ann".into(), &entry, None, now())?;
                for link in ["a", "b"] {
                    let invitee = Invitee::Link { token_hash: link.into() };
                    invite(db, &link.into(), &"one".into(), &invitee, None, now())?.unwrap();
                }
                Ok(())
            })
            .unwrap();
            let tier = |at| pool.read_blocking(|db| effective_of(db, &"ann".into(), at)).unwrap().tier;
            assert_eq!((tier(later(8)), tier(later(9))), (Some(Tier::Operator), None));
            let used = |at| pool.read_blocking(|db| super::used(db, &"ann".into(), at)).unwrap();
            assert_eq!(used(now()), TierUse { guests_per_server: 2, watched_shops: 0 });
            assert_eq!(used(later(30 * 86_400)), TierUse::default(), "links that are over do not count");
        });
    }
}
