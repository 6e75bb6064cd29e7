//! The game's items: admins' edits over the embedded catalogue.

use std::collections::BTreeSet;

use actix_multipart::Multipart;
use actix_web::{HttpRequest, HttpResponse, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        admin::upload,
        answer::{
            done::Done,
            error::ApiError,
            fields::is_one_line,
            list_page::{ListPage, ListPlace},
        },
        caches::{
            image_uploads::{ImageForm, ImageLocation},
            item_responses::{ItemList, ItemView},
        },
        context::ApiContext,
        extract::{admin::Admin, json::Json, query::Query},
    },
    db::{edited_items, images},
    domain::{
        audit::{AdminAction, Written},
        image_name::ImageName,
        item_search,
        items::{Catalogue, ItemEdit},
        limits::{EDITED_ITEMS, ICON_EDGE},
    },
};

/// Results of a search when no `limit` is given.
const RESULTS: usize = 20;

/// An admin's edit of an item.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "name": "Sulfur", "category": "Resources" }))]
pub struct ItemBody {
    /// The game's own name. For an item of the embedded catalogue it is known, and cannot be another.
    #[garde(inner(custom(is_shortname)))]
    #[schema(format = "shortname", min_length = 1, max_length = 100)]
    shortname: Option<String>,
    #[garde(length(chars, min = 1, max = 100), custom(is_one_line))]
    #[schema(format = "one-line", min_length = 1, max_length = 100)]
    name: String,
    #[garde(length(chars, min = 1, max = 50), custom(is_one_line))]
    #[schema(format = "one-line", min_length = 1, max_length = 50)]
    category: String,
    /// The `url` of an uploaded icon.
    #[garde(length(max = 500))]
    #[schema(max_length = 500)]
    icon_url: Option<String>,
    #[garde(range(min = 1, max = 1_000_000))]
    #[schema(minimum = 1, maximum = 1_000_000)]
    stack_size: Option<u32>,
}

/// Validates the game's own name of an item.
pub fn is_shortname(text: &str, _: &()) -> garde::Result {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._- ".contains(&byte);
    match (1..=100).contains(&text.len()) && text.bytes().all(plain) && text.trim() == text {
        true => Ok(()),
        false => Err(garde::Error::new("must be 1 to 100 of a-z, 0-9, dots, hyphens, underscores and spaces within")),
    }
}

/// Words to look for in the catalogue, and the size of the answer.
#[derive(Deserialize, IntoParams, Validate)]
pub struct ItemSearch {
    /// Words of a name or short name, or an id.
    #[garde(length(chars, max = 100))]
    #[param(max_length = 100)]
    #[serde(default)]
    q: String,
    /// 1..100, 20 when absent.
    #[garde(range(min = 1, max = 100))]
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
    /// Only what comes after the page before: its `next`.
    #[garde(length(max = 1_024))]
    #[param(max_length = 1_024, format = "cursor")]
    before: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct ItemResults {
    /// The best match first.
    results: Vec<ItemView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

/// All items: those of the embedded catalogue as admins changed them, and those that admins added.
#[utoipa::path(get, path = "/admin/items", tag = "admin", params(ListPage), responses(
    (status = 200, body = ItemList),
))]
pub async fn list(Query(page): Query<ListPage>, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    Ok(HttpResponse::Ok().json(ItemList::page(&page, &context.caches.catalogue.current(), &context.settings.urls)?))
}

/// Looks for items: exact matches first, then names that begin so, words, beginnings of words, and parts.
#[utoipa::path(get, path = "/admin/items-search", tag = "admin", params(ItemSearch), responses(
    (status = 200, body = ItemResults),
))]
pub async fn search(
    Query(ItemSearch { q, limit, before }): Query<ItemSearch>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let found = item_search::ranked(&context.caches.catalogue.current().all(), &q);
    let (found, next) = ListPage::new(limit.unwrap_or(RESULTS), before)
        .cut(found, |(rank, item)| ListPlace::new(*rank, format!("{}  {}", item.name, item.id)))?;
    let results = found.iter().map(|(_, item)| ItemView::new(item, &context.settings.urls)).collect();
    Ok(HttpResponse::Ok().json(ItemResults { results, next }))
}

