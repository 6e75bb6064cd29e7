//! Questions that a link asks again and again.

use futures_util::future::try_join_all;
use tokio::time::{Instant, sleep_until};

use super::{ANSWER_DEADLINE, LinkTalk, SILENT_ANSWERS};
use crate::{
    game::{
        budget::Priority,
        link::{Answered, AskError},
        reading_link::GameQuestion,
        wire::AppResponse,
    },
    relay::{
        game::pool::{
            link_end::{LinkEnd, is_dead},
            link_owner::Unneeded,
            link_report::LinkReport,
            poll_plan::{Poll, PollPlan, first_polls, silent_after},
        },
        state::game_update::{GameUpdate, TeamUpdate, WorldUpdate},
    },
};

/// Result of a poll that the link survives.
#[derive(PartialEq, Eq)]
enum Polled {
    /// Perhaps with a refusal.
    Answered,
    Silent,
    Unneeded,
}

impl LinkTalk<'_> {
    /// Asks everything once, then each when its time comes.
    pub(super) async fn keep_polling(&self) -> Result<Unneeded, LinkEnd> {
        for poll in first_polls(self.purpose, self.owner.wake.is_watched()) {
            if self.poll_all(&[*poll]).await?.is_err() {
                return Ok(Unneeded);
            }
        }
        // In a box, which is freed: a report has room for the largest.
        if Box::pin(self.owner.report(LinkReport::Resynced)).await.is_err() {
            return Ok(Unneeded);
        }
        let mut plan = PollPlan::new(Instant::now(), self.owner.context.random.byte());
        loop {
            let is_watched = self.owner.wake.is_watched();
            let (_, at) = plan.next(is_watched);
            tokio::select! {
                () = sleep_until(at) => {}
                () = self.owner.wake.watched() => continue,
                () = self.chat_wanted.notified() => {
                    plan.miss_chat();
                    continue;
                }
            }
            let now = Instant::now();
            let polls = plan.due(now, is_watched);
            polls.iter().for_each(|poll| plan.asked(*poll, now));
            if self.poll_all(&polls).await?.is_err() {
                return Ok(Unneeded);
            }
        }
    }

    /// Asks these things together and reports the answers. Silence counts once, however many were asked: a game server
    /// that pauses for a moment is not dead.
    async fn poll_all(&self, polls: &[Poll]) -> Result<Result<(), Unneeded>, LinkEnd> {
        let asked = try_join_all(polls.iter().map(|poll| self.poll(*poll)));
        // In a box, which is freed when they are answered: what waits for the next poll is small.
        let polled = Box::pin(asked).await?;
        if polled.contains(&Polled::Unneeded) {
            return Ok(Err(Unneeded));
        }
        let answers = polled.iter().map(|polled| *polled == Polled::Answered);
        self.silent.set(silent_after(self.silent.get(), polls.iter().copied().zip(answers)));
        match self.silent.get() {
            0..SILENT_ANSWERS => Ok(Ok(())),
            _ => Err(LinkEnd::by(AskError::TimedOut)),
        }
    }

    /// Asks one thing and reports the answer.
    async fn poll(&self, poll: Poll) -> Result<Polled, LinkEnd> {
        let question = match poll {
            Poll::Info => GameQuestion::Info,
            Poll::Time => GameQuestion::Time,
            Poll::Team => GameQuestion::Team,
            Poll::Chat => GameQuestion::Chat,
            Poll::Clan => GameQuestion::Clan,
            Poll::Markers => GameQuestion::Markers,
        };
        let (asked_at, _) = self.look();
        let answer = self.link.ask(question, Priority::Polling, ANSWER_DEADLINE).await;
        if matches!(answer, Ok(_) | Err(AskError::Refused(_))) {
            self.waited.borrow_mut().answered(asked_at);
        }
        let Answered { asked_after, content } = match answer {
            Ok(answered) => answered,
            Err(AskError::Refused(word)) if poll != Poll::Info || !is_dead(&word) => {
                log::debug!(server = self.owner.server.as_str(), poll:? = poll; "the game server refuses: {word}");
                // A dead token is refused everything: not only in a minute is it known to be one.
                return if is_dead(&word) { self.probe().await } else { Ok(Polled::Answered) };
            }
            // The section becomes stale, which the state says; the rest goes on.
            Err(error @ AskError::TooMany(_)) => {
                self.warn_of_refusal(&error);
                return Ok(Polled::Answered);
            }
            Err(AskError::TimedOut) => return Ok(Polled::Silent),
            Err(error) => return Err(LinkEnd::by(error)),
        };
        let update: GameUpdate = match *content {
            AppResponse { info: Some(info), .. } => WorldUpdate::Info(info).into(),
            AppResponse { time: Some(time), .. } => WorldUpdate::Time(time).into(),
            AppResponse { team_info: Some(content), .. } => {
                TeamUpdate::Members(Answered { asked_after, content }).into()
            }
            AppResponse { team_chat: Some(chat), .. } => TeamUpdate::Chat(chat).into(),
            AppResponse { map_markers: Some(markers), .. } => WorldUpdate::Markers(markers).into(),
            // An answer without content, or the clan's, asked for only to be sent clan changes: nothing to report.
            _ => return Ok(Polled::Answered),
        };
        let Ok(map_wanted) = self.owner.update(update).await else { return Ok(Polled::Unneeded) };
        if map_wanted {
            self.map_wanted.notify_one();
        }
        Ok(Polled::Answered)
    }

    /// Asks for something that no game server refuses to a player whose token it accepts.
    async fn probe(&self) -> Result<Polled, LinkEnd> {
        match self.link.ask(GameQuestion::Info, Priority::Polling, ANSWER_DEADLINE).await {
            Err(AskError::Refused(word)) if is_dead(&word) => Err(LinkEnd::by(AskError::Refused(word))),
            _ => Ok(Polled::Answered),
        }
    }
}
