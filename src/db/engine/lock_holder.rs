//! The process that has the serving lock of a PostgreSQL, and whether it is this one.
//!
//! A process writes only while it has the lock, though its other connections may live on when the one with the lock ends.
//! Each of its transactions takes a second lock, of writers, which they share, and then looks whether this process has
//! the first one, before it is committed. A process that takes the first lock waits until none has the second one. So it
//! sees what was committed by the process before it, and nothing of that comes later.
//!
//! A look at `pg_locks` costs as much as a small write (docs/sizing.md). So the connection that has the first lock has a
//! third one, too, which is its own: a transaction that gets this one knows that the connection has ended. PostgreSQL lets
//! go of the locks of a connection one after the other: the next process waits for the third one of the process before,
//! and only then for its writers.
//!
//! Nodes share the first lock, and have a second and third one of other numbers: a node that comes waits for no other one,
//! and disturbs none. A process that serves alone waits for both kinds. By further locks on the same connection a process
//! says with which keys it opens stored secrets.

use std::{
    fmt, process,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
};

use diesel::{
    PgConnection, QueryableByName,
    connection::SimpleConnection as _,
    define_sql_function,
    dsl::case_when,
    sql_query,
    sql_types::{BigInt, Bool, Integer, Text},
};
use rustix::system::uname;

use crate::{
    crypto::{digest::sha256, random::Random},
    db::engine::{error::DbError, prelude::RunQuery as _},
    domain::{plain_text::escaped, time::Timestamp},
};

/// The number of the lock: any, but the same in every version.
pub const SERVING_LOCK: i64 = 0x636f_6d70_7365_7276;
/// The number of the lock of its writers.
const WRITERS_LOCK: i64 = 0x636f_6d70_7772_6974;
/// Likewise of nodes.
const NODE_WRITERS_LOCK: i64 = 0x636f_6d70_6e77_7269;
/// The first half of the numbers of locks that are a connection's own; the second is PostgreSQL's number of it. Locks with
/// two numbers are others than those with one.
const OWN_LOCKS: i32 = 0x636f_6d70;
/// Likewise of nodes.
const NODE_OWN_LOCKS: i32 = 0x636f_6d71;
/// The first half of the numbers of locks of keys.
const KEY_LOCKS: i32 = 0x636f_6d72;
/// The row of the lock that is held; in two halves, as PostgreSQL lists it.
const HELD: &str = "l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.classid::bigint = $1 \
                    AND l.objid::bigint = $2 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())";
/// Name of a connection that waits for the lock.
pub const WAITS: &str = "companion waits";
/// Begins the name of the connection that has it.
pub const SERVES: &str = "companion serves";
/// Begins the name of the connection of a node, which shares it.
const NODE_SERVES: &str = "companion node";
/// PostgreSQL cuts names after 63 bytes.
const LONGEST_HOST: usize = 17;

define_sql_function! {
    /// Takes an advisory lock until the transaction ends, beside others who share it. False if it would have to wait.
    #[sql_name = "pg_try_advisory_xact_lock_shared"]
    fn try_to_share(lock: BigInt) -> Bool;
}

define_sql_function! {
    /// As `try_to_share`, for a lock with two numbers.
    #[sql_name = "pg_try_advisory_xact_lock_shared"]
    fn try_to_share_own(class: Integer, connection: Integer) -> Bool;
}

/// Processes beside which one serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockSharing {
    /// None.
    Alone,
    /// Other nodes, each with fences for the parts that it has.
    WithNodes,
}

impl LockSharing {
    /// The lock of its writers, and the first half of the numbers of its own locks.
    fn locks(self) -> (i64, i32) {
        match self {
            Self::Alone => (WRITERS_LOCK, OWN_LOCKS),
            Self::WithNodes => (NODE_WRITERS_LOCK, NODE_OWN_LOCKS),
        }
    }

