//! A route: its handler, whose `#[utoipa::path]` names method and path, and facts of the route that are not in it: who may
//! call it, by which tokens, from which limit class, and with a key or not.

use actix_web::{
    Resource,
    guard::{GuardContext, fn_guard},
    http::Method,
    web::{self, PayloadConfig, ServiceConfig},
};
use utoipa::openapi::{OpenApi, PathItem, path::Operation, security::SecurityRequirement};

use crate::{
    api::{
        extract::route_facts::{KnownRoutes, RouteFacts, TokenKind},
        rate_limits::RouteLimit,
    },
    net::budgets::LimitClass,
};

/// Routes a handler for its [`Callers`]; the other facts follow: `route!(devices::create, Owner).key()`.
macro_rules! route {
    ($($handler:ident)::+, $callers:ident) => {{
        #[derive(utoipa::OpenApi)]
        #[openapi(paths($($handler)::+))]
        struct Handler;
        $crate::api::route::ApiRoute::new(
            $crate::api::route::Callers::$callers,
            <Handler as utoipa::OpenApi>::openapi,
            |resource, method| resource.route(actix_web::web::method(method).to($($handler)::+)),
        )
    }};
}
pub(crate) use route;

/// Users who may call a route with their session; the handler's extractors admit them, and `tests/spec/authorisation.rs`
/// compares both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callers {
    /// All, signed in or not.
    Anyone,
    /// The holder of a link from a message, signed in or not.
    Link,
    /// Devices with a token of the route; no session.
    Device,
    /// Every user.
    User,
    /// The user whose thing it is. For others it does not exist.
    Holder,
    /// Owner and guests of the server. For others it does not exist.
    Watcher,
    /// The owner of the server. Guests are refused.
    Owner,
    /// Guests of the server. For its owner it does not exist.
    Guest,
    /// Admins of the service.
    Admin,
}

impl Callers {
    /// The sign-ins of the document, without tokens; `None` where a sign-in changes nothing.
    fn sign_ins(self) -> Option<Vec<SecurityRequirement>> {
        match self {
            Self::Anyone | Self::Link => None,
            Self::Device => Some(Vec::new()),
            Self::User | Self::Holder | Self::Watcher | Self::Owner | Self::Guest | Self::Admin => {
                Some(vec![SecurityRequirement::new("session", Vec::<String>::new())])
            }
        }
    }
}

/// One method of one path.
pub struct ApiRoute {
    pub method: Method,
    /// With its parameters, as in the document: `/me/tokens/{id}`.
    pub path: String,
    pub callers: Callers,
    /// Tokens that it takes instead of a session's cookie, any one of them.
    pub tokens: &'static [TokenKind],
    /// True if a request may be sent again with its `Idempotency-Key`: the handler takes an `Idempotent`.
    pub takes_key: bool,
    /// Paid beside the budget of the user or token.
    pub limit: RouteLimit,
    document: fn() -> OpenApi,
    add: fn(Resource, Method) -> Resource,
    max_body: Option<usize>,
    guard: Option<fn(&GuardContext) -> bool>,
}

impl ApiRoute {
    /// `document`: of the handler alone. For `route!`.
    pub fn new(callers: Callers, document: fn() -> OpenApi, add: fn(Resource, Method) -> Resource) -> Self {
        let (path, mut item) = document().paths.paths.pop_first().expect("a handler has a path");
        let methods = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        let method = methods.into_iter().find(|method| operation(&mut item, method).is_some());
        Self {
            method: method.expect("a handler has one of these methods"),
            path,
            callers,
            tokens: &[],
            takes_key: false,
            limit: RouteLimit::Usual,
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

    /// Requests are paid from this class, too; from a probe's in place of the address's.
    pub fn limit(self, class: LimitClass) -> Self {
        Self { limit: RouteLimit::Of(class), ..self }
    }

    /// Requests cost the address nothing.
    pub fn free(self) -> Self {
        Self { limit: RouteLimit::Free, ..self }
    }

    /// Longest body in bytes, for all methods of the path.
    pub fn body(self, longest: usize) -> Self {
        Self { max_body: Some(longest), ..self }
    }

    /// The path exists only for requests that this accepts.
    pub fn only_if(self, guard: fn(&GuardContext) -> bool) -> Self {
        Self { guard: Some(guard), ..self }
    }

    /// The document of the route with its sign-ins; `document_key` adds the key to an operation that takes one.
    pub fn document(&self, document_key: fn(&mut Operation)) -> OpenApi {
        let mut document = (self.document)();
        let item = document.paths.paths.get_mut(&self.path);
        if let Some(operation) = item.and_then(|item| operation(item, &self.method).as_mut()) {
            operation.security = self.callers.sign_ins();
            if self.takes_key {
                document_key(operation);
            }
        }
        document
    }

    /// Facts of these routes, for their requests.
    pub fn facts(routes: &[Self]) -> KnownRoutes {
        let mut known = KnownRoutes(Default::default());
        for route in routes {
            let facts = RouteFacts { tokens: route.tokens, limit: route.limit };
            known.0.entry(route.path.clone()).or_default().push((route.method.clone(), facts));
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
