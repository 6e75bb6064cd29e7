//! On a node of several: questions and commands for servers of other nodes. Access is checked here; the other node carries a
//! command out, once or not at all, and answers it. A server that is on its way from one node to another is asked for once
//! more after a moment.

use std::time::Duration;

use actix::{fut::ready, prelude::*};
use futures_util::future::LocalBoxFuture;
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::super::{Hub, to_connection::NotPermitted};
use super::{SeveralNodes, push_session_reads::ReadPushSession};
use crate::{
    db::held_parts::{self, PartHolder},
    domain::ids::{PartId, ServerId},
    ownership::needed_parts::push_session,
    relay::{
        game::{
            camera_capture::{CameraError, CaptureFrame},
            commands::{
                AskServer, COMMAND_DEADLINE, ChatError, CommandError, DeviceToggle, FindRaid, KeepAcknowledgement,
                ReadDevices, SayForChannel, SayInTeam, Unanswered, Wish,
            },
            game_connection::{Drill, GameConnection, link_budget::BudgetExhausted},
        },
        remote::{
            remote_message::{RemoteContent, RemoteMessage},
            remote_question::{RemoteAnswer, RemoteDevice, RemoteLine, RemoteQuestion, RemoteShot},
        },
    },
};

/// The other node has its deadline for the game server, and the messages their way.
pub(in super::super) const CARRIED_OUT_WITHIN: Duration = Duration::from_secs(2).saturating_add(COMMAND_DEADLINE);
/// Wait for the answer to a question about what is known.
pub(in super::super) const READ_WITHIN: Duration = Duration::from_millis(800);
/// Wait for a line that a channel says, which has its turn first.
const SAID_WITHIN: Duration = Duration::from_secs(30);
/// Wait for the database, which may say who has a server.
const FOUND_WITHIN: Duration = Duration::from_secs(1);
/// A part that has just passed on has its next node after this time, mostly.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A question to a game connection, or a command, that another node can answer.
pub trait RemoteCommand: Message {
    /// As it is on its way.
    fn question(self) -> RemoteQuestion;

    /// The answer in this one, if it is one to such a question.
    fn answer(answer: RemoteAnswer) -> Option<Self::Result>;
}

/// Implements it: the message, its question, and the answer as it comes.
macro_rules! remote_command {
    ($message:ident: $asked:pat => $question:expr, $answer:pat => $result:expr) => {
        impl RemoteCommand for $message {
            fn question(self) -> RemoteQuestion {
                let $asked = self;
                $question
            }

            fn answer(answer: RemoteAnswer) -> Option<Self::Result> {
                if let $answer = answer { Some($result) } else { None }
            }
        }
    };
}

remote_command!(DeviceToggle:
    Self { device, wish: Wish { value, by } } => RemoteQuestion::Toggle { device, value, by },
    RemoteAnswer::Toggled(answer) => answer);
remote_command!(SayInTeam:
    Self { text } => RemoteQuestion::Say { text },
    RemoteAnswer::Said(answer) => answer.map(RemoteLine::into));
remote_command!(CaptureFrame:
    Self { camera } => RemoteQuestion::Look { camera },
    RemoteAnswer::Seen(answer) => answer.and_then(|shot| Ok(shot.read()?.into())));
remote_command!(KeepAcknowledgement:
    Self { incident, user, at } => RemoteQuestion::Keep { incident, user, at },
    RemoteAnswer::Kept(answer) => answer.map(|incident| *incident));
remote_command!(ReadDevices:
    Self { .. } => RemoteQuestion::Devices,
    RemoteAnswer::Devices(answer) => Ok(answer.into_iter().map(RemoteDevice::read).collect()));
remote_command!(FindRaid:
    Self { incident, .. } => RemoteQuestion::Raid { incident },
    RemoteAnswer::Raid(answer) => Ok(answer.map(|incident| *incident)));
