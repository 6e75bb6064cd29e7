//! Readiness for an alarm: whether it would reach the user now, what to do if not, and a drill: a test alarm through
//! every step.

use std::borrow::Cow;

use actix_web::{HttpResponse, web};
use chrono::TimeDelta;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    api::{
        account::credentials::RefusalView,
        answer::error::{ApiError, OPERATOR_REPAIRS, Problem},
        context::ApiContext,
        extract::paired_server::{OwnedServer, WatchedServer},
    },
    db::{alarms, engine::pool::Db, paired_servers, push_refusals, smart_devices},
    domain::{
        access::Role,
        device::DeviceKind,
        link_reason::LinkReason,
        server_state::ConnectionState,
        time::{self, Timestamp},
    },
    push::session_status::{PushState, SessionFault},
    relay::hub::{DrillError, StartDrill},
};

/// An alarm of this time that fits no paired server is reported.
const UNMATCHED_FOR: TimeDelta = TimeDelta::days(1);

/// The paths by which an alarm of a paired server reaches us.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Readiness {
    /// At least one path is up.
    ready: bool,
    /// The live link to the game server, and the game's push messages.
    #[schema(max_items = 2)]
    paths: [PathReadiness; 2],
    /// The owner's last push credential that does not work, perhaps beside one that does; `null` for a guest.
    push_refusal: Option<RefusalView>,
}

/// One path.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PathReadiness {
    /// `link` or `push`.
    #[schema(format = "alarm-way")]
    path: &'static str,
    up: bool,
    /// Since when; `null` if it was never tried.
    #[serde(serialize_with = "time::wire_option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    since: Option<Timestamp>,
    /// Advice to the user; `null` when there is nothing to do.
    #[schema(value_type = Option<String>)]
    advice: Option<Cow<'static, str>>,
}

/// Which alarm paths of a paired server are up.
#[utoipa::path(get, path = "/paired-servers/{id}/readiness", tag = "paired servers", security(("session" = [])),
    params(("id" = String, Path)), responses(
    (status = 200, body = Readiness),
))]
pub async fn readiness(
    WatchedServer { id, role, .. }: WatchedServer,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (server, since) = (id.clone(), context.clock.now() - UNMATCHED_FOR);
    let read = move |db: &mut Db| {
        let owner = paired_servers::get(db, &server)?.owner_id;
        // Labels of devices belong to their owner, and so do alarms that fit no paired server.
        let (refusal, unmatched) = match role {
            Role::Owner => (push_refusals::get(db, &owner)?, alarms::last_unmatched(db, &owner, since)?),
            _ => (None, None),
        };
        Ok((owner, smart_devices::list(db, &server)?, refusal, unmatched))
    };
    let (owner, devices, refusal, unmatched) = context.pool.read(read).await?;
    let has_alarm = devices.iter().any(|device| matches!(device.kind, DeviceKind::Alarm | DeviceKind::Unknown));
    let link = context.connections(vec![id.clone()]).await?.remove(&id);
    let push = context.push_session(&owner).await?;
    let push = push.as_ref();

    let awaits_key = link.as_ref().is_some_and(|link| link.reason == Some(LinkReason::MissingKey));
    let link_state = link.as_ref().map(|link| link.state);
    let link_path = PathReadiness {
        path: "link",
        up: link_state == Some(ConnectionState::Connected) && has_alarm,
        since: link.as_ref().map(|link| link.since),
        advice: match link_state {
            Some(ConnectionState::Connected) if has_alarm => None,
            Some(ConnectionState::Connected) => Some("Pair a smart alarm: without one the link cannot report a raid."),
            Some(ConnectionState::NoCredentials) if awaits_key => Some(OPERATOR_REPAIRS),
            Some(ConnectionState::Rejected | ConnectionState::NoCredentials) => {
                Some("The game server refuses the player token: press pair in the game again.")
            }
            Some(ConnectionState::Unreachable | ConnectionState::Connecting) => {
                Some("The game server does not answer; it is tried again automatically. Is it running?")
            }
            Some(ConnectionState::Paused) | None => Some("The link is paused until a dashboard is opened."),
        }
        .map(Cow::from),
    };
    let push_path = PathReadiness {
        path: "push",
        up: push.is_some_and(|push| push.state == PushState::Connected),
        since: push.map(|push| push.since),
        advice: match push.map(|push| push.state) {
            Some(PushState::Connected) if refusal.is_some() => Some(
                "The newest push credential was refused, and an older one is still in use: run the helper again and \
                 upload a new one."
                    .into(),
            ),
            Some(PushState::Connected) => unmatched.map(|(alarm, at)| {
                let at = time::to_wire(at);
                format!(
                    "An alarm came from a game server that is not paired: \"{alarm}\", at {at}. Press pair in the game \
                     there."
                )
                .into()
            }),
            Some(PushState::Connecting | PushState::Unreachable) => {
                Some("The push service is not reached; it is tried again automatically.".into())
            }
            Some(PushState::Unreadable) if push.and_then(|push| push.last_error) == Some(SessionFault::UnknownKey) => {
                Some(OPERATOR_REPAIRS.into())
            }
            Some(PushState::RefreshNeeded | PushState::Unreadable) => {
                Some("The push credential no longer works: run the helper again and upload a new one.".into())
            }
            None => Some("There is no push credential: pair a helper device and upload one.".into()),
        },
    };
    let ready = link_path.up || push_path.up;
    Ok(HttpResponse::Ok().json(Readiness {
        ready,
        paths: [link_path, push_path],
        push_refusal: refusal.map(RefusalView::from),
    }))
}

/// The result of a drill.
#[derive(Serialize, ToSchema)]
struct DrillReport {
    incident: String,
    /// Sockets that the test alarm was written to; 0: no one watches.
    sockets: usize,
}

/// Sends a test alarm through every step that a real one passes, marked as a drill.
#[utoipa::path(post, path = "/paired-servers/{id}/drill", tag = "paired servers", security(("session" = [])),
    params(("id" = String, Path)), responses(
    (status = 200, body = DrillReport),
    (status = 403, body = Problem, content_type = "application/problem+json", description = "`owner_only`"),
))]
pub async fn drill(server: OwnedServer, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let drilled = context
        .hub
        .send(StartDrill { server: server.id })
        .await
        .map_err(|error| ApiError::Unavailable(Box::new(error)))?;
    let drilled = drilled.map_err(|error| match error {
        DrillError::UnknownServer => ApiError::NotFound,
        DrillError::Unavailable => ApiError::Unavailable("the drill was not stored".into()),
    })?;
    Ok(HttpResponse::Ok().json(DrillReport { incident: drilled.incident, sockets: drilled.sockets }))
}
