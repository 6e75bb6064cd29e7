//! Templates by which a webhook speaks the form of another service, such as a telephone gateway.

use std::{borrow::Cow, collections::BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::{channels::alarm_notice::AlarmNotice, plain_text::plain_text, words::words};

/// Most headers.
const MOST_HEADERS: usize = 5;
/// Characters of a header's name, and of its value.
const NAME_CHARACTERS: usize = 64;
const VALUE_CHARACTERS: usize = 1_024;
/// Largest body before it is filled, bytes.
const BODY_BYTES: usize = 4_096;
/// Most placeholders of a body: it stays small, however long their texts are.
const MOST_PLACEHOLDERS: usize = 32;
/// Headers that are set without the user, as are those of the signature.
const OWN_HEADERS: [&str; 12] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
const SIGNATURE_HEADERS: &str = "webhook-";
/// Characters of a name within a message.
const TEXT_CHARACTERS: usize = 100;

words! {
    /// The form of a body.
    #[derive(Deserialize, ToSchema)]
    pub enum TemplateForm {
        Json = "application/json",
        Fields = "application/x-www-form-urlencoded",
        Text = "text/plain",
    }
}

words! {
    /// A part of a message, in a template as `{title}`.
    pub enum Placeholder {
        Title = "title",
        Text = "text",
        /// `type` of the signed JSON.
        Type = "type",
        Kind = "kind",
        Server = "server",
        Alarm = "alarm",
        Grid = "grid",
        Count = "count",
        Drill = "drill",
        Incident = "incident",
        Url = "url",
        /// Empty, where nothing is there to acknowledge.
        AckUrl = "ackUrl",
    }
}

/// A body and headers in the form of another service. It is a secret as a whole, as is the target of which it is a part.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookTemplate {
    /// The form of the body.
    pub content_type: TemplateForm,
    /// Sent with each message.
    #[serde(default)]
    #[schema(max_items = 5)]
    pub headers: Vec<TemplateHeader>,
    /// The body, at most 4 KiB. `{title}`, `{text}`, `{type}`, `{kind}`, `{server}`, `{alarm}`, `{grid}`, `{count}`,
    /// `{drill}`, `{incident}`, `{url}` and `{ackUrl}` are replaced, and escaped as the form wants it: a text is within
    /// quotes in JSON. All else of the body is sent as it is.
    #[schema(min_length = 1, max_length = 4096)]
    pub body: String,
}

/// A header that the user adds to each request of a webhook.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TemplateHeader {
    /// Letters, digits, `-` and `_`; none that belongs to the connection, the form or the signature.
    #[schema(pattern = "^[A-Za-z0-9_-]+$", min_length = 1, max_length = 64)]
    pub name: String,
    /// Printable ASCII.
    #[schema(pattern = "^[!-~]([ -~]*[!-~])?$", min_length = 1, max_length = 1024)]
    pub value: String,
}

/// The reason for which a template is refused; the text follows the name of its field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateFault {
    #[error("has more than {MOST_HEADERS} headers")]
    ManyHeaders,
    #[error("has a name that is not 1 to {NAME_CHARACTERS} letters, digits, - and _")]
    HeaderName,
    #[error("has one that this service sets itself: {0}")]
    OwnHeader(String),
    #[error("has one twice: {0}")]
    Twice(String),
    #[error("has a value that is not 1 to {VALUE_CHARACTERS} printable ASCII characters")]
    HeaderValue,
    #[error("must have 1 to {BODY_BYTES} bytes")]
    BodyLength,
    #[error("has more than {MOST_PLACEHOLDERS} placeholders")]
    ManyPlaceholders,
    #[error("has a placeholder that is not known: {{{0}}}")]
    Unknown(String),
    #[error("is no JSON once it is filled: a placeholder of a text is within quotes")]
    NotJson,
    #[error("is no encoded form: a blank is %20, a + is %2B")]
    NotEncoded,
}

impl WebhookTemplate {
    /// Checks it; the field at fault, and its fault.
    pub fn check(&self) -> Result<(), (&'static str, TemplateFault)> {
        self.check_headers().map_err(|fault| ("headers", fault))?;
        self.check_body().map_err(|fault| ("body", fault))
    }

