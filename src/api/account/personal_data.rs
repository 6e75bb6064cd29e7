//! The data stored about the signed-in user: `/me/export`, and its erasure, `DELETE /me`.

use actix::Addr;
use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{self, ContentDisposition, DispositionParam, DispositionType},
    web,
};
use bytes::Bytes;
use chrono::Duration;
use futures_util::{Stream, stream};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::{
        account::sign_in::clear_session_cookie,
        answer::error::ApiError,
        context::ApiContext,
        extract::{json::Json, route_facts, session_user::SessionUser},
        money::billing,
    },
    billing::{
        checkout::{self, CheckoutError},
        endings,
        reconcile::UserStanding,
    },
    db::{
        engine::{error::DbError, pool::Db},
        money::{customers_to_end::CustomerTurn, former_subscribers, payment_customers, subscriptions},
        notices::early_changes::EndedWay,
        personal_data::{self, Erased, PERSONAL_DATA, RowPlace},
        push_registrations, sessions,
        users::User,
    },
    domain::ids::{SessionId, UserId},
    push::worker::{CredentialChanged, ServersChanged},
    relay::hub::{AccessChanged, AcknowledgementsErased, Hub, NotesChanged, ServerRemoved, ToConnection, UserErased},
};

/// Most attempts of an erasure, repeated after a new checkout or while another transaction has what it locks.
const ATTEMPTS: usize = 10;

/// The greatest age of the sign-in with which a user erases themselves.
const FRESH_SIGN_IN: Duration = Duration::minutes(15);

/// Body of `DELETE /me`: the confirmation.
#[derive(Deserialize, ToSchema, Validate)]
pub struct ErasureRequest {
    /// The user's own platform id.
    #[garde(length(max = 64))]
    #[schema(max_length = 64, example = "76561198000000001")]
    confirm: String,
}

/// The erasure is done.
#[derive(Serialize, ToSchema)]
struct ErasureAnswer {
    ok: bool,
    payments: PaymentsEnd,
}

/// Subscriptions that run at the payment provider.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
enum PaymentsEnd {
    /// The user never was at the checkout.
    None,
    /// All have ended.
    Ended,
    /// The provider does not answer. Whatever runs is ended as soon as it does.
    Ending,
}

/// Everything that is stored about the user: an object of lists, one for each kind of row (`profile`, `sessions`,
/// `pairedServers`, `smartDevices`, `helperDevices`, `mapNotes`, `trackedPlayers`, `shopWatches`, `guests`, `guestOf`, `alarms`,
/// `incidents`, `acknowledgements`, `timeline`, `chatLines`, `subscriptions` and more), with the timeline and chat of the own
/// servers. A push credential is there with its state and never its content; other secrets are not in it either. It is
/// sent
/// while it is read: if something fails on the way, the body ends early and is no whole JSON.
#[utoipa::path(get, path = "/me/export", tag = "privacy", responses(
    (status = 200, body = Object, headers(("Content-Disposition" = String))),
))]
pub async fn export(
    req: HttpRequest,
    SessionUser { user, .. }: SessionUser,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    route_facts::take_limit(&req, &user.id)?;
    let file = DispositionParam::Filename(format!("companion-{}.json", user.platform_id));
    let disposition = ContentDisposition { disposition: DispositionType::Attachment, parameters: vec![file] };
    Ok(HttpResponse::Ok()
        .content_type("application/json")
        .insert_header(disposition)
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .streaming(chunks(context, user)))
}

/// The place that an export has reached.
#[derive(Clone)]
struct ExportPlace {
    list: usize,
    /// `None`: the list's first page.
    after: Option<RowPlace>,
}

/// The document in pieces: one page of a list each.
fn chunks(context: web::Data<ApiContext>, user: User) -> impl Stream<Item = Result<Bytes, DbError>> {
    let start = Some(ExportPlace { list: 0, after: None });
    stream::try_unfold(start, move |place| {
        let (context, user) = (context.clone(), user.clone());
        async move {
            let Some(ExportPlace { list, after }) = place else { return Ok(None) };
            let Some(rows) = PERSONAL_DATA.get(list) else { return Ok(Some((Bytes::from_static(b"]}\n"), None))) };
            let goes_on = after.is_some();
            let (page, next) = context.pool.read(move |db| rows.read(db, &user, after.as_ref())).await?;
            let mut text = match (list, goes_on) {
                (0, false) => {
                    format!("{{\"exportedAt\":\"{}\",\"{}\":[", context.clock.now().to_wire(), rows.name)
                }
                (_, false) => format!("],\"{}\":[", rows.name),
                (_, true) if page.is_empty() => String::new(),
                (_, true) => ",".to_owned(),
            };
            text += &page.join(",");
            let next = match next {
                Some(after) => ExportPlace { list, after: Some(after) },
                None => ExportPlace { list: list + 1, after: None },
            };
            Ok(Some((Bytes::from(text), Some(next))))
        }
    })
}