remote_command!(AskServer:
    Self { command, texts, .. } => RemoteQuestion::Command { command, texts },
    RemoteAnswer::Lines(answer) => answer);
remote_command!(BudgetExhausted: Self { .. } => RemoteQuestion::Budget, RemoteAnswer::Budget(answer) => answer);

/// Reasons why another node has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum NoAnswer {
    /// No node is to have what is asked for, or this one has it: nothing was done.
    NoNode,
    /// The part is on its way to a node, still after a moment: nothing was done.
    Moving,
    /// The node that has it cannot be found out: nothing was done.
    NotAsked,
    /// The answer has not come: perhaps it was done.
    Lost,
}

impl NoAnswer {
    /// The answer to a question that is this where no node is to have what is asked for.
    pub(in super::super) fn if_none<T>(self, none: T) -> Result<T, Unanswered> {
        match self {
            Self::NoNode => Ok(none),
            Self::Moving | Self::NotAsked | Self::Lost => Err(Unanswered),
        }
    }
}

/// An answer, or why there is none.
pub(in super::super) type NodeAnswer = Result<RemoteAnswer, NoAnswer>;

impl Hub {
    /// Has the node that has this server carry out a command; `lost` if its answer does not come.
    pub(in super::super) fn command_elsewhere<M, T, E>(
        &mut self,
        server: ServerId,
        command: M,
        lost: E,
    ) -> ResponseActFuture<Self, Result<T, E>>
    where
        M: RemoteCommand + Message<Result = Result<T, E>> + 'static,
        T: 'static,
        E: From<NotPermitted> + 'static,
    {
        let answered = self.ask_elsewhere(server, command.question(), CARRIED_OUT_WITHIN);
        Box::pin(answered.map(move |answered, _, _| match answered {
            Ok(answer) => M::answer(answer).unwrap_or(Err(lost)),
            Err(NoAnswer::NoNode | NoAnswer::Moving | NoAnswer::NotAsked) => Err(NotPermitted::Unavailable.into()),
            Err(NoAnswer::Lost) => Err(lost),
        }))
    }

    /// The answer of the game connection to a question about what it knows, here or at another node; without one, that of
    /// `without`.
    pub(in super::super) fn read_connection<M>(
        &mut self,
        server: ServerId,
        question: M,
        without: impl FnOnce(NoAnswer) -> M::Result + 'static,
    ) -> ResponseActFuture<Self, M::Result>
    where
        M: RemoteCommand + Send + 'static,
        M::Result: Send,
        GameConnection: Handler<M>,
    {
        if let Some(known) = self.connections.get(&server) {
            let answer = known.address.send(question);
            let answer = async move { answer.await.unwrap_or_else(|_| without(NoAnswer::Lost)) };
            return Box::pin(answer.into_actor(self));
        }
        let answered = self.ask_elsewhere(server, question.question(), READ_WITHIN);
        Box::pin(answered.map(|answered, _, _| match answered {
            // Another answer is of another program.
            Ok(answer) => M::answer(answer).unwrap_or_else(|| without(NoAnswer::Lost)),
            Err(reason) => without(reason),
        }))
    }

    /// The answer of the node that has this server.
    pub(in super::super) fn ask_elsewhere(
        &mut self,
        server: ServerId,
        question: RemoteQuestion,
        within: Duration,
    ) -> ResponseActFuture<Self, NodeAnswer> {
        let part = match &self.nodes {
            Some(SeveralNodes { owned, .. }) if owned.fence(&server).is_none() => {
                owned.part(&server).ok_or(NoAnswer::NotAsked)
            }
            _ => Err(NoAnswer::NoNode),
        };
        match part {
            Ok(part) => self.ask_part(part, server, question, within),
            Err(reason) => Box::pin(ready(Err(reason))),
        }
    }

