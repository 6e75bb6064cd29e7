//! Paired game servers: `/paired-servers`, `/paired-servers/{id}`.

use actix::Addr;
use actix_web::{HttpResponse, http::StatusCode, web};
use garde::Validate;
use secrecy::SecretBox;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::{
        answer::{
            done::Done,
            error::ApiError,
            fields::{IntegerOrText, is_platform_id, one_line},
            list_page::{ListPage, ListPlace},
        },
        context::ApiContext,
        extract::{
            caller::Caller,
            idempotent::{Idempotent, KeyCaller, ReplayableAnswer},
            json::Json,
            paired_server::{OwnedServer, PermittedWrite, WatchedServer},
            query::Query,
            session_user::SessionUser,
        },
        rate_limits::new_game_servers_refused,
    },
    config::GameLinkPolicy,
    db::{
        access,
        alarms::{emergencies, incidents},
        engine::{error::DbError, pool::Db},
        paired_servers::{self, PairedServer},
    },
    domain::{
        access::Role,
        game_address::GameAddress,
        ids::{ServerId, UserId},
        link_reason::LinkReason,
        server_state::ConnectionState,
        time::Timestamp,
    },
    pairings::{self, PairingOutcome, PairingRefused, PairingRequest, PairingSource},
    push::worker::ServersChanged,
    relay::hub::{Hub, LinkStatus, ServerPaired, ServerRemoved},
};

/// The values that the game shows when a server is paired.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({
    "address": "rust.example.com", "port": 28082, "playerId": "76561198000000001", "playerToken": "-1234567890", "name": "My server"
}))]
pub struct CreatePairedServer {
    /// Host name or IP address of the game server.
    #[garde(skip)]
    #[schema(format = "host")]
    address: String,
    /// The companion port of the game server.
    #[garde(range(min = 1))]
    #[schema(minimum = 1, maximum = 65535)]
    port: u16,
    /// SteamID64 of the player who paired.
    #[garde(custom(is_platform_id))]
    #[schema(format = "steamid64")]
    player_id: String,
    /// A signed 32-bit integer, or its decimal digits. Stored sealed, never shown again.
    #[garde(skip)]
    #[schema(value_type = String, format = "int32-digits")]
    player_token: PlayerToken,
    #[garde(length(chars, min = 1, max = 100), custom(one_line))]
    #[schema(format = "one-line", min_length = 1, max_length = 100)]
    name: Option<String>,
}

/// The player's token for one game server: never printed.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "IntegerOrText")]
struct PlayerToken(i32);

impl TryFrom<IntegerOrText> for PlayerToken {
    type Error = &'static str;

    fn try_from(value: IntegerOrText) -> Result<Self, Self::Error> {
        let token = value.into_text().trim().parse();
        token.map(Self).map_err(|_| "a token is a 32-bit integer or its decimal digits")
    }
}

/// A paired game server and the state of its link.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct PairedServerView {
    id: String,
    /// Without a name of its own: its address for the owner, `Game server` for guests.
    name: String,
    /// For the owner only, as the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    /// SteamID64 of the player whose view of the game this is.
    player_id: String,
    /// `owner` or `guest`.
    #[schema(value_type = String, format = "role")]
    role: Role,
    connection: ConnectionView,
    /// Alarms that go on, drills aside.
    open_incidents: i64,
    created_at: Timestamp,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ConnectionView {
    /// `connecting`, `connected`, `unreachable`, `rejected` (pair again), `no_credentials`, `paused`, or
    /// `waiting` (the game server takes no more links from us, until `nextAttemptAt`).
    state: ConnectionState,
    since: Timestamp,
    /// In words for the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    reason: Option<LinkReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<Timestamp>,
}

#[derive(Serialize, ToSchema)]
pub(in crate::api) struct PairedServerList {
    servers: Vec<PairedServerView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

impl PairedServerView {
    /// A user's own servers come before those of which they are a guest, each the oldest first.
    fn place(&self) -> ListPlace {
        let at = self.created_at.timestamp_micros();
        ListPlace::new(u64::from(self.role != Role::Owner), format!("{at:016} {}", self.id))
    }

