//! The script of a run, made from the seed. Every seed draws its own mix of faults ("swarm"), or they would mask
//! one another. The last minutes are healthy.
//!
//! To add a fault: a variant of [`Act`], its weight in [`MENU`], and what it does in [`Run::act`](crate::run::Run).

use crate::{
    browsers, bursts,
    channels::ReceiverFate,
    guests, menu, overlays,
    random::Stream,
    team_alarms, team_commands,
    teams::{self, TeamMove},
    wire::WireKind,
    world::{Fate, GAMES, JournalFate, PAIRED, USERS},
    writes,
};

/// Ten minutes, of which the last five are healthy: longer than silence, longest pause and deadlines in a row.
pub const LENGTH: u64 = 600_000;
pub const HEALTHY_FROM: u64 = 270_000;
/// When the owner wants the gates to be as they are at the end.
pub const HEALTHY_TOGGLE: u64 = 400_000;
/// When the database becomes slow, what is pushed then, and until when it is so.
pub const SLOW_FROM: u64 = 404_000;
pub const SLOW_PUSH: u64 = 406_000;
pub const SLOW_UNTIL: u64 = 412_000;
/// When mates say something in the healthy minutes.
pub const HEALTHY_CHAT: u64 = 420_000;
/// When each owner says a line through the API.
pub const HEALTHY_SAY: u64 = 425_000;
/// When a mate dies.
pub const HEALTHY_DEATH: u64 = 430_000;
/// When something is pushed, and when the push service sends everything once more.
pub const HEALTHY_NOTICE: u64 = 432_000;
pub const REPLAY_FROM: u64 = 434_000;
pub const REPLAY_UNTIL: u64 = 438_000;
/// When an alarm goes on, and off again.
pub const SHED_ON: u64 = 440_000;
pub const SHED_OFF: u64 = 444_000;
/// When an alarm goes off in the healthy minutes, and once more. Its incident ends before the end.
pub const FIRST_HEALTHY_ALARM: u64 = 450_000;
pub const SECOND_HEALTHY_ALARM: u64 = FIRST_HEALTHY_ALARM + 6_000;
/// When an alarm goes on while no link is up, which comes back and sees it: later than two reports of one trigger are
/// apart.
pub const UNSEEN_ALARM: u64 = 500_000;
pub const UNSEEN_FOR: u64 = 12_000;
/// When an alarm goes on, and stays on.
pub const ROOF_ON: u64 = LAST_END - 3_000;
/// When the process may end once more, and for how long the alarm that went on and off waits until it goes on again.
pub const LAST_END: u64 = 540_000;
pub const MISSED_AFTER: u64 = 300;
/// When the last alarm goes off, which everybody must receive.
pub const LAST_ALARM: u64 = LENGTH - 30_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    // The world
    Alarm {
        game: usize,
        alarm: usize,
    },
    AlarmOff {
        game: usize,
        alarm: usize,
    },
    /// A push of an alarm that the link does not see.
    Push {
        user: usize,
        game: usize,
    },
    /// One that was sent half an hour ago.
    LatePush {
        user: usize,
        game: usize,
    },
    /// A push of an alarm that has rung before.
    PushAgain(usize),
    /// The database takes nothing when an alarm and something else are pushed; then the process may die.
    UnstoredPush {
        user: usize,
        is_killed: bool,
    },
    /// A push of what is no alarm: a death, a login or news.
    Notice {
        user: usize,
        kind: u8,
    },
    /// The owner of this server pairs it in the game, which pushes so.
    PairInGame(usize),
    /// Many lines at once.
    ChatBurst(usize),
    /// Many pings at once.
    PingBurst(usize),
    Chat(usize),
    /// The owner of this server says a line through the API.
    Say(usize),
    Market(usize),
    Switch(usize),
    Wipe(usize),
    /// The owner of the game server replaces the map, and nothing else.
    OtherMap(usize),
    /// A mate dies, or wakes up again.
    Die(usize),
    /// A mate gives a command, or sets a timer, in the team's chat.
    Command {
        game: usize,
        mate: usize,
    },
    Timer {
        game: usize,
        mate: usize,
    },
    /// The player of this paired server changes the team.
    Move {
        paired: usize,
        to: TeamMove,
    },
    /// Every team says something.
    TeamTalk(usize),
    /// The token of this paired server is revoked for a while, and then accepted again or replaced.
    RevokeToken {
        paired: usize,
        millis: u64,
        is_replaced: bool,
    },
    /// The game server restarts: every connection to it ends.
    Restart(usize),
    /// A restart while mates go on to talk.
    RestartAndTalk(usize),
    // Users
    Toggle(usize),
    Ping(usize),
    Subscribe(usize, usize),
    Unsubscribe(usize, usize),
    PairAgain(usize),
    Delete(usize),
    SignOut(usize),
    /// The owner of this overlay removes its device, and makes it once more.
    RemoveOverlay(usize),
    /// Bob erases himself, and comes back.
    Erase,
    Upload(usize),
    UploadRefused(usize),
    Drill(usize),
    Guest(bool),
    /// Alice lets Bob watch, then not, then again, then not, all within a moment, while he does.
    GuestBurst,
    // Faults
    Cut(WireKind, u64),
    CutAfter(WireKind, u64, usize),
    Hole(WireKind, u64),
    Lag(WireKind, u64, u64),
    Stall(usize, bool),
    RefuseGame(usize, u64),
    GameFault(usize, u8),
    PushFault(u8),
    DropPushes,
    ReceiverFault(ReceiverFate),
    /// The push service treats this user's browser so.
    BrowserFault {
        user: usize,
        fate: ReceiverFate,
    },
    Disk(Fate),
    /// Users write while both disks are so, an alarm goes off, and the process dies.
    DieAtWrites {
        fate: Fate,
        journal: JournalFate,
        after: u64,
    },
    JournalDisk(JournalFate),
    /// The database takes nothing, the journal takes one alarm in part and the next one whole, and the process dies.
    TornJournal(usize),
    /// The process dies, and the start after it fails: the journal cannot be read, and then it dies before it has emptied it.
    FailedStart(usize),
    /// The process dies, and after the start the database fails now and then, while an alarm goes on and off.
    FlakyStart(usize),
    Jump(i64),
    Kill,
    /// The service ends gracefully.
    End,
    /// An end right after an alarm, with a disk that takes nothing.
    EndAtAlarm(usize),
    /// The process dies after this number of queries, counted from a push of an alarm that has rung before.
    KillAtPush {
        paired: usize,
        in_queries: u64,
        committed: bool,
    },
    /// The database takes nothing while all alarms go on; the process dies this number of queries after it recovers.
    KillAtRecovery(u64),
    /// An alarm that is to be said in the team's chat goes off, and the process dies `after` milliseconds later.
    KillAtAnnouncement {
        game: usize,
        alarm: usize,
        after: u64,
    },
    /// Alarms go on again and again with this database, and the process dies `after` milliseconds later.
    DieAtBurst {
        game: usize,
        fate: Fate,
        after: u64,
    },
    /// The process dies this number of queries after an alarm.
    KillAtAlarm {
        game: usize,
        in_queries: u64,
        committed: bool,
    },
}

