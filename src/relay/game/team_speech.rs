//! Says lines in a team's chat, one after the other, as its queue wants them. Toggles never wait for them: lines leave
//! tokens of the game's buckets for those.

use std::sync::Arc;

use tokio::time::timeout;

use crate::{
    domain::{
        ids::ServerId,
        team_command::{reply, speaker::LineUse},
    },
    game::{
        budget::{Priority, cost},
        link::AskError,
    },
    relay::{
        game::commands::{self, COMMAND_DEADLINE},
        shared::{
            context::RelayContext,
            teams::{AlarmLine, NextSaid, NextStep, SaidLine, SayOutcome, TeamKey},
        },
    },
};

/// Lets this be said in the team's chat when its turn comes, over the link of this paired server if it is up then.
pub fn say_later(context: &Arc<RelayContext>, key: &TeamKey, by: &ServerId, text: &str, purpose: LineUse) {
    push(context, key, by, text, purpose, None);
}

/// Lets an alarm be said in the team's chat when its turn comes, and stores how far it came.
pub fn say_alarm(context: &Arc<RelayContext>, key: &TeamKey, by: &ServerId, text: &str, alarm: AlarmLine) {
    push(context, key, by, text, LineUse::Alarm, Some(alarm.into()));
}

fn push(
    context: &Arc<RelayContext>,
    key: &TeamKey,
    by: &ServerId,
    text: &str,
    purpose: LineUse,
    alarm: Option<Box<AlarmLine>>,
) {
    let Some(text) = reply::line(text) else { return };
    let line = SaidLine { text, by: by.clone(), said_as: None, alarm };
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
                // The pause after a line begins when it goes out.
                let _ = timeout(COMMAND_DEADLINE, link.spare(cost::CHAT_MESSAGE, Priority::Polling)).await;
                let sent = context.clock.moment();
                let say = commands::say(&link, &waiting.line.text, Priority::Polling);
                let outcome = match timeout(COMMAND_DEADLINE, say).await {
                    Ok(Ok(())) => SayOutcome::Said,
                    Ok(Err(AskError::Refused(word))) if word == "message_not_sent" => SayOutcome::Refused,
                    Ok(Err(AskError::Refused(_) | AskError::TooMany(_))) => SayOutcome::Failed,
                    Ok(Err(AskError::Closed)) => SayOutcome::Lost,
                    Ok(Err(AskError::TimedOut)) | Err(_) => SayOutcome::Unanswered,
                };
                let at = if outcome == SayOutcome::Said { sent } else { context.clock.moment() };
                context.teams.said(&key, waiting, outcome, at);
            }
        }
    }
}
