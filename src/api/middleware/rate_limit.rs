//! The limits of the client's address, around every route.

use std::net::Ipv4Addr;

use actix_web::{
    Error,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::header::HeaderName,
    middleware::Next,
};

use crate::{
    api::{
        answer::{error::ApiError, request_log_fields::RequestLogFields},
        context::ApiContext,
        extract::route_facts,
        middleware::route_class::{OPERATOR, route_class},
    },
    domain::problem,
    net::{budgets::LimitReport, http_service::SpareConnection, refusals},
};

/// The rest of the budgets that a request was paid from.
pub const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// Size and window of those budgets.
pub const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Around every route: how often, and how much at once behind a proxy. The answer says what is left of the budgets that it
/// was paid from. For `middleware::from_fn`.
pub async fn address(
    req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let notes = RequestLogFields::of(req.request());
    let mut response = admitted(req, next).await?;
    let refused = response.response().error().and_then(|error| error.as_error::<ApiError>()).and_then(ApiError::limit);
    let limits: Vec<LimitReport> = notes.limits.take().into_iter().chain(refused.copied()).collect();
    if !limits.is_empty() {
        let list = |item: fn(&LimitReport) -> String| limits.iter().map(item).collect::<Vec<_>>().join(", ");
        let fields = [(RATELIMIT, list(LimitReport::item)), (RATELIMIT_POLICY, list(LimitReport::policy_item))];
        for (name, value) in fields {
            response.headers_mut().insert(name, value.try_into().expect("digits and plain names"));
        }
    }
    Ok(response)
}

async fn admitted(
    req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let context = ApiContext::of(req.request());
    if req.conn_data::<SpareConnection>().is_some() && route_class(req.match_pattern().as_deref()) != OPERATOR {
        let from = req.peer_addr().map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.ip());
        refusals::count_connection(problem::UNAVAILABLE.code, true, from);
        return Ok(req.error_response(ApiError::Unavailable("all connections are taken".into())));
    }
    if let Some(peer) = req.peer_addr() {
        context.limits.connections.note_forwarding(peer.ip(), req.headers(), context.clock.moment());
    }
    let limit = route_facts::of(req.request(), req.method()).limit;
    if let Err(error) = context.limits.rate_limits.take_address(req.request(), limit) {
        return Ok(req.error_response(error));
    }
    let permit = match req.peer_addr() {
        Some(peer) => context.limits.connections.admit_forwarded(peer.ip(), req.headers()),
        None => Ok(None),
    };
    let Ok(_permit) = permit else { return Ok(req.error_response(ApiError::TooManyConnections)) };
    next.call(req).await.map(ServiceResponse::map_into_boxed_body)
}
