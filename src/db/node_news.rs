//! News of nodes for one another. Each node reads all rows again and again, and knows those that it has read before: no
//! order of commits and no clock of another node matters. A node removes its own after some minutes, and retention those
//! that a node left behind.

use std::collections::BTreeSet;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::node_news,
    },
    domain::{ids::UserId, node_news::NodeNews, time::Timestamp},
};

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredNews {
    pub id: String,
    /// The process that has it.
    pub node: String,
    pub news: NodeNews,
}

/// Rows that are read at once, the newest. More than a node has in the minutes for which they are kept.
const MOST: i64 = 20_000;

/// Stores news of this node.
pub fn add(db: &mut Db, node: &str, news: &[(String, NodeNews)], now: Timestamp) -> Result<(), DbError> {
    for (id, news) in news {
        let row =
            (node_news::id.eq(id), node_news::node.eq(node), node_news::at.eq(now), node_news::news.eq(news.to_text()));
        let insert = diesel::insert_into(node_news::table).values(row).on_conflict_do_nothing();
        on_backend!(db, |db| insert.execute(db))?;
    }
    Ok(())
}

/// All news, oldest first: a server that was paired and then deleted is heard of in this order.
pub fn list(db: &mut Db) -> Result<Vec<StoredNews>, DbError> {
    let newest = node_news::table.order((node_news::at.desc(), node_news::id.desc())).limit(MOST);
    let rows: Vec<(String, String, String)> =
        newest.select((node_news::id, node_news::node, node_news::news)).load(db)?;
    let stored = |(id, node, news): (String, String, String)| StoredNews { id, node, news: NodeNews::read(&news) };
    Ok(rows.into_iter().rev().map(stored).collect())
}

/// The users who were erased at any node in the last minutes.
pub fn erased_users(db: &mut Db) -> Result<BTreeSet<UserId>, DbError> {
    let erased = |stored: StoredNews| match stored.news {
        NodeNews::UserErased { user } => Some(user),
        _ => None,
    };
    Ok(list(db)?.into_iter().filter_map(erased).collect())
}

/// Removes the news that this node stored before this time.
pub fn purge(db: &mut Db, node: &str, before: Timestamp) -> Result<(), DbError> {
    let of_node = node_news::table.filter(node_news::node.eq(node)).filter(node_news::at.lt(before));
    diesel::delete(of_node).execute(db)?;
    Ok(())
}

/// Removes a batch of the news of all nodes until this time. Returns how many.
pub fn purge_left_behind(db: &mut Db, until: Timestamp) -> Result<usize, DbError> {
    Ok(purge_oldest!(db, node_news, at, until))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    #[test]
    fn news_are_stored_once_and_removed_by_their_node_or_much_later() {
        testing::on_each_database(|pool| {
            let news = |user: &str| NodeNews::UserErased { user: user.into() };
            let stored = || pool.read_blocking(list).unwrap().into_iter().map(|news| news.id).collect::<Vec<_>>();
            for (node, id, at) in
                [("one", "b", later(60)), ("one", "a", now()), ("one", "a", now()), ("two", "c", now())]
            {
                pool.write_blocking(|db| add(db, node, &[(id.to_owned(), news(id))], at)).unwrap();
            }
            assert_eq!(stored(), ["a", "c", "b"], "oldest first");
            let all = pool.read_blocking(list).unwrap();
            assert!(all.contains(&StoredNews { id: "c".into(), node: "two".into(), news: news("c") }));
            pool.write_blocking(|db| add(db, "one", &[("d".into(), NodeNews::Unknown)], now())).unwrap();
            assert_eq!(pool.read_blocking(erased_users).unwrap(), ["a", "b", "c"].map(UserId::from).into());
            pool.write_blocking(|db| purge(db, "one", later(30))).unwrap();
            assert_eq!(stored(), ["c", "b"]);
            assert_eq!(pool.write_blocking(|db| purge_left_behind(db, later(30))).unwrap(), 1);
            assert_eq!(stored(), ["b"]);
        });
    }
}
