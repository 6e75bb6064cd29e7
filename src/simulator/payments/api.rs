//! The API: what the service calls.

use std::time::Duration;

use actix_web::{
    HttpRequest, HttpResponse,
    http::{Method, StatusCode, header},
    web::{self, ServiceConfig},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use url::form_urlencoded;

use super::{
    books::{self, ApiRefusal, Books, Parameters},
    change::SubscriptionChange,
    setup::{PAYMENT_KEY, PaymentFaults},
    shared::SharedPayments,
};

/// Fields of each request; others are refused, as the real one does. Those in brackets belong to the name before.
const KNOWN: [(&str, &[&str]); 4] = [
    ("/v1/customers", &["name", "metadata", "email"]),
    (
        "/v1/checkout/sessions",
        &[
            "mode",
            "line_items",
            "customer",
            "client_reference_id",
            "metadata",
            "subscription_data",
            "success_url",
            "cancel_url",
            "automatic_tax",
            "billing_address_collection",
            "tax_id_collection",
            "customer_update",
            "allow_promotion_codes",
        ],
    ),
    ("/v1/billing_portal/sessions", &["customer", "return_url", "flow_data"]),
    ("/v1/refunds", &["charge", "payment_intent", "amount", "reason", "metadata"]),
];
const LONGEST_LIST: usize = 100;

type ApiAnswer = Result<Value, ApiRefusal>;

/// Routes of the API, and `POST /faults`.
pub fn routes(config: &mut ServiceConfig) {
    config.service(web::resource("/v1/{path:.*}").to(answer)).service(web::resource("/faults").post(set_faults));
}

async fn set_faults(shared: web::Data<SharedPayments>, faults: web::Json<PaymentFaults>) -> HttpResponse {
    *shared.faults() = faults.into_inner();
    HttpResponse::Ok().json(json!({ "ok": true }))
}

async fn answer(shared: web::Data<SharedPayments>, request: HttpRequest, body: String) -> HttpResponse {
    shared.books().asked += 1;
    let asked = Instant::now();
    while asked.elapsed() < Duration::from_millis(shared.faults().answer_delay) {
        sleep(Duration::from_millis(10)).await;
    }
    let faults = shared.faults().clone();
    if let Some(status) = faults.status {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        return HttpResponse::build(status).json(json!({ "error": { "type": "api_error", "message": "simulated" } }));
    }
    let sent = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if sent != Some(&format!("Bearer {PAYMENT_KEY}")) {
        return shown(Err(ApiRefusal { status: 401, code: "invalid_api_key", param: None }));
    }
    let text = if request.method() == Method::GET { request.query_string() } else { &body };
    let parameters: Parameters = form_urlencoded::parse(text.as_bytes()).into_owned().collect();
    match *request.method() {
        // A key of another account knows nothing of this one.
        Method::GET if faults.other_account && parameters.contains_key("customer") => {
            shown(Err(ApiRefusal::of("resource_missing", "customer")))
        }
        Method::GET if faults.other_account => shown(read(&Books::default(), request.path(), &parameters)),
        _ if faults.other_account => shown(Err(ApiRefusal::unknown())),
        Method::GET => shown(read(&shared.books(), request.path(), &parameters)),
        Method::DELETE => shown(end(&shared, request.path())),
        Method::POST => {
            let answer = change(&shared, &request, &body, &parameters);
            let is_refund = request.path() == "/v1/refunds";
            let made = Instant::now();
            while is_refund && made.elapsed() < Duration::from_millis(shared.faults().refund_delay) {
                sleep(Duration::from_millis(10)).await;
            }
            match faults.refund_answer.map(StatusCode::from_u16) {
                Some(Ok(status)) if is_refund => HttpResponse::build(status).body("<h1>Blocked</h1>"),
                _ if faults.lose_refunds && is_refund => HttpResponse::InternalServerError().finish(),
                _ => answer,
            }
        }
        _ => shown(Err(ApiRefusal::unknown())),
    }
}

/// Does something once for an idempotency key.
fn change(shared: &SharedPayments, request: &HttpRequest, body: &str, parameters: &Parameters) -> HttpResponse {
    let path = request.path();
    let key = request.headers().get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
    let (asked, now) = (format!("{path} {body}"), shared.clock.now().timestamp());
    if let Some(kept) = key.as_deref().and_then(|key| shared.books().kept(key, &asked, now)) {
        return match kept {
            Ok((status, body)) => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
                HttpResponse::build(status).insert_header(("Idempotent-Replayed", "true")).json(body)
            }
            Err(refusal) => shown(Err(refusal)),
        };
    }
    let known = KNOWN.iter().find(|(known, _)| *known == path).map(|(_, fields)| *fields);
    let is_known = |field: &String| {
        let name = field.split('[').next().unwrap_or_default();
        known.is_none_or(|known| known.contains(&name))
    };
    if !parameters.keys().all(is_known) {
        return shown(Err(ApiRefusal { status: 400, code: "parameter_unknown", param: None }));
    }
    let base = format!("http://{}", shared.addr);
    let done = shared.step(|books, now| match path {
        "/v1/customers" => Ok(books.create_customer(parameters, now)),
        "/v1/checkout/sessions" => books.open_checkout(parameters, &base, now),
        "/v1/billing_portal/sessions" => books.open_portal(parameters, &base, now),
        "/v1/refunds" => books.refund(parameters, now),
        _ => {
            let expired = path.strip_prefix("/v1/checkout/sessions/").and_then(|rest| rest.strip_suffix("/expire"));
            expired.map_or(Err(ApiRefusal::unknown()), |session| books.expire(session, now))
        }
    });
    if let (Some(key), Ok(body)) = (key, &done) {
        shared.books().keep(key, asked, 200, body.clone(), now);
    }
    shown(done)
}

