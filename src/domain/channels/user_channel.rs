//! Channels: ways to reach a user who has no dashboard open.

use std::fmt;

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::{
    access::{Action, Role},
    channels::channel_template::WebhookTemplate,
    time::Timestamp,
    words::words,
};

words! {
    /// A kind of channel.
    #[derive(PartialOrd, Ord, Deserialize, ToSchema)]
    pub enum ChannelKind {
        /// The push service of a browser (RFC 8030).
        WebPush = "webPush",
        /// A URL that takes signed JSON (Standard Webhooks).
        Webhook = "webhook",
        Discord = "discord",
        Ntfy = "ntfy",
        Pushover = "pushover",
        Gotify = "gotify",
        Telegram = "telegram",
        /// The chat of the team in the game, for alarms of servers that the user has paired.
        TeamChat = "teamChat",
    }
}

words! {
    /// Does a channel work? By the outcomes of its newest messages.
    #[derive(ToSchema)]
    pub enum ChannelState {
        Active = "active",
        /// Its newest message did not get through; it is tried further.
        Failing = "failing",
        /// Nothing got through for a day, in many attempts: not tried before its user has tested it.
        Disabled = "disabled",
        /// The other side says that it ended: never tried again.
        Gone = "gone",
    }
}

words! {
    /// The reason for which a message did not get through.
    #[derive(Deserialize, ToSchema)]
    pub enum ChannelFault {
        /// No answer, or a fault of the other side.
        Unavailable = "unavailable",
        /// Too many messages.
        Throttled = "throttled",
        /// Our key or the user's token is not taken.
        Refused = "refused",
        /// The message is not taken.
        Rejected = "rejected",
        /// The other side says that this target ended.
        Gone = "gone",
        /// The target is in no network that a channel may reach.
        NotAllowed = "not_allowed",
        /// The stored target cannot be opened now.
        Unreadable = "unreadable",
        /// The alarm was over before this service could send it.
        TooLate = "too_late",
        /// No link to the game server is in a team now.
        NoLink = "no_link",
        /// A player of the team has asked for no announcements.
        Muted = "muted",
    }
}

words! {
    /// The worth of a channel before an alarm: how its newest message ended.
    #[derive(ToSchema)]
    pub enum ChannelProof {
        /// The other side took it. Only a person can say that it was heard.
        Accepted = "accepted",
        /// Not taken; the next one is tried all the same.
        Failed = "failed",
        /// Nothing got through for a day: no alarm is sent by it.
        Disabled = "disabled",
        /// The target ended: no alarm is sent by it.
        Gone = "gone",
        /// No message was sent yet.
        Untested = "untested",
    }
}

/// An emergency at Pushover repeats for so long, unless it is ended before: until the next round by default.
pub const EMERGENCY_SPAN: TimeDelta = TimeDelta::minutes(3);

/// A webhook is sent a raid that it has not taken yet for so long, also once the raid is over.
const KEPT_FOR: TimeDelta = TimeDelta::hours(24);

impl ChannelKind {
    /// True if a message that was due first at `queued_at` is sent also once its raid is over: a program may want it late,
    /// a phone would ring for nothing.
    pub fn keeps(self, queued_at: Timestamp, now: Timestamp) -> bool {
        self == Self::Webhook && now < queued_at + KEPT_FOR
    }

    /// True if alarms of a server reach a user of this role by it: lines in the game are said over the link of the owner.
    pub fn serves(self, role: Role) -> bool {
        self != Self::TeamChat || role.may(Action::Command)
    }
}

impl ChannelProof {
    /// The proof of a channel in this state, whose other side took a message at this time.
    pub fn of(state: ChannelState, accepted_at: Option<Timestamp>) -> Self {
        match state {
            ChannelState::Active if accepted_at.is_none() => Self::Untested,
            ChannelState::Active => Self::Accepted,
            ChannelState::Failing => Self::Failed,
            ChannelState::Disabled => Self::Disabled,
            ChannelState::Gone => Self::Gone,
        }
    }

