//! The game's items as they are sent.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    api::answer::{
        error::ApiError,
        list_page::{ListPage, ListPlace},
    },
    config::PublicUrls,
    crypto::digest::sha256_hex,
    domain::{
        image_name::ImageName,
        items::{Catalogue, CatalogueItem, ItemSource},
    },
};

/// An item of the game's catalogue.
#[derive(Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ItemView {
    /// The game's item id.
    id: String,
    /// The game's own name, such as `rifle.ak`.
    #[schema(value_type = String)]
    shortname: Arc<str>,
    #[schema(value_type = String)]
    name: Arc<str>,
    /// `""`: none.
    #[schema(value_type = String)]
    category: Arc<str>,
    /// `null`: it has no icon.
    icon_url: Option<String>,
    /// Pieces that one slot holds; `null`: not known.
    stack_size: Option<u32>,
    /// `catalogue` or `admin`: the source of these values.
    source: ItemSource,
}

/// A page of items.
#[derive(Serialize, ToSchema)]
pub struct ItemList {
    /// By name.
    items: Vec<ItemView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

impl ItemList {
    /// This page of all items.
    pub fn page(page: &ListPage, catalogue: &Catalogue, urls: &PublicUrls) -> Result<Self, ApiError> {
        let (found, next) =
            page.cut(catalogue.all(), |item| ListPlace::new(0, format!("{}  {}", item.name, item.id)))?;
        Ok(Self { items: found.iter().map(|item| ItemView::new(item, urls)).collect(), next })
    }
}

impl ItemView {
    /// As it is in the catalogue.
    pub fn new(item: &CatalogueItem, urls: &PublicUrls) -> Self {
        let icon = item.icon.as_deref().and_then(ImageName::parse);
        Self {
            id: item.id.to_string(),
            shortname: item.shortname.clone(),
            name: item.name.clone(),
            category: item.category.clone(),
            icon_url: icon.map(|icon| urls.base.at(&icon.path())),
            stack_size: item.stack_size,
            source: item.source,
        }
    }
}

/// All items as they were last sent: all readers share the bytes.
#[derive(Default)]
pub struct ItemsAnswer(Mutex<Option<SentItems>>);

/// The version of the catalogue, the digest and the body.
#[derive(Clone)]
pub struct SentItems {
    version: i64,
    pub digest: String,
    pub body: Bytes,
}

impl ItemsAnswer {
    /// All items of this catalogue.
    pub fn get(&self, catalogue: &Catalogue, urls: &PublicUrls) -> Result<SentItems, ApiError> {
        let version = catalogue.version();
        let mut sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sent) = sent.as_ref().filter(|sent| sent.version == version) {
            return Ok(sent.clone());
        }
        let all = ItemList::page(&ListPage::default(), catalogue, urls)?;
        let body = serde_json::to_vec(&all).map_err(|error| ApiError::Internal(error.into()))?;
        let fresh = SentItems { version, digest: sha256_hex(&body), body: body.into() };
        *sent = Some(fresh.clone());
        Ok(fresh)
    }
}
