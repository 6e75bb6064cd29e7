//! A reply of the bot: one message of the platform, of which it has the length.

/// UTF-16 units of a message; the platform's own limit is as many characters.
const LONGEST_MESSAGE: usize = 2_000;

/// A message of the bot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BotReply {
    /// With the platform's own marks; 1 to 2000 characters.
    pub text: String,
    /// Visible only to the account that gave the command.
    pub private: bool,
}

impl BotReply {
    /// A reply that all see.
    pub fn shared(text: String) -> Self {
        Self { text: fit(text), private: false }
    }

    /// A reply that only the account sees that gave the command.
    pub fn private(text: String) -> Self {
        Self { text: fit(text), private: true }
    }
}

/// At most one message: cut at the end of a line or word.
fn fit(text: String) -> String {
    let units = |text: &str| text.encode_utf16().count();
    if units(&text) <= LONGEST_MESSAGE {
        return text;
    }
    let mut left = LONGEST_MESSAGE - 1;
    let whole = text.char_indices().find(|(_, c)| {
        let over = c.len_utf16() > left;
        left = left.saturating_sub(c.len_utf16());
        over
    });
    let kept = &text[..whole.map_or(text.len(), |(end, _)| end)];
    let end = kept.rfind('\n').filter(|end| *end > kept.len() / 2).or(kept.rfind(' ')).unwrap_or(kept.len());
    format!("{}…", kept[..end].trim_end())
}
