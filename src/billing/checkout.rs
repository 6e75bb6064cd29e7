//! The provider's pages: the checkout of a tier, and the portal in which a customer changes and ends a subscription.

use crate::{
    billing::{
        context::BillingContext,
        sync::{self, EventOutcome},
    },
    clients::payments::{CheckoutRequest, ClosedCheckout, OpenedCheckout, PaymentsError},
    config::BaseUrl,
    crypto::digest::sha256_hex,
    db::{
        error::DbError,
        payment_customers,
        payment_events::EventState,
        pool::Db,
        subscriptions,
        users::{self, User},
    },
    domain::{ids::UserId, payment::ParkReason, tier::Tier},
};

/// How often other requests of a user may open a checkout before one is told to come again.
const ATTEMPTS: usize = 10;

/// Why no page was opened.
#[derive(Debug, thiserror::Error)]
pub enum CheckoutError {
    /// There is a subscription, which the portal changes.
    #[error("the user has a subscription")]
    Subscribed,
    /// The user was never at the checkout, or the provider has forgotten them: there is nothing to manage.
    #[error("the user is no customer")]
    NoCustomer,
    /// The user was erased meanwhile.
    #[error("the user is gone")]
    Gone,
    #[error(transparent)]
    Provider(#[from] PaymentsError),
    #[error(transparent)]
    Database(#[from] DbError),
}

/// Opens a checkout; the address of its page. Afterwards the provider sends the browser to the front end, whose page then
/// waits for the tier to appear in `/me`: coming back proves nothing.
///
/// Of a user's checkouts only the last can be paid: the one before is closed first. When the provider does not close it,
/// no other is opened, because both could be paid; it would hardly open one then. `key` is the same for a repetition:
/// what a process that died had opened, and not stored, is opened again by the provider's own means.
pub async fn open_checkout(
    context: &BillingContext,
    user: &User,
    tier: Tier,
    frontend: &BaseUrl,
    key: &str,
) -> Result<String, CheckoutError> {
    let id = user.id.clone();
    let read = move |db: &mut Db| {
        Ok((is_subscribed(db, &id)?, payment_customers::of_user(db, &id)?, payment_customers::open_checkout(db, &id)?))
    };
    let (is_subscribed, customer, mut before) = context.pool.read(read).await?;
    if is_subscribed {
        return Err(CheckoutError::Subscribed);
    }
    if let Some(before) = &before {
        close(context, &user.id, before).await?;
    }
    let customer = match customer {
        Some(customer) => customer,
        None => become_customer(context, user, None).await?,
    };
    // Once it is stored, it is closed like any other, and the next one has another key.
    let key = format!("{key}:{}", before.as_deref().unwrap_or_default());
    let opened = open(context, user, customer, tier, frontend, &key).await?;
    for attempt in 1..=ATTEMPTS {
        let (id, from, to) = (user.id.clone(), before.clone(), opened.id.clone());
        let replace = move |db: &mut Db| {
            if payment_customers::replace_checkout(db, &id, from.as_deref(), &to)? {
                return Ok(Ok(()));
            }
            let is_gone = users::find(db, &id)?.is_none();
            Ok(Err((is_gone, payment_customers::open_checkout(db, &id)?)))
        };
        match context.pool.write(replace).await? {
            Ok(()) => return Ok(opened.url),
            // Another request of the user has opened one meanwhile, in whatever process.
            Err((false, other)) => before = other,
            Err((true, _)) => {
                context.client.close_checkout(&opened.id).await?;
                return Err(CheckoutError::Gone);
            }
        }
        // The last one closes only its own: the other's page is open then.
        if attempt < ATTEMPTS
            && let Some(other) = &before
        {
            close(context, &user.id, other).await?;
        }
    }
    // It is not the last, and nobody has its address.
    context.client.close_checkout(&opened.id).await?;
    Err(DbError::Unavailable("checkouts of a user are opened all the time".to_owned()).into())
}

fn is_subscribed(db: &mut Db, user: &UserId) -> Result<bool, DbError> {
    Ok(subscriptions::list_for(db, user)?.iter().any(|known| known.status.is_running()))
}

/// Closes a checkout of the user. An error when it was paid and its subscription goes on: its event is still to come.
async fn close(context: &BillingContext, user: &UserId, checkout: &str) -> Result<(), CheckoutError> {
    if let ClosedCheckout::Paid(subscription) = context.client.close_checkout(checkout).await? {
        let healed = sync::heal(context, &subscription).await?;
        if let EventOutcome::Taken(EventState::Parked(ParkReason::ProviderUnavailable | ParkReason::Contended)) = healed
        {
            return Err(DbError::Unavailable("a paid checkout's subscription is not known yet".to_owned()).into());
        }
        let user = user.clone();
        if context.pool.read(move |db| is_subscribed(db, &user)).await? {
            return Err(CheckoutError::Subscribed);
        }
    }
    Ok(())
}

async fn open(
    context: &BillingContext,
    user: &User,
    mut customer: String,
    tier: Tier,
    frontend: &BaseUrl,
    key: &str,
) -> Result<OpenedCheckout, CheckoutError> {
    // The provider puts the session's id in place of the braces, which therefore must stay as they are.
    let success_url = frontend.at("/?billing=done&session={CHECKOUT_SESSION_ID}");
    let cancel_url = frontend.at("/?billing=cancelled");
    let mut instead_of = None;
    loop {
        let (success_url, cancel_url) = (&success_url, &cancel_url);
        let idempotency_key = &sha256_hex(format!("checkout:{key}:{customer}").as_bytes());
        let request =
            CheckoutRequest { user: &user.id, customer: &customer, tier, success_url, cancel_url, idempotency_key };
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

/// Closes a checkout of this user: nobody can pay there any more. The subscription of one that was paid is stored then.
pub async fn close_for_good(context: &BillingContext, user: &UserId, checkout: &str) -> Result<(), CheckoutError> {
    match close(context, user, checkout).await {
        Err(CheckoutError::Subscribed) => Ok(()),
        closed => closed,
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

/// Makes the user a customer, in place of one that the provider does not know any more. The customer.
async fn become_customer(
    context: &BillingContext,
    user: &User,
    instead_of: Option<&str>,
) -> Result<String, CheckoutError> {
    let customer = context.client.create_customer(&user.id, &user.platform_id, instead_of).await?;
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
