//! Registrations for the game's pushes that the service makes itself: `/credentials/push/registrations`. The user signs
//! in at the game's site, in their own browser, and brings back the address at which that ends.

use std::time::Duration;

use actix_web::{
    HttpRequest, HttpResponse,
    http::{StatusCode, header::CACHE_CONTROL},
    rt, web,
};
use garde::Validate;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::{
    api::{
        answer::{error::ApiError, registration_problem::RegistrationProblem},
        context::ApiContext,
        extract::{
            bearer::DeviceOwner,
            idempotent::{Idempotent, KeyCaller, ReplayableAnswer},
            json::Json,
            route_facts,
            session_user::SessionUser,
        },
    },
    config::Registration,
    db::{
        engine::pool::Db,
        push_registrations::{self, PushRegistration, StoredProgress},
    },
    domain::{
        ids::UserId,
        registration::{PAIR_NOW, RegistrationStep, StepFault},
        time::Timestamp,
    },
    push::{
        registrar::{AddressRefusal, OpenedLogin, Registrar},
        registration_rows::open_login,
        session_status::PushState,
    },
};

/// Time for which an answer waits for the steps; they go on without it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(3);

/// A registration to be begun.
#[derive(Deserialize, ToSchema, Validate)]
#[schema(example = json!({ "renew": true }))]
pub struct CreateRegistration {
    /// True: the service keeps the account's token at the game, sealed, and renews the registration before it ends, so
    /// that this is done once. The token reads the account's history at the game's companion service, and registers and
    /// removes devices there; it is no login of the platform. Without it the user does this again every 14 days.
    #[serde(default)]
    #[garde(skip)]
    renew: bool,
}

/// The end of a login.
#[derive(Deserialize, ToSchema, Validate)]
#[schema(example = json!({ "address": "http://localhost:34733/callback/…?steamId=76561198000000001&token=…" }))]
pub struct PastedAddress {
    /// The address at which the browser ended, or only the token in it.
    #[garde(length(chars, min = 1, max = 4096))]
    #[schema(min_length = 1, max_length = 4096)]
    address: String,
}

/// A registration that was begun.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct OpenedRegistration {
    id: String,
    /// Page at which the user signs in. The browser ends at an address of its own machine that shows no page.
    #[schema(format = "uri")]
    login_url: String,
    /// The address has to be brought before.
    expires_at: Timestamp,
}

/// A registration, and how far it has come.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RegistrationView {
    id: String,
    /// The service renews it.
    renew: bool,
    /// The address has to be brought before.
    expires_at: Timestamp,
    #[schema(max_items = 7)]
    steps: Vec<StepView>,
    /// A sentence for the user: the next thing to do, or the service's.
    next: &'static str,
    /// End of the registration at the game; null while it is being made.
    ends_at: Option<Timestamp>,
    /// When the service goes on by itself: with a renewal, or after a failure that may pass.
    continues_at: Option<Timestamp>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct StepView {
    /// `sign_in`, `google_check_in`, `google_installation`, `google_push_address`, `expo_token`, `game_registration`,
    /// `credential`, in this order.
    name: &'static str,
    state: StepState,
    /// Code of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    /// A sentence about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'static str>,
    /// Advice to the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'static str>,
    /// A word or status with which the other side answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum StepState {
    Pending,
    /// The user has to do it.
    Waiting,
    Running,
    Done,
    Failed,
}

impl RegistrationView {
    fn new(row: PushRegistration, session: Option<PushState>) -> Self {
        let PushRegistration { id, renew, closes_at, progress, ends_at, due_at, .. } = row;
        let StoredProgress { step, fault, answer, .. } = progress;
        let reached = step.as_deref().and_then(RegistrationStep::parse);
        let fault = fault.as_deref().map(StepFault::of);
        let view = |step: RegistrationStep| {
            let state = match reached {
                None => StepState::Done,
                Some(reached) if step < reached => StepState::Done,
                Some(reached) if step > reached => StepState::Pending,
                Some(_) if fault.is_some() => StepState::Failed,
                Some(RegistrationStep::SignIn) => StepState::Waiting,
                Some(_) => StepState::Running,
            };
            let failure = fault.filter(|_| state == StepState::Failed);
            StepView {
                name: step.word(),
                state,
                code: failure.map(StepFault::code),
                detail: failure.map(StepFault::sentence),
                advice: failure.map(StepFault::advice),
                answer: answer.clone().filter(|_| failure.is_some()),
            }
        };
        let next = match (reached, fault) {
            (_, Some(_)) if due_at.is_some() => "The service tries this step again by itself.",
            (_, Some(fault)) => fault.advice(),
            (Some(RegistrationStep::SignIn), None) => {
                "Open the login's address, sign in, and paste the address at which the browser ends. That it shows no page \
                 there is right. If the platform shows an error instead, the account may be banned from its community: then \
                 this way is closed to it."
            }
            (Some(_), None) => "The service makes the next steps. This takes some seconds, at times minutes.",
            (None, None) if session == Some(PushState::Connected) => PAIR_NOW,
            (None, None) => {
                "The service logs in to receive your pushes. Wait with the pairing in the game until it has."
            }
        };
        let steps = RegistrationStep::ALL.map(view).into();
        Self { id, renew, expires_at: closes_at, steps, next, ends_at, continues_at: due_at }
    }
}