    /// The answer of the node that has this part, which may have passed on after a moment.
    pub(super) fn ask_part(
        &mut self,
        part: PartId,
        server: ServerId,
        question: RemoteQuestion,
        within: Duration,
    ) -> ResponseActFuture<Self, NodeAnswer> {
        let first = self.ask_holder(part.clone(), server.clone(), question.clone(), within);
        let again =
            move |answered: NodeAnswer, hub: &mut Self, _: &mut Context<Self>| -> ResponseActFuture<Self, NodeAnswer> {
                match answered {
                    Err(NoAnswer::Moving) => {
                        let paused = sleep(ASKED_AGAIN_AFTER).into_actor(hub);
                        Box::pin(paused.then(move |(), hub: &mut Self, ctx: &mut Context<Self>| {
                            hub.ask_again(part, server, question, within, ctx)
                        }))
                    }
                    answered => Box::pin(ready(answered)),
                }
            };
        Box::pin(first.then(again))
    }

    /// Likewise, of a part that may have come here meanwhile.
    fn ask_again(
        &mut self,
        part: PartId,
        server: ServerId,
        question: RemoteQuestion,
        within: Duration,
        ctx: &mut Context<Self>,
    ) -> ResponseActFuture<Self, NodeAnswer> {
        if !self.has(&part) {
            return self.ask_holder(part, server, question, within);
        }
        let answer = timeout(within, self.answer_to(&server, question, ctx));
        Box::pin(answer.into_actor(self).map(|answer, _, _| answer.map_or(Err(NoAnswer::Lost), moving_if_not_here)))
    }

    /// True if this node has this part.
    fn has(&self, part: &PartId) -> bool {
        self.nodes.as_ref().is_some_and(|nodes| nodes.owned.ownership.fence(part).is_some())
    }

    fn ask_holder(
        &mut self,
        part: PartId,
        server: ServerId,
        question: RemoteQuestion,
        within: Duration,
    ) -> ResponseActFuture<Self, NodeAnswer> {
        let pool = self.context.pool.clone();
        let holder = async move { timeout(FOUND_WITHIN, pool.read(move |db| held_parts::holder(db, &part))).await };
        Box::pin(holder.into_actor(self).then(move |holder, hub, _| {
            let process = match holder {
                Ok(Ok(Some(PartHolder::Node(node)))) => Ok(node.process().to_owned()),
                Ok(Ok(Some(PartHolder::Free))) => Err(NoAnswer::Moving),
                Ok(Ok(None)) => Err(NoAnswer::NoNode),
                // While the database is away, nothing passes on.
                Ok(Err(_)) | Err(_) => {
                    let known = hub.nodes.as_mut().and_then(|nodes| Some(nodes.remote.feed(&server)?.owner.clone()));
                    known.ok_or(NoAnswer::NotAsked)
                }
            };
            // One that is this node's by the database comes here soon.
            let sent =
                process.and_then(|process| hub.send_question(server, &process, question).ok_or(NoAnswer::Moving));
            async move {
                match timeout(within, sent?).await {
                    Ok(Ok(answer)) => moving_if_not_here(answer),
                    Ok(Err(_)) | Err(_) => Err(NoAnswer::Lost),
                }
            }
            .into_actor(hub)
        }))
    }

    /// Sends a question to another process; `None` if that is this one.
    pub(in super::super) fn send_question(
        &mut self,
        server: ServerId,
        process: &str,
        question: RemoteQuestion,
    ) -> Option<oneshot::Receiver<RemoteAnswer>> {
        let SeveralNodes { remote, .. } = self.nodes.as_mut().filter(|nodes| nodes.remote.process != process)?;
        let id = u64::from_le_bytes(self.context.random.bytes());
        let (answer, answered) = oneshot::channel();
        remote.asked.retain(|_, asked| !asked.is_closed());
        remote.asked.insert(id, answer);
        self.mail(process, server, RemoteContent::Ask { id, question });
        Some(answered)
    }

    pub(in super::super) fn mail(&self, to: &str, server: ServerId, content: RemoteContent) {
        self.mail_frame(to, server, content, &[]);
    }