    fn check_headers(&self) -> Result<(), TemplateFault> {
        if self.headers.len() > MOST_HEADERS {
            return Err(TemplateFault::ManyHeaders);
        }
        let mut names = BTreeSet::new();
        for TemplateHeader { name, value } in &self.headers {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            if !(1..=NAME_CHARACTERS).contains(&name.len()) || !name.bytes().all(is_name) {
                return Err(TemplateFault::HeaderName);
            }
            let name = name.to_ascii_lowercase();
            if OWN_HEADERS.contains(&&*name) || name.starts_with(SIGNATURE_HEADERS) {
                return Err(TemplateFault::OwnHeader(name));
            }
            let is_printable = value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
            if !(1..=VALUE_CHARACTERS).contains(&value.len()) || !is_printable || value.trim() != value {
                return Err(TemplateFault::HeaderValue);
            }
            if !names.insert(name.clone()) {
                return Err(TemplateFault::Twice(name));
            }
        }
        Ok(())
    }

    fn check_body(&self) -> Result<(), TemplateFault> {
        if !(1..=BODY_BYTES).contains(&self.body.len()) {
            return Err(TemplateFault::BodyLength);
        }
        if let Some((_, word)) = placeholders(&self.body).find(|(_, word)| Placeholder::parse(word).is_none()) {
            return Err(TemplateFault::Unknown(word.to_owned()));
        }
        if placeholders(&self.body).count() > MOST_PLACEHOLDERS {
            return Err(TemplateFault::ManyPlaceholders);
        }
        // The hardest values: no such text without quotes is JSON.
        let filled = self.filled(|placeholder| match placeholder {
            Placeholder::Count => "1".to_owned(),
            Placeholder::Drill => "true".to_owned(),
            _ => "a \"b\"".to_owned(),
        });
        match self.content_type {
            TemplateForm::Json if serde_json::from_str::<serde::de::IgnoredAny>(&filled).is_err() => {
                Err(TemplateFault::NotJson)
            }
            TemplateForm::Fields if !filled.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err(TemplateFault::NotEncoded)
            }
            _ => Ok(()),
        }
    }

    /// The body of this message.
    pub fn fill(&self, notice: &AlarmNotice) -> String {
        self.filled(|placeholder| placeholder.value(notice))
    }

    fn filled(&self, value: impl Fn(Placeholder) -> String) -> String {
        let (mut filled, mut done) = (String::with_capacity(self.body.len()), 0);
        for (at, word) in placeholders(&self.body) {
            let Some(placeholder) = Placeholder::parse(word) else { continue };
            filled.push_str(&self.body[done..at]);
            filled.push_str(&self.content_type.escaped(&value(placeholder)));
            done = at + word.len() + "{}".len();
        }
        filled.push_str(&self.body[done..]);
        filled
    }
}

/// Words between braces, and the places of these.
fn placeholders(body: &str) -> impl Iterator<Item = (usize, &str)> {
    body.match_indices('{').filter_map(|(at, brace)| {
        let rest = &body[at + brace.len()..];
        let end = rest.find(|character: char| !character.is_ascii_alphabetic())?;
        (end > 0 && rest[end..].starts_with('}')).then(|| (at, &rest[..end]))
    })
}

impl TemplateForm {
    /// The value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; charset=utf-8",
            Self::Json | Self::Fields => self.word(),
        }
    }

    fn escaped(self, text: &str) -> Cow<'_, str> {
        match self {
            Self::Json => {
                let quoted = serde_json::Value::from(text).to_string();
                quoted[1..quoted.len() - 1].to_owned().into()
            }
            Self::Fields => url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().into(),
            Self::Text => text.into(),
        }
    }
}

