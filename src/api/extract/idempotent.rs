//! Requests that may be sent again: `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header).
//!
//! A handler that creates or charges takes an [`Idempotent`] before its body, and does its work through it. With
//! [`write`](Idempotent::write) the key and the answer are committed with the effect. With
//! [`effect`](Idempotent::effect), for requests to other services, the key is claimed before, with a plan of the
//! request; after the process died, the next request with the key goes on with the same plan. A refusal leaves no
//! trace, so that the key can be used again. The routes that take a key say so in the table of routes (`key`).

use std::{
    cell::RefCell,
    future::{Ready, ready},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use actix_web::{FromRequest, HttpRequest, HttpResponse, dev::Payload, http::StatusCode, rt, web};
use chrono::TimeDelta;
use futures_util::StreamExt as _;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::time::timeout;

use crate::{
    api::{answer::error::ApiError, context::ApiContext},
    crypto::{
        digest::{PartsDigest, sha256_hex},
        sealer::{SealContext, Sealer},
    },
    db::{
        engine::pool::Db,
        idempotency_keys::{self, IdempotencyRecord, KeyTaken, KeyedRequest},
    },
    domain::{
        ids::HelperDeviceId,
        limits::{IDEMPOTENCY_KEY_LENGTH, IDEMPOTENCY_KEYS_PER_CALLER, IDEMPOTENT_ANSWER},
        time::Timestamp,
    },
    net::trace,
};

pub use crate::db::idempotency_keys::KeyCaller;

/// The header field.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The header field of an answer that is a kept one.
pub const REPLAYED: &str = "idempotency-replayed";

/// Longest time for an effect at another service.
const EFFECT_DEADLINE: Duration = Duration::from_secs(45);
/// Lifetime of a claim: the effect is over by then, or its process has died.
const CLAIM: TimeDelta = TimeDelta::seconds(60);

/// An answer that can be kept.
#[derive(Serialize, Deserialize)]
pub struct ReplayableAnswer {
    status: u16,
    /// JSON.
    body: String,
    /// The id of the thing it gives, if that may end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    about: Option<String>,
    /// The device whose token it shows.
    #[serde(skip)]
    device: Option<HelperDeviceId>,
}

impl ReplayableAnswer {
    /// An answer with this body as JSON.
    pub fn new(status: StatusCode, body: &impl Serialize) -> Self {
        let body = serde_json::to_string(body).expect("answers hold only strings, numbers and lists");
        Self { status: status.as_u16(), body, about: None, device: None }
    }

    /// An answer that gives something that may end, which is checked before the answer is given again.
    pub fn about(self, id: String) -> Self {
        Self { about: Some(id), ..self }
    }

    /// An answer that shows the token of this device, and is forgotten with it.
    pub fn of_device(device: HelperDeviceId, body: &impl Serialize) -> Self {
        Self { device: Some(device), ..Self::new(StatusCode::OK, body) }
    }

    fn respond(self, is_replayed: bool) -> HttpResponse {
        let status = StatusCode::from_u16(self.status).expect("it was made from a status");
        let mut response = HttpResponse::build(status);
        if is_replayed {
            response.insert_header((REPLAYED, "true"));
        }
        response.content_type("application/json").body(self.body)
    }
}

/// The key of a request, if it has one. In a handler's signature it comes before the body, which it hashes.
pub struct Idempotent {
    context: web::Data<ApiContext>,
    presented: Option<PresentedKey>,
}

struct PresentedKey {
    key: String,
    /// Digest of the method, the path and the part of the body that was read so far.
    request: Rc<RefCell<PartsDigest>>,
}

impl FromRequest for Idempotent {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(req: &HttpRequest, payload: &mut Payload) -> Self::Future {
        ready(presented(req, payload).map(|presented| Self { context: ApiContext::of(req).clone(), presented }))
    }
}

fn presented(req: &HttpRequest, payload: &mut Payload) -> Result<Option<PresentedKey>, ApiError> {
    let mut sent = req.headers().get_all(IDEMPOTENCY_KEY);
    let Some(value) = sent.next() else { return Ok(None) };
    let key = value.to_str().ok().and_then(key_of).filter(|_| sent.next().is_none()).ok_or_else(|| {
        ApiError::invalid("Idempotency-Key", format!("must be 1 to {IDEMPOTENCY_KEY_LENGTH} visible ASCII characters"))
    })?;
    let mut digest = PartsDigest::default();
    let path = req.uri().path_and_query().map(|path| path.as_str()).unwrap_or_default();
    digest.update(format!("{} {path}\n", req.method()).as_bytes());
    let request = Rc::new(RefCell::new(digest));
    let body = payload.take();
    if !matches!(body, Payload::None) {
        let hashed = request.clone();
        let read = body.inspect(move |part| {
            if let Ok(bytes) = part {
                hashed.borrow_mut().update(bytes);
            }
        });
        *payload = Payload::Stream { payload: Box::pin(read) };
    }
    Ok(Some(PresentedKey { key, request }))
}

/// The key itself: the draft puts it between quotes, most clients do not.
fn key_of(value: &str) -> Option<String> {
    let value = value.trim();
    let key = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    let plain = (1..=IDEMPOTENCY_KEY_LENGTH).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    plain.then(|| key.to_owned())
}

/// A request with a key, when its body has been read.
#[derive(Clone)]
struct KeyedCall {
    request: KeyedRequest,
    sealer: Arc<Sealer>,
}

/// Outcome of a transaction.
enum WriteOutcome<T> {
    Done(ReplayableAnswer, T),
    Replayed(ReplayableAnswer),
}

impl Idempotent {
    /// True if this caller came with the same key after this time, and the key has at least this many characters, so
    /// that it cannot be guessed.
    pub async fn is_known_since(
        &self,
        caller: &KeyCaller,
        since: Timestamp,
        shortest: usize,
    ) -> Result<bool, ApiError> {
        let is_long = self.presented.as_ref().is_some_and(|presented| presented.key.len() >= shortest);
        let Some(keyed) = self.keyed(caller.clone()).filter(|_| is_long) else { return Ok(false) };
        let known = move |db: &mut Db| idempotency_keys::is_taken_since(db, &keyed.request.id, since);
        Ok(self.context.pool.read(known).await?)
    }

    /// The call with the key of this caller, if the request has one.
    fn keyed(&self, caller: KeyCaller) -> Option<KeyedCall> {
        let PresentedKey { key, request } = self.presented.as_ref()?;
        let id = sha256_hex(format!("{}\n{key}", caller.as_str()).as_bytes());
        let request = KeyedRequest { id, caller, request: request.borrow().hex() };
        Some(KeyedCall { request, sealer: self.context.keys.kept_answers.clone() })
    }

    /// Changes the database in one transaction with the key and the answer, and notifies others after the commit, on
    /// the thread that committed. When the same request of this caller has been answered, returns that answer instead.
    pub async fn write<T, F>(
        self,
        caller: KeyCaller,
        change: F,
        notify: impl FnOnce(&T) + Send + 'static,
    ) -> Result<HttpResponse, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Db) -> Result<(ReplayableAnswer, T), ApiError> + Send + 'static,
    {
        let (keyed, now) = (self.keyed(caller), self.context.clock.now());
        let write = move |db: &mut Db| {
            let Some(keyed) = keyed else { return change(db).map(|(answer, value)| WriteOutcome::Done(answer, value)) };
            if !keyed.take(db, b"", None, now)? {
                let known = idempotency_keys::find(db, &keyed.request)?.ok_or(ApiError::Conflict)?;
                return keyed.kept(known).map(WriteOutcome::Replayed);
            }
            let (answer, value) = change(db)?;
            idempotency_keys::answer(db, &keyed.request.id, &keyed.seal(&answer)?, answer.device.as_ref())?;
            Ok(WriteOutcome::Done(answer, value))
        };
        let notify = move |outcome: &WriteOutcome<T>| {
            if let WriteOutcome::Done(_, value) = outcome {
                notify(value);
            }
        };
        Ok(match self.context.pool.write_and_notify(write, notify).await? {
            WriteOutcome::Done(answer, _) => answer.respond(false),
            WriteOutcome::Replayed(answer) => answer.respond(true),
        })
    }

    /// Runs an effect at another service, and goes on when the client leaves. `plan` checks the request, and gets the
    /// key for that service; `call` runs the effect. With a key, a plan is made once, and stored before the call.
    pub async fn effect<P, C>(
        self,
        caller: KeyCaller,
        plan: impl AsyncFnOnce(Option<&str>) -> Result<P, ApiError>,
        call: impl FnOnce(P) -> C + 'static,
    ) -> Result<HttpResponse, ApiError>
    where
        P: Serialize + DeserializeOwned + 'static,
        C: Future<Output = Result<ReplayableAnswer, ApiError>> + 'static,
    {
        self.effect_while(caller, plan, call, async |_| Ok(())).await
    }

    /// [`effect`](Self::effect) that gives something that may end: `check_lasts` gets its id before the answer is given
    /// again, and refuses if it has ended.
    pub async fn effect_while<P, C>(
        self,
        caller: KeyCaller,
        plan: impl AsyncFnOnce(Option<&str>) -> Result<P, ApiError>,
        call: impl FnOnce(P) -> C + 'static,
        check_lasts: impl AsyncFnOnce(&str) -> Result<(), ApiError>,
    ) -> Result<HttpResponse, ApiError>
    where
        P: Serialize + DeserializeOwned + 'static,
        C: Future<Output = Result<ReplayableAnswer, ApiError>> + 'static,
    {
        let Some(keyed) = self.keyed(caller) else {
            let plan = plan(None).await?;
            return spawned(async move { in_time(call(plan)).await }).await.map(|answer| answer.respond(false));
        };
        let context = self.context;
        let (request, until) = (keyed.request.clone(), context.clock.now() + CLAIM);
        let known = context.pool.read(move |db| idempotency_keys::find(db, &request)).await?;
        let plan = match known {
            Some(IdempotencyRecord { is_same: true, sealed, claimed_until: Some(before) }) => {
                if before > context.clock.now() {
                    return Err(ApiError::IdempotencyKeyInUse);
                }
                // Its process died, or the outcome is unknown.
                let id = keyed.request.id.clone();
                if !context.pool.write(move |db| idempotency_keys::reclaim(db, &id, before, until)).await? {
                    return Err(ApiError::IdempotencyKeyInUse);
                }
                keyed.open(&sealed)?
            }
            Some(known) => {
                let answer = keyed.kept(known)?;
                if let Some(about) = &answer.about {
                    check_lasts(about).await?;
                }
                return Ok(answer.respond(true));
            }
            None => {
                let plan = plan(Some(&keyed.request.id)).await?;
                let (claim, sealed, now) = (keyed.clone(), keyed.seal(&plan)?, context.clock.now());
                let take = move |db: &mut Db| claim.take(db, &sealed, Some(until), now);
                if !context.pool.write(take).await? {
                    return Err(ApiError::IdempotencyKeyInUse);
                }
                plan
            }
        };
        spawned(async move {
            let called = in_time(call(plan)).await;
            if let Err(error) = keyed.settle(&context, &called, until).await {
                // The next request with the key, once the claim is over, asks the other service again, with its key.
                log::error!("the answer to a request with an Idempotency-Key was not kept: {error}");
            }
            called
        })
        .await
        .map(|answer| answer.respond(false))
    }
}

