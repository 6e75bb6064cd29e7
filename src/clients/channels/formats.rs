//! A message in the form of each service.

use std::borrow::Cow;

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    crypto::{digest::sha256_hex, signed_webhook, vapid::VapidKey, web_push::BrowserKeys},
    domain::{
        channels::{
            alarm_notice::{AlarmNotice, NoticeEvent},
            channel_template::{TemplateHeader, WebhookTemplate},
            user_channel::{ChannelTarget, EMERGENCY_SPAN},
        },
        time::Timestamp,
    },
};

/// Characters of a topic.
const TOPIC: usize = 32;
/// Seconds for which a push service keeps an alarm, and what is soon of no use: a test, and a count.
const ALARM_TTL: u32 = 3_600;
const BRIEF_TTL: u32 = 60;
/// Colours of an alarm and of another event, 24 bits.
const RED: u32 = 0x00d6_3031;
const GREY: u32 = 0x0063_6e72;
/// Discord's flag of a message without a notification.
const DISCORD_SILENT: u32 = 1 << 12;
/// Seconds between two repetitions of Pushover's emergency priority.
const PUSHOVER_RETRY: u32 = 60;

/// A header, and its value.
pub type ChannelHeader = (Cow<'static, str>, String);

/// A request: a POST, or a PATCH of what was sent before.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelRequest {
    pub method: Method,
    pub url: String,
    pub headers: Vec<ChannelHeader>,
    pub body: Vec<u8>,
}

/// Parts of a message.
pub struct Format<'a> {
    /// Id of all attempts.
    pub id: &'a str,
    pub notice: &'a AlarmNotice,
    /// For browsers.
    pub vapid: Option<&'a VapidKey>,
    /// `mailto:` or `https:` URI of the operator.
    pub contact: &'a str,
    pub salt: [u8; 16],
    pub now: Timestamp,
}

