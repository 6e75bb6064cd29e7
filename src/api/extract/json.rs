//! A validated JSON body.

use actix_web::{FromRequest, HttpMessage as _, HttpRequest, dev::Payload, error::JsonPayloadError, http::header, web};
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use serde::de::DeserializeOwned;

use crate::{api::error::ApiError, net::http_service::is_late};

/// The body of the request, decoded and validated by its `garde` rules.
pub struct Json<T>(pub T);

impl<T> FromRequest for Json<T>
where
    T: DeserializeOwned + garde::Validate<Context = ()> + 'static,
{
    type Error = actix_web::Error;
    type Future = LocalBoxFuture<'static, Result<Self, Self::Error>>;

    fn from_request(req: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let body = web::Json::<T>::from_request(req, payload);
        async move {
            let web::Json(value) = body.await?;
            value.validate().map_err(ApiError::from)?;
            Ok(Self(value))
        }
        .boxed_local()
    }
}

/// The same, or the default when the request has no body.
pub struct OptionalJson<T>(pub T);

impl<T> FromRequest for OptionalJson<T>
where
    T: Default + DeserializeOwned + garde::Validate<Context = ()> + 'static,
{
    type Error = actix_web::Error;
    type Future = LocalBoxFuture<'static, Result<Self, Self::Error>>;

    fn from_request(req: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let headers = req.headers();
        let empty = headers.get(header::CONTENT_LENGTH).is_none_or(|length| length == "0");
        if empty && !headers.contains_key(header::TRANSFER_ENCODING) {
            return async { Ok(Self(T::default())) }.boxed_local();
        }
        Json::from_request(req, payload).map(|json| json.map(|Json(value)| Self(value))).boxed_local()
    }
}

/// Whether the content type is JSON.
pub fn is_json(req: &HttpRequest) -> bool {
    let Ok(Some(mime)) = req.mime_type() else { return false };
    mime.subtype() == "json" || mime.suffix().is_some_and(|suffix| suffix == "json")
}

/// For `web::JsonConfig::error_handler`.
pub fn rejected(error: JsonPayloadError, _: &HttpRequest) -> actix_web::Error {
    match error {
        JsonPayloadError::OverflowKnownLength { .. } | JsonPayloadError::Overflow { .. } => ApiError::BodyTooLarge,
        JsonPayloadError::Payload(error) if is_late(&error) => ApiError::BodyTimeout,
        JsonPayloadError::ContentType => ApiError::UnsupportedMediaType,
        JsonPayloadError::Deserialize(error) if error.is_data() => wrong_shape(&error),
        _ => ApiError::MalformedJson,
    }
    .into()
}

/// serde's messages may quote the value, which may be a secret: only those that name a field are passed on.
fn wrong_shape(error: &serde_json::Error) -> ApiError {
    let text = error.to_string();
    let named = |prefix: &str| text.strip_prefix(prefix).and_then(|rest| rest.split('`').next());
    if let Some(field) = named("missing field `") {
        ApiError::invalid(field, "is required")
    } else if let Some(field) = named("unknown field `") {
        ApiError::invalid(field, "is not known")
    } else {
        ApiError::invalid(
            "",
            format!("has a value of the wrong type at line {}, column {}", error.line(), error.column()),
        )
    }
}