    pub(crate) fn new(server: PairedServer, role: Role, link: Option<LinkStatus>, open_incidents: i64) -> Self {
        let connection = match link {
            Some(LinkStatus { state, since, reason, next_attempt_at }) => {
                ConnectionView { state, since, reason, next_attempt_at }
            }
            // There is no link: paused since the server was last paired.
            None => ConnectionView {
                state: ConnectionState::Paused,
                since: server.updated_at,
                reason: None,
                next_attempt_at: None,
            },
        };
        let is_owner = role == Role::Owner;
        Self {
            id: server.id.to_string(),
            name: server.name_for(role).to_owned(),
            address: is_owner.then_some(server.address),
            port: is_owner.then_some(server.port),
            player_id: server.player_id,
            role,
            connection,
            open_incidents,
            created_at: server.created_at,
        }
    }
}

/// The servers this user may watch: their own, then those shared with them, each oldest first. A token of one server lists
/// only that.
#[utoipa::path(get, path = "/paired-servers", tag = "paired servers", params(ListPage), responses(
    (status = 200, body = PairedServerList),
))]
pub async fn list(
    Caller { user, access }: Caller,
    Query(page): Query<ListPage>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    Ok(HttpResponse::Ok().json(page_of(user.id, access.only().cloned(), &page, &context).await?))
}

/// A page of the servers that this user may watch, or of the `only` one.
pub(in crate::api) async fn page_of(
    user: UserId,
    only: Option<ServerId>,
    page: &ListPage,
    context: &ApiContext,
) -> Result<PairedServerList, ApiError> {
    let read = move |db: &mut Db| {
        let mut servers = access::servers_of(db, &user)?;
        servers.retain(|(server, _)| only.as_ref().is_none_or(|only| *only == server.id));
        let ids: Vec<ServerId> = servers.iter().map(|(server, _)| server.id.clone()).collect();
        Ok((servers, incidents::open(db, &ids)?, ids))
    };
    let (servers, open, ids) = context.pool.read(read).await?;
    let mut links = context.connections(ids).await?;
    let view = |(server, role): (PairedServer, Role)| {
        let (link, open) = (links.remove(&server.id), open.get(&server.id).copied());
        PairedServerView::new(server, role, link, open.unwrap_or_default())
    };
    let (servers, next) = page.cut(servers.into_iter().map(view).collect(), PairedServerView::place)?;
    Ok(PairedServerList { servers, next })
}

