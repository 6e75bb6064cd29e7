//! Usage of the service: `/admin/analytics`. Read from counts of days, so that it costs the same however long the
//! history is.

use std::collections::BTreeMap;

use actix_web::{HttpResponse, web};
use chrono::NaiveDate;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    api::{answer::error::ApiError, context::ApiContext},
    db::{daily_counts::DayCounts, usage::Usage},
    domain::time::Timestamp,
};

/// Days in the figures of a week, with today.
const WEEK: usize = 7;

/// Usage of the service. Up to a minute old.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Analytics {
    generated_at: Timestamp,
    members: MemberCounts,
    subscriptions: SubscriptionCounts,
    /// Servers that were paired within 7 days, and still are.
    pairings7d: i64,
    /// Actions of users, today and on the 6 days before (UTC), most first. Counted by the API: a minute may be missing.
    #[schema(max_items = 50)]
    activity_by_type7d: Vec<TypeCount>,
    /// Entries of timelines and raids, of the same days, most first.
    #[schema(max_items = 50)]
    events_by_type7d: Vec<TypeCount>,
    /// 30 days of UTC, the oldest first; the last is today so far.
    #[schema(max_items = 30)]
    days: Vec<DayView>,
}

#[derive(Serialize, ToSchema)]
struct MemberCounts {
    total: i64,
    /// Seen within 24 hours.
    dau: i64,
    /// Seen within 7 days.
    wau: i64,
    /// Seen within 30 days.
    mau: i64,
}

/// Subscriptions at the payment provider; beta testers have none.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct SubscriptionCounts {
    active: i64,
    trialing: i64,
    past_due: i64,
}

#[derive(Serialize, ToSchema)]
struct TypeCount {
    #[serde(rename = "type")]
    kind: String,
    count: i64,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DayView {
    #[schema(value_type = String, format = Date)]
    date: NaiveDate,
    dau: i64,
    new_members: i64,
    /// Incidents, drills apart.
    raids: i64,
}

/// Usage of the service.
#[utoipa::path(get, path = "/admin/analytics", tag = "admin", responses(
    (status = 200, body = Analytics),
))]
pub async fn get(context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let read = || async {
        context.caches.activity.store(&context.pool, &context.clock).await;
        let now = context.clock.now();
        Ok(context.pool.read(move |db| Usage::read(db, now)).await?)
    };
    let usage = context.caches.usage.get(&context.clock, read).await?;
    Ok(HttpResponse::Ok().json(Analytics::from(&*usage)))
}

impl From<&Usage> for Analytics {
    fn from(usage: &Usage) -> Self {
        let Usage { at, members, seen: [dau, wau, mau], active, trialing, past_due, pairings, days } = usage;
        let week = &days[days.len().saturating_sub(WEEK)..];
        let activity =
            week.iter().flat_map(|(_, day)| day.activity.iter().map(|(kind, count)| (kind.as_str(), *count)));
        let raids = week.iter().filter(|(_, day)| day.raids > 0).map(|(_, day)| ("raid", day.raids));
        let events = week.iter().flat_map(|(_, day)| day.events.iter().map(|(kind, count)| (kind.as_str(), *count)));
        let day = |(date, DayCounts { active, new_members, raids, .. }): &(NaiveDate, DayCounts)| DayView {
            date: *date,
            dau: *active,
            new_members: *new_members,
            raids: *raids,
        };
        Self {
            generated_at: *at,
            members: MemberCounts { total: *members, dau: *dau, wau: *wau, mau: *mau },
            subscriptions: SubscriptionCounts { active: *active, trialing: *trialing, past_due: *past_due },
            pairings7d: *pairings,
            activity_by_type7d: summed(activity),
            events_by_type7d: summed(events.chain(raids)),
            days: days.iter().map(day).collect(),
        }
    }
}

/// The sum of each kind, most first.
fn summed<'a>(counts: impl Iterator<Item = (&'a str, i64)>) -> Vec<TypeCount> {
    let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
    for (kind, count) in counts {
        *sums.entry(kind).or_default() += count;
    }
    let mut sums: Vec<_> = sums.into_iter().map(|(kind, count)| TypeCount { kind: kind.to_owned(), count }).collect();
    sums.sort_by_key(|sum| -sum.count);
    sums
}
