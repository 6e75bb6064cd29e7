//! Writes over a disk that fails: those that were acknowledged are in the database after each restart, alarms that were
//! announced are in the ledger, and no act is acknowledged of which the disk took nothing.

use std::collections::{BTreeMap, BTreeSet};

use actix::Addr;
use companion::{
    db::{
        engine::pool::{Db, Pool},
        schema::{guests, incidents, merged_incidents, paired_servers, push_credentials, sessions},
    },
    push::worker::PushWorker,
    relay::hub::Hub,
    simulator::world::WALL_ALARM,
};
use diesel::{ExpressionMethods as _, QueryDsl as _, RunQueryDsl as _};
use tokio::time::{Duration, sleep};

use crate::{
    erasure::ERASED,
    judge::Judge,
    life::{Service, session},
    oracle,
    random::Stream,
    run::Run,
    script::{Act, HEALTHY_FROM, Script},
    world::{Fate, JournalFate, PAIRED, USERS, UserAct, world},
};

/// Seeds in a hundred in which the process dies while users write to a bad disk.
const DIE_AT_WRITES: u64 = 60;
/// Virtual milliseconds between two acts of users, then.
const APART: u64 = 150;

/// A row that acts of users write or delete.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WrittenRow {
    Session(String),
    /// A paired server, by its id.
    Server(String),
    /// The right of Bob to watch this server.
    Guest(String),
    Credential(usize),
}

/// The last that is known of a row.
#[derive(Default)]
struct RowState {
    attempts: u32,
    /// True if the row is there, false if it is not; nothing after an attempt that was not acknowledged.
    is_there: Option<bool>,
}

/// An act that has begun.
pub struct BegunWrite {
    /// Rows with the number of the attempt, and if they are there afterwards.
    rows: Vec<(WrittenRow, u32, bool)>,
    /// Writes that the disk had taken before.
    taken_before: u64,
    /// Erasures that had begun before.
    erasures_before: u32,
}

#[derive(Default)]
pub struct Writes {
    rows: BTreeMap<WrittenRow, RowState>,
    /// Erasures that have begun.
    erasures: u32,
}

impl Writes {
    fn attempt(&mut self, row: WrittenRow, is_there: bool) -> (WrittenRow, u32, bool) {
        let state = self.rows.entry(row.clone()).or_default();
        (state.attempts, state.is_there) = (state.attempts + 1, None);
        (row, state.attempts, is_there)
    }

    fn acknowledge(&mut self, (row, attempt, is_there): (WrittenRow, u32, bool)) {
        // A later attempt may have been stored without an answer.
        if let Some(state) = self.rows.get_mut(&row).filter(|state| state.attempts == attempt) {
            state.is_there = Some(is_there);
        }
    }

    /// True if a server that was paired meanwhile may have gone with its owner: an erasure that waited behind the pairing
    /// did not know its id.
    fn may_be_erased(&self, paired: usize, erasures_before: u32) -> bool {
        PAIRED[paired].1 == ERASED && self.erasures != erasures_before
    }

    /// Rows of a user that go with the user.
    fn of_user(&self, user: usize) -> Vec<WrittenRow> {
        let prefix = format!("{}-", USERS[user]);
        let is_own = |row: &&WrittenRow| match row {
            WrittenRow::Session(id) => id.starts_with(&prefix),
            WrittenRow::Credential(owner) => *owner == user,
            WrittenRow::Guest(_) => user == 1,
            WrittenRow::Server(_) => false,
        };
        self.rows.keys().filter(is_own).cloned().collect()
    }
}

/// When the process dies while users write to a bad disk: a stream of its own, so that the rest of the script is what it was.
pub fn deaths(seed: u64) -> Script {
    let mut random = Stream::of(seed, "writes");
    if !random.chance(DIE_AT_WRITES) {
        return Script::new();
    }
    let deaths = random.between(1, 4);
    let die = |_| {
        let fate = match random.below(4) {
            0 => Fate::Full,
            1 => Fate::Slow(random.between(50, 900)),
            _ => Fate::Flaky(random.between(20, 80)),
        };
        let journal = match random.below(4) {
            0 => JournalFate::Full,
            1 => JournalFate::Tear,
            2 => JournalFate::Slow(random.between(20, 900)),
            _ => JournalFate::Run,
        };
        let at = random.between(8_000, HEALTHY_FROM - 15_000);
        (at, Act::DieAtWrites { fate, journal, after: random.between(100, 4_000) })
    };
    (0..deaths).map(die).collect()
}

