//! Readiness for an alarm: whether it would reach the user now, and what to do if not.

use std::borrow::Cow;

use actix_web::{HttpResponse, web};
use chrono::TimeDelta;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    api::{
        account::credentials::RefusalView,
        answer::error::{ApiError, OPERATOR_REPAIRS},
        context::ApiContext,
        extract::paired_server::WatchedServer,
        server::alarm_deliveries::SpokenView,
    },
    db::{
        alarms::{alarm_ledger, spoken_alarms},
        engine::{error::DbError, pool::Db},
        notices::{
            alarm_rules,
            channels::{self, StoredChannel},
        },
        paired_servers, push_refusals, smart_devices, team_chat_settings,
    },
    domain::{
        access::Role,
        channels::user_channel::{ChannelFault, ChannelKind, ChannelProof},
        ids::{ServerId, UserId},
        limits::CHANNELS_PER_USER,
        link_reason::LinkReason,
        server_state::ConnectionState,
        time::Timestamp,
    },
    push::session_status::{PushSession, PushState, SessionFault},
    relay::hub::LinkStatus,
};

/// An alarm of this time that fits no paired server is reported.
const UNMATCHED_FOR: TimeDelta = TimeDelta::days(1);

/// The paths by which an alarm of a paired server reaches us.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AlarmReadiness {
    /// At least one path is up.
    ready: bool,
    /// The live link to the game server, and the game's push messages.
    #[schema(max_items = 2)]
    paths: [PathReadiness; 2],
    /// The owner's last push credential that does not work, perhaps beside one that does; `null` for a guest.
    push_refusal: Option<RefusalView>,
    /// This user's channels, oldest first: by them an alarm reaches them without a dashboard.
    #[schema(max_items = 20)]
    channels: Vec<ChannelReadiness>,
    team_chat: TeamChatReadiness,
}

/// Alarms in the team's chat.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct TeamChatReadiness {
    /// `announcements.raid` of the chat settings is on.
    announces: bool,
    /// The newest alarm's line; null: there was none.
    last: Option<SpokenView>,
}

/// A channel, and the worth of it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ChannelReadiness {
    id: String,
    kind: ChannelKind,
    name: String,
    /// The end of its newest message: `accepted` or `failed`; `untested`: none was sent; `disabled`: nothing got through
    /// for a day, and `gone`: the target ended; by these two no alarm is sent.
    proof: ChannelProof,
    /// Fault of the newest message.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<ChannelFault>,
    /// When the other side last took a message; null: never.
    accepted_at: Option<Timestamp>,
    /// This user's rules for the server send alarms by it.
    in_rules: bool,
    /// Advice to the user; null when there is nothing to do.
    advice: Option<&'static str>,
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
    since: Option<Timestamp>,
    /// Advice to the user; `null` when there is nothing to do.
    #[schema(value_type = Option<String>)]
    advice: Option<Cow<'static, str>>,
}

/// Which alarm paths of a paired server are up.
#[utoipa::path(get, path = "/paired-servers/{id}/readiness", tag = "paired servers",
    params(("id" = String, Path)), responses(
    (status = 200, body = AlarmReadiness),
))]
pub async fn get(
    WatchedServer { id, role, user }: WatchedServer,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (server, now) = (id.clone(), context.clock.now());
    let since = now - UNMATCHED_FOR;
    let read = move |db: &mut Db| {
        let owner = paired_servers::get(db, &server)?.owner_id;
        // Labels of devices belong to their owner, and so do alarms that fit no paired server.
        let (refusal, unmatched) = match role {
            Role::Owner => (push_refusals::get(db, &owner)?, alarm_ledger::last_unmatched(db, &owner, since)?),
            _ => (None, None),
        };
        let channels = channel_readiness(db, &server, (&user.id, role))?;
        let announces = team_chat_settings::get(db, &server)?.announcements.raid;
        let last = spoken_alarms::newest(db, &server)?.map(|line| SpokenView::new(line, now));
        let team_chat = TeamChatReadiness { announces, last };
        Ok((owner, smart_devices::list(db, &server)?, refusal, unmatched, channels, team_chat))
    };
    let (owner, devices, refusal, unmatched, channels, team_chat) = context.pool.read(read).await?;
    let has_alarm = devices.iter().any(|device| device.kind.may_be_alarm());
    let link = context.connections(vec![id.clone()]).await?.remove(&id);
    let is_exhausted = context.budget_exhausted(id).await;
    let push = context.push_session(&owner).await?;
    let link_path = PathReadiness::of_link(link.as_ref(), has_alarm, is_exhausted);
    let push_path = PathReadiness::of_push(push.as_ref(), refusal.is_some(), unmatched);
    let ready = link_path.up || push_path.up;
    let is_link_unknown = link.is_some_and(|link| link.reason == Some(LinkReason::NodeSilent));
    if !ready && (is_link_unknown || push.is_some_and(|push| push.is_unknown())) {
        // Perhaps it would be.
        return Err(ApiError::Unavailable("the node that has the link or the push session does not answer".into()));
    }
    Ok(HttpResponse::Ok().json(AlarmReadiness {
        ready,
        paths: [link_path, push_path],
        push_refusal: refusal.map(RefusalView::from),
        channels,
        team_chat,
    }))
}

