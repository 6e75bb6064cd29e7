//! A payment provider in the form of Stripe's API: customers, a checkout page on which one click pays, a portal page,
//! subscriptions, refunds and signed webhooks. Nothing costs anything. It fails, and delivers its events late, twice
//! and in another order, on demand.

mod api;
mod books;
mod change;
mod delivery;
mod pages;
mod setup;
mod shared;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use actix_web::web::{self, ServiceConfig};
use serde_json::Value;

use self::{books::Books, shared::SharedPayments};
pub use self::{
    change::SubscriptionChange,
    setup::{PAYMENT_KEY, PaymentFaults, WEBHOOK_SECRET},
};
use super::http_server::NeighbourServer;
use crate::{clock::Clock, crypto::random::Random};

/// A running provider; stops when dropped.
pub struct PaymentService {
    addr: SocketAddr,
    _server: NeighbourServer,
    shared: Arc<SharedPayments>,
}

impl PaymentService {
    /// Binds and begins to serve; port 0 takes a free one. Call it inside an actix system.
    pub async fn start(listen: SocketAddr, clock: Clock, random: Random) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(SharedPayments::new(addr, random.hex::<3>(), clock)?);
        let data = web::Data::from(shared.clone());
        let routes = move |config: &mut ServiceConfig| {
            config.app_data(data.clone()).configure(api::routes).configure(pages::routes);
        };
        Ok(Self { addr, _server: NeighbourServer::start(listener, routes)?, shared })
    }

    /// The address that it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The base URL of the API and the pages.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The settings of a service that uses this provider.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("PAYMENT_API_URL", self.url()),
            ("PAYMENT_SECRET_KEY", PAYMENT_KEY.to_owned()),
            ("PAYMENT_WEBHOOK_SECRET", WEBHOOK_SECRET.to_owned()),
        ];
        settings.extend(books::PRICES.iter().map(|price| (price.variable, price.id.to_owned())));
        settings
    }

    /// Sets the address to which events are sent.
    pub fn set_webhook(&self, url: String) {
        self.shared.delivery.set_url(url);
    }

    /// From now on the provider has these faults.
    pub fn set_faults(&self, faults: PaymentFaults) {
        *self.shared.faults() = faults;
    }

    /// The latest events, the oldest first, as they are now; also those that were not sent.
    pub fn events(&self) -> Vec<Value> {
        self.shared.books().events(self.shared.faults().older_shape)
    }

    /// The events that are held and were not taken before.
    pub fn take_held(&self) -> Vec<Value> {
        let older_shape = self.shared.faults().older_shape;
        self.shared.books().take_news(older_shape)
    }

    /// The header that proves that this body comes from the provider now.
    pub fn signature(&self, body: &str) -> String {
        delivery::signature(WEBHOOK_SECRET, body, self.shared.clock.now().timestamp())
    }

    /// A subscription, as the API shows it.
    pub fn subscription(&self, id: &str) -> Option<Value> {
        self.shared.books().subscription(id).cloned()
    }

    /// The fields with which a checkout was opened.
    pub fn asked_of_checkout(&self, session: &str) -> Option<Value> {
        self.shared.books().session(session).map(|session| session["simulated"]["asked"].clone())
    }

    /// The customers' name at the provider.
    pub fn customer_name(&self, customer: &str) -> Option<String> {
        self.shared.books().customer(customer).and_then(|customer| customer["name"].as_str()).map(str::to_owned)
    }

    /// Pays a checkout that was opened, as the button of its page does; the subscription.
    pub fn pay(&self, session: &str) -> Option<String> {
        self.shared.step(|books, now| books.pay(session, now))
    }

    /// A new subscription of this customer, without a checkout.
    pub fn subscribe(&self, customer: &str, user: Option<&str>, price: &str) -> String {
        self.shared.step(|books, now| books.subscribe(customer, user, price, now))
    }

    /// Makes this change of a subscription, as the portal does.
    pub fn change(&self, subscription: &str, change: &SubscriptionChange) {
        self.shared.step(|books, now| books.change(subscription, change, now));
    }

    /// Does what was due since the last time: periods that are over are renewed and charged, or were the last.
    pub fn pass_time(&self) {
        self.shared.step(Books::pass_time);
    }

    /// Gives the money of the latest refund back to its charge, as when the bank of the customer does not take it.
    pub fn fail_refund(&self) {
        self.shared.step(Books::fail_refund);
    }

    /// The latest charge is disputed (`needs_response`), or its dispute is closed with this status: `won`, `lost`.
    pub fn dispute(&self, status: &str) {
        self.shared.step(|books, now| books.dispute(None, status, now));
    }

    /// As [`Self::dispute`], of this charge.
    pub fn dispute_charge(&self, charge: &str, status: &str) {
        self.shared.step(|books, now| books.dispute(Some(charge), status, now));
    }

    /// All refunds, the newest first.
    pub fn refunds(&self) -> Vec<Value> {
        self.shared.books().refunds(None, None).into_iter().cloned().collect()
    }

    /// Waits until this many refunds were made.
    pub async fn refunded_until(&self, count: usize) {
        while self.refunds().len() < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Number of checkouts that can be paid.
    pub fn open_checkouts(&self) -> usize {
        self.shared.books().open_sessions()
    }

    /// Number of requests to the API.
    pub fn asked(&self) -> u64 {
        self.shared.books().asked
    }

    /// Waits until the API was asked this often.
    pub async fn asked_until(&self, times: u64) {
        while self.asked() < times {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Forgets a subscription, as after a change of the account.
    pub fn forget_subscription(&self, subscription: &str) {
        self.shared.books().forget_subscription(subscription);
    }

    /// Forgets a customer, as after a change of the account.
    pub fn forget_customer(&self, customer: &str) {
        self.shared.books().forget_customer(customer);
    }

    /// Waits until every event that was sent has been taken, or given up.
    pub async fn delivered(&self) {
        while self.shared.delivery.under_way() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for PaymentService {
    fn drop(&mut self) {
        self.shared.delivery.stop();
    }
}
