//! Counts the links.

pub mod link_counts;

use actix::prelude::*;

use super::{CountLinks, Hub, LinkCounts};
use crate::domain::server_state::ConnectionState;

impl Handler<CountLinks> for Hub {
    type Result = MessageResult<CountLinks>;

    fn handle(&mut self, _: CountLinks, _: &mut Self::Context) -> Self::Result {
        let mut by_state = ConnectionState::WORDS.map(|(_, word)| (word, 0));
        let now = self.context.clock.now();
        let (mut oldest_state, mut sum, mut up) = (0.0_f64, 0.0, 0_usize);
        for (server, status) in &self.link_statuses {
            let place = ConnectionState::WORDS.iter().position(|(state, _)| *state == status.state);
            by_state[place.expect("every state has a word")].1 += 1;
            if status.state == ConnectionState::Connected
                && let Some(age) = self.connections.get(server).and_then(|known| known.heard.age(now))
            {
                (oldest_state, sum, up) = (oldest_state.max(age), sum + age, up + 1);
            }
        }
        let budgets = self.context.budgets.left();
        let least_budget = budgets.iter().copied().fold(1.0, f64::min);
        let mean_budget = if budgets.is_empty() { 1.0 } else { budgets.iter().sum::<f64>() / budgets.len() as f64 };
        let mean_state = sum / up.max(1) as f64;
        let (slots, shared) = (self.slots.usage(), self.hosts.seated());
        MessageResult(LinkCounts { by_state, oldest_state, mean_state, least_budget, mean_budget, slots, shared })
    }
}
