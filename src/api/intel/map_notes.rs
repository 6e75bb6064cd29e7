//! Notes on the map of a paired game server: `/intel/{serverId}/map-notes/*`.

use actix_web::{HttpResponse, http::StatusCode, web};
use chrono::TimeDelta;
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::{
        answer::{
            done::Done,
            error::{ApiError, Problem},
            fields::{given, on_the_largest_map, one_line},
            list_page::{ListPage, ListPlace},
            map_places::{check_place, map_size},
        },
        context::ApiContext,
        extract::{
            idempotent::{Idempotent, KeyCaller, ReplayableAnswer},
            json::Json,
            paired_server::WatchedServer,
            query::Query,
        },
    },
    db::{
        access,
        engine::pool::Db,
        map_notes::{self, NoteChange, StoredNote},
        paired_servers,
    },
    domain::{
        access::Action,
        grid::{self, GridStyle},
        ids::{ServerId, UserId},
        limits::MAP_NOTES_PER_SERVER,
        time::{self, Timestamp},
    },
    relay::hub::NotesChanged,
};

/// Categories of users' notes; `death` is the detector's.
#[derive(Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum NoteCategory {
    Raid,
    Friendly,
    Enemy,
    Farm,
    Stash,
    Sulfur,
    Warning,
    Sam,
}

impl NoteCategory {
    fn word(self) -> &'static str {
        match self {
            Self::Raid => "raid",
            Self::Friendly => "friendly",
            Self::Enemy => "enemy",
            Self::Farm => "farm",
            Self::Stash => "stash",
            Self::Sulfur => "sulfur",
            Self::Warning => "warning",
            Self::Sam => "sam",
        }
    }
}

/// A note to add.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "x": 1200.5, "y": 900, "category": "raid", "label": "Two boats", "ttlSec": 3600 }))]
pub struct NewMapNote {
    /// Metres from the south-west corner, at most 500 beyond the map.
    #[garde(custom(on_the_largest_map))]
    #[schema(minimum = -500, maximum = 20_500)]
    x: f64,
    #[garde(custom(on_the_largest_map))]
    #[schema(minimum = -500, maximum = 20_500)]
    y: f64,
    #[garde(skip)]
    category: NoteCategory,
    #[garde(length(chars, min = 1, max = 100), custom(one_line))]
    #[schema(format = "one-line", min_length = 1, max_length = 100)]
    label: Option<String>,
    /// Seconds until it expires; absent: until the wipe.
    #[garde(range(min = 1, max = 2_592_000))]
    #[schema(minimum = 1, maximum = 2_592_000)]
    ttl_sec: Option<i64>,
}

/// Changes to a note; absent fields stay.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "label": "Three boats", "ttlSec": null }))]
pub struct MapNoteChange {
    #[garde(inner(custom(on_the_largest_map)))]
    #[schema(minimum = -500, maximum = 20_500)]
    x: Option<f64>,
    #[garde(inner(custom(on_the_largest_map)))]
    #[schema(minimum = -500, maximum = 20_500)]
    y: Option<f64>,
    #[garde(skip)]
    category: Option<NoteCategory>,
    /// `null`: removes the label.
    #[garde(inner(length(chars, min = 1, max = 100), custom(one_line)))]
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, format = "one-line", min_length = 1, max_length = 100)]
    label: Option<Option<String>>,
    /// Seconds from now until it expires; `null`: until the wipe.
    #[garde(inner(inner(range(min = 1, max = 2_592_000))))]
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 2_592_000)]
    ttl_sec: Option<Option<i64>>,
}

/// A note on the map.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct MapNoteView {
    id: String,
    /// Metres from the south-west corner.
    x: f64,
    y: f64,
    /// `""` while the size of the map is not known.
    grid: String,
    /// `raid`, `friendly`, `enemy`, `farm`, `stash`, `sulfur`, `warning`, `sam`, or `death` (by the detector).
    #[schema(format = "note-category")]
    category: String,
    label: Option<String>,
    /// User id; `null`: no user's.
    author: Option<String>,
    /// `user`, `detector`, or `game`: placed in the game by the team or its leader, as last seen, and changed only there.
    #[schema(format = "note-source")]
    source: String,
    #[serde(serialize_with = "time::wire")]
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// `null`: until the wipe.
    #[serde(serialize_with = "time::wire_option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
}

#[derive(Serialize, ToSchema)]
struct MapNoteList {
    /// Oldest first.
    notes: Vec<MapNoteView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

impl MapNoteView {
    fn new(note: StoredNote, map_size: u32) -> Self {
        let StoredNote { id, author_id: author, source, x, y, category, label, created_at, expires_at } = note;
        let grid = grid::label(GridStyle::InGame, map_size, x, y);
        Self { id, x, y, grid, category, label, author, source, created_at, expires_at }
    }
}

/// The notes on the map of a paired server, as the relay's `state.mapNotes` has them: those of users, those of deaths, and
/// those that the team has placed in the game.
#[utoipa::path(get, path = "/intel/{serverId}/map-notes", tag = "intel", security(("session" = [])),
    params(("serverId" = String, Path), ListPage), responses(
    (status = 200, body = MapNoteList),
))]
pub async fn list(
    WatchedServer { id, .. }: WatchedServer,
    Query(page): Query<ListPage>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let now = context.clock.now();
    let read = move |db: &mut Db| Ok((map_notes::list(db, &id, now)?, map_size(db, &id)?));
    let (notes, size) = context.pool.read(read).await?;
    let notes = notes.into_iter().map(|note| MapNoteView::new(note, size)).collect();
    let (notes, next) = page.cut(notes, |note: &MapNoteView| ListPlace::oldest_first(note.created_at, &note.id))?;
    Ok(HttpResponse::Ok().json(MapNoteList { notes, next }))
}

