//! Requests that came with an `Idempotency-Key`, and their sealed answers.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::idempotency_keys,
        users,
    },
    domain::{
        ids::{HelperDeviceId, PlatformId, UserId},
        limits::IDEMPOTENCY_KEYS_PER_CALLER,
        time::Timestamp,
    },
};

/// Sender of a request with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyCaller {
    User(UserId),
    Admin(PlatformId),
    /// A caller who is not signed in, but knows a secret; named by its hash.
    Knowing(String),
}

impl KeyCaller {
    /// The caller as its row names it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::User(user) => user.as_str(),
            Self::Admin(account) => account.as_str(),
            Self::Knowing(what) => what,
        }
    }

    /// True if the user still exists. An erasure of the user waits until the transaction ends.
    fn lock(&self, db: &mut Db) -> Result<bool, DbError> {
        match self {
            Self::User(user) => users::lock(db, user),
            Self::Admin(account) => users::lock_account(db, account),
            Self::Knowing(_) => Ok(true),
        }
    }
}

/// A request with a key. All three are plain text of bounded length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedRequest {
    /// Names the caller and the key.
    pub id: String,
    pub caller: KeyCaller,
    /// Names the method, the path and the body.
    pub request: String,
}

/// State of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyRecord {
    /// True if the key came with the same request.
    pub is_same: bool,
    /// The answer, or what the request is about to do.
    pub sealed: Vec<u8>,
    /// `None`: it is answered.
    pub claimed_until: Option<Timestamp>,
}

/// Outcome of taking a new key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyTaken {
    First,
    /// Another request has it.
    Known,
    /// The caller has too many.
    Full,
    /// The caller is gone, and what names them stays gone.
    Erased,
}

/// Takes the key. Until the transaction ends, others who want it wait.
pub fn take(
    db: &mut Db,
    keyed: &KeyedRequest,
    sealed: &[u8],
    claimed_until: Option<Timestamp>,
    now: Timestamp,
) -> Result<KeyTaken, DbError> {
    let KeyedRequest { id, caller, request } = keyed;
    if !caller.lock(db)? {
        return Ok(KeyTaken::Erased);
    }
    let caller = caller.as_str();
    let row = (
        idempotency_keys::id.eq(id),
        idempotency_keys::caller.eq(caller),
        idempotency_keys::request.eq(request),
        idempotency_keys::sealed.eq(sealed),
        idempotency_keys::claimed_until.eq(claimed_until),
        idempotency_keys::created_at.eq(now),
    );
    let insert = diesel::insert_into(idempotency_keys::table).values(row).on_conflict_do_nothing();
    if on_backend!(db, |db| insert.execute(db))? == 0 {
        return Ok(KeyTaken::Known);
    }
    let count: i64 = idempotency_keys::table.filter(idempotency_keys::caller.eq(caller)).count().get_result(db)?;
    Ok(if count > IDEMPOTENCY_KEYS_PER_CALLER { KeyTaken::Full } else { KeyTaken::First })
}

/// The state of the key; `None` if it is new.
pub fn find(db: &mut Db, keyed: &KeyedRequest) -> Result<Option<IdempotencyRecord>, DbError> {
    let row: Option<(String, Vec<u8>, Option<Timestamp>)> = idempotency_keys::table
        .find(&keyed.id)
        .select((idempotency_keys::request, idempotency_keys::sealed, idempotency_keys::claimed_until))
        .first(db)
        .optional()?;
    Ok(row.map(|(request, sealed, until)| IdempotencyRecord {
        is_same: request == keyed.request,
        sealed,
        claimed_until: until,
    }))
}

/// True if the key was taken after this time.
pub fn is_taken_since(db: &mut Db, id: &str, since: Timestamp) -> Result<bool, DbError> {
    let row = idempotency_keys::table.find(id).filter(idempotency_keys::created_at.gt(since));
    Ok(row.select(idempotency_keys::id).first::<String>(db).optional()?.is_some())
}

/// Keeps the answer; one that shows the token of a device, for as long as there is that device.
pub fn answer(db: &mut Db, id: &str, sealed: &[u8], device: Option<&HelperDeviceId>) -> Result<(), DbError> {
    let answered = (
        idempotency_keys::sealed.eq(sealed),
        idempotency_keys::claimed_until.eq(None::<Timestamp>),
        idempotency_keys::device_id.eq(device.map(HelperDeviceId::as_str)),
    );
    diesel::update(idempotency_keys::table.find(id)).set(answered).execute(db)?;
    Ok(())
}

/// Moves the end of a claim; false when another request has done so, or it is answered.
pub fn reclaim(db: &mut Db, id: &str, before: Timestamp, until: Timestamp) -> Result<bool, DbError> {
    let claim = idempotency_keys::table.find(id).filter(idempotency_keys::claimed_until.eq(before));
    let moved = diesel::update(claim).set(idempotency_keys::claimed_until.eq(until)).execute(db)?;
    Ok(moved == 1)
}

/// Forgets a claim that came to nothing.
pub fn forget(db: &mut Db, id: &str, claimed_until: Timestamp) -> Result<(), DbError> {
    let claim = idempotency_keys::table.find(id).filter(idempotency_keys::claimed_until.eq(claimed_until));
    diesel::delete(claim).execute(db)?;
    Ok(())
}