/// Pairs a game server by hand. Pairing the same one again replaces its token.
#[utoipa::path(post, path = "/paired-servers", tag = "paired servers",
    request_body = CreatePairedServer, responses(
    (status = 201, body = PairedServerView),
    (status = 200, body = PairedServerView, description = "Paired before; the token was replaced"),
    (status = 409, description = "`limit_reached`"),
    (status = 429, description = "`rate_limited`: many new addresses in the last minute"),
    (status = 503, description = "`awaits_key`: what is stored of it cannot be read now, and is not replaced"),
))]
pub async fn create(
    user: SessionUser,
    once: Idempotent,
    Json(pairing): Json<CreatePairedServer>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let address = GameAddress::parse(&pairing.address)
        .ok_or_else(|| ApiError::invalid("address", "must be a host name or an IP address, without a port"))?;
    let now = context.clock.now();
    let request = PairingRequest {
        owner: user.user.id,
        source: PairingSource::Hand,
        name: pairing.name,
        address,
        port: pairing.port,
        player_id: pairing.player_id.into(),
        player_token: SecretBox::new(Box::new(pairing.player_token.0)),
        at: Some(now),
    };
    let owner = request.owner.clone();
    let known = context.pool.read(move |db| paired_servers::list_for(db, &owner)).await?;
    let mut links = context.connections(known.into_iter().map(|server| server.id).collect()).await?;
    let (vault, random) = (context.keys.vault.clone(), context.random.clone());
    let (outbound, policy) = (context.limits.outbound.clone(), context.settings.link_policy);
    let (hub, push, caller) = (context.services.hub.clone(), context.services.push.clone(), request.owner.clone());
    let pair = move |db: &mut Db| {
        let paired = pairings::pair_server(db, &vault, &random, request, &outbound, now)?;
        let PairingOutcome { server, is_new, changed, .. } = paired.map_err(|refused| match refused {
            PairingRefused::PrivateAddress => ApiError::invalid("address", "must be a public address"),
            PairingRefused::AwaitsKey => ApiError::AwaitsKey,
            PairingRefused::TooManyNewAddresses(wait) => new_game_servers_refused(wait),
            refused => ApiError::LimitReached(refused.to_string()),
        })?;
        let link = links.remove(&server.id).filter(|_| !changed);
        let link = link.or_else(|| {
            (policy == GameLinkPolicy::Always).then_some(LinkStatus {
                state: ConnectionState::Connecting,
                since: now,
                reason: None,
                next_attempt_at: None,
            })
        });
        let open = open_incidents(db, &server.id)?;
        let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
        let change = (server.id.clone(), changed);
        Ok((ReplayableAnswer::new(status, &PairedServerView::new(server, Role::Owner, link, open)), change))
    };
    let user = caller.clone();
    let notify = move |(server, changed): &(ServerId, bool)| {
        hub.do_send(ServerPaired { server: server.clone(), changed: *changed });
        push.do_send(ServersChanged { user });
    };
    once.write(KeyCaller::User(caller), pair, notify).await
}

/// One server this user may watch.
#[utoipa::path(get, path = "/paired-servers/{id}", tag = "paired servers",
    params(("id" = String, Path)), responses(
    (status = 200, body = PairedServerView),
))]
pub async fn get(
    WatchedServer { id, role, .. }: WatchedServer,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (server, open) =
        context.pool.read(move |db| Ok((paired_servers::get(db, &id)?, open_incidents(db, &id)?))).await?;
    let link = context.connections(vec![server.id.clone()]).await?.remove(&server.id);
    Ok(HttpResponse::Ok().json(PairedServerView::new(server, role, link, open)))
}

/// Deletes the paired server, with everything stored for it.
#[utoipa::path(delete, path = "/paired-servers/{id}", tag = "paired servers",
    params(("id" = String, Path)), responses(
    (status = 200, body = Done),
    (status = 403, description = "`owner_only`"),
))]
pub async fn delete(server: OwnedServer, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let (push, user, now) = (context.services.push.clone(), server.user.id.clone(), context.clock.now());
    let delete = move |db: &mut Db, write: &PermittedWrite| {
        let orphaned = emergencies::delete_server(db, &write.user.id, &write.server, now)?;
        let is_found = orphaned.is_some();
        Ok((orphaned, is_found))
    };
    let notify = move |hub: &Addr<Hub>, server| {
        hub.do_send(ServerRemoved { server });
        push.do_send(ServersChanged { user });
    };
    let orphaned = server.write_and_notify(delete, notify).await?;
    let is_found = orphaned.is_some();
    context.services.channels.orphaned.add(orphaned.into_iter().flatten());
    Done::if_found(is_found)
}

fn open_incidents(db: &mut Db, server: &ServerId) -> Result<i64, DbError> {
    Ok(incidents::open(db, std::slice::from_ref(server))?.remove(server).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_player_token_is_an_integer_or_its_digits() {
        let read = |json: &str| serde_json::from_str::<PlayerToken>(json).map(|token| token.0).ok();
        assert_eq!(read("-2147483648"), Some(i32::MIN));
        assert_eq!(read("\"1234\""), Some(1234));
        for bad in ["2147483648", "\"2147483648\"", "1.5", "\"x\"", "\"\"", "null", "[]", "true"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