    /// The processes for whose end it waits.
    fn waits_for(self) -> &'static [Self] {
        match self {
            Self::Alone => &[Self::Alone, Self::WithNodes],
            Self::WithNodes => &[Self::Alone],
        }
    }

    /// The statement that takes the lock if it is free for such a process.
    pub fn try_to_take(self) -> &'static str {
        match self {
            Self::Alone => "SELECT pg_try_advisory_lock($1) AS taken",
            Self::WithNodes => "SELECT pg_try_advisory_lock_shared($1) AS taken",
        }
    }
}

/// True for the name of a connection by which a process serves.
fn serves(name: &str) -> bool {
    name.starts_with(SERVES) || name.starts_with(NODE_SERVES)
}

/// The process that serves, as its connection names it, or another connection that has the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockHolder {
    name: String,
    connection: i32,
    address: String,
}

impl LockHolder {
    /// True if no companion serves by it, nor takes over.
    pub fn is_foreign(&self) -> bool {
        self.connection != 0 && self.name != WAITS && !serves(&self.name)
    }

    /// True if a node serves by it, perhaps beside others.
    pub fn is_node(&self) -> bool {
        self.name.starts_with(NODE_SERVES)
    }
}

impl From<NamedHolder> for LockHolder {
    fn from(NamedHolder { name, connection, address, .. }: NamedHolder) -> Self {
        Self { name, connection, address }
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, connection, address } = self;
        if self.is_foreign() {
            // Anybody names connections.
            let name = escaped(name);
            return write!(
                f,
                "connection {connection} ({name}, {address}) of PostgreSQL, which has the lock and is of no companion that \
                 serves: left behind by a pooler that does not pool sessions? `SELECT pg_terminate_backend({connection})` \
                 ends it"
            );
        }
        if name == WAITS {
            return write!(f, "another process, which takes over (connection {connection} of PostgreSQL)");
        }
        let node = name.strip_prefix(NODE_SERVES);
        let kind = if node.is_some() { "the node of process" } else { "process" };
        let mut words = node.or_else(|| name.strip_prefix(SERVES)).unwrap_or_default().split_whitespace();
        let since = words.next().and_then(|milliseconds| milliseconds.parse().ok());
        let since = since.and_then(Timestamp::from_timestamp_millis);
        match (since, words.next(), words.next()) {
            (Some(since), Some(process), Some(host)) => {
                write!(f, "{kind} {process} on {host}, which serves since {}", since.to_wire())
            }
            _ => f.write_str("another process, which serves"),
        }
    }
}

/// A connection, by its name.
#[derive(QueryableByName)]
pub struct NamedHolder {
    #[diesel(sql_type = Text)]
    pub name: String,
    /// PostgreSQL's number of it.
    #[diesel(sql_type = Integer)]
    pub connection: i32,
    /// Host of its client.
    #[diesel(sql_type = Text)]
    pub address: String,
    /// True for the connection that asks.
    #[diesel(sql_type = Bool)]
    pub own: bool,
}

#[derive(QueryableByName)]
struct HoldingConnection {
    #[diesel(sql_type = Integer)]
    connection: i32,
}

#[derive(QueryableByName)]
struct OtherProcess {
    #[diesel(sql_type = Bool)]
    opens: bool,
}

/// The second half of the number of the lock of the key with this fingerprint.
fn key_number(fingerprint: &str) -> i32 {
    sha256(fingerprint.as_bytes()).into_iter().take(3).fold(0, |number, byte| (number << 8) | i32::from(byte))
}

/// Says that this process opens what the keys of these fingerprints have sealed. Call it before the serving lock is taken on
/// this connection, so that none serves without it.
pub fn say_keys(db: &mut PgConnection, fingerprints: &[String]) -> Result<(), DbError> {
    for fingerprint in fingerprints {
        let number = key_number(fingerprint);
        db.batch_execute(&format!("SELECT pg_advisory_lock_shared({KEY_LOCKS}, {number})"))?;
    }
    Ok(())
}

