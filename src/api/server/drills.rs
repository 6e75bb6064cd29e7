//! A drill: a test alarm through every step that a real one passes, to every dashboard and by every channel.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use tokio::{
    pin, select,
    time::{sleep, sleep_until},
};
use utoipa::ToSchema;

use crate::{
    api::{
        answer::error::ApiError,
        context::ApiContext,
        extract::{paired_server::OwnedServer, route_facts},
        server::alarm_deliveries::SpokenView,
    },
    db::{
        alarms::spoken_alarms,
        engine::{error::DbError, pool::Db},
        notices::{
            alarm_rules,
            channels::{self, StoredChannel},
            deliveries::{self, StoredDelivery},
            notice_queue::{DeliveryOutcome, EndedAttempt, NoticeDeliveryState, NoticeKey},
        },
        team_chat_settings,
    },
    domain::{
        access::Role,
        channels::{
            drill::{DrillReach, DrilledMessage},
            spoken_alarm::SpokenState,
            user_channel::{ChannelFault, ChannelKind},
        },
        ids::{ServerId, UserId},
    },
    relay::hub::{DrillError, DrillOutcome, StartDrill},
};

/// For so long the answer waits for the channels of the first step.
const CHANNELS_WITHIN: Duration = Duration::from_secs(5);
/// Least time between two looks at them.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Time between two looks at a line in the team's chat.
const SPOKEN_EVERY: Duration = Duration::from_millis(500);

/// The result of a drill.
#[derive(Serialize, ToSchema)]
struct DrillReport {
    incident: String,
    /// Sockets that the test alarm was written to; 0: no one watches.
    sockets: usize,
    /// The user's channels, oldest first, as far as the drill came by each within some seconds. Later:
    /// `GET /paired-servers/{id}/alarms/{incident}/deliveries`.
    #[schema(max_items = 20)]
    channels: Vec<DrilledChannel>,
    /// The line in the team's chat, as far as it came; null: `announcements.raid` of the chat settings is off.
    #[serde(rename = "teamChat")]
    team_chat: Option<SpokenView>,
    /// `false`: the database did not answer in time, and `channels` and `teamChat` say nothing.
    #[serde(rename = "waysKnown")]
    ways_known: bool,
}

/// A drill's ways besides the sockets.
#[derive(Default)]
struct DrilledWays {
    channels: Vec<DrilledChannel>,
    /// Alarms are announced in the team's chat.
    are_announced: bool,
    team_chat: Option<SpokenView>,
}

impl DrilledWays {
    /// True if one is on its way.
    fn are_open(&self) -> bool {
        let is_queued = self.team_chat.as_ref().is_none_or(|line| line.state == SpokenState::Queued);
        self.are_announced && is_queued || self.channels.iter().any(|channel| channel.reach == DrillReach::Sending)
    }
}

/// A channel in a drill.
#[derive(Serialize, ToSchema)]
struct DrilledChannel {
    id: String,
    kind: ChannelKind,
    name: String,
    /// `accepted`: the other side took it; `failed`; `sending`; `later`: in a later step of the rules; `unused`: the rules
    /// do not name it, or it is disabled or gone.
    reach: DrillReach,
    /// Status of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<ChannelFault>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'static str>,
}

/// Sends a test alarm through every step that a real one passes, marked as a drill.
#[utoipa::path(post, path = "/paired-servers/{id}/drill", tag = "paired servers",
    params(("id" = String, Path)), responses(
    (status = 200, body = DrillReport),
    (status = 403, description = "`owner_only`"),
))]
pub async fn create_drill(
    server: OwnedServer,
    context: web::Data<ApiContext>,
    req: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    route_facts::take_limit(&req, &server.user.id)?;
    let (id, user) = (server.id.clone(), server.user.id.clone());
    let drilled = context
        .services
        .hub
        .send(StartDrill { server: server.id })
        .await
        .map_err(|error| ApiError::Unavailable(Box::new(error)))?;
    let drilled = drilled.map_err(|error| match error {
        DrillError::UnknownServer => ApiError::NotFound,
        DrillError::Unavailable => ApiError::Unavailable("the drill was not stored".into()),
    })?;
    // The alarm rings, also where the database does not say by which channels.
    let ways = follow(&context, &id, &user, &drilled.incident).await;
    let ways_known = ways.is_ok();
    let DrilledWays { channels, team_chat, .. } = ways.unwrap_or_default();
    let DrillOutcome { incident, sockets } = drilled;
    Ok(HttpResponse::Ok().json(DrillReport { incident, sockets, channels, team_chat, ways_known }))
}

