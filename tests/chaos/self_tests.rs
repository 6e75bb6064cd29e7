//! Tests of the test: each judge is shown a history that is as promised, and then some that are not.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::{
    games::{self, Pairing},
    nodes::{is_not_understood, last_node},
    records::{
        AlarmRow, AlarmWay, HolderChange, IncidentRow, LinksOfGame, LiveNode, RaisedAlarm, SeenRaid, SocketId,
        StoredLedger, TakeOver, WatchedState,
    },
    script::{FaultKind, NODES, Script, UPGRADE_LENGTH},
    verdict::{
        judge_announcements, judge_holders, judge_ledger, judge_numbers, judge_places, judge_states, judge_take_overs,
        repeated,
    },
    watchers::Seen,
    ways::{Trouble, Ways},
};

/// Seeds whose scripts are looked at.
const SCRIPTS: u64 = 200;
/// Time in which nothing arrives on a way that is held.
const NOTHING_WITHIN: Duration = Duration::from_millis(200);
/// Longest wait for what is to arrive.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs all; a failing one panics.
pub async fn run() {
    ledgers();
    announcements();
    numbers();
    holders();
    states();
    take_overs();
    streams();
    scripts();
    pairings();
    assert_eq!(
        last_node("INFO a: this process is a node node=x-1\nb\nINFO a: this process is a node node=x-2\n"),
        Some("x-2")
    );
    assert_eq!(last_node("INFO a: it waits node=x-1\n"), None);
    assert!(is_not_understood("now WARN a: a message of another node cannot be read: that node runs another version"));
    assert!(!is_not_understood("now INFO a: it cannot be read") && !is_not_understood("now WARN a: no answer"));
    ways().await;
}

/// This judge has one complaint, with these words.
#[track_caller]
fn complains(broken: &[String], words: &str) {
    assert!(broken.len() == 1 && broken[0].contains(words), "{words:?} is not what it says: {broken:?}");
}

