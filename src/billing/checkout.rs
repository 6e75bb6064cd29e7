//! The provider's pages: the checkout of a tier, and the portal in which a customer changes and ends a subscription.

use crate::{
    billing::context::BillingContext,
    clients::payments::{CheckoutRequest, PaymentsError},
    config::BaseUrl,
    db::{error::DbError, payment_customers, pool::Db, subscriptions, users::User},
    domain::tier::Tier,
};

/// Why no page was opened.
#[derive(Debug, thiserror::Error)]
pub enum CheckoutError {
    /// There is a subscription, which the portal changes.
    #[error("the user has a subscription")]
    Subscribed,
    /// The user was never at the checkout: there is nothing to manage.
    #[error("the user is no customer")]
    NoCustomer,
    #[error(transparent)]
    Provider(#[from] PaymentsError),
    #[error(transparent)]
    Database(#[from] DbError),
}

/// Opens a checkout; the address of its page. Afterwards the provider sends the browser to the front end, whose page then
/// waits for the tier to appear in `/me`: coming back proves nothing.
pub async fn open_checkout(
    context: &BillingContext,
    user: &User,
    tier: Tier,
    frontend: &BaseUrl,
) -> Result<String, CheckoutError> {
    let id = user.id.clone();
    let read = move |db: &mut Db| {
        let running = subscriptions::list_for(db, &id)?.iter().any(|known| known.status.is_running());
        Ok((running, payment_customers::of_user(db, &id)?))
    };
    let (is_subscribed, customer) = context.pool.read(read).await?;
    if is_subscribed {
        return Err(CheckoutError::Subscribed);
    }
    // The provider puts the session's id in place of the braces, which therefore must stay as they are.
    let success_url = frontend.at("/?billing=done&session={CHECKOUT_SESSION_ID}");
    let cancel_url = frontend.at("/?billing=cancelled");
    let mut instead_of = None;
    let mut customer = match customer {
        Some(customer) => customer,
        None => become_customer(context, user, None).await?,
    };
    loop {
        let (success_url, cancel_url) = (&success_url, &cancel_url);
        let request = CheckoutRequest { user: &user.id, customer: &customer, tier, success_url, cancel_url };
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

/// Opens the portal; the address of its page.
pub async fn open_portal(context: &BillingContext, user: &User, frontend: &BaseUrl) -> Result<String, CheckoutError> {
    let id = user.id.clone();
    let customer = context.pool.read(move |db| payment_customers::of_user(db, &id)).await?;
    let customer = customer.ok_or(CheckoutError::NoCustomer)?;
    Ok(context.client.open_portal(&customer, &frontend.at("/?billing=portal")).await?)
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
