//! Events that cannot be placed wait and are seen, and missed ones are found by comparing.

use std::process::Output;

use companion::{
    config::Database,
    db::{
        engine::pool::Pool,
        money::{payment_customers, payment_events, subscriptions},
    },
    simulator::payments::{PaymentFaults, SubscriptionChange},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{
    app::TestApp,
    binary,
    game::ALICE,
    payments::{PaymentTest, flags},
};

/// A service on a file that the command line can open too.
struct Installed {
    test: PaymentTest,
    directory: TempDir,
    pool: Pool,
}

impl Installed {
    /// As if its period ended this many days from now.
    fn period_ends(&self, id: &str, days: i64) {
        let (now, end) = (self.test.app.clock.now(), (chrono::Utc::now() + chrono::Duration::days(days)).into());
        let id = id.to_owned();
        let stored = self.pool.write_blocking(move |db| {
            let mut stored = subscriptions::get(db, &id)?.unwrap();
            stored.owned.subscription.period_end = Some(end);
            subscriptions::put(db, &stored.owned, Some(stored.version), now)
        });
        stored.unwrap();
    }

    async fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("billing.db");
        let mut test = PaymentTest::start_on(Some(format!("sqlite:{}", path.display())), &[]).await;
        test.hold_events();
        test.subscription().await;
        let pool = Pool::open(&Database::Sqlite(path)).unwrap();
        Self { test, directory, pool }
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.directory.path().join("billing.db").display())
    }

    /// `companion billing …`: what it printed, and whether it succeeded.
    async fn billing(&self, arguments: &[&str]) -> (Vec<String>, bool) {
        let mut command = binary::companion(self.directory.path());
        command.arg("billing").args(arguments).args(flags(&self.test.provider));
        command.arg(format!("--database-url={}", self.url())).arg("--data-dir=data");
        // On a thread of its own: the provider answers on this one's system.
        let run = move || command.output().unwrap();
        let Output { status, stdout, stderr } = actix_web::web::block(run).await.unwrap();
        let text = String::from_utf8(stdout).unwrap();
        assert!(!text.is_empty(), "{}", String::from_utf8_lossy(&stderr));
        (text.lines().map(str::to_owned).collect(), status.success())
    }

    async fn alice_id(&mut self) -> String {
        self.test.alice.get("/me").await.json()["id"].as_str().unwrap().to_owned()
    }
}

#[actix_web::test]
async fn a_former_price_is_still_that_of_its_tier() {
    let mut test = PaymentTest::start_with(&["--payment-price-scout=price_scout,price_of_last_year"]).await;
    let user = test.alice.get("/me").await.json()["id"].as_str().unwrap().to_owned();
    test.provider.subscribe("cus_1", Some(&user), "price_of_last_year");
    test.until(|subscription| subscription["tier"] == "SCOUT").await;
}

#[actix_web::test]
async fn an_unknown_customer_or_user_waits_until_they_are_known() {
    let mut installed = Installed::start().await;
    let unknown = installed.test.provider.subscribe("cus_unknown", None, "price_scout");
    let gone = installed.test.provider.subscribe("cus_gone", Some("no-such-user"), "price_operator");
    let events = installed.test.provider.events();
    assert_eq!(installed.test.outcome(&events[1]).await, "parked");
    assert_eq!(installed.test.outcome(&events[3]).await, "parked");
    assert_eq!(installed.test.outcome(&events[3]).await, "parked", "it is tried each time it comes");
    let (printed, succeeded) = installed.billing(&["parked"]).await;
    assert!(succeeded && printed.len() == 3, "{printed:?}");
    assert_eq!(printed[0], "parked: 2");
    assert!(printed[1].contains(&format!("unknown_customer, subscription {unknown}, customer cus_unknown, user none")));
    let user = "user no-such-user";
    assert!(
        printed[2].contains(&format!("unknown_user, subscription {gone}, customer cus_gone, {user}")),
        "{printed:?}"
    );

    let alice = installed.alice_id().await;
    installed.pool.write_blocking(|db| payment_customers::put(db, &alice.as_str().into(), "cus_unknown")).unwrap();
    installed.test.advance(chrono::Duration::minutes(2));
    installed.test.until(|subscription| subscription["tier"] == "SCOUT").await;
    let (parked, _) = installed.pool.read_blocking(|db| payment_events::parked(db, None, 9)).unwrap();
    assert_eq!(parked, 1, "the other one still waits");
}

