//! A validated JSON body.

use actix_web::{FromRequest, HttpMessage as _, HttpRequest, dev::Payload, http::header, web};
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::strict_objects::{StrictObjects, UNKNOWN_FIELD};
use crate::api::answer::error::{ApiError, FieldError, SHOWN_CHARS};

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

/// The body as by [`Json`], or the default when the request has none.
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

/// True if the content type is JSON.
pub fn is_json(req: &HttpRequest) -> bool {
    let Ok(Some(mime)) = req.mime_type() else { return false };
    mime.subtype() == "json" || mime.suffix().is_some_and(|suffix| suffix == "json")
}

/// Decodes a body without validation; a fault is reported with the path of its value.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(StrictObjects(&mut json)).map_err(|error| {
        // Where an enum is read, serde_json also takes a value of another type for a fault of the JSON.
        let is_json = error.inner().is_data() || serde_json::from_slice::<IgnoredAny>(body).is_ok();
        let text = error.inner().to_string();
        let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
        if is_json { ApiError::Invalid(vec![fault(error.path(), text)]) } else { ApiError::MalformedJson }
    })?;
    json.end().map_err(|_| ApiError::MalformedJson)?;
    Ok(value)
}

/// The fault of the value at this path, from serde's text. That may quote the value, which may be a secret: only the
/// names of fields and the expectation, which comes last, are passed on.
pub fn fault(path: &serde_path_to_error::Path, text: &str) -> FieldError {
    let path = path.to_string();
    let path = if path == "." { String::new() } else { path.chars().take(SHOWN_CHARS).collect() };
    let field = |prefix: &str| {
        let name = text.strip_prefix(prefix)?.split('`').next()?;
        Some(if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") })
    };
    if text == UNKNOWN_FIELD {
        FieldError { path, message: "is no field of this object".into() }
    } else if let Some(path) = field("missing field `") {
        FieldError { path, message: "is required".into() }
    } else if let Some(name) = field("duplicate field `") {
        FieldError { path: name, message: "comes twice".into() }
    } else {
        let message = match text.rsplit_once(", expected ") {
            Some((_, expected)) => format!("has a value of the wrong type: expected {}", in_words(expected)),
            None => "has a value that is not allowed".into(),
        };
        FieldError { path, message }
    }
}

/// The expectation of serde, without the names of Rust's types.
fn in_words(expected: &str) -> String {
    let most = match expected {
        "u8" => u64::from(u8::MAX),
        "u16" => u64::from(u16::MAX),
        "u32" => u64::from(u32::MAX),
        "u64" | "usize" => return "an integer from 0".into(),
        "i8" | "i16" | "i32" | "i64" | "isize" => return "an integer".into(),
        "f32" | "f64" => return "a number".into(),
        "a sequence" => return "a list".into(),
        "a map" => return "an object".into(),
        "string or map" | "a borrowed string" | "variant identifier" => return "a string".into(),
        other => return other.to_owned(),
    };
    format!("an integer from 0 to {most}")
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
    fn a_field_that_is_not_known_is_refused_at_any_depth() {
        assert_eq!(refused(r#"{ "data": 1, "more": [] }"#), ("more".into(), "is no field of this object".into()));
        assert_eq!(refused(r#"{ "innerList": [{ "port": 1, "Port": "secret" }] }"#).0, "innerList[0].Port");
        assert_eq!(refused(r#"{ "choice": { "boxed": { "port": 1, "x": 2 } } }"#).0, "choice.boxed.x");
        let long = refused(&format!(r#"{{ "{}": 1 }}"#, "x".repeat(10_000))).0;
        assert_eq!(long.chars().count(), SHOWN_CHARS);
    }

    #[test]
    fn a_value_of_another_type_is_named_in_words_and_without_names_of_our_types() {
        for (body, message) in [
            (r#"{ "innerList": [{ "port": "1" }] }"#, "expected an integer from 0 to 65535"),
            (r#"{ "innerList": [{ "port": 65536 }] }"#, "expected an integer from 0 to 65535"),
            (r#"{ "innerList": [{ "port": 0.5 }] }"#, "expected an integer from 0 to 65535"),
            (r#"{ "innerList": 7 }"#, "expected a list"),
            (r#"{ "innerList": [7] }"#, "expected an object"),
            (r#"{ "choice": 7 }"#, "not allowed"),
            (r#"{ "choice": [] }"#, "not allowed"),
        ] {
            let refusal = refused(body).1;
            assert!(refusal.ends_with(message), "{body}: {refusal}");
        }
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
        assert_eq!(taken(r#"{ "data": [1, { "a": [] }] }"#).data.unwrap().get(), r#"[1, { "a": [] }]"#);
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
