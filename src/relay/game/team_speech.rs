//! Says lines in a team's chat, one after the other, as its queue wants them. Toggles never wait for them: lines leave
//! tokens of the game's buckets for those.

use std::sync::Arc;

use tokio::time::timeout;

use crate::{
    domain::{
        ids::ServerId,
        team_command::{reply, speaker::LineUse},
        time::Moment,
    },
    game::{
        acting_link::ActingLink,
        budget::{Priority, cost},
        link::AskError,
    },
    relay::{
        game::commands::{self, COMMAND_DEADLINE},
        shared::{
            context::RelayContext,
            teams::{
                NextSaid, NextStep, SaidLine, SayOutcome, TeamKey,
                line_ends::{AlarmLine, EndedTimers},
            },
        },
    },
};

/// Lets this be said in the team's chat when its turn comes, over the link of this paired server if it is up then.
pub fn say_later(context: &Arc<RelayContext>, key: &TeamKey, by: &ServerId, text: &str, purpose: LineUse) {
    push(context, key, line(by, text), purpose);
}

/// Lets this be said in the team's chat when its turn comes, and notes how far it came.
pub fn say_noted(
    context: &Arc<RelayContext>,
    key: &TeamKey,
    by: &ServerId,
    (text, purpose): (&str, LineUse),
    alarm: AlarmLine,
) {
    let line = line(by, text).map(|line| SaidLine { alarm: Some(alarm.into()), ..line });
    push(context, key, line, purpose);
}

/// Lets the end of these timers be said in the team's chat when its turn comes, by this line and others that have them.
pub fn say_ended(context: &Arc<RelayContext>, key: &TeamKey, by: &ServerId, text: &str, timers: &Arc<EndedTimers>) {
    let line = line(by, text).map(|line| SaidLine { timers: Some(timers.clone()), ..line });
    push(context, key, line, LineUse::Reminder);
}

fn line(by: &ServerId, text: &str) -> Option<SaidLine> {
    Some(SaidLine { text: reply::line(text)?, by: by.clone(), said_as: None, alarm: None, timers: None })
}

fn push(context: &Arc<RelayContext>, key: &TeamKey, line: Option<SaidLine>, purpose: LineUse) {
    let Some(line) = line else { return };
    if context.teams.push(key, line, purpose, context.clock.moment()) {
        begin(context, key);
    }
}

/// Begins to say the lines of the team, until none waits or no link is there.
pub fn begin(context: &Arc<RelayContext>, key: &TeamKey) {
    actix::spawn(speak(context.clone(), key.clone()));
}

async fn speak(context: Arc<RelayContext>, key: TeamKey) {
    loop {
        match context.teams.next_line(&key, context.clock.moment()) {
            NextStep::End => return,
            NextStep::Wait(until) => context.clock.reach(until).await,
            NextStep::Say(NextSaid { waiting, link }) => {
                let (outcome, sent) = match timeout(COMMAND_DEADLINE, link.acting()).await {
                    Ok(Some(link)) => say(&context, &link, &waiting.line.text).await,
                    Ok(None) | Err(_) => (SayOutcome::Lost, context.clock.moment()),
                };
                let at = if outcome == SayOutcome::Said { sent } else { context.clock.moment() };
                context.teams.said(&key, waiting, outcome, at);
            }
        }
    }
}

/// Says a line; what became of it, and when it went out. The pause after a line begins then.
async fn say(context: &RelayContext, link: &ActingLink, text: &str) -> (SayOutcome, Moment) {
    let _ = timeout(COMMAND_DEADLINE, link.spare(cost::CHAT_MESSAGE, Priority::Polling)).await;
    let sent = context.clock.moment();
    let outcome = match timeout(COMMAND_DEADLINE, commands::say(link, text, Priority::Polling)).await {
        Ok(Ok(())) => SayOutcome::Said,
        Ok(Err(AskError::Refused(word))) if word == "message_not_sent" => SayOutcome::Refused,
        Ok(Err(AskError::Refused(_) | AskError::TooMany(_))) => SayOutcome::Failed,
        Ok(Err(AskError::Closed)) => SayOutcome::Lost,
        Ok(Err(AskError::TimedOut)) | Err(_) => SayOutcome::Unanswered,
    };
    (outcome, sent)
}
