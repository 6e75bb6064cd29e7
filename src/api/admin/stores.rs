//! The stores: read, written, and put back to an earlier version.

use actix_web::{HttpRequest, HttpResponse, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};
use utoipa::ToSchema;

use crate::{
    api::{
        answer::{
            error::ApiError,
            etags::{self, Caching, Precondition},
        },
        caches::store_responses::{SHIPPED, StoreAnswer, StoreView, content, digest, named},
        context::ApiContext,
        extract::{admin::Admin, json::Json},
    },
    db::{
        engine::pool::Db,
        stores::{self, StoreVersion},
    },
    domain::{
        audit::{AdminAction, Written},
        ids::PlatformId,
        limits::{LARGEST_NUMBER, STORE_BYTES},
        stores::{StoreName, check_data},
        time::Timestamp,
    },
};

/// The new content of a store.
#[derive(Deserialize, ToSchema, Validate)]
#[schema(example = json!({ "data": { "entries": [] } }))]
pub struct UpdateStore {
    /// Any JSON of at most 1 MiB.
    #[garde(custom(can_be_data))]
    #[schema(value_type = Value)]
    data: Box<RawValue>,
}

fn can_be_data(data: &RawValue, _: &()) -> garde::Result {
    check_data(data.get(), STORE_BYTES).map_err(garde::Error::new)
}

/// Which version a store or page is to have again.
#[derive(Deserialize, ToSchema, Validate)]
#[schema(example = json!({ "version": 0 }))]
pub struct StoreRestore {
    /// 0: what the service ships.
    #[garde(range(min = 0, max = LARGEST_NUMBER))]
    #[schema(minimum = 0, maximum = 2_147_483_647)]
    version: i64,
}

/// A store, without its data.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct StoreSummary {
    name: StoreName,
    /// 0: as it ships.
    version: i64,
    bytes: i64,
    updated_at: Option<Timestamp>,
    /// Platform id.
    updated_by: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct StoreList {
    #[schema(max_items = 4)]
    stores: Vec<StoreSummary>,
}

#[derive(Serialize, ToSchema)]
struct StoreVersionList {
    /// Newest first; the last one, 0, is what the service ships.
    #[schema(max_items = 21)]
    versions: Vec<StoreSummary>,
}

impl StoreSummary {
    fn of(name: StoreName, version: Option<StoreVersion>) -> Self {
        match version {
            Some(StoreVersion { version, bytes, written_at, written_by, .. }) => {
                Self { name, version, bytes, updated_at: Some(written_at), updated_by: Some(written_by) }
            }
            None => {
                let bytes = name.shipped().len() as i64;
                Self { name, version: SHIPPED, bytes, updated_at: None, updated_by: None }
            }
        }
    }
}

/// All stores.
#[utoipa::path(get, path = "/admin/stores", tag = "admin", responses(
    (status = 200, body = StoreList),
))]
pub async fn list(context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let read = |db: &mut Db| {
        StoreName::ALL.into_iter().map(|store| Ok(StoreSummary::of(store, stores::newest(db, store)?))).collect()
    };
    let stores = context.pool.read(read).await?;
    Ok(HttpResponse::Ok().json(StoreList { stores }))
}

/// A store.
#[utoipa::path(get, path = "/admin/store/{name}", tag = "admin",
    params(("name" = String, Path, description = "`messages`, `crafting`, `raid` or `faq`")), responses(
    (status = 200, body = StoreView, headers(("ETag" = String))),
    (status = 304, description = "The client has it"),
))]
pub async fn get(
    name: web::Path<String>,
    req: HttpRequest,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let answer = context.caches.store_responses.get(&context.pool, named(&name)?).await?;
    Ok(answer.respond(&req, Caching::Private))
}

/// Writes a store. Everybody sees it at once.
#[utoipa::path(put, path = "/admin/store/{name}", tag = "admin",
    params(("name" = String, Path), ("if-match" = Option<String>, Header, description = "The `ETag` of what is changed"),
        ("if-none-match" = Option<String>, Header, description = "`*`: only if there is none")),
    request_body = UpdateStore, responses(
    (status = 200, body = StoreView, headers(("ETag" = String))),
    (status = 412, description = "`conflict`: it was changed since"),
))]
pub async fn update(
    admin: Admin,
    name: web::Path<String>,
    precondition: Precondition,
    Json(UpdateStore { data }): Json<UpdateStore>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let store = named(&name)?;
    let by = admin.platform_id.clone();
    let change = move |db: &mut Db, now| write(db, store, Box::<str>::from(data).into(), &precondition, &by, now);
    write_and_notify(&admin, &context, AdminAction::PutStore, store, change).await
}