/// Kinds of acts with their weights; a seed keeps only some of the faults.
const MENU: [(u64, menu::Draw<Act>); 52] = [
    (30, |r| Act::Alarm { game: game(r), alarm: r.below(2) as usize }),
    (20, |r| Act::AlarmOff { game: game(r), alarm: r.below(2) as usize }),
    (12, |r| Act::Push { user: user(r), game: game(r) }),
    (6, |r| Act::PushAgain(paired(r))),
    (3, |r| Act::LatePush { user: user(r), game: game(r) }),
    (10, |r| Act::Chat(game(r))),
    (3, |r| Act::Say(paired(r))),
    (2, |r| Act::ChatBurst(game(r))),
    (2, |r| Act::PingBurst(dashboard(r))),
    (40, |r| Act::Market(game(r))),
    (8, |r| Act::Switch(game(r))),
    (1, |r| Act::Wipe(game(r))),
    (4, |r| Act::Die(game(r))),
    (1, |r| Act::Restart(game(r))),
    (1, |r| Act::RestartAndTalk(game(r))),
    (8, |r| Act::Toggle(dashboard(r))),
    (5, |r| Act::Ping(dashboard(r))),
    (6, |r| Act::Subscribe(dashboard(r), paired(r))),
    (4, |r| Act::Unsubscribe(dashboard(r), paired(r))),
    (3, |r| Act::PairAgain(paired(r))),
    (1, |r| Act::Delete(paired(r))),
    (2, |r| Act::SignOut(dashboard(r))),
    (1, |_| Act::Erase),
    (2, |r| Act::Upload(user(r))),
    (2, |r| Act::UploadRefused(user(r))),
    (4, |r| Act::Notice { user: user(r), kind: r.below(3) as u8 }),
    (2, |r| Act::PairInGame(paired(r))),
    (2, |r| Act::Drill(paired(r))),
    (4, |r| Act::Guest(r.chance(60))),
    // From here on faults.
    (8, |r| Act::Cut(kind(r), r.bits())),
    (5, |r| Act::CutAfter(kind(r), r.bits(), r.between(1, 3_000) as usize)),
    (3, |r| Act::Hole(kind(r), r.bits())),
    (5, |r| Act::Lag(kind(r), r.bits(), r.between(10, 4_000))),
    (5, |r| Act::Stall(dashboard(r), r.chance(60))),
    (3, |r| Act::RefuseGame(game(r), r.between(1, 40))),
    (5, |r| Act::GameFault(game(r), r.below(9) as u8)),
    (5, |r| Act::PushFault(r.below(7) as u8)),
    (3, |_| Act::DropPushes),
    (6, |r| Act::ReceiverFault(receiver(r))),
    (6, |r| Act::Disk(disk(r))),
    (3, |r| Act::JournalDisk(journal_disk(r))),
    (2, |r| Act::TornJournal(game(r))),
    (2, |r| Act::FailedStart(game(r))),
    (2, |r| Act::FlakyStart(game(r))),
    (3, |r| Act::UnstoredPush { user: user(r), is_killed: r.chance(50) }),
    (2, |r| Act::Jump(r.between(0, 7_200) as i64 - 3_600)),
    (3, |_| Act::Kill),
    (2, |_| Act::End),
    (2, |r| Act::EndAtAlarm(game(r))),
    (3, |r| Act::KillAtPush { paired: paired(r), in_queries: r.below(6), committed: r.chance(50) }),
    (2, |r| Act::KillAtRecovery(r.below(12))),
    (4, |r| Act::KillAtAlarm { game: game(r), in_queries: r.below(5), committed: r.chance(50) }),
];
const FIRST_FAULT: usize = 29;
pub const DASHBOARDS: [(usize, &[usize]); 5] = [(0, &[0, 1]), (0, &[0]), (0, &[1]), (1, &[2]), (1, &[2])];

