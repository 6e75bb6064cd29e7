//! Tracked players of a paired server: `/intel/{serverId}/tracking/*`.

use actix::Addr;
use actix_web::{HttpResponse, http::StatusCode, web};
use chrono::TimeDelta;
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        answer::{
            done::Done,
            error::ApiError,
            fields::{given, is_platform_id, lines, one_line, rfc3339, visible_name},
            list_page::{ListPage, ListPlace},
        },
        context::ApiContext,
        extract::{
            idempotent::Idempotent,
            json::Json,
            paired_server::{OwnedServer, PermittedWrite, ServerPart, WatchedServer},
            query::Query,
        },
    },
    db::{
        engine::{error::DbError, pool::Db},
        paired_servers, player_sessions,
        server_matches::{self, StoredMatch},
        tracked_players::{self, NewTrackedPlayer, TrackedPlayer, TrackedPlayerChange},
    },
    domain::{
        ids::ServerId,
        limits::TRACKED_PLAYERS_PER_SERVER,
        player_name::NameKey,
        player_session::{BLIND_AFTER, play_time_by_hour},
        server_match::{Confidence, MatchedBy, ServerMatch},
        time::Timestamp,
    },
    relay::hub::Hub,
    tracking::worker::TrackingChanged,
};

/// Days over which play time is summed up, and most sessions in them.
const PLAY_TIME_DAYS: i64 = 30;
const PLAY_TIME_SESSIONS: i64 = 5_000;

/// A player to be tracked.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "trackerName": "Grim", "tag": "neighbour", "note": "Raids at night" }))]
pub struct CreateTracking {
    /// The player's name in the game, as others see it.
    #[garde(custom(visible_name))]
    #[schema(format = "one-line", min_length = 1, max_length = 64)]
    tracker_name: String,
    #[garde(length(chars, min = 1, max = 32), custom(one_line))]
    #[schema(format = "one-line", min_length = 1, max_length = 32)]
    tag: Option<String>,
    #[garde(length(chars, min = 1, max = 1000), custom(lines))]
    #[schema(format = "lines", min_length = 1, max_length = 1000)]
    note: Option<String>,
}

/// Changes to a tracked player: absent fields stay, `null` removes a value.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "tag": null, "platformId": "76561198000000004" }))]
pub struct UpdateTracking {
    #[serde(default, deserialize_with = "given")]
    #[garde(inner(length(chars, min = 1, max = 32), custom(one_line)))]
    #[schema(value_type = Option<String>, format = "one-line", min_length = 1, max_length = 32)]
    tag: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    #[garde(inner(length(chars, min = 1, max = 1000), custom(lines)))]
    #[schema(value_type = Option<String>, format = "lines", min_length = 1, max_length = 1000)]
    note: Option<Option<String>>,
    /// SteamID64.
    #[serde(default, deserialize_with = "given")]
    #[garde(inner(inner(custom(is_platform_id))))]
    #[schema(value_type = Option<String>, format = "steamid64")]
    platform_id: Option<Option<String>>,
}

/// A tracked player.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct TrackedPlayerView {
    id: String,
    tracker_name: String,
    tag: Option<String>,
    note: Option<String>,
    /// SteamID64, as the owner knows it.
    platform_id: Option<String>,
    /// The id of the user who tracks the player.
    author: String,
    created_at: Timestamp,
    /// As far as it is known; see `asOf` of the list.
    online: bool,
    online_since: Option<Timestamp>,
    last_seen_at: Option<Timestamp>,
}

/// The server of the player-statistics service.
#[derive(Serialize, ToSchema)]
struct MatchView {
    /// Its id there.
    id: String,
    name: String,
    /// `certain`, `likely` or `possible`.
    confidence: Confidence,
    /// The fields that match: `address`, `port`, `name`.
    by: Vec<MatchedBy>,
}

/// Knowledge of who is online.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct TrackingStatus {
    /// The server of the player-statistics service; `null`: none was found yet.
    #[serde(rename = "match")]
    matched: Option<MatchView>,
    /// When the server was looked for there.
    checked_at: Option<Timestamp>,
    /// The server hides the names of its players: no player can be tracked there.
    names_hidden: bool,
    /// When it was last known who is online.
    as_of: Option<Timestamp>,
    /// True if it is not known now: no service, no match, a service that is down, or a budget that is spent.
    stale: bool,
}

