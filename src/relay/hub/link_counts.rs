//! How the links are, all together.

use actix::prelude::*;

use super::Hub;
use crate::domain::server_state::ConnectionState;

/// How many links there are in each state, and how old what they know is.
#[derive(Message)]
#[rtype(result = "LinkCounts")]
pub struct CountLinks;

/// The answer to [`CountLinks`].
#[derive(Clone, Debug, PartialEq)]
pub struct LinkCounts {
    pub by_state: [(&'static str, usize); ConnectionState::WORDS.len()],
    /// Seconds since the game servers of the links that are up last said something: the longest, and the mean.
    pub oldest_state: f64,
    pub mean_state: f64,
    /// The part of the request budgets that is left, 0 to 1: the least, and the mean.
    pub least_budget: f64,
    pub mean_budget: f64,
}

impl Handler<CountLinks> for Hub {
    type Result = MessageResult<CountLinks>;

    fn handle(&mut self, _: CountLinks, _: &mut Self::Context) -> Self::Result {
        let mut by_state = ConnectionState::WORDS.map(|(_, word)| (word, 0));
        let now = self.context.clock.now();
        let (mut oldest, mut sum, mut up) = (0.0_f64, 0.0, 0_usize);
        for (server, status) in &self.link_statuses {
            let place = ConnectionState::WORDS.iter().position(|(state, _)| *state == status.state);
            by_state[place.expect("every state has a word")].1 += 1;
            if status.state == ConnectionState::Connected
                && let Some(age) = self.connections.get(server).and_then(|known| known.heard.age(now))
            {
                (oldest, sum, up) = (oldest.max(age), sum + age, up + 1);
            }
        }
        let budgets = self.context.budgets.left();
        let least_budget = budgets.iter().copied().fold(1.0, f64::min);
        let mean_budget = if budgets.is_empty() { 1.0 } else { budgets.iter().sum::<f64>() / budgets.len() as f64 };
        let mean_state = sum / up.max(1) as f64;
        MessageResult(LinkCounts { by_state, oldest_state: oldest, mean_state, least_budget, mean_budget })
    }
}