    /// Advice for the user, beside that about a fault; `None` when there is nothing to do.
    pub fn advice(self) -> Option<&'static str> {
        match self {
            Self::Untested => Some("Test it: no alarm has reached you here yet."),
            Self::Disabled => Some("Nothing got through for a day. Test it to use it again."),
            Self::Accepted | Self::Failed | Self::Gone => None,
        }
    }
}

impl ChannelFault {
    /// True if another attempt may succeed.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Unavailable | Self::Throttled | Self::Unreadable | Self::NoLink)
    }

    /// True if it says something about the channel: nothing that passes with us, or with one of the user's game servers,
    /// switches a channel off.
    fn is_of_channel(self) -> bool {
        !matches!(self, Self::Unreadable | Self::NoLink | Self::Muted)
    }

    /// Advice for the user.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Unavailable => "The other side does not answer. Nothing to do: it is tried again.",
            Self::Throttled => "The other side takes no more messages for now. It is tried again later.",
            Self::Refused => {
                "The other side does not take the token or address. Make a new one there and add the channel again."
            }
            Self::Rejected => {
                "The other side does not take our messages. Look at the settings there, then test the channel."
            }
            Self::Gone => "The other side says that this target ended. Add it again.",
            Self::NotAllowed => "The address is not one of the public internet.",
            Self::Unreadable => "The operator is repairing this; there is nothing for you to do.",
            Self::TooLate => "The service heard of the alarm only when it was over. Your channel is not at fault.",
            Self::NoLink => "No link to the game server is in a team. It is tried again while the alarm goes on.",
            Self::Muted => "A player has muted announcements in the team's chat. Alarms are said all the same.",
        }
    }
}

/// A channel in which nothing got through for so long is disabled, after [`DISABLED_AFTER_FAILURES`].
pub const DISABLED_AFTER: TimeDelta = TimeDelta::hours(24);
/// Failures in a row without which no channel is disabled: more than one alarm's attempts by a channel of which each fails.
pub const DISABLED_AFTER_FAILURES: u32 = 12;

/// The target of a channel. It is a secret as a whole: most of these addresses are passwords.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ChannelTarget {
    WebPush {
        endpoint: String,
        /// The browser's keys, base64url.
        p256dh: String,
        auth: String,
    },
    Webhook {
        url: String,
        /// `whsec_…`; the one before as well, while it is being replaced.
        secrets: Vec<String>,
        /// The form of its messages; `None`: JSON of our own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        template: Option<WebhookTemplate>,
    },
    Discord {
        url: String,
        /// For messages that are no raids, at the same host; `None`: these go to `url`, too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        quiet_url: Option<String>,
    },
    Ntfy {
        /// Root of the server.
        url: String,
        topic: String,
        token: Option<String>,
    },
    Pushover {
        url: String,
        token: String,
        user: String,
    },
    Gotify {
        /// Root of the server.
        url: String,
        token: String,
    },
    Telegram {
        /// Root of the API.
        url: String,
        token: String,
        chat: String,
    },
    /// The team of the server that a message is about.
    TeamChat,
}

impl fmt::Debug for ChannelTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChannelTarget({})", self.kind().word())
    }
}

impl ChannelTarget {
    /// Its kind.
    pub fn kind(&self) -> ChannelKind {
        match self {
            Self::WebPush { .. } => ChannelKind::WebPush,
            Self::Webhook { .. } => ChannelKind::Webhook,
            Self::Discord { .. } => ChannelKind::Discord,
            Self::Ntfy { .. } => ChannelKind::Ntfy,
            Self::Pushover { .. } => ChannelKind::Pushover,
            Self::Gotify { .. } => ChannelKind::Gotify,
            Self::Telegram { .. } => ChannelKind::Telegram,
            Self::TeamChat => ChannelKind::TeamChat,
        }
    }

    /// The URL that it names, or of the service behind it; empty without one.
    pub fn url(&self) -> &str {
        match self {
            Self::WebPush { endpoint: url, .. }
            | Self::Webhook { url, .. }
            | Self::Discord { url, .. }
            | Self::Ntfy { url, .. }
            | Self::Pushover { url, .. }
            | Self::Gotify { url, .. }
            | Self::Telegram { url, .. } => url,
            Self::TeamChat => "",
        }
    }

