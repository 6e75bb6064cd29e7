//! Asks a game server within its token buckets. All links to one game server share the mirrored buckets.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use metrics::counter;
use tokio::time::{Instant, sleep};

use crate::{
    domain::doubling::Doubling,
    game::{
        budget::{Budget, Priority, cost},
        link::{Answered, AskError, Link, Route},
        wire::{AppEmpty, AppEntityInfo, AppRequest, AppResponse},
    },
};

/// Budgets of which those that no link uses are not looked for.
const FEW: usize = 64;

/// Requests for which there were no tokens at once.
const OVER_BUDGET: &str = "companion_requests_over_budget_total";
/// One waited here, or the game server refused it for its rate.
const WAITED: &str = "waited";
const REFUSED: &str = "refused";

/// Describes the metric, and counts each priority and outcome from 0: a rate needs the 0 before the first request.
pub fn describe() {
    metrics::describe_counter!(
        OVER_BUDGET,
        "Requests to game servers that waited for the budget, or were refused for their rate, by priority."
    );
    for priority in Priority::WORDS {
        for outcome in [WAITED, REFUSED] {
            counter!(OVER_BUDGET, "priority" => priority, "outcome" => outcome).absolute(0);
        }
    }
}

fn count_over_budget(priority: Priority, outcome: &'static str) {
    counter!(OVER_BUDGET, "priority" => priority.word(), "outcome" => outcome).increment(1);
}

/// The mirrored token buckets of every game server that has a link, by its host and port and by our address, if that was
/// chosen: a game server counts what comes from each (protocol §1.7).
#[derive(Default)]
pub struct Budgets(Mutex<UsedBudgets>);

struct UsedBudgets {
    budgets: HashMap<BudgetKey, Arc<SharedBudget>>,
    searched: Doubling,
}

impl Default for UsedBudgets {
    fn default() -> Self {
        Self { budgets: HashMap::new(), searched: Doubling::new(FEW) }
    }
}

/// A game server and our address on the way there.
#[derive(PartialEq, Eq, Hash)]
struct BudgetKey {
    host: String,
    port: u16,
    own: Option<IpAddr>,
}

/// The mirrored token buckets of one game server.
pub struct SharedBudget {
    /// Zero of the budget's milliseconds.
    origin: Instant,
    budget: Mutex<Budget>,
}

impl Budgets {
    /// The buckets of this game server for what comes from this address of ours.
    pub fn of(&self, route: &Route, own: Option<IpAddr>) -> Arc<SharedBudget> {
        let UsedBudgets { budgets, searched } = &mut *self.lock();
        if searched.is_reached(budgets.len()) {
            // A server without a link needs no buckets: they refill within seconds.
            budgets.retain(|_, budget| Arc::strong_count(budget) > 1);
            searched.searched(budgets.len());
        }
        let key = BudgetKey { host: route.host.clone(), port: route.port, own };
        budgets.entry(key).or_default().clone()
    }

    /// The part that is left of each budget that some link uses, 0 to 1.
    pub fn left(&self) -> Vec<f64> {
        let known = self.lock();
        let used = known.budgets.values().filter(|budget| Arc::strong_count(budget) > 1);
        used.map(|shared| shared.with(|budget, now| budget.left(now))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, UsedBudgets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// A link of this player to a game server that answers so.
    #[cfg(test)]
    pub fn answering(player: u64, answers: fn(&AppRequest) -> AppResponse) -> Self {
        Self { link: Link::answering(player, answers), budget: Arc::default() }
    }

    /// SteamID64 of the player who asks.
    pub fn player(&self) -> u64 {
        self.link.player()
    }

    /// Address at which the game server has answered; `None` behind a proxy and in a simulated network.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.link.peer()
    }

    /// True if the tokens of this link were exhausted within the last minute: a user had to wait for one, or the game
    /// server refused a request for its rate.
    pub fn was_exhausted(&self) -> bool {
        self.budget.with(|budget, now| budget.was_exhausted(self.player(), now))
    }

    /// Waits until the tokens are there.
    pub async fn spare(&self, cost: u32, priority: Priority) {
        self.wait_until(priority, |budget, now| match budget.wait_for(self.player(), cost, priority, now) {
            Duration::ZERO => Ok(()),
            wait => Err(wait),
        })
        .await;
    }

    /// Waits until this succeeds. A failure gives the time until the next attempt.
    async fn wait_until(&self, priority: Priority, attempt: impl Fn(&mut Budget, u64) -> Result<(), Duration>) {
        let mut is_counted = false;
        while let Err(wait) = self.budget.with(&attempt) {
            if !std::mem::replace(&mut is_counted, true) {
                count_over_budget(priority, WAITED);
            }
            sleep(wait.max(Duration::from_millis(1))).await;
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
        self.wait_until(priority, |budget, now| budget.take(self.player(), cost, priority, now)).await;
        let answer = self.link.ask(request, deadline).await;
        if matches!(&answer, Err(AskError::Refused(word)) if word == "rate_limit") {
            self.budget.with(|budget, now| budget.refused(self.player(), now));
            count_over_budget(priority, REFUSED);
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