/// Deletes a batch of the keys that came until this time; returns how many.
pub fn purge(db: &mut Db, until: Timestamp) -> Result<usize, DbError> {
    Ok(purge_oldest!(db, idempotency_keys, created_at, until))
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;
    use crate::db::{
        personal_data,
        testing::{self, later, now},
    };

    fn keyed(id: &str, request: &str) -> KeyedRequest {
        KeyedRequest { id: id.into(), caller: KeyCaller::Knowing("ann".into()), request: request.into() }
    }

    #[test]
    fn an_erased_user_has_no_key_whatever_comes_first() {
        testing::on_each_database(|pool| {
            for caller in [KeyCaller::User("ann".into()), KeyCaller::Admin("ann".into())] {
                testing::user(pool, "ann");
                let user = pool.read_blocking(|db| users::find(db, &"ann".into())).unwrap().unwrap();
                let erase = || pool.write_blocking(|db| personal_data::erase(db, &user, now())).unwrap();
                let taking = |id: &str, meanwhile: &dyn Fn()| {
                    let keyed = KeyedRequest { caller: caller.clone(), ..keyed(id, "post") };
                    pool.write_blocking(|db| {
                        let taken = take(db, &keyed, b"", None, now())?;
                        meanwhile();
                        Ok(taken)
                    })
                    .unwrap()
                };
                let (begin, begun) = mpsc::channel();
                thread::scope(|scope| {
                    scope.spawn(move || {
                        begun.recv().unwrap();
                        erase();
                    });
                    // The erasure begins before this is committed.
                    assert_eq!(taking("before", &|| begin.send(()).unwrap()), KeyTaken::First);
                });
                assert_eq!(taking("after", &|| ()), KeyTaken::Erased, "{caller:?}");
                for id in ["before", "after"] {
                    assert_eq!(pool.read_blocking(|db| find(db, &keyed(id, "post"))).unwrap(), None);
                }
            }
        });
    }

    #[test]
    fn of_two_at_once_one_has_the_key_and_the_other_finds_its_answer() {
        testing::on_each_database(|pool| {
            let once = || {
                pool.write_blocking(|db| {
                    let taken = take(db, &keyed("one", "post"), b"", None, now())?;
                    if taken == KeyTaken::First {
                        answer(db, "one", b"answer", None)?;
                    }
                    Ok((taken, find(db, &keyed("one", "post"))?.unwrap()))
                })
                .unwrap()
            };
            let taken = thread::scope(|scope| {
                let tasks = [(); 4].map(|()| scope.spawn(once));
                tasks.map(|task| task.join().unwrap())
            });
            assert_eq!(taken.iter().filter(|(taken, _)| *taken == KeyTaken::First).count(), 1);
            let known = IdempotencyRecord { is_same: true, sealed: b"answer".into(), claimed_until: None };
            assert!(taken.iter().all(|(_, found)| *found == known));
            let other = pool.read_blocking(|db| find(db, &keyed("one", "another"))).unwrap().unwrap();
            assert!(!other.is_same);
        });
    }

    #[test]
    fn a_change_that_is_undone_frees_its_key() {
        testing::on_each_database(|pool| {
            let undone = pool.write_blocking(|db| {
                take(db, &keyed("one", "post"), b"", None, now())?;
                Err::<(), _>(DbError::NotFound)
            });
            assert!(undone.is_err());
            assert_eq!(pool.read_blocking(|db| find(db, &keyed("one", "post"))).unwrap(), None);
        });
    }

    #[test]
    fn a_claim_has_one_holder_until_it_is_answered() {
        testing::on_each_database(|pool| {
            let write =
                |change: &dyn Fn(&mut Db) -> Result<bool, DbError>| pool.write_blocking(|db| change(db)).unwrap();
            write(&|db| Ok(take(db, &keyed("one", "post"), b"plan", Some(later(1)), now())? == KeyTaken::First));
            assert!(write(&|db| reclaim(db, "one", later(1), later(9))));
            assert!(!write(&|db| reclaim(db, "one", later(1), later(9))), "another caller has it");
            write(&|db| forget(db, "one", later(1)).map(|()| true));
            write(&|db| answer(db, "one", b"answer", None).map(|()| true));
            assert!(!write(&|db| reclaim(db, "one", later(9), later(10))));
            write(&|db| forget(db, "one", later(9)).map(|()| true));
            let known = pool.read_blocking(|db| find(db, &keyed("one", "post"))).unwrap().unwrap();
            assert_eq!((known.sealed, known.claimed_until), (b"answer".to_vec(), None));
            assert_eq!(pool.write_blocking(|db| purge(db, later(-1))).unwrap(), 0);
            assert_eq!(pool.write_blocking(|db| purge(db, now())).unwrap(), 1);
        });
    }

    #[test]
    fn the_keys_of_a_caller_are_limited() {
        testing::on_each_database(|pool| {
            pool.write_blocking(|db| {
                for number in 0..IDEMPOTENCY_KEYS_PER_CALLER {
                    assert_eq!(take(db, &keyed(&number.to_string(), ""), b"", None, now())?, KeyTaken::First);
                }
                assert_eq!(take(db, &keyed("more", ""), b"", None, now())?, KeyTaken::Full);
                let other = KeyedRequest { caller: KeyCaller::Knowing("bob".into()), ..keyed("other", "") };
                assert_eq!(take(db, &other, b"", None, now())?, KeyTaken::First);
                Ok(())
            })
            .unwrap();
        });
    }
}