/// The user's channels, with those of their rules for this server marked.
fn channel_readiness(
    db: &mut Db,
    server: &ServerId,
    (user, role): (&UserId, Role),
) -> Result<Vec<ChannelReadiness>, DbError> {
    let channels = channels::list(db, user)?;
    let plan = alarm_rules::raid_plan(db, server, (user, role), &channels)?;
    let readiness = channels.into_iter().take(CHANNELS_PER_USER).map(|channel| {
        let id = channel.id();
        ChannelReadiness::new(channel, role, plan.iter().any(|step| step.channels.contains(&id)))
    });
    readiness.collect()
}

impl ChannelReadiness {
    fn new(channel: StoredChannel, role: Role, in_rules: bool) -> Result<Self, DbError> {
        let (kind, proof) = (channel.kind()?, ChannelProof::of(channel.state()?, channel.accepted_at));
        let reason = channel.reason.as_deref().and_then(ChannelFault::parse);
        let not_used = (!in_rules).then_some("Your rules for this server send no alarm by it.");
        let not_yours = (!kind.serves(role)).then_some("Only the owner's alarms are said in the team's chat.");
        let advice = not_yours.or(proof.advice()).or(reason.map(ChannelFault::advice)).or(not_used);
        let StoredChannel { id, name, accepted_at, .. } = channel;
        Ok(Self { id, kind, name, proof, reason, accepted_at, in_rules, advice })
    }
}

impl PathReadiness {
    /// The live link; without an alarm it has nothing to report. `is_exhausted`: its budget was within the last minute.
    fn of_link(link: Option<&LinkStatus>, has_alarm: bool, is_exhausted: bool) -> Self {
        let (state, reason) = (link.map(|link| link.state), link.and_then(|link| link.reason));
        let advice = match state {
            _ if reason == Some(LinkReason::NodeSilent) => {
                Some("The part of our service that has the link does not answer: look again in a moment.")
            }
            Some(ConnectionState::Connected) if !has_alarm => {
                Some("Pair a smart alarm: without one the link cannot report a raid.")
            }
            Some(ConnectionState::Connected) => is_exhausted.then_some(
                "More was asked of the game server within the last minute than it answers: alarms still come, switches \
                 and the map may come late. Does another program use the same pairing?",
            ),
            _ if matches!(reason, Some(LinkReason::MissingKey | LinkReason::UnreadableRow)) => Some(OPERATOR_REPAIRS),
            Some(ConnectionState::Unreachable) if reason == Some(LinkReason::OurDatabase) => {
                Some("Our database does not answer; it is tried again automatically.")
            }
            Some(ConnectionState::Rejected | ConnectionState::NoCredentials) => {
                Some("The game server refuses the player token: press pair in the game again.")
            }
            Some(ConnectionState::Unreachable | ConnectionState::Connecting) => {
                Some("The game server does not answer; it is tried again automatically. Is it running?")
            }
            Some(ConnectionState::Waiting) => Some(
                "This game server takes few connections from us, and others have their turn; yours comes by itself. A \
                 push credential delivers alarms meanwhile.",
            ),
            Some(ConnectionState::Paused) | None => Some("The link is paused until a dashboard is opened."),
        };
        Self {
            path: "link",
            up: state == Some(ConnectionState::Connected) && has_alarm,
            since: link.map(|link| link.since),
            advice: advice.map(Cow::from),
        }
    }

    /// The owner's push session; `unmatched` is the last alarm of a game server that is not paired, and when it came.
    fn of_push(push: Option<&PushSession>, is_refused: bool, unmatched: Option<(String, Timestamp)>) -> Self {
        let advice = match push.map(|push| push.state) {
            _ if push.is_some_and(PushSession::is_unknown) => Some(
                "The part of our service that has the push session does not answer: look again in a moment.".into(),
            ),
            Some(PushState::Connected) if is_refused => Some(
                "The newest push credential was refused, and an older one is still in use: run the helper again and \
                 upload a new one."
                    .into(),
            ),
            Some(PushState::Connected) => unmatched.map(|(alarm, at)| {
                let at = at.to_wire();
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
        };
        Self {
            path: "push",
            up: push.is_some_and(|push| push.state == PushState::Connected),
            since: push.map(|push| push.since),
            advice,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::now;

    #[test]
    fn a_push_session_at_a_node_that_does_not_answer_is_not_taken_for_none() {
        let session = PushSession::at_silent_node(now());
        let PathReadiness { up, advice, .. } = PathReadiness::of_push(Some(&session), false, None);
        assert!(!up && session.is_unknown());
        assert!(advice.is_some_and(|advice| advice.contains("look again in a moment")));
        let shown = serde_json::to_value(session).unwrap();
        assert_eq!((&shown["state"], &shown["lastError"]), (&"connecting".into(), &"node_silent".into()));
    }
}
