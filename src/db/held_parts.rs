//! Parts of the service and the node that has each. A row changes when its part passes to another node, and is never
//! renewed: for how long a node has anything follows from its lease ([`cluster`](crate::cluster)). Each change counts the
//! number without which no write for the part is committed
//! ([`Pool::fenced_by`](crate::db::engine::pool::Pool::fenced_by)).

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::held_parts,
    },
    domain::{
        fence::Fence,
        ids::{NodeId, PartId},
        time::Timestamp,
    },
};

/// In place of a node: none has the part.
const FREE: &str = "";

/// The node of a part that is noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartHolder {
    /// Perhaps one that lives no longer.
    Node(NodeId),
    /// None has it yet, or any longer.
    Free,
}

impl PartHolder {
    fn of(node: String) -> Self {
        if node == FREE { Self::Free } else { Self::Node(node.into()) }
    }
}

/// Notes parts that some node is to take; one that is noted already stays as it is. Gives how many are new.
pub fn note(db: &mut Db, parts: &BTreeSet<PartId>, now: Timestamp) -> Result<usize, DbError> {
    let mut new = 0;
    // In one order everywhere, so that no two nodes wait for each other.
    for part in parts {
        let free = (
            held_parts::part.eq(part.as_str()),
            held_parts::node.eq(FREE),
            held_parts::number.eq(0_i64),
            held_parts::since.eq(now),
        );
        let insert = diesel::insert_into(held_parts::table).values(free).on_conflict_do_nothing();
        new += on_backend!(db, |db| insert.execute(db))?;
    }
    Ok(new)
}

/// The parts among these that are not noted.
pub fn missing(db: &mut Db, mut parts: BTreeSet<PartId>) -> Result<BTreeSet<PartId>, DbError> {
    let noted: Vec<String> = held_parts::table.select(held_parts::part).load(db)?;
    for part in noted {
        parts.remove(&PartId::from(part));
    }
    Ok(parts)
}

/// The parts that no node has, and those of `gone`: nodes that have lost their lease.
pub fn untaken(db: &mut Db, gone: &BTreeSet<NodeId>) -> Result<Vec<PartId>, DbError> {
    let untaken = held_parts::table.filter(held_parts::node.eq_any(free_or_of(gone))).select(held_parts::part);
    let parts: Vec<String> = untaken.load(db)?;
    Ok(parts.into_iter().map(PartId::from).collect())
}

/// Takes the parts among these for a node that are [`untaken`]. One for which a write is under way is left out: it may be
/// taken when that has ended.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn take(
    db: &mut Db,
    parts: &BTreeSet<PartId>,
    gone: &BTreeSet<NodeId>,
    node: &NodeId,
    now: Timestamp,
) -> Result<Vec<Fence>, DbError> {
    let untaken = held_parts::table
        .filter(held_parts::part.eq_any(parts.iter().map(PartId::as_str)))
        .filter(held_parts::node.eq_any(free_or_of(gone)))
        .order(held_parts::part)
        .select(held_parts::part);
    let taken: Vec<String> = match db {
        // No wait for a lock: the writer may be a node that is gone, and PostgreSQL not know it yet.
        Db::Pg(db) => untaken.for_update().skip_locked().load(db)?,
        Db::Sqlite(db) => untaken.load(db)?,
    };
    let set = (
        held_parts::node.eq(node.as_str()),
        held_parts::number.eq(held_parts::number + 1_i64),
        held_parts::since.eq(now),
    );
    diesel::update(held_parts::table.filter(held_parts::part.eq_any(&taken))).set(set).execute(db)?;
    fences(db, node, Some(&taken))
}

/// The values of `node` of parts that may be taken.
fn free_or_of(gone: &BTreeSet<NodeId>) -> Vec<&str> {
    std::iter::once(FREE).chain(gone.iter().map(NodeId::as_str)).collect()
}

