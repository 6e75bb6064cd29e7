//! Uploaded images: received, stored, and deleted when nothing uses them.

use std::{sync::Arc, time::Duration};

use actix_multipart::{Field, Multipart, MultipartError};
use actix_web::{HttpMessage as _, HttpRequest, http::header, web};
use chrono::TimeDelta;
use futures_util::TryStreamExt as _;
use serde::Serialize;
use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use utoipa::ToSchema;

use crate::{
    api::answer::error::ApiError,
    crypto::digest::sha256_hex,
    db::{
        engine::{pool::Pool, query_failures::log_failure},
        images::{self, UploadedImage},
    },
    domain::{
        image_name::ImageName,
        limits::{IMAGE_BYTES, UNUSED_IMAGE_HOURS, UPLOAD_DEADLINE},
        time::Timestamp,
    },
    net::http_service::{BodyDeadline, is_late},
    uploads::{
        ImageStore, ImageStoreError, KeptImage,
        picture::{self, CleanPicture},
    },
};

/// Files that are received at once, so that a few slow ones do not block others; those that are decoded, and the
/// longest wait of one more.
const RECEIVED_AT_ONCE: usize = 8;
const DECODED_AT_ONCE: usize = 2;
const TURN_DEADLINE: Duration = Duration::from_secs(3);
/// Unused images that are deleted at once.
const SWEPT_AT_ONCE: i64 = 50;
/// The name of the part of the form that is the file.
const FILE: &str = "file";

/// A file that was uploaded, before anything is done with it.
#[derive(ToSchema)]
#[allow(dead_code, reason = "it is the shape of a form")]
pub struct ImageForm {
    /// A PNG or WebP image of at most 5 MB.
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
}

/// Address of an image.
#[derive(Serialize, ToSchema)]
pub struct ImageLocation {
    /// Other bytes have another URL: its content never changes.
    pub url: String,
}

/// Takes, shows and deletes images.
pub struct Images {
    store: ImageStore,
    receiving: Arc<Semaphore>,
    decoding: Arc<Semaphore>,
    /// Held while an image is stored or deleted: neither happens to the same one at once.
    changing: Mutex<()>,
}

impl Images {
    pub(crate) fn new(store: ImageStore) -> Self {
        let [receiving, decoding] = [RECEIVED_AT_ONCE, DECODED_AT_ONCE].map(|turns| Arc::new(Semaphore::new(turns)));
        Self { store, receiving, decoding, changing: Mutex::default() }
    }

    /// Where they are kept.
    pub fn store(&self) -> &ImageStore {
        &self.store
    }

    /// Receives the file of a form and encodes it again. Nothing is stored yet.
    pub async fn receive(&self, req: &HttpRequest, form: Multipart, longest: u32) -> Result<CleanPicture, ApiError> {
        let receiving = turn(&self.receiving).await?;
        // For admins on slow lines; the caller is known to be one here.
        BodyDeadline::extend(&req.extensions(), UPLOAD_DEADLINE);
        let announced = req.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if announced.is_some_and(|length: usize| length > IMAGE_BYTES + FORM_BYTES) {
            return Err(ApiError::BodyTooLarge);
        }
        let file = file_of(form).await?;
        let decoding = turn(&self.decoding).await?;
        // The permits go along: the work goes on when the caller stops waiting.
        let cleaned = web::block(move || {
            let _turns = (receiving, decoding);
            picture::clean(&file, longest)
        });
        let cleaned = cleaned.await.map_err(|error| ApiError::Internal(error.into()))?;
        cleaned.map_err(|error| ApiError::InvalidImage(error.to_string()))
    }

    /// The image of this name; `None` if there is none.
    pub async fn get(&self, name: &ImageName) -> Result<Option<KeptImage>, ApiError> {
        Ok(self.store.get(name).await?)
    }

