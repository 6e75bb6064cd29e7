//! The pages that users see: the checkout, where one click pays, and the portal.

use std::{collections::HashMap, fmt::Write as _};

use actix_web::{
    HttpResponse,
    http::header::{CACHE_CONTROL, LOCATION},
    web::{self, ServiceConfig},
};
use serde_json::Value;

use super::{
    books::{PRICES, Portal, SimulatedPrice},
    change::SubscriptionChange,
    shared::SharedPayments,
};
use crate::{
    domain::time::{self, Timestamp},
    simulator::html::escaped,
};

const PAGE: &str = include_str!("page.html");

type PageFields = HashMap<String, String>;

pub fn routes(config: &mut ServiceConfig) {
    config
        .service(web::resource("/checkout/{id}").get(checkout).post(pay))
        .service(web::resource("/portal/{id}").get(portal).post(change));
}

fn page(title: &str, content: &str) -> HttpResponse {
    // Texts from outside are inserted last, so that nothing in them can be a placeholder of the template.
    let page = PAGE.replace("{title}", title).replace("{content}", content);
    HttpResponse::Ok().content_type("text/html; charset=utf-8").insert_header((CACHE_CONTROL, "no-store")).body(page)
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
        Some("expired") => return page("Closed", "<p>This checkout is closed.</p>"),
        _ => return page("Paid", "<p>This checkout is complete.</p>"),
    }
    let price = PRICES.iter().find(|price| session["simulated"]["price"] == price.id);
    let name = price.map_or("?", |price| price.name);
    let amount = price.map_or_else(String::new, SimulatedPrice::shown_amount);
    let back = session["cancel_url"]
        .as_str()
        .map_or_else(String::new, |back| format!("<p><a href=\"{}\">Back without paying</a></p>", escaped(back)));
    let form = format!("<form method=\"post\"><button>Pay {amount}</button></form>");
    page("Checkout", &format!("<p><b>{name}</b> {amount}</p>{form}{back}"))
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
    let mut content = String::new();
    for subscription in books.subscriptions(Some(customer), true) {
        match change {
            Some((changed, plan)) if subscription["id"] == changed.as_str() => content += &confirmed(changed, plan),
            Some(_) => {}
            None => content += &shown(subscription),
        }
    }
    if content.is_empty() {
        content = "<p>There is no subscription.</p>".to_owned();
    }
    // Writing into a String does not fail.
    let _ = write!(content, "<p><a href=\"{}\">Back</a></p>", escaped(return_url));
    page("Your subscription", &content)
}

/// The button that confirms a change.
fn confirmed(subscription: &str, plan: &str) -> String {
    let to = PRICES
        .iter()
        .find(|price| price.id == plan)
        .map_or_else(String::new, |price| format!("Change to {} ({})", price.name, price.shown_amount()));
    button(subscription, "plan", plan, &to)
}

fn button(subscription: &str, action: &str, plan: &str, label: &str) -> String {
    let hidden = [("subscription", subscription), ("action", action), ("plan", plan)]
        .map(|(name, value)| format!("<input type=\"hidden\" name=\"{name}\" value=\"{}\">", escaped(value)));
    format!("<form method=\"post\">{}<button>{label}</button></form>", hidden.concat())
}

/// A subscription with a button for everything that can be done to it.
fn shown(subscription: &Value) -> String {
    let (id, item) = (subscription["id"].as_str().unwrap_or_default(), &subscription["items"]["data"][0]);
    let (price, status) = (&item["price"]["id"], subscription["status"].as_str().unwrap_or_default());
    let name = PRICES.iter().find(|known| *price == known.id).map_or("an unknown plan", |known| known.name);
    let end = item["current_period_end"].as_i64().and_then(Timestamp::from_timestamp_secs).map(time::to_wire);
    let ends = if subscription["cancel_at"].is_null() { "renews" } else { "ends" };
    let mut text = format!("<p><b>{name}</b> {status}, {ends} {}</p>", end.unwrap_or_default());
    if status == "canceled" {
        return text;
    }
    let mut button = |action: &str, plan: &str, label: &str| text += &button(id, action, plan, label);
    for other in PRICES.iter().filter(|other| *price != other.id) {
        button("plan", other.id, &format!("Change to {} ({})", other.name, other.shown_amount()));
    }
    match subscription["cancel_at"].is_null() {
        true => button("cancel", "", "Cancel at the end of the period"),
        false => button("keep", "", "Do not cancel"),
    }
    match status {
        "past_due" => button("pay", "", "Pay what is open"),
        _ => button("fail", "", "Fail the next payment, now"),
    }
    button("end", "", "End now");
    text
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