    /// The text by which one target is known again: all that names the receiver. Of a browser its keys, too: a row goes to
    /// the account that shows the same subscription, and an endpoint alone, which may be seen elsewhere, proves none.
    pub fn identity(&self) -> String {
        let kind = self.kind().word();
        match self {
            Self::WebPush { endpoint, p256dh, auth } => format!("{kind} {endpoint} {p256dh} {auth}"),
            // A gateway has one URL for all: its body names the receiver.
            Self::Webhook { url, template: Some(WebhookTemplate { body, .. }), .. } => format!("{kind} {url} {body}"),
            Self::Webhook { .. } | Self::Discord { .. } => format!("{kind} {}", self.url()),
            Self::Ntfy { url, topic, .. } => format!("{kind} {url} {topic}"),
            Self::Pushover { url, token, user } => format!("{kind} {url} {token} {user}"),
            Self::Gotify { url, token } => format!("{kind} {url} {token}"),
            Self::Telegram { url, token, chat } => format!("{kind} {url} {token} {chat}"),
            Self::TeamChat => kind.to_owned(),
        }
    }
}

/// Pause before the next attempt, after this number that failed; `None`: the last one did.
pub fn pause_after(attempts: u32) -> Option<TimeDelta> {
    /// From the second attempt on; then every hour.
    const PAUSES: [i64; 6] = [5, 15, 60, 300, 900, 1_800];
    const HOURLY: u32 = 22;
    let failed = attempts.saturating_sub(1);
    match PAUSES.get(failed as usize) {
        Some(seconds) => Some(TimeDelta::seconds(*seconds)),
        None if failed < PAUSES.len() as u32 + HOURLY => Some(TimeDelta::hours(1)),
        None => None,
    }
}

/// The failures in a row of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureRow {
    pub state: ChannelState,
    /// When they began; `None`: there are none.
    pub since: Option<Timestamp>,
    pub count: u32,
}