/// Writes an item of the embedded catalogue or a further one. Everyone sees it at once, wherever the item is named.
#[utoipa::path(put, path = "/admin/items/{id}", tag = "admin",
    params(("id" = String, Path, description = "The game's item id")), request_body = ItemBody, responses(
    (status = 200, body = ItemView),
    (status = 404, description = "No item has such an id"),
    (status = 409, description = "`conflict`: another item has the short name; `limit_reached`"),
))]
pub async fn update(
    admin: Admin,
    id: web::Path<String>,
    Json(body): Json<ItemBody>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let id = item_id(&id)?;
    let (said, target) = (edit(id, body, &context)?, id.to_string());
    let written = admin.write(AdminAction::PutItem, &target, move |db, now| {
        let before = edited_items::find(db, id)?;
        if before.is_none() && edited_items::count(db)? >= EDITED_ITEMS {
            return Err(ApiError::LimitReached(format!("at most {EDITED_ITEMS} items are edited or added")));
        }
        let icon = said.icon.as_deref().and_then(ImageName::parse);
        let mut unused: BTreeSet<ImageName> = images::release(db, &image_user(id), now)?.into_iter().collect();
        if let Some(icon) = icon {
            if !images::use_by(db, &icon, &image_user(id))? {
                return Err(ApiError::invalid("iconUrl", "is no uploaded icon"));
            }
            unused.remove(&icon);
        }
        edited_items::put(db, &said, now)?;
        Ok(Written::new(unused, described(before.as_ref()), described(Some(&said))))
    });
    let unused = written.await?;
    refresh(&context).await;
    context.caches.images.delete_unused(&context.pool, unused.into_iter().collect()).await;
    let catalogue = context.caches.catalogue.current();
    let item = catalogue.item(id).ok_or_else(|| ApiError::Unavailable("the catalogue is not up to date".into()))?;
    Ok(HttpResponse::Ok().json(ItemView::new(item, &context.settings.urls)))
}

/// Takes back the admins' edit of an item: one of the embedded catalogue is as it was, another one is gone. Its icon is
/// deleted if nothing else uses it.
#[utoipa::path(delete, path = "/admin/items/{id}", tag = "admin",
    params(("id" = String, Path, description = "The game's item id")), responses(
    (status = 200, body = Done),
    (status = 404, description = "No admin said anything of it"),
))]
pub async fn delete(
    admin: Admin,
    id: web::Path<String>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let id = item_id(&id)?;
    let target = id.to_string();
    let removed = admin.write(AdminAction::DeleteItem, &target, move |db, now| {
        let before = edited_items::find(db, id)?;
        edited_items::delete(db, id)?;
        let unused = images::release(db, &image_user(id), now)?;
        Ok(Written::new(unused, described(before.as_ref()), Value::Null))
    });
    let unused = removed.await?;
    refresh(&context).await;
    context.caches.images.delete_unused(&context.pool, unused).await;
    Ok(HttpResponse::Ok().json(Done::OK))
}

/// Takes an icon. It is deleted after a day in which no item uses it.
#[utoipa::path(post, path = "/admin/items/upload-icon", tag = "admin",
    request_body(content = ImageForm, content_type = "multipart/form-data"), responses(
    (status = 201, body = ImageLocation),
    (status = 400,
        description = "`invalid_request`; `invalid_image`: no PNG or WebP, broken, or more than 1024 pixels wide or high"),
    (status = 408, description = "It took more than 30 s"),
    (status = 413, description = "The file has more than 5 MB"),
))]
pub async fn upload_icon(admin: Admin, req: HttpRequest, form: Multipart) -> Result<HttpResponse, ApiError> {
    upload::upload(admin, &req, form, ICON_EDGE).await
}

fn item_id(text: &str) -> Result<i32, ApiError> {
    text.parse().map_err(|_| ApiError::NotFound)
}

/// The edit in this body, checked against the embedded catalogue.
fn edit(id: i32, body: ItemBody, context: &ApiContext) -> Result<ItemEdit, ApiError> {
    let ItemBody { shortname, name, category, icon_url, stack_size } = body;
    let shortname = match (Catalogue::embedded().item(id), shortname) {
        (Some(item), Some(shortname)) if *shortname != *item.shortname => {
            return Err(ApiError::invalid("shortname", format!("must be {}, as in the game", item.shortname)));
        }
        (Some(item), _) => item.shortname.to_string(),
        (None, None) => return Err(ApiError::invalid("shortname", "is required")),
        (None, Some(shortname)) if Catalogue::embedded().by_shortname(&shortname).is_some() => {
            return Err(ApiError::Conflict);
        }
        (None, Some(shortname)) => shortname,
    };
    let icon = match icon_url {
        None => None,
        Some(url) => {
            let own = |name: &ImageName| url == name.path() || url == context.settings.urls.base.at(&name.path());
            let name = ImageName::of_url(&url).filter(own);
            Some(name.ok_or_else(|| ApiError::invalid("iconUrl", "is no uploaded icon"))?.to_string())
        }
    };
    let (name, category) = (name.trim().to_owned(), category.trim().to_owned());
    Ok(ItemEdit { id, shortname, name, category, stack_size, icon })
}

/// The name under which an item uses its icon.
fn image_user(id: i32) -> String {
    format!("item:{id}")
}

/// The edit as the audit log shows it.
fn described(edit: Option<&ItemEdit>) -> Value {
    edit.map_or(Value::Null, |edit| {
        let ItemEdit { id, shortname, name, category, stack_size, icon } = edit;
        json!({
            "id": id.to_string(), "shortname": shortname, "name": name, "category": category, "stackSize": stack_size,
            "icon": icon,
        })
    })
}

/// The change is stored; if it cannot be read now, it will be in a few seconds.
async fn refresh(context: &ApiContext) {
    if let Err(error) = context.caches.catalogue.refresh().await {
        log::warn!("the catalogue of items is not up to date yet: {error}");
    }
}
