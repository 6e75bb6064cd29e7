//! The paired server that the path names by `{id}` or `{serverId}`, when the caller may do with it what the handler
//! does. Without a session, or a token where the route takes one: 401; for a stranger: 404, as if there were no such
//! server; for a guest where only the owner may act: 403 `owner_only`; with a token of another server: 404.

use actix_web::{FromRequest, HttpRequest, dev::Payload};
use futures_util::{FutureExt as _, future::LocalBoxFuture};

use crate::{
    api::{
        answer::error::ApiError,
        extract::caller::{Caller, calling},
    },
    db::{access, users::User},
    domain::{
        access::{Action, Role},
        ids::ServerId,
        relay_access::RelayAccess,
    },
};

/// A server that the caller may watch.
pub struct WatchedServer {
    pub user: User,
    pub id: ServerId,
    pub role: Role,
}

/// A server that the caller owns.
pub struct OwnedServer {
    pub user: User,
    pub id: ServerId,
}

/// Actions of the handlers that take an [`OwnedServer`].
const OWNERS: [Action; 2] = [Action::Edit, Action::Drill];

impl FromRequest for WatchedServer {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        permitted(req, &[Action::Watch]).boxed_local()
    }
}

impl FromRequest for OwnedServer {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        let owned = permitted(req, &OWNERS);
        async move { owned.await.map(|WatchedServer { user, id, .. }| Self { user, id }) }.boxed_local()
    }
}

/// The server, when the caller's role permits all of these.
fn permitted(
    req: &HttpRequest,
    actions: &'static [Action],
) -> impl Future<Output = Result<WatchedServer, ApiError>> + use<> {
    let path = req.match_info();
    // Where `{id}` names something of the server, `{serverId}` names the server.
    let id = ServerId::from(path.get("serverId").unwrap_or_else(|| path.query("id")));
    let asked = id.clone();
    let req = req.clone();
    async move {
        let (Caller { user, access }, role) = calling(&req, move |db, user| access::role(db, user, &asked)).await?;
        if access.only().is_some_and(|only| *only != id) {
            return Err(ApiError::NotFound);
        }
        let role = match access {
            RelayAccess::Overlay { .. } => role.map(|_| Role::Overlay),
            RelayAccess::Session | RelayAccess::Helper | RelayAccess::Token { .. } => role,
        };
        Ok(WatchedServer { role: check(role, actions)?, user, id })
    }
}

fn check(role: Option<Role>, actions: &[Action]) -> Result<Role, ApiError> {
    match role {
        None => Err(ApiError::NotFound),
        Some(role) if actions.iter().all(|action| role.may(*action)) => Ok(role),
        Some(_) => Err(ApiError::OwnerOnly),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_finds_nothing_and_a_guest_is_refused_what_only_the_owner_may_do() {
        for actions in [&[Action::Watch][..], &OWNERS] {
            assert!(matches!(check(None, actions), Err(ApiError::NotFound)));
            assert!(matches!(check(Some(Role::Owner), actions), Ok(Role::Owner)));
        }
        assert!(matches!(check(Some(Role::Guest), &[Action::Watch]), Ok(Role::Guest)));
        assert!(matches!(check(Some(Role::Guest), &OWNERS), Err(ApiError::OwnerOnly)));
    }
}