/// For each process that serves beside the own one: true if it says that it opens what the key of this fingerprint has sealed.
pub fn others_open(db: &mut PgConnection, own: Option<&LockHold>, fingerprint: &str) -> Result<Vec<bool>, DbError> {
    let own = own.map_or(0, |own| own.connection.load(Ordering::SeqCst));
    let others = sql_query(format!(
        "SELECT bool_or(l.objsubid = 2 AND l.objid::bigint = {}) AS opens FROM pg_locks l \
         WHERE ({HELD}) OR (l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid::bigint = {KEY_LOCKS} \
         AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())) \
         GROUP BY l.pid HAVING bool_or(l.objsubid = 1) AND l.pid <> {own}",
        key_number(fingerprint)
    ));
    let others = others.bind::<BigInt, _>(SERVING_LOCK >> 32).bind::<BigInt, _>(SERVING_LOCK & 0xffff_ffff);
    Ok(others.load::<OtherProcess>(db)?.into_iter().map(|other| other.opens).collect())
}

/// The processes that serve from this database, more than one if they are nodes, and how many wait for it, by the names of
/// their connections.
pub fn processes(db: &mut PgConnection) -> Result<(Vec<LockHolder>, usize), DbError> {
    let named = sql_query(
        "SELECT application_name AS name, pid AS connection, coalesce(host(client_addr), 'local') AS address, false AS own \
         FROM pg_stat_activity \
         WHERE datname = current_database() AND starts_with(application_name, 'companion ') ORDER BY application_name",
    );
    let (serving, others): (Vec<_>, Vec<_>) =
        named.load::<NamedHolder>(db)?.into_iter().partition(|holder| serves(&holder.name));
    let waiting = others.iter().filter(|other| other.name == WAITS).count();
    Ok((serving.into_iter().map(LockHolder::from).collect(), waiting))
}

/// The connection that has the lock: of several nodes the one that asks, if it has it, or any.
pub fn find(db: &mut PgConnection) -> Result<Option<NamedHolder>, DbError> {
    let holders = sql_query(format!(
        "SELECT coalesce(a.application_name, '') AS name, l.pid AS connection, \
         coalesce(host(a.client_addr), 'local') AS address, l.pid = pg_backend_pid() AS own \
         FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid WHERE {HELD} \
         ORDER BY own DESC"
    ));
    let holders = holders.bind::<BigInt, _>(SERVING_LOCK >> 32).bind::<BigInt, _>(SERVING_LOCK & 0xffff_ffff);
    Ok(holders.load(db)?.into_iter().next())
}

/// Waits until the process that had the lock before writes no more. Call it with the lock taken. Fails if that takes longer
/// than PostgreSQL gives a query.
pub fn wait_for_the_one_before(db: &mut PgConnection, sharing: LockSharing) -> Result<(), DbError> {
    for (writers, own) in sharing.waits_for().iter().map(|before| before.locks()) {
        db.batch_execute(&format!(
            "SELECT pg_advisory_lock_shared({own}, connection), pg_advisory_unlock_shared({own}, connection) \
             FROM (SELECT objid::integer AS connection FROM pg_locks WHERE locktype = 'advisory' AND granted \
             AND objsubid = 2 AND classid::bigint = {own} AND pid <> pg_backend_pid() \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS ending; \
             SELECT pg_advisory_lock({writers}); SELECT pg_advisory_unlock({writers})"
        ))?;
    }
    Ok(())
}

/// The lock of this process, as its transactions see it. Clones share it.
#[derive(Clone)]
pub struct LockHold {
    sharing: LockSharing,
    /// The end of the names of its connections that serve.
    own_end: Arc<str>,
    /// PostgreSQL's number of the connection on which this process has taken the lock last; 0: none yet.
    connection: Arc<AtomicI32>,
    /// Another process that a transaction has found in its place.
    passed_to: Arc<Mutex<Option<LockHolder>>>,
}

impl LockHold {
    /// Not yet taken. Containers may share process id and host name: this process has a word of its own.
    pub fn new(random: &Random, sharing: LockSharing) -> Self {
        let host = uname().nodename().to_string_lossy().into_owned();
        let host: String = host.chars().filter(char::is_ascii_graphic).take(LONGEST_HOST).collect();
        let own_end = format!(" {} {host} {}", process::id(), random.hex::<3>());
        Self { sharing, own_end: own_end.into(), connection: Arc::default(), passed_to: Arc::default() }
    }