impl Format<'_> {
    /// The message for this target. None if its keys or address are no such.
    pub fn message(&self, target: &ChannelTarget) -> Option<ChannelRequest> {
        match target {
            ChannelTarget::WebPush { endpoint, p256dh, auth } => self.web_push(endpoint, p256dh, auth),
            ChannelTarget::Webhook { url, secrets, template } => Some(self.webhook(url, secrets, template.as_ref())),
            ChannelTarget::Discord { url, quiet_url } => {
                self.discord(quiet_url.as_deref().filter(|_| self.is_beside_alarms()).unwrap_or(url))
            }
            ChannelTarget::Ntfy { url, topic, token } => Some(self.ntfy(url, topic, token.as_deref())),
            ChannelTarget::Pushover { url, token, user } => Some(self.pushover(url, token, user)),
            ChannelTarget::Gotify { url, token } => Some(self.gotify(url, token)),
            ChannelTarget::Telegram { url, token, chat } => Some(self.telegram(url, token, chat)),
            // Said in the game, by no request.
            ChannelTarget::TeamChat => None,
        }
    }

    /// A message that was not taken where this target wants the quiet ones, for the place of its alarms; `None`: it went there.
    pub fn message_beside_alarms(&self, target: &ChannelTarget) -> Option<ChannelRequest> {
        match target {
            ChannelTarget::Discord { url, quiet_url: Some(_) } if self.is_beside_alarms() => self.discord(url),
            _ => None,
        }
    }

    /// True for a test and a drill: nothing happens in the game.
    fn is_harmless(&self) -> bool {
        self.notice.drill || self.notice.event == NoticeEvent::Test
    }

    fn is_quiet(&self) -> bool {
        self.notice.is_quiet()
    }

    /// True for what is about no alarm that goes on.
    fn is_beside_alarms(&self) -> bool {
        self.is_quiet() && self.notice.event != NoticeEvent::Updated
    }

    /// RFC 8030. The text is what Safari shows by itself (Declarative Web Push), and what our service worker reads.
    fn web_push(&self, endpoint: &str, p256dh: &str, auth: &str) -> Option<ChannelRequest> {
        let notice = self.notice;
        let text = json!({
            "web_push": 8030,
            "notification": {
                "title": notice.title(), "body": notice.text(), "navigate": notice.url, "silent": self.is_quiet(),
                "tag": notice.incident,
            },
            "event": notice.event.word(),
            "kind": notice.kind,
            "incident": notice.incident,
            "parts": notice.parts,
            "serverId": notice.server_id,
            "drill": self.is_harmless(),
            "ackUrl": notice.ack_url,
        });
        let body = BrowserKeys::parse(p256dh, auth)?.encrypt(text.to_string().as_bytes(), self.salt)?;
        let origin = url::Url::parse(endpoint).ok()?.origin().ascii_serialization();
        let is_brief = matches!(notice.event, NoticeEvent::Test | NoticeEvent::Updated);
        let topic = match notice.event {
            // An alarm that waits at the push service must ring: no quiet message takes its place.
            NoticeEvent::Updated => topic(&format!("{} {}", notice.incident, notice.event.word())),
            _ => topic(&notice.incident),
        };
        let headers = named([
            ("TTL", if is_brief { BRIEF_TTL } else { ALARM_TTL }.to_string()),
            ("Urgency", if self.is_quiet() { "normal" } else { "high" }.to_owned()),
            ("Topic", topic),
            ("Content-Encoding", "aes128gcm".to_owned()),
            ("Content-Type", "application/octet-stream".to_owned()),
            ("Authorization", self.vapid?.authorization(&origin, self.contact, self.now)?),
        ]);
        Some(ChannelRequest { method: Method::POST, url: endpoint.to_owned(), headers, body })
    }

    /// Standard Webhooks 1.0.0; with a template, signed all the same.
    fn webhook(&self, url: &str, secrets: &[String], template: Option<&WebhookTemplate>) -> ChannelRequest {
        let (content_type, body) = match template {
            Some(template) => (template.content_type.content_type(), template.fill(self.notice)),
            None => {
                let body = json!({ "type": self.notice.event.word(), "timestamp": self.now, "data": self.notice });
                ("application/json", body.to_string())
            }
        };
        let body = body.into_bytes();
        let secrets: Vec<_> = secrets.iter().map(|secret| secret.as_str().into()).collect();
        let mut headers = named([
            ("Content-Type", content_type.to_owned()),
            ("webhook-id", self.id.to_owned()),
            ("webhook-timestamp", self.now.timestamp().to_string()),
            ("webhook-signature", signed_webhook::signatures(&secrets, self.id, self.now, &body)),
        ]);
        let of_user = template.into_iter().flat_map(|template| template.headers.clone());
        headers.extend(of_user.map(|TemplateHeader { name, value }| (Cow::Owned(name), value)));
        ChannelRequest { method: Method::POST, url: url.to_owned(), headers, body }
    }

    /// A message, or the one before with other words: an edited one makes no sound.
    fn discord(&self, url: &str) -> Option<ChannelRequest> {
        let notice = self.notice;
        let mut description = escaped(&notice.text());
        if let Some(url) = &notice.ack_url {
            description.push_str(&format!("\n[Acknowledge](<{url}>)"));
        }
        let embed = json!({
            "title": escaped(&notice.title()),
            "description": description,
            "url": notice.url,
            "color": if self.is_beside_alarms() { GREY } else { RED },
            "timestamp": notice.first_at,
        });
        // With `wait`, a message that is lost is an error.
        let mut url = url::Url::parse(url).ok()?;
        url.set_fragment(None);
        let mut body = json!({
            "content": escaped(&notice.title()), "embeds": [embed], "allowed_mentions": { "parse": [] },
        });
        if let Some(message) = &notice.replaces {
            url.path_segments_mut().ok()?.pop_if_empty().extend(["messages", message.as_str()]);
            return Some(ChannelRequest { method: Method::PATCH, ..json_message(url.into(), &body) });
        }
        body["flags"] = json!(if self.is_quiet() { DISCORD_SILENT } else { 0 });
        url.query_pairs_mut().append_pair("wait", "true");
        Some(json_message(url.into(), &body))
    }

    fn ntfy(&self, url: &str, topic: &str, token: Option<&str>) -> ChannelRequest {
        let notice = self.notice;
        let mut body = json!({
            "topic": topic,
            "title": notice.title(),
            "message": notice.text(),
            "priority": if self.is_quiet() { 2 } else { 5 },
            "tags": if self.is_quiet() { json!([]) } else { json!(["rotating_light"]) },
            "click": notice.url,
            "sequence_id": notice.incident,
        });
        if let Some(url) = &notice.ack_url {
            let action =
                json!({ "action": "http", "label": "Acknowledge", "url": url, "method": "POST", "clear": true });
            body["actions"] = json!([action]);
        }
        let mut message = json_message(url.to_owned(), &body);
        message.headers.extend(token.map(|token| ("Authorization".into(), format!("Bearer {token}"))));
        message
    }

    fn pushover(&self, url: &str, token: &str, user: &str) -> ChannelRequest {
        let notice = self.notice;
        let (link, link_title) = match &notice.ack_url {
            Some(url) => (url, "Acknowledge"),
            None => (&notice.url, "Dashboard"),
        };
        let mut body = json!({
            "token": token, "user": user, "title": notice.title(), "message": notice.text(),
            "priority": if self.is_quiet() { -1 } else { 1 }, "url": link, "url_title": link_title,
        });
        if !self.is_harmless() && !self.is_quiet() {
            body["priority"] = json!(2);
            body["retry"] = json!(PUSHOVER_RETRY);
            body["expire"] = json!(EMERGENCY_SPAN.num_seconds());
        }
        json_message(below(url, "1/messages.json"), &body)
    }

    fn gotify(&self, url: &str, token: &str) -> ChannelRequest {
        let notice = self.notice;
        let click = notice.ack_url.as_ref().unwrap_or(&notice.url);
        let body = json!({
            "title": notice.title(), "message": notice.text(),
            "priority": if self.is_quiet() { 2 } else { 10 },
            "extras": { "client::notification": { "click": { "url": click } } },
        });
        let mut message = json_message(below(url, "message"), &body);
        message.headers.push(("X-Gotify-Key".into(), token.to_owned()));
        message
    }

    fn telegram(&self, url: &str, token: &str, chat: &str) -> ChannelRequest {
        let notice = self.notice;
        let mut text = format!("{}\n{}", notice.title(), notice.text());
        if let Some(url) = &notice.ack_url {
            text.push_str(&format!("\nAcknowledge: {url}"));
        }
        let body = json!({
            "chat_id": chat, "text": text, "link_preview_options": { "is_disabled": true },
            "disable_notification": self.is_quiet(),
        });
        json_message(below(url, &format!("bot{token}/sendMessage")), &body)
    }
}

