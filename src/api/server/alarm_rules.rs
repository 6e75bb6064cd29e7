//! Rules of a user for alarms of a server: `/paired-servers/{id}/alarm-rules`. Each watcher has their own.

use std::collections::BTreeSet;

use actix_web::{HttpResponse, web};
use garde::Validate;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::{
    api::{
        answer::error::ApiError,
        context::ApiContext,
        extract::{json::Json, paired_server::WatchedServer},
    },
    db::{
        access,
        alarms::late_notices,
        engine::pool::Db,
        notices::{
            alarm_rules,
            channels::{self, StoredChannel},
        },
    },
    domain::{
        channels::{
            escalation::{AlarmRules, EscalationStep, only_raids},
            quiet_hours::QuietHours,
        },
        ids::ChannelId,
        world_event::EventKind,
    },
};

/// Rules in place of the ones before.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "enabled": true, "steps": [], "repeatSeconds": 180, "rounds": 10 }))]
pub struct PutAlarmRules {
    /// False: alarms of this server use no channel.
    #[garde(skip)]
    enabled: bool,
    /// In the order of their time, each channel once. Empty: browsers at once, then the other channels one by one, a minute
    /// apart.
    #[garde(length(max = 10), dive)]
    #[schema(max_items = 10)]
    steps: Vec<PutStep>,
    /// Seconds from the last step until all of them are repeated.
    #[garde(range(min = 60, max = 3600))]
    #[schema(minimum = 60, maximum = 3600)]
    repeat_seconds: u32,
    /// Number of times that the steps are made in all, until the user acknowledges the alarm or it is over: quiet for 15
    /// minutes, or for longer if the last step, or the first one that is repeated, comes later.
    #[garde(range(min = 1, max = 10))]
    #[schema(minimum = 1, maximum = 10)]
    rounds: u32,
    /// Kinds of events that are sent: `raid`, and those of the timeline. Absent: `["raid"]`. An event that is no raid is
    /// sent once, by the channels of the first step, and quietly.
    #[garde(skip)]
    #[schema(max_items = 20, value_type = Option<Vec<EventKind>>)]
    kinds: Option<BTreeSet<EventKind>>,
    /// Hours in which no event is sent, raids aside unless `raidsPierce` is false: these wait for their end then. Absent:
    /// there are none.
    #[garde(skip)]
    quiet: Option<QuietHours>,
}

/// A step: channels that are tried together.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
pub struct PutStep {
    /// Seconds after the alarm, later than the step before.
    #[garde(range(max = 3600))]
    #[schema(maximum = 3600)]
    after_seconds: u32,
    /// Ids of the user's channels; one of the team's chat for servers that the user has paired.
    #[garde(length(min = 1, max = 20), inner(length(chars, max = 128)))]
    #[schema(min_items = 1, max_items = 20, value_type = Vec<ChannelIdText>)]
    channels: Vec<String>,
}

/// Id of a channel.
#[derive(ToSchema)]
#[schema(value_type = String, max_length = 128)]
#[allow(dead_code, reason = "only its schema is used")]
struct ChannelIdText(String);

/// This user's rules for alarms of the server.
#[utoipa::path(get, path = "/paired-servers/{id}/alarm-rules", tag = "alarms",
    params(("id" = String, Path)), responses((status = 200, body = AlarmRules)))]
pub async fn get(
    WatchedServer { id, user, .. }: WatchedServer,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let rules = context.pool.read(move |db| alarm_rules::get(db, &id, &user.id)).await?;
    Ok(HttpResponse::Ok().json(rules))
}

/// Replaces this user's rules for alarms of the server. They count from the next step of every alarm on.
#[utoipa::path(put, path = "/paired-servers/{id}/alarm-rules", tag = "alarms",
    params(("id" = String, Path)), request_body = PutAlarmRules, responses((status = 200, body = AlarmRules)))]
pub async fn update(
    WatchedServer { id, role, user }: WatchedServer,
    Json(new): Json<PutAlarmRules>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let step = |PutStep { after_seconds, channels }| EscalationStep {
        after_seconds,
        channels: channels.into_iter().map(ChannelId::from).collect(),
    };
    let PutAlarmRules { enabled, steps, repeat_seconds, rounds, kinds, quiet } = new;
    let (steps, kinds) = (steps.into_iter().map(step).collect(), kinds.unwrap_or_else(only_raids));
    let rules = AlarmRules { enabled, steps, repeat_seconds, rounds, kinds, quiet };
    let now = context.clock.now();
    let (alarms, server, watcher) = (context.services.channels.early_alarms.clone(), id.clone(), user.id.clone());
    let notify = move |rules: &AlarmRules| alarms.changes.set_rules(&server, &watcher, rules);
    let put = move |db: &mut Db| -> Result<AlarmRules, ApiError> {
        if !access::may_watch(db, &user.id, &id)? {
            return Err(ApiError::NotFound);
        }
        let serves = |channel: &&StoredChannel| channel.kind().map_or(true, |kind| kind.serves(role));
        let known: BTreeSet<ChannelId> =
            channels::list(db, &user.id)?.iter().filter(serves).map(StoredChannel::id).collect();
        rules.check(&known).map_err(|(field, fault)| ApiError::invalid(field, fault.to_string()))?;
        alarm_rules::put(db, &id, &user.id, &rules)?;
        late_notices::hasten_unsent(db, &id, &user.id, now)?;
        Ok(rules)
    };
    Ok(HttpResponse::Ok().json(context.pool.write_and_notify(put, notify).await?))
}
