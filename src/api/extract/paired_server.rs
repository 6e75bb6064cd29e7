//! The paired server that the path names by `{id}` or `{serverId}`, when the caller may do with it what the handler
//! does. Without a session, or a token where the route takes one: 401; for a stranger: 404, as if there were no such
//! server; for a guest where only the owner may act: 403 `owner_only`; with a token of another server: 404. Writes go
//! through [`ChangeableServer`].

use std::marker::PhantomData;

use actix::Addr;
use actix_web::{
    Error, FromRequest, HttpRequest, HttpResponse,
    dev::Payload,
    http::StatusCode,
    web::{Data, Path},
};
use futures_util::{
    FutureExt as _,
    future::{LocalBoxFuture, Ready, ready},
};
use serde::Serialize;

use crate::{
    api::{
        answer::{done::Done, error::ApiError},
        context::ApiContext,
        extract::{
            caller::{Caller, calling},
            idempotent::{Idempotent, KeyCaller, ReplayableAnswer},
        },
    },
    db::{
        access,
        engine::{error::DbError, pool::Db},
        paired_servers,
        users::{self, User},
    },
    domain::{
        access::{Action, Role},
        ids::ServerId,
        relay_access::RelayAccess,
    },
    relay::hub::Hub,
};

/// A server that the caller may watch.
pub struct WatchedServer {
    pub user: User,
    pub id: ServerId,
    pub role: Role,
}

/// A server that the caller may change as far as `R` goes, which is checked before the handler runs and again in the
/// transaction of each write: access may end in between.
pub struct ChangeableServer<R> {
    pub user: User,
    pub id: ServerId,
    context: Data<ApiContext>,
    right: PhantomData<R>,
}

/// The right to one write, as it was found in the transaction.
pub struct PermittedWrite {
    pub user: User,
    pub server: ServerId,
    pub role: Role,
}

/// A server that the caller owns.
pub type OwnedServer = ChangeableServer<OwnerRight>;

/// A server whose map the caller may note on.
pub type NotedServer = ChangeableServer<NoteRight>;

/// The actions that a caller must be permitted, all of them.
pub trait ServerRight: Send + 'static {
    const ACTIONS: &'static [Action];
}

/// The right to all that only the owner may do through this API.
pub struct OwnerRight;

/// The right to add map notes.
pub struct NoteRight;

impl ServerRight for OwnerRight {
    const ACTIONS: &'static [Action] = &[Action::Edit, Action::Drill];
}

impl ServerRight for NoteRight {
    const ACTIONS: &'static [Action] = &[Action::AddNote];
}

/// The second name in the path: a device, guest, note or the like of the server that the first one names.
pub struct ServerPart(pub String);

impl FromRequest for ServerPart {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(req: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let names = Path::<(String, String)>::from_request(req, payload).into_inner();
        ready(names.map(|names| Self(names.into_inner().1)))
    }
}

impl FromRequest for WatchedServer {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        permitted(req, &[Action::Watch]).boxed_local()
    }
}

impl<R: ServerRight> FromRequest for ChangeableServer<R> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        let (server, context) = (permitted(req, R::ACTIONS), ApiContext::of(req).clone());
        let changeable = |WatchedServer { user, id, .. }| Self { user, id, context, right: PhantomData };
        async move { server.await.map(changeable) }.boxed_local()
    }
}

