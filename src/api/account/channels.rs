//! Channels by which alarms reach a user who has no dashboard open: `/channels`.

use actix_web::{HttpRequest, HttpResponse, http::StatusCode, web};
use garde::Validate;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use url::Url;
use utoipa::ToSchema;

use crate::{
    api::{
        answer::{
            done::Done,
            error::ApiError,
            fields::{is_one_line, one_line},
        },
        context::ApiContext,
        extract::{
            idempotent::{Idempotent, KeyCaller, ReplayableAnswer},
            json::Json,
            route_facts,
            session_user::SessionUser,
        },
    },
    clients::channels::{ChannelFailure, TakenMessage},
    crypto::{signed_webhook, web_push::BrowserKeys},
    db::{
        alarms::{emergencies, late_notices},
        engine::{error::DbError, pool::Db},
        notices::{
            channels::{self, ChannelNotAdded, StoredChannel},
            notice_queue,
        },
    },
    domain::{
        channels::{
            channel_lane::ChannelLane,
            channel_template::WebhookTemplate,
            channel_url,
            user_channel::{ChannelFault, ChannelKind, ChannelProof, ChannelState, ChannelTarget},
        },
        ids::{ChannelId, UserId},
        limits::CHANNELS_PER_USER,
        time::Timestamp,
    },
};

/// Roots of services that have one address for everybody.
const NTFY: &str = "https://ntfy.sh";
const PUSHOVER: &str = "https://api.pushover.net";
const TELEGRAM: &str = "https://api.telegram.org";

/// The last time of a browser, milliseconds since 1970.
const MOST_MILLISECONDS: f64 = 8.64e15;

/// A channel to be added.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "kind": "ntfy", "name": "Phone", "topic": "my-secret-topic" }))]
pub struct CreateChannel {
    /// `teamChat` has no target: an alarm is said in the game, in the team of the paired server, over its link.
    #[garde(skip)]
    kind: ChannelKind,
    /// The channel's name in the list.
    #[garde(length(chars, min = 1, max = 100), custom(is_one_line))]
    #[schema(format = "one-line", min_length = 1, max_length = 100)]
    name: String,
    /// `webhook` and `discord`: where messages are sent. `gotify`: root of the server. `ntfy`, `pushover` and `telegram`:
    /// root of another server than the public one. It begins with `https://` and names a host of the public internet.
    #[garde(length(chars, max = 2048), custom(one_line))]
    #[schema(format = "one-line", max_length = 2048)]
    url: Option<String>,
    /// `discord`: where messages are sent that are no raids, at the host of `url`; absent: by `url`, too.
    #[garde(length(chars, max = 2048), custom(one_line))]
    #[schema(format = "one-line", max_length = 2048)]
    quiet_url: Option<String>,
    /// `ntfy`: the topic, 1 to 64 letters, digits, `-` and `_`.
    #[garde(length(chars, max = 64), custom(one_line))]
    #[schema(format = "one-line", max_length = 64)]
    topic: Option<String>,
    /// `pushover` and `gotify`: token of the application. `telegram`: token of the bot. `ntfy`: access token, if it needs one.
    #[garde(length(chars, max = 256), custom(one_line))]
    #[schema(format = "one-line", max_length = 256)]
    token: Option<String>,
    /// `pushover`: key of the user or group. `telegram`: id of the chat.
    #[garde(length(chars, max = 128), custom(one_line))]
    #[schema(format = "one-line", max_length = 128)]
    recipient: Option<String>,
    /// `webPush`: the browser's subscription, made with the key of `GET /channels/web-push/key`.
    #[garde(dive)]
    subscription: Option<BrowserSubscription>,
    /// `webhook`: the form of another service, as of a telephone gateway. It is a secret, and not shown again. Absent: the
    /// signed JSON of this service.
    #[garde(skip)]
    template: Option<WebhookTemplate>,
}

/// A subscription, as `PushSubscription.toJSON()` of a browser gives it.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
pub struct BrowserSubscription {
    #[garde(length(chars, min = 1, max = 2048), custom(is_one_line))]
    #[schema(format = "one-line", min_length = 1, max_length = 2048)]
    endpoint: String,
    /// When the browser ends it, milliseconds since 1970, as browsers send it; the push service says so in time.
    #[garde(inner(range(min = 0.0, max = MOST_MILLISECONDS)))]
    #[schema(minimum = 0, maximum = 8_640_000_000_000_000_i64)]
    #[serde(rename = "expirationTime")]
    _expiration_time: Option<f64>,
    #[garde(dive)]
    keys: SubscriptionKeys,
}

