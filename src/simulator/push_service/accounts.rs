//! The accounts: their messages until they are acknowledged, and the one session that each may have.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use chrono::TimeDelta;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::faults::PushServiceFaults;
use crate::{
    clock::Clock,
    domain::time::Timestamp,
    push::wire::{AppData, DataMessageStanza},
};

/// Messages that wait for one account, and those kept for a replay; when there are more, the oldest is dropped.
const MESSAGES: usize = 1000;
const VIOLATIONS: usize = 100;
/// The publisher's sender id and package.
const SENDER: &str = "976529667804";
const PACKAGE: &str = "com.facepunch.rust.companion";

/// Actions of clients so far.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Logins, and those of them that were refused.
    pub logins: u32,
    pub refused: u32,
    /// Heartbeats of clients.
    pub pings: u32,
    /// Their answers to ours.
    pub pongs: u32,
    pub stream_acks: u32,
    /// Actions that no client of the real service takes; the connection was cut.
    pub violations: Vec<String>,
}

impl Counts {
    /// Notes what a client did against the protocol.
    pub fn add_violation(&mut self, what: String) {
        if self.violations.len() < VIOLATIONS {
            self.violations.push(what);
        }
    }
}

/// All accounts, shared by the connections behind one lock that is never held across an await.
pub struct SharedAccounts {
    accounts: Mutex<Accounts>,
    pub clock: Clock,
    /// Notified of what clients do.
    pub changed: watch::Sender<()>,
    /// Notified when every connection must end.
    pub cut: watch::Sender<()>,
}

/// See the module.
#[derive(Default)]
pub struct Accounts {
    /// By Android id.
    pub by_id: HashMap<u64, Account>,
    pub faults: PushServiceFaults,
    pub counts: Counts,
    /// The last persistent id and the last session number.
    pushed: u64,
    sessions: u64,
}

/// An Android device that is registered for pushes, and those that wait for it.
pub struct Account {
    /// Its security token.
    pub token: u64,
    pub session: Option<AccountSession>,
    /// Neither acknowledged nor listed as received at a login.
    waiting: VecDeque<QueuedPush>,
    history: VecDeque<QueuedPush>,
}

/// The one session of an account; a newer login replaces it.
pub struct AccountSession {
    /// Heartbeats to send.
    pub pings: u32,
    number: u64,
    wake: Arc<Notify>,
    /// Messages delivered on it.
    delivered: u32,
}

#[derive(Clone)]
struct QueuedPush {
    stanza: DataMessageStanza,
    due: Instant,
    expires: Timestamp,
    /// The frame of the present session that contained it.
    frame: Option<i32>,
}

/// Next step of a connection.
pub enum Instruction {
    Deliver(Box<DataMessageStanza>),
    Ping,
    Close,
    /// Ends the connection without a close frame.
    Cut,
    /// Waits until this time, if any, or until it is woken.
    Wait(Option<Instant>),
}

impl Account {
    pub(crate) fn new(token: u64) -> Self {
        Self { token, session: None, waiting: VecDeque::new(), history: VecDeque::new() }
    }

    /// Messages that are not acknowledged yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Lets its connection ask for its next instruction.
    pub fn wake(&self) {
        if let Some(session) = &self.session {
            session.wake.notify_one();
        }
    }
}

impl Accounts {
    pub(crate) fn new(logins: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let by_id = logins.into_iter().map(|(android_id, token)| (android_id, Account::new(token))).collect();
        Self { by_id, ..Self::default() }
    }

    /// Queues a message for an account, if there is one, and returns its persistent id.
    pub fn push(
        &mut self,
        android_id: u64,
        app_data: Vec<(String, String)>,
        sent: Timestamp,
        ttl: TimeDelta,
    ) -> String {
        self.pushed += 1;
        let persistent_id = format!("0:{}%{:08x}", sent.timestamp_micros(), self.pushed);
        let Some(account) = self.by_id.get_mut(&android_id).filter(|_| !self.faults.lose) else {
            return persistent_id;
        };
        let stanza = DataMessageStanza {
            id: Some(format!("{:08X}", account.history.len())),
            from: SENDER.to_owned(),
            category: PACKAGE.to_owned(),
            token: Some("simulated".to_owned()),
            app_data: app_data.into_iter().map(|(key, value)| AppData { key, value }).collect(),
            persistent_id: Some(persistent_id.clone()),
            ttl: Some(i32::try_from(ttl.num_seconds()).unwrap_or(i32::MAX)),
            sent: Some(sent.timestamp_millis()),
            ..DataMessageStanza::default()
        };
        let due = Instant::now() + self.faults.delay.unwrap_or_default();
        let push = QueuedPush { stanza, due, expires: sent + ttl, frame: None };
        keep(&mut account.history, push.clone());
        keep(&mut account.waiting, push);
        account.wake();
        persistent_id
    }