#[actix_web::test]
async fn an_unknown_price_gives_no_tier_until_it_is_configured() {
    let mut installed = Installed::start().await;
    let alice = installed.alice_id().await;
    installed.test.provider.subscribe("cus_1", Some(&alice), "price_new");
    let updated = installed.test.provider.events()[1].clone();
    assert_eq!(installed.test.outcome(&updated).await, "parked");
    let subscription = installed.test.subscription().await;
    assert_eq!((&subscription["tier"], &subscription["status"]), (&Value::Null, &json!("ACTIVE")));
    assert!(subscription["why"][0].as_str().unwrap().contains("a price that is not configured"));

    let (url, Installed { test, directory: _directory, .. }) = (installed.url(), installed);
    let PaymentTest { app, provider, .. } = test;
    app.stop().await;
    let mut flags = flags(&provider);
    flags.retain(|flag| !flag.starts_with("--payment-price-overlord"));
    flags.push("--payment-price-overlord=price_new".to_owned());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let again = TestApp::start_on(url, &flags).await;
    again.clock.advance(chrono::Duration::minutes(1));
    let mut alice = again.signed_in(ALICE).await;
    alice.get_until("/me", |me| me["subscription"]["tier"] == "OVERLORD").await;
}

#[actix_web::test]
async fn an_event_is_kept_while_the_provider_is_away_for_an_hour() {
    let mut installed = Installed::start().await;
    let alice = installed.alice_id().await;
    let id = installed.test.provider.subscribe("cus_1", Some(&alice), "price_scout");
    let updated = installed.test.provider.events()[1].clone();
    let away = PaymentFaults { hold_events: true, status: Some(500), ..Default::default() };
    installed.test.provider.set_faults(away);
    assert_eq!(installed.test.outcome(&updated).await, "parked");
    let asked = installed.test.provider.asked();
    installed.test.advance(chrono::Duration::hours(1));
    // The event is tried again, in vain.
    while installed.test.provider.asked() == asked {
        tokio::task::yield_now().await;
    }
    installed.test.hold_events();
    installed.test.provider.change(&id, &SubscriptionChange::Plan("price_overlord".into()));
    installed.test.advance(chrono::Duration::hours(1));
    installed.test.until(|subscription| subscription["tier"] == "OVERLORD").await;
}

#[actix_web::test]
async fn what_was_ended_with_the_key_of_another_account_is_named_and_goes_on() {
    let mut installed = Installed::start().await;
    let alice = installed.alice_id().await;
    let id = installed.test.provider.subscribe("cus_1", Some(&alice), "price_scout");
    let updated = installed.test.provider.events()[1].clone();
    assert_eq!(installed.test.outcome(&updated).await, "applied");
    installed.period_ends(&id, -4);
    let other = PaymentFaults { other_account: true, hold_events: true, ..Default::default() };
    installed.test.provider.set_faults(other);
    let (printed, _) = installed.billing(&["reconcile"]).await;
    assert_eq!(printed[1], format!("{id}: ACTIVE here, unknown to the provider: ended"));
    assert_eq!(installed.test.subscription().await["status"], "CANCELED");
    installed.test.hold_events();
    let (printed, _) = installed.billing(&["reconcile"]).await;
    let named = format!("{id}: ended here while the provider did not know it; status CANCELED here, ACTIVE there");
    assert!(printed[0].starts_with(&named) && printed[0].ends_with(": healed"), "{printed:?}");
    assert_eq!(installed.test.subscription().await["tier"], "SCOUT");
    assert!(installed.billing(&["reconcile"]).await.1, "nothing is left to do");
}

#[actix_web::test]
async fn reconciliation_prints_what_differs_and_heals_it() {
    let mut installed = Installed::start().await;
    let alice = installed.alice_id().await;
    let id = installed.test.provider.subscribe("cus_1", Some(&alice), "price_scout");
    let updated = installed.test.provider.events()[1].clone();
    assert_eq!(installed.test.outcome(&updated).await, "applied");
    assert_eq!(
        installed.billing(&["reconcile"]).await,
        (vec!["compared: 1".to_owned(), "1 subscriptions, 0 differ, 0 healed".to_owned()], true)
    );

    // None of these events arrives.
    installed.test.provider.change(&id, &SubscriptionChange::Plan("price_operator".into()));
    let missed = installed.test.provider.subscribe("cus_1", None, "price_overlord");
    let stranger = installed.test.provider.subscribe("cus_stranger", None, "price_scout");
    let (printed, succeeded) = installed.billing(&["reconcile", "--dry-run"]).await;
    assert!(!succeeded);
    assert_eq!(
        printed,
        [
            format!("{stranger}: missing here, ACTIVE, customer cus_stranger"),
            format!("{missed}: missing here, ACTIVE"),
            format!("{id}: tier SCOUT here, OPERATOR there; price price_scout here, price_operator there"),
            "compared: 3".to_owned(),
            "1 run for no user who is known: `companion billing reconcile --end-unowned` ends them".to_owned(),
            "3 subscriptions, 3 differ, 0 healed".to_owned(),
        ]
    );
    assert_eq!(installed.test.subscription().await["tier"], "SCOUT", "nothing was changed");

    let (printed, succeeded) = installed.billing(&["reconcile"]).await;
    assert!(!succeeded, "one has no user");
    assert!(printed[0].ends_with("customer cus_stranger: not healed: unknown_customer"), "{printed:?}");
    assert!(printed[1].ends_with(": healed") && printed[2].ends_with(": healed"), "{printed:?}");
    assert_eq!(printed[5], "3 subscriptions, 3 differ, 2 healed");
    assert_eq!(installed.test.subscription().await["tier"], "OVERLORD");

    let foreign = installed.test.provider.subscribe("cus_foreign", None, "price_of_another_product");
    let (printed, succeeded) = installed.billing(&["reconcile", "--end-unowned"]).await;
    let ended = format!("{stranger}: missing here, ACTIVE, customer cus_stranger: ended");
    assert_eq!(printed, [&*ended, "compared: 4", "4 subscriptions, 1 differ, 1 healed"]);
    assert!(succeeded);
    let status = |id: &str| installed.test.provider.subscription(id).unwrap()["status"].clone();
    assert_eq!([status(&stranger), status(&foreign), status(&missed)], ["canceled", "active", "active"]);
    assert!(installed.billing(&["reconcile"]).await.1, "nothing is left to do");
}

