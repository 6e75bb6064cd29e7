//! The stores as they are sent, shared by all readers.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::{
    api::answer::{
        error::ApiError,
        etags::{self, Caching},
    },
    crypto::digest::sha256_hex,
    db::{
        engine::{
            error::DbError,
            pool::{Db, Pool},
        },
        stores::{self, StoreVersion},
    },
    domain::{stores::StoreName, time::Timestamp},
};

/// The version of what the service ships.
pub const SHIPPED: i64 = 0;

/// The content of a store.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreView {
    /// Any JSON.
    #[schema(value_type = Value)]
    pub data: Box<RawValue>,
    /// `null`: it is as it ships.
    pub updated_at: Option<Timestamp>,
}

/// A store as it is sent, and its tag.
#[derive(Clone)]
pub struct StoreAnswer {
    pub digest: String,
    pub body: Bytes,
}

/// The stores as they were last sent: all readers of one share it.
#[derive(Default)]
pub struct StoreAnswers(Mutex<HashMap<StoreName, (Option<StoreVersion>, StoreAnswer)>>);

impl StoreAnswers {
    /// The store as it is now.
    pub async fn get(&self, pool: &Pool, store: StoreName) -> Result<StoreAnswer, ApiError> {
        let newest = pool.read(move |db| stores::newest(db, store)).await?;
        if let Some((of, answer)) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&store)
            && *of == newest
        {
            return Ok(answer.clone());
        }
        let version = newest.as_ref().map_or(SHIPPED, |newest| newest.version);
        let (data, written_at) = pool.read(move |db| content(db, store, version)).await?;
        let answer = StoreAnswer::new(data, written_at)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(store, (newest, answer.clone()));
        Ok(answer)
    }
}

impl StoreAnswer {
    /// The answer with this data, JSON text.
    pub fn new(data: String, updated_at: Option<Timestamp>) -> Result<Self, ApiError> {
        let digest = digest(&data);
        let data = RawValue::from_string(data).map_err(|error| ApiError::Internal(error.into()))?;
        let body = serde_json::to_vec(&StoreView { data, updated_at }).map_err(|e| ApiError::Internal(e.into()))?;
        Ok(Self { digest, body: body.into() })
    }

    /// As an answer that is asked for again each time.
    pub fn respond(self, req: &HttpRequest, caching: Caching) -> HttpResponse {
        etags::json(req, &self.digest, caching, || self.body)
    }
}

/// The content of a version of a store, JSON text, and when it was written; `NotFound` if it is not kept.
pub fn content(db: &mut Db, store: StoreName, version: i64) -> Result<(String, Option<Timestamp>), DbError> {
    if version == SHIPPED {
        return Ok((store.shipped().to_owned(), None));
    }
    let (version, data) = stores::get(db, store, version)?;
    Ok((data, Some(version.written_at)))
}

/// The digest of a store's data.
pub fn digest(data: &str) -> String {
    sha256_hex(data.as_bytes())
}

/// The store of this name; 404 for any other.
pub fn named(name: &str) -> Result<StoreName, ApiError> {
    StoreName::parse(name).ok_or(ApiError::NotFound)
}