    fn log_in(&mut self, android_id: u64, received: &HashSet<String>, wake: Arc<Notify>) -> u64 {
        self.sessions += 1;
        let number = self.sessions;
        if let Some(account) = self.by_id.get_mut(&android_id) {
            if self.faults.replay {
                account.waiting = account.history.clone();
            } else {
                let is_received = |id: &String| received.contains(id);
                account.waiting.retain(|push| !push.stanza.persistent_id.as_ref().is_some_and(is_received));
            }
            account.waiting.iter_mut().for_each(|push| push.frame = None);
            account.wake(); // the session before this one ends
            account.session = Some(AccountSession { number, wake, delivered: 0, pings: 0 });
        }
        number
    }

    /// Next step of this session's connection; a message becomes its frame `frame`.
    fn instruct(&mut self, android_id: u64, session: u64, frame: i32, now: Timestamp) -> Instruction {
        let faults = self.faults;
        let Some(account) = self.by_id.get_mut(&android_id) else { return Instruction::Cut };
        let Some(present) = &mut account.session else { return Instruction::Cut };
        if present.number != session {
            return Instruction::Close;
        }
        if present.pings > 0 {
            present.pings -= 1;
            return Instruction::Ping;
        }
        if faults.close_after.is_some_and(|limit| present.delivered >= limit) {
            return Instruction::Close;
        }
        account.waiting.retain(|push| push.frame.is_some() || push.expires > now);
        let next = account.waiting.iter_mut().find(|push| push.frame.is_none()).filter(|_| !faults.frozen);
        match next {
            None => Instruction::Wait(None),
            Some(push) if push.due > Instant::now() => Instruction::Wait(Some(push.due)),
            Some(push) => {
                present.delivered += 1;
                push.frame = Some(frame);
                let stream_id = Some(frame);
                Instruction::Deliver(Box::new(DataMessageStanza { stream_id, ..push.stanza.clone() }))
            }
        }
    }

    /// The client of this session has received all frames up to `last`.
    fn acknowledge(&mut self, android_id: u64, session: u64, last: i32) {
        if let Some(account) = self.by_id.get_mut(&android_id)
            && account.session.as_ref().is_some_and(|present| present.number == session)
        {
            account.waiting.retain(|push| push.frame.is_none_or(|frame| frame > last));
        }
    }
}

fn keep(pushes: &mut VecDeque<QueuedPush>, push: QueuedPush) {
    if pushes.len() == MESSAGES {
        pushes.pop_front();
    }
    pushes.push_back(push);
}

impl SharedAccounts {
    pub(crate) fn new(accounts: Accounts, clock: Clock) -> Self {
        Self { accounts: Mutex::new(accounts), clock, changed: watch::Sender::new(()), cut: watch::Sender::new(()) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something on behalf of a client, and notifies [`SharedAccounts::changed`].
    pub fn change<T>(&self, change: impl FnOnce(&mut Accounts) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.send_replace(());
        result
    }

    /// Begins the session of an account, without the messages that its client has received already.
    pub fn log_in(&self, android_id: u64, received: &HashSet<String>, wake: Arc<Notify>) -> LoggedIn<'_> {
        let session = self.change(|accounts| accounts.log_in(android_id, received, wake));
        LoggedIn { shared: self, android_id, session }
    }
}

/// The account is logged in until this is dropped.
pub struct LoggedIn<'a> {
    shared: &'a SharedAccounts,
    android_id: u64,
    session: u64,
}

impl LoggedIn<'_> {
    /// Next step of the connection, and the faults of the moment; a message becomes its frame `frame`.
    pub fn instruction(&self, frame: i32) -> (Instruction, PushServiceFaults) {
        let mut accounts = self.shared.lock();
        let instruction = accounts.instruct(self.android_id, self.session, frame, self.shared.clock.now());
        (instruction, accounts.faults)
    }

    /// The client has received all frames up to `last`; `count` counts the frame that said so.
    pub fn acknowledge(&self, last: i32, count: impl FnOnce(&mut Counts)) {
        self.shared.change(|accounts| {
            count(&mut accounts.counts);
            accounts.acknowledge(self.android_id, self.session, last);
        });
    }
}

impl Drop for LoggedIn<'_> {
    fn drop(&mut self) {
        self.shared.change(|accounts| {
            if let Some(account) = accounts.by_id.get_mut(&self.android_id) {
                account.session.take_if(|present| present.number == self.session);
            }
        });
    }
}
