//! The messages between nodes: late, and while something is wrong lost. Those of one sender keep their order, as with NATS, but
//! for some that a receiver must be able to have twice, or too late.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use companion::{
    cluster::node_mail::{Letter, MailRoute},
    relay::remote::remote_message::{RemoteContent, RemoteMessage},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use crate::{nodes::gate::Gate, random::Stream};

/// Letters in a hundred that are lost while something is wrong, that come twice, and that come out of turn.
const LOST: u64 = 12;
const TWICE: u64 = 4;
const OUT_OF_TURN: u64 = 4;
/// Milliseconds on their way, then and while all is well.
const LATE: u64 = 300;
const IN_TIME: u64 = 3;

/// Letters to one process.
struct Letters {
    /// In their order, each with the time at which it comes.
    in_turn: mpsc::UnboundedSender<(Instant, Bytes)>,
    come: mpsc::UnboundedSender<Bytes>,
}

pub struct Post {
    to: RefCell<BTreeMap<String, Letters>>,
    pub is_calm: Cell<bool>,
    /// Until then all letters are lost.
    pub silent_until: Cell<Instant>,
    random: RefCell<Stream>,
}

/// A message that may come again, or later than the ones after it: no question, whose command would be carried out twice, no
/// line or event, and no part of a message.
fn may_come_again(message: &Bytes) -> bool {
    let read = RemoteMessage::read(message.clone());
    read.is_some_and(|(message, _)| {
        !matches!(message.content, RemoteContent::Ask { .. } | RemoteContent::Deliver { .. })
    })
}

impl Post {
    pub fn new(seed: u64) -> Rc<Self> {
        Rc::new(Self {
            to: RefCell::default(),
            is_calm: Cell::new(false),
            silent_until: Cell::new(Instant::now()),
            random: RefCell::new(Stream::of(seed, "post")),
        })
    }

    /// Carries the letters of a node from now on, and those to it.
    pub fn serve(self: &Rc<Self>, gate: &Rc<Gate>, mut route: MailRoute) {
        let (in_turn, mut waiting) = mpsc::unbounded_channel::<(Instant, Bytes)>();
        let (come, mut letters) = mpsc::unbounded_channel();
        self.to.borrow_mut().insert(gate.process.clone(), Letters { in_turn, come: come.clone() });
        tokio::task::spawn_local(async move {
            while let Some((at, message)) = waiting.recv().await {
                sleep_until(at).await;
                let _ = come.send(message);
            }
        });
        let (post, gate) = (self.clone(), gate.clone());
        tokio::task::spawn_local(async move {
            loop {
                tokio::select! {
                    biased;
                    letter = route.outgoing.recv() => {
                        let Some(letter) = letter else { return };
                        gate.pass().await;
                        post.send(letter);
                    }
                    Some(message) = letters.recv() => {
                        gate.pass().await;
                        route.deliver(message);
                    }
                }
            }
        });
    }

    fn send(&self, Letter { to, message }: Letter) {
        let all = self.to.borrow();
        let Some(letters) = all.get(&to) else { return };
        let mut random = self.random.borrow_mut();
        let is_calm = self.is_calm.get();
        if self.silent_until.get() > Instant::now() || (!is_calm && random.chance(LOST)) {
            return;
        }
        let at = Instant::now() + Duration::from_millis(random.between(1, if is_calm { IN_TIME } else { LATE }));
        let is_odd = !is_calm && random.chance(TWICE + OUT_OF_TURN) && may_come_again(&message);
        if is_odd {
            let (come, message) = (letters.come.clone(), message.clone());
            tokio::task::spawn_local(async move {
                sleep_until(at).await;
                let _ = come.send(message);
            });
        }
        if !is_odd || random.below(TWICE + OUT_OF_TURN) < TWICE {
            // The one before may come later still.
            let _ = letters.in_turn.send((at, message));
        }
    }
}
