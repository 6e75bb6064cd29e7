//! Messages about an alarm by the caller's own channels: `/paired-servers/{id}/alarms/{incident}/deliveries`.

use std::collections::HashMap;

use actix_web::{HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    api::{
        answer::{error::ApiError, fields::own_id},
        context::ApiContext,
        extract::paired_server::{ServerPart, WatchedServer},
    },
    db::{
        alarms::spoken_alarms,
        engine::{error::DbError, pool::Db},
        notices::{
            channels::{self, StoredChannel},
            deliveries::{self, StoredDelivery},
            notice_queue::{self, NoticeDeliveryState},
        },
    },
    domain::{
        channels::{
            spoken_alarm::{SpokenFault, SpokenLine, SpokenState},
            user_channel::{ChannelFault, ChannelKind},
        },
        time::Timestamp,
    },
};

/// A message by a channel.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DeliveryView {
    /// Id of the channel.
    channel: String,
    kind: ChannelKind,
    /// Name of the channel.
    name: String,
    /// Rounds of the rules before this one.
    round: i32,
    /// `queued`: it waits for an attempt; `accepted`: the other side took it; `failed`: not tried again; `superseded`: a
    /// newer one took its place; `cancelled`: acknowledged, quiet, or no longer yours; `suppressed`: your quiet hours.
    state: NoticeDeliveryState,
    /// Attempts that failed.
    attempts: i32,
    /// Status of the newest answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<i32>,
    /// The newest fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<ChannelFault>,
    /// When it was due.
    due_at: Timestamp,
    /// The next attempt; null: none.
    next_at: Option<Timestamp>,
    /// When it came to an end.
    ended_at: Option<Timestamp>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DeliveryList {
    /// Oldest first.
    #[schema(max_items = 200)]
    deliveries: Vec<DeliveryView>,
    /// The line in the team's chat; null: there was none.
    team_chat: Option<SpokenView>,
}

/// The line of an alarm in the team's chat.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SpokenView {
    /// `queued`; `accepted`: the game server took it; `failed`: it was not said; `superseded`: another user of the team has
    /// just announced the same.
    pub(super) state: SpokenState,
    /// Reason why it was not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<SpokenFault>,
    pub(super) due_at: Timestamp,
    pub(super) ended_at: Option<Timestamp>,
}

impl SpokenView {
    /// A line, as it is now.
    pub(super) fn new(line: SpokenLine, now: Timestamp) -> Self {
        let SpokenLine { state, fault, queued_at, ended_at } = line.at(now);
        Self { state, reason: fault, due_at: queued_at, ended_at }
    }
}

/// The messages about an incident by this user's channels, and its line in the team's chat. Empty where the user had no
/// channel.
#[utoipa::path(get, path = "/paired-servers/{id}/alarms/{incident}/deliveries", tag = "alarms",
    params(("id" = String, Path), ("incident" = String, Path)), responses(
    (status = 200, body = DeliveryList),
))]
pub async fn list(
    WatchedServer { id, user, .. }: WatchedServer,
    ServerPart(incident): ServerPart,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    own_id(&incident, &()).map_err(|_| ApiError::NotFound)?;
    let read = move |db: &mut Db| {
        let spoken = spoken_alarms::get(db, &id, &incident)?;
        if notice_queue::server_of(db, &incident, &user.id)? != Some(id) {
            return Ok((Vec::new(), Vec::new(), spoken));
        }
        Ok((channels::list(db, &user.id)?, deliveries::list(db, &incident, &user.id)?, spoken))
    };
    let (channels, deliveries, spoken): (Vec<StoredChannel>, _, _) = context.pool.read(read).await?;
    let channels: HashMap<String, StoredChannel> =
        channels.into_iter().map(|channel| (channel.id.clone(), channel)).collect();
    let views = deliveries.into_iter().filter_map(|delivery| {
        let channel = channels.get(&delivery.channel_id)?;
        Some(DeliveryView::new(delivery, channel))
    });
    let deliveries = views.collect::<Result<_, DbError>>()?;
    let team_chat = spoken.map(|line| SpokenView::new(line, context.clock.now()));
    Ok(HttpResponse::Ok().json(DeliveryList { deliveries, team_chat }))
}

impl DeliveryView {
    fn new(delivery: StoredDelivery, channel: &StoredChannel) -> Result<Self, DbError> {
        let state = delivery.state()?;
        let StoredDelivery { channel_id, round, attempts, queued_at, due_at, status, reason, ended_at, .. } = delivery;
        Ok(Self {
            channel: channel_id,
            kind: channel.kind()?,
            name: channel.name.clone(),
            round,
            state,
            attempts,
            status,
            reason: reason.as_deref().and_then(ChannelFault::parse),
            due_at: queued_at,
            next_at: due_at,
            ended_at,
        })
    }
}
