//! The pages that users see: the checkout, where one click pays, and the portal.

use std::collections::HashMap;

use actix_web::{
    HttpResponse,
    http::header::{CACHE_CONTROL, LOCATION},
    web::{self, ServiceConfig},
};
use maud::{Markup, html};
use serde_json::Value;

use super::{
    books::{PRICES, Portal, SimulatedPrice},
    change::SubscriptionChange,
    shared::SharedPayments,
};
use crate::{domain::time::Timestamp, simulator::page};

const STYLE: &str = "
    body { font: 16px/1.5 system-ui, sans-serif; max-width: 28rem; margin: 4rem auto; padding: 0 1rem; }
    button { font: inherit; width: 100%; padding: .6rem; margin: .25rem 0; cursor: pointer; }
    small { color: #666; }
";

type PageFields = HashMap<String, String>;

/// Routes of the pages on which customers pay and change.
pub fn routes(config: &mut ServiceConfig) {
    config
        .service(web::resource("/checkout/{id}").get(checkout).post(pay))
        .service(web::resource("/portal/{id}").get(portal).post(change));
}

fn page(title: &str, content: &Markup) -> HttpResponse {
    let body = html! {
        h1 { (title) }
        (content)
        p { small { "A simulated payment provider: nothing costs anything." } }
    };
    page::page(title, STYLE, &body)
}

fn unknown() -> HttpResponse {
    HttpResponse::NotFound().content_type("text/plain; charset=utf-8").body("there is no such page\n")
}

fn to(url: &str) -> HttpResponse {
    HttpResponse::SeeOther().insert_header((LOCATION, url)).insert_header((CACHE_CONTROL, "no-store")).finish()
}

async fn checkout(shared: web::Data<SharedPayments>, id: web::Path<String>) -> HttpResponse {
    let Some(session) = shared.books().session(&id).cloned() else { return unknown() };
    match session["status"].as_str() {
        Some("open") => {}
        Some("expired") => return page("Closed", &html! { p { "This checkout is closed." } }),
        _ => return page("Paid", &html! { p { "This checkout is complete." } }),
    }
    let price = PRICES.iter().find(|price| session["simulated"]["price"] == price.id);
    let name = price.map_or("?", |price| price.name);
    let amount = price.map_or_else(String::new, SimulatedPrice::shown_amount);
    let content = html! {
        p { b { (name) } " " (amount) }
        form method="post" { button { "Pay " (amount) } }
        @if let Some(back) = session["cancel_url"].as_str() {
            p { a href=(back) { "Back without paying" } }
        }
    };
    page("Checkout", &content)
}

async fn pay(shared: web::Data<SharedPayments>, id: web::Path<String>) -> HttpResponse {
    let Some(session) = shared.books().session(&id).cloned() else { return unknown() };
    shared.step(|books, now| books.pay(&id, now));
    let success_url = session["success_url"].as_str().unwrap_or_default();
    to(&success_url.replace("{CHECKOUT_SESSION_ID}", &id))
}

async fn portal(shared: web::Data<SharedPayments>, id: web::Path<String>) -> HttpResponse {
    let books = shared.books();
    let Some(Portal { customer, return_url, change }) = books.portal(&id) else { return unknown() };
    let subscriptions = books.subscriptions(Some(customer), true).into_iter().filter_map(|subscription| match change {
        Some((changed, plan)) => (subscription["id"] == changed.as_str()).then(|| confirmed(changed, plan)),
        None => Some(shown(subscription)),
    });
    let subscriptions: Vec<Markup> = subscriptions.collect();
    let content = html! {
        @if subscriptions.is_empty() {
            p { "There is no subscription." }
        }
        @for subscription in &subscriptions { (subscription) }
        p { a href=(return_url) { "Back" } }
    };
    page("Your subscription", &content)
}

/// The button that confirms a change.
fn confirmed(subscription: &str, plan: &str) -> Markup {
    let to = PRICES
        .iter()
        .find(|price| price.id == plan)
        .map_or_else(String::new, |price| format!("Change to {} ({})", price.name, price.shown_amount()));
    button(subscription, "plan", plan, &to)
}

fn button(subscription: &str, action: &str, plan: &str, label: &str) -> Markup {
    html! {
        form method="post" {
            @for (name, value) in [("subscription", subscription), ("action", action), ("plan", plan)] {
                input type="hidden" name=(name) value=(value);
            }
            button { (label) }
        }
    }
}

/// A subscription with a button for everything that can be done to it.
fn shown(subscription: &Value) -> Markup {
    let (id, item) = (subscription["id"].as_str().unwrap_or_default(), &subscription["items"]["data"][0]);
    let (price, status) = (&item["price"]["id"], subscription["status"].as_str().unwrap_or_default());
    let name = PRICES.iter().find(|known| *price == known.id).map_or("an unknown plan", |known| known.name);
    let end =
        item["current_period_end"].as_i64().and_then(|at| Timestamp::from_timestamp(at, 0)).map(Timestamp::to_wire);
    let is_renewed = subscription["cancel_at"].is_null();
    let ends = if is_renewed { "renews" } else { "ends" };
    html! {
        p { b { (name) } " " (status) ", " (ends) " " (end.unwrap_or_default()) }
        @if status != "canceled" {
            @for other in PRICES.iter().filter(|other| *price != other.id) {
                (button(id, "plan", other.id, &format!("Change to {} ({})", other.name, other.shown_amount())))
            }
            @if is_renewed {
                (button(id, "cancel", "", "Cancel at the end of the period"))
            } @else {
                (button(id, "keep", "", "Do not cancel"))
            }
            @if status == "past_due" {
                (button(id, "pay", "", "Pay what is open"))
            } @else {
                (button(id, "fail", "", "Fail the next payment, now"))
            }
            (button(id, "end", "", "End now"))
        }
    }
}

async fn change(
    shared: web::Data<SharedPayments>,
    id: web::Path<String>,
    fields: web::Form<PageFields>,
) -> HttpResponse {
    let field = |name: &str| fields.get(name).map_or("", String::as_str);
    let change = match field("action") {
        "plan" => SubscriptionChange::Plan(field("plan").to_owned()),
        "cancel" => SubscriptionChange::Cancel,
        "keep" => SubscriptionChange::Keep,
        "fail" => SubscriptionChange::FailPayment,
        "pay" => SubscriptionChange::PayAgain,
        "end" => SubscriptionChange::End,
        _ => return unknown(),
    };
    let is_theirs = {
        let books = shared.books();
        let customer = books.portal(&id).map(|portal| portal.customer.as_str());
        let subscription = books.subscription(field("subscription"));
        customer.zip(subscription).is_some_and(|(customer, subscription)| subscription["customer"] == customer)
    };
    if !is_theirs {
        return unknown();
    }
    shared.step(|books, now| books.change(field("subscription"), &change, now));
    to(&format!("/portal/{id}"))
}