impl FailureRow {
    /// The row with this failure. One of ours or of a game server counts for no channel. Only a success ends `disabled`, and
    /// only that of a test `gone`.
    pub fn with(self, fault: ChannelFault, now: Timestamp) -> Self {
        if !fault.is_of_channel() {
            let state = if self.state == ChannelState::Active { ChannelState::Failing } else { self.state };
            return Self { state, ..self };
        }
        let (since, count) = (self.since.unwrap_or(now), self.count.saturating_add(1));
        let is_long = now - since >= DISABLED_AFTER && count >= DISABLED_AFTER_FAILURES;
        let state = match (self.state, fault) {
            (ChannelState::Gone, _) | (_, ChannelFault::Gone) => ChannelState::Gone,
            (ChannelState::Disabled, _) => ChannelState::Disabled,
            _ if is_long => ChannelState::Disabled,
            _ => ChannelState::Failing,
        };
        Self { state, since: Some(since), count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_come_at_growing_pauses_for_a_day() {
        let pauses: Vec<TimeDelta> = (1..).map_while(pause_after).collect();
        assert!(pauses.is_sorted());
        let all: TimeDelta = pauses.iter().sum();
        assert!(TimeDelta::hours(22) < all && all < TimeDelta::hours(24), "{all}");
    }

    #[test]
    fn only_webhooks_are_sent_a_raid_that_is_over_and_for_a_day() {
        let at = |seconds| Timestamp::from_timestamp(seconds, 0).unwrap();
        let keeps = |kind: ChannelKind| [0, 86_399, 86_400].map(|now| kind.keeps(at(0), at(now)));
        for kind in ChannelKind::ALL {
            let is_hook = kind == ChannelKind::Webhook;
            assert_eq!(keeps(kind), [is_hook, is_hook, false], "{kind:?}");
        }
    }

    #[test]
    fn a_guest_is_not_reached_over_the_link_of_the_owner() {
        for kind in ChannelKind::ALL {
            assert!(kind.serves(Role::Owner));
            assert_eq!(kind.serves(Role::Guest), kind != ChannelKind::TeamChat, "{kind:?}");
        }
    }

    #[test]
    fn a_channel_is_proved_by_its_newest_message_only() {
        let at = Timestamp::from_timestamp(1_000, 0);
        let of = |state| [None, at].map(|accepted| ChannelProof::of(state, accepted));
        assert_eq!(of(ChannelState::Active), [ChannelProof::Untested, ChannelProof::Accepted]);
        assert_eq!(of(ChannelState::Failing), [ChannelProof::Failed; 2]);
        assert_eq!(of(ChannelState::Disabled), [ChannelProof::Disabled; 2]);
        assert_eq!(of(ChannelState::Gone), [ChannelProof::Gone; 2]);
    }

    #[test]
    fn only_many_failures_in_a_day_or_more_disable_a_channel_and_ours_never_do() {
        let at = |hours: i64| Timestamp::from_timestamp(hours * 3_600, 0).unwrap();
        let none = FailureRow { state: ChannelState::Active, since: None, count: 0 };
        let away = ChannelFault::Unavailable;
        let twice = none.with(away, at(0)).with(away, at(48));
        assert_eq!(twice, FailureRow { state: ChannelState::Failing, since: Some(at(0)), count: 2 });
        let soon = (0..20).fold(none, |row, _| row.with(away, at(0)));
        assert_eq!(soon.state, ChannelState::Failing);
        let often = (2..DISABLED_AFTER_FAILURES).fold(twice, |row, _| row.with(away, at(48)));
        assert_eq!(
            (often.state, often.with(ChannelFault::Gone, at(49)).state),
            (ChannelState::Disabled, ChannelState::Gone)
        );
        for fault in [ChannelFault::Unreadable, ChannelFault::NoLink, ChannelFault::Muted] {
            let ours = (0..99).fold(none, |row, hours| row.with(fault, at(hours)));
            assert_eq!(ours, FailureRow { state: ChannelState::Failing, ..none }, "{fault:?}");
        }
        assert_eq!(often.with(ChannelFault::Unreadable, at(49)), often);
        let gone = none.with(ChannelFault::Gone, at(0));
        assert_eq!(gone.with(away, at(1)).state, ChannelState::Gone, "a late answer does not bring it back");
    }

    #[test]
    fn a_browser_is_known_by_its_keys_and_not_by_its_endpoint_alone() {
        let browser = |auth: &str| {
            let (endpoint, p256dh) = ("https://push.example/1".into(), "key".into());
            ChannelTarget::WebPush { endpoint, p256dh, auth: auth.into() }.identity()
        };
        assert_eq!(browser("auth"), browser("auth"));
        assert_ne!(browser("auth"), browser("another"));
    }

    #[test]
    fn a_webhook_with_a_template_is_known_by_its_body_too_and_one_without_is_read_as_before() {
        use crate::domain::channels::channel_template::TemplateForm;

        let webhook = |body: Option<&str>| {
            let of_body = |body: &str| WebhookTemplate {
                content_type: TemplateForm::Text,
                headers: Vec::new(),
                body: body.to_owned(),
            };
            let url = "https://hook.example/1".to_owned();
            ChannelTarget::Webhook { url, secrets: vec!["whsec_a".to_owned()], template: body.map(of_body) }
        };
        let stored = r#"{"kind":"webhook","url":"https://hook.example/1","secrets":["whsec_a"]}"#;
        assert_eq!(serde_json::to_string(&webhook(None)).unwrap(), stored);
        assert_eq!(serde_json::from_str::<ChannelTarget>(stored).unwrap(), webhook(None));
        assert_eq!(webhook(None).identity(), "webhook https://hook.example/1");
        assert_ne!(webhook(Some("to 1")).identity(), webhook(Some("to 2")).identity());
        let stored = serde_json::to_string(&webhook(Some("to 1"))).unwrap();
        assert_eq!(serde_json::from_str::<ChannelTarget>(&stored).unwrap(), webhook(Some("to 1")));
    }

    #[test]
    fn a_target_prints_its_kind_and_no_secret() {
        let target = ChannelTarget::Gotify { url: "https://secret.example".into(), token: "token".into() };
        assert_eq!(format!("{target:?}"), "ChannelTarget(gotify)");
        let stored = serde_json::to_string(&target).unwrap();
        assert_eq!(stored, r#"{"kind":"gotify","url":"https://secret.example","token":"token"}"#);
        assert_eq!(serde_json::from_str::<ChannelTarget>(&stored).unwrap(), target);
    }
}
