//! Paired game servers: `/paired-servers`, `/paired-servers/{id}`.

use actix_web::{HttpResponse, http::StatusCode, web};
use garde::Validate;
use secrecy::SecretBox;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::{
        error::{ApiError, Problem},
        extract::{json::Json, session_user::SessionUser},
        state::AppState,
    },
    db::{
        access::{self, Role},
        error::DbError,
        paired_servers::{self, PairedServer},
        pool::Db,
    },
    domain::{
        game_address::GameAddress,
        ids::{PlatformId, ServerId, UserId},
        server_state::ConnectionState,
        time::{self, Timestamp},
    },
    pairings::{self, PairingOutcome, PairingRefused, PairingRequest, PairingSource},
    relay::hub::{self, ServerPaired, ServerRemoved},
};

/// What the game shows after pairing.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
pub struct Pairing {
    /// Host name or IP address of the game server.
    #[garde(skip)]
    #[schema(max_length = 253)]
    address: String,
    /// The companion port of the game server.
    #[garde(range(min = 1))]
    #[schema(minimum = 1, maximum = 65535)]
    port: u16,
    /// SteamID64 of the player who paired.
    #[garde(custom(platform_id))]
    #[schema(pattern = "^[0-9]{17}$")]
    player_id: String,
    /// A signed 32-bit integer, or its decimal digits. Stored sealed, never shown again.
    #[garde(skip)]
    #[schema(value_type = String, pattern = "^-?[0-9]{1,10}$")]
    player_token: PlayerToken,
    #[garde(length(chars, min = 1, max = 100), custom(plain_text))]
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
}

/// The player's token for one game server: never printed.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "IntegerOrText")]
struct PlayerToken(i32);

#[derive(Deserialize)]
#[serde(untagged, expecting = "a token is a 32-bit integer or its decimal digits")]
enum IntegerOrText {
    Integer(i64),
    Text(String),
}

impl TryFrom<IntegerOrText> for PlayerToken {
    type Error = &'static str;

    fn try_from(value: IntegerOrText) -> Result<Self, Self::Error> {
        let token = match value {
            IntegerOrText::Integer(integer) => i32::try_from(integer).ok(),
            IntegerOrText::Text(text) => text.trim().parse().ok(),
        };
        token.map(Self).ok_or("a token is a 32-bit integer or its decimal digits")
    }
}

/// A paired game server and how its link stands.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PairedServerView {
    id: String,
    name: String,
    address: String,
    port: u16,
    /// SteamID64 of the player whose view of the game this is.
    player_id: String,
    #[schema(value_type = String)]
    role: RoleView,
    connection: ConnectionView,
    #[serde(serialize_with = "time::wire")]
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
enum RoleView {
    Owner,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ConnectionView {
    /// `connecting`, `connected`, `unreachable`, `rejected` (pair again), `no_credentials` or `paused`.
    #[schema(value_type = String)]
    state: ConnectionState,
    #[serde(serialize_with = "time::wire")]
    #[schema(value_type = String, format = DateTime)]
    since: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(serialize_with = "time::wire_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    next_attempt_at: Option<Timestamp>,
}

#[derive(Serialize, ToSchema)]
struct PairedServerList {
    servers: Vec<PairedServerView>,
}

impl PairedServerView {
    fn new(server: PairedServer, role: Role, link: Option<hub::Connection>) -> Self {
        let connection = match link {
            Some(hub::Connection { state, since, reason, next_attempt_at }) => {
                ConnectionView { state, since, reason, next_attempt_at }
            }
            // Nobody keeps a link to it: as it has been since it was last paired.
            None => ConnectionView {
                state: ConnectionState::Paused,
                since: server.updated_at,
                reason: None,
                next_attempt_at: None,
            },
        };
        Self {
            id: server.id.to_string(),
            name: server.name,
            address: server.address,
            port: server.port,
            player_id: server.player_id,
            role: match role {
                Role::Owner => RoleView::Owner,
            },
            connection,
            created_at: server.created_at,
        }
    }
}

/// The servers this user may watch.
#[utoipa::path(get, path = "/paired-servers", tag = "paired servers", security(("session" = [])), responses(
    (status = 200, body = PairedServerList),
    (status = 401, body = Problem, content_type = "application/problem+json"),
))]
pub async fn list(user: SessionUser, state: web::Data<AppState>) -> Result<HttpResponse, ApiError> {
    let servers = state.pool.read(move |db| paired_servers::list_for(db, &user.user.id)).await?;
    let mut links = state.connections(servers.iter().map(|server| server.id.clone()).collect()).await?;
    let view = |server: PairedServer| {
        let link = links.remove(&server.id);
        PairedServerView::new(server, Role::Owner, link)
    };
    Ok(HttpResponse::Ok().json(PairedServerList { servers: servers.into_iter().map(view).collect() }))
}

