//! Upload of an admin's image, for any purpose.

use actix_multipart::Multipart;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;

use crate::{
    api::{answer::error::ApiError, caches::image_uploads::ImageLocation, context::ApiContext, extract::admin::Admin},
    crypto::digest::sha256_hex,
    domain::{
        audit::{AdminAction, Written},
        image_name::ImageName,
    },
};

/// Receives an image of at most `longest` pixels in width and height, and stores it.
pub async fn upload(admin: Admin, req: &HttpRequest, form: Multipart, longest: u32) -> Result<HttpResponse, ApiError> {
    let context = ApiContext::of(req).clone();
    let cleaned = context.caches.images.receive(req, form, longest).await?;
    let name = ImageName::new(&sha256_hex(&cleaned.file), cleaned.format);
    let asked = json!({ "bytes": cleaned.file.len(), "width": cleaned.width, "height": cleaned.height });
    let url = context.settings.urls.base.at(&name.path());
    // The storage is outside of the database.
    let keep = async move {
        let name = context.caches.images.keep(&context.pool, cleaned, context.clock.now()).await?;
        let path = name.path();
        Ok(Written::new((), (), json!({ "path": path })))
    };
    admin.effect(AdminAction::UploadImage, name.as_str(), asked, keep).await?;
    Ok(HttpResponse::Created().json(ImageLocation { url }))
}
