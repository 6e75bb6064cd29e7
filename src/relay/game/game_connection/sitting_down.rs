//! The way to a seat at a mate's link, while the own link is still up: nothing is missed between the two.

use std::{cell::RefCell, collections::BTreeSet, pin::pin, sync::Arc, time::Duration};

use actix::Recipient;
use futures_util::StreamExt as _;
use tokio::time::sleep;

use super::shared_reading::NoSeat;
use crate::{
    domain::time::Timestamp,
    game::{
        budget::Priority,
        link::{Answered, AskError},
        reading_link::GameQuestion,
        wire::{AppEntityInfo, AppInfo, AppTeamChat},
    },
    relay::game::{
        commands::COMMAND_DEADLINE,
        seats::{NEWS, SeatNews, SeatReader},
        team_hosts::{HostLink, TakeSeat},
    },
};

/// Both links are listened to so long: a game server says the same over both at about the same time. Shorter than what
/// parts two alarms.
const OVERLAP: Duration = Duration::from_millis(500);
/// Retries of a device that was refused for the rate.
const RATE_REFUSALS: u32 = 3;

/// A seat that was taken.
pub struct SatDown {
    pub request: TakenRequest,
    pub link: HostLink,
    /// The game server and the team's chat, if they were asked for.
    pub missed: Option<(AppInfo, AppTeamChat)>,
    /// Answers of devices over the mate's link, by entity id: of all, or of alarms if there was no own link.
    pub answers: Vec<(u64, Answered<AppEntityInfo>)>,
    /// News of the last moments, in order. If broadcasts may have waited by then, that is the first.
    pub overlap: Vec<Arc<SeatNews>>,
    pub news: SeatReader,
}

/// The parts of a request for a seat that count later on.
pub struct TakenRequest {
    pub devices: Arc<BTreeSet<u64>>,
    /// SteamID64.
    pub player: u64,
}

/// Takes a seat, lets the mate's link ask all devices, alarms first, and listens to it for a moment. `has_no_link`: no
/// news are heard before the end, so that only alarms are asked; and the game server and the chat, of which nothing must
/// be missed.
pub async fn sit_down(
    host: Recipient<TakeSeat>,
    request: TakeSeat,
    alarms: BTreeSet<u64>,
    mut news: SeatReader,
    has_no_link: bool,
) -> Result<SatDown, NoSeat> {
    let taken = TakenRequest { devices: request.devices.clone(), player: request.accepted.player() };
    let link = host.send(request).await.ok().flatten().ok_or(NoSeat::Refused)?;
    let ask_all = async {
        let others = taken.devices.difference(&alarms).filter(|_| !has_no_link);
        let mut answers = Vec::new();
        for device in taken.devices.intersection(&alarms).chain(others) {
            answers.push((*device, ask(&link, *device).await?));
        }
        let missed = if has_no_link { Some(ask_missed(&link).await.ok_or(NoSeat::Refused)?) } else { None };
        Ok::<_, NoSeat>((missed, answers))
    };
    let heard = RefCell::new(Vec::new());
    let ended = async {
        while let Some(news) = news.next().await {
            let is_polled = matches!(
                *news,
                SeatNews::Info(_) | SeatNews::Time(_) | SeatNews::Markers { .. } | SeatNews::Members(_)
            );
            if !is_polled {
                heard.borrow_mut().push(news);
            }
            if heard.borrow().len() > NEWS {
                return;
            }
        }
    };
    let (missed, mut answers) = tokio::select! {
        answers = ask_all => answers?,
        () = ended => return Err(NoSeat::Refused),
    };
    let (mut overlap, mut waited) = (heard.into_inner(), link.waited);
    if !has_no_link {
        // The own link has said the same so far. What has changed since it was asked is known from there.
        let changed = |device: u64| {
            let is_it =
                |news: &Arc<SeatNews>| matches!(&**news, SeatNews::Device(_, changed) if changed.entity_id == device);
            overlap.iter().any(is_it)
        };
        answers.retain(|(device, _)| !changed(*device));
        waited = waited_after(&overlap, waited);
        overlap.clear();
    }
    if waited.is_some() {
        overlap.insert(0, Arc::new(SeatNews::Waited(waited)));
    }
    let mut over = pin!(sleep(OVERLAP));
    loop {
        tokio::select! {
            () = &mut over => return Ok(SatDown { request: taken, link, missed, answers, overlap, news }),
            next = news.next() => overlap.push(next.ok_or(NoSeat::Refused)?),
        }
    }
}

/// Since when broadcasts may have waited after these news, if before them it was so.
fn waited_after(news: &[Arc<SeatNews>], before: Option<Timestamp>) -> Option<Timestamp> {
    let said = |news: &Arc<SeatNews>| if let SeatNews::Waited(since) = **news { Some(since) } else { None };
    news.iter().rev().find_map(said).unwrap_or(before)
}

async fn ask_missed(link: &HostLink) -> Option<(AppInfo, AppTeamChat)> {
    let ask = async |question| link.reading.ask(question, Priority::EntitySync, COMMAND_DEADLINE).await.ok();
    let info = ask(GameQuestion::Info).await?.content.info?;
    // A player without a team has no chat.
    let chat = ask(GameQuestion::Chat).await.and_then(|asked| asked.content.team_chat);
    Some((info, chat.unwrap_or_default()))
}

async fn ask(link: &HostLink, device: u64) -> Result<Answered<AppEntityInfo>, NoSeat> {
    let mut refusals = 0;
    loop {
        match link.reading.entity(device, Priority::EntitySync, COMMAND_DEADLINE).await {
            Ok(Answered { asked_after, content: Some(content) }) => return Ok(Answered { asked_after, content }),
            Ok(_) => return Err(NoSeat::Unreadable),
            Err(error) => match against_seat(&error) {
                NoSeat::Rated if refusals < RATE_REFUSALS => refusals += 1,
                reason => return Err(reason),
            },
        }
    }
}

/// The reason against a seat at a link over which a device has failed to answer like this.
fn against_seat(error: &AskError) -> NoSeat {
    match error {
        AskError::Closed | AskError::TimedOut => NoSeat::Refused,
        AskError::Refused(word) if word == "rate_limit" => NoSeat::Rated,
        AskError::Refused(_) | AskError::TooMany(_) => NoSeat::Unreadable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_was_refused_for_the_rate_may_be_read_soon() {
        let refused = |word: &str| against_seat(&AskError::Refused(word.to_owned()));
        assert_eq!([refused("rate_limit"), refused("not_found")], [NoSeat::Rated, NoSeat::Unreadable]);
        assert_eq!([AskError::Closed, AskError::TimedOut].map(|error| against_seat(&error)), [NoSeat::Refused; 2]);
    }

    #[test]
    fn the_last_word_on_what_waited_counts() {
        let [first, second] = [1, 2].map(|second| Timestamp::from_timestamp(second, 0));
        let news = |all: &[SeatNews]| all.iter().cloned().map(Arc::new).collect::<Vec<_>>();
        assert_eq!(waited_after(&news(&[SeatNews::Missed]), first), first, "nothing was said");
        let all = news(&[SeatNews::Waited(first), SeatNews::Waited(second), SeatNews::Missed]);
        assert_eq!(waited_after(&all, None), second);
        assert_eq!(waited_after(&news(&[SeatNews::Waited(first), SeatNews::Waited(None)]), second), None);
    }
}
