use proptest::prelude::*;

use super::*;
use crate::cluster::lease::{DRIFT, HeldLease};

const TIMES: LeaseTimes = LeaseTimes::NODES;

fn after(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn entry(node: &str, revision: u64, state: PeerState) -> PeerEntry {
    PeerEntry { node: node.into(), revision, state }
}

fn nodes(names: &[&str]) -> BTreeSet<NodeId> {
    names.iter().map(|name| (*name).into()).collect()
}

#[test]
fn a_node_that_does_not_renew_is_overdue_and_gone_after_the_mark_and_a_renewal() {
    let (mut peers, none) = (Peers::default(), BTreeSet::new());
    let look = |peers: &mut Peers, revision, now| peers.see(&[entry("one", revision, PeerState::Live)], &none, now);
    look(&mut peers, 4, after(0));
    look(&mut peers, 5, after(3));
    look(&mut peers, 5, after(11));
    assert_eq!(peers.overdue(TIMES, after(11)), [], "drift counts");
    assert_eq!(peers.next_over(TIMES, after(11)), Some(after(3) + TIMES.passes_after()));
    assert_eq!(peers.overdue(TIMES, after(12)), [("one".into(), 5)]);
    assert_eq!(peers.live(), nodes(&["one"]));
    peers.marked(&"one".into(), 9, after(13));
    assert_eq!((peers.live(), peers.overdue(TIMES, after(13))), (nodes(&[]), vec![]));
    assert!(peers.awaits_renewal(after(13)) && !peers.awaits_renewal(after(14)));
    assert_eq!(peers.gone(TIMES, after(13), after(14)), nodes(&[]), "the own lease was not renewed since");
    assert_eq!(peers.gone(TIMES, after(14), after(14)), nodes(&["one"]));
    assert_eq!(peers.next_over(TIMES, after(14)), None, "no one is waited for");
    look(&mut peers, 10, after(15));
    assert_eq!(peers.live(), nodes(&[]), "dead is final");
}

#[test]
fn a_renewal_that_an_old_list_does_not_have_is_not_forgotten() {
    let (mut peers, none) = (Peers::default(), BTreeSet::new());
    peers.see(&[entry("one", 8, PeerState::Live)], &none, after(5));
    peers.see(&[entry("one", 7, PeerState::Live)], &none, after(9));
    peers.see(&[], &nodes(&["one"]), after(10));
    assert_eq!(peers.overdue(TIMES, after(15)), [("one".into(), 8)]);
}

#[test]
fn a_node_without_an_entry_is_waited_for_and_one_that_left_is_not() {
    let mut peers = Peers::default();
    peers.see(&[entry("left", 3, PeerState::Left)], &nodes(&["lost"]), after(1));
    assert_eq!(peers.gone(TIMES, after(1), after(1)), nodes(&["left"]));
    assert_eq!((peers.live(), peers.overdue(TIMES, after(9))), (nodes(&[]), vec![]));
    assert_eq!(peers.overdue(TIMES, after(11)), [("lost".into(), NO_ENTRY)]);
}

#[test]
fn a_node_that_has_ended_is_forgotten_when_it_has_nothing_and_no_entry() {
    let mut peers = Peers::default();
    let left = [entry("left", 3, PeerState::Left)];
    peers.see(&left, &BTreeSet::new(), after(1));
    peers.see(&left, &BTreeSet::new(), after(2));
    peers.see(&[], &nodes(&["left"]), after(3));
    assert_eq!(peers.gone(TIMES, after(3), after(3)), nodes(&["left"]), "it still has something");
    peers.see(&[], &BTreeSet::new(), after(4));
    assert_eq!(peers.gone(TIMES, after(4), after(4)), nodes(&[]));
}

#[test]
fn the_mark_of_another_node_counts_after_the_own_wait() {
    let (mut peers, none) = (Peers::default(), BTreeSet::new());
    peers.see(&[entry("one", 3, PeerState::Live)], &none, after(6));
    peers.see(&[entry("one", 4, PeerState::Dead)], &none, after(10));
    assert_eq!(peers.gone(TIMES, after(12), after(12)), nodes(&[]));
    assert_eq!(peers.next_over(TIMES, after(12)), Some(after(6) + TIMES.passes_after()));
    assert_eq!(peers.gone(TIMES, after(15), after(16)), nodes(&["one"]));
    peers.forget_all();
    assert_eq!(peers.gone(TIMES, after(15), after(16)), nodes(&[]));
}

/// A renewal as the network treats it, in milliseconds.
#[derive(Clone, Debug)]
struct Renewal {
    pause: u64,
    to_store: u64,
    to_holder: u64,
    answer_is_lost: bool,
}

fn renewal() -> impl Strategy<Value = Renewal> {
    (2_900..7_900_u64, 0..2_500_u64, 0..2_500_u64, prop::bool::weighted(0.2))
        .prop_map(|(pause, to_store, to_holder, answer_is_lost)| Renewal { pause, to_store, to_holder, answer_is_lost })
}

/// The time of a clock that runs faster or slower by these millionths.
fn on_clock(real: u64, millionths: i64) -> Duration {
    Duration::from_micros((i128::from(real) * (1_000_000 + i128::from(millionths)) / 1_000) as u64)
}

/// Millionths by which each of two clocks may be off.
const OFF: i64 = 1_000_000 / DRIFT as i64 / 2;

proptest! {
    /// The holder renews over a network that delays and loses; the other node looks at lists that are old, and marks when it
    /// may. At no time both may take themselves for the owner.
    #[test]
    fn two_nodes_never_both_own_by_their_own_clocks(
        renewals in prop::collection::vec(renewal(), 0..6),
        holder_off in -OFF..=OFF,
        other_off in -OFF..=OFF,
        list_age in 0..3_000_u64,
        mark_takes in 0..3_000_u64,
    ) {
        // Writes in the store: when they came, with their revision.
        let mut stored = vec![(0_u64, 1_u64)];
        // Leases as the holder knows them: from when on.
        let own = |sent: u64| HeldLease::written(0, on_clock(sent, holder_off));
        let mut known = vec![(0_u64, own(0))];
        let mut sent = 0;
        for Renewal { pause, to_store, to_holder, answer_is_lost } in renewals {
            sent += pause;
            let (revision, came) = (stored.len() as u64 + 1, (sent + to_store).max(stored[stored.len() - 1].0 + 1));
            stored.push((came, revision));
            if !answer_is_lost {
                known.push((came + to_holder, own(sent)));
            }
        }
        let newest = |at: u64| stored.iter().rev().find(|(came, _)| *came <= at).map(|(_, revision)| *revision);
        let (mut peers, none) = (Peers::default(), BTreeSet::new());
        let mut passed_at = None;
        for look in 1..200_u64 {
            let real = look * 500;
            if let Some(revision) = newest(real.saturating_sub(list_age)) {
                peers.see(&[entry("holder", revision, PeerState::Live)], &none, on_clock(real, other_off));
            }
            let Some((node, condition)) = peers.overdue(TIMES, on_clock(real, other_off)).pop() else { continue };
            let marked_at = real + mark_takes;
            // The mark fails if a renewal came before; one that comes after it fails itself.
            if newest(marked_at) == Some(condition) {
                let now = on_clock(marked_at, other_off);
                peers.marked(&node, condition + 1, now);
                let renewed_at = now + Duration::from_micros(1);
                prop_assert!(peers.gone(TIMES, renewed_at, renewed_at).contains(&node));
                passed_at = Some(marked_at);
                break;
            }
        }
        let passed_at = passed_at.expect("without renewals it passes");
        for (_, lease) in known.iter().filter(|(answered, _)| *answered <= passed_at) {
            prop_assert!(!lease.holds(TIMES, on_clock(passed_at, holder_off)), "{lease:?} at {passed_at}");
        }
    }
}