impl BrowserSubscription {
    /// The target; the field below `within` at fault, and its fault, if it is none.
    fn target(self, within: &str, allows_private: bool) -> Result<ChannelTarget, ApiError> {
        let Self { endpoint, keys: SubscriptionKeys { p256dh, auth }, .. } = self;
        let endpoint = channel_url::parse(&endpoint, allows_private)
            .map_err(|fault| ApiError::invalid(&format!("{within}endpoint"), fault.to_string()))?;
        if BrowserKeys::parse(&p256dh, &auth).is_none() {
            return Err(ApiError::invalid(&format!("{within}keys"), "are not the keys of a browser"));
        }
        Ok(ChannelTarget::WebPush { endpoint: endpoint.into(), p256dh, auth })
    }
}

/// The keys of a subscription, base64url.
#[derive(Deserialize, ToSchema, Validate)]
pub struct SubscriptionKeys {
    #[garde(length(chars, min = 1, max = 100), custom(is_one_line))]
    #[schema(format = "one-line", min_length = 1, max_length = 100)]
    p256dh: String,
    #[garde(length(chars, min = 1, max = 100), custom(is_one_line))]
    #[schema(format = "one-line", min_length = 1, max_length = 100)]
    auth: String,
}

/// A change of a channel.
#[derive(Deserialize, ToSchema, Validate)]
#[schema(example = json!({ "name": "Old phone" }))]
pub struct UpdateChannel {
    /// The channel's name in the list.
    #[garde(length(chars, min = 1, max = 100), custom(is_one_line))]
    #[schema(format = "one-line", min_length = 1, max_length = 100)]
    name: String,
}

/// A channel, without what names its target.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ChannelView {
    id: String,
    kind: ChannelKind,
    name: String,
    /// Host to which messages are sent; empty for `teamChat`.
    host: String,
    /// `active`; `failing`: the newest message did not get through, it is tried further; `disabled`: nothing got through
    /// for a day and twelve attempts or more, test it to use it again; `gone`: the other side says that the target ended.
    state: ChannelState,
    /// Fault of the newest message.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<ChannelFault>,
    /// Advice about it, and about a channel that is untested or disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'static str>,
    /// When the other side last took a message; null: never.
    accepted_at: Option<Timestamp>,
    created_at: Timestamp,
}

/// A new channel.
#[derive(Serialize, ToSchema)]
struct MadeChannel {
    #[serde(flatten)]
    view: ChannelView,
    /// `webhook`: `whsec_…`, by which its messages are signed (Standard Webhooks 1.0.0). It is not shown again.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct ChannelList {
    /// Oldest first.
    #[schema(max_items = 20)]
    channels: Vec<ChannelView>,
}

#[derive(Serialize, ToSchema)]
struct WebhookSecret {
    /// `whsec_…`. Messages are signed by it and the one before.
    secret: String,
}

#[derive(Serialize, ToSchema)]
struct WebPushKey {
    /// 65 bytes, base64url: `applicationServerKey` of a browser's subscription.
    key: String,
}

/// Outcome of a test.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ChannelTest {
    /// The other side took the message. Only a person can say that it was heard.
    accepted: bool,
    /// Status of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<ChannelFault>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'static str>,
}

impl ChannelView {
    fn new(channel: StoredChannel) -> Result<Self, ApiError> {
        let (kind, state) = (channel.kind()?, channel.state()?);
        let StoredChannel { id, name, host, reason, accepted_at, created_at, .. } = channel;
        let reason = reason.as_deref().and_then(ChannelFault::parse);
        let advice = ChannelProof::of(state, accepted_at).advice().or(reason.map(ChannelFault::advice));
        Ok(Self { id, kind, name, host, state, reason, advice, accepted_at, created_at })
    }
}

