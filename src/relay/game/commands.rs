//! Commands of users to a game server, from the socket or the API to the game.

use std::{collections::HashMap, sync::Arc, time::Duration};

use actix::Message;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use crate::{
    db::alarms::incidents::StoredIncident,
    domain::{
        bot::bot_messages::BotMessages,
        channels::user_channel::ChannelFault,
        chat::StoredLine,
        device::{DeviceKind, DeviceReport},
        ids::{PlatformId, ServerId, UserId},
        team_command::settings::CommandWord,
        time::Timestamp,
    },
    game::{
        acting_link::ActingLink,
        budget::{Priority, cost},
        link::{Answered, AskError},
        reading,
        wire::{AppEntityInfo, AppPromoteToLeader, AppRequest, AppSendMessage, AppSetEntityValue},
    },
    relay::shared::own_link::OwnLink,
};

/// A command waits this long for the game server.
pub const COMMAND_DEADLINE: Duration = Duration::from_secs(5);

/// An acknowledgement waits for the database no longer than this; then it is kept as alarms are.
pub const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(2);

/// Pause before a switch that does not show the wanted value is asked again.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// A user's wish for a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The wanted value; without one it is flipped from what is true when its turn comes.
    pub value: Option<bool>,
    pub by: UserId,
}

/// Toggle a smart switch; answers with the value seen afterwards.
#[derive(Clone, Debug, Message, PartialEq, Eq)]
#[rtype(result = "Result<bool, CommandError>")]
pub struct DeviceToggle {
    pub device: String,
    pub wish: Wish,
}

/// A user's command, for a paired server that this user may command.
#[derive(Message)]
#[rtype(result = "Result<bool, CommandError>")]
pub struct UserCommand {
    pub server: ServerId,
    pub toggle: DeviceToggle,
}

/// The node that has a server or a push session has not answered a question about it, or it is not known which one has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node that has the server or the push session does not answer")]
pub struct Unanswered;

/// The devices of this server as they were last heard of, by device id; none without a game connection.
#[derive(Message)]
#[rtype(result = "Result<HashMap<Arc<str>, DeviceReport>, Unanswered>")]
pub struct ReadDevices {
    pub server: ServerId,
}

/// Devices of a paired server were added, edited or removed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct DevicesChanged;

/// Alarms of a paired server may come over its link alone, or no longer: the push credential of its owner was uploaded,
/// deleted or refused, has expired or works again.
#[derive(Message)]
#[rtype(result = "()")]
pub struct AlarmPathChanged;

/// A question of the team's chat, without an argument; none without a game connection.
#[derive(Message)]
#[rtype(result = "Option<Vec<String>>")]
pub struct AskServer {
    pub server: ServerId,
    pub command: CommandWord,
    pub texts: BotMessages,
}

/// This player has just paired a new device in the game, and so is beside it.
#[derive(Message)]
#[rtype(result = "()")]
pub struct PlaceDevice {
    pub device: String,
    pub player: PlatformId,
    /// When the game said so.
    pub sent: Timestamp,
}

/// Map notes of a paired server were added, changed or deleted.
#[derive(Message)]
#[rtype(result = "()")]
pub struct NotesChanged {
    /// This one was deleted.
    pub deleted: Option<String>,
}

/// A user, who may watch this server, takes note of one of its incidents; answers with the incident.
#[derive(Message)]
#[rtype(result = "Result<StoredIncident, CommandError>")]
pub struct AcknowledgeRaid {
    pub server: ServerId,
    pub user: UserId,
    pub incident: String,
    /// By the link in a message to the user: the database need not say that they may watch.
    pub by_link: bool,
}

/// Keep that a user, who may, has taken note of an incident at this time, which the database did not take; answers with the
/// incident once that survives a kill.
#[derive(Message)]
#[rtype(result = "Result<StoredIncident, CommandError>")]
pub struct KeepAcknowledgement {
    pub incident: String,
    pub user: UserId,
    pub at: Timestamp,
}

/// The incident of this server, or the one that it is a part of, as it is known without the database; `None` if it is not
/// shown.
#[derive(Message)]
#[rtype(result = "Result<Option<StoredIncident>, Unanswered>")]
pub struct FindRaid {
    pub server: ServerId,
    pub incident: String,
}

/// A user who had taken note of incidents of this server is gone, and so is that.
#[derive(Message)]
#[rtype(result = "()")]
pub struct AcknowledgementsErased {
    pub user: UserId,
}

/// Say a line in the team's chat; answers with the line as the game repeats it.
#[derive(Message)]
#[rtype(result = "Result<StoredLine, ChatError>")]
pub struct SayInTeam {
    pub text: String,
}

/// Say this in the team of a paired server when its turn comes, for a channel of the owner; without a game connection it
/// is dropped, and so is `answer`.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SayForChannel {
    pub line: ChannelLine,
    /// Answered once the game server took the line, or will not.
    pub answer: oneshot::Sender<Result<(), ChannelFault>>,
}

/// A line of the channel `teamChat`, for the team's chat in the game.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChannelLine {
    /// An alarm, or a drill.
    Alarm { name: String, grid: String, drill: bool },
    /// Another event, in its own words. A player may have muted these.
    Event(String),
}

