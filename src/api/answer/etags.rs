//! Entity tags: what a client has, and what it takes for granted when it writes.

use std::future::{Ready, ready};

use actix_web::{
    FromRequest, HttpRequest, HttpResponse, HttpResponseBuilder,
    dev::Payload,
    http::header::{self, EntityTag, Header as _, IfMatch, IfNoneMatch},
};
use bytes::Bytes;

use crate::api::answer::error::ApiError;

/// The tag of content with this digest.
pub fn tag(digest: &str) -> EntityTag {
    EntityTag::new_strong(digest.to_owned())
}

/// True if the client says that it has the content of this tag.
fn has(req: &HttpRequest, tag: &EntityTag) -> bool {
    req.headers().contains_key(header::IF_NONE_MATCH)
        && match IfNoneMatch::parse(req) {
            Ok(IfNoneMatch::Any) => true,
            Ok(IfNoneMatch::Items(known)) => known.iter().any(|known| known.weak_eq(tag)),
            Err(_) => false,
        }
}

/// JSON with its tag, or 304 if the client has it. It may be kept, and is asked for again each time: a change is seen at
/// once.
pub fn json(req: &HttpRequest, digest: &str, caching: Caching, body: impl FnOnce() -> Bytes) -> HttpResponse {
    let (mut answer, is_known) = begin(req, &tag(digest), caching);
    if is_known { answer.finish() } else { answer.content_type("application/json").body(body()) }
}

/// Begins an answer with this tag; true = the client has it, and the answer is 304, without a body.
pub fn begin(req: &HttpRequest, tag: &EntityTag, caching: Caching) -> (HttpResponseBuilder, bool) {
    let is_known = has(req, tag);
    let mut answer = if is_known { HttpResponse::NotModified() } else { HttpResponse::Ok() };
    answer.insert_header((header::CACHE_CONTROL, caching.as_str())).insert_header((header::ETAG, tag.to_string()));
    (answer, is_known)
}

/// The caches that may keep an answer, and for how long.
#[derive(Clone, Copy, Debug)]
pub enum Caching {
    /// Also proxies.
    Public,
    /// The browser that asked.
    Private,
    /// The browser that asked, for a day.
    PrivateDay,
    /// Also proxies, for a year: the content of a URL never changes.
    PublicImmutable,
    PrivateImmutable,
}

impl Caching {
    fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public, no-cache",
            Self::Private => "private, no-cache",
            Self::PrivateDay => "private, max-age=86400",
            Self::PublicImmutable => "public, max-age=31536000, immutable",
            Self::PrivateImmutable => "private, max-age=31536000, immutable",
        }
    }
}

/// State that the client takes for granted (`If-Match`, `If-None-Match`); without these headers, none.
#[derive(Clone, Debug)]
pub struct Precondition {
    is: Option<IfMatch>,
    is_not: Option<IfNoneMatch>,
}

impl FromRequest for Precondition {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        let given = |name| req.headers().contains_key(name);
        let is = given(header::IF_MATCH).then(|| IfMatch::parse(req)).transpose();
        let is_not = given(header::IF_NONE_MATCH).then(|| IfNoneMatch::parse(req)).transpose();
        let fault = |name| Err(ApiError::invalid(name, "is not a list of entity tags"));
        // Values that are no tag were passed over.
        ready(match (is, is_not) {
            (Err(_), _) => fault("If-Match"),
            (Ok(Some(IfMatch::Items(tags))), _) if tags.is_empty() => fault("If-Match"),
            (_, Err(_)) => fault("If-None-Match"),
            (_, Ok(Some(IfNoneMatch::Items(tags)))) if tags.is_empty() => fault("If-None-Match"),
            (Ok(is), Ok(is_not)) => Ok(Self { is, is_not }),
        })
    }
}

impl Precondition {
    /// Checks the precondition against the present content, by its digest; `None`: there is none.
    pub fn check(&self, digest: Option<&str>) -> Result<(), ApiError> {
        let is = match (&self.is, digest) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(IfMatch::Any), Some(_)) => true,
            (Some(IfMatch::Items(tags)), Some(digest)) => tags.iter().any(|known| known.strong_eq(&tag(digest))),
        };
        let is_not = match (&self.is_not, digest) {
            (None, _) | (Some(_), None) => true,
            (Some(IfNoneMatch::Any), Some(_)) => false,
            (Some(IfNoneMatch::Items(tags)), Some(digest)) => !tags.iter().any(|known| known.weak_eq(&tag(digest))),
        };
        if is && is_not { Ok(()) } else { Err(ApiError::PreconditionFailed) }
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[actix_web::test]
    async fn a_precondition_is_about_what_is_there_now() {
        let named = |name: header::HeaderName, value: &str| {
            let request = TestRequest::default().insert_header((name, value)).to_http_request();
            Precondition::from_request(&request, &mut Payload::None).into_inner()
        };
        let given = |value: &str| named(header::IF_MATCH, value);
        let nothing = TestRequest::default().to_http_request();
        let nothing = Precondition::from_request(&nothing, &mut Payload::None).into_inner().unwrap();
        assert!(nothing.check(None).is_ok() && nothing.check(Some("a")).is_ok());
        for (value, holds) in
            [("\"a\"", true), ("\"b\", \"a\"", true), ("*", true), ("\"b\"", false), ("W/\"a\"", false)]
        {
            assert_eq!(given(value).unwrap().check(Some("a")).is_ok(), holds, "{value}");
            assert!(matches!(given(value).unwrap().check(None), Err(ApiError::PreconditionFailed)), "{value}");
        }
        assert!(matches!(given("a"), Err(ApiError::Invalid(_))));
        for (value, holds) in [("\"a\"", false), ("W/\"a\"", false), ("*", false), ("\"b\"", true)] {
            let given = named(header::IF_NONE_MATCH, value).unwrap();
            assert_eq!(given.check(Some("a")).is_ok(), holds, "{value}");
            assert!(given.check(None).is_ok(), "{value}");
        }
        assert!(matches!(named(header::IF_NONE_MATCH, "a"), Err(ApiError::Invalid(_))));
    }
}
