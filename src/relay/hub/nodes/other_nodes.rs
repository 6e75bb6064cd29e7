//! News for other nodes and from them, as they wait and as they were read.

use std::{
    collections::{BTreeSet, HashSet, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    db::node_news::StoredNews,
    domain::{ids::ServerId, node_news::NodeNews},
};

/// News that wait for the database. What finds no room is lost, and found by the next look at everything.
const WAITING: usize = 20_000;
/// News of one transaction.
const AT_ONCE: usize = 200;
/// Without a read for so long, news may have been removed unread.
const MISSED_AFTER: Duration = Duration::from_secs(120);
/// Time between two checks of everything, and servers of one that are checked after each read.
const CHECK_EVERY: Duration = Duration::from_secs(60);
const CHECKED_AT_ONCE: usize = 50;

/// See the module.
pub struct OtherNodes {
    /// The name of this process among the news.
    pub process: String,
    waiting: VecDeque<(String, NodeNews)>,
    pub is_writing: bool,
    pub is_reading: bool,
    /// Ids that were read; `None`: before the first read.
    seen: Option<HashSet<String>>,
    /// The last read that succeeded.
    read_at: Option<Instant>,
    /// The last check of everything.
    checked_at: Option<Instant>,
    /// Servers of which it is still to be checked who may watch them.
    unchecked: VecDeque<ServerId>,
}

impl OtherNodes {
    /// No news yet.
    pub fn new(process: String) -> Self {
        Self {
            process,
            waiting: VecDeque::new(),
            is_writing: false,
            is_reading: false,
            seen: None,
            read_at: None,
            checked_at: None,
            unchecked: VecDeque::new(),
        }
    }

    /// Keeps news until they are stored; false if too many wait.
    pub fn keep(&mut self, id: String, news: NodeNews) -> bool {
        let has_room = self.waiting.len() < WAITING;
        if has_room {
            self.waiting.push_back((id, news));
        }
        has_room
    }

    /// The news to store next.
    pub fn next(&self) -> Vec<(String, NodeNews)> {
        self.waiting.iter().take(AT_ONCE).cloned().collect()
    }

    /// The first ones are stored.
    pub fn stored(&mut self, count: usize) {
        self.waiting.drain(..count.min(self.waiting.len()));
    }

    /// Takes all news that are stored; gives those of other processes that are new. None are by the first read, after which
    /// everything is checked.
    pub fn read(&mut self, all: Vec<StoredNews>, now: Instant) -> Vec<NodeNews> {
        let ids = all.iter().map(|stored| stored.id.clone()).collect();
        let before = self.seen.replace(ids);
        self.read_at = Some(now);
        let Some(before) = before else { return Vec::new() };
        let new = all.into_iter().filter(|stored| stored.node != self.process && !before.contains(&stored.id));
        new.map(|stored| stored.news).collect()
    }

    /// True if everything is to be checked after the read that has just succeeded.
    pub fn is_check_due(&self, now: Instant) -> bool {
        let is_past = |at: Option<Instant>, span| at.is_none_or(|at| now.saturating_duration_since(at) >= span);
        is_past(self.read_at, MISSED_AFTER) || is_past(self.checked_at, CHECK_EVERY)
    }

    /// Everything is checked from now on, and these servers by and by: first those that have waited since the last time, or
    /// of too many servers some would never have their turn.
    pub fn check(&mut self, watched: Vec<ServerId>, now: Instant) {
        self.checked_at = Some(now);
        let mut watched: BTreeSet<ServerId> = watched.into_iter().collect();
        self.unchecked.retain(|server| watched.remove(server));
        self.unchecked.extend(watched);
    }

    /// The servers to check now.
    pub fn unchecked(&mut self) -> Vec<ServerId> {
        self.unchecked.drain(..CHECKED_AT_ONCE.min(self.unchecked.len())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news(id: &str, node: &str) -> StoredNews {
        StoredNews { id: id.into(), node: node.into(), news: NodeNews::UserErased { user: id.into() } }
    }

    #[test]
    fn news_of_others_are_new_once() {
        let (mut nodes, began) = (OtherNodes::new("here".into()), Instant::now());
        assert_eq!(nodes.read(vec![news("before", "there")], began), []);
        let all = vec![news("before", "there"), news("own", "here"), news("new", "there")];
        assert_eq!(nodes.read(all.clone(), began), [news("new", "there").news]);
        assert_eq!(nodes.read(all, began), []);
    }

    #[test]
    fn everything_is_checked_at_the_first_read_now_and_then_and_after_a_gap() {
        let (mut nodes, began) = (OtherNodes::new("here".into()), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        assert!(nodes.is_check_due(at(0)));
        nodes.read(Vec::new(), at(0));
        nodes.check((0..70).map(|number: u32| number.to_string().into()).collect(), at(0));
        assert_eq!([(); 3].map(|()| nodes.unchecked().len()), [50, 20, 0]);
        nodes.read(Vec::new(), at(50));
        assert!(!nodes.is_check_due(at(59)) && nodes.is_check_due(at(60)));
        nodes.check(Vec::new(), at(119));
        nodes.read(Vec::new(), at(50));
        assert!(!nodes.is_check_due(at(169)) && nodes.is_check_due(at(170)));
    }

    #[test]
    fn servers_that_have_waited_for_their_check_since_the_last_time_have_it_first() {
        let (mut nodes, began) = (OtherNodes::new("here".into()), Instant::now());
        let mut check = |watched: usize| {
            let server = |number: usize| ServerId::from(format!("{number:03}"));
            nodes.check((0..watched).map(server).collect(), began);
            nodes.unchecked().iter().map(|server| server.as_str().parse().unwrap()).collect::<Vec<usize>>()
        };
        assert_eq!(check(120), (0..50).collect::<Vec<_>>());
        assert_eq!(check(120), (50..100).collect::<Vec<_>>());
        assert_eq!(check(110), (100..110).chain(0..40).collect::<Vec<_>>(), "the last ten are watched no longer");
    }

    #[test]
    fn news_wait_until_they_are_stored() {
        let mut nodes = OtherNodes::new("here".into());
        for number in 0..WAITING {
            assert!(nodes.keep(number.to_string(), NodeNews::Unknown));
        }
        assert!(!nodes.keep("one more".into(), NodeNews::Unknown));
        assert_eq!(nodes.next().len(), AT_ONCE);
        nodes.stored(AT_ONCE);
        assert_eq!(nodes.next()[0].0, AT_ONCE.to_string());
    }
}
