//! Accounts that have a tier for nothing, whether or not they have signed in yet.

use std::collections::HashMap;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::beta_testers,
    },
    domain::{
        ids::PlatformId,
        money::tier::{BetaEntry, Tier},
        time::Timestamp,
    },
};

/// An account with its entry, which may be over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BetaTester {
    pub account: PlatformId,
    pub entry: BetaEntry,
    /// For admins only.
    pub note: Option<String>,
    pub created_at: Timestamp,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = beta_testers)]
pub(in crate::db) struct BetaTesterRow {
    platform_id: String,
    tier: String,
    note: Option<String>,
    expires_at: Option<Timestamp>,
    created_at: Timestamp,
}

impl BetaTesterRow {
    /// `None`: of a tier that there is no more.
    fn tester(self) -> Option<BetaTester> {
        let Self { platform_id, tier, note, expires_at, created_at } = self;
        let entry = BetaEntry { tier: Tier::parse(&tier)?, expires_at };
        Some(BetaTester { account: platform_id.into(), entry, note, created_at })
    }
}

/// Gives this account a tier, in place of one that it has.
pub fn put(
    db: &mut Db,
    account: &PlatformId,
    entry: &BetaEntry,
    note: Option<&str>,
    now: Timestamp,
) -> Result<BetaTester, DbError> {
    let given = (
        beta_testers::tier.eq(entry.tier.word()),
        beta_testers::note.eq(note),
        beta_testers::expires_at.eq(entry.expires_at),
    );
    let row = (beta_testers::platform_id.eq(account.as_str()), given, beta_testers::created_at.eq(now));
    let put = diesel::insert_into(beta_testers::table)
        .values(row)
        .on_conflict(beta_testers::platform_id)
        .do_update()
        .set(given);
    on_backend!(db, |db| put.execute(db))?;
    find(db, account)?.ok_or(DbError::NotFound)
}

/// The entry of this account, also when it is over.
pub fn find(db: &mut Db, account: &PlatformId) -> Result<Option<BetaTester>, DbError> {
    let row = beta_testers::table.find(account.as_str()).select(BetaTesterRow::as_select()).first(db).optional()?;
    Ok(row.and_then(BetaTesterRow::tester))
}

/// The entry of each of these accounts, also when it is over.
pub fn find_all(db: &mut Db, accounts: &[PlatformId]) -> Result<HashMap<PlatformId, BetaEntry>, DbError> {
    let rows: Vec<BetaTesterRow> = beta_testers::table
        .filter(beta_testers::platform_id.eq_any(accounts.iter().map(PlatformId::as_str)))
        .select(BetaTesterRow::as_select())
        .load(db)?;
    let testers = rows.into_iter().filter_map(BetaTesterRow::tester);
    Ok(testers.map(|tester| (tester.account, tester.entry)).collect())
}

/// The number of beta testers, and a page of them by account, after this one.
pub fn list(db: &mut Db, after: &str, limit: i64, offset: i64) -> Result<(i64, Vec<BetaTester>), DbError> {
    let total = beta_testers::table.count().get_result(db)?;
    let rows = beta_testers::table
        .filter(beta_testers::platform_id.gt(after))
        .order(beta_testers::platform_id)
        .limit(limit)
        .offset(offset)
        .select(BetaTesterRow::as_select())
        .load(db)?;
    Ok((total, rows.into_iter().filter_map(BetaTesterRow::tester).collect()))
}

/// Takes it back; false when there was none.
pub fn delete(db: &mut Db, account: &PlatformId) -> Result<bool, DbError> {
    Ok(diesel::delete(beta_testers::table.find(account.as_str())).execute(db)? == 1)
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
                let put = || pool.write_blocking(|db| put(db, &"1".into(), entry, Some("a friend"), now()));
                let tester = put().unwrap();
                assert_eq!(
                    (&tester.entry, tester.note.as_deref(), tester.created_at),
                    (entry, Some("a friend"), now())
                );
                assert_eq!(pool.read_blocking(|db| find(db, &"1".into())).unwrap(), Some(tester));
            }
            assert_eq!(pool.read_blocking(|db| find(db, &"2".into())).unwrap(), None);
            let delete = |account: &str| pool.write_blocking(|db| delete(db, &account.into())).unwrap();
            assert!(delete("1") && !delete("1"));
        });
    }
}