/// Erases the user: everything that is stored about them, at once and for good, with their paired servers and what
/// others had of these. Their sessions, sockets, game links and push session end. A subscription must have been
/// cancelled before. It ends at once then, also at the payment provider, so that nothing can renew it: the rest of its
/// period is lost. When the provider does not answer, `payments` is `ending`: its id of the customer is kept until it
/// has ended everything. These stay: the audit log of admins, which names accounts and what was changed of them; what
/// game servers say of players; and of a user who had a subscription a keyed hash of the account, so that there is one
/// trial for each. A user who signs in again is a new one.
#[utoipa::path(delete, path = "/me", tag = "privacy", request_body = ErasureRequest, responses(
    (status = 200, body = ErasureAnswer),
    (status = 400, description = "`invalid_request`: `confirm` is not the user's platform id"),
    (status = 401,
        description = "`unauthenticated`; `fresh_sign_in_required`: the sign-in was more than 15 minutes ago"),
    (status = 409, description = "`subscription_runs`: cancel it in the portal first"),
))]
pub async fn erase(
    caller: SessionUser,
    Json(ErasureRequest { confirm }): Json<ErasureRequest>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    if confirm != caller.user.platform_id.as_str() {
        return Err(ApiError::invalid("confirm", "must be your platform id"));
    }
    caller.signed_in_within(FRESH_SIGN_IN, context.clock.now())?;
    let SessionUser { user, session, .. } = caller;
    let id = user.id.clone();
    let registration = context.pool.read(move |db| push_registrations::get(db, &id)).await?;
    let mut attempt = 1;
    let customers = loop {
        let id = user.id.clone();
        let open = context.pool.read(move |db| payment_customers::open_checkout(db, &id)).await?;
        let standing = standing(&context, &user.id, open.as_deref()).await?;
        match erase_once(&context, &user, &session, open, standing).await {
            Ok(ErasureAttempt::Erased(erased)) => break erased.customers,
            Ok(ErasureAttempt::SignedOut) => return Err(ApiError::Unauthenticated),
            Ok(ErasureAttempt::SubscriptionRuns) => return Err(ApiError::SubscriptionRuns),
            Ok(ErasureAttempt::CheckoutOpened) if attempt < ATTEMPTS => {}
            Ok(ErasureAttempt::CheckoutOpened) => {
                return Err(DbError::Unavailable("checkouts of a user are opened all the time".to_owned()).into());
            }
            Err(error) if error.is_lost_lock() && attempt < ATTEMPTS => {}
            Err(error) => return Err(error.into()),
        }
        attempt += 1;
    };
    log::info!(user:% = user.id; "a user has erased themselves");
    // Otherwise the next sweep does it.
    if let Err(error) = context.pool.empty_log().await {
        log::warn!("the log of the database still has what was erased: {error}");
    }
    if let Some(registrar) = &context.services.registrar {
        registrar.cancel(&user.id);
    }
    if let (Some(registration), Some(registrar)) = (registration, &context.services.registrar)
        && let Some(device) = registrar.opened(&registration)
    {
        // Otherwise the game sends to a device that nothing reads, until the registration ends by itself.
        registrar.unregister(&device).await;
    }
    let payments = end_payments(&context, customers).await;
    let mut response = HttpResponse::Ok().json(ErasureAnswer { ok: true, payments });
    clear_session_cookie(&mut response, &context, &session);
    Ok(response)
}