impl KeyedCall {
    fn context(&self) -> SealContext<'_> {
        SealContext { table: "idempotency_keys", column: "sealed", owner: &self.request.id, peer: None }
    }

    fn seal(&self, value: &impl Serialize) -> Result<Vec<u8>, ApiError> {
        let text = serde_json::to_vec(value).map_err(|error| ApiError::Internal(error.into()))?;
        if text.len() > IDEMPOTENT_ANSWER {
            return Err(ApiError::Internal("an answer is too large to be kept".into()));
        }
        Ok(self.sealer.seal(&self.context(), &text))
    }

    fn open<T: DeserializeOwned>(&self, sealed: &[u8]) -> Result<T, ApiError> {
        let opened = self.sealer.open(&self.context(), sealed);
        let value = opened.ok().and_then(|opened| serde_json::from_slice(opened.plaintext.expose_secret()).ok());
        // SESSION_SECRET has changed, or the service: the request was done, with an outcome that is lost.
        value.ok_or(ApiError::Conflict)
    }

    /// False: another request has the key.
    fn take(
        &self,
        db: &mut Db,
        sealed: &[u8],
        claimed_until: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<bool, ApiError> {
        match idempotency_keys::take(db, &self.request, sealed, claimed_until, now)? {
            KeyTaken::First => Ok(true),
            KeyTaken::Known => Ok(false),
            // Erased since the session was found.
            KeyTaken::Erased => Err(ApiError::Unauthenticated),
            KeyTaken::Full => Err(ApiError::LimitReached(format!(
                "One caller can have {IDEMPOTENCY_KEYS_PER_CALLER} idempotency keys at most. Leave the key out, or wait."
            ))),
        }
    }

    /// The answer of a key that another request has taken.
    fn kept(&self, known: IdempotencyRecord) -> Result<ReplayableAnswer, ApiError> {
        match known {
            IdempotencyRecord { is_same: false, .. } => Err(ApiError::IdempotencyKeyReused),
            IdempotencyRecord { claimed_until: Some(_), .. } => Err(ApiError::IdempotencyKeyInUse),
            IdempotencyRecord { sealed, .. } => self.open(&sealed),
        }
    }

    /// Keeps an answer, forgets a refusal, and lets the next attempt retry an unknown outcome.
    async fn settle(
        &self,
        context: &ApiContext,
        called: &Result<ReplayableAnswer, ApiError>,
        until: Timestamp,
    ) -> Result<(), ApiError> {
        let (id, now) = (self.request.id.clone(), context.clock.now());
        match called {
            Ok(answer) => {
                let sealed = self.seal(answer)?;
                context.pool.write(move |db| idempotency_keys::answer(db, &id, &sealed, None)).await?;
            }
            Err(error) if error.is_refusal() => {
                context.pool.write(move |db| idempotency_keys::forget(db, &id, until)).await?;
            }
            Err(_) => {
                context.pool.write(move |db| idempotency_keys::reclaim(db, &id, until, now)).await?;
            }
        }
        Ok(())
    }
}

async fn in_time(call: impl Future<Output = Result<ReplayableAnswer, ApiError>>) -> Result<ReplayableAnswer, ApiError> {
    timeout(EFFECT_DEADLINE, call).await.unwrap_or_else(|elapsed| Err(ApiError::Unavailable(elapsed.into())))
}

async fn spawned<T: 'static>(task: impl Future<Output = Result<T, ApiError>> + 'static) -> Result<T, ApiError> {
    rt::spawn(trace::carried(task)).await.map_err(|panicked| ApiError::Internal(panicked.into()))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_visible_ascii_with_or_without_quotes() {
        let longest = "k".repeat(255);
        for (value, key) in [
            ("8e03978e-40d5", "8e03978e-40d5"),
            ("\"8e03978e-40d5\"", "8e03978e-40d5"),
            (" a ", "a"),
            (&longest, &longest),
        ] {
            assert_eq!(key_of(value).as_deref(), Some(key), "{value}");
        }
        for bad in ["", "\"\"", "a b", "a\tb", "é", &"k".repeat(256)] {
            assert_eq!(key_of(bad), None, "{bad}");
        }
    }
}