/// The game's app, as Google and Expo know it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct GameAppView<'a> {
    /// The app's API key at Google, which is in every copy of the app.
    api_key: &'a str,
    /// Firebase project.
    project: &'a str,
    sender_id: &'a str,
    /// Firebase id of the app.
    app_id: &'a str,
    /// Android package.
    package: &'a str,
    /// SHA-1 of the app's certificate, 40 hex digits.
    certificate: &'a str,
    expo_project: &'a str,
}

/// Gives a helper device what it needs to register at Google and Expo as the game's app, as the operator has set it. The
/// addresses at which it registers are its own.
#[utoipa::path(get, path = "/credentials/push/app", tag = "push credential", responses(
    (status = 200, body = GameAppView),
    (status = 503, description = "`registration_disabled`"),
))]
pub async fn get_app(_: DeviceOwner, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let Registration { api_key, project, sender_id, app_id, package, certificate, expo_project, .. } =
        context.registrar()?.client.settings();
    let api_key = api_key.expose_secret();
    let app = GameAppView { api_key, project, sender_id, app_id, package, certificate, expo_project };
    Ok(HttpResponse::Ok().insert_header((CACHE_CONTROL, "no-store")).json(app))
}

/// Begins a registration, in place of one whose login has not come back. What was registered before goes on until the new
/// login is brought.
#[utoipa::path(post, path = "/credentials/push/registrations", tag = "push credential",
    responses(
    (status = 201, body = OpenedRegistration),
    (status = 409, description = "`registration_running`"),
    (status = 503, description = "`registration_disabled`"),
))]
pub async fn create(
    SessionUser { user, .. }: SessionUser,
    context: web::Data<ApiContext>,
    once: Idempotent,
    Json(CreateRegistration { renew }): Json<CreateRegistration>,
    req: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    route_facts::take_limit(&req, &user.id)?;
    let registrar = context.registrar()?.clone();
    let (OpenedLogin { id, url, closes_at }, row) = registrar.new_login(&user.id, renew);
    let open = move |db: &mut Db| {
        // Not before: the same request may come again while its registration is made.
        check_idle(&registrar, &row.user_id)?;
        open_login(db, &registrar.vault, row)?;
        let opened = OpenedRegistration { id, login_url: url, expires_at: closes_at };
        Ok((ReplayableAnswer::new(StatusCode::CREATED, &opened), ()))
    };
    once.write(KeyCaller::User(user.id), open, |()| ()).await
}

/// Refuses while a step of this user's registration is made.
fn check_idle(registrar: &Registrar, user: &UserId) -> Result<(), ApiError> {
    match registrar.is_running(user) {
        true => Err(RegistrationProblem::Running.into()),
        false => Ok(()),
    }
}

/// Brings the address at which the login has ended; then the service registers a device and stores its bundle as an
/// upload does. The answer waits some seconds for that.
#[utoipa::path(post, path = "/credentials/push/registrations/{id}", tag = "push credential",
    params(("id" = String, Path)), responses(
    (status = 200, body = RegistrationView),
    (status = 400,
        description = "`invalid_login_address`, `login_expired`; `mismatched_platform_id`: another account signed in"),
    (status = 409, description = "`registration_running`"),
    (status = 410, description = "`registration_closed`"),
    (status = 503, description = "`registration_disabled`; `awaits_key`: the registered device cannot be read now"),
))]
pub async fn update(
    SessionUser { user, .. }: SessionUser,
    context: web::Data<ApiContext>,
    id: web::Path<String>,
    Json(PastedAddress { address }): Json<PastedAddress>,
    req: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    route_facts::take_limit(&req, &user.id)?;
    let registrar = context.registrar()?;
    check_idle(registrar, &user.id)?;
    let row = stored(&context, &user.id, &id).await?;
    let is_open = registrar.take_address(row, &address, &user.platform_id).await.map_err(|refusal| match refusal {
        AddressRefusal::Closed => RegistrationProblem::Closed.into(),
        AddressRefusal::Login(fault) => RegistrationProblem::Login(fault).into(),
        AddressRefusal::OtherAccount(signed_in) => {
            RegistrationProblem::OtherAccount { signed_in, user: user.platform_id }.into()
        }
        AddressRefusal::AwaitsKey => ApiError::AwaitsKey,
        AddressRefusal::Database(error) => error.into(),
    })?;
    if is_open {
        let (making, owner) = (registrar.clone(), user.id.clone());
        let made = rt::spawn(async move { making.proceed(&owner).await });
        // The steps go on by themselves; later answers show how far they are.
        let _ = timeout(ANSWERED_WITHIN, made).await;
    }
    shown(&context, &user.id, &id).await
}

/// Shows each step of a registration with its state.
#[utoipa::path(get, path = "/credentials/push/registrations/{id}", tag = "push credential",
    params(("id" = String, Path)), responses(
    (status = 200, body = RegistrationView),
    (status = 503, description = "`registration_disabled`"),
))]
pub async fn get(
    SessionUser { user, .. }: SessionUser,
    context: web::Data<ApiContext>,
    id: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    context.registrar()?;
    shown(&context, &user.id, &id).await
}

async fn shown(context: &ApiContext, user: &UserId, id: &str) -> Result<HttpResponse, ApiError> {
    let row = stored(context, user, id).await?;
    let session = context.push_session(user).await?.map(|session| session.state);
    Ok(HttpResponse::Ok().json(RegistrationView::new(row, session)))
}

/// The user's newest registration, if it has this id.
async fn stored(context: &ApiContext, user: &UserId, id: &str) -> Result<PushRegistration, ApiError> {
    let user = user.clone();
    let row = context.pool.read(move |db| push_registrations::get(db, &user)).await?;
    row.filter(|row| row.id == id).ok_or(ApiError::NotFound)
}
