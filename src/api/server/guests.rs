//! Guests of a paired server and invitations to it: `/paired-servers/{id}/guests/*`.

use std::sync::{Arc, Mutex, PoisonError};

use actix::Addr;
use actix_web::{HttpResponse, http::StatusCode, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::{
        answer::{
            done::Done,
            error::ApiError,
            fields::{is_platform_id, one_line},
            list_page::{ListPage, ListPlace},
            tier_limits,
        },
        context::ApiContext,
        extract::{
            idempotent::Idempotent,
            json::Json,
            paired_server::{OwnedServer, PermittedWrite, ServerPart, WatchedServer},
            query::Query,
        },
    },
    crypto::digest::sha256_hex,
    db::{
        engine::{error::DbError, pool::Db},
        guests::{self, Guest, InviteRefused, Invitee},
        notices::early_changes::EndedWay,
        users::User,
    },
    domain::{
        access::Role,
        ids::{GuestId, ServerId},
        limits::GUESTS_PER_SERVER,
        time::Timestamp,
    },
    relay::hub::{AccessChanged, Hub},
};

/// The guest to invite: an account, or the first user to open a link. One of the two.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "platformId": "76561198000000003", "label": "Bob" }))]
pub struct CreateGuest {
    /// SteamID64. The account need not have signed in before.
    #[garde(inner(custom(is_platform_id)))]
    #[schema(format = "steamid64")]
    platform_id: Option<String>,
    /// Make a link, which one user can accept within seven days.
    #[garde(skip)]
    #[serde(default)]
    link: bool,
    /// For the owner: a reminder of the invited person.
    #[garde(length(chars, min = 1, max = 100), custom(one_line))]
    #[schema(format = "one-line", min_length = 1, max_length = 100)]
    label: Option<String>,
}

/// A user, as others see them.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PersonView {
    pub id: String,
    display_name: String,
    /// https.
    avatar_url: Option<String>,
}

impl From<User> for PersonView {
    fn from(user: User) -> Self {
        Self { id: user.id.to_string(), display_name: user.display_name, avatar_url: user.avatar_url }
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::api) enum GuestState {
    /// Not accepted yet.
    Invited,
    Guest,
}

/// A guest, or an open invitation; the id stays the same.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct GuestView {
    id: String,
    state: GuestState,
    /// The guest; `null` while the invitation is open.
    user: Option<PersonView>,
    /// The account of the guest, or the one that is invited; `null` for an open link. Only the owner sees it, as the next
    /// three.
    platform_id: Option<String>,
    label: Option<String>,
    invited_at: Option<Timestamp>,
    /// When an open link ends.
    expires_at: Option<Timestamp>,
    since: Option<Timestamp>,
}

/// An invitation as it was made. The link is not shown again.
#[derive(Serialize, ToSchema)]
struct NewGuestView {
    #[serde(flatten)]
    guest: GuestView,
    /// For `POST /guest-invites/accept`; of a link only.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// A page of the dashboard, with the token in its fragment; of a link only.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct GuestList {
    /// Oldest first. Guests see the guests, the owner also the open invitations.
    guests: Vec<GuestView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

impl GuestView {
    pub(crate) fn new(guest: Guest, seen_by: Role) -> Self {
        let Guest { id, accepted, platform_id, label, invited_at, expires_at, .. } = guest;
        let (user, since) = accepted.unzip();
        let state = if user.is_some() { GuestState::Guest } else { GuestState::Invited };
        let platform_id = user.as_ref().map(|user| user.platform_id.to_string()).or(platform_id);
        let is_owner = seen_by == Role::Owner;
        Self {
            id: id.to_string(),
            state,
            user: user.map(PersonView::from),
            platform_id: platform_id.filter(|_| is_owner),
            label: label.filter(|_| is_owner),
            invited_at: Some(invited_at).filter(|_| is_owner),
            expires_at: expires_at.filter(|_| is_owner),
            since,
        }
    }
}

/// The guests of a server, and for its owner the open invitations.
#[utoipa::path(get, path = "/paired-servers/{id}/guests", tag = "guests",
    params(("id" = String, Path), ListPage), responses(
    (status = 200, body = GuestList),
))]
pub async fn list(
    WatchedServer { id, role, .. }: WatchedServer,
    Query(page): Query<ListPage>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let now = context.clock.now();
    let mut list = context.pool.read(move |db| guests::list(db, &id, now)).await?;
    list.retain(|guest| role == Role::Owner || guest.accepted.is_some());
    let guests = list.into_iter().map(|guest| GuestView::new(guest, role)).collect();
    let (guests, next) = page.cut(guests, |guest: &GuestView| {
        ListPlace::oldest_first(guest.invited_at.or(guest.since).unwrap_or_default(), &guest.id)
    })?;
    Ok(HttpResponse::Ok().json(GuestList { guests, next }))
}

