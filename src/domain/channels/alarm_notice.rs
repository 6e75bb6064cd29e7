//! An alarm as a channel says it.

use serde::Serialize;

use crate::domain::{plain_text::plain_text, time::Timestamp, words::words, world_event::EventKind};

/// Characters of a name within a text.
const NAME_CHARACTERS: usize = 100;

words! {
    /// Reason for a message.
    pub enum NoticeEvent {
        Opened = "raid.opened",
        /// Not acknowledged, and said once more.
        Repeated = "raid.repeated",
        /// Gone off again: only the count is news.
        Updated = "raid.updated",
        /// Acknowledged by the user: what rang may stop.
        Acknowledged = "raid.acknowledged",
        /// An event that is no raid, and never said again.
        Event = "event",
        /// The registration for the game's pushes is about to end.
        RegistrationEnds = "registration.ends",
        RegistrationEnded = "registration.ended",
        /// Another channel of the user was switched off after a day of failures.
        ChannelDisabled = "channel.disabled",
        /// A helper device or overlay was paired with the user's account.
        DevicePaired = "device.paired",
        /// The user tries the channel.
        Test = "test",
    }
}

/// An alarm, another event, the end of a registration or of another channel, a new device, or a test of the channel.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AlarmNotice {
    #[serde(skip)]
    pub event: NoticeEvent,
    /// The name that the other side gave the message of which this one takes the place, if it gave one.
    #[serde(skip)]
    pub replaces: Option<String>,
    /// `raid`, or the kind of the event in the timeline; of a registration's or channel's end `gap`, because nothing is seen
    /// from then on, and of a new device too.
    pub kind: EventKind,
    /// Id of the incident, or of the event in the timeline; of a test and of what is no event, an id of its own.
    pub incident: String,
    /// Ids of incidents that turned out to be parts of this one, newest first: what was said of them goes on under its id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
    pub server_id: String,
    pub server_name: String,
    /// Name of the alarm; of another event, what it says in one line.
    pub alarm_name: String,
    pub grid: String,
    /// Metres from the south-west corner; null while the place is unknown.
    pub x: Option<f64>,
    pub y: Option<f64>,
    /// Triggers so far.
    pub count: u32,
    /// The first trigger; of a registration its end, of a channel the first failure, of a device its pairing.
    pub first_at: Timestamp,
    /// The alarm reached the service long after it was sent.
    pub late: bool,
    /// Nothing happens in the game.
    pub drill: bool,
    /// The dashboard, at the alarm's place.
    pub url: String,
    /// A page with a button that acknowledges; null for a test, and for an event that is no raid.
    pub ack_url: Option<String>,
}

/// The path of the dashboard that shows this server, at this place of its map (metres from the south-west corner). Words
/// behind `#` are for the page alone.
pub fn dashboard_at(server: &str, place: Option<(f64, f64)>) -> String {
    match place {
        Some((x, y)) => format!("/#server={server}&x={x:.0}&y={y:.0}"),
        None => format!("/#server={server}"),
    }
}

impl AlarmNotice {
    /// One line without markup: `RAID Front door, H12`.
    pub fn title(&self) -> String {
        let name = plain_text(&self.alarm_name, NAME_CHARACTERS);
        let place = if self.grid.is_empty() { String::new() } else { format!(", {}", self.grid) };
        match (self.event, self.drill) {
            (NoticeEvent::Test, _) => "Test: alarms reach you here".to_owned(),
            (NoticeEvent::Acknowledged, _) => format!("Acknowledged: {name}{place}"),
            _ if self.is_quiet() && self.event != NoticeEvent::Updated => name,
            (_, true) => format!("DRILL {name}{place}"),
            (_, false) => format!("RAID {name}{place}"),
        }
    }

    /// True for what is no raid, or no news of one: no sleeper is woken.
    pub fn is_quiet(&self) -> bool {
        match self.event {
            NoticeEvent::Opened | NoticeEvent::Repeated | NoticeEvent::Test => false,
            NoticeEvent::Event
            | NoticeEvent::Acknowledged
            | NoticeEvent::Updated
            | NoticeEvent::RegistrationEnds
            | NoticeEvent::RegistrationEnded
            | NoticeEvent::ChannelDisabled
            | NoticeEvent::DevicePaired => true,
        }
    }