#[derive(Serialize, ToSchema)]
struct TrackedPlayerList {
    /// By name.
    players: Vec<TrackedPlayerView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
    #[serde(flatten)]
    status: TrackingStatus,
}

/// A time on the game server.
#[derive(Serialize, ToSchema)]
struct SessionView {
    from: Timestamp,
    /// When the player was last seen in it; `null`: it goes on.
    to: Option<Timestamp>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PlayerSessionList {
    /// Newest first.
    sessions: Vec<SessionView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
    online: bool,
    online_since: Option<Timestamp>,
    last_seen_at: Option<Timestamp>,
    /// Seconds of play in each hour of the day (UTC, from 0 to 23), over the last 30 days.
    #[schema(min_items = 24, max_items = 24)]
    play_time_by_hour: Vec<i64>,
    #[serde(flatten)]
    status: TrackingStatus,
}

/// Part of a player's sessions, the newest first.
#[derive(Deserialize, IntoParams, Validate)]
pub struct SessionPage {
    /// Most sessions of the page; 50 if absent.
    #[garde(range(min = 1, max = 500))]
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
    /// Only those that began earlier: the `next` of the page before.
    #[garde(skip)]
    #[param(format = DateTime)]
    before: Option<String>,
}

impl From<TrackedPlayer> for TrackedPlayerView {
    fn from(player: TrackedPlayer) -> Self {
        Self {
            id: player.id,
            tracker_name: player.tracker_name,
            tag: player.tag,
            note: player.note,
            platform_id: player.platform_id,
            author: player.author_id.to_string(),
            created_at: player.created_at,
            online: player.online_since.is_some(),
            online_since: player.online_since,
            last_seen_at: player.last_seen_at,
        }
    }
}

impl TrackingStatus {
    fn new(known: Option<StoredMatch>, context: &ApiContext) -> Self {
        let as_of = known.as_ref().and_then(|known| known.polled_at);
        let is_old = as_of.is_none_or(|as_of| context.clock.now() - as_of > BLIND_AFTER);
        let names_hidden = known.as_ref().is_some_and(|known| known.names_hidden);
        let checked_at = known.as_ref().map(|known| known.checked_at);
        let matched = known.and_then(|known| known.matched);
        let stale = context.services.tracking.is_none() || matched.is_none() || is_old;
        let matched = matched.map(|ServerMatch { id, name, confidence, by }| MatchView { id, name, confidence, by });
        Self { matched, checked_at, names_hidden, as_of, stale }
    }
}

/// The stored match of the game server at the player-statistics service.
fn known_match(db: &mut Db, server: &ServerId) -> Result<Option<StoredMatch>, DbError> {
    let paired = paired_servers::get(db, server)?;
    server_matches::get(db, &paired.address, paired.port)
}

/// The tracked players of a server, and how far it is known whether they are online.
#[utoipa::path(get, path = "/intel/{serverId}/tracking", tag = "intel",
    params(("serverId" = String, Path), ListPage), responses(
    (status = 200, body = TrackedPlayerList),
))]
pub async fn list(
    server: WatchedServer,
    Query(page): Query<ListPage>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    // In this order: a look that is stored meanwhile must not make its time that of older players.
    let read = move |db: &mut Db| Ok((known_match(db, &server.id)?, tracked_players::list(db, &server.id)?));
    let (known, players) = context.pool.read(read).await?;
    let (players, next) = page.cut(players, |player: &TrackedPlayer| ListPlace::new(0, &player.name_key))?;
    let players = players.into_iter().map(TrackedPlayerView::from).collect();
    Ok(HttpResponse::Ok().json(TrackedPlayerList { players, next, status: TrackingStatus::new(known, &context) }))
}

/// Tracks a player by name. A name that is tracked already: 409 `conflict`.
#[utoipa::path(post, path = "/intel/{serverId}/tracking", tag = "intel",
    params(("serverId" = String, Path)), request_body = CreateTracking, responses(
    (status = 201, body = TrackedPlayerView),
    (status = 403, description = "`owner_only`"),
    (status = 409, description = "`conflict`, `limit_reached`"),
))]
pub async fn create(
    server: OwnedServer,
    once: Idempotent,
    Json(new): Json<CreateTracking>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let now = context.clock.now();
    let name = new.tracker_name.trim().to_owned();
    let key = NameKey::of(&name).ok_or_else(|| ApiError::invalid("trackerName", "must have visible characters"))?;
    let new = NewTrackedPlayer {
        id: context.random.id(now),
        server: server.id.clone(),
        tracker_name: name,
        key,
        tag: new.tag,
        note: new.note,
        author: server.user.id.clone(),
    };
    let add = move |db: &mut Db, write: &PermittedWrite| {
        if tracked_players::count(db, &write.server)? >= TRACKED_PLAYERS_PER_SERVER {
            let message = format!("One server can have {TRACKED_PLAYERS_PER_SERVER} tracked players at most.");
            return Err(ApiError::LimitReached(message));
        }
        Ok((StatusCode::CREATED, TrackedPlayerView::from(tracked_players::insert(db, &new, now)?)))
    };
    let tracking = context.services.tracking.clone();
    let notify = move |_: &Addr<Hub>, server| {
        if let Some(tracking) = tracking {
            tracking.do_send(TrackingChanged { server });
        }
    };
    server.write_once(once, add, notify).await
}

