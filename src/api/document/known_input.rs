//! A parameter that an operation does not know is refused, on every route alike, and so are the fields of a JSON body
//! where an operation takes none: they would be left out in silence. The OpenAPI document says which there are. Not
//! where people sign in, as the identity provider adds its own, nor for the bundled pages, which read their own.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
};

use actix_web::{
    Error,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    middleware::Next,
    web::Bytes,
};
use serde::Deserialize;
use serde_json::Value;
use url::form_urlencoded;

use crate::api::{
    answer::error::{ApiError, SHOWN_CHARS},
    document::openapi::ApiDocument,
    extract::json::{decode, is_json},
};

/// Where the parameters are not only ours.
const SIGN_IN: &str = "/auth/platform";
/// Pages that read their parameters themselves.
const PAGES: [&str; 3] = ["/", "/invite", "/overlay"];

/// The input that an operation takes.
struct Input {
    parameters: BTreeSet<&'static str>,
    has_body: bool,
}

/// The input of each path and method, this in lower case.
type KnownInput = BTreeMap<&'static str, BTreeMap<&'static str, Input>>;

fn of_document(document: &'static Value) -> KnownInput {
    let mut known = KnownInput::new();
    let paths = document["paths"].as_object().into_iter().flatten();
    for (path, item) in paths.filter(|(path, _)| !path.starts_with(SIGN_IN) && !PAGES.contains(&path.as_str())) {
        for (method, operation) in item.as_object().into_iter().flatten() {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let of_query = parameters.filter(|parameter| parameter["in"] == "query");
            let parameters = of_query.filter_map(|parameter| parameter["name"].as_str()).collect();
            let has_body = operation.get("requestBody").is_some();
            known.entry(path).or_default().insert(method, Input { parameters, has_body });
        }
    }
    known
}

/// The body where none is taken.
#[derive(Deserialize)]
struct NoFields {}

/// For `middleware::from_fn`, next to the routes.
pub async fn check(
    mut req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let Some(known) = known(&req) else { return next.call(req).await.map(ServiceResponse::map_into_boxed_body) };
    if let Some(name) = unknown(known, req.query_string()) {
        return Ok(req.error_response(ApiError::invalid(&name, "is no parameter of this operation")));
    }
    if !known.has_body && is_json(req.request()) {
        let body = match req.extract::<Bytes>().await {
            Ok(body) => body,
            Err(error) => return Ok(req.error_response(error)),
        };
        if !body.is_empty()
            && let Err(error) = decode::<NoFields>(&body)
        {
            return Ok(req.error_response(error));
        }
    }
    next.call(req).await.map(ServiceResponse::map_into_boxed_body)
}

fn known(req: &ServiceRequest) -> Option<&'static Input> {
    let (path, method) = (req.match_pattern()?, req.method().as_str().to_ascii_lowercase());
    static KNOWN: OnceLock<KnownInput> = OnceLock::new();
    let known = KNOWN.get_or_init(|| of_document(ApiDocument::of(req.request())));
    known.get(path.as_str())?.get(method.as_str())
}

/// The first parameter that the operation does not know.
fn unknown(known: &Input, query: &str) -> Option<String> {
    let mut names = form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name);
    names.find(|name| !known.parameters.contains(&**name)).map(|name| name.chars().take(SHOWN_CHARS).collect())
}
