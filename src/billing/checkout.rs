//! The provider's pages: the checkout of a tier, and the portal in which a customer changes and ends a subscription.

use crate::{
    billing::{
        context::BillingContext,
        reconcile::{self, ReconcileError, UserStanding},
        sync::{self, EventOutcome},
    },
    clients::payments::{CheckoutRequest, CheckoutState, ClosedCheckout, OpenedCheckout, PaymentsError},
    config::BaseUrl,
    crypto::digest::sha256_hex,
    db::{
        engine::{error::DbError, pool::Db},
        money::{former_subscribers, payment_customers, payment_events::EventState, subscriptions},
        users::{self, User},
    },
    domain::{
        ids::UserId,
        money::{payment::ParkReason, plan::SoldPlan},
    },
};

/// Checkouts that other requests of a user may open meanwhile before a request is refused for now.
const ATTEMPTS: usize = 10;

/// Failure of opening a page.
#[derive(Debug, thiserror::Error)]
pub enum CheckoutError {
    /// There is a subscription, which the portal changes.
    #[error("the user has a subscription")]
    Subscribed,
    /// The user was never at the checkout, or the provider has forgotten them: there is nothing to manage.
    #[error("the user is no customer")]
    NoCustomer,
    /// The page that was opened with this key is closed.
    #[error("the checkout is closed")]
    Closed,
    /// The user was erased meanwhile.
    #[error("the user is gone")]
    Gone,
    #[error(transparent)]
    Provider(#[from] PaymentsError),
    #[error(transparent)]
    Database(#[from] DbError),
}

impl From<ReconcileError> for CheckoutError {
    fn from(error: ReconcileError) -> Self {
        match error {
            ReconcileError::Provider(error) => error.into(),
            ReconcileError::Database(error) => error.into(),
        }
    }
}

/// A request for the page that leads to a plan.
#[derive(Clone, Copy)]
pub struct PageRequest<'a> {
    pub user: &'a User,
    pub wanted: &'a SoldPlan,
    /// Where the provider sends the browser afterwards.
    pub frontend: &'a BaseUrl,
    /// Repetitions of a request share it.
    pub key: &'a str,
}

/// A page that was opened for a user who wants a plan.
#[derive(Clone, Debug)]
pub enum OpenedPage {
    Checkout(OpenedCheckout),
    /// Address of the page where a subscriber confirms the change to that plan.
    Change(String),
}

/// Opens the page that leads to a plan: a checkout, or for a subscriber to another plan the portal's page of that
/// change.
pub async fn open_page(context: &BillingContext, request: PageRequest<'_>) -> Result<OpenedPage, CheckoutError> {
    match open_checkout(context, request).await {
        Err(CheckoutError::Subscribed) => open_change(context, request).await.map(OpenedPage::Change),
        opened => opened.map(OpenedPage::Checkout),
    }
}

async fn open_change(context: &BillingContext, request: PageRequest<'_>) -> Result<String, CheckoutError> {
    let PageRequest { user, wanted, frontend, .. } = request;
    let id = user.id.clone();
    let stored = context.pool.read(move |db| subscriptions::list_for(db, &id)).await?;
    let mut running = stored.into_iter().filter(|stored| stored.status.is_running());
    let (Some(subscription), None) = (running.next(), running.next()) else { return Err(CheckoutError::Subscribed) };
    match context.client.open_change(&subscription.id, wanted, &frontend.at("/?billing=portal")).await {
        Ok(Some(url)) => Ok(url),
        Ok(None) => Err(CheckoutError::Subscribed),
        // Its portal is not set up for changes, or this one cannot be changed.
        Err(PaymentsError::Refused { status, code }) => {
            log::warn!(user:% = user.id; "the payment provider refused a change of plan: status {status}, {code}");
            Err(CheckoutError::Subscribed)
        }
        Err(error) => Err(error.into()),
    }
}

/// Opens a checkout, unless the provider knows of a subscription that goes on. Afterwards the provider sends the
/// browser to the front end, whose page then waits for the tier to appear in `/me`: coming back proves nothing.
///
/// Only the last checkout of a user can be paid: the one before is closed first. When the provider does not close it,
/// no other is opened, because both could be paid; it would hardly open one then. A repetition has the same `key`: the
/// provider then returns the checkout that a process had opened and not stored when it died.
pub async fn open_checkout(
    context: &BillingContext,
    request: PageRequest<'_>,
) -> Result<OpenedCheckout, CheckoutError> {
    let user = request.user;
    let id = user.id.clone();
    let read =
        move |db: &mut Db| Ok((payment_customers::of_user(db, &id)?, payment_customers::open_checkout(db, &id)?));
    let (customer, mut before) = context.pool.read(read).await?;
    if let Some(before) = &before {
        close(context, before).await?;
    }
    if !known_standing(context, &user.id).await?.running.is_empty() {
        return Err(CheckoutError::Subscribed);
    }
    let customer = match customer {
        Some(customer) => customer,
        None => become_customer(context, user, None).await?,
    };
    // Once it is stored, it is closed like any other, and the next one has another key.
    let key = format!("{}:{}", request.key, before.as_deref().unwrap_or_default());
    let mark = context.account_marks.of(&user.platform_id);
    let (id, of_account) = (user.id.clone(), mark.clone());
    let is_first = context.pool.read(move |db| never_subscribed(db, &id, &of_account)).await?;
    let opened = open(context, PageRequest { key: &key, ..request }, customer, is_first).await?;
    let first_of = is_first.then_some(mark);
    for attempt in 1..=ATTEMPTS {
        let (id, from, to, first_of) = (user.id.clone(), before.clone(), opened.id.clone(), first_of.clone());
        let replace = move |db: &mut Db| make_last(db, &id, from.as_deref(), &to, first_of.as_deref());
        match context.pool.write(replace).await? {
            Replaced::Done => return Ok(opened),
            // Another request of the user has opened one meanwhile, in whatever process.
            Replaced::Other(other) => before = other,
            Replaced::NotFirst => break,
            Replaced::Gone => {
                context.client.close_checkout(&opened.id).await?;
                return Err(CheckoutError::Gone);
            }
        }
        // The last attempt closes only its own checkout: the other's page is open then.
        if attempt < ATTEMPTS
            && let Some(other) = &before
        {
            close(context, other).await?;
        }
    }
    // This checkout is not the last, and its address was given to no one.
    context.client.close_checkout(&opened.id).await?;
    Err(DbError::Unavailable("checkouts of a user are opened all the time".to_owned()).into())
}

/// The outcome of making a checkout the last one of its user.
enum Replaced {
    Done,
    /// Another one is the last.
    Other(Option<String>),
    /// The user has subscribed since it was opened.
    NotFirst,
    /// The user has been erased.
    Gone,
}

/// Makes a checkout the last one of its user, in place of this one or of none. `first_of`: the mark of the account of which
/// it was opened as the first.
fn make_last(
    db: &mut Db,
    user: &UserId,
    from: Option<&str>,
    to: &str,
    first_of: Option<&str>,
) -> Result<Replaced, DbError> {
    // Another request's checkout, paid meanwhile, was the first: this one must not have a trial.
    if let Some(mark) = first_of
        && !never_subscribed(db, user, mark)?
    {
        return Ok(Replaced::NotFirst);
    }
    if payment_customers::replace_checkout(db, user, from, to)? {
        return Ok(Replaced::Done);
    }
    if users::find(db, user)?.is_none() {
        return Ok(Replaced::Gone);
    }
    Ok(Replaced::Other(payment_customers::open_checkout(db, user)?))
}

/// True when neither this user nor an erased one of the same account ever had a subscription.
fn never_subscribed(db: &mut Db, user: &UserId, mark: &str) -> Result<bool, DbError> {
    Ok(subscriptions::list_for(db, user)?.is_empty() && !former_subscribers::is_known(db, mark)?)
}

/// Closes a checkout. An error when it was paid and its subscription goes on: its event is still to come.
async fn close(context: &BillingContext, checkout: &str) -> Result<(), CheckoutError> {
    match context.client.close_checkout(checkout).await? {
        ClosedCheckout::Unpaid => Ok(()),
        ClosedCheckout::Paid(subscription) => refuse_running(context, subscription).await,
    }
}

/// An error when this subscription, of a checkout that was paid, goes on.
async fn refuse_running(context: &BillingContext, subscription: String) -> Result<(), CheckoutError> {
    let healed = sync::heal(context, &subscription).await?;
    if let EventOutcome::Taken(EventState::Parked(ParkReason::ProviderUnavailable | ParkReason::Contended)) = healed {
        return Err(DbError::Unavailable("a paid checkout's subscription is not known yet".to_owned()).into());
    }
    if healed == EventOutcome::Taken(EventState::Parked(ParkReason::UnknownSubscription)) {
        return Ok(());
    }
    let stored = context.pool.read(move |db| subscriptions::get(db, &subscription)).await?;
    match stored.is_some_and(|stored| stored.owned.subscription.status.is_running()) {
        true => Err(CheckoutError::Subscribed),
        false => Ok(()),
    }
}

/// `Ok` if a checkout that was opened before can still be paid; otherwise the reason.
pub async fn check_open(context: &BillingContext, checkout: &str) -> Result<(), CheckoutError> {
    match context.client.checkout(checkout).await? {
        CheckoutState::Open => return Ok(()),
        CheckoutState::Paid(subscription) => refuse_running(context, subscription).await?,
        CheckoutState::Closed => {}
    }
    Err(CheckoutError::Closed)
}

async fn open(
    context: &BillingContext,
    PageRequest { user, wanted, frontend, key }: PageRequest<'_>,
    mut customer: String,
    is_first: bool,
) -> Result<OpenedCheckout, CheckoutError> {
    // The provider puts the session's id in place of the braces, which therefore must stay as they are.
    let success_url = frontend.at("/?billing=done&session={CHECKOUT_SESSION_ID}");
    let cancel_url = frontend.at("/?billing=cancelled");
    let mut instead_of = None;
    loop {
        let (success_url, cancel_url) = (&success_url, &cancel_url);
        let idempotency_key = &sha256_hex(format!("checkout:{key}:{customer}").as_bytes());
        let request = CheckoutRequest {
            user: &user.id,
            customer: &customer,
            wanted,
            success_url,
            cancel_url,
            idempotency_key,
            is_first,
        };
        match context.client.open_checkout(&request).await {
            // Deleted there, or of another account or mode of the provider.
            Err(PaymentsError::Unknown { param: Some(param) }) if param == "customer" && instead_of.is_none() => {
                log::warn!(user:% = user.id; "the payment provider has forgotten a customer");
                let forgotten = instead_of.insert(customer);
                customer = become_customer(context, user, Some(forgotten.as_str())).await?;
            }
            answer => return Ok(answer?),
        }
    }
}

/// Closes the checkout of a user who is to be erased, for good, and stores the state of their subscriptions.
pub async fn prepare_erasure(
    context: &BillingContext,
    user: &UserId,
    checkout: Option<&str>,
) -> Result<UserStanding, CheckoutError> {
    if let Some(checkout) = checkout {
        match close(context, checkout).await {
            Ok(()) | Err(CheckoutError::Subscribed) => {}
            Err(error) => return Err(error),
        }
    }
    known_standing(context, user).await
}

/// The standing of a user's subscriptions; an error if that cannot be known, because the provider knows nothing of the
/// user.
async fn known_standing(context: &BillingContext, user: &UserId) -> Result<UserStanding, CheckoutError> {
    let standing = reconcile::reconcile_user(context, user).await?;
    match standing.is_foreign {
        true => Err(PaymentsError::Foreign.into()),
        false => Ok(standing),
    }
}

/// Opens the portal; the address of its page.
pub async fn open_portal(context: &BillingContext, user: &User, frontend: &BaseUrl) -> Result<String, CheckoutError> {
    let id = user.id.clone();
    let customer = context.pool.read(move |db| payment_customers::of_user(db, &id)).await?;
    let customer = customer.ok_or(CheckoutError::NoCustomer)?;
    match context.client.open_portal(&customer, &frontend.at("/?billing=portal")).await {
        // The next checkout makes another one.
        Err(PaymentsError::Unknown { param: Some(param) }) if param == "customer" => {
            log::warn!(user:% = user.id; "the payment provider has forgotten a customer");
            Err(CheckoutError::NoCustomer)
        }
        answer => Ok(answer?),
    }
}

/// Makes the user a customer, in place of one that the provider no longer knows. Returns the customer.
async fn become_customer(
    context: &BillingContext,
    user: &User,
    instead_of: Option<&str>,
) -> Result<String, CheckoutError> {
    let customer = context.client.create_customer(&user.id, &user.platform_id, &user.display_name, instead_of).await?;
    let (id, made, replaces) = (user.id.clone(), customer, instead_of.is_some());
    let put = move |db: &mut Db| match replaces {
        true => payment_customers::put(db, &id, &made).map(|()| made),
        // Another request may have been first.
        false => {
            payment_customers::put_first(db, &id, &made)?;
            Ok(payment_customers::of_user(db, &id)?.unwrap_or(made))
        }
    };
    Ok(context.pool.write(put).await?)
}