fn game(random: &mut Stream) -> usize {
    random.below(GAMES.len() as u64) as usize
}

fn user(random: &mut Stream) -> usize {
    random.below(USERS.len() as u64) as usize
}

fn paired(random: &mut Stream) -> usize {
    random.below(PAIRED.len() as u64) as usize
}

fn dashboard(random: &mut Stream) -> usize {
    random.below(DASHBOARDS.len() as u64) as usize
}

fn kind(random: &mut Stream) -> WireKind {
    [WireKind::Link, WireKind::Push, WireKind::Relay][random.below(3) as usize]
}

fn disk(random: &mut Stream) -> Fate {
    match random.below(5) {
        0 => Fate::Slow(random.between(20, 400)),
        1 => Fate::Slow(random.between(400, 7_000)),
        2 => Fate::Full,
        3 => Fate::Flaky(random.between(20, 80)),
        _ => Fate::Run,
    }
}

/// A fate of messages.
pub fn receiver(random: &mut Stream) -> ReceiverFate {
    match random.below(7) {
        0 => ReceiverFate::Slow(random.between(100, 7_000)),
        1 => ReceiverFate::Failing,
        2 => ReceiverFate::Throttling,
        3 => ReceiverFate::Silent,
        4 => ReceiverFate::Unanswered,
        5 => ReceiverFate::Gone,
        _ => ReceiverFate::Run,
    }
}

fn journal_disk(random: &mut Stream) -> JournalFate {
    match random.below(4) {
        0 => JournalFate::Slow(random.between(20, 3_000)),
        1 => JournalFate::Full,
        2 => JournalFate::Tear,
        _ => JournalFate::Run,
    }
}

/// When what is done.
pub type Script = Vec<(u64, Act)>;

/// Seeds in a hundred in which a map is replaced.
const OTHER_MAP: u64 = 30;

/// When: a stream of its own, so that the rest of the script is what it was.
fn other_maps(seed: u64) -> Script {
    let mut random = Stream::of(seed, "other map");
    if !random.chance(OTHER_MAP) {
        return Script::new();
    }
    vec![(random.between(20_000, HEALTHY_FROM - 30_000), Act::OtherMap(game(&mut random)))]
}

/// The script of a seed.
pub fn script(seed: u64) -> Script {
    let mut random = Stream::of(seed, "script");
    let mut script = menu::draw(&MENU, (FIRST_FAULT, 35), 200..2_500, 2_000..HEALTHY_FROM, &mut random);
    script.extend(team_commands::commands(seed));
    script.extend(overlays::removals(seed));
    script.extend(writes::deaths(seed));
    script.extend(team_alarms::deaths(seed));
    script.extend(bursts::deaths(seed));
    script.extend(guests::changes(seed));
    script.extend(browsers::faults(seed));
    script.extend(other_maps(seed));
    script.extend(teams::moves(seed));
    script.extend(teams::revocations(seed));
    script.sort_by_key(|(at, _)| *at);
    script
}
