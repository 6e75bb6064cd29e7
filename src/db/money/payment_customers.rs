//! Which customer of the payment provider a user is, and the checkout that was last opened for them.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::payment_customers,
    },
    domain::ids::UserId,
};

/// The customer that this user is, if they ever were at the checkout.
pub fn of_user(db: &mut Db, user: &UserId) -> Result<Option<String>, DbError> {
    let row = payment_customers::table.find(user.as_str()).select(payment_customers::customer_id);
    Ok(row.first(db).optional()?)
}

/// The user who is this customer.
pub fn user_of(db: &mut Db, customer: &str) -> Result<Option<UserId>, DbError> {
    let row = payment_customers::table.filter(payment_customers::customer_id.eq(customer));
    let user: Option<String> = row.select(payment_customers::user_id).first(db).optional()?;
    Ok(user.map(UserId::from))
}

/// The user is this customer from now on, and no other; `Conflict` when another user is.
pub fn put(db: &mut Db, user: &UserId, customer: &str) -> Result<(), DbError> {
    let is = payment_customers::customer_id.eq(customer);
    let put = diesel::insert_into(payment_customers::table)
        .values((payment_customers::user_id.eq(user.as_str()), is))
        .on_conflict(payment_customers::user_id)
        .do_update()
        .set(is);
    on_backend!(db, |db| put.execute(db))?;
    Ok(())
}

/// Makes this user a customer if the user is none yet; nothing changes otherwise, or when another user is this
/// customer.
pub fn put_first(db: &mut Db, user: &UserId, customer: &str) -> Result<(), DbError> {
    let row = (payment_customers::user_id.eq(user.as_str()), payment_customers::customer_id.eq(customer));
    let put = diesel::insert_into(payment_customers::table).values(row).on_conflict_do_nothing();
    on_backend!(db, |db| put.execute(db))?;
    Ok(())
}

/// The checkout that was last opened for this user, whatever became of it.
pub fn open_checkout(db: &mut Db, user: &UserId) -> Result<Option<String>, DbError> {
    let row = payment_customers::table.find(user.as_str()).select(payment_customers::open_checkout);
    Ok(row.first::<Option<String>>(db).optional()?.flatten())
}

/// The last checkout, as [`open_checkout`]; no other becomes the last one until the transaction ends.
pub fn lock_checkout(db: &mut Db, user: &UserId) -> Result<Option<String>, DbError> {
    let row = payment_customers::table.find(user.as_str()).select(payment_customers::open_checkout);
    let open: Option<Option<String>> = match db {
        Db::Pg(db) => row.for_update().first(db).optional()?,
        // There is one writer.
        Db::Sqlite(db) => row.first(db).optional()?,
    };
    Ok(open.flatten())
}

/// Remembers the checkout that was opened after `before` was closed. False, and nothing changes, when another request
/// has opened one since.
pub fn replace_checkout(db: &mut Db, user: &UserId, before: Option<&str>, opened: &str) -> Result<bool, DbError> {
    let of_user = payment_customers::table.find(user.as_str());
    let set = payment_customers::open_checkout.eq(opened);
    let replaced = match before {
        Some(before) => {
            diesel::update(of_user.filter(payment_customers::open_checkout.eq(before))).set(set).execute(db)?
        }
        None => diesel::update(of_user.filter(payment_customers::open_checkout.is_null())).set(set).execute(db)?,
    };
    Ok(replaced == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing;

    #[test]
    fn a_user_is_one_customer_and_a_customer_one_user() {
        testing::on_each_database(|pool| {
            testing::user(pool, "ann");
            testing::user(pool, "bob");
            let (ann, bob) = (UserId::from("ann"), UserId::from("bob"));
            pool.write_blocking(|db| {
                put_first(db, &ann, "cus_1")?;
                put_first(db, &ann, "cus_2")?;
                put_first(db, &bob, "cus_1")
            })
            .unwrap();
            let read = |user: &UserId| pool.read_blocking(|db| of_user(db, user)).unwrap();
            assert_eq!((read(&ann).as_deref(), read(&bob)), (Some("cus_1"), None));
            assert_eq!(pool.read_blocking(|db| user_of(db, "cus_1")).unwrap(), Some(ann.clone()));
            pool.write_blocking(|db| put(db, &ann, "cus_3")).unwrap();
            assert_eq!(pool.read_blocking(|db| user_of(db, "cus_1")).unwrap(), None);
            assert!(matches!(pool.write_blocking(|db| put(db, &bob, "cus_3")), Err(DbError::Conflict)));
        });
    }

    #[test]
    fn of_checkouts_that_are_opened_at_once_one_replaces_the_other() {
        testing::on_each_database(|pool| {
            testing::user(pool, "ann");
            let ann = UserId::from("ann");
            let replace = |before: Option<&str>, opened: &str| {
                pool.write_blocking(|db| replace_checkout(db, &ann, before, opened)).unwrap()
            };
            assert!(!replace(None, "cs_1"), "no customer");
            pool.write_blocking(|db| put_first(db, &ann, "cus_1")).unwrap();
            assert!(replace(None, "cs_1"));
            let others = ["cs_2", "cs_3", "cs_4", "cs_5"];
            let taken = std::thread::scope(|scope| {
                let replace = &replace;
                let others = others.map(|other| scope.spawn(move || replace(Some("cs_1"), other)));
                others.map(|other| other.join().unwrap())
            });
            assert_eq!(taken.iter().filter(|taken| **taken).count(), 1);
            let last = others[taken.iter().position(|taken| *taken).unwrap()];
            assert!(!replace(None, "cs_6") && !replace(Some("cs_1"), "cs_6"));
            pool.write_blocking(|db| put(db, &ann, "cus_2")).unwrap();
            let open = pool.read_blocking(|db| open_checkout(db, &ann)).unwrap();
            assert_eq!(open.as_deref(), Some(last), "also when the customer is another one");
        });
    }
}