impl Run {
    /// Users write, an alarm goes off, and the process dies `after` milliseconds later.
    pub fn die_at_writes(&self, fate: Fate, journal: JournalFate, after: u64) {
        self.lossy();
        let world = self.world.clone();
        world.judge.borrow_mut().bad_disk = true;
        world.fate.set(fate);
        world.journal_fate.set(journal);
        oracle::change(0, |world| world.release_alarm(WALL_ALARM));
        oracle::change(0, |world| world.fire_alarm(WALL_ALARM));
        let mut random = Stream::of(world.seed, &format!("writes of {}", world.millis()));
        let mut acts = vec![
            UserAct::Guest(random.chance(50)),
            UserAct::SignIn(USERS[0].into(), session(0, self.next_session())),
            UserAct::UploadCredential(random.below(USERS.len() as u64) as usize),
            UserAct::Pair(random.below(PAIRED.len() as u64) as usize),
            UserAct::Guest(random.chance(50)),
        ];
        acts.rotate_left(random.below(5) as usize);
        for (number, act) in (0..).zip(acts) {
            let world = world.clone();
            tokio::task::spawn_local(async move {
                sleep(Duration::from_millis(APART * number)).await;
                let done = world.act(act.clone()).await;
                world.trace(&format!("{act:?} on a bad disk: {done}"));
            });
        }
        tokio::task::spawn_local(async move {
            world.kill_after(after).await;
        });
    }
}

impl Service {
    /// Carries out an act, and notes what was acknowledged of it.
    pub async fn answer(&self, act: UserAct, hub: &Addr<Hub>, push: &Addr<PushWorker>) -> bool {
        let begun = world().judge.borrow_mut().begin_write(&act);
        let done = self.act(act.clone(), hub, push).await;
        if done {
            world().judge.borrow_mut().end_write(&act, begun);
        }
        done
    }
}

impl Judge {
    /// The rows that were furnished before the first life are there.
    pub fn furnished(&mut self) {
        let servers: Vec<_> = PAIRED.iter().filter_map(|(name, ..)| self.server(name)).collect();
        let servers = servers.into_iter().map(|server| WrittenRow::Server(server.to_string()));
        let of_user = |user| [WrittenRow::Session(session(user, 0).as_str().to_owned()), WrittenRow::Credential(user)];
        for row in servers.chain((0..USERS.len()).flat_map(of_user)) {
            let written = self.writes.attempt(row, true);
            self.writes.acknowledge(written);
        }
    }

    fn begin_write(&mut self, act: &UserAct) -> BegunWrite {
        let server = |paired: usize| self.server(PAIRED[paired].0).map(|server| server.to_string());
        let rows: Vec<(WrittenRow, bool)> = match act {
            UserAct::SignIn(_, session) => vec![(WrittenRow::Session(session.as_str().to_owned()), true)],
            UserAct::SignOut(session) => vec![(WrittenRow::Session(session.as_str().to_owned()), false)],
            UserAct::Return(session) => {
                vec![(WrittenRow::Session(session.as_str().to_owned()), true), (WrittenRow::Credential(ERASED), true)]
            }
            UserAct::UploadCredential(user) => vec![(WrittenRow::Credential(*user), true)],
            UserAct::Guest(is_guest) => {
                server(0).into_iter().map(|server| (WrittenRow::Guest(server), *is_guest)).collect()
            }
            // A server that was deleted has another id afterwards.
            UserAct::Pair(paired) => {
                server(*paired).into_iter().map(|server| (WrittenRow::Server(server), true)).collect()
            }
            UserAct::Delete(paired) => {
                server(*paired).into_iter().map(|server| (WrittenRow::Server(server), false)).collect()
            }
            UserAct::Erase => {
                let own = PAIRED.iter().enumerate().filter(|(_, (_, owner, _))| *owner == ERASED);
                let servers = own.filter_map(|(paired, _)| server(paired)).map(WrittenRow::Server);
                servers.chain(self.writes.of_user(ERASED)).map(|row| (row, false)).collect()
            }
            _ => Vec::new(),
        };
        let rows = rows.into_iter().map(|(row, is_there)| self.writes.attempt(row, is_there)).collect();
        let erasures_before = self.writes.erasures;
        self.writes.erasures += u32::from(matches!(act, UserAct::Erase));
        BegunWrite { rows, taken_before: world().writes_taken.get(), erasures_before }
    }