#[track_caller]
fn is_content(broken: &[String]) {
    assert_eq!(broken, [""; 0]);
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn raised(name: &str, way: AlarmWay) -> RaisedAlarm {
    RaisedAlarm { server: "one".to_owned(), name: name.to_owned(), way, at: at(1) }
}

fn incident(id: &str, alarm_name: &str) -> IncidentRow {
    IncidentRow { id: id.to_owned(), server: "one".to_owned(), alarm_name: alarm_name.to_owned(), count: 1 }
}

fn alarm(path: &str, title: &str, incident: &str) -> AlarmRow {
    AlarmRow {
        path: path.to_owned(),
        server: Some("one".to_owned()),
        title: title.to_owned(),
        incident: Some(incident.to_owned()),
        is_finished: true,
    }
}

/// Three alarms as they are to be, each by another way.
fn ledger() -> StoredLedger {
    StoredLedger {
        incidents: vec![incident("a", "A"), incident("b", "B"), incident("c", "C")],
        alarms: vec![
            alarm("link", "A", "a"),
            alarm("push", "B", "b"),
            alarm("link", "C", "c"),
            alarm("push", "C", "c"),
        ],
        parts: BTreeSet::from(["part".to_owned()]),
    }
}

fn ledgers() {
    let all = [raised("A", AlarmWay::Link), raised("B", AlarmWay::Push), raised("C", AlarmWay::LinkAndPush)];
    let judged = |change: fn(&mut StoredLedger)| {
        let mut ledger = ledger();
        change(&mut ledger);
        judge_ledger(&all, &ledger)
    };
    is_content(&judged(|_| ()));
    complains(&judged(|ledger| ledger.incidents.push(incident("d", "A"))), "is in 2 incidents");
    complains(&judged(|ledger| ledger.incidents.push(incident("d", "D"))), "nothing has raised incident d");
    complains(&judged(|ledger| ledger.alarms.push(alarm("push", "B", "b"))), "in the ledger 2 times");
    complains(&judged(|ledger| ledger.alarms[0].is_finished = false), "is not finished");
    complains(&judged(|ledger| ledger.alarms[0].incident = None), "which there is not");
    complains(&judged(|ledger| ledger.alarms[2].incident = Some("part".to_owned())), "which there is not");
    complains(&judged(|ledger| ledger.alarms[1].incident = Some("a".to_owned())), "has incident Some(\"a\"), not b");
    complains(&judged(|ledger| drop(ledger.alarms.remove(3))), "in the ledger 0 times");
    let lost = |ledger: &mut StoredLedger| {
        ledger.incidents.remove(0);
        ledger.alarms.remove(0);
    };
    complains(&judged(lost), "is in 0 incidents");
    complains(&judged(|ledger| ledger.incidents[0].server = "two".to_owned())[..1], "is in 0 incidents");
}

fn socket(number: u32) -> SocketId {
    SocketId { user: 0, node: 0, number }
}

/// A message to this socket about incident `a`.
fn raid(number: u32, count: u64, update: bool, seconds: u64) -> SeenRaid {
    SeenRaid {
        socket: socket(number),
        server: "one".to_owned(),
        incident: "a".to_owned(),
        alarm_id: "7".to_owned(),
        alarm_name: "A".to_owned(),
        count,
        update,
        at: at(seconds),
    }
}

fn holder(part: &str, node: &str, number: i64, seconds: u64) -> HolderChange {
    HolderChange { part: part.to_owned(), node: node.to_owned(), number, at: at(seconds) }
}

fn announcements() {
    let parts = BTreeMap::from([("one".to_owned(), "links".to_owned())]);
    let changes = [holder("links", "x", 1, 0), holder("links", "y", 2, 100), holder("other", "y", 2, 50)];
    let judged = |raids: &[SeenRaid]| judge_announcements(raids, &ledger(), &changes, &parts);
    is_content(&judged(&[]));
    // Another socket of the same dashboard, and a count that goes on.
    let good = [raid(1, 1, false, 30), raid(1, 2, true, 45), raid(2, 1, false, 60), raid(2, 2, true, 61)];
    is_content(&judged(&good));
    assert_eq!(repeated(&good), 0);
    complains(&judged(&[raid(1, 1, false, 30), raid(1, 1, false, 31)]), "as new 2 times");
    complains(&judged(&[raid(1, 1, false, 30), raid(1, 2, false, 31)]), "as new 2 times");
    // Also where another node has it by then.
    complains(&judged(&[raid(1, 1, false, 99), raid(1, 1, false, 101)]), "as new 2 times");
    let again = [raid(1, 1, false, 40), raid(1, 1, true, 60)];
    complains(&judged(&again), "by one node");
    assert_eq!(repeated(&again), 1);
    is_content(&judged(&[raid(1, 1, false, 95), raid(1, 1, true, 105)]));
    is_content(&judged(&[raid(1, 1, false, 110), raid(1, 1, true, 112)]));
    complains(&judged(&[raid(1, 1, false, 130), raid(1, 1, true, 140)]), "by one node");
    // A name that has become known is news.
    is_content(&judged(&[raid(1, 1, false, 30), SeenRaid { alarm_id: "8".to_owned(), ..raid(1, 1, true, 31) }]));
    let of = |incident: &str| [SeenRaid { incident: incident.to_owned(), ..raid(1, 1, false, 1) }];
    is_content(&judged(&of("part")));
    complains(&judged(&of("none")), "is not in the ledger");
}

fn numbers() {
    let first = holder("a", "x", 1, 0);
    let good =
        [first.clone(), holder("b", "y", 1, 0), holder("a", "y", 2, 1), holder("a", "", 2, 2), holder("a", "y", 3, 3)];
    is_content(&judge_numbers(&good));
    complains(&judge_numbers(&[first.clone(), holder("a", "y", 1, 1)]), "passed from \"x\" (1) to \"y\" (1)");
    complains(&judge_numbers(&[holder("a", "x", 2, 0), holder("a", "y", 1, 1)]), "passed from");
    // Given up, and taken without another number.
    complains(&judge_numbers(&[first, holder("a", "", 1, 1), holder("a", "y", 1, 2)]), "passed from");
}

fn holders() {
    let address = |last: u8| IpAddr::from(Ipv4Addr::new(127, 0, 0, last));
    let live = [("x", 2), ("y", 3)].map(|(id, last)| LiveNode { id: id.to_owned(), address: address(last) });
    let judged = |of_links: &str, of_sweep: &str, from: &[u8]| {
        let held = [("links", of_links), ("sweep", of_sweep)];
        let held = held.map(|(part, node)| (part.to_owned(), (node.to_owned(), 1))).into();
        let addresses = from.iter().map(|last| address(*last)).collect();
        judge_holders(&held, &live, &[LinksOfGame { part: "links".to_owned(), addresses }])
    };
    is_content(&judged("x", "y", &[2]));
    complains(&judged("x", "z", &[2]), "sweep is at \"z\", which is no live node");
    complains(&judged("x", "", &[2]), "sweep is at \"\"");
    complains(&judged("x", "y", &[3]), "has links from {127.0.0.3}");
    complains(&judged("x", "y", &[2, 3]), "has links from {127.0.0.2, 127.0.0.3}");
    complains(&judged("x", "y", &[]), "has links from {}");
    assert_eq!(judged("z", "y", &[2]).len(), 2);
    // By the hash of its name and those of the nodes.
    let placed = |node: &str| judge_places(&[("sweep".to_owned(), (node.to_owned(), 1))].into(), &live);
    assert_eq!(placed("x").len() + placed("y").len(), 1);
    complains(&placed(""), "sweep is at \"\", and belongs at ");
}

fn state(seq: u64, alarms: &[&str]) -> WatchedState {
    let raids = alarms.iter().enumerate().map(|(number, name)| (number.to_string(), json!({ "alarmName": name })));
    let raids: serde_json::Map<String, Value> = raids.collect();
    WatchedState { epoch: 7, seq, state: json!({ "server": { "connection": "connected" }, "raids": raids }) }
}

fn states() {
    let judged = |one: Option<WatchedState>, other: Option<WatchedState>| {
        judge_states("one", &["A", "B"], &[("one".to_owned(), one), ("other".to_owned(), other)])
    };
    let good = || Some(state(3, &["A", "B"]));
    is_content(&judged(good(), good()));
    complains(&judged(good(), None), "other has no state of one");
    assert_eq!(judged(None, None).len(), 2);
    complains(&judged(good(), Some(state(4, &["A", "B"]))), "have different states");
    complains(&judged(good(), Some(WatchedState { epoch: 8, ..state(3, &["A", "B"]) })), "have different states");
    complains(&judged(good(), Some(state(3, &["A", "C"]))), "[\"raids\"] differ");
    let both = |alarms: &[&str]| judged(Some(state(3, alarms)), Some(state(3, alarms)));
    complains(&both(&["A"]), "\"B\" is shown to one in 0 incidents");
    complains(&both(&["A", "A", "B"]), "\"A\" is shown to one in 2 incidents");
    let mut away = state(3, &["A", "B"]);
    away.state["server"]["connection"] = "unreachable".into();
    complains(&judged(Some(away.clone()), Some(away)), "one is \"unreachable\" to one");
}

fn take_overs() {
    let over = |after: Option<Duration>| TakeOver { fault: "Kill".to_owned(), game: 2, after };
    is_content(&judge_take_overs(&[over(Some(at(14)))]));
    complains(&judge_take_overs(&[over(Some(at(14))), over(None)]), "game server 2 had no other link");
    complains(&judge_take_overs(&[over(Some(at(75)))]), "only after 75.0s");
}

/// Messages of the relay, as a dashboard takes them.
fn streams() {
    let snapshot = json!({ "type": "snapshot", "serverId": "one", "epoch": 7, "seq": 3, "state": { "raids": {} } });
    let patch = |base: u64, path: &str| {
        let value = json!({ "alarmName": "A" });
        let patch = json!([{ "op": "add", "path": path, "value": value }]);
        json!({ "type": "patch", "serverId": "one", "epoch": 7, "base": base, "seq": base + 2, "patch": patch })
    };
    let key = ("one".to_owned(), "A".to_owned());
    let mut seen = Seen::new(0, 0);
    assert!(seen.take(&snapshot, at(1)) && seen.take(&patch(3, "/raids/a"), at(2)));
    assert_eq!((seen.states["one"].seq, seen.known[&key]), (5, at(2)));
    let raid = json!({
        "type": "raid", "serverId": "one", "incident": "a", "alarmId": "7", "alarmName": "A", "count": 2, "update": true,
    });
    assert!(seen.take(&raid, at(3)));
    assert_eq!((seen.raids[0].count, seen.raids[0].update, seen.known[&key]), (2, true, at(2)));
    assert!(!seen.take(&json!({ "type": "error", "code": "internal" }), at(4)) && seen.faults.is_empty());
    for (message, words) in [(patch(3, "/raids/b"), "does not follow"), (patch(5, "/none/b"), "")] {
        let before = seen.faults.len();
        assert!(!seen.take(&message, at(5)), "{message} fits");
        complains(&seen.faults[before..], words);
    }
    let mut other = Seen::new(0, 1);
    assert!(!other.take(&patch(3, "/raids/a"), at(1)));
    complains(&other.faults, "before a snapshot");
}

fn scripts() {
    for seed in 0..SCRIPTS {
        let Script { faults, alarms } = Script::of(seed, &[3, 5]);
        let kinds: BTreeSet<FaultKind> = faults.iter().map(|fault| fault.kind).collect();
        assert_eq!(kinds.len(), FaultKind::ALL.len(), "seed {seed} has each kind");
        for node in 0..NODES {
            let of_node = faults.iter().filter(|fault| fault.kind.is_of_node() && fault.node == node);
            let mut free_at = Duration::ZERO;
            for fault in of_node {
                assert!(fault.at > free_at, "seed {seed}: {fault} comes within another one");
                free_at = fault.at + fault.lasts;
            }
        }
        // An incident is open for 90 s: everything that a journal has must be stored by then.
        assert!(faults.iter().all(|fault| fault.at + fault.lasts < at(90)), "seed {seed} takes too long");
        let numbers: BTreeSet<(usize, u64)> = alarms.iter().map(|alarm| (alarm.pairing, alarm.number)).collect();
        assert_eq!((alarms.len(), numbers.len()), (8, 8));
        assert!(alarms.is_sorted_by_key(|alarm| alarm.at) && faults.is_sorted_by_key(|fault| fault.at));
    }
    let Script { faults, alarms } = Script::of_upgrade(1, &[3, 5]);
    assert!(faults.is_empty() && alarms.len() == 8 && alarms.iter().all(|alarm| alarm.at < UPGRADE_LENGTH));
    let began = |seed| Script::of(seed, &[]).faults.iter().map(|fault| fault.at).collect::<Vec<_>>();
    let (one, again, other) = (began(1), began(1), began(2));
    assert!(one == again && one != other);
}

fn pairings() {
    let pairings = games::pairings();
    let names = pairings.iter().flat_map(|pairing| (0..pairing.alarms()).map(|number| pairing.alarm_name(number)));
    let names: Vec<String> = names.collect();
    assert_eq!(BTreeSet::from_iter(&names).len(), names.len(), "each alarm has a name of its own");
    let ways: BTreeSet<AlarmWay> = pairings.iter().map(|pairing| pairing.way).collect();
    assert_eq!(ways.len(), 3, "alarms come by all ways");
    let owners: BTreeSet<(usize, usize)> = pairings.iter().map(|Pairing { game, user, .. }| (*game, *user)).collect();
    assert_eq!(owners.len(), pairings.len(), "a user pairs a game server once");
}

/// A way passes bytes on, holds them back, and closes.
async fn ways() {
    let neighbour = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let ways = Ways::start();
    let way = ways.open(neighbour.local_addr().unwrap());
    let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, way.port()));
    let passes = async {
        let mut client = connect().await.unwrap();
        let (mut server, _) = neighbour.accept().await.unwrap();
        client.write_all(b"a").await.unwrap();
        assert_eq!(server.read_u8().await.unwrap(), b'a');

        let (held, again) = (way.trouble(Trouble::Held), way.trouble(Trouble::Held));
        client.write_all(b"b").await.unwrap();
        assert!(timeout(NOTHING_WITHIN, server.read_u8()).await.is_err(), "it is held back");
        drop(held);
        assert!(timeout(NOTHING_WITHIN, server.read_u8()).await.is_err(), "of two faults one has ended");
        drop(again);
        assert_eq!(server.read_u8().await.unwrap(), b'b', "it comes late");

        let cut = way.trouble(Trouble::Cut);
        assert!(server.read_u8().await.is_err() && client.read_u8().await.is_err());
        assert!(connect().await.unwrap().read_u8().await.is_err());
        drop(cut);
        let mut client = connect().await.unwrap();
        let (mut server, _) = neighbour.accept().await.unwrap();
        server.write_all(b"c").await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'c');
    };
    timeout(PATIENCE, passes).await.expect("what is sent arrives");
}
