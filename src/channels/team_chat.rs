//! Alarms as lines in the team's chat: a channel without a target, said over the link of the paired server that they are
//! about, through the queue of its team.

use chrono::TimeDelta;
use futures_util::future::join_all;
use tokio::{select, sync::oneshot};

use crate::{
    channels::sender::Channels,
    clients::channels::{ChannelFailure, TakenMessage},
    db::{
        engine::{error::DbError, pool::Db},
        paired_servers,
    },
    domain::{
        channels::{
            alarm_notice::{AlarmNotice, NoticeEvent},
            user_channel::ChannelFault,
        },
        ids::{ServerId, UserId},
    },
    relay::hub::{ChannelLine, SayForChannel, ToConnection},
};

/// For so long a line is waited for: twenty seconds for its turn, and then for the game server.
const SAID_WITHIN: TimeDelta = TimeDelta::seconds(30);

impl Channels {
    /// Says a message in the team of the server that it is about; one that is about none, in the teams of all servers that
    /// the user has paired, and it is taken if one link says it.
    pub(super) async fn say_in_team(
        &self,
        user: &UserId,
        notice: &AlarmNotice,
    ) -> Result<TakenMessage, ChannelFailure> {
        let servers = match &*notice.server_id {
            "" => self.paired_by(user).await.map_err(|_| ChannelFault::Unreadable)?,
            server => vec![ServerId::from(server)],
        };
        let said = join_all(servers.into_iter().map(|server| self.say_at(server, line(notice)))).await;
        let best = said.into_iter().max_by_key(Result::is_ok).unwrap_or(Err(ChannelFault::NoLink));
        best.map(|()| TakenMessage { status: None, receipt: None }).map_err(ChannelFailure::from)
    }

    async fn paired_by(&self, user: &UserId) -> Result<Vec<ServerId>, DbError> {
        let user = user.clone();
        let servers = self.pool.read(move |db: &mut Db| paired_servers::list_for(db, &user)).await?;
        Ok(servers.into_iter().map(|server| server.id).collect())
    }

    async fn say_at(&self, server: ServerId, line: ChannelLine) -> Result<(), ChannelFault> {
        let way = self.team_chat.as_ref().ok_or(ChannelFault::NoLink)?;
        let (answer, said) = oneshot::channel();
        let until = self.clock.moment() + SAID_WITHIN;
        way.do_send(ToConnection { server, message: SayForChannel { line, answer } });
        select! {
            said = said => said.unwrap_or(Err(ChannelFault::NoLink)),
            () = self.clock.reach(until) => Err(ChannelFault::Unavailable),
        }
    }
}

fn line(notice: &AlarmNotice) -> ChannelLine {
    match notice.event {
        NoticeEvent::Event => ChannelLine::Event(notice.alarm_name.clone()),
        _ => ChannelLine::Alarm { name: notice.alarm_name.clone(), grid: notice.grid.clone(), drill: notice.drill },
    }
}