/// Invites an account, or makes a link for one guest. Either is `invited` until a user accepts it (`POST
/// /guest-invites/accept`), and an account that does not exist here or refuses looks like one that has not accepted yet.
#[utoipa::path(post, path = "/paired-servers/{id}/guests", tag = "guests",
    params(("id" = String, Path)), request_body = CreateGuest, responses(
    (status = 201, body = NewGuestView),
    (status = 403, description = "`owner_only`"),
    (status = 409, description = "`limit_reached`; `conflict`: the account is a guest, or invited"),
))]
pub async fn create(
    server: OwnedServer,
    once: Idempotent,
    Json(new): Json<CreateGuest>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (invitee, token) = match (new.platform_id, new.link) {
        (Some(_), true) => return Err(ApiError::invalid("link", "is not for an account: invite by one of the two")),
        (None, false) => return Err(ApiError::invalid("platformId", "is required, unless `link` is true")),
        (Some(account), false) => (Invitee::Account(account.into()), None),
        (None, true) => {
            let token = context.keys.invite_tokens.mint();
            (Invitee::Link { token_hash: sha256_hex(token.as_bytes()) }, Some(token))
        }
    };
    let (now, label) = (context.clock.now(), new.label);
    let id = context.random.id::<GuestId>(now);
    let url = token.as_ref().map(|token| context.settings.urls.frontend.at(&format!("/invite#token={token}")));
    let enforced = context.settings.enforce_tiers;
    let invite = move |db: &mut Db, PermittedWrite { user, server, .. }: &PermittedWrite| {
        if enforced && let Some(limit) = tier_limits::guests(db, &user.id, server, now)? {
            return Err(limit.into());
        }
        let invited = guests::invite(db, &id, server, &invitee, label.as_deref(), now)?;
        let guest = invited.map_err(|refused| match refused {
            InviteRefused::Owner => ApiError::invalid("platformId", "is your own account"),
            InviteRefused::Known => ApiError::Conflict,
            InviteRefused::Full => ApiError::LimitReached(format!(
                "One server can have {GUESTS_PER_SERVER} guests and open invitations at most. Remove one first."
            )),
        })?;
        Ok((StatusCode::CREATED, NewGuestView { guest: GuestView::new(guest, Role::Owner), token, url }))
    };
    server.write_once(once, invite, |_, _| ()).await
}

/// Removes a guest, whose watches end at once, or takes an open invitation back.
#[utoipa::path(delete, path = "/paired-servers/{id}/guests/{guestId}", tag = "guests",
    params(("id" = String, Path), ("guestId" = String, Path)), responses(
    (status = 200, body = Done),
    (status = 403, description = "`owner_only`"),
))]
pub async fn delete(
    server: OwnedServer,
    ServerPart(guest): ServerPart,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (alarms, ended) = (context.services.channels.early_alarms.clone(), Arc::new(Mutex::new(None)));
    let removed = ended.clone();
    let remove = move |db: &mut Db, write: &PermittedWrite| -> Result<bool, DbError> {
        let guest = guests::remove(db, &write.server, &guest.into())?;
        let is_removed = guest.is_some();
        *removed.lock().unwrap_or_else(PoisonError::into_inner) = guest.flatten();
        Ok(is_removed)
    };
    let notify = move |hub: &Addr<Hub>, server: ServerId| {
        if let Some(user) = ended.lock().unwrap_or_else(PoisonError::into_inner).take() {
            alarms.changes.end(EndedWay::Guest(server.clone(), user));
        }
        hub.do_send(AccessChanged { server });
    };
    server.delete(remove, notify).await
}
