//! The provider's events in every order, doubled, at once and while it goes on changing: what is stored in the end is
//! the provider's truth.

use companion::{
    billing::sync::described,
    config::Database,
    crypto::random::Random,
    db::{engine::pool::Pool, money::subscriptions},
    domain::money::{
        payment::ProviderSubscription,
        plan::{PriceList, TierPrices},
        tier::SubscriptionStatus,
    },
    simulator::payments::SubscriptionChange::{self, *},
};
use futures_util::{StreamExt as _, future::join_all, stream, stream::FuturesUnordered};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{database, payments::PaymentTest};

const SEED: u64 = 20_261_122;
const AT_ONCE: usize = 8;
/// Subscriptions whose provider goes on while its events come.
const LIVES: usize = 60;

/// A service whose stored subscriptions can be compared with the provider's.
struct Orders {
    test: PaymentTest,
    pool: Pool,
    user: String,
}

impl Orders {
    async fn start(database: &Database, url: String) -> Self {
        let mut test = PaymentTest::start_on(Some(url), &[]).await;
        test.hold_events();
        let user = test.alice.get("/me").await.json()["id"].as_str().unwrap().to_owned();
        Self { test, pool: Pool::open(database).unwrap(), user }
    }

    /// A subscription that begins at a checkout; its first events, made by hand for many users at once.
    fn begin(&self, number: usize) -> (String, Vec<Value>) {
        let id = self.test.provider.subscribe(&format!("cus_{number}"), Some(&self.user), "price_scout");
        let mut events = self.test.provider.take_held();
        let mut completed = events[0].clone();
        completed["id"] = json!(format!("evt_completed_{id}"));
        completed["type"] = json!("checkout.session.completed");
        completed["data"]["object"] = json!({ "mode": "subscription", "subscription": id, "customer": format!("cus_{number}"), "client_reference_id": self.user });
        events[0] = completed;
        (id, events)
    }

    /// Changes it; the events.
    fn change(&self, id: &str, change: &SubscriptionChange) -> Vec<Value> {
        self.test.provider.change(id, change);
        self.test.provider.take_held()
    }

    async fn deliver(&self, event: &Value) {
        let answer = self.test.deliver(event).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_ne!(answer.json()["outcome"], "parked", "{event}");
    }

    /// Fails with the story when something else is stored than the provider has.
    fn check(&self, id: &str, story: &impl std::fmt::Debug) {
        let truth = ProviderSubscription::read(&self.test.provider.subscription(id).unwrap()).unwrap();
        let prices = TierPrices {
            monthly: ["price_scout", "price_operator", "price_overlord"].map(PriceList::of),
            yearly: [const { None }; 3],
        };
        let now = self.test.app.clock.now();
        let mut expected = described(&truth, &prices, now);
        // The service's own, and its clock does not move.
        expected.past_due_since = (expected.status == SubscriptionStatus::PastDue).then_some(now);
        let stored = self.pool.read_blocking(|db| subscriptions::get(db, id)).unwrap();
        // The value depends on which of its states were seen.
        expected.paid_tier = stored.as_ref().and_then(|stored| stored.owned.subscription.paid_tier);
        assert_eq!(stored.map(|stored| stored.owned.subscription), Some(expected), "after {story:?}");
    }

    /// Five events in all their orders, each order for a subscription of its own, eight orders at once. Some come twice.
    async fn every_order(&self, changes: &[SubscriptionChange]) {
        let orders = permutations(5);
        let random = Random::seeded(SEED);
        let run = |(number, order): (usize, Vec<usize>)| {
            let (id, mut events) = self.begin(number);
            events.extend(changes.iter().flat_map(|change| self.change(&id, change)));
            assert_eq!(events.len(), 5);
            let doubled: Vec<usize> = order
                .into_iter()
                .flat_map(|place| std::iter::repeat_n(place, 1 + usize::from(random.byte() < 64)))
                .collect();
            async move {
                for place in &doubled {
                    self.deliver(&events[*place]).await;
                }
                self.check(&id, &doubled);
            }
        };
        stream::iter(orders.into_iter().enumerate()).map(run).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
    }

    /// The provider goes on while its events come, eight at once, in any order and some of them twice.
    async fn many_lives(&self) {
        let random = Random::seeded(SEED);
        let below = |limit: usize| usize::from(random.byte()) % limit;
        for number in 0..LIVES {
            let (id, mut made) = self.begin(1_000 + number);
            let mut story = Vec::new();
            let mut under_way = FuturesUnordered::new();
            let mut left = 1 + below(4);
            while left > 0 || !made.is_empty() {
                if left > 0 && (made.is_empty() || below(3) == 0) {
                    left -= 1;
                    let plan = ["price_scout", "price_operator", "price_overlord"][below(3)];
                    let changes = [Plan(plan.to_owned()), Cancel, Keep, FailPayment, PayAgain, End];
                    let change = &changes[below(changes.len())];
                    made.extend(self.change(&id, change));
                    story.push(format!("{change:?}"));
                    continue;
                }
                let place = below(made.len());
                let event = if below(3) == 0 { made[place].clone() } else { made.swap_remove(place) };
                story.push(format!("{} {}", event["type"], event["id"]));
                under_way.push(async move { self.deliver(&event).await });
                if under_way.len() >= AT_ONCE {
                    under_way.next().await;
                }
            }
            while under_way.next().await.is_some() {}
            self.check(&id, &story);
        }
    }

    async fn all(&self) {
        // A failed payment makes two events.
        self.every_order(&[FailPayment, End]).await;
        self.many_lives().await;
        self.the_same_event_eight_times_at_once().await;
    }

    async fn the_same_event_eight_times_at_once(&self) {
        let (id, events) = self.begin(5_000);
        join_all((0..AT_ONCE).map(|_| self.deliver(&events[1]))).await;
        self.check(&id, &"one event");
        let stored = self.pool.read_blocking(|db| subscriptions::get(db, &id)).unwrap().unwrap();
        assert_eq!(stored.version, 1, "its effect was applied once");
    }
}

/// Every order of this many.
fn permutations(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = permutations(count - 1);
    let insert = |order: &Vec<usize>| {
        let order = order.clone();
        (0..count).map(move |place| [&order[..place], &[count - 1], &order[place..]].concat())
    };
    shorter.iter().flat_map(insert).collect()
}

#[actix_web::test]
async fn all_orders_end_in_the_truth_on_sqlite() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("orders.db");
    Orders::start(&Database::Sqlite(path.clone()), format!("sqlite:{}", path.display())).await.all().await;
}

#[actix_web::test]
async fn all_orders_end_in_the_truth_on_postgres() {
    let Some(postgres) = database::Postgres::create() else { return };
    let url = postgres.url();
    Orders::start(&Database::Postgres(url.clone().into()), url).await.all().await;
}