impl<R: ServerRight> ChangeableServer<R> {
    /// Changes the database in one transaction.
    pub async fn write<T: Send + 'static>(
        self,
        change: impl FnOnce(&mut Db, &PermittedWrite) -> Result<T, DbError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let Self { user, id, context, .. } = self;
        let change = move |db: &mut Db| -> Result<T, ApiError> {
            let write = Self::permitted_now(db, user, id)?;
            Ok(change(db, &write)?)
        };
        context.pool.write(change).await
    }

    /// [`write`](Self::write) whose closure also says if anything changed; if so, `notify` sends it to the hub after the
    /// commit, as `Pool::write_and_notify` does.
    pub async fn write_and_notify<T: Send + 'static>(
        self,
        change: impl FnOnce(&mut Db, &PermittedWrite) -> Result<(T, bool), ApiError> + Send + 'static,
        notify: impl FnOnce(&Addr<Hub>, ServerId) + Send + 'static,
    ) -> Result<T, ApiError> {
        let Self { user, id, context, .. } = self;
        let (hub, changed) = (context.services.hub.clone(), id.clone());
        let change = move |db: &mut Db| {
            let write = Self::permitted_now(db, user, id)?;
            change(db, &write)
        };
        let notify = move |(_, is_changed): &(T, bool)| {
            if *is_changed {
                notify(&hub, changed);
            }
        };
        let changed = context.pool.write_and_notify(change, notify).await?.0;
        handed_on(&context).await;
        Ok(changed)
    }

    /// Deletes what the closure deletes: it returns false when there is no such thing, which is answered with 404.
    pub async fn delete<E>(
        self,
        delete: impl FnOnce(&mut Db, &PermittedWrite) -> Result<bool, E> + Send + 'static,
        notify: impl FnOnce(&Addr<Hub>, ServerId) + Send + 'static,
    ) -> Result<HttpResponse, ApiError>
    where
        ApiError: From<E>,
    {
        let delete = |db: &mut Db, write: &PermittedWrite| {
            let is_deleted = delete(db, write)?;
            Ok((is_deleted, is_deleted))
        };
        Done::if_found(self.write_and_notify(delete, notify).await?)
    }

    /// [`write`](Self::write) of something new, which may be sent again; the closure gives the answer. Locks the caller
    /// and the server: limits count what they have.
    pub async fn write_once<V: Serialize>(
        self,
        once: Idempotent,
        change: impl FnOnce(&mut Db, &PermittedWrite) -> Result<(StatusCode, V), ApiError> + Send + 'static,
        notify: impl FnOnce(&Addr<Hub>, ServerId) + Send + 'static,
    ) -> Result<HttpResponse, ApiError> {
        let Self { user, id, context, .. } = self;
        let (caller, hub, changed) = (KeyCaller::User(user.id.clone()), context.services.hub.clone(), id.clone());
        let change = move |db: &mut Db| {
            users::lock(db, &user.id)?;
            paired_servers::lock(db, &id)?;
            let write = Self::permitted_now(db, user, id)?;
            let (status, view) = change(db, &write)?;
            Ok((ReplayableAnswer::new(status, &view), ()))
        };
        let answer = once.write(caller, change, move |()| notify(&hub, changed)).await?;
        handed_on(&context).await;
        Ok(answer)
    }

    /// The write, if the caller's role of now still permits it.
    fn permitted_now(db: &mut Db, user: User, server: ServerId) -> Result<PermittedWrite, ApiError> {
        let role = check(access::role(db, &user.id, &server)?, R::ACTIONS)?;
        Ok(PermittedWrite { user, server, role })
    }
}

/// Waits until the hub has handed on what it was sent before, but not for long: the game connection knows of a change
/// before all that the game says from now on.
async fn handed_on(context: &ApiContext) {
    // The change is stored, and the hub has its message: one that is late holds no answer up for long.
    let _ = context.connections(Vec::new()).await;
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
    use crate::db::{guests, testing};

    #[test]
    fn a_stranger_finds_nothing_and_a_guest_is_refused_what_only_the_owner_may_do() {
        for actions in [&[Action::Watch][..], OwnerRight::ACTIONS] {
            assert!(matches!(check(None, actions), Err(ApiError::NotFound)));
            assert!(matches!(check(Some(Role::Owner), actions), Ok(Role::Owner)));
        }
        assert!(matches!(check(Some(Role::Guest), &[Action::Watch]), Ok(Role::Guest)));
        assert!(matches!(check(Some(Role::Guest), OwnerRight::ACTIONS), Err(ApiError::OwnerOnly)));
        assert!(matches!(check(Some(Role::Guest), NoteRight::ACTIONS), Ok(Role::Guest)));
        assert!(matches!(check(Some(Role::Overlay), NoteRight::ACTIONS), Err(ApiError::OwnerOnly)));
    }

    #[test]
    fn a_write_is_permitted_by_the_role_in_its_transaction() {
        testing::on_each_database(|pool| {
            for user in ["owner", "guest"] {
                testing::user(pool, user);
            }
            let id = testing::server(pool, "owner", "server").id;
            testing::guest(pool, "g", "server", "guest");
            let user = |name: &str| pool.read_blocking(|db| users::find(db, &name.into())).unwrap().unwrap();
            let (owner, guest) = (user("owner"), user("guest"));
            let now = |permitted: fn(&mut Db, User, ServerId) -> Result<PermittedWrite, ApiError>, user: &User| {
                let found = pool.read_blocking(|db| Ok(permitted(db, user.clone(), id.clone()))).unwrap();
                found.map(|write| write.role)
            };
            assert!(matches!(now(OwnedServer::permitted_now, &owner), Ok(Role::Owner)));
            assert!(matches!(now(OwnedServer::permitted_now, &guest), Err(ApiError::OwnerOnly)));
            assert!(matches!(now(NotedServer::permitted_now, &owner), Ok(Role::Owner)));
            assert!(matches!(now(NotedServer::permitted_now, &guest), Ok(Role::Guest)));
            pool.write_blocking(|db| guests::remove(db, &id, &"g".into())).unwrap();
            assert!(matches!(now(NotedServer::permitted_now, &guest), Err(ApiError::NotFound)));
            pool.write_blocking(|db| paired_servers::delete(db, &owner.id, &id)).unwrap();
            assert!(matches!(now(OwnedServer::permitted_now, &owner), Err(ApiError::NotFound)));
        });
    }
}
