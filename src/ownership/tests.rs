mod several_nodes;

use std::ops::Range;

use diesel::sql_query;
use tokio::{sync::oneshot, time::timeout};

use super::{needed_parts::push_session, part_listing::LIST_EVERY, *};
use crate::{
    db::{
        engine::{pool::Db, prelude::RunQuery as _},
        paired_servers::{self, StoredPairing},
        push_credentials::{self, SealedBundle},
        testing::{self, now},
    },
    domain::ids::{GameServerId, UserId},
};

/// A node whose view of the others is that of the test.
struct TestNode {
    keeper: PartKeeper,
    ownership: Ownership,
    view: watch::Sender<NodeView>,
    holders: watch::Receiver<BTreeSet<NodeId>>,
}

fn nodes(names: &[&str]) -> BTreeSet<NodeId> {
    names.iter().map(|name| NodeId::from(*name)).collect()
}

impl TestNode {
    fn start(pool: &Pool, name: &str) -> Self {
        let (seat, ownership) = NodeSeat::new(name);
        let (holders, known) = watch::channel(BTreeSet::new());
        let (view, clock) = (seat.view.clone(), Clock::simulated(now()));
        let keeper = PartKeeper::new(pool.clone(), clock, name.into(), holders, seat);
        Self { keeper, ownership, view, holders: known }
    }

    /// Nodes that see one another, and have looked then.
    async fn start_all<const N: usize>(pool: &Pool, names: [&str; N]) -> ([Self; N], Instant) {
        let (mut started, began) = (names.map(|name| Self::start(pool, name)), Instant::now());
        for node in &mut started {
            node.sees(&names, &[]);
            node.look(began).await;
        }
        (started, began)
    }

    fn sees(&self, live: &[&str], gone: &[&str]) {
        let holds_until = Some(Instant::now() + Duration::from_secs(3_600));
        self.view.send_replace(NodeView { holds_until, live: nodes(live), gone: nodes(gone) });
    }

    /// Looks, and once more after what a look at everything has found, if that is due.
    async fn look(&mut self, at: Instant) {
        self.keeper.look(at).await.unwrap();
        if self.keeper.listing.is_under_way() {
            let listed = self.keeper.listing.ended().await;
            self.keeper.end_listing(listed, at);
            self.keeper.look(at).await.unwrap();
        }
    }