/// Fails with [`DbError::Fenced`] if another node has one of these parts by now. If it succeeds, none takes one over before
/// the transaction ends: call it last in a transaction.
pub fn check(db: &mut Db, fences: &BTreeSet<&Fence>) -> Result<(), DbError> {
    let held = held_parts::table
        .filter(held_parts::part.eq_any(fences.iter().map(|fence| fence.part.as_str())))
        .order(held_parts::part)
        .select((held_parts::part, held_parts::node, held_parts::number));
    let held: Vec<(String, String, i64)> = match db {
        Db::Pg(db) => held.for_share().load(db)?,
        Db::Sqlite(db) => held.load(db)?,
    };
    let is_held = |fence: &&Fence| {
        let of = (fence.part.as_str(), fence.node.as_str(), fence.number);
        held.iter().any(|(part, node, number)| (part.as_str(), node.as_str(), *number) == of)
    };
    if fences.iter().all(is_held) { Ok(()) } else { Err(DbError::Fenced) }
}

/// Gives a part up. Its number goes on with the next node. False if this one no longer has it.
pub fn release(db: &mut Db, fence: &Fence) -> Result<bool, DbError> {
    let held = held_parts::table
        .find(fence.part.as_str())
        .filter(held_parts::node.eq(fence.node.as_str()))
        .filter(held_parts::number.eq(fence.number));
    Ok(diesel::update(held).set(held_parts::node.eq(FREE)).execute(db)? == 1)
}

/// Deletes a part that nothing needs any longer. False if this node no longer has it.
pub fn remove(db: &mut Db, fence: &Fence) -> Result<bool, DbError> {
    let held = held_parts::table
        .find(fence.part.as_str())
        .filter(held_parts::node.eq(fence.node.as_str()))
        .filter(held_parts::number.eq(fence.number));
    Ok(diesel::delete(held).execute(db)? == 1)
}

/// The number of parts of each node, by the beginning of their names; of the free ones, the node is `None`. Sorted.
pub fn counts(db: &mut Db) -> Result<BTreeMap<Option<NodeId>, BTreeMap<String, usize>>, DbError> {
    let rows: Vec<(String, String)> = held_parts::table.select((held_parts::node, held_parts::part)).load(db)?;
    let mut counts: BTreeMap<Option<NodeId>, BTreeMap<String, usize>> = BTreeMap::new();
    for (node, part) in rows {
        let node = (node != FREE).then(|| NodeId::from(node));
        let kind = part.split_once(':').map_or(part.as_str(), |(kind, _)| kind).to_owned();
        *counts.entry(node).or_default().entry(kind).or_default() += 1;
    }
    Ok(counts)
}

/// The parts of a node.
pub fn of_node(db: &mut Db, node: &NodeId) -> Result<Vec<Fence>, DbError> {
    fences(db, node, None)
}

/// The parts of a node; with `among`, those of these that it has.
fn fences(db: &mut Db, node: &NodeId, among: Option<&[String]>) -> Result<Vec<Fence>, DbError> {
    let held = held_parts::table.filter(held_parts::node.eq(node.as_str())).order(held_parts::part);
    let columns = (held_parts::part, held_parts::number);
    let rows: Vec<(String, i64)> = match among {
        Some(among) => held.filter(held_parts::part.eq_any(among)).select(columns).load(db)?,
        None => held.select(columns).load(db)?,
    };
    Ok(rows.into_iter().map(|(part, number)| Fence { part: part.into(), node: node.clone(), number }).collect())
}

/// The node that has this part; `None`: the part is not noted.
pub fn holder(db: &mut Db, part: &PartId) -> Result<Option<PartHolder>, DbError> {
    let node: Option<String> = held_parts::table.find(part.as_str()).select(held_parts::node).first(db).optional()?;
    Ok(node.map(PartHolder::of))
}

/// The node of each of these parts that is noted.
pub fn holders_of(db: &mut Db, parts: &BTreeSet<PartId>) -> Result<BTreeMap<PartId, PartHolder>, DbError> {
    let held = held_parts::table.filter(held_parts::part.eq_any(parts.iter().map(PartId::as_str)));
    let rows: Vec<(String, String)> = held.select((held_parts::part, held_parts::node)).load(db)?;
    Ok(rows.into_iter().map(|(part, node)| (part.into(), PartHolder::of(node))).collect())
}

