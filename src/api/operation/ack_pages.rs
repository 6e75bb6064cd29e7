//! The page behind the link in a message about an alarm: one button, which acknowledges. A look alone changes nothing,
//! because chat platforms and scanners of mail open every link.

use std::time::Duration;

use actix_web::{HttpResponse, web};
use chrono::TimeDelta;
use maud::{Markup, html};
use tokio::time::timeout;

use crate::{
    api::{
        answer::{error::ApiError, page},
        context::ApiContext,
    },
    crypto::ack_link::AckLink,
    db::{
        access,
        alarms::incidents::{self, StoredIncident},
        engine::pool::Db,
        notices::notice_queue::NoticeKey,
    },
    domain::{
        ids::{ServerId, UserId},
        plain_text::plain_text,
        time::Timestamp,
    },
    relay::hub::{AcknowledgeRaid, FindRaid, Unanswered},
};

/// Life of a link.
const LIFE: TimeDelta = TimeDelta::hours(24);
/// For so long the database is waited for, where the relay may answer for it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);
/// Characters of a name that are shown; a longer one is cut.
const NAME_CHARACTERS: usize = 100;

/// The incident that a link from a message acknowledges, for this user.
struct LinkedAlarm {
    user: UserId,
    server: ServerId,
    incident: StoredIncident,
}

/// The alarm, as long as the link is good and its user may watch the server. One that the database does not give is as the
/// relay knows it.
async fn linked(context: &ApiContext, token: &str) -> Result<LinkedAlarm, ApiError> {
    let link = context.services.channels.links.read(token).ok_or(ApiError::NotFound)?;
    let (asked, user, now) = (link.incident.clone(), link.user.clone(), context.clock.now());
    let find = move |db: &mut Db| {
        // A part's link is good for the whole, also where this user has no notice of the whole.
        let Some((incident, server)) = incidents::whole(db, &asked)? else { return Ok(None) };
        let is_good = is_good(&incident, now) && access::may_watch(db, &user, &server)?;
        Ok(Some(is_good.then_some(LinkedAlarm { user, server, incident })))
    };
    let stored = timeout(ANSWERED_WITHIN, context.pool.read(find)).await;
    if let Ok(Ok(Some(alarm))) = stored {
        return alarm.ok_or(ApiError::NotFound);
    }
    let is_unknown = matches!(stored, Ok(Ok(None)));
    let channels = &context.services.channels;
    let has_rung = channels.early.has_rung(&NoticeKey { incident: link.incident.clone(), user: link.user.clone() });
    match unstored(context, link).await {
        Ok(Some(alarm)) if is_good(&alarm.incident, now) => Ok(alarm),
        Ok(None) if !is_unknown || has_rung => {
            Err(ApiError::Unavailable("the alarm of a link is not in the database yet".into()))
        }
        Ok(_) => Err(ApiError::NotFound),
        Err(unanswered) => Err(ApiError::Unavailable(unanswered.into())),
    }
}

fn is_good(incident: &StoredIncident, now: Timestamp) -> bool {
    incident.incident.first_at + LIFE > now
}

/// The alarm of a link as the relay knows it, for a user who may still watch as far as that is known.
async fn unstored(
    context: &ApiContext,
    AckLink { incident, user, server }: AckLink,
) -> Result<Option<LinkedAlarm>, Unanswered> {
    let Some(server) = server else { return Ok(None) };
    let found = context.services.hub.send(FindRaid { server: server.clone(), incident }).await;
    let Some(incident) = found.unwrap_or(Ok(None))? else { return Ok(None) };
    let has_left = context.services.channels.early_alarms.changes.has_left(&server, &user);
    Ok((!has_left).then_some(LinkedAlarm { user, server, incident }))
}

fn shown(alarm: &LinkedAlarm, context: &ApiContext) -> HttpResponse {
    let facts = &alarm.incident.incident;
    let name = plain_text(&facts.alarm_name, NAME_CHARACTERS);
    let content: Markup = match facts.acks.get(&alarm.user) {
        Some(_) => html! { p { "You have acknowledged this alarm. It wakes you no more; others still are." } },
        None => html! {
            p {
                @if facts.drill { "A drill: nothing happens in the game. " }
                @if facts.count == 1 { "It went off at " } @else { "It went off " (facts.count) " times since " }
                (facts.first_at.format("%H:%M UTC")) "."
            }
            form method="post" { button type="submit" { "Acknowledge" } }
        },
    };
    let title = if facts.place.grid.is_empty() { name } else { format!("{name}, {}", facts.place.grid) };
    let ways = [("Dashboard", context.settings.urls.frontend.at("/"))];
    page::answer_with_form(page::notice(&title, &content, &ways, &html! {}))
}

/// A page with a button that acknowledges the alarm of a message, for the user who got it. Good for a day, without
/// a session.
#[utoipa::path(get, path = "/a/{token}", tag = "pages", params(("token" = String, Path)),
    responses((status = 200, content_type = "text/html")))]
pub async fn ack_page(path: web::Path<String>, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    Ok(shown(&linked(&context, &path).await?, &context))
}

/// Acknowledges the alarm of a message.
#[utoipa::path(post, path = "/a/{token}", tag = "pages", params(("token" = String, Path)),
    responses((status = 200, content_type = "text/html")))]
pub async fn acknowledge(path: web::Path<String>, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let LinkedAlarm { user, server, incident } = linked(&context, &path).await?;
    let message = AcknowledgeRaid { server: server.clone(), user: user.clone(), incident: incident.id, by_link: true };
    let acknowledged =
        context.services.hub.send(message).await.map_err(|error| ApiError::Unavailable(Box::new(error)))?;
    let incident = acknowledged.map_err(|_| ApiError::Unavailable("the acknowledgement was not stored".into()))?;
    Ok(shown(&LinkedAlarm { user, server, incident }, &context))
}