    /// The lines below the title, without markup.
    pub fn text(&self) -> String {
        if self.event == NoticeEvent::Test {
            return "This is what an alarm looks like. Nothing happens in the game.".to_owned();
        }
        let end = self.first_at.format("%Y-%m-%d at %H:%M UTC");
        match self.event {
            NoticeEvent::RegistrationEnds => {
                return format!("It ends on {end}. Register once more before, so that alarms go on reaching you.");
            }
            NoticeEvent::RegistrationEnded => {
                return format!("It ended on {end}. No alarm reaches you until you register once more.");
            }
            NoticeEvent::ChannelDisabled => {
                return format!(
                    "It takes nothing since {end} and is switched off. Test it in the dashboard to use it again."
                );
            }
            NoticeEvent::DevicePaired => {
                return format!("It was paired on {end}. If that was not you, remove it in the dashboard.");
            }
            _ => {}
        }
        let mut text = plain_text(&self.server_name, NAME_CHARACTERS);
        let since = self.first_at.format("%H:%M:%S UTC");
        if self.event == NoticeEvent::Event {
            let place = if self.grid.is_empty() { "At".to_owned() } else { format!("{}, at", self.grid) };
            return format!("{text}\n{place} {since}.");
        }
        match self.count {
            0 | 1 => text.push_str(&format!("\nIt went off at {since}.")),
            count => text.push_str(&format!("\nIt went off {count} times since {since}.")),
        }
        if self.late {
            text.push_str("\nThe game sent it long before it reached us.");
        }
        if self.event == NoticeEvent::Acknowledged {
            text.push_str("\nYou have acknowledged it.");
        }
        if self.event == NoticeEvent::Repeated {
            text.push_str("\nNo one has acknowledged it on your account.");
        }
        text
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// An alarm of the demo.
    pub fn notice(event: NoticeEvent) -> AlarmNotice {
        AlarmNotice {
            event,
            replaces: None,
            kind: EventKind::Raid,
            incident: "0193aa0b-6c7d-7e8f-9a0b-1c2d3e4f5a6b".to_owned(),
            parts: Vec::new(),
            server_id: "server".to_owned(),
            server_name: "Demo <b>Island</b>\u{202e}".to_owned(),
            alarm_name: "Front @everyone door".to_owned(),
            grid: "H12".to_owned(),
            x: Some(1_000.0),
            y: Some(2_000.0),
            count: 3,
            first_at: Timestamp::from_timestamp(1_700_000_000, 0).unwrap(),
            late: false,
            drill: false,
            url: "https://companion.example/".to_owned(),
            ack_url: Some("https://companion.example/a/token".to_owned()),
        }
    }

    #[test]
    fn a_link_leads_to_the_place_of_the_alarm() {
        assert_eq!(dashboard_at("a-1", Some((1_000.4, 0.0))), "/#server=a-1&x=1000&y=0");
        assert_eq!(dashboard_at("a-1", None), "/#server=a-1");
    }

    #[test]
    fn the_parts_of_a_raid_are_named_if_it_has_any() {
        let whole = AlarmNotice { parts: vec!["part".to_owned()], ..notice(NoticeEvent::Acknowledged) };
        let [whole, plain] = [whole, notice(NoticeEvent::Acknowledged)].map(|one| serde_json::to_value(one).unwrap());
        assert_eq!((&whole["parts"], plain.get("parts")), (&serde_json::json!(["part"]), None));
    }

    #[test]
    fn an_alarm_is_said_in_plain_words() {
        let opened = notice(NoticeEvent::Opened);
        assert_eq!(opened.title(), "RAID Front @everyone door, H12");
        assert_eq!(opened.text(), "Demo Island\nIt went off 3 times since 22:13:20 UTC.");
        let drill = AlarmNotice { drill: true, count: 1, grid: String::new(), ..notice(NoticeEvent::Repeated) };
        assert_eq!(drill.title(), "DRILL Front @everyone door");
        let text = "Demo Island\nIt went off at 22:13:20 UTC.\nNo one has acknowledged it on your account.";
        assert_eq!(drill.text(), text);
        let acknowledged = AlarmNotice { count: 1, ..notice(NoticeEvent::Acknowledged) };
        let text = "Demo Island\nIt went off at 22:13:20 UTC.\nYou have acknowledged it.";
        assert_eq!((&*acknowledged.title(), &*acknowledged.text()), ("Acknowledged: Front @everyone door, H12", text));
        assert!(acknowledged.is_quiet());
        let updated = notice(NoticeEvent::Updated);
        assert_eq!((updated.title(), updated.text()), (opened.title(), opened.text()));
        assert!(updated.is_quiet() && !opened.is_quiet());
        let event = AlarmNotice { alarm_name: "Nox died".to_owned(), count: 1, ..notice(NoticeEvent::Event) };
        assert_eq!((&*event.title(), &*event.text()), ("Nox died", "Demo Island\nH12, at 22:13:20 UTC."));
        let ends =
            AlarmNotice { alarm_name: "Your registration ends".to_owned(), ..notice(NoticeEvent::RegistrationEnds) };
        let text = "It ends on 2023-11-14 at 22:13 UTC. Register once more before, so that alarms go on reaching you.";
        assert_eq!((&*ends.title(), &*ends.text()), ("Your registration ends", text));
        let ended = AlarmNotice { event: NoticeEvent::RegistrationEnded, ..ends };
        assert!(ended.is_quiet() && ended.text().starts_with("It ended on 2023-11-14"));
        let disabled = AlarmNotice { event: NoticeEvent::ChannelDisabled, ..ended };
        assert!(disabled.is_quiet() && disabled.text().starts_with("It takes nothing since 2023-11-14"));
        let paired = AlarmNotice { event: NoticeEvent::DevicePaired, ..disabled };
        assert!(paired.is_quiet() && paired.text().starts_with("It was paired on 2023-11-14"));
        assert!(notice(NoticeEvent::Test).title().starts_with("Test"));
    }
}
