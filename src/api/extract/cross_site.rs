//! Protection against cross-site request forgery. A browser adds our cookie also to requests that other sites make: an
//! unsafe request that is authenticated by a cookie must therefore come from a page of ours, whatever else it carries. A
//! device token is added by no browser, so a request that is authenticated by one may come from anywhere.

use actix_web::{
    HttpRequest,
    http::{
        Method,
        header::{self, HeaderMap, HeaderName},
    },
};
use url::Url;

use crate::{
    api::{answer::error::ApiError, context::ApiContext},
    config::PublicUrls,
    domain::return_target::same_origin,
};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses the cookies of a request that another site makes.
pub fn check(req: &HttpRequest) -> Result<(), ApiError> {
    let safe = matches!(*req.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let has_cookies = req.headers().contains_key(header::COOKIE);
    if !safe && has_cookies && !comes_from(req.headers(), &ApiContext::of(req).settings.urls) {
        return Err(ApiError::CrossSite);
    }
    Ok(())
}

/// True if `Origin`, or `Referer` without it, is one of ours. Without both, only a browser sends `Sec-Fetch-Site`; any
/// other client sends only its own cookies.
fn comes_from(headers: &HeaderMap, PublicUrls { base, frontend, admin, .. }: &PublicUrls) -> bool {
    let source = headers.get(header::ORIGIN).or_else(|| headers.get(header::REFERER));
    match source {
        Some(value) => value
            .to_str()
            .ok()
            .and_then(|text| Url::parse(text).ok())
            .is_some_and(|url| [base, frontend, admin].into_iter().any(|own| same_origin(own, &url))),
        None => !headers.contains_key(SEC_FETCH_SITE),
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;
    use crate::config::BaseUrl;

    fn allowed(sent: &[(HeaderName, &'static str)]) -> bool {
        let url = |text| BaseUrl::from(Url::parse(text).unwrap());
        let ours = PublicUrls {
            base: url("http://127.0.0.1:8080"),
            frontend: url("https://app.example"),
            admin: url("https://admin.example"),
            relay: None,
        };
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(name.clone(), HeaderValue::from_static(value));
        }
        comes_from(&headers, &ours)
    }

    #[test]
    fn only_our_own_pages_may_change_something() {
        assert!(allowed(&[(header::ORIGIN, "https://app.example")]));
        assert!(allowed(&[(header::ORIGIN, "http://127.0.0.1:8080")]));
        assert!(allowed(&[(header::REFERER, "https://app.example/map?x=1")]));
        assert!(allowed(&[]), "not a browser");
        for origin in ["https://evil.test", "null", "http://app.example", "https://app.example.evil.test", ""] {
            assert!(!allowed(&[(header::ORIGIN, origin)]), "{origin}");
        }
        assert!(!allowed(&[(header::REFERER, "https://evil.test/https://app.example")]));
        assert!(!allowed(&[(header::ORIGIN, "null"), (header::REFERER, "https://app.example/")]), "Origin wins");
        for site in ["cross-site", "same-site", "same-origin", "none"] {
            assert!(!allowed(&[(SEC_FETCH_SITE, site)]), "a browser without Origin and Referer: {site}");
        }
    }
}