#[actix_web::test]
async fn what_has_ended_here_and_runs_there_is_named() {
    let mut installed = Installed::start().await;
    let alice = installed.alice_id().await;
    let id = installed.test.provider.subscribe("cus_1", Some(&alice), "price_scout");
    let mut event = installed.test.provider.events()[1].clone();
    assert_eq!(installed.test.outcome(&event).await, "applied");
    event["id"] = json!("evt_contradiction");
    event["type"] = json!("customer.subscription.deleted");
    event["data"]["object"]["status"] = json!("canceled");
    assert_eq!(installed.test.outcome(&event).await, "applied");
    assert_eq!(installed.test.subscription().await["status"], "CANCELED");
    let (printed, succeeded) = installed.billing(&["reconcile"]).await;
    let named =
        format!("{id}: has ended here, ACTIVE there: its user pays for no tier: not healed: an admin has to end it");
    assert_eq!((&printed[0], succeeded), (&named, false));
    installed.test.provider.change(&id, &SubscriptionChange::End);
    assert!(installed.billing(&["reconcile"]).await.1);
}

#[actix_web::test]
async fn what_the_provider_has_forgotten_is_ended_once_its_period_is_over() {
    let mut installed = Installed::start().await;
    let alice = installed.alice_id().await;
    let id = installed.test.provider.subscribe("cus_1", Some(&alice), "price_scout");
    let updated = installed.test.provider.events()[1].clone();
    assert_eq!(installed.test.outcome(&updated).await, "applied");
    installed.test.provider.forget_subscription(&id);
    installed.period_ends(&id, 1);
    let (printed, _) = installed.billing(&["reconcile"]).await;
    let unknown = format!("{id}: ACTIVE here, unknown to the provider");
    assert_eq!(printed[1], format!("{unknown}: not healed: it is ended once its period is over"));
    installed.period_ends(&id, -4);
    assert_eq!(installed.billing(&["reconcile", "--dry-run"]).await.0[1], unknown);
    assert_eq!(installed.billing(&["reconcile"]).await.0[1], format!("{unknown}: ended"));
    let subscription = installed.test.subscription().await;
    assert_eq!((&subscription["tier"], &subscription["status"]), (&Value::Null, &json!("CANCELED")));
    let request = installed.test.alice.request(reqwest::Method::DELETE, "/me").json(&json!({ "confirm": ALICE }));
    let erased = installed.test.alice.send(request).await;
    assert_eq!(erased.status, 200, "{}", erased.text());
}

#[actix_web::test]
async fn a_provider_that_hangs_loses_no_event() {
    let mut test = PaymentTest::start().await;
    let id = test.subscribe("SCOUT").await;
    test.until(|subscription| subscription["tier"] == "SCOUT").await;
    test.provider.delivered().await;
    test.provider.set_faults(PaymentFaults { answer_delay: 60_000, hold_events: true, ..Default::default() });
    test.provider.change(&id, &SubscriptionChange::Plan("price_overlord".into()));
    let event = test.provider.take_held().pop().unwrap();
    assert_eq!(test.outcome(&event).await, "parked");
    assert_eq!(test.subscription().await["tier"], "SCOUT");
    test.provider.set_faults(PaymentFaults::default());
    test.advance(chrono::Duration::minutes(1));
    test.until(|subscription| subscription["tier"] == "OVERLORD").await;
    assert_eq!(test.outcome(&event).await, "duplicate");
}

#[actix_web::test]
async fn reconciliation_goes_over_all_pages_in_the_night() {
    let mut installed = Installed::start().await;
    let alice = installed.alice_id().await;
    let first = installed.test.provider.subscribe("cus_1", Some(&alice), "price_overlord");
    for number in 0..101 {
        installed.test.provider.subscribe(&format!("cus_other_{number}"), None, "price_scout");
    }
    assert_eq!(installed.test.subscription().await["tier"], Value::Null);
    // To 04:00 at the latest minute of the hour; the session lasts.
    installed.test.advance(chrono::Duration::hours(15) + chrono::Duration::minutes(59));
    let subscription = installed.test.until(|subscription| subscription["tier"] == "OVERLORD").await;
    assert_eq!(subscription["status"], "ACTIVE", "{first}, the last of the second page");
}
