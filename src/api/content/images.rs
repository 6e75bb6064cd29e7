//! Uploaded images as everybody sees them: `/images/{name}`.

use actix_web::{HttpRequest, HttpResponse, body::SizedStream, web};

use crate::{
    api::{
        answer::{
            error::ApiError,
            etags::{self, Caching},
        },
        context::ApiContext,
    },
    domain::image_name::ImageName,
};

/// An image: an icon of an item, or of a wiki page.
#[utoipa::path(get, path = "/images/{name}", tag = "content",
    params(("name" = String, Path, description = "64 hex digits and `.png` or `.webp`")), responses(
    (status = 200, description = "The image, which never changes", content((Vec<u8> = "image/png"), (Vec<u8> = "image/webp"))),
    (status = 304, description = "The client has it"),
))]
pub async fn get(
    name: web::Path<String>,
    req: HttpRequest,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let name = ImageName::parse(&name).ok_or(ApiError::NotFound)?;
    let (mut answer, is_known) = etags::begin(&req, &etags::tag(name.as_str()), Caching::PublicImmutable);
    // Front ends of other origins show it.
    answer.insert_header(("cross-origin-resource-policy", "cross-origin"));
    if is_known {
        return Ok(answer.finish());
    }
    let kept = context.caches.images.get(&name).await?.ok_or(ApiError::NotFound)?;
    answer.content_type(name.format().media_type());
    Ok(answer.body(SizedStream::new(kept.bytes, kept.into_stream())))
}