/// The nodes that have something, also those that live no longer.
pub fn holders(db: &mut Db) -> Result<BTreeSet<NodeId>, DbError> {
    let held = held_parts::table.filter(held_parts::node.ne(FREE));
    let nodes: Vec<String> = held.select(held_parts::node).distinct().load(db)?;
    Ok(nodes.into_iter().map(NodeId::from).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use diesel::connection::SimpleConnection as _;

    use super::*;
    use crate::{
        config::Database,
        db::{
            engine::{
                self, fence_check,
                pool::{Pool, writes_by},
            },
            testing::{self, now},
            users,
        },
        domain::ids::GameServerId,
    };

    fn part(port: u16) -> PartId {
        PartId::links(&GameServerId::at("203.0.113.7", port))
    }

    fn parts(ports: &[u16]) -> BTreeSet<PartId> {
        ports.iter().map(|port| part(*port)).collect()
    }

    fn fence(port: u16, node: &str, number: i64) -> Fence {
        Fence { part: part(port), node: node.into(), number }
    }

    fn take_for(pool: &Pool, ports: &[u16], gone: Option<&str>, node: &str) -> Vec<Fence> {
        let gone = gone.into_iter().map(NodeId::from).collect();
        let (parts, node) = (parts(ports), NodeId::from(node));
        pool.write_blocking(|db| {
            note(db, &parts, now())?;
            take(db, &parts, &gone, &node, now())
        })
        .unwrap()
    }

    #[test]
    fn a_part_has_one_node_and_its_number_rises_with_each() {
        testing::on_each_database(|pool| {
            assert_eq!(take_for(pool, &[1, 2], None, "one"), [fence(1, "one", 1), fence(2, "one", 1)]);
            assert_eq!(take_for(pool, &[1, 2, 3], None, "two"), [fence(3, "two", 1)], "the others are not free");
            assert_eq!(take_for(pool, &[1], Some("three"), "two"), [], "of another node");
            assert_eq!(take_for(pool, &[1], Some("one"), "two"), [fence(1, "two", 2)]);
            let release = |fence: &Fence| pool.write_blocking(|db| release(db, fence)).unwrap();
            let holder = |port| pool.read_blocking(|db| holder(db, &part(port))).unwrap();
            let at = |node: &str| PartHolder::Node(node.into());
            assert_eq!((holder(1), holder(9)), (Some(at("two")), None));
            let of = pool.read_blocking(|db| holders_of(db, &parts(&[1, 2, 9]))).unwrap();
            assert_eq!(of, [(part(1), at("two")), (part(2), at("one"))].into());
            assert!(!release(&fence(1, "one", 1)) && release(&fence(1, "two", 2)));
            assert_eq!(holder(1), Some(PartHolder::Free));
            assert_eq!(take_for(pool, &[1], None, "one"), [fence(1, "one", 3)]);
            let of_one = pool.read_blocking(|db| of_node(db, &"one".into())).unwrap();
            assert_eq!(of_one, [fence(1, "one", 3), fence(2, "one", 1)]);
            assert_eq!(pool.read_blocking(holders).unwrap(), BTreeSet::from(["one", "two"].map(NodeId::from)));
        });
    }

    #[test]
    fn a_part_that_nothing_needs_is_deleted_by_its_node_and_all_are_counted() {
        testing::on_each_database(|pool| {
            take_for(pool, &[1, 2, 3], None, "one");
            let sweep = BTreeSet::from([PartId::from("sweep:billing")]);
            pool.write_blocking(|db| note(db, &sweep, now())).unwrap();
            let remove = |fence: &Fence| pool.write_blocking(|db| remove(db, fence)).unwrap();
            assert!(!remove(&fence(1, "two", 1)) && !remove(&fence(1, "one", 2)) && remove(&fence(1, "one", 1)));
            let counts = pool.read_blocking(counts).unwrap();
            let count = |kind: &str, count: usize| BTreeMap::from([(kind.to_owned(), count)]);
            assert_eq!(counts, [(None, count("sweep", 1)), (Some("one".into()), count("links", 2))].into());
        });
    }

    #[test]
    fn what_is_noted_or_given_up_waits_for_a_node() {
        testing::on_each_database(|pool| {
            let note = |ports: &[u16]| pool.write_blocking(|db| note(db, &parts(ports), now())).unwrap();
            assert_eq!((note(&[1, 2]), note(&[2, 3])), (2, 1));
            let untaken = |gone: &[&str]| {
                let gone = gone.iter().map(|node| NodeId::from(*node)).collect();
                BTreeSet::from_iter(pool.read_blocking(|db| untaken(db, &gone)).unwrap())
            };
            assert_eq!(untaken(&[]), parts(&[1, 2, 3]));
            take_for(pool, &[1, 2], None, "one");
            take_for(pool, &[3], None, "two");
            assert_eq!((untaken(&[]), untaken(&["one"])), (parts(&[]), parts(&[1, 2])));
            pool.write_blocking(|db| release(db, &fence(2, "one", 1))).unwrap();
            assert_eq!(untaken(&[]), parts(&[2]));
            assert_eq!(take_for(pool, &[2], None, "two"), [fence(2, "two", 2)], "its number goes on");
            let missing = pool.read_blocking(|db| missing(db, parts(&[1, 3, 4, 5]))).unwrap();
            assert_eq!(missing, parts(&[4, 5]));
        });
    }

    #[test]
    fn a_node_whose_part_has_passed_to_another_one_writes_nothing() {
        testing::on_each_database(|pool| {
            let sign_in = |pool: &Pool, user: &str| {
                pool.write_blocking(|db| users::sign_in(db, &user.into(), &user.into(), None, now()))
            };
            let fenced = pool.clone().fenced_by(take_for(pool, &[1], None, "one").remove(0).into());
            sign_in(&fenced, "alice").unwrap();
            take_for(pool, &[1], Some("one"), "two");
            assert!(matches!(sign_in(&fenced, "bob"), Err(DbError::Fenced)));
            // The number counts, also where the part has come back.
            take_for(pool, &[1], Some("two"), "one");
            assert!(matches!(sign_in(&fenced, "bob"), Err(DbError::Fenced)));
            assert_eq!(pool.read_blocking(users::count).unwrap(), 1, "nothing of bob is stored");
            sign_in(&pool.clone().fenced_by(fence(1, "one", 3).into()), "bob").unwrap();
            take_for(pool, &[4], None, "one");
            let check = |fences: [&Fence; 2]| pool.write_blocking(|db| check(db, &fences.into()));
            check([&fence(4, "one", 1), &fence(1, "one", 3)]).unwrap();
            for other in [fence(1, "one", 2), fence(1, "two", 3), fence(2, "one", 1)] {
                assert!(matches!(check([&fence(4, "one", 1), &other]), Err(DbError::Fenced)), "{other:?}");
            }
            assert!(matches!(
                sign_in(&pool.clone().fenced_by(fence(2, "one", 1).into()), "carol"),
                Err(DbError::Fenced)
            ));
        });
    }

    #[test]
    fn work_for_a_part_writes_nothing_once_another_node_has_it() {
        testing::on_each_database(|pool| {
            let right = Arc::new(take_for(pool, &[1], None, "one").remove(0));
            let sign_in = async |user: &'static str| {
                pool.write(move |db| users::sign_in(db, &user.into(), &user.into(), None, now())).await
            };
            actix::System::new().block_on(async {
                writes_by(right.clone(), sign_in("alice")).await.unwrap();
                take_for(pool, &[1], Some("one"), "two");
                assert!(matches!(writes_by(right.clone(), sign_in("bob")).await, Err(DbError::Fenced)));
                sign_in("carol").await.unwrap();
            });
            assert_eq!(pool.read_blocking(users::count).unwrap(), 2);
        });
    }

    #[test]
    fn a_part_is_taken_over_after_the_writes_for_it_that_are_under_way() {
        let Some(postgres) = testing::Postgres::create() else { return };
        let pool = Pool::open(&postgres.database()).unwrap();
        take_for(&pool, &[1], None, "one");
        let Database::Postgres(url) = postgres.database() else { panic!("it is a PostgreSQL") };
        let mut writer = engine::open_postgres(&url).unwrap();
        writer.batch_execute("BEGIN").unwrap();
        fence_check::on_postgres(&mut writer, &fence(1, "one", 1)).unwrap();
        let take_over = || take_for(&pool, &[1], Some("one"), "two");
        assert_eq!(take_over(), [], "a write is under way");
        writer.batch_execute("COMMIT").unwrap();
        assert_eq!(take_over(), [fence(1, "two", 2)]);
        writer.batch_execute("BEGIN").unwrap();
        assert!(matches!(fence_check::on_postgres(&mut writer, &fence(1, "one", 1)), Err(DbError::Fenced)));
    }
}
