//! Asks a game server within its token buckets. All links to one game server share the mirrored buckets.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::game::{
    budget::{Budget, Priority, cost},
    link::{Answered, AskError, Link, Route},
    wire::{AppEmpty, AppEntityInfo, AppRequest, AppResponse},
};

/// The mirrored token buckets of every game server that has a link, by host and port.
#[derive(Default)]
pub struct Budgets(Mutex<HashMap<(String, u16), Arc<SharedBudget>>>);

/// The mirrored token buckets of one game server.
pub struct SharedBudget {
    /// Zero of the budget's milliseconds.
    origin: Instant,
    budget: Mutex<Budget>,
}

impl Budgets {
    /// The buckets of this game server.
    pub fn of(&self, route: &Route) -> Arc<SharedBudget> {
        let mut budgets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A server without a link needs no buckets: they refill within seconds.
        budgets.retain(|_, budget| Arc::strong_count(budget) > 1);
        let key = (route.host.clone(), route.port);
        budgets.entry(key).or_default().clone()
    }
}

impl Budgets {
    /// The part that is left of each budget that some link uses, 0 to 1.
    pub fn left(&self) -> Vec<f64> {
        let budgets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let used = budgets.values().filter(|budget| Arc::strong_count(budget) > 1);
        used.map(|shared| shared.with(|budget, now| budget.left(now))).collect()
    }
}

impl Default for SharedBudget {
    fn default() -> Self {
        Self { origin: Instant::now(), budget: Mutex::new(Budget::new(0)) }
    }
}

impl SharedBudget {
    fn with<T>(&self, use_it: impl FnOnce(&mut Budget, u64) -> T) -> T {
        let now = self.origin.elapsed().as_millis() as u64;
        // A budget is plain numbers: a panic elsewhere leaves nothing half done in it.
        use_it(&mut self.budget.lock().unwrap_or_else(PoisonError::into_inner), now)
    }
}

/// One player's link to a game server, with its budget; clones share both. Callers have it as a
/// [`ReadingLink`](crate::game::reading_link::ReadingLink) or an [`ActingLink`](crate::game::acting_link::ActingLink).
#[derive(Clone)]
pub struct PacedLink {
    link: Link,
    budget: Arc<SharedBudget>,
}

impl PacedLink {
    /// Asks over this link within this budget.
    pub fn new(link: Link, budget: Arc<SharedBudget>) -> Self {
        Self { link, budget }
    }

    /// A link of this player that has ended.
    #[cfg(test)]
    pub fn ended(player: u64, peer: Option<SocketAddr>) -> Self {
        Self { link: Link::ended(player, peer), budget: Arc::default() }
    }

    /// SteamID64 of the player who asks.
    pub fn player(&self) -> u64 {
        self.link.player()
    }

    /// Address at which the game server has answered; `None` behind a proxy and in a simulated network.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.link.peer()
    }

    /// Waits until the tokens are there.
    pub async fn spare(&self, cost: u32, priority: Priority) {
        loop {
            let wait = self.budget.with(|budget, now| budget.wait_for(self.player(), cost, priority, now));
            if wait.is_zero() {
                return;
            }
            sleep(wait).await;
        }
    }

    /// Waits for tokens, then asks. A refusal for the rate empties the mirrored buckets.
    pub async fn ask(
        &self,
        request: AppRequest,
        cost: u32,
        priority: Priority,
        deadline: Duration,
    ) -> Result<Answered<Box<AppResponse>>, AskError> {
        while let Err(wait) = self.budget.with(|budget, now| budget.take(self.player(), cost, priority, now)) {
            sleep(wait.max(Duration::from_millis(1))).await;
        }
        let answer = self.link.ask(request, deadline).await;
        if matches!(&answer, Err(AskError::Refused(word)) if word == "rate_limit") {
            self.budget.with(|budget, now| budget.refused(self.player(), now));
        }
        answer
    }

    /// Asks for a device, which also subscribes this link to its changes.
    pub async fn entity(
        &self,
        id: u64,
        priority: Priority,
        deadline: Duration,
    ) -> Result<Answered<Option<AppEntityInfo>>, AskError> {
        let request = AppRequest { entity_id: Some(id), get_entity_info: Some(AppEmpty {}), ..Default::default() };
        let Answered { asked_after, content } = self.ask(request, cost::REQUEST, priority, deadline).await?;
        Ok(Answered { asked_after, content: content.entity_info })
    }
}