    /// Stores an image. Nothing uses it yet.
    pub async fn keep(&self, pool: &Pool, cleaned: CleanPicture, now: Timestamp) -> Result<ImageName, ApiError> {
        let CleanPicture { format, width, height, file } = cleaned;
        let name = ImageName::new(&sha256_hex(&file), format);
        let _changing = self.changing.lock().await;
        let image = UploadedImage { name: name.clone(), bytes: file.len(), width, height };
        self.store.put(&name, file.into()).await?;
        let known = pool.write(move |db| images::insert(db, &image, now)).await;
        if let Err(error) = known {
            // Unless it was there before, nothing refers to it.
            let doomed = name.clone();
            if pool.read(move |db| images::is_known(db, &doomed)).await.is_ok_and(|is_known| !is_known)
                && let Err(error) = self.store.delete(&name).await
            {
                log::warn!("the image {name} is stored, but not listed: {error}");
            }
            return Err(error.into());
        }
        Ok(name)
    }

    /// Deletes these images, unless something uses them by now. If one fails, [`sweep`](Self::sweep) deletes the rest.
    pub async fn delete_unused(&self, pool: &Pool, names: Vec<ImageName>) {
        for name in names {
            if let Err(error) = self.delete(pool, &name).await {
                log::warn!("the image {name} was not deleted: {error:?}");
                // The caller must not wait for an absent storage once for each image.
                break;
            }
        }
    }

    async fn delete(&self, pool: &Pool, name: &ImageName) -> Result<(), ApiError> {
        let _changing = self.changing.lock().await;
        let doomed = name.clone();
        if pool.write(move |db| images::mark_for_deletion(db, &doomed)).await? {
            self.store.delete(name).await?;
            let gone = name.clone();
            pool.write(move |db| images::forget(db, &gone)).await?;
        }
        Ok(())
    }

    /// Deletes what was uploaded and not used.
    pub async fn sweep(&self, pool: &Pool, now: Timestamp) {
        let until = now - TimeDelta::hours(UNUSED_IMAGE_HOURS);
        match pool.read(move |db| images::unused(db, until, SWEPT_AT_ONCE)).await {
            Ok(names) => self.delete_unused(pool, names).await,
            Err(error) => log_failure("unused images were not deleted", &error),
        }
    }
}

async fn turn(turns: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ApiError> {
    let turn = timeout(TURN_DEADLINE, turns.clone().acquire_owned()).await;
    turn.ok().and_then(Result::ok).ok_or_else(|| ApiError::Unavailable("too many images are uploaded".into()))
}

/// Bytes of a form beside its file.
const FORM_BYTES: usize = 16 * 1024;

/// The file of the form, which has nothing else.
async fn file_of(mut form: Multipart) -> Result<Vec<u8>, ApiError> {
    let Some(field) = form.try_next().await.map_err(unreadable)? else {
        return Err(ApiError::invalid(FILE, "is required"));
    };
    if field.name() != Some(FILE) {
        return Err(ApiError::invalid(FILE, "must be the only part of the form"));
    }
    let file = bytes_of(field).await?;
    match form.try_next().await.map_err(unreadable)? {
        None => Ok(file),
        Some(_) => Err(ApiError::invalid(FILE, "must be the only part of the form")),
    }
}

/// The bytes of the file, as they arrive; no more than are allowed are ever in memory.
async fn bytes_of(mut field: Field) -> Result<Vec<u8>, ApiError> {
    let mut file = Vec::new();
    while let Some(chunk) = field.try_next().await.map_err(unreadable)? {
        if file.len() + chunk.len() > IMAGE_BYTES {
            return Err(ApiError::BodyTooLarge);
        }
        file.extend_from_slice(&chunk);
    }
    Ok(file)
}

fn unreadable(error: MultipartError) -> ApiError {
    match error {
        MultipartError::Payload(error) if is_late(&error) => ApiError::BodyTimeout,
        MultipartError::ContentTypeMissing
        | MultipartError::ContentTypeParse
        | MultipartError::ContentTypeIncompatible => ApiError::UnsupportedMediaType,
        _ => ApiError::invalid("", "is no complete multipart/form-data"),
    }
}

impl From<ImageStoreError> for ApiError {
    fn from(error: ImageStoreError) -> Self {
        Self::Unavailable(error.into())
    }
}
