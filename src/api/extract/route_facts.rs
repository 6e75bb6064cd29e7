//! Facts of a request's route, from its line in [`routes`](crate::api::routes): the kinds of token that it takes instead of
//! a session's cookie, where no other route looks at a token, and the limit class from which it is paid.

use std::{collections::HashMap, num::NonZeroU32};

use actix_web::{HttpRequest, http::Method};

use crate::{
    api::{
        answer::{error::ApiError, request_log_fields::RequestLogFields},
        context::ApiContext,
        rate_limits::RouteLimit,
    },
    domain::{ids::UserId, relay_access::RelayAccess, token_scope::TokenScope},
};

/// The purpose of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// The token of a helper device.
    Helper,
    /// The token of an overlay: the server in the path is its own.
    Overlay,
    /// An API token of this scope.
    Api(TokenScope),
}

/// Facts of a route that its requests depend on.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteFacts {
    /// Any one of them opens it.
    pub tokens: &'static [TokenKind],
    pub limit: RouteLimit,
}

/// Facts of routes, by path and method. In the data of the application, where routes were registered.
pub struct KnownRoutes(pub HashMap<String, Vec<(Method, RouteFacts)>>);

/// Facts of this request's route, when it is one of this method; those of a usual route where there is none.
pub fn of(req: &HttpRequest, method: &Method) -> RouteFacts {
    let routes: Option<&&KnownRoutes> = req.app_data();
    // HEAD is answered like GET.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let (Some(KnownRoutes(routes)), Some(path)) = (routes, req.match_pattern()) else { return RouteFacts::default() };
    let row = routes.get(&path).and_then(|rows| rows.iter().find(|(known, _)| known == method));
    row.map_or_else(RouteFacts::default, |(_, facts)| *facts)
}

/// Takes one request of this user from the limit class of its route.
pub fn take_limit(req: &HttpRequest, user: &UserId) -> Result<(), ApiError> {
    take_limits(req, user, 1)
}

/// Takes `count` requests of this user from the limit class of the route, or nothing if there is no budget for all.
pub fn take_limits(req: &HttpRequest, user: &UserId, count: u32) -> Result<(), ApiError> {
    let Some(count) = NonZeroU32::new(count) else { return Ok(()) };
    let limit = of(req, req.method()).limit;
    ApiContext::of(req).limits.rate_limits.take_action(&RequestLogFields::of(req), limit, user, count)
}

impl TokenKind {
    /// The scope that an API token needs.
    pub fn scope(self) -> Option<TokenScope> {
        match self {
            Self::Api(scope) => Some(scope),
            Self::Helper | Self::Overlay => None,
        }
    }

    /// True if a token of this access is of the kind.
    pub fn is_of(self, access: &RelayAccess) -> bool {
        match access {
            RelayAccess::Session => false,
            RelayAccess::Helper => self == Self::Helper,
            RelayAccess::Overlay { .. } => self == Self::Overlay,
            RelayAccess::Token { scopes, .. } => matches!(self, Self::Api(scope) if scopes.contains(scope)),
        }
    }
}
