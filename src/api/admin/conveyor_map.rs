//! The conveyor map: the category of each item on a conveyor.

use std::sync::Arc;

use actix_web::{HttpResponse, http::StatusCode, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::items::is_shortname;
use crate::{
    api::{
        answer::{
            done::Done,
            error::{ApiError, FieldError},
            fields::{IntegerOrText, is_one_line},
            list_page::next_of,
        },
        context::ApiContext,
        extract::{admin::Admin, idempotent::Idempotent, json::Json, query::Query},
    },
    db::{
        conveyor_rows::{self, ConveyorRow},
        engine::error::DbError,
    },
    domain::{
        audit::{AdminAction, Written},
        items::Catalogue,
        limits::CONVEYOR_ROWS,
        time::Timestamp,
    },
};

/// A new row.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "itemId": "-1581843485" }))]
pub struct CreateConveyorRow {
    /// The game's item id.
    #[garde(skip)]
    #[schema(value_type = String, format = "int32-digits")]
    item_id: IntegerOrText,
}

/// The category of a row.
#[derive(Deserialize, ToSchema, Validate)]
#[schema(example = json!({ "category": "Resources" }))]
pub struct ConveyorCategory {
    #[garde(length(chars, min = 1, max = 50), custom(is_one_line))]
    #[schema(format = "one-line", min_length = 1, max_length = 50)]
    category: String,
}

/// The game's own name of an item.
#[derive(ToSchema)]
#[schema(format = "shortname", min_length = 1, max_length = 100)]
#[allow(dead_code, reason = "the shape of a text")]
struct Shortname(String);

/// The category of several rows.
#[derive(Deserialize, ToSchema, Validate)]
#[schema(example = json!({ "shortnames": ["sulfur"], "category": "Resources" }))]
pub struct ConveyorCategories {
    /// 1 to 500 of the map.
    #[garde(length(min = 1, max = 500), inner(custom(is_shortname)))]
    #[schema(value_type = Vec<Shortname>, min_items = 1, max_items = 500)]
    shortnames: Vec<String>,
    #[garde(length(chars, min = 1, max = 50), custom(is_one_line))]
    #[schema(format = "one-line", min_length = 1, max_length = 50)]
    category: String,
}

/// A page of rows.
#[derive(Deserialize, IntoParams, Validate)]
pub struct ConveyorQuery {
    /// Most rows of the page; all if absent.
    #[garde(range(min = 1, max = 500))]
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
    /// Only what comes after this short name: the `next` of the page before.
    #[garde(inner(custom(is_shortname)))]
    #[param(format = "shortname", min_length = 1, max_length = 100)]
    before: Option<String>,
}

/// An item and the category in which conveyors sort it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConveyorRowView {
    shortname: String,
    item_id: String,
    /// As in the catalogue now; the short name for an item that is no longer in it.
    #[schema(value_type = String)]
    name: Arc<str>,
    category: String,
    updated_at: Timestamp,
}

#[derive(Serialize, ToSchema)]
struct ConveyorRowList {
    /// By short name.
    rows: Vec<ConveyorRowView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

/// Rows that were changed together.
#[derive(Serialize, ToSchema)]
struct ChangedConveyorRows {
    /// As they were named.
    #[schema(max_items = 500)]
    rows: Vec<ConveyorRowView>,
}

impl ConveyorRowView {
    fn new(row: ConveyorRow, catalogue: &Catalogue) -> Self {
        let ConveyorRow { shortname, item_id, category, updated_at } = row;
        let name = catalogue.name(item_id).unwrap_or_else(|| shortname.as_str().into());
        Self { shortname, item_id: item_id.to_string(), name, category, updated_at }
    }
}

/// The conveyor map.
#[utoipa::path(get, path = "/admin/conveyor-map", tag = "admin", params(ConveyorQuery), responses(
    (status = 200, body = ConveyorRowList),
))]
pub async fn list(
    Query(ConveyorQuery { limit, before }): Query<ConveyorQuery>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let limit = limit.unwrap_or(CONVEYOR_ROWS);
    let rows = context.pool.read(move |db| conveyor_rows::list(db, before.as_deref(), limit)).await?;
    let next = next_of(&rows, limit as usize, |last| last.shortname.clone());
    let catalogue = context.caches.catalogue.current();
    let rows = rows.into_iter().map(|row| ConveyorRowView::new(row, &catalogue)).collect();
    Ok(HttpResponse::Ok().json(ConveyorRowList { rows, next }))
}