/// Adds a note; it is shown to everyone who watches the server.
#[utoipa::path(post, path = "/intel/{serverId}/map-notes", tag = "intel", security(("session" = [])),
    params(("serverId" = String, Path)), request_body = NewMapNote, responses(
    (status = 201, body = MapNoteView),
    (status = 409, body = Problem, content_type = "application/problem+json", description = "`limit_reached`"),
))]
pub async fn add(
    server: WatchedServer,
    once: Idempotent,
    Json(new): Json<NewMapNote>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let WatchedServer { user, id: server, .. } = permitted(server)?;
    let now = context.clock.now();
    let note = StoredNote {
        id: context.random.id(now),
        author_id: Some(user.id.to_string()),
        source: "user".to_owned(),
        x: new.x,
        y: new.y,
        category: new.category.word().to_owned(),
        label: new.label,
        created_at: now,
        expires_at: new.ttl_sec.map(|seconds| now + TimeDelta::seconds(seconds)),
    };
    let (id, caller) = (server.clone(), user.id.clone());
    let add = move |db: &mut Db| {
        paired_servers::lock(db, &id)?;
        access::required(db, &user.id, &id)?;
        let size = map_size(db, &id)?;
        check_place(size, Some(note.x), Some(note.y))?;
        if map_notes::count(db, &id)? >= MAP_NOTES_PER_SERVER {
            let message = format!("a server has at most {MAP_NOTES_PER_SERVER} map notes");
            return Err(ApiError::LimitReached(message));
        }
        map_notes::insert(db, &id, &note)?;
        Ok((ReplayableAnswer::new(StatusCode::CREATED, &MapNoteView::new(note, size)), ()))
    };
    let hub = context.hub.clone();
    once.write(KeyCaller::User(caller), add, move |()| hub.do_send(NotesChanged { server, deleted: None })).await
}

/// Changes a note: its author or the server's owner may. Notes of the game are changed there.
#[utoipa::path(patch, path = "/intel/{serverId}/map-notes/{id}", tag = "intel", security(("session" = [])),
    params(("serverId" = String, Path), ("id" = String, Path)), request_body = MapNoteChange, responses(
    (status = 200, body = MapNoteView),
    (status = 403, body = Problem, content_type = "application/problem+json", description = "`owner_only`"),
))]
pub async fn edit(
    server: WatchedServer,
    path: web::Path<(String, String)>,
    Json(change): Json<MapNoteChange>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let WatchedServer { user, id: server, .. } = permitted(server)?;
    let ((_, note), now) = (path.into_inner(), context.clock.now());
    let MapNoteChange { x, y, category, label, ttl_sec } = change;
    let expires_at = ttl_sec.map(|ttl| ttl.map(|seconds| (now + TimeDelta::seconds(seconds)).naive_utc()));
    let category = category.map(|category| category.word().to_owned());
    let change = NoteChange { x, y, category, label, expires_at };
    let id = server.clone();
    let edit = move |db: &mut Db| -> Result<_, ApiError> {
        may_change(db, &user.id, &id, &note, now)?;
        let size = map_size(db, &id)?;
        check_place(size, change.x, change.y)?;
        let note = map_notes::update(db, &id, &note, &change, now)?;
        Ok(MapNoteView::new(note, size))
    };
    let hub = context.hub.clone();
    let tell = move |_: &_| hub.do_send(NotesChanged { server, deleted: None });
    let changed = context.pool.write_and_tell(edit, tell).await?;
    Ok(HttpResponse::Ok().json(changed))
}

/// Deletes a note: its author or the server's owner may. Notes of the game are deleted there.
#[utoipa::path(delete, path = "/intel/{serverId}/map-notes/{id}", tag = "intel", security(("session" = [])),
    params(("serverId" = String, Path), ("id" = String, Path)), responses(
    (status = 200, body = Done),
    (status = 403, body = Problem, content_type = "application/problem+json", description = "`owner_only`"),
))]
pub async fn remove(
    server: WatchedServer,
    path: web::Path<(String, String)>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let WatchedServer { user, id: server, .. } = permitted(server)?;
    let ((_, note), now) = (path.into_inner(), context.clock.now());
    let (id, deleted) = (server.clone(), note.clone());
    let remove = move |db: &mut Db| -> Result<_, ApiError> {
        may_change(db, &user.id, &id, &note, now)?;
        Ok(map_notes::delete(db, &id, &note)?)
    };
    let hub = context.hub.clone();
    let tell = move |_: &_| hub.do_send(NotesChanged { server, deleted: Some(deleted) });
    context.pool.write_and_tell(remove, tell).await?;
    Ok(HttpResponse::Ok().json(Done::OK))
}

fn permitted(server: WatchedServer) -> Result<WatchedServer, ApiError> {
    if server.role.may(Action::AddNote) { Ok(server) } else { Err(ApiError::OwnerOnly) }
}

/// Checks that this user may change the note now.
fn may_change(db: &mut Db, user: &UserId, server: &ServerId, note: &str, now: Timestamp) -> Result<(), ApiError> {
    let role = access::required(db, user, server)?;
    let note = map_notes::get(db, server, note, now)?;
    if note.source == "game" {
        return Err(ApiError::invalid("id", "is a note of the game, which is changed in the game"));
    }
    let is_own = note.author_id.as_deref() == Some(user.as_str());
    if is_own || role.may(Action::Edit) { Ok(()) } else { Err(ApiError::OwnerOnly) }
}