    /// Sends a message with the text of a frame.
    pub(in super::super) fn mail_frame(&self, to: &str, server: ServerId, content: RemoteContent, frame: &[u8]) {
        let Some(SeveralNodes { remote, .. }) = &self.nodes else { return };
        let message = RemoteMessage { server, from: remote.process.clone(), content };
        let id = u64::from_le_bytes(self.context.random.bytes());
        message.write(frame, id).into_iter().for_each(|part| remote.outbox.send(to, part));
    }

    /// Takes a question, an answer, and what is for the whole node; gives back any other message.
    pub(super) fn take_question(
        &mut self,
        server: &ServerId,
        from: &str,
        content: RemoteContent,
        ctx: &mut Context<Self>,
    ) -> Option<RemoteContent> {
        match content {
            RemoteContent::Answer { id, answer } => {
                if let Some(asked) = self.nodes.as_mut().and_then(|nodes| nodes.remote.asked.remove(&id)) {
                    // Its caller may wait no longer.
                    drop(asked.send(answer));
                }
                None
            }
            RemoteContent::Ask { id, question } => {
                let (server, to) = (server.clone(), from.to_owned());
                let answer = self.answer_to(&server, question, ctx);
                ctx.spawn(answer.into_actor(self).map(move |answer, hub, _| {
                    hub.mail(&to, server, RemoteContent::Answer { id, answer });
                }));
                None
            }
            RemoteContent::Sockets { of } => {
                self.presence.hear(from, of);
                None
            }
            content => Some(content),
        }
    }

    /// The answer of this node.
    fn answer_to(
        &mut self,
        server: &ServerId,
        question: RemoteQuestion,
        ctx: &mut Context<Self>,
    ) -> LocalBoxFuture<'static, RemoteAnswer> {
        match question {
            RemoteQuestion::Players { players } => {
                let answer = if self.take_players(players, ctx) { RemoteAnswer::Done } else { RemoteAnswer::NotHere };
                return Box::pin(async move { answer });
            }
            RemoteQuestion::Links { servers } => {
                let known = self.links_for_another(&servers);
                return Box::pin(async move { RemoteAnswer::Links(known.into_iter().collect()) });
            }
            RemoteQuestion::Online => {
                let online = self.users_online();
                return Box::pin(async move { RemoteAnswer::Online(online.into_iter().collect()) });
            }
            RemoteQuestion::PushSession { user } => {
                let is_here = self.has(&push_session(&user));
                let here = self.nodes.as_ref().filter(|_| is_here);
                let sessions = here.and_then(|nodes| nodes.remote.push_sessions.clone());
                return Box::pin(async move {
                    let Some(sessions) = sessions else { return RemoteAnswer::NotHere };
                    let session = sessions.send(ReadPushSession { user }).await;
                    session.ok().and_then(Result::ok).map_or(RemoteAnswer::NotHere, RemoteAnswer::PushSession)
                });
            }
            _ => {}
        }
        let connection = match question.is_command() {
            true => self.connection(server, false, ctx),
            false => self.connections.get(server).map(|known| known.address.clone()),
        };
        match connection {
            Some(connection) => Box::pin(answer_of(connection, server.clone(), question)),
            None => {
                let is_here = self.nodes.as_ref().is_some_and(|nodes| nodes.owned.fence(server).is_some());
                let answer = if is_here { answer_of_none(&question) } else { RemoteAnswer::NotHere };
                Box::pin(async move { answer })
            }
        }
    }

    /// Has the node of this server say a line for a channel.
    pub(in super::super) fn say_elsewhere(&mut self, server: ServerId, line: SayForChannel, ctx: &mut Context<Self>) {
        let SayForChannel { line, answer } = line;
        let answered = self.ask_elsewhere(server, RemoteQuestion::SayForChannel { line }, SAID_WITHIN);
        ctx.spawn(answered.map(|answered, _, _| {
            if let Ok(RemoteAnswer::SaidForChannel(Some(said))) = answered {
                // Its caller may wait no longer.
                let _ = answer.send(said);
            }
        }));
    }
}

