//! Accounts that have a tier for nothing, whether or not they have signed in yet.

use diesel::prelude::*;

use crate::{
    db::{error::DbError, pool::Db, schema::beta_testers, timestamp::StoredTimestampOption},
    domain::{
        ids::PlatformId,
        tier::{BetaEntry, Tier},
        time::Timestamp,
    },
};

/// Gives this account a tier, in place of one that it has.
pub fn put(
    db: &mut Db,
    account: &PlatformId,
    entry: &BetaEntry,
    note: Option<&str>,
    now: Timestamp,
) -> Result<(), DbError> {
    let given = (
        beta_testers::tier.eq(entry.tier.as_str()),
        beta_testers::note.eq(note),
        beta_testers::expires_at.eq(entry.expires_at.map(|at| at.naive_utc())),
    );
    let row = (beta_testers::platform_id.eq(account.as_str()), given, beta_testers::created_at.eq(now.naive_utc()));
    let put = diesel::insert_into(beta_testers::table)
        .values(row)
        .on_conflict(beta_testers::platform_id)
        .do_update()
        .set(given);
    on_backend!(db, |db| put.execute(db))?;
    Ok(())
}

/// What this account has, also when it is over.
pub fn get(db: &mut Db, account: &PlatformId) -> Result<Option<BetaEntry>, DbError> {
    let row: Option<(String, StoredTimestampOption)> = beta_testers::table
        .find(account.as_str())
        .select((beta_testers::tier, beta_testers::expires_at))
        .first(db)
        .optional()?;
    let entry = |(tier, expires_at): (String, StoredTimestampOption)| {
        Some(BetaEntry { tier: Tier::parse(&tier)?, expires_at: expires_at.into() })
    };
    Ok(row.and_then(entry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    #[test]
    fn an_account_has_the_entry_that_was_given_last() {
        testing::on_each_database(|pool| {
            let first = BetaEntry { tier: Tier::Scout, expires_at: None };
            let second = BetaEntry { tier: Tier::Overlord, expires_at: Some(later(9)) };
            for entry in [&first, &second] {
                pool.write_blocking(|db| put(db, &"1".into(), entry, Some("a friend"), now())).unwrap();
                assert_eq!(pool.read_blocking(|db| get(db, &"1".into())).unwrap().as_ref(), Some(entry));
            }
            assert_eq!(pool.read_blocking(|db| get(db, &"2".into())).unwrap(), None);
        });
    }
}