impl Placeholder {
    fn value(self, notice: &AlarmNotice) -> String {
        match self {
            Self::Title => notice.title(),
            Self::Text => notice.text(),
            Self::Type => notice.event.word().to_owned(),
            Self::Kind => notice.kind.word().to_owned(),
            Self::Server => plain_text(&notice.server_name, TEXT_CHARACTERS),
            Self::Alarm => plain_text(&notice.alarm_name, TEXT_CHARACTERS),
            Self::Grid => notice.grid.clone(),
            Self::Count => notice.count.to_string(),
            Self::Drill => notice.drill.to_string(),
            Self::Incident => notice.incident.clone(),
            Self::Url => notice.url.clone(),
            Self::AckUrl => notice.ack_url.clone().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::channels::alarm_notice::{NoticeEvent, tests::notice};

    fn template(content_type: TemplateForm, body: &str) -> WebhookTemplate {
        WebhookTemplate { content_type, headers: Vec::new(), body: body.to_owned() }
    }

    fn header(name: &str, value: &str) -> TemplateHeader {
        TemplateHeader { name: name.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn values_are_escaped_as_the_form_wants_it_and_filled_once() {
        let alarm = AlarmNotice { alarm_name: "A \"&{text}\\ é+".to_owned(), ..notice(NoticeEvent::Opened) };
        let filled = |form, body| template(form, body).fill(&alarm);
        let json = filled(TemplateForm::Json, r#"{"say":"{title}","n":{count},"drill":{drill},"x":{"y":"{text}"}}"#);
        let expected = r#"{"say":"RAID A \"&{text}\\ é+, H12","n":3,"drill":false,"x":{"y":"Demo Island\nIt went off 3 times since 22:13:20 UTC."}}"#;
        assert_eq!(json, expected);
        let fields = filled(TemplateForm::Fields, "To=%2B49123&Say={alarm}&at={grid}");
        assert_eq!(fields, "To=%2B49123&Say=A+%22%26%7Btext%7D%5C+%C3%A9%2B&at=H12");
        let text = filled(TemplateForm::Text, "{{type}} {kind} {server}, {}{ {nothing}: {alarm} {ackUrl}");
        let expected =
            "{raid.opened} raid Demo Island, {}{ {nothing}: A \"&{text}\\ é+ https://companion.example/a/token";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_body_must_be_of_its_form_whatever_a_name_from_the_game_is() {
        let fault = |form, body: &str| template(form, body).check().err();
        for (form, body) in [
            (TemplateForm::Json, r#"{"to":"1","text":"{title}","n":{count},"drill":{drill},"all":["{count}"]}"#),
            (TemplateForm::Fields, "To=%2B49123&Text={title}"),
            (TemplateForm::Text, "{title}\n{text} { }"),
        ] {
            assert_eq!(fault(form, body), None, "{body}");
        }
        for (form, body, expected) in [
            (TemplateForm::Json, r#"{"text":{title}}"#, TemplateFault::NotJson),
            (TemplateForm::Json, r#"{"text":"{title}""#, TemplateFault::NotJson),
            (TemplateForm::Json, r#"{"text":"{titel}"}"#, TemplateFault::Unknown("titel".to_owned())),
            (TemplateForm::Fields, "Text=a b", TemplateFault::NotEncoded),
            (TemplateForm::Text, "", TemplateFault::BodyLength),
            (TemplateForm::Text, &"é".repeat(BODY_BYTES / 2 + 1), TemplateFault::BodyLength),
            (TemplateForm::Text, &"{text}".repeat(MOST_PLACEHOLDERS + 1), TemplateFault::ManyPlaceholders),
        ] {
            assert_eq!(fault(form, body), Some(("body", expected)), "{body}");
        }
        let unknown = TemplateFault::Unknown("titel".to_owned()).to_string();
        assert_eq!(unknown, "has a placeholder that is not known: {titel}");
    }

    #[test]
    fn headers_change_neither_the_connection_nor_the_signature() {
        let fault = |headers: Vec<TemplateHeader>| {
            let checked = WebhookTemplate { headers, ..template(TemplateForm::Text, "{title}") }.check();
            checked.err().map(|(field, fault)| {
                assert_eq!(field, "headers");
                fault
            })
        };
        assert_eq!(fault(vec![header("X-Api-Key", "a b"), header("authorization", "Basic abc=")]), None);
        for name in ["Host", "Content-Length", "content-type", "Webhook-Id", "webhook-signature", "Transfer-Encoding"] {
            assert_eq!(fault(vec![header(name, "x")]), Some(TemplateFault::OwnHeader(name.to_ascii_lowercase())));
        }
        for name in ["", "a b", "a:b", "é", &"a".repeat(NAME_CHARACTERS + 1)] {
            assert_eq!(fault(vec![header(name, "x")]), Some(TemplateFault::HeaderName), "{name}");
        }
        for value in ["", "a\r\nHost: b", " a", "é", &"a".repeat(VALUE_CHARACTERS + 1)] {
            assert_eq!(fault(vec![header("x-key", value)]), Some(TemplateFault::HeaderValue), "{value}");
        }
        let twice = vec![header("X-Key", "a"), header("x-key", "b")];
        assert_eq!(fault(twice), Some(TemplateFault::Twice("x-key".to_owned())));
        let many = (0..=MOST_HEADERS).map(|number| header(&format!("x-{number}"), "a")).collect();
        assert_eq!(fault(many), Some(TemplateFault::ManyHeaders));
    }
}