/// Changes what the owner noted of a player.
#[utoipa::path(patch, path = "/intel/{serverId}/tracking/{id}", tag = "intel",
    params(("serverId" = String, Path), ("id" = String, Path)), request_body = UpdateTracking, responses(
    (status = 200, body = TrackedPlayerView),
    (status = 403, description = "`owner_only`"),
))]
pub async fn update(
    server: OwnedServer,
    ServerPart(player): ServerPart,
    Json(patch): Json<UpdateTracking>,
) -> Result<HttpResponse, ApiError> {
    let UpdateTracking { tag, note, platform_id } = patch;
    let change = TrackedPlayerChange { tag, note, platform_id };
    let update =
        move |db: &mut Db, write: &PermittedWrite| tracked_players::update(db, &write.server, &player, &change);
    Ok(HttpResponse::Ok().json(TrackedPlayerView::from(server.write(update).await?)))
}

/// Tracks a player no longer; the sessions are forgotten.
#[utoipa::path(delete, path = "/intel/{serverId}/tracking/{id}", tag = "intel",
    params(("serverId" = String, Path), ("id" = String, Path)), responses(
    (status = 200, body = Done),
    (status = 403, description = "`owner_only`"),
))]
pub async fn delete(server: OwnedServer, ServerPart(player): ServerPart) -> Result<HttpResponse, ApiError> {
    let remove = move |db: &mut Db, write: &PermittedWrite| tracked_players::delete(db, &write.server, &player);
    server.delete(remove, |_, _| ()).await
}

/// When a tracked player was on the game server.
#[utoipa::path(get, path = "/intel/{serverId}/tracking/{id}/sessions", tag = "intel",
    params(("serverId" = String, Path), ("id" = String, Path), SessionPage), responses(
    (status = 200, body = PlayerSessionList),
))]
pub async fn list_sessions(
    WatchedServer { id: server, .. }: WatchedServer,
    ServerPart(player): ServerPart,
    Query(page): Query<SessionPage>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let before = page.before.as_deref().map(|before| rfc3339("before", before)).transpose()?;
    let read = move |db: &mut Db| {
        let player = tracked_players::get(db, &server, &player)?;
        let past = player_sessions::list(db, &player.id, PLAY_TIME_SESSIONS)?;
        Ok((player, past, known_match(db, &server)?))
    };
    let (player, past, known) = context.pool.read(read).await?;
    let since = context.clock.now() - TimeDelta::days(PLAY_TIME_DAYS);
    let open = player.open_session();
    let played = past.iter().map(|session| (session.began_at, session.ended_at));
    let played = played.chain(open.map(|open| (open.began_at, open.seen_at)));
    let play_time_by_hour = play_time_by_hour(played.map(|(from, to)| (from.max(since), to))).to_vec();
    let open_view = open.map(|open| SessionView { from: open.began_at, to: None });
    let past = past.iter().map(|session| SessionView { from: session.began_at, to: Some(session.ended_at) });
    let limit = usize::try_from(page.limit.unwrap_or(50)).unwrap_or_default();
    let mut rest =
        open_view.into_iter().chain(past).filter(|session| before.is_none_or(|before| session.from < before));
    let sessions: Vec<SessionView> = rest.by_ref().take(limit).collect();
    let next = rest.next().and(sessions.last()).map(|last| last.from.to_wire());
    Ok(HttpResponse::Ok().json(PlayerSessionList {
        sessions,
        next,
        online: open.is_some(),
        online_since: player.online_since,
        last_seen_at: player.last_seen_at,
        play_time_by_hour,
        status: TrackingStatus::new(known, &context),
    }))
}
