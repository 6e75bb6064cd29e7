//! A route: its handler, whose `#[utoipa::path]` names method and path, and facts of the route that are not in it.

use actix_web::{
    Resource,
    guard::{GuardContext, fn_guard},
    http::Method,
    web::{self, PayloadConfig, ServiceConfig},
};
use utoipa::openapi::{OpenApi, PathItem, path::Operation};

use crate::api::extract::token_routes::{TokenKind, TokenRoutes};

/// Routes a handler; the other facts follow: `route!(devices::add).key()`.
macro_rules! route {
    ($($handler:ident)::+) => {{
        #[derive(utoipa::OpenApi)]
        #[openapi(paths($($handler)::+))]
        struct Handler;
        $crate::api::route::ApiRoute::new(
            <Handler as utoipa::OpenApi>::openapi,
            |resource, method| resource.route(actix_web::web::method(method).to($($handler)::+)),
        )
    }};
}
pub(crate) use route;

/// One method of one path.
pub struct ApiRoute {
    pub method: Method,
    /// With its parameters, as in the document: `/me/tokens/{id}`.
    pub path: String,
    /// Tokens that it takes instead of a session's cookie, any one of them.
    pub tokens: &'static [TokenKind],
    /// True if a request may be sent again with its `Idempotency-Key`: the handler takes an `Idempotent`.
    pub takes_key: bool,
    document: fn() -> OpenApi,
    add: fn(Resource, Method) -> Resource,
    max_body: Option<usize>,
    guard: Option<fn(&GuardContext) -> bool>,
}

impl ApiRoute {
    /// `document`: of the handler alone. For `route!`.
    pub fn new(document: fn() -> OpenApi, add: fn(Resource, Method) -> Resource) -> Self {
        let (path, mut item) = document().paths.paths.pop_first().expect("a handler has a path");
        let methods = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        let method = methods.into_iter().find(|method| operation(&mut item, method).is_some());
        Self {
            method: method.expect("a handler has one of these methods"),
            path,
            tokens: &[],
            takes_key: false,
            document,
            add,
            max_body: None,
            guard: None,
        }
    }

    /// Takes these tokens, too.
    pub fn tokens(self, tokens: &'static [TokenKind]) -> Self {
        Self { tokens, ..self }
    }

    /// Takes an `Idempotency-Key`.
    pub fn key(self) -> Self {
        Self { takes_key: true, ..self }
    }

    /// Longest body in bytes, for all methods of the path.
    pub fn body(self, longest: usize) -> Self {
        Self { max_body: Some(longest), ..self }
    }

    /// The path exists only for requests that this accepts.
    pub fn only_if(self, guard: fn(&GuardContext) -> bool) -> Self {
        Self { guard: Some(guard), ..self }
    }

    /// The document of the route; `document_key` adds the key to an operation that takes one.
    pub fn document(&self, document_key: fn(&mut Operation)) -> OpenApi {
        let mut document = (self.document)();
        let item = document.paths.paths.get_mut(&self.path).filter(|_| self.takes_key);
        if let Some(operation) = item.and_then(|item| operation(item, &self.method).as_mut()) {
            document_key(operation);
        }
        document
    }

    /// Tokens that these routes take.
    pub fn token_routes(routes: &[Self]) -> TokenRoutes {
        let mut known = TokenRoutes(Default::default());
        for route in routes.iter().filter(|route| !route.tokens.is_empty()) {
            known.0.entry(route.path.clone()).or_default().push((route.method.clone(), route.tokens));
        }
        known
    }

    fn add_to(&self, mut resource: Resource) -> Resource {
        if let Some(longest) = self.max_body {
            resource = resource.app_data(PayloadConfig::new(longest));
        }
        if let Some(guard) = self.guard {
            resource = resource.guard(fn_guard(guard));
        }
        (self.add)(resource, self.method.clone())
    }
}

/// Registers these routes below `scope`; those of one path follow each other and are one resource.
pub fn mount(config: &mut ServiceConfig, routes: &[&ApiRoute], scope: &str) {
    for group in routes.chunk_by(|one, next| one.path == next.path) {
        let path = group[0].path.strip_prefix(scope).expect("the path is in the scope");
        config.service(group.iter().fold(web::resource(path), |resource, route| route.add_to(resource)));
    }
}

fn operation<'a>(item: &'a mut PathItem, method: &Method) -> &'a mut Option<Operation> {
    match *method {
        Method::GET => &mut item.get,
        Method::POST => &mut item.post,
        Method::PUT => &mut item.put,
        Method::PATCH => &mut item.patch,
        _ => &mut item.delete,
    }
}