    /// Processes beside which this one serves.
    pub fn sharing(&self) -> LockSharing {
        self.sharing
    }

    /// The name of its connection that serves since this time.
    pub fn name(&self, since: Timestamp) -> String {
        let serves = match self.sharing {
            LockSharing::Alone => SERVES,
            LockSharing::WithNodes => NODE_SERVES,
        };
        format!("{serves} {}{}", since.timestamp_millis(), self.own_end)
    }

    /// Notes that the lock was taken on this connection, and takes the one that is the connection's own.
    pub fn is_taken_on(&self, db: &mut PgConnection) -> Result<(), DbError> {
        let own: HoldingConnection = sql_query("SELECT pg_backend_pid() AS connection").get_result(db)?;
        let (_, own_locks) = self.sharing.locks();
        db.batch_execute(&format!("SELECT pg_advisory_lock({own_locks}, {})", own.connection))?;
        self.connection.store(own.connection, Ordering::SeqCst);
        Ok(())
    }

    /// Fails if this process does not have the lock. What succeeds is committed before another process serves, if it is
    /// committed. Call it last in a transaction.
    pub fn check(&self, db: &mut PgConnection) -> Result<(), DbError> {
        let own = self.connection.load(Ordering::SeqCst);
        let (writers, own_locks) = self.sharing.locks();
        // One question, prepared once for each connection. CASE looks at the second lock after it has the first.
        let writes = try_to_share(writers);
        let is_lost = diesel::select(case_when(writes, try_to_share_own(own_locks, own)).otherwise(true));
        if !is_lost.get_result::<bool>(db)? {
            return Ok(());
        }
        let reason = match find(db)?.map(LockHolder::from) {
            Some(other) if self.has_passed_to(&other) => {
                *self.passed_to.lock().unwrap_or_else(PoisonError::into_inner) = Some(other.clone());
                format!("the lock of the database has passed to {other}")
            }
            Some(other) if other.is_foreign() => {
                format!("this process does not have the lock of the database: {other}")
            }
            _ => {
                "the connection that had the lock of the database has ended, and PostgreSQL has not given the lock to \
                  another one yet: nothing is written meanwhile, as another process may serve; see max_connections, \
                  pg_hba.conf and the log of PostgreSQL"
                    .to_owned()
            }
        };
        Err(DbError::Unavailable(reason))
    }

    /// True if that process serves in place of this one; a node beside a node does not.
    fn has_passed_to(&self, other: &LockHolder) -> bool {
        let beside = self.sharing == LockSharing::WithNodes && other.is_node();
        serves(&other.name) && !beside && !other.name.ends_with(&*self.own_end)
    }

    /// Another process that a transaction has found in the place of this one.
    pub fn passed_to(&self) -> Option<LockHolder> {
        self.passed_to.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Clock,
        config::Database,
        db::{
            engine::{
                self,
                serving_lock::{LockState, ServingLock},
            },
            testing::Postgres,
        },
    };

    #[test]
    fn a_process_of_the_same_id_and_host_is_another_one() {
        let [one, other] = [1, 2].map(|seed| LockHold::new(&Random::seeded(seed), LockSharing::Alone));
        let since = "2026-11-27T04:00:00Z".parse().unwrap();
        let named = |hold: &LockHold| LockHolder { name: hold.name(since), connection: 7, ..LockHolder::default() };
        assert!(named(&one).name.len() <= 63 && !one.has_passed_to(&named(&one)));
        assert!(one.has_passed_to(&named(&other)));
        let (shown, start) = (named(&one).to_string(), format!("process {} on ", process::id()));
        assert!(shown.starts_with(&start) && shown.ends_with("serves since 2026-11-27T04:00:00.000Z"), "{shown}");
        let name = format!("{SERVES} 1764000000000 {} elsewhere", process::id());
        let older = LockHolder { name, ..LockHolder::default() };
        assert!(one.has_passed_to(&older), "of a version without such a word");
        assert!(!older.is_foreign());
    }