/// A node without what is asked for had it a moment ago, or has it in a moment.
fn moving_if_not_here(answer: RemoteAnswer) -> NodeAnswer {
    match answer {
        RemoteAnswer::NotHere => Err(NoAnswer::Moving),
        answer => Ok(answer),
    }
}

/// The answer where the server is, without a game connection that knows anything.
fn answer_of_none(question: &RemoteQuestion) -> RemoteAnswer {
    match question {
        RemoteQuestion::SayForChannel { .. } => RemoteAnswer::SaidForChannel(None),
        RemoteQuestion::Devices => RemoteAnswer::Devices(Vec::new()),
        RemoteQuestion::Raid { .. } => RemoteAnswer::Raid(None),
        RemoteQuestion::Command { .. } => RemoteAnswer::Lines(None),
        RemoteQuestion::Budget => RemoteAnswer::Budget(false),
        // A game connection is started for a command, unless the service stops.
        _ => RemoteAnswer::NotHere,
    }
}

/// The answer of a game connection.
async fn answer_of(connection: Addr<GameConnection>, server: ServerId, question: RemoteQuestion) -> RemoteAnswer {
    match question {
        RemoteQuestion::Toggle { device, value, by } => {
            let toggle = DeviceToggle { device, wish: Wish { value, by } };
            RemoteAnswer::Toggled(connection.send(toggle).await.unwrap_or(Err(CommandError::Unavailable)))
        }
        RemoteQuestion::Say { text } => {
            let said = connection.send(SayInTeam { text }).await.unwrap_or(Err(ChatError::TimedOut));
            RemoteAnswer::Said(said.map(RemoteLine::from))
        }
        RemoteQuestion::SayForChannel { line } => {
            let (answer, said) = oneshot::channel();
            connection.do_send(SayForChannel { line, answer });
            RemoteAnswer::SaidForChannel(said.await.ok())
        }
        RemoteQuestion::Drill => RemoteAnswer::Drilled(connection.send(Drill).await.ok().flatten()),
        RemoteQuestion::Look { camera } => {
            let seen = connection.send(CaptureFrame { camera }).await.unwrap_or(Err(CameraError::Unavailable));
            RemoteAnswer::Seen(seen.map(|shot| Box::new(RemoteShot::from(&*shot))))
        }
        RemoteQuestion::Keep { incident, user, at } => {
            let kept = connection.send(KeepAcknowledgement { incident, user, at }).await;
            RemoteAnswer::Kept(kept.unwrap_or(Err(CommandError::Internal)).map(Box::new))
        }
        // A connection that has ended is not one that knows nothing: the next one answers.
        RemoteQuestion::Devices => match connection.send(ReadDevices { server }).await {
            Ok(known) => RemoteAnswer::Devices(RemoteDevice::of(known.unwrap_or_default())),
            Err(_) => RemoteAnswer::NotHere,
        },
        RemoteQuestion::Raid { incident } => match connection.send(FindRaid { server, incident }).await {
            Ok(found) => RemoteAnswer::Raid(found.ok().flatten().map(Box::new)),
            Err(_) => RemoteAnswer::NotHere,
        },
        RemoteQuestion::Command { command, texts } => {
            let lines = connection.send(AskServer { server, command, texts }).await;
            lines.map_or(RemoteAnswer::NotHere, RemoteAnswer::Lines)
        }
        RemoteQuestion::Budget => {
            let is_exhausted = connection.send(BudgetExhausted { server }).await;
            is_exhausted.map_or(RemoteAnswer::NotHere, RemoteAnswer::Budget)
        }
        // A node answers these.
        RemoteQuestion::Players { .. }
        | RemoteQuestion::Links { .. }
        | RemoteQuestion::Online
        | RemoteQuestion::PushSession { .. } => RemoteAnswer::Done,
    }
}