/// The request that ends the repetitions of an emergency; `None`: this target has none.
pub fn cancellation(target: &ChannelTarget, receipt: &str) -> Option<ChannelRequest> {
    let ChannelTarget::Pushover { url, token, .. } = target else { return None };
    let headers = named([("Content-Type", "application/x-www-form-urlencoded".to_owned())]);
    let body = url::form_urlencoded::Serializer::new(String::new()).append_pair("token", token).finish().into_bytes();
    let url = below(url, &format!("1/receipts/{receipt}/cancel.json"));
    Some(ChannelRequest { method: Method::POST, url, headers, body })
}

/// The topic of messages about this incident, of which a push service keeps the newest: 32 characters, as Apple's wants
/// it.
fn topic(incident: &str) -> String {
    let plain = incident.replace('-', "");
    let is_uuid = plain.len() == TOPIC && plain.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_uuid { plain } else { sha256_hex(incident.as_bytes()).split_off(TOPIC) }
}

/// The URL of a path below a root.
fn below(root: &str, path: &str) -> String {
    format!("{}/{path}", root.trim_end_matches('/'))
}

fn named<const N: usize>(headers: [(&'static str, String); N]) -> Vec<ChannelHeader> {
    headers.map(|(name, value)| (Cow::Borrowed(name), value)).into()
}

fn json_message(url: String, body: &Value) -> ChannelRequest {
    let headers = named([("Content-Type", "application/json".to_owned())]);
    ChannelRequest { method: Method::POST, url, headers, body: body.to_string().into_bytes() }
}

/// Text without markup for Discord, and without a mention of anybody.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if "\\*_~`>|[]()#@<".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::channels::{alarm_notice::tests::notice, channel_template::TemplateForm};

    const ID: &str = "0193aa0b-6c7d-7e8f-9a0b-1c2d3e4f5a6c";

    fn message(event: NoticeEvent, target: &ChannelTarget) -> ChannelRequest {
        crate::crypto::install();
        let vapid = VapidKey::read(&VapidKey::generate()).unwrap();
        let now = Timestamp::from_timestamp(1_700_000_100, 0).unwrap();
        let (notice, contact) = (notice(event), "https://companion.example");
        Format { id: ID, notice: &notice, vapid: Some(&vapid), contact, salt: [1; 16], now }.message(target).unwrap()
    }

    fn header<'a>(message: &'a ChannelRequest, name: &str) -> &'a str {
        message.headers.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    fn sent(message: &ChannelRequest) -> Value {
        serde_json::from_slice(&message.body).unwrap()
    }

    #[test]
    fn a_push_to_a_browser_has_what_each_push_service_wants() {
        let target = ChannelTarget::WebPush {
            endpoint: "https://push.example:8443/send/abc".to_owned(),
            p256dh: "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
                .to_owned(),
            auth: "BTBZMqHH6r4Tts7J_aSIgg".to_owned(),
        };
        let message = message(NoticeEvent::Opened, &target);
        assert_eq!((header(&message, "TTL"), header(&message, "Urgency")), ("3600", "high"));
        assert_eq!(header(&message, "Topic").len(), 32);
        assert!(header(&message, "Authorization").starts_with("vapid t="));
        assert!((600..4_096).contains(&message.body.len()) && message.body[20] == 65);
        let updated = super::tests::message(NoticeEvent::Updated, &target);
        assert_eq!((header(&updated, "TTL"), header(&updated, "Urgency")), ("60", "normal"));
        assert!(header(&updated, "Topic").len() == 32 && header(&updated, "Topic") != header(&message, "Topic"));
        let ChannelTarget::WebPush { endpoint, auth, .. } = target else { unreachable!() };
        let bad = ChannelTarget::WebPush { endpoint, p256dh: "AAAA".to_owned(), auth };
        let vapid = VapidKey::read(&VapidKey::generate()).unwrap();
        let (notice, now) = (notice(NoticeEvent::Test), Timestamp::from_timestamp(0, 0).unwrap());
        let format = Format { id: ID, notice: &notice, vapid: Some(&vapid), contact: "", salt: [1; 16], now };
        assert_eq!(format.message(&bad), None);
    }

    #[test]
    fn a_topic_is_32_characters_of_any_id() {
        assert_eq!(topic(ID), "0193aa0b6c7d7e8f9a0b1c2d3e4f5a6c");
        let other = topic("game server 7");
        assert!(other.len() == TOPIC && other != topic("game server 8"), "{other}");
    }

    #[test]
    fn a_webhook_is_signed_over_the_bytes_that_are_sent() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned();
        let (url, secrets) = ("https://hook.example/1".to_owned(), vec![secret.clone()]);
        let target = ChannelTarget::Webhook { url, secrets, template: None };
        let message = message(NoticeEvent::Opened, &target);
        let now = Timestamp::from_timestamp(1_700_000_100, 0).unwrap();
        let expected = signed_webhook::signatures(&[secret.into()], ID, now, &message.body);
        assert_eq!(header(&message, "webhook-signature"), expected);
        assert_eq!((header(&message, "webhook-id"), header(&message, "webhook-timestamp")), (ID, "1700000100"));
        let body = sent(&message);
        assert_eq!((&body["type"], &body["data"]["count"]), (&"raid.opened".into(), &3.into()));
        assert_eq!(body["data"]["ackUrl"], "https://companion.example/a/token");
    }

    #[test]
    fn a_webhook_with_a_template_sends_the_bytes_of_another_service_signed_all_the_same() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned();
        let key = TemplateHeader { name: "X-Api-Key".to_owned(), value: "key".to_owned() };
        let request = |content_type, body: &str| {
            let template = WebhookTemplate { content_type, headers: vec![key.clone()], body: body.to_owned() };
            let (url, secrets) = ("https://gateway.example/call".to_owned(), vec![secret.clone()]);
            message(NoticeEvent::Opened, &ChannelTarget::Webhook { url, secrets, template: Some(template) })
        };
        let json = request(TemplateForm::Json, r#"{"to":"+49123","text":"{title}"}"#);
        assert_eq!(json.body, br#"{"to":"+49123","text":"RAID Front @everyone door, H12"}"#);
        assert_eq!([header(&json, "Content-Type"), header(&json, "X-Api-Key")], ["application/json", "key"]);
        let now = Timestamp::from_timestamp(1_700_000_100, 0).unwrap();
        let expected = signed_webhook::signatures(&[secret.clone().into()], ID, now, &json.body);
        assert_eq!(header(&json, "webhook-signature"), expected);
        let fields = request(TemplateForm::Fields, "to=%2B49123&text={title}&n={count}");
        assert_eq!(fields.body, b"to=%2B49123&text=RAID+Front+%40everyone+door%2C+H12&n=3");
        assert_eq!(header(&fields, "Content-Type"), "application/x-www-form-urlencoded");
        let text = request(TemplateForm::Text, "{title}\n{text}");
        let expected = b"RAID Front @everyone door, H12\nDemo Island\nIt went off 3 times since 22:13:20 UTC.";
        assert_eq!((&*text.body, header(&text, "Content-Type")), (&expected[..], "text/plain; charset=utf-8"));
    }

    #[test]
    fn a_name_from_the_game_mentions_no_one_at_discord() {
        let url = "https://discord.example/api/webhooks/1/x?thread_id=2#here".to_owned();
        let target = ChannelTarget::Discord { url, quiet_url: None };
        let message = message(NoticeEvent::Opened, &target);
        assert!(message.url.ends_with("?thread_id=2&wait=true"));
        let body = sent(&message);
        assert_eq!(body["allowed_mentions"], json!({ "parse": [] }));
        assert_eq!(body["content"], "RAID Front \\@everyone door, H12");
    }

    #[test]
    fn a_count_is_edited_into_the_message_that_discord_has() {
        let url = "https://discord.example/api/webhooks/1/x?thread_id=2".to_owned();
        let target = ChannelTarget::Discord { url, quiet_url: Some("https://discord.example/rest".to_owned()) };
        let (now, opened) = (Timestamp::from_timestamp(1_700_000_100, 0).unwrap(), notice(NoticeEvent::Opened));
        let notice = AlarmNotice { replaces: Some("1109".to_owned()), ..notice(NoticeEvent::Updated) };
        let format = Format { id: ID, notice: &notice, vapid: None, contact: "", salt: [1; 16], now };
        let edit = format.message(&target).unwrap();
        let to = "https://discord.example/api/webhooks/1/x/messages/1109?thread_id=2";
        assert_eq!((edit.method.clone(), &*edit.url), (Method::PATCH, to));
        let first = Format { notice: &opened, ..format }.message(&target).unwrap();
        assert_eq!((&first.method, &sent(&edit)["embeds"]), (&Method::POST, &sent(&first)["embeds"]));
        assert!(sent(&edit)["flags"].is_null());
    }

    #[test]
    fn discord_has_raids_apart_from_the_rest_if_the_user_wants_it_so() {
        let [loud, quiet] = ["1/raids", "2/rest"].map(|hook| format!("https://discord.example/api/webhooks/{hook}"));
        let target = ChannelTarget::Discord { url: loud.clone(), quiet_url: Some(quiet.clone()) };
        for event in [NoticeEvent::Opened, NoticeEvent::Repeated, NoticeEvent::Test] {
            assert_eq!(message(event, &target).url, format!("{loud}?wait=true"));
        }
        assert_eq!(message(NoticeEvent::Event, &target).url, format!("{quiet}?wait=true"));
        let together = ChannelTarget::Discord { url: loud.clone(), quiet_url: None };
        assert_eq!(message(NoticeEvent::Event, &together).url, format!("{loud}?wait=true"));
    }

    #[test]
    fn each_service_has_the_alarm_as_loud_as_it_can() {
        let (url, token) = ("https://example.com/".to_owned(), "token".to_owned());
        let ntfy = ChannelTarget::Ntfy { url: url.clone(), topic: "base".to_owned(), token: Some(token.clone()) };
        let ntfy = message(NoticeEvent::Opened, &ntfy);
        assert_eq!((&sent(&ntfy)["priority"], header(&ntfy, "Authorization")), (&5.into(), "Bearer token"));
        assert_eq!(sent(&ntfy)["actions"][0]["method"], "POST");

        let pushover = ChannelTarget::Pushover { url: url.clone(), token: token.clone(), user: "user".to_owned() };
        let priority = |event| sent(&message(event, &pushover))["priority"].clone();
        assert_eq!((priority(NoticeEvent::Repeated), priority(NoticeEvent::Test)), (2.into(), 1.into()));
        assert_eq!(priority(NoticeEvent::Event), -1, "it wakes no user");
        let cancelled = cancellation(&pushover, "r1").unwrap();
        assert_eq!(
            (&*cancelled.url, &*cancelled.body),
            ("https://example.com/1/receipts/r1/cancel.json", &b"token=token"[..])
        );

        let gotify = ChannelTarget::Gotify { url: url.clone(), token: token.clone() };
        let quiet = message(NoticeEvent::Event, &gotify);
        let gotify = message(NoticeEvent::Opened, &gotify);
        assert_eq!([&sent(&gotify)["priority"], &sent(&quiet)["priority"]], [&10, &2]);
        assert_eq!((&*gotify.url, header(&gotify, "X-Gotify-Key")), ("https://example.com/message", "token"));

        let telegram = ChannelTarget::Telegram { url, token, chat: "-100".to_owned() };
        let quiet = message(NoticeEvent::Event, &telegram);
        let telegram = message(NoticeEvent::Opened, &telegram);
        assert_eq!([quiet, telegram.clone()].map(|said| sent(&said)["disable_notification"].clone()), [true, false]);
        assert_eq!(telegram.url, "https://example.com/bottoken/sendMessage");
        assert!(sent(&telegram)["text"].as_str().unwrap().ends_with("Acknowledge: https://companion.example/a/token"));
    }
}