    #[test]
    fn a_node_serves_in_place_of_one_that_was_alone_and_not_of_a_node() {
        let [alone, one, two] = [(1, LockSharing::Alone), (2, LockSharing::WithNodes), (3, LockSharing::WithNodes)]
            .map(|(seed, sharing)| LockHold::new(&Random::seeded(seed), sharing));
        let since = "2026-11-27T04:00:00Z".parse().unwrap();
        let named = |hold: &LockHold| LockHolder { name: hold.name(since), connection: 7, ..LockHolder::default() };
        assert!(alone.has_passed_to(&named(&one)) && one.has_passed_to(&named(&alone)));
        assert!(!one.has_passed_to(&named(&two)) && !named(&one).is_foreign() && named(&one).name.len() <= 63);
        let shown = named(&one).to_string();
        assert!(shown.starts_with(&format!("the node of process {} on ", process::id())), "{shown}");
    }

    #[test]
    fn nodes_serve_beside_one_another_and_not_beside_one_that_is_alone() {
        let Some(postgres) = Postgres::create() else { return };
        let Database::Postgres(url) = postgres.database() else { panic!("it is a PostgreSQL") };
        let clock = Clock::system();
        let ask = |sharing| ServingLock::ask_beside(&url, &clock, None, sharing, vec!["key".to_owned()]);
        let is_ours = |lock: &ServingLock| matches!(lock.state(), LockState::Ours { .. });
        let begin = || {
            let mut writer = engine::open_postgres(&url).unwrap();
            writer.batch_execute("BEGIN").unwrap();
            writer
        };
        let (one, mut of_one) = (ask(LockSharing::WithNodes).unwrap(), begin());
        one.hold().check(&mut of_one).unwrap();
        let (two, mut of_two) = (ask(LockSharing::WithNodes).unwrap(), begin());
        assert!(is_ours(&one) && is_ours(&two), "one joins while another one writes");
        two.hold().check(&mut of_two).unwrap();
        of_two.batch_execute("COMMIT").unwrap();
        let mut open = |key: &str| others_open(&mut of_two, Some(&two.hold()), key).unwrap();
        assert_eq!((open("key"), open("other")), (vec![true], vec![false]));
        let LockState::HeldBy(node) = ask(LockSharing::Alone).unwrap().state() else { panic!("nodes serve") };
        assert!(node.to_string().starts_with("the node of process "), "{node}");
        let hold = one.hold();
        drop((one, two));
        while let Ok(alone) = ask(LockSharing::Alone) {
            assert!(!is_ours(&alone), "a node has not ended its connection yet, or its transaction goes on");
        }
        of_one.batch_execute("COMMIT; BEGIN").unwrap();
        // A connection that asked before may not have ended yet.
        let _alone = loop {
            let alone = ask(LockSharing::Alone).unwrap();
            if is_ours(&alone) {
                break alone;
            }
        };
        assert!(hold.check(&mut of_one).is_err());
        let LockState::HeldBy(holder) = ask(LockSharing::WithNodes).unwrap().state() else { panic!("one is alone") };
        assert!(holder.to_string().starts_with("process "), "{holder}");
        assert!(hold.passed_to().is_some());
    }

    #[test]
    fn a_connection_that_a_pooler_left_behind_is_named_with_its_end() {
        let named = |name: &str| LockHolder { name: name.to_owned(), connection: 42, address: "10.0.0.7".to_owned() };
        for name in ["", "companion", "ps\u{1b}ql"] {
            let shown = named(name).to_string();
            for words in [", 10.0.0.7) of PostgreSQL", "`SELECT pg_terminate_backend(42)`", "no companion that serves"]
            {
                assert!(shown.contains(words) && !shown.contains('\u{1b}'), "{shown:?}");
            }
        }
        let taking_over = named(WAITS).to_string();
        assert!(taking_over.contains("takes over (connection 42 "), "{taking_over}");
        assert_eq!(LockHolder::default().to_string(), "another process, which serves");
    }
}