impl CreateChannel {
    /// The target; the field at fault, and its fault, if there is none.
    fn target(self, secret: String, allows_private: bool) -> Result<ChannelTarget, ApiError> {
        let url = |given: Option<String>, field: &str| {
            let given = given.ok_or_else(|| ApiError::invalid(field, "is missing"))?;
            let url = channel_url::parse(&given, allows_private);
            url.map(String::from).map_err(|fault| ApiError::invalid(field, fault.to_string()))
        };
        let needed = |given: Option<String>, field: &str| {
            let given = given.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
            let given = given.ok_or_else(|| ApiError::invalid(field, "is missing"))?;
            match given.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#%".contains(&byte)) {
                true => Ok(given),
                false => Err(ApiError::invalid(field, "has a character that cannot be in it")),
            }
        };
        let or = |given: Option<String>, public: &str| Some(given.unwrap_or_else(|| public.to_owned()));
        match self.kind {
            ChannelKind::WebPush => {
                let given = self.subscription.ok_or_else(|| ApiError::invalid("subscription", "is missing"))?;
                given.target("subscription.", allows_private)
            }
            ChannelKind::Webhook => {
                if let Some(Err((field, fault))) = self.template.as_ref().map(WebhookTemplate::check) {
                    return Err(ApiError::invalid(&format!("template.{field}"), fault.to_string()));
                }
                let url = url(self.url, "url")?;
                Ok(ChannelTarget::Webhook { url, secrets: vec![secret], template: self.template })
            }
            ChannelKind::Discord => {
                let (loud, quiet) = (url(self.url, "url")?, self.quiet_url);
                let quiet_url = quiet.map(|quiet| url(Some(quiet), "quietUrl")).transpose()?;
                // Attempts are counted by host.
                if quiet_url.as_deref().is_some_and(|quiet| host(quiet) != host(&loud)) {
                    return Err(ApiError::invalid("quietUrl", "must be at the host of url"));
                }
                Ok(ChannelTarget::Discord { url: loud, quiet_url })
            }
            ChannelKind::Ntfy => {
                let topic = needed(self.topic, "topic")?;
                if !topic.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
                    return Err(ApiError::invalid("topic", "is not of letters, digits, - and _"));
                }
                let token = self.token.map(|token| needed(Some(token), "token")).transpose()?;
                Ok(ChannelTarget::Ntfy { url: url(or(self.url, NTFY), "url")?, topic, token })
            }
            ChannelKind::Pushover => Ok(ChannelTarget::Pushover {
                url: url(or(self.url, PUSHOVER), "url")?,
                token: needed(self.token, "token")?,
                user: needed(self.recipient, "recipient")?,
            }),
            ChannelKind::Gotify => {
                Ok(ChannelTarget::Gotify { url: url(self.url, "url")?, token: needed(self.token, "token")? })
            }
            ChannelKind::Telegram => Ok(ChannelTarget::Telegram {
                url: url(or(self.url, TELEGRAM), "url")?,
                token: needed(self.token, "token")?,
                chat: needed(self.recipient, "recipient")?,
            }),
            ChannelKind::TeamChat => Ok(ChannelTarget::TeamChat),
        }
    }
}

fn host(url: &str) -> Option<String> {
    Url::parse(url).ok()?.host_str().map(str::to_owned)
}

/// This user's channels.
#[utoipa::path(get, path = "/channels", tag = "channels", operation_id = "list_channels",
    responses((status = 200, body = ChannelList)))]
pub async fn list(
    SessionUser { user, .. }: SessionUser,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let stored = context.pool.read(move |db| channels::list(db, &user.id)).await?;
    let channels = stored.into_iter().map(ChannelView::new).collect::<Result<_, _>>()?;
    Ok(HttpResponse::Ok().json(ChannelList { channels }))
}

/// Adds a channel: alarms of every server that the user may watch are sent by it until the user acknowledges them. Test it
/// before you rely on it.
#[utoipa::path(post, path = "/channels", tag = "channels", operation_id = "add_channel",
    request_body = CreateChannel, responses(
    (status = 201, body = MadeChannel),
    (status = 409, description = "`limit_reached`; `conflict`: you have one with this target"),
))]
pub async fn create(
    SessionUser { user, .. }: SessionUser,
    once: Idempotent,
    Json(new): Json<CreateChannel>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (name, kind) = (new.name.clone(), new.kind);
    let secret = signed_webhook::fresh_secret(&context.random).expose_secret().to_owned();
    let target = new.target(secret.clone(), context.services.channels.client.allows_private())?;
    let sender = context.services.channels.clone();
    let channel = sender.new_channel(&user.id, name, &target);
    let answer = move |db: &mut Db| -> Result<(ReplayableAnswer, Vec<ChannelId>), ApiError> {
        let ended = channels::insert(db, &channel, CHANNELS_PER_USER)?.map_err(|refusal| match refusal {
            ChannelNotAdded::Known => ApiError::Exists("You have a channel with this target already.".to_owned()),
            ChannelNotAdded::LimitReached => ApiError::LimitReached(format!(
                "One user can have {CHANNELS_PER_USER} channels at most. Delete one first."
            )),
        })?;
        late_notices::open(db, &UserId::from(channel.user_id.as_str()), channel.created_at)?;
        let secret = (kind == ChannelKind::Webhook).then_some(secret);
        log::info!(channel = channel.id.as_str(), kind = kind.word(), host = channel.host.as_str(); "a channel was added");
        let made = MadeChannel { view: ChannelView::new(channel)?, secret };
        Ok((ReplayableAnswer::new(StatusCode::CREATED, &made), ended))
    };
    once.write(KeyCaller::User(user.id), answer, move |ended| sender.note_deleted(ended)).await
}