/// Ends a subscription.
fn end(shared: &SharedPayments, path: &str) -> ApiAnswer {
    let id = path.strip_prefix("/v1/subscriptions/").ok_or(ApiRefusal::unknown())?;
    shared.step(|books, now| {
        books.subscription(id).filter(|known| known["status"] != "canceled").ok_or(ApiRefusal::unknown())?;
        books.change(id, &SubscriptionChange::End, now);
        books.subscription(id).cloned().ok_or(ApiRefusal::unknown())
    })
}

fn read(books: &Books, path: &str, parameters: &Parameters) -> ApiAnswer {
    let customer = parameters.get("customer").map(String::as_str);
    let list = |all: Vec<&Value>| listed(path, &all, parameters);
    match path {
        "/v1/subscriptions" => {
            list(books.subscriptions(customer, parameters.get("status").is_some_and(|status| status == "all")))
        }
        "/v1/checkout/sessions" => {
            list(books.sessions(customer, parameters.get("status").map(String::as_str)).iter().collect())
        }
        "/v1/charges" => list(books.charges(customer, parameters.get("payment_intent").map(String::as_str))),
        "/v1/invoices" => list(books.paid_invoices(parameters.get("subscription").map(String::as_str))),
        "/v1/refunds" => {
            let [charge, payment] = ["charge", "payment_intent"].map(|of| parameters.get(of).map(String::as_str));
            let refunds = books.refunds(charge, payment);
            let expands = parameters.get("expand[0]").is_some_and(|field| field == "data.charge");
            let expanded: Vec<Value> = refunds.into_iter().map(|refund| books.shown_refund(refund, expands)).collect();
            list(expanded.iter().collect())
        }
        _ => {
            let one = path.strip_prefix("/v1/").and_then(|path| path.split_once('/'));
            let found = one.and_then(|(kind, id)| match kind {
                "subscriptions" => books.subscription(id).cloned(),
                "charges" => books.charge(id).cloned(),
                "prices" => books::price(id).map(books::shown_price),
                "checkout" => id.strip_prefix("sessions/").and_then(|id| books.shown_session(id)),
                _ => None,
            });
            found.ok_or(ApiRefusal::unknown())
        }
    }
}

fn listed(path: &str, all: &[&Value], parameters: &Parameters) -> ApiAnswer {
    let limit = parameters.get("limit").map_or(Ok(10), |limit| limit.parse());
    let limit = limit.ok().filter(|limit| (1..=LONGEST_LIST).contains(limit));
    let limit = limit.ok_or(ApiRefusal::of("parameter_invalid_integer", "limit"))?;
    let start = match parameters.get("starting_after") {
        Some(after) => {
            let place = all.iter().position(|one| one["id"] == after.as_str());
            place.ok_or(ApiRefusal::of("resource_missing", "starting_after"))? + 1
        }
        None => 0,
    };
    let rest = &all[start..];
    let data = &rest[..rest.len().min(limit)];
    Ok(json!({ "object": "list", "url": path, "has_more": rest.len() > limit, "data": data }))
}

fn shown(answered: ApiAnswer) -> HttpResponse {
    match answered {
        Ok(body) => HttpResponse::Ok().json(body),
        Err(ApiRefusal { status, code, param }) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
            let kind = if code == "idempotency_error" { code } else { "invalid_request_error" };
            let message = format!("Refused: {code}");
            let code = Some(code).filter(|code| !code.is_empty());
            HttpResponse::build(status)
                .json(json!({ "error": { "type": kind, "code": code, "param": param, "message": message } }))
        }
    }
}
