//! Taking paired servers away: `/admin/paired-servers/{id}`, `/admin/users/{userId}/paired-servers`. Live links,
//! watches and overlays end at once, as when the owner deletes them.

use actix_web::{HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    api::{
        answer::{done::Done, error::ApiError},
        context::{ApiContext, ApiServices},
        extract::admin::Admin,
    },
    db::{
        alarms::emergencies::{self, OrphanedEmergency},
        engine::pool::Db,
        paired_servers::{self, PairedServer},
        users,
    },
    domain::{
        audit::{AdminAction, Written},
        ids::{ServerId, UserId},
        time::Timestamp,
    },
    push::worker::ServersChanged,
    relay::hub::ServerRemoved,
};

#[derive(Serialize, ToSchema)]
struct DeletedServers {
    ok: bool,
    deleted: usize,
}

/// A server as the audit log shows it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AuditedServer<'a> {
    id: &'a str,
    owner_id: &'a str,
    name: &'a str,
    address: &'a str,
    port: u16,
    player_id: &'a str,
    created_at: Timestamp,
}

impl<'a> From<&'a PairedServer> for AuditedServer<'a> {
    fn from(server: &'a PairedServer) -> Self {
        Self {
            id: server.id.as_str(),
            owner_id: server.owner_id.as_str(),
            name: &server.name,
            address: &server.address,
            port: server.port,
            player_id: &server.player_id,
            created_at: server.created_at,
        }
    }
}

/// A paired server that is deleted, and the messages about it that repeat.
struct DeletedPairedServer {
    server: PairedServer,
    emergencies: Vec<OrphanedEmergency>,
}

/// Notifies the relay and the push worker, which end what runs for deleted servers.
fn end_lives(services: &ApiServices) -> impl Fn(&DeletedPairedServer) + Send + use<> {
    let (hub, push, channels) = (services.hub.clone(), services.push.clone(), services.channels.clone());
    move |DeletedPairedServer { server, emergencies }| {
        channels.orphaned.add(emergencies.iter().cloned());
        hub.do_send(ServerRemoved { server: server.id.clone() });
        push.do_send(ServersChanged { user: server.owner_id.clone() });
    }
}

/// Deletes a paired server, with everything stored for it.
#[utoipa::path(delete, path = "/admin/paired-servers/{id}", tag = "admin",
    params(("id" = String, Path)), responses(
    (status = 200, body = Done),
))]
pub async fn delete(
    admin: Admin,
    path: web::Path<String>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let target = path.into_inner();
    let (id, now) = (ServerId::from(target.as_str()), context.clock.now());
    let remove = move |db: &mut Db, _| {
        let server = paired_servers::get(db, &id)?;
        let emergencies = emergencies::delete_server(db, &server.owner_id, &id, now)?.ok_or(ApiError::NotFound)?;
        let before = serde_json::to_value(AuditedServer::from(&server)).unwrap_or_default();
        Ok(Written::new(DeletedPairedServer { server, emergencies }, before, ()))
    };
    let end = end_lives(&context.services);
    admin.write_and_notify(AdminAction::DeletePairedServer, &target, remove, move |server| end(server)).await?;
    Ok(HttpResponse::Ok().json(Done::OK))
}

/// Deletes all paired servers of a member.
#[utoipa::path(delete, path = "/admin/users/{userId}/paired-servers", tag = "admin",
    params(("userId" = String, Path)), responses(
    (status = 200, body = DeletedServers),
    (status = 404, description = "There is no such member"),
))]
pub async fn delete_all(
    admin: Admin,
    path: web::Path<String>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let target = path.into_inner();
    let (user, now) = (UserId::from(target.as_str()), context.clock.now());
    let remove = move |db: &mut Db, _| {
        users::find(db, &user)?.ok_or(ApiError::NotFound)?;
        let servers = paired_servers::list_for(db, &user)?;
        let before: Vec<AuditedServer<'_>> = servers.iter().map(AuditedServer::from).collect();
        let before = serde_json::to_value(before).unwrap_or_default();
        let mut deleted = Vec::new();
        for server in servers {
            let emergencies = emergencies::delete_server(db, &user, &server.id, now)?.unwrap_or_default();
            deleted.push(DeletedPairedServer { server, emergencies });
        }
        Ok(Written::new(deleted, before, [(); 0]))
    };
    let end = end_lives(&context.services);
    let notify = move |servers: &Vec<DeletedPairedServer>| servers.iter().for_each(&end);
    let deleted = admin.write_and_notify(AdminAction::DeletePairedServers, &target, remove, notify).await?;
    Ok(HttpResponse::Ok().json(DeletedServers { ok: true, deleted: deleted.len() }))
}