/// Renames a channel.
#[utoipa::path(patch, path = "/channels/{id}", tag = "channels", operation_id = "rename_channel",
    params(("id" = String, Path)), request_body = UpdateChannel, responses(
    (status = 200, body = ChannelView),
))]
pub async fn update(
    SessionUser { user, .. }: SessionUser,
    path: web::Path<String>,
    Json(UpdateChannel { name }): Json<UpdateChannel>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let id = ChannelId::from(path.into_inner());
    let rename = move |db: &mut Db| -> Result<StoredChannel, ApiError> {
        channels::rename(db, &user.id, &id, &name)?;
        channels::find(db, &user.id, &id)?.ok_or(ApiError::NotFound)
    };
    Ok(HttpResponse::Ok().json(ChannelView::new(context.pool.write(rename).await?)?))
}

/// Deletes a channel: what waits for it is not sent, and what repeats there is ended.
#[utoipa::path(delete, path = "/channels/{id}", tag = "channels", operation_id = "delete_channel",
    params(("id" = String, Path)), responses(
    (status = 200, body = Done),
))]
pub async fn delete(
    SessionUser { user, .. }: SessionUser,
    path: web::Path<String>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (id, now, sender) =
        (ChannelId::from(path.into_inner()), context.clock.now(), context.services.channels.clone());
    let ended = id.clone();
    let delete = move |db: &mut Db| -> Result<(bool, Vec<emergencies::OrphanedEmergency>), DbError> {
        emergencies::delete_channel(db, &user.id, &id, now)
    };
    let end = move |(is_found, orphaned): &(bool, Vec<emergencies::OrphanedEmergency>)| {
        sender.orphaned.add(orphaned.iter().cloned());
        if *is_found {
            sender.note_deleted(&[ended]);
        }
    };
    let (is_found, _) = context.pool.write_and_notify(delete, end).await?;
    Done::if_found(is_found)
}

async fn stored(context: &ApiContext, user: &UserId, id: &ChannelId) -> Result<StoredChannel, ApiError> {
    let (user, id) = (user.clone(), id.clone());
    context.pool.read(move |db| channels::find(db, &user, &id)).await?.ok_or(ApiError::NotFound)
}

/// Sends a test message by a channel, and says if the other side took it. One that was disabled is used again then. By
/// `teamChat` it is said in the team of each server that the user has paired, and taken if one link says it.
#[utoipa::path(post, path = "/channels/{id}/test", tag = "channels", operation_id = "test_channel",
    params(("id" = String, Path)), responses(
    (status = 200, body = ChannelTest),
))]
pub async fn test(
    SessionUser { user, .. }: SessionUser,
    path: web::Path<String>,
    context: web::Data<ApiContext>,
    req: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let id = ChannelId::from(path.into_inner());
    let channel = stored(&context, &user.id, &id).await?;
    route_facts::take_limit(&req, &user.id)?;
    let notice = context.services.channels.test_notice();
    let sent = context.services.channels.deliver(ChannelLane::Unproven, &notice.incident, &channel, &notice).await;
    let (now, fault) = (context.clock.now(), sent.as_ref().err().map(|failure| failure.fault));
    let (sender, target) = (context.services.channels.clone(), channel.clone());
    let note = move |db: &mut Db| match fault {
        None => {
            channels::note_tested(db, &id, &channel.target_hash, now)?;
            late_notices::open(db, &user.id, now)
        }
        Some(fault) => notice_queue::note_channel_failure(db, &id, &channel.target_hash, fault, now),
    };
    context.pool.write_and_notify(note, move |()| sender.note_tested(&target, fault)).await?;
    let tested = match sent {
        Ok(TakenMessage { status, .. }) => ChannelTest { accepted: true, status, reason: None, advice: None },
        Err(ChannelFailure { fault, status, .. }) => {
            ChannelTest { accepted: false, status, reason: Some(fault), advice: Some(fault.advice()) }
        }
    };
    Ok(HttpResponse::Ok().json(tested))
}

