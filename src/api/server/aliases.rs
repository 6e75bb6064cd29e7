//! The names a player has used: `/intel/{serverId}/aliases`, the one intel route that asks another service.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        answer::{error::ApiError, fields::visible_name},
        context::ApiContext,
        extract::{paired_server::WatchedServer, query::Query, route_facts},
    },
    domain::{player_name::NameKey, time::Timestamp},
    tracking::aliases::{AliasError, Aliases, FindAliases, KnownName},
};

/// Longer than the service is waited for.
const DEADLINE: Duration = Duration::from_secs(15);

/// The player whose names are asked for.
#[derive(Deserialize, IntoParams, Validate)]
pub struct AliasQuery {
    /// The player's name in the game, as others see it.
    #[garde(custom(visible_name))]
    #[param(min_length = 1, max_length = 64, format = "one-line")]
    name: String,
}

/// A name of a player.
#[derive(Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AliasView {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_seen: Option<Timestamp>,
}

/// A player who uses or used the name.
#[derive(Serialize, ToSchema)]
struct AliasPlayerView {
    /// Id at the player-statistics service.
    id: String,
    /// The present name.
    name: String,
    /// Every name, the latest first.
    #[schema(max_items = 100)]
    aliases: Vec<AliasView>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AliasesView {
    /// The name that was asked for.
    name: String,
    /// Every name of the player who fits best, the latest first.
    #[schema(max_items = 100)]
    aliases: Vec<AliasView>,
    /// Names are not unique: everybody who fits, the best first.
    #[schema(max_items = 20)]
    players: Vec<AliasPlayerView>,
    /// When the service was asked.
    as_of: Timestamp,
    /// True if the answer is old, and the service could not be asked again.
    stale: bool,
}

impl AliasesView {
    fn new(name: String, Aliases { known, as_of, stale }: Aliases) -> Self {
        let alias = |KnownName { name, last_seen }| AliasView { name, last_seen };
        let players: Vec<AliasPlayerView> = known
            .players
            .into_iter()
            .map(|player| AliasPlayerView {
                id: player.id,
                name: player.name,
                aliases: player.names.into_iter().map(alias).collect(),
            })
            .collect();
        let aliases = players.first().map(|player| player.aliases.clone()).unwrap_or_default();
        Self { name, aliases, players, as_of, stale }
    }
}

/// The names a player has used. Asked once for a name within hours; a kept answer is marked as stale when the
/// player-statistics service cannot be asked.
#[utoipa::path(get, path = "/intel/{serverId}/aliases", tag = "intel",
    params(("serverId" = String, Path), AliasQuery), responses(
    (status = 200, body = AliasesView),
    (status = 503, description = "`player_stats_unavailable`"),
))]
pub async fn list(
    WatchedServer { id: server, user, .. }: WatchedServer,
    Query(AliasQuery { name }): Query<AliasQuery>,
    req: HttpRequest,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let unavailable = |reason: &str| ApiError::PlayerStatsUnavailable(reason.to_owned());
    let Some(tracking) = &context.services.tracking else { return Err(unavailable("no service is configured")) };
    route_facts::take_limit(&req, &user.id)?;
    let key = NameKey::of(&name).ok_or_else(|| ApiError::invalid("name", "must have visible characters"))?;
    let question = FindAliases { user: user.id, server, name: name.trim().to_owned(), key };
    let answer = timeout(DEADLINE, tracking.send(question)).await;
    let answer =
        answer.map_err(|_| unavailable("no answer in time"))?.map_err(|error| unavailable(&error.to_string()))?;
    match answer {
        Ok(found) => Ok(HttpResponse::Ok().json(AliasesView::new(name, found))),
        Err(AliasError::UnknownServer) => Err(ApiError::NotFound),
        Err(error @ AliasError::Unavailable(_)) => Err(unavailable(&error.to_string())),
        Err(error @ AliasError::Database(_)) => Err(ApiError::Unavailable(error.into())),
    }
}
