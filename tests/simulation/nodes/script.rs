//! The script of nodes and of the world around them, made from the seed, until all is well.

use crate::{
    menu,
    random::Stream,
    world::{GAMES, PAIRED},
};

use super::{PLACES, watcher::WATCHERS};

/// When it begins: the nodes have their parts by then. When all is well again.
const FROM: u64 = 10_000;
pub const WELL_FROM: u64 = 100_000;
/// When all clients are back at their own nodes: what was lost has another node by then, and parts have come back.
pub const AT_HOME: u64 = 135_000;
/// When a session ends while all is well.
pub const SIGNED_OUT: u64 = 140_000;
/// When a mate leaves the game, and an alarm goes on, off and on again.
pub const MATE_LEAVES: u64 = 146_000;
pub const SHED_ON: u64 = 147_000;
pub const SHED_OFF: u64 = 149_000;
pub const SHED_AGAIN: u64 = 151_000;
/// When a node ends in order, and hands over what it has.
pub const HANDED_OVER: u64 = 152_000;
/// When all clients are back once more.
pub const AT_HOME_AGAIN: u64 = 186_000;
/// When the last alarm goes off; from then on no part moves.
pub const LAST_ALARM: u64 = 200_000;
pub const LENGTH: u64 = 222_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeAct {
    Alarm {
        game: usize,
        alarm: usize,
    },
    AlarmOff {
        game: usize,
        alarm: usize,
    },
    /// An alarm that is pushed for this paired server, and that its link does not see.
    Push(usize),
    Chat(usize),
    Market(usize),
    Drill(usize),
    SignOut(usize),
    /// The socket of this client breaks.
    Cut(usize),
    /// The game server restarts.
    Restart(usize),
    // Faults
    /// The node at this place is stopped for a while.
    Stop {
        place: usize,
        millis: u64,
    },
    /// The node dies, and another process takes its place.
    Kill {
        place: usize,
        millis: u64,
    },
    /// The node ends in order, and another process takes its place.
    End {
        place: usize,
        millis: u64,
    },
    /// The lease store does not answer it.
    LeasesAway {
        place: usize,
        millis: u64,
    },
    /// The lease store forgets everything.
    LeasesLost,
    /// No message between nodes arrives.
    Silence(u64),
}

/// Kinds of acts with their weights; a seed keeps only some of the faults.
const MENU: [(u64, menu::Draw<NodeAct>); 15] = [
    (12, |r| NodeAct::Alarm { game: game(r), alarm: r.below(2) as usize }),
    (8, |r| NodeAct::AlarmOff { game: game(r), alarm: r.below(2) as usize }),
    (10, |r| NodeAct::Push(r.below(PAIRED.len() as u64) as usize)),
    (5, |r| NodeAct::Chat(game(r))),
    (30, |r| NodeAct::Market(game(r))),
    (3, |r| NodeAct::Drill(r.below(PAIRED.len() as u64) as usize)),
    (2, |r| NodeAct::SignOut(r.below(WATCHERS.len() as u64) as usize)),
    (3, |r| NodeAct::Cut(r.below(WATCHERS.len() as u64) as usize)),
    (1, |r| NodeAct::Restart(game(r))),
    (4, |r| NodeAct::Stop { place: place(r), millis: r.between(500, 25_000) }),
    (2, |r| NodeAct::Kill { place: place(r), millis: r.between(500, 20_000) }),
    (2, |r| NodeAct::End { place: place(r), millis: r.between(500, 10_000) }),
    (2, |r| NodeAct::LeasesAway { place: place(r), millis: r.between(1_000, 20_000) }),
    (1, |_| NodeAct::LeasesLost),
    (2, |r| NodeAct::Silence(r.between(500, 15_000))),
];
const FIRST_FAULT: usize = 9;

fn game(random: &mut Stream) -> usize {
    random.below(GAMES.len() as u64) as usize
}

fn place(random: &mut Stream) -> usize {
    random.below(PLACES as u64) as usize
}

/// When what is done.
pub type NodeScript = Vec<(u64, NodeAct)>;

/// The script of a seed.
pub fn script(seed: u64) -> NodeScript {
    let mut random = Stream::of(seed, "script of nodes");
    let mut script = menu::draw(&MENU, (FIRST_FAULT, 60), 400..2_000, FROM..WELL_FROM, &mut random);
    // Each seed has one of what only several nodes must bear: a node that wakes after another one has taken its parts.
    script.push((random.between(20_000, 60_000), NodeAct::Stop { place: place(&mut random), millis: 18_000 }));
    script.sort_by_key(|(at, _)| *at);
    script
}
