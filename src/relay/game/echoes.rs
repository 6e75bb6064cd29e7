//! Lines that users say in their team's chat, in their order, until the game repeats them. Pure bookkeeping.

use tokio::sync::oneshot;

use crate::domain::chat::StoredLine;

/// See the module.
#[derive(Default)]
pub struct Echoes(Vec<AwaitedEcho>);

struct AwaitedEcho {
    /// As it will be shown.
    text: String,
    heard: oneshot::Sender<StoredLine>,
}

impl Echoes {
    /// A user says this line, as it will be shown.
    pub fn wait_for(&mut self, text: String) -> oneshot::Receiver<StoredLine> {
        let (heard, echo) = oneshot::channel();
        self.0.push(AwaitedEcho { text, heard });
        echo
    }

    /// The player of the link has said this. Answers its user; older game servers cut a line, and the player may say
    /// others in the game meanwhile.
    pub fn hear(&mut self, line: StoredLine) {
        let text = line.line.text.as_str();
        let whole = self.0.iter().position(|awaited| awaited.text == text);
        let cut = || self.0.iter().position(|awaited| !text.is_empty() && awaited.text.starts_with(text));
        if let Some(said) = whole.or_else(cut) {
            let _ = self.0.remove(said).heard.send(line);
        }
    }

    /// Drops those whose users have stopped waiting.
    pub fn drop_ended(&mut self) {
        self.0.retain(|awaited| !awaited.heard.is_closed());
    }
}