    fn end_write(&mut self, act: &UserAct, begun: BegunWrite) {
        let BegunWrite { mut rows, taken_before, erasures_before } = begun;
        if let UserAct::Pair(paired) = act
            && let Some(server) = self.server(PAIRED[*paired].0)
        {
            let row = WrittenRow::Server(server.to_string());
            rows.retain(|(begun, ..)| *begun == row);
            // Unless its deletion has begun meanwhile.
            if !self.writes.rows.contains_key(&row) && !self.writes.may_be_erased(*paired, erasures_before) {
                rows.push(self.writes.attempt(row, true));
            }
        }
        let is_stored_later = matches!(act, UserAct::Say(..) | UserAct::Drill(_));
        if !is_stored_later && world().writes_taken.get() == taken_before {
            self.broken("refused-is-refused", format!("{act:?} is acknowledged, and the disk took no write"));
        }
        rows.into_iter().for_each(|row| self.writes.acknowledge(row));
    }

    /// True if the journal did not take what was to be kept of this incident.
    pub fn is_unkept(&self, incident: &str) -> bool {
        self.unsaved_alarms.iter().any(|line| line.contains(incident))
    }

    /// When the service has started, before it does anything, and at the end.
    pub fn check_kept(&mut self, pool: &Pool) {
        let (there, servers, known) = pool.read_blocking(rows_there).expect("the database can be read");
        let is_lost = |(row, state): &(&WrittenRow, &RowState)| {
            // The right to watch goes with its server.
            let is_due = match row {
                WrittenRow::Guest(server) => servers.contains(server),
                _ => true,
            };
            is_due && state.is_there.is_some_and(|is_there| is_there != there.contains(*row))
        };
        let lost = self.writes.rows.iter().find(is_lost).map(|(row, state)| (row.clone(), state.is_there));
        if let Some((row, is_there)) = lost {
            self.broken("acknowledged-is-kept", format!("{row:?}: it is acknowledged that {is_there:?}"));
        }
        let is_lost = |(incident, server): &(&String, &String)| {
            servers.contains(*server) && !known.contains(*incident) && !self.is_unkept(incident)
        };
        if let Some((incident, server)) = self.seen.iter().find(is_lost) {
            let details = format!("{incident} of {server} was announced and has no row");
            self.broken("announced-has-row", details);
        }
    }
}

type Rows = (BTreeSet<WrittenRow>, BTreeSet<String>, BTreeSet<String>);

/// Rows that acts write, ids of paired servers, and those of incidents, also of such as have become a part of another.
fn rows_there(db: &mut Db) -> Result<Rows, companion::db::engine::error::DbError> {
    let servers: BTreeSet<String> =
        paired_servers::table.select(paired_servers::id).load::<String>(db)?.into_iter().collect();
    let sessions = sessions::table.select(sessions::id).load::<String>(db)?.into_iter().map(WrittenRow::Session);
    let of_bob = guests::table.filter(guests::user_id.eq(USERS[1])).select(guests::server_id);
    let guests = of_bob.load::<String>(db)?.into_iter().map(WrittenRow::Guest);
    let credentials = push_credentials::table.select(push_credentials::user_id).load::<String>(db)?;
    let credentials =
        (0..USERS.len()).filter(|user| credentials.iter().any(|of| of == USERS[*user])).map(WrittenRow::Credential);
    let there = servers.iter().cloned().map(WrittenRow::Server).chain(sessions).chain(guests).chain(credentials);
    let there = there.collect();
    let mut known: BTreeSet<String> = incidents::table.select(incidents::id).load::<String>(db)?.into_iter().collect();
    known.extend(merged_incidents::table.select(merged_incidents::id).load::<String>(db)?);
    Ok((there, servers, known))
}