/// Adds an item to the map, in its category of the catalogue.
#[utoipa::path(post, path = "/admin/conveyor-map", tag = "admin", request_body = CreateConveyorRow,
    responses(
    (status = 201, body = ConveyorRowView),
    (status = 409, description = "`conflict`: it has a row; `limit_reached`"),
))]
pub async fn create(
    admin: Admin,
    once: Idempotent,
    Json(CreateConveyorRow { item_id }): Json<CreateConveyorRow>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let catalogue = context.caches.catalogue.current();
    let item = item_id.into_text().parse().ok().and_then(|id| catalogue.item(id)).cloned();
    let item = item.ok_or_else(|| ApiError::invalid("itemId", "is no item of the catalogue"))?;
    let target = item.shortname.clone();
    let add = move |db: &mut _, now| {
        if conveyor_rows::count(db)? >= CONVEYOR_ROWS {
            return Err(ApiError::LimitReached(format!("the map has at most {CONVEYOR_ROWS} rows")));
        }
        let (shortname, category) = (item.shortname.to_string(), item.category.to_string());
        let row = ConveyorRow { shortname, item_id: item.id, category, updated_at: now };
        conveyor_rows::insert(db, &row)?;
        let view = (StatusCode::CREATED, ConveyorRowView::new(row.clone(), &catalogue));
        Ok(Written::new(view, Value::Null, ConveyorRowView::new(row, &catalogue)))
    };
    admin.write_once(once, AdminAction::AddConveyorRow, &target, add).await
}

/// Changes the category of a row.
#[utoipa::path(put, path = "/admin/conveyor-map/{shortname}", tag = "admin",
    params(("shortname" = String, Path)), request_body = ConveyorCategory, responses(
    (status = 200, body = ConveyorRowView),
))]
pub async fn update(
    admin: Admin,
    shortname: web::Path<String>,
    Json(ConveyorCategory { category }): Json<ConveyorCategory>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (shortname, catalogue) = (shortname.into_inner(), context.caches.catalogue.current());
    let target = shortname.clone();
    let changed = admin.write(AdminAction::PutConveyorRow, &target, move |db, now| {
        let view = |row| ConveyorRowView::new(row, &catalogue);
        let before = conveyor_rows::get(db, &shortname)?;
        let after = conveyor_rows::set_category(db, &shortname, category.trim(), now)?;
        Ok(Written::new(view(after.clone()), view(before), view(after)))
    });
    Ok(HttpResponse::Ok().json(changed.await?))
}

/// Takes an item from the map.
#[utoipa::path(delete, path = "/admin/conveyor-map/{shortname}", tag = "admin",
    params(("shortname" = String, Path)), responses(
    (status = 200, body = Done),
))]
pub async fn delete(
    admin: Admin,
    shortname: web::Path<String>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (shortname, catalogue) = (shortname.into_inner(), context.caches.catalogue.current());
    let target = shortname.clone();
    let removed = admin.write(AdminAction::DeleteConveyorRow, &target, move |db, _| {
        let before = conveyor_rows::get(db, &shortname)?;
        conveyor_rows::delete(db, &shortname)?;
        Ok(Written::new((), ConveyorRowView::new(before, &catalogue), Value::Null))
    });
    removed.await?;
    Ok(HttpResponse::Ok().json(Done::OK))
}

/// Changes the category of several rows: of all, or, if one is not there, of none.
#[utoipa::path(post, path = "/admin/conveyor-map/bulk-category", tag = "admin",
    request_body = ConveyorCategories, responses(
    (status = 200, body = ChangedConveyorRows, description = "The rows that were named, as they now are"),
    (status = 400, description = "Also for a short name without a row"),
))]
pub async fn update_categories(
    admin: Admin,
    Json(ConveyorCategories { shortnames, category }): Json<ConveyorCategories>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let catalogue = context.caches.catalogue.current();
    let changed = admin.write(AdminAction::PutConveyorRows, "conveyor-map", move |db, now| {
        let (mut before, mut after, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        for (index, shortname) in shortnames.iter().enumerate() {
            match conveyor_rows::get(db, shortname) {
                Ok(row) => before.push(ConveyorRowView::new(row, &catalogue)),
                Err(DbError::NotFound) => {
                    missing.push(FieldError { path: format!("shortnames[{index}]"), message: "has no row".to_owned() })
                }
                Err(error) => return Err(error.into()),
            }
        }
        if !missing.is_empty() {
            return Err(ApiError::Invalid(missing));
        }
        for shortname in &shortnames {
            let row = conveyor_rows::set_category(db, shortname, category.trim(), now)?;
            after.push(ConveyorRowView::new(row, &catalogue));
        }
        let recorded = serde_json::json!(after);
        Ok(Written::new(after, before, recorded))
    });
    Ok(HttpResponse::Ok().json(ChangedConveyorRows { rows: changed.await? }))
}