/// Pairs a game server by hand. Pairing the same one again replaces its token.
#[utoipa::path(post, path = "/paired-servers", tag = "paired servers", security(("session" = [])),
    request_body = Pairing, responses(
    (status = 201, body = PairedServerView),
    (status = 200, body = PairedServerView, description = "Paired before; the token was replaced"),
    (status = 400, body = Problem, content_type = "application/problem+json"),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 409, body = Problem, content_type = "application/problem+json", description = "`limit_reached`"),
))]
pub async fn pair(
    user: SessionUser,
    Json(pairing): Json<Pairing>,
    state: web::Data<AppState>,
) -> Result<HttpResponse, ApiError> {
    let address = GameAddress::parse(&pairing.address)
        .ok_or_else(|| ApiError::invalid("address", "must be a host name or an IP address, without a port"))?;
    let request = PairingRequest {
        owner: user.user.id,
        source: PairingSource::Hand,
        name: pairing.name,
        address,
        port: pairing.port,
        player_id: pairing.player_id.into(),
        player_token: SecretBox::new(Box::new(pairing.player_token.0)),
    };
    let (vault, random, now) = (state.vault.clone(), state.random.clone(), state.clock.now());
    let allow_private = state.config.game.allow_private_servers;
    let paired =
        state.pool.write(move |db| pairings::pair_server(db, &vault, &random, request, allow_private, now)).await?;
    let PairingOutcome { server, is_new, changed, .. } = paired.map_err(|refused| match refused {
        PairingRefused::PrivateAddress => ApiError::invalid("address", "must be a public address"),
        refused => ApiError::LimitReached(refused.to_string()),
    })?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    state.hub.do_send(ServerPaired { server: server.id.clone(), changed });
    let link = state.connections(vec![server.id.clone()]).await?.remove(&server.id);
    Ok(HttpResponse::build(status).json(PairedServerView::new(server, Role::Owner, link)))
}

/// One server this user may watch.
#[utoipa::path(get, path = "/paired-servers/{id}", tag = "paired servers", security(("session" = [])),
    params(("id" = String, Path)), responses(
    (status = 200, body = PairedServerView),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 404, body = Problem, content_type = "application/problem+json"),
))]
pub async fn get(
    user: SessionUser,
    path: web::Path<String>,
    state: web::Data<AppState>,
) -> Result<HttpResponse, ApiError> {
    let id = ServerId::from(path.into_inner());
    let (server, role) = state
        .pool
        .read(move |db| {
            let role = require_role(db, &user.user.id, &id)?;
            Ok((paired_servers::get(db, &id)?, role))
        })
        .await?;
    let link = state.connections(vec![server.id.clone()]).await?.remove(&server.id);
    Ok(HttpResponse::Ok().json(PairedServerView::new(server, role, link)))
}

/// Ends the pairing, with everything that was kept for it.
#[utoipa::path(delete, path = "/paired-servers/{id}", tag = "paired servers", security(("session" = [])),
    params(("id" = String, Path)), responses(
    (status = 204),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 404, body = Problem, content_type = "application/problem+json"),
))]
pub async fn remove(
    user: SessionUser,
    path: web::Path<String>,
    state: web::Data<AppState>,
) -> Result<HttpResponse, ApiError> {
    let id = ServerId::from(path.into_inner());
    let server = id.clone();
    if !state.pool.write(move |db| paired_servers::delete(db, &user.user.id, &id)).await? {
        return Err(ApiError::NotFound);
    }
    state.hub.do_send(ServerRemoved { server });
    Ok(HttpResponse::NoContent().finish())
}

/// What this user may do with this server; somebody else's is not found, which does not confirm that it exists.
pub fn require_role(db: &mut Db, user: &UserId, server: &ServerId) -> Result<Role, DbError> {
    access::role(db, user, server)?.ok_or(DbError::NotFound)
}

fn platform_id(text: &str, _: &()) -> garde::Result {
    PlatformId::parse(text).map(|_| ()).ok_or_else(|| garde::Error::new("must be a SteamID64 of 17 digits"))
}

/// One line, nothing invisible.
pub fn plain_text(text: &Option<String>, _: &()) -> garde::Result {
    match text {
        Some(text) if text.chars().any(char::is_control) => Err(garde::Error::new("must be one line of text")),
        Some(text) if text.trim().is_empty() => Err(garde::Error::new("must not be blank")),
        _ => Ok(()),
    }
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