/// Has the provider close the open checkout, stores the state of the subscriptions, and returns it. `None`: the
/// provider does not answer; then the stored state counts, and what runs is ended afterwards.
async fn standing(context: &ApiContext, user: &UserId, open: Option<&str>) -> Result<Option<UserStanding>, ApiError> {
    let Ok(billing) = billing::billing(context) else { return Ok(Some(UserStanding::default())) };
    match checkout::prepare_erasure(billing, user, open).await {
        Ok(standing) => Ok(Some(standing)),
        Err(CheckoutError::Provider(error)) => {
            log::warn!(user:%; "a user is erased, and the payment provider does not say what runs: {error}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Ends what runs for these customers; the worker does what cannot be done now.
async fn end_payments(context: &ApiContext, customers: Vec<CustomerTurn>) -> PaymentsEnd {
    if customers.is_empty() {
        return PaymentsEnd::None;
    }
    let Ok(billing) = billing::billing(context) else { return PaymentsEnd::Ending };
    let mut end = PaymentsEnd::Ended;
    for turn in customers {
        match endings::end_customer(billing, turn).await {
            Ok(true) => {}
            Ok(false) => end = PaymentsEnd::Ending,
            Err(error) => {
                log::warn!("it is not stored that nothing runs for a customer: {error}");
                end = PaymentsEnd::Ending;
            }
        }
    }
    end
}

/// Outcome of an attempt to erase a user.
enum ErasureAttempt {
    Erased(Erased),
    /// The session has ended since the request was let in.
    SignedOut,
    /// The first payment is due.
    SubscriptionRuns,
    /// A checkout other than the closed one is open.
    CheckoutOpened,
}

/// Erases the user, unless there is another checkout than `closed`, which could still be paid, or a subscription that
/// renews. A subscription that the provider does not know does not renew.
async fn erase_once(
    context: &ApiContext,
    user: &User,
    session: &SessionId,
    closed: Option<String>,
    standing: Option<UserStanding>,
) -> Result<ErasureAttempt, DbError> {
    let (now, mark) = (context.clock.now(), context.keys.account_marks.of(&user.platform_id));
    let (hub, push, id, user) =
        (context.services.hub.clone(), context.services.push.clone(), user.id.clone(), user.clone());
    let channels = context.services.channels.clone();
    let (session, notes, data_dir) =
        (session.clone(), context.health.erasure_notes.clone(), context.settings.data_dir.clone());
    let (begun, list) = (notes.clone(), data_dir.clone());
    let erase = move |db: &mut Db| {
        personal_data::begin_erasure(db, &user.id)?;
        if !sessions::lock(db, &session)? {
            return Ok(ErasureAttempt::SignedOut);
        }
        if payment_customers::lock_checkout(db, &user.id)? != closed {
            return Ok(ErasureAttempt::CheckoutOpened);
        }
        let known = subscriptions::list_for(db, &user.id)?;
        let is_unknown = |id: &String| standing.as_ref().is_some_and(|standing| standing.unknown.contains(id));
        if known.iter().any(|known| known.is_to_renew() && !is_unknown(&known.id)) {
            return Ok(ErasureAttempt::SubscriptionRuns);
        }
        // While the provider does not answer, the last checkout may have been paid.
        if !known.is_empty() || standing.is_none() && closed.is_some() {
            former_subscribers::put(db, &mark)?;
        }
        let erased = personal_data::erase(db, &user, now)?;
        begun.begin(&list, &user.id, now);
        Ok(ErasureAttempt::Erased(erased))
    };
    let notify = move |attempt: &ErasureAttempt| {
        let ErasureAttempt::Erased(erased) = attempt else { return };
        // On the database's thread, which cannot be stopped: a client that leaves must not keep the user off the list.
        notes.end(&data_dir, &id, now);
        channels.orphaned.add(erased.emergencies.iter().cloned());
        channels.early_alarms.changes.end(EndedWay::User(id.clone()));
        announce(&hub, &id, erased);
        push.do_send(CredentialChanged { user: id.clone() });
        push.do_send(ServersChanged { user: id });
    };
    context.pool.write_and_notify(erase, notify).await
}

/// Sends the hub what the erasure of this user has changed.
fn announce(hub: &Addr<Hub>, user: &UserId, erased: &Erased) {
    let Erased { servers, shared, acknowledged, notes, .. } = erased;
    hub.do_send(UserErased { user: user.clone() });
    for server in servers {
        hub.do_send(ServerRemoved { server: server.clone() });
    }
    for (server, note) in notes {
        let message = NotesChanged { deleted: Some(note.clone()) };
        hub.do_send(ToConnection { server: server.clone(), message });
    }
    for server in shared {
        hub.do_send(AccessChanged { server: server.clone() });
    }
    for server in acknowledged {
        let message = AcknowledgementsErased { user: user.clone() };
        hub.do_send(ToConnection { server: server.clone(), message });
    }
}