    /// The parts for which it may write.
    fn parts(&self) -> BTreeSet<PartId> {
        let held: Vec<PartId> = self.ownership.held.borrow().keys().cloned().collect();
        held.into_iter().filter(|part| self.ownership.fence(part).is_some()).collect()
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Pairs game servers at these addresses.
fn pair(pool: &Pool, hosts: Range<u8>) -> BTreeSet<PartId> {
    testing::user(pool, "alice");
    let pair = |host: u8| {
        let pairing = StoredPairing { address: format!("192.0.2.{host}"), ..testing::pairing("alice") };
        let paired = pool.write_blocking(|db| paired_servers::put(db, &host.to_string().into(), &pairing, now()));
        PartId::links(&GameServerId::at(&paired.unwrap().address, pairing.port))
    };
    hosts.map(pair).collect()
}

#[test]
fn each_part_has_one_node_and_those_of_a_dead_one_pass_on() {
    testing::on_each_database(|pool| {
        let parts = pair(pool, 1..25);
        actix::System::new().block_on(async {
            let ([mut one, two], began) = TestNode::start_all(pool, ["one", "two"]).await;
            let (of_one, of_two) = (one.parts(), two.parts());
            assert!(!of_one.is_empty() && !of_two.is_empty() && of_one.is_disjoint(&of_two));
            assert_eq!(&of_one | &of_two, parts);
            one.look(began + HOLDERS_EVERY).await;
            assert_eq!(*one.holders.borrow(), nodes(&["one", "two"]));
            two.view.send_replace(NodeView::default());
            assert_eq!(two.parts(), BTreeSet::new(), "its lease has ended");
            one.sees(&["one"], &["two"]);
            one.look(began + HOLDERS_EVERY).await;
            assert_eq!(one.parts(), parts);
            let number = |part: &PartId| one.ownership.fence(part).map(|fence| fence.number);
            assert!(of_one.iter().all(|part| number(part) == Some(1)));
            assert!(of_two.iter().all(|part| number(part) == Some(2)));
        });
    });
}

#[test]
fn the_push_session_of_a_credential_is_a_part() {
    testing::on_each_database(|pool| {
        let mut parts = pair(pool, 1..2);
        let (user, uploaded_at) = (UserId::from("alice"), now());
        let bundle =
            SealedBundle { sealed: vec![1], key_version: 1, uploaded_at, uploaded_by: None, expires_at: uploaded_at };
        pool.write_blocking(|db| push_credentials::upload(db, &user, &bundle)).unwrap();
        assert!(!push_session(&user).as_str().contains("alice"));
        parts.insert(push_session(&user));
        actix::System::new().block_on(async {
            let ([one], _) = TestNode::start_all(pool, ["one"]).await;
            assert_eq!(one.parts(), parts);
        });
    });
}

#[test]
fn a_part_moves_when_nothing_is_done_for_it() {
    testing::on_each_database(|pool| {
        let parts = pair(pool, 1..25);
        actix::System::new().block_on(async {
            let ([mut one], began) = TestNode::start_all(pool, ["one"]).await;
            let mut two = TestNode::start(pool, "two");
            assert_eq!(one.parts(), parts);
            let (both, at_two) = (nodes(&["one", "two"]), NodeId::from("two"));
            for node in [&one, &two] {
                node.sees(&["one", "two"], &[]);
            }
            let mut moving: BTreeSet<PartId> =
                parts.iter().filter(|part| place(part, &both) == Some(&at_two)).cloned().collect();
            let used = moving.pop_first().expect("some move");
            let fenced = pool.clone().fenced_by(one.ownership.fence(&used).unwrap());
            one.look(began).await;
            two.look(began).await;
            assert_eq!((one.parts(), two.parts()), (parts.clone(), BTreeSet::new()), "the nodes have not settled");
            one.look(began + seconds(10)).await;
            assert!(one.parts().is_disjoint(&moving) && one.ownership.fence(&used).is_none());
            one.look(began + seconds(11)).await;
            two.look(began + seconds(11)).await;
            assert_eq!(two.parts(), moving);
            // Its writes succeed as long as they go on.
            testing::user(&fenced, "bob");
            drop(fenced);
            one.look(began + seconds(12)).await;
            two.look(began + seconds(12)).await;
            moving.insert(used);
            assert_eq!(two.parts(), moving);
        });
    });
}

#[test]
fn a_part_that_is_wanted_and_one_that_an_unanswered_change_brought_are_known() {
    testing::on_each_database(|pool| {
        let mut parts = pair(pool, 1..3);
        actix::System::new().block_on(async {
            let ([mut one], began) = TestNode::start_all(pool, ["one"]).await;
            let [wanted, brought] = [3, 4].map(|port| PartId::links(&GameServerId::at("192.0.2.1", port)));
            one.ownership.want(wanted.clone());
            one.look(began).await;
            parts.insert(wanted);
            assert_eq!(one.parts(), parts);
            let (brought, node) = (BTreeSet::from([brought]), NodeId::from("one"));
            let bring = |db: &mut Db| {
                held_parts::note(db, &brought, now())?;
                held_parts::take(db, &brought, &BTreeSet::new(), &node, now())
            };
            pool.write_blocking(bring).unwrap();
            one.look(began).await;
            assert_eq!(one.parts(), parts);
            one.keeper.is_unsure = true;
            one.look(began).await;
            assert_eq!(one.parts(), &parts | &brought);
            // As in a database that lost its last changes.
            pool.write_blocking(|db| held_parts::take(db, &brought, &nodes(&["one"]), &"two".into(), now())).unwrap();
            one.keeper.is_unsure = true;
            one.look(began).await;
            assert_eq!(one.parts(), parts);
        });
    });
}

#[test]
fn what_an_unanswered_change_brought_is_known_also_if_the_next_change_fails() {
    testing::on_sqlite(|pool| {
        let parts = pair(pool, 1..3);
        let brought: BTreeSet<PartId> = parts.iter().take(1).cloned().collect();
        let bring = |db: &mut Db| -> Result<(), DbError> {
            held_parts::note(db, &parts, now())?;
            held_parts::take(db, &brought, &BTreeSet::new(), &"one".into(), now())?;
            let refuse = "CREATE TRIGGER refuse BEFORE UPDATE ON held_parts BEGIN SELECT RAISE(ABORT, 'no'); END";
            sql_query(refuse).execute(db)?;
            Ok(())
        };
        pool.write_blocking(bring).unwrap();
        actix::System::new().block_on(async {
            let mut one = TestNode::start(pool, "one");
            one.sees(&["one"], &[]);
            one.keeper.is_unsure = true;
            assert!(one.keeper.look(Instant::now()).await.is_err());
            assert_eq!(one.parts(), brought);
        });
    });
}

#[test]
fn a_node_knows_its_parts_in_numbers_and_those_that_no_node_takes() {
    testing::on_each_database(|pool| {
        let parts = pair(pool, 1..25);
        actix::System::new().block_on(async {
            let (mut one, began) = (TestNode::start(pool, "one"), Instant::now());
            let none = NodeFigures {
                holds: false,
                live: 0,
                links: 0,
                push_sessions: 0,
                sweeps: 0,
                untaken_for: Duration::ZERO,
            };
            assert_eq!(one.ownership.figures(), none);
            // The other one takes nothing.
            one.sees(&["one", "two"], &[]);
            one.ownership.want("sweep:billing".into());
            one.look(began).await;
            one.look(began + seconds(1)).await;
            let figures = one.ownership.figures();
            assert!(figures.holds && figures.live == 2 && figures.links < parts.len(), "{figures:?}");
            assert_eq!(*one.ownership.untaken_since.borrow(), Some(began));
            one.sees(&["one"], &["two"]);
            one.look(began + seconds(2)).await;
            one.look(began + seconds(3)).await;
            let figures = one.ownership.figures();
            assert_eq!(figures, NodeFigures { holds: true, live: 1, links: parts.len(), sweeps: 1, ..none });
        });
    });
}

#[test]
fn a_node_whose_lease_has_ended_sees_no_part_that_waits() {
    testing::on_sqlite(|pool| {
        pair(pool, 1..25);
        actix::System::new().block_on(async {
            let within = Duration::from_secs(30);
            let TestNode { keeper, mut ownership, view, .. } = TestNode::start(pool, "one");
            let task = actix::spawn(keeper.run(pending()));
            let holds_until = Some(Instant::now() + Duration::from_secs(3_600));
            // The other one takes nothing.
            view.send_replace(NodeView { holds_until, live: nodes(&["one", "two"]), ..NodeView::default() });
            let waits = ownership.untaken_since.wait_for(Option::is_some);
            drop(timeout(within, waits).await.unwrap().unwrap());
            view.send_replace(NodeView::default());
            let (end, _seat) = timeout(within, task).await.unwrap().unwrap();
            assert_eq!((end, *ownership.untaken_since.borrow()), (NodeEnd::Lost, None));
        });
    });
}

#[test]
fn parts_of_a_dead_node_do_not_wait_for_a_look_at_everything() {
    testing::on_each_database(|pool| {
        let parts = pair(pool, 1..25);
        actix::System::new().block_on(async {
            let ([mut one, _two], began) = TestNode::start_all(pool, ["one", "two"]).await;
            assert_ne!(one.parts(), parts);
            // From now on it would fail.
            let rename = |db: &mut Db| Ok(sql_query("ALTER TABLE push_credentials RENAME TO away").execute(db)?);
            pool.write_blocking(rename).unwrap();
            one.sees(&["one"], &["two"]);
            one.keeper.look(began + LIST_EVERY).await.unwrap();
            assert_eq!(one.parts(), parts);
            assert!(one.keeper.listing.is_under_way());
        });
    });
}

#[test]
fn a_part_of_which_nothing_is_left_is_deleted() {
    testing::on_each_database(|pool| {
        let parts = pair(pool, 1..3);
        actix::System::new().block_on(async {
            let (mut one, began) = node_after_an_unpairing(pool).await;
            assert_eq!(one.parts(), parts, "a pairing may be under way");
            one.look(began + 2 * LIST_EVERY).await;
            assert_eq!(one.parts().len(), 1);
            let left = pool.read_blocking(held_parts::counts).unwrap();
            let of_one = BTreeMap::from([("links".to_owned(), 1_usize)]);
            assert_eq!(left, [(Some("one".into()), of_one)].into());
        });
    });
}

/// A node that has the parts of all pairings, and whose look at everything, [`LIST_EVERY`] after its start, finds that of the
/// first game server of [`pair`] no longer.
async fn node_after_an_unpairing(pool: &Pool) -> (TestNode, Instant) {
    let ([mut one], began) = TestNode::start_all(pool, ["one"]).await;
    assert!(pool.write_blocking(|db| paired_servers::delete(db, &"alice".into(), &"1".into())).unwrap());
    one.look(began + LIST_EVERY).await;
    (one, began)
}

#[test]
fn a_part_that_is_paired_again_as_it_ends_has_a_node() {
    testing::on_each_database(|pool| {
        let part = pair(pool, 1..2).pop_first().unwrap();
        actix::System::new().block_on(async {
            let (mut one, began) = node_after_an_unpairing(pool).await;
            let used = one.ownership.fence(&part);
            one.look(began + 2 * LIST_EVERY).await;
            assert_eq!(one.parts(), BTreeSet::new());
            pair(pool, 1..2);
            one.ownership.want(part.clone());
            drop(used);
            one.look(began + 2 * LIST_EVERY + seconds(1)).await;
            assert_eq!(one.parts(), [part].into());
        });
    });
}

#[test]
fn the_number_of_a_part_that_is_used_still_goes_on() {
    testing::on_each_database(|pool| {
        let part = pair(pool, 1..2).pop_first().unwrap();
        actix::System::new().block_on(async {
            let (mut one, began) = node_after_an_unpairing(pool).await;
            let used = one.ownership.fence(&part).unwrap();
            one.look(began + 2 * LIST_EVERY).await;
            one.look(began + 2 * LIST_EVERY + ENDS_WITHIN).await;
            let number = one.ownership.fence(&part).map(|fence| fence.number);
            assert_eq!((used.number, number), (1, Some(2)), "it is deleted later");
            drop(used);
            one.look(began + 3 * LIST_EVERY).await;
            one.look(began + 4 * LIST_EVERY).await;
            assert!(pool.read_blocking(held_parts::counts).unwrap().is_empty());
        });
    });
}

#[test]
fn a_node_has_nothing_when_its_lease_has_ended_or_it_has_left() {
    testing::on_sqlite(|pool| {
        pair(pool, 1..2);
        actix::System::new().block_on(async {
            let within = Duration::from_secs(30);
            for leaves in [false, true] {
                let TestNode { keeper, mut ownership, view, .. } = TestNode::start(pool, "one");
                let (leave, left) = oneshot::channel::<()>();
                let ends = async move {
                    let _ = left.await;
                    NodeEnd::Left
                };
                let task = actix::spawn(keeper.run(ends));
                let holds_until = Some(Instant::now() + Duration::from_secs(3_600));
                view.send_replace(NodeView { holds_until, live: nodes(&["one"]), ..NodeView::default() });
                let taken = timeout(within, ownership.held.wait_for(|held| held.len() == 1)).await;
                let part = taken.unwrap().unwrap().keys().next().cloned().unwrap();
                let fence = ownership.fence(&part).unwrap();
                if leaves {
                    leave.send(()).unwrap();
                } else {
                    view.send_replace(NodeView::default());
                }
                drop(timeout(within, ownership.held.wait_for(|held| held.is_empty())).await.unwrap().unwrap());
                assert!(ownership.fence(&part).is_none());
                drop(fence);
                let (end, seat) = timeout(within, task).await.unwrap().unwrap();
                assert_eq!(end, if leaves { NodeEnd::Left } else { NodeEnd::Lost });
                drop(seat);
                assert!(!ownership.changed().await, "nothing comes any longer");
            }
        });
    });
}
