//! A validated JSON body.

use actix_web::{FromRequest, HttpMessage as _, HttpRequest, dev::Payload, http::header, web};
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use serde::de::DeserializeOwned;

use super::strict_objects::StrictObjects;
use crate::api::error::{ApiError, FieldError};

/// The body of the request, decoded and validated by its `garde` rules. As long as the `PayloadConfig` of its resource
/// allows.
pub struct Json<T>(pub T);

impl<T> FromRequest for Json<T>
where
    T: DeserializeOwned + garde::Validate<Context = ()> + 'static,
{
    type Error = actix_web::Error;
    type Future = LocalBoxFuture<'static, Result<Self, Self::Error>>;

    fn from_request(req: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let body = is_json(req).then(|| web::Bytes::from_request(req, payload));
        async move {
            let body = body.ok_or(ApiError::UnsupportedMediaType)?.await?;
            let value: T = decode(&body)?;
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

/// Decodes a body; what is wrong with it is said with the path of the value.
fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(StrictObjects(&mut json)).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." { String::new() } else { path };
        match error.inner() {
            inner if inner.is_data() => ApiError::Invalid(vec![wrong_shape(&path, &inner.to_string())]),
            _ => ApiError::MalformedJson,
        }
    })?;
    json.end().map_err(|_| ApiError::MalformedJson)?;
    Ok(value)
}

/// serde's messages may quote the value, which may be a secret: only the names of fields and what was expected, which
/// stands last, are passed on.
fn wrong_shape(path: &str, text: &str) -> FieldError {
    let text = text.rsplit_once(" at line ").map_or(text, |(text, _)| text);
    let field = |prefix: &str| {
        let name = text.strip_prefix(prefix)?.split('`').next()?;
        Some(if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") })
    };
    if let Some(path) = field("missing field `") {
        FieldError { path, message: "is required".into() }
    } else if let Some(name) = field("duplicate field `") {
        FieldError { path: name, message: "comes twice".into() }
    } else {
        let message = match text.rsplit_once(", expected ") {
            Some((_, expected)) => format!("has a value of the wrong type: expected {expected}"),
            None => "has a value that is not allowed".into(),
        };
        FieldError { path: path.to_owned(), message }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::value::RawValue;

    use super::*;

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Outer {
        inner_list: Option<Vec<Inner>>,
        choice: Option<Choice>,
        data: Option<Box<RawValue>>,
    }

    #[derive(Deserialize)]
    struct Inner {
        port: u16,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum Choice {
        Plain,
        Boxed { port: u16 },
    }

    #[track_caller]
    fn refused(body: &str) -> (String, String) {
        match decode::<Outer>(body.as_bytes()) {
            Err(ApiError::Invalid(errors)) => (errors[0].path.clone(), errors[0].message.clone()),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("{body} was taken"),
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_path_and_without_the_value() {
        let wrong = |body| refused(body).0;
        assert_eq!(wrong(r#"{ "innerList": [{ "port": 1 }, { "port": "secret" }] }"#), "innerList[1].port");
        assert_eq!(wrong(r#"{ "innerList": [{}] }"#), "innerList[0].port");
        assert_eq!(wrong(r#"{ "innerList": [{ "port": 1, "port": 2 }] }"#), "innerList[0].port");
        assert_eq!(wrong(r#"{ "choice": "other" }"#), "choice");
        assert_eq!(wrong("null"), "");
        for body in [r#"{ "innerList": "secret, expected secret" }"#, r#"{ "choice": "secret" }"#] {
            assert!(!refused(body).1.contains("secret"), "{body}");
        }
        assert!(refused(r#"{ "choice": "x" }"#).1.contains("`plain`"));
    }

    #[test]
    fn a_list_is_no_object_at_any_depth() {
        assert_eq!(refused("[]").0, "");
        assert_eq!(refused("[null, null, null]").0, "");
        assert_eq!(refused(r#"{ "innerList": [[1]] }"#).0, "innerList[0]");
        assert_eq!(refused(r#"{ "choice": { "boxed": [1] } }"#).0, "choice.boxed");
    }

    #[test]
    fn what_is_right_is_taken() {
        let taken = |body: &str| decode::<Outer>(body.as_bytes()).ok().unwrap();
        assert_eq!(taken(r#"{ "innerList": [{ "port": 7 }] }"#).inner_list.unwrap()[0].port, 7);
        assert_eq!(taken(r#"{ "data": [1, { "a": [] }], "more": [] }"#).data.unwrap().get(), r#"[1, { "a": [] }]"#);
        assert!(matches!(taken(r#"{ "choice": { "boxed": { "port": 1 } } }"#).choice, Some(Choice::Boxed { port: 1 })));
        assert!(matches!(taken(r#"{ "choice": "plain" }"#).choice, Some(Choice::Plain)));
    }

    #[test]
    fn what_is_no_json_is_malformed() {
        for body in ["", "{", "{} {}", "{'a': 1}", "\u{feff}{}"] {
            assert!(matches!(decode::<Outer>(body.as_bytes()), Err(ApiError::MalformedJson)), "{body}");
        }
    }
}