/// The versions of a store that are kept.
#[utoipa::path(get, path = "/admin/store/{name}/versions", tag = "admin",
    params(("name" = String, Path)), responses(
    (status = 200, body = StoreVersionList),
))]
pub async fn list_versions(name: web::Path<String>, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let store = named(&name)?;
    let kept = context.pool.read(move |db| stores::versions(db, store)).await?;
    let versions = kept.into_iter().map(Some).chain([None]).map(|version| StoreSummary::of(store, version)).collect();
    Ok(HttpResponse::Ok().json(StoreVersionList { versions }))
}

/// The content of a version of a store.
#[utoipa::path(get, path = "/admin/store/{name}/versions/{version}", tag = "admin",
    params(("name" = String, Path), ("version" = i64, Path, minimum = 0, maximum = 2_147_483_647, description = "0: what the service ships")),
    responses(
    (status = 200, body = StoreView),
))]
pub async fn get_version(
    path: web::Path<(String, i64)>,
    req: HttpRequest,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (name, version) = path.into_inner();
    let store = named(&name)?;
    let (data, at) = context.pool.read(move |db| content(db, store, version)).await?;
    Ok(StoreAnswer::new(data, at)?.respond(&req, Caching::Private))
}

/// Puts a store back to an earlier version, as a new one.
#[utoipa::path(post, path = "/admin/store/{name}/restore", tag = "admin",
    params(("name" = String, Path), ("if-match" = Option<String>, Header, description = "The `ETag` of what is changed"),
        ("if-none-match" = Option<String>, Header, description = "`*`: only if there is none")),
    request_body = StoreRestore, responses(
    (status = 200, body = StoreView, headers(("ETag" = String))),
    (status = 404, description = "No such store, or the version is not kept"),
    (status = 412, description = "`conflict`: it was changed since"),
))]
pub async fn restore(
    admin: Admin,
    name: web::Path<String>,
    precondition: Precondition,
    Json(StoreRestore { version }): Json<StoreRestore>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let store = named(&name)?;
    let by = admin.platform_id.clone();
    let change = move |db: &mut Db, now| {
        let (data, _) = content(db, store, version)?;
        write(db, store, data, &precondition, &by, now)
    };
    write_and_notify(&admin, &context, AdminAction::RestoreStore, store, change).await
}

/// Carries out the change of a store. The team's chat has its texts in memory.
async fn write_and_notify(
    admin: &Admin,
    context: &ApiContext,
    action: AdminAction,
    store: StoreName,
    change: impl FnOnce(&mut Db, Timestamp) -> Result<Written<(String, Timestamp)>, ApiError> + Send + 'static,
) -> Result<HttpResponse, ApiError> {
    let texts = context.services.chat_texts.clone();
    let notify = move |_: &(String, Timestamp)| {
        if store == StoreName::Messages {
            texts.written();
        }
    };
    answer(admin.write_and_notify(action, store.word(), change, notify).await?)
}

/// Writes the next version. The audit log has its number; its content is among the versions.
fn write(
    db: &mut Db,
    store: StoreName,
    data: String,
    precondition: &Precondition,
    by: &PlatformId,
    now: Timestamp,
) -> Result<Written<(String, Timestamp)>, ApiError> {
    let before = stores::newest(db, store)?;
    let known = before.as_ref().map_or_else(|| digest(store.shipped()), |before| before.digest.clone());
    precondition.check(Some(&known))?;
    let after = stores::put(db, store, &data, &digest(&data), by, now)?;
    let described =
        |version: i64, bytes: i64, digest: &str| json!({ "version": version, "bytes": bytes, "sha256": digest });
    let before = before.map_or_else(
        || described(SHIPPED, store.shipped().len() as i64, &known),
        |before| described(before.version, before.bytes, &before.digest),
    );
    Ok(Written::new((data, now), before, described(after.version, after.bytes, &after.digest)))
}

/// The store as it now is.
fn answer((data, at): (String, Timestamp)) -> Result<HttpResponse, ApiError> {
    let StoreAnswer { digest, body } = StoreAnswer::new(data, Some(at))?;
    let tag = etags::tag(&digest).to_string();
    Ok(HttpResponse::Ok().insert_header(("etag", tag)).content_type("application/json").body(body))
}
