//! Notes on the map of a paired game server: `/intel/{serverId}/map-notes/*`.

use actix::Addr;
use actix_web::{HttpResponse, http::StatusCode, web};
use chrono::TimeDelta;
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::{
        answer::{
            done::Done,
            error::ApiError,
            fields::{given, on_the_largest_map, one_line},
            list_page::{ListPage, ListPlace},
            map_places::{check_place, map_size},
        },
        context::ApiContext,
        extract::{
            idempotent::Idempotent,
            json::Json,
            paired_server::{NotedServer, PermittedWrite, ServerPart, WatchedServer},
            query::Query,
        },
    },
    db::{
        engine::pool::Db,
        map_notes::{self, NoteChange, StoredNote},
    },
    domain::{
        access::Action,
        grid::{self, GridStyle},
        limits::MAP_NOTES_PER_SERVER,
        map::NoteCategory,
        time::Timestamp,
    },
    relay::hub::{Hub, NotesChanged, ToConnection},
};

/// A note to add.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "x": 1200.5, "y": 900, "category": "raid", "label": "Two boats", "ttlSec": 3600 }))]
pub struct CreateMapNote {
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
pub struct UpdateMapNote {
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
    created_at: Timestamp,
    /// `null`: until the wipe.
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
#[utoipa::path(get, path = "/intel/{serverId}/map-notes", tag = "intel",
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
#[utoipa::path(post, path = "/intel/{serverId}/map-notes", tag = "intel",
    params(("serverId" = String, Path)), request_body = CreateMapNote, responses(
    (status = 201, body = MapNoteView),
    (status = 409, description = "`limit_reached`"),
))]
pub async fn create(
    server: NotedServer,
    once: Idempotent,
    Json(new): Json<CreateMapNote>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let now = context.clock.now();
    let note = StoredNote {
        id: context.random.id(now),
        author_id: Some(server.user.id.to_string()),
        source: "user".to_owned(),
        x: new.x,
        y: new.y,
        category: new.category.word().to_owned(),
        label: new.label,
        created_at: now,
        expires_at: new.ttl_sec.map(|seconds| now + TimeDelta::seconds(seconds)),
    };
    let add = move |db: &mut Db, PermittedWrite { server, .. }: &PermittedWrite| {
        let size = map_size(db, server)?;
        check_place(size, Some(note.x), Some(note.y))?;
        if map_notes::count(db, server)? >= MAP_NOTES_PER_SERVER {
            let message = format!("a server has at most {MAP_NOTES_PER_SERVER} map notes");
            return Err(ApiError::LimitReached(message));
        }
        map_notes::insert(db, server, &note)?;
        Ok((StatusCode::CREATED, MapNoteView::new(note, size)))
    };
    server
        .write_once(once, add, |hub, server| {
            hub.do_send(ToConnection { server, message: NotesChanged { deleted: None } })
        })
        .await
}

/// Changes a note: its author or the server's owner may. Notes of the game are changed there.
#[utoipa::path(patch, path = "/intel/{serverId}/map-notes/{id}", tag = "intel",
    params(("serverId" = String, Path), ("id" = String, Path)), request_body = UpdateMapNote, responses(
    (status = 200, body = MapNoteView),
    (status = 403, description = "`owner_only`"),
))]
pub async fn update(
    server: NotedServer,
    ServerPart(note): ServerPart,
    Json(change): Json<UpdateMapNote>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let now = context.clock.now();
    let UpdateMapNote { x, y, category, label, ttl_sec } = change;
    let expires_at = ttl_sec.map(|ttl| ttl.map(|seconds| now + TimeDelta::seconds(seconds)));
    let category = category.map(|category| category.word().to_owned());
    let change = NoteChange { x, y, category, label, expires_at };
    let edit = move |db: &mut Db, write: &PermittedWrite| {
        let before = changeable(db, write, &note, now)?;
        let size = map_size(db, &write.server)?;
        check_place(size, change.x, change.y)?;
        let note = map_notes::update(db, &write.server, &note, &change, now)?;
        let is_changed = note != before;
        Ok((MapNoteView::new(note, size), is_changed))
    };
    let notify =
        |hub: &Addr<Hub>, server| hub.do_send(ToConnection { server, message: NotesChanged { deleted: None } });
    Ok(HttpResponse::Ok().json(server.write_and_notify(edit, notify).await?))
}

/// Deletes a note: its author or the server's owner may. Notes of the game are deleted there.
#[utoipa::path(delete, path = "/intel/{serverId}/map-notes/{id}", tag = "intel",
    params(("serverId" = String, Path), ("id" = String, Path)), responses(
    (status = 200, body = Done),
    (status = 403, description = "`owner_only`"),
))]
pub async fn delete(
    server: NotedServer,
    ServerPart(note): ServerPart,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (now, deleted) = (context.clock.now(), note.clone());
    let remove = move |db: &mut Db, write: &PermittedWrite| -> Result<_, ApiError> {
        changeable(db, write, &note, now)?;
        Ok(map_notes::delete(db, &write.server, &note)?)
    };
    server
        .delete(remove, |hub, server| {
            hub.do_send(ToConnection { server, message: NotesChanged { deleted: Some(deleted) } })
        })
        .await
}

/// The note, if the caller may change it now.
fn changeable(db: &mut Db, write: &PermittedWrite, note: &str, now: Timestamp) -> Result<StoredNote, ApiError> {
    let note = map_notes::get(db, &write.server, note, now)?;
    if note.source == "game" {
        return Err(ApiError::invalid("id", "is a note of the game, which is changed in the game"));
    }
    let is_own = note.author_id.as_deref() == Some(write.user.id.as_str());
    if is_own || write.role.may(Action::Edit) { Ok(note) } else { Err(ApiError::OwnerOnly) }
}