/// Makes a new secret for a webhook. Messages are signed by it and the one before, so that none is refused meanwhile.
#[utoipa::path(post, path = "/channels/{id}/rotate-secret", tag = "channels", operation_id = "rotate_channel_secret",
    params(("id" = String, Path)), responses(
    (status = 200, body = WebhookSecret),
    (status = 409, description = "`conflict`: it is no webhook, or was changed meanwhile"),
    (status = 503, description = "`awaits_key`: the stored target cannot be read now"),
))]
pub async fn rotate_secret(
    SessionUser { user, .. }: SessionUser,
    path: web::Path<String>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let id = ChannelId::from(path.into_inner());
    let channel = stored(&context, &user.id, &id).await?;
    let target = context.keys.vault.open_channel(&channel).map_err(|_| ApiError::AwaitsKey)?;
    let ChannelTarget::Webhook { url, secrets, template } = target else { return Err(ApiError::Conflict) };
    let secret = signed_webhook::fresh_secret(&context.random).expose_secret().to_owned();
    let secrets = [secret.clone()].into_iter().chain(secrets.into_iter().take(1)).collect();
    let sealed = context.keys.vault.seal_channel(&id, &ChannelTarget::Webhook { url, secrets, template });
    let key_version = context.keys.vault.key_version();
    let replace = move |db: &mut Db| channels::replace_sealed(db, &id, &channel.sealed, &sealed, key_version);
    match context.pool.write(replace).await? {
        true => Ok(HttpResponse::Ok().json(WebhookSecret { secret })),
        false => Err(ApiError::Conflict),
    }
}

/// Gives a browser's channel another subscription: browsers make new ones now and then. The channel keeps its id, and so
/// its place in the rules of alarms; it is used again if it was gone or disabled.
#[utoipa::path(put, path = "/channels/{id}/subscription", tag = "channels", operation_id = "replace_subscription",
    params(("id" = String, Path)), request_body = BrowserSubscription, responses(
    (status = 200, body = ChannelView),
    (status = 409, description = "`conflict`: it is no channel of a browser"),
))]
pub async fn replace_subscription(
    SessionUser { user, .. }: SessionUser,
    path: web::Path<String>,
    Json(new): Json<BrowserSubscription>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let id = ChannelId::from(path.into_inner());
    let known = stored(&context, &user.id, &id).await?;
    if known.kind()? != ChannelKind::WebPush {
        return Err(ApiError::Conflict);
    }
    let sender = context.services.channels.clone();
    let target = new.target("", sender.client.allows_private())?;
    let (channel, now) = (sender.with_target(known, &target), context.clock.now());
    let replace = move |db: &mut Db| -> Result<(StoredChannel, Vec<ChannelId>), ApiError> {
        let ended = channels::replace_target(db, &channel)?;
        late_notices::open(db, &user.id, now)?;
        Ok((channels::find(db, &user.id, &id)?.ok_or(ApiError::NotFound)?, ended))
    };
    let note = move |(replaced, ended): &(StoredChannel, Vec<ChannelId>)| {
        sender.note_used_again(replaced);
        sender.note_deleted(ended);
    };
    let (replaced, _) = context.pool.write_and_notify(replace, note).await?;
    Ok(HttpResponse::Ok().json(ChannelView::new(replaced)?))
}

/// The key with which a browser subscribes to pushes of this service.
#[utoipa::path(get, path = "/channels/web-push/key", tag = "channels", operation_id = "web_push_key",
    responses(
    (status = 200, body = WebPushKey),
    (status = 503, description = "`awaits_key`: the stored key cannot be read now"),
))]
pub async fn get_web_push_key(
    SessionUser { .. }: SessionUser,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let key = context.services.channels.vapid_key().await.map_err(|_| ApiError::AwaitsKey)?;
    let key = WebPushKey { key: key.public().to_owned() };
    Ok(HttpResponse::Ok().insert_header(("cache-control", "no-store")).json(key))
}
