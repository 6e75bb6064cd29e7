//! An upgrade of all nodes, as `docs/operations.md` has it: one after the other, each once the one before has come back and
//! nothing is left to move, and the last one a step back and forward again. If the schema has a step between the builds, the
//! present one is refused while others serve; then all are stopped, and the earlier one is refused from then on.

use std::{
    cell::Cell,
    convert::Infallible,
    path::Path,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use tokio::{select, time::sleep};

use super::{LINKS_LOOK_EVERY, Trial};
use crate::{
    crash::binary::PROGRAM,
    nodes::{Node, is_not_understood},
    records::TakeOver,
    verdict::judge_places,
};

impl Trial {
    /// Upgrades all nodes from this build to the present one. For each game server, its longest time without a link.
    pub(super) async fn upgrade(&self, earlier: &Path) -> Vec<TakeOver> {
        let (began, present) = (Instant::now(), Path::new(PROGRAM));
        let longest: Vec<Cell<Duration>> = self.games.iter().map(|_| Cell::default()).collect();
        let upgraded = async {
            match self.steps {
                0 => self.upgrade_one_by_one(earlier, present).await,
                steps => self.upgrade_at_once(earlier, present, steps).await,
            }
        };
        select! {
            () = upgraded => {}
            never = self.follow_links(&longest) => match never {},
        }
        let longest: Vec<Duration> = longest.iter().map(Cell::get).collect();
        let of_all = longest.iter().max().copied().unwrap_or_default();
        self.say(format!(
            "the upgrade took {:.1?}; the longest time of a game server without a link was {of_all:.1?}",
            began.elapsed()
        ));
        let over = |(game, longest)| TakeOver { fault: "the upgrade".to_owned(), game, after: Some(longest) };
        longest.into_iter().enumerate().map(over).collect()
    }

    async fn upgrade_one_by_one(&self, earlier: &Path, present: &Path) {
        for node in &self.nodes {
            self.replace(node, present, "the present build").await;
        }
        if let Some(last) = self.nodes.last() {
            self.replace(last, earlier, "the earlier build").await;
            self.replace(last, present, "the present build").await;
        }
    }

    async fn upgrade_at_once(&self, earlier: &Path, present: &Path, steps: usize) {
        self.say(format!("the earlier build does not know {steps} steps of the schema"));
        let (Some(first), Some(last)) = (self.nodes.first(), self.nodes.last()) else { return };
        self.stop(first).await;
        self.is_refused(first, present, "the present build").await;
        join_all(self.nodes[1..].iter().map(|node| self.stop(node))).await;
        let began = Instant::now();
        for node in &self.nodes {
            self.start_with(node, present, "the present build");
        }
        self.wait_for_moves(began).await;
        self.stop(last).await;
        self.is_refused(last, earlier, "the earlier build").await;
        let began = Instant::now();
        self.start_with(last, present, "the present build");
        self.wait_for_moves(began).await;
    }

    /// Puts this program in the place of another one, and waits until nothing is left to move.
    async fn replace(&self, node: &Node, program: &Path, name: &str) {
        self.stop(node).await;
        let began = Instant::now();
        self.start_with(node, program, name);
        self.wait_for_moves(began).await;
    }

    /// Stops a node as an operator does.
    async fn stop(&self, node: &Node) {
        let (number, began) = (node.number, Instant::now());
        self.note_unreadable(node).await;
        self.say(format!("node {number} is stopped"));
        let code = node.stop().await;
        if code != Some(0) {
            self.mishap(format!("node {number} has ended with {code:?} after it was stopped"));
        }
        self.say(format!("node {number} has ended after {:.1?}; {}", began.elapsed(), self.moved_since(began)));
    }

    fn start_with(&self, node: &Node, program: &Path, name: &str) {
        self.say(format!("node {} starts with {name}", node.number));
        node.install(program);
        node.start();
    }

    /// Starts a program that may not serve now: it has to end, and not well.
    async fn is_refused(&self, node: &Node, program: &Path, name: &str) {
        self.start_with(node, program, name);
        let code = node.end().await;
        if code == Some(0) || node.id().is_some() {
            self.mishap(format!("node {} has served with {name}, and ended with {code:?}", node.number));
        }
        self.say(format!("node {} was refused, and has ended with {code:?}", node.number));
    }

    /// Waits until all nodes live, and each part is where it belongs.
    async fn wait_for_moves(&self, began: Instant) {
        let unsettled = async || {
            let mut broken = self.unsettled_nodes().await;
            broken.extend(judge_places(&self.holders.holders(), &self.live()));
            broken
        };
        for broken in self.settle(unsettled).await {
            self.mishap(format!("during the upgrade, {broken}"));
        }
        self.say(format!("nothing is left to move after {:.1?}; {}", began.elapsed(), self.moved_since(began)));
    }

    /// The parts that have passed to a node since then, and when, in words.
    fn moved_since(&self, began: Instant) -> String {
        let changes = self.holders.changes();
        let since = began.saturating_duration_since(self.began);
        let moves: Vec<Duration> = changes
            .iter()
            .filter(|change| change.at >= since && !change.node.is_empty())
            .map(|change| change.at - since)
            .collect();
        match (moves.iter().min(), moves.iter().max()) {
            (Some(first), Some(last)) => {
                format!("{} parts have moved meanwhile, from {first:.1?} to {last:.1?}", moves.len())
            }
            _ => "no part has moved meanwhile".to_owned(),
        }
    }

    /// Notes for how long each game server is without a link.
    async fn follow_links(&self, longest: &[Cell<Duration>]) -> Infallible {
        let mut linked_at = vec![Instant::now(); self.games.len()];
        loop {
            for ((game, linked_at), longest) in self.games.iter().zip(&mut linked_at).zip(longest) {
                if game.is_linked_since(0) {
                    *linked_at = Instant::now();
                }
                longest.set(longest.get().max(linked_at.elapsed()));
            }
            sleep(LINKS_LOOK_EVERY).await;
        }
    }

    async fn note_unreadable(&self, node: &Node) {
        match node.unreadable_messages(&self.http).await {
            Some(count) => self.unreadable.set(self.unreadable.get() + count),
            None => self.say(format!("node {} does not say how many messages it has not understood", node.number)),
        }
    }

    /// Says how many messages between nodes were not understood, and what the logs say about that.
    pub(super) async fn report_messages(&self) {
        for node in &self.nodes {
            self.note_unreadable(node).await;
        }
        self.say(format!("{} messages between nodes were not understood", self.unreadable.get()));
        for node in &self.nodes {
            for line in node.lines(is_not_understood) {
                self.say(format!("node {}: {line}", node.number));
            }
        }
    }
}