/// The ways, once the first step was made, or as far as it came in time.
async fn follow(
    context: &ApiContext,
    server: &ServerId,
    user: &UserId,
    incident: &str,
) -> Result<DrilledWays, DbError> {
    let until = sleep_until(tokio::time::Instant::now() + CHANNELS_WITHIN);
    pin!(until);
    loop {
        let settled = context.services.channels.settled();
        pin!(settled);
        settled.as_mut().enable();
        let (server, user, incident) = (server.clone(), user.clone(), incident.to_owned());
        let now = context.clock.now();
        let early = &context.services.channels.early;
        let early = early.ended_of(&NoticeKey { incident: incident.clone(), user: user.clone() });
        let read = move |db: &mut Db| {
            let are_announced = team_chat_settings::get(db, &server)?.announcements.raid;
            let line = spoken_alarms::get(db, &server, &incident)?.filter(|_| are_announced);
            let channels = drilled_channels(db, &server, &user, &incident, &early)?;
            Ok(DrilledWays { channels, are_announced, team_chat: line.map(|line| SpokenView::new(line, now)) })
        };
        let ways = context.pool.read(read).await?;
        if !ways.are_open() {
            return Ok(ways);
        }
        // Lines in the chat give no news here.
        let is_spoken = ways.are_announced;
        select! {
            () = &mut until => return Ok(ways),
            () = settled => sleep(LOOK_EVERY).await,
            () = sleep(SPOKEN_EVERY), if is_spoken => {}
        }
    }
}

/// The user's channels, by their rows, or by what came of these messages, which were sent before their rows were made.
fn drilled_channels(
    db: &mut Db,
    server: &ServerId,
    user: &UserId,
    incident: &str,
    early: &[EndedAttempt],
) -> Result<Vec<DrilledChannel>, DbError> {
    let channels = channels::list(db, user)?;
    let plan = alarm_rules::raid_plan(db, server, (user, Role::Owner), &channels)?;
    let messages = deliveries::list(db, incident, user)?;
    let drilled = channels.into_iter().map(|channel| {
        let id = channel.id();
        let after = plan.iter().find(|step| step.channels.contains(&id)).map(|step| step.after_seconds);
        let newest = messages.iter().rev().find(|message| message.channel_id == channel.id);
        match early.iter().find(|attempt| attempt.delivery.channel_id == channel.id) {
            Some(attempt) if newest.is_none_or(DrilledChannel::waits) => DrilledChannel::of_early(channel, attempt),
            _ => DrilledChannel::new(channel, newest, after),
        }
    });
    drilled.collect()
}

impl DrilledChannel {
    /// True for a message that was not tried from its row.
    fn waits(message: &StoredDelivery) -> bool {
        message.attempts == 0 && message.state == NoticeDeliveryState::Queued.word()
    }

    fn of_early(channel: StoredChannel, attempt: &EndedAttempt) -> Result<Self, DbError> {
        let (reach, status, reason) = match &attempt.outcome {
            DeliveryOutcome::Accepted { status, .. } => (DrillReach::Accepted, *status, None),
            DeliveryOutcome::Failed { status, fault, .. } => (DrillReach::Failed, *status, Some(*fault)),
            DeliveryOutcome::Unsaid => (DrillReach::Unused, None, None),
        };
        let kind = channel.kind()?;
        let StoredChannel { id, name, .. } = channel;
        let advice = reason.map(ChannelFault::advice);
        Ok(Self { id, kind, name, reach, status: status.map(i32::from), reason, advice })
    }

    fn new(channel: StoredChannel, message: Option<&StoredDelivery>, after: Option<u32>) -> Result<Self, DbError> {
        let kind = channel.kind()?;
        let StoredChannel { id, name, .. } = channel;
        let drilled = message.map(|message| DrilledMessage {
            is_accepted: message.state == NoticeDeliveryState::Accepted.word(),
            is_queued: message.state == NoticeDeliveryState::Queued.word(),
            attempts: message.attempts,
        });
        let status = message.and_then(|message| message.status);
        let reason = message.and_then(|message| ChannelFault::parse(message.reason.as_deref()?));
        let advice = reason.map(ChannelFault::advice);
        Ok(Self { id, kind, name, reach: DrillReach::of(drilled, after), status, reason, advice })
    }
}
