//! The texts of answers and alarms in the team's chat, as admins wrote them: kept as they were read, until they are written
//! again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::TimeDelta;
use tokio::time::timeout;

use crate::{
    db::{engine::pool::Pool, stores},
    domain::{bot::bot_messages::BotMessages, stores::StoreName, time::Moment},
};

/// Longest wait of a line for its texts; then it has those that were known, or that ship with the service.
const READ_WITHIN: std::time::Duration = std::time::Duration::from_secs(1);
/// Kept texts are read again after this time: the news that they were written may be lost.
const KEPT: TimeDelta = TimeDelta::minutes(1);

/// See the module.
#[derive(Default)]
pub struct ChatTexts(Mutex<KnownTexts>);

#[derive(Clone, Default)]
struct KnownTexts {
    texts: Arc<BotMessages>,
    /// When they were read; `None`: they have to be.
    read_at: Option<Moment>,
    /// Times that they were written. A read from before the last one is of the old texts, perhaps.
    writes: u64,
}

impl ChatTexts {
    fn lock(&self) -> MutexGuard<'_, KnownTexts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The texts as they are now.
    pub async fn get(&self, pool: &Pool, now: Moment) -> Arc<BotMessages> {
        let known = self.lock().clone();
        if known.read_at.is_some_and(|at| now - at < KEPT) {
            return known.texts;
        }
        let read = pool.read(|db| stores::data(db, StoreName::Messages));
        let Ok(Ok(data)) = timeout(READ_WITHIN, read).await else { return known.texts };
        let parsed = data.and_then(|data| serde_json::from_str(&data).ok()).map(BotMessages::new);
        let texts = Arc::new(parsed.unwrap_or_default());
        let mut kept = self.lock();
        if kept.writes == known.writes {
            (kept.texts, kept.read_at) = (texts.clone(), Some(now));
        }
        texts
    }

    /// An admin has written them.
    pub fn written(&self) {
        let mut kept = self.lock();
        kept.writes += 1;
        kept.read_at = None;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::db::testing::{self, later, now};

    #[test]
    fn texts_are_read_once_and_again_when_they_are_written() {
        testing::on_each_database(|pool| {
            let write = |text: &str| {
                let data = json!({ "team.failed": text }).to_string();
                let put = pool
                    .write_blocking(|db| stores::put(db, StoreName::Messages, &data, "digest", &"admin".into(), now()));
                put.unwrap();
            };
            let texts = ChatTexts::default();
            let said = |seconds| {
                let read = actix::System::new().block_on(texts.get(pool, later(seconds).into()));
                read.say("team.failed", &[])
            };
            assert_eq!(said(0), BotMessages::default().say("team.failed", &[]));
            write("one");
            texts.written();
            assert_eq!(said(1), "one");
            write("two");
            assert_eq!((said(60), said(61)), ("one".to_owned(), "two".to_owned()));
        });
    }
}