/// A user's line for the team of a paired server that this user may command.
#[derive(Message)]
#[rtype(result = "Result<StoredLine, ChatError>")]
pub struct SendChat {
    pub server: ServerId,
    pub user: UserId,
    pub text: String,
}

/// Reasons why a line was not said, or is not known to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChatError {
    UnknownServer,
    OwnerOnly,
    /// The paired player is in no team.
    NoTeam,
    /// The game server takes no such line of this player: muted, or filtered.
    Refused,
    /// There is no link, or the game server refused for another reason: it was not said.
    Unavailable,
    /// The game server has not answered, or has not repeated the line, and may be gone.
    TimedOut,
    /// Our own fault; try again.
    Internal,
}

impl From<AskError> for ChatError {
    fn from(error: AskError) -> Self {
        match error {
            AskError::TimedOut | AskError::Closed => Self::TimedOut,
            AskError::Refused(word) if word == "no_team" => Self::NoTeam,
            AskError::Refused(word) if word == "message_not_sent" => Self::Refused,
            AskError::Refused(_) | AskError::TooMany(_) => Self::Unavailable,
        }
    }
}

/// Failure of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CommandError {
    UnknownServer,
    /// The user may watch this server and not command it.
    OwnerOnly,
    UnknownDevice,
    UnknownIncident,
    NotASwitch,
    /// The game server no longer knows the device, or the paired player has lost the tool cupboard.
    DeviceRemoved,
    /// Too many toggles of this switch wait.
    TooMany,
    /// There is no link, or the game server refused.
    Unavailable,
    /// The game server has not answered or does not show what was wanted, or the link ended before it did: it may
    /// have happened.
    TimedOut,
    /// Our own fault; try again.
    Internal,
}

impl From<AskError> for CommandError {
    fn from(error: AskError) -> Self {
        match error {
            AskError::TimedOut => Self::TimedOut,
            AskError::Refused(word) if word == "wrong_type" => Self::NotASwitch,
            AskError::Refused(word) if word == "not_found" => Self::DeviceRemoved,
            AskError::Refused(_) | AskError::TooMany(_) | AskError::Closed => Self::Unavailable,
        }
    }
}

/// Sets a switch to this value, or to the opposite of what it is: of its known value, or of what it answers. Then asks
/// it until it is: a game server says yes before it has turned the switch, and also if something else holds it. The
/// caller sets the deadline.
pub async fn toggle(
    link: &ActingLink,
    entity: u64,
    wanted: Option<bool>,
    known: Option<bool>,
) -> Result<(bool, Answered<AppEntityInfo>), CommandError> {
    let ask = || async {
        let asked = patiently(|| link.entity(entity, Priority::Toggle, COMMAND_DEADLINE)).await?;
        let Answered { asked_after, content } = asked;
        content.map(|content| Answered { asked_after, content }).ok_or(CommandError::Unavailable)
    };
    let value = match (wanted, known) {
        (Some(wanted), _) => wanted,
        (None, Some(known)) => !known,
        (None, None) => {
            let seen = ask().await?.content;
            if reading::device_kind(seen.r#type) != DeviceKind::Switch {
                return Err(CommandError::NotASwitch);
            }
            !seen.payload.value.unwrap_or_default()
        }
    };
    let request = AppRequest {
        entity_id: Some(entity),
        set_entity_value: Some(AppSetEntityValue { value }),
        ..Default::default()
    };
    let set = patiently(|| link.ask(request.clone(), cost::REQUEST, Priority::Toggle, COMMAND_DEADLINE)).await;
    // From here on, a link that ends does not say that nothing happened.
    set.map_err(|error| if error == AskError::Closed { CommandError::TimedOut } else { error.into() })?;
    loop {
        let seen = ask().await.map_err(|error| match error {
            CommandError::Unavailable => CommandError::TimedOut,
            error => error,
        })?;
        if seen.content.payload.value == Some(value) {
            return Ok((value, seen));
        }
        sleep(ASKED_AGAIN_AFTER).await;
    }
}

/// Says a line in the team's chat.
pub async fn say(link: &ActingLink, message: &str, priority: Priority) -> Result<(), AskError> {
    let message = Some(AppSendMessage { message: message.to_owned() });
    let request = AppRequest { send_team_message: message, ..Default::default() };
    patiently(|| link.ask(request.clone(), cost::CHAT_MESSAGE, priority, COMMAND_DEADLINE)).await?;
    Ok(())
}

/// Makes a member the leader. The game answers only that it was asked: what then holds is in the team.
pub async fn promote(link: OwnLink, player: u64) {
    let Ok(Some(link)) = timeout(COMMAND_DEADLINE, link.acting()).await else { return };
    let request = AppRequest { promote_to_leader: Some(AppPromoteToLeader { steam_id: player }), ..Default::default() };
    let asked = link.ask(request, cost::REQUEST, Priority::Toggle, COMMAND_DEADLINE).await;
    if let Err(error) = asked {
        log::debug!("leadership was not passed on: {error}");
    }
}

/// Asks again while the game server says that it was asked too much: its mirrored budget is empty then, and the next
/// question waits for its turn. The caller sets the deadline.
async fn patiently<T, F>(ask: impl Fn() -> F) -> Result<T, AskError>
where
    F: Future<Output = Result<T, AskError>>,
{
    loop {
        match ask().await {
            Err(AskError::Refused(word)) if word == "rate_limit" => {}
            answered => return answered,
        }
    }
}
