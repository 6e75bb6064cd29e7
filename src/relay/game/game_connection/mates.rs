//! A game connection among the mates of its player who use this service, too. One link reads for all of them: that of
//! the one whose link is up for longest. The others sit at it and let their own links rest, which they make again in
//! their turn, when something is to be done as their player, and when the seat ends. One whose own link waits, for a slot
//! or for its next attempt, sits there meanwhile.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use actix::prelude::*;
use futures_channel::mpsc;

use super::{
    GameConnection,
    latest_task::LatestTask,
    shared_reading::{NoSeat, TakenSeat},
    sitting_down::{SatDown, sit_down},
};
use crate::{
    domain::{
        device::{Device, DeviceKind, Reachable},
        team_command::election::server_of_link,
        time::Moment,
    },
    game::link::Answered,
    relay::{
        game::{
            pool::link_owner::LinkPurpose,
            seats::{NEWS, Seat, SeatNews},
            team_hosts::{HostLink, TakeSeat, TeamHost},
        },
        shared::own_link::LinkUsed,
        state::game_update::{GameUpdate, OwnUpdate, TeamUpdate, WorldUpdate},
    },
};

/// While no link reads, a mate's is looked for this often.
const SEAT_LOOKED_FOR: Duration = Duration::from_secs(1);

impl GameConnection {
    /// The own link is up: it reads from now on.
    pub(super) fn mates_link_up(&mut self, ctx: &mut Context<Self>) {
        // A seat that was asked for while there was no link would repeat what this one says from now on.
        self.ask_no_longer(ctx);
        self.end_leaving(ctx);
        // Until the own link has asked its devices, it does not hear them.
        self.mates.leaving = self.stand_up(ctx);
        if let (Some(link), Some(game_server)) = (self.held.acting(), &self.held.game_server) {
            self.mates.link_up(link.player(), server_of_link(game_server, link.peer()));
        }
    }

    /// The own link is gone or rests: it reads for no one.
    pub(super) fn mates_link_down(&mut self, ctx: &mut Context<Self>) {
        if self.mates.link.is_some() {
            if let Some(devices) = self.readable_devices() {
                self.mates.devices = Arc::new(devices);
            }
            // A device that keeps the own link up is no reason against a seat while there is none.
            self.mates.forget_refusal();
        }
        self.ask_no_longer(ctx);
        self.end_leaving(ctx);
        self.withdraw();
        self.mates.seats.close();
    }

    /// No seat is asked for any longer.
    pub(super) fn ask_no_longer(&mut self, ctx: &mut Context<Self>) {
        if let Some(asking) = self.mates.asking.take() {
            ctx.cancel_future(asking);
        }
    }

    fn end_leaving(&mut self, ctx: &mut Context<Self>) {
        if let Some(news) = self.mates.leaving.take() {
            ctx.cancel_future(news);
        }
    }

    /// No mate finds the own link.
    pub(super) fn withdraw(&mut self) {
        if let Some(link) = self.mates.link.take() {
            self.mates.hosts.withdraw(&link.at, &self.server);
        }
    }

    /// Passes an update of the own link on to those who sit at it, unless it is late.
    pub(super) fn pass_on(&mut self, update: &GameUpdate, ctx: &mut Context<Self>) {
        let is_late = matches!(update, GameUpdate::Team(update) if self.feed.live.is_late(update));
        if let Some(link) = self.mates.link.as_ref().filter(|_| !is_late)
            && self.mates.seats.pass_on(update, link.player)
        {
            self.publish_host(ctx);
        }
    }

    /// Everything was asked over the own link.
    pub(super) fn mates_resynced(&mut self, ctx: &mut Context<Self>) {
        if let Some(link) = &mut self.mates.link {
            link.is_resynced = true;
        }
        self.publish_host(ctx);
        self.find_seat(ctx);
    }

    pub(super) fn mates_devices_asked(&mut self, ctx: &mut Context<Self>) {
        self.end_leaving(ctx);
        self.mates.is_own_needed = false;
        if let Some(link) = &mut self.mates.link {
            link.are_devices_asked = true;
        }
        self.find_seat(ctx);
    }

    fn publish_host(&self, ctx: &mut Context<Self>) {
        let link = self.mates.link.as_ref().filter(|link| link.is_resynced);
        if let Some((link, paired)) = link.zip(self.held.game_server.clone()) {
            let (server, members) = (self.server.clone(), self.mates.seats.members().clone());
            let (number, player, seats) = (link.number, link.player, ctx.address().recipient());
            self.mates.hosts.publish(&link.at, TeamHost { number, server, player, paired, members, seats });
        }
    }

    /// Entity ids of the devices that have answered; none if one has not, and must be asked again.
    fn readable_devices(&self) -> Option<BTreeSet<u64>> {
        let devices = self.feed.live.state().devices.iter();
        let devices = devices.filter(|(_, device)| device.kind != DeviceKind::Camera);
        let id = |(id, device): (&Arc<str>, &Arc<Device>)| match device.reachable {
            Reachable::Ok => Some(id.parse().ok()),
            Reachable::Removed | Reachable::NoPrivilege => Some(None),
            Reachable::Pending | Reachable::NoResponse => None,
        };
        devices.map(id).collect::<Option<Vec<Option<u64>>>>().map(|ids| ids.into_iter().flatten().collect())
    }

    /// True if all devices that may be read are among these.
    fn covers(&self, devices: &BTreeSet<u64>) -> bool {
        self.feed.live.state().devices.iter().all(|(id, device)| {
            device.kind == DeviceKind::Camera
                || matches!(device.reachable, Reachable::Removed | Reachable::NoPrivilege)
                || id.parse().is_ok_and(|id| devices.contains(&id))
        })
    }

    fn may_rest(&self) -> bool {
        self.held.task.is_some() && self.mates.may_rest()
    }

    /// Asks for a seat at the link of a mate, if there is one that is up for longer and the own link may rest.
    pub(super) fn find_seat(&mut self, ctx: &mut Context<Self>) {
        if !self.may_rest() || self.mates.asking.is_some() {
            return;
        }
        let (Some(link), Some(accepted), Some(game_server), Some(devices)) =
            (&self.mates.link, self.held.acting(), &self.held.game_server, self.readable_devices())
        else {
            return;
        };
        let members = self.mates.seats.members();
        let Some(host) = self.mates.hosts.find(&link.at, link.number, link.player, members) else { return };
        let shares_map = host.paired == *game_server;
        if !shares_map && self.feed.live.wants_map() && self.mates.waits_for_map() {
            return;
        }
        // Mates who sit here go to that link first.
        if !self.mates.let_go() {
            return;
        }
        let (server, game_server) = (self.server.clone(), game_server.clone());
        let (news, reader) = mpsc::channel(NEWS);
        let request = TakeSeat { server, game_server, accepted, devices: Arc::new(devices), news };
        self.ask_for_seat(sit_down(host.seats, request, self.alarms(), reader, false), shares_map, ctx);
    }

    /// Others wait for the game server: all is as it was last known until a mate's link or the own one reads.
    pub(super) fn link_given_up(&mut self, ctx: &mut Context<Self>) {
        if self.mates.seat.is_some() {
            return self.rest_on(ctx);
        }
        self.mates_link_down(ctx);
        self.held.rest(None);
        self.held.purpose = LinkPurpose::Read;
        self.devices.cameras.link_changed();
        self.update(GameUpdate::Unread, ctx);
        self.look_for_seat(ctx);
    }

    /// Looks for a mate's link now and then, as long as no link reads.
    pub(super) fn look_for_seat(&mut self, ctx: &mut Context<Self>) {
        if self.mates.looking.is_none() && self.is_unread() && self.held.is_proven() {
            self.mates.looking = Some(ctx.run_later(SEAT_LOOKED_FOR, |connection, ctx| {
                connection.mates.looking = None;
                if connection.is_unread() {
                    connection.find_seat_without_link(ctx);
                }
                connection.look_for_seat(ctx);
            }));
        }
    }

    /// True if the own link is under way, and no other reads meanwhile.
    fn is_unread(&self) -> bool {
        self.held.task.is_some() && self.mates.seat.is_none() && self.held.acting().is_none()
    }

    /// Asks for a seat although there is no own link: that waits for a slot or for its next attempt, and the game server
    /// has accepted the player lately.
    fn find_seat_without_link(&mut self, ctx: &mut Context<Self>) {
        let (Some(accepted), Some(game_server), None) =
            (self.held.proof(), self.held.game_server.clone(), &self.mates.asking)
        else {
            return;
        };
        // A device that no link has asked would be heard by none.
        if !self.mates.may_ask() || !self.covers(&self.mates.devices) {
            return;
        }
        let at = server_of_link(&game_server, accepted.peer());
        let members = self.feed.live.state().members.iter().map(|(id, _)| *id).collect();
        let newest = self.mates.hosts.number();
        let Some(host) = self.mates.hosts.find(&at, newest, accepted.player(), &members) else { return };
        let (news, reader) = mpsc::channel(NEWS);
        let (server, devices) = (self.server.clone(), self.mates.devices.clone());
        let shares_map = host.paired == game_server;
        let request = TakeSeat { server, game_server, accepted, devices, news };
        self.ask_for_seat(sit_down(host.seats, request, self.alarms(), reader, true), shares_map, ctx);
    }

    fn ask_for_seat(
        &mut self,
        sat_down: impl Future<Output = Result<SatDown, NoSeat>> + 'static,
        shares_map: bool,
        ctx: &mut Context<Self>,
    ) {
        let asked_since = self.context.clock.moment();
        self.mates.asking = Some(ctx.spawn(sat_down.into_actor(self).map(move |sat_down, connection, ctx| {
            connection.mates.asking = None;
            match sat_down {
                Ok(sat_down) => connection.rest(sat_down, shares_map, asked_since, ctx),
                Err(reason) => connection.mates.refused(reason),
            }
        })));
    }

    /// The seat is taken, and the mate's link asked since then: the own link rests.
    fn rest(&mut self, sat_down: SatDown, shares_map: bool, asked_since: Moment, ctx: &mut Context<Self>) {
        let SatDown { request, link, missed, answers, overlap, news } = sat_down;
        let HostLink { reading, wake, slot, members, .. } = link;
        let may_sit = match missed {
            Some(_) => self.is_unread() && self.held.proof().is_some() && self.covers(&request.devices),
            // A device may have come meanwhile, or something is done over the link.
            None => self.may_rest() && self.readable_devices().as_ref() == Some(&*request.devices),
        };
        if !may_sit {
            return self.mates.refused(NoSeat::Refused);
        }
        self.begin_rest(ctx);
        self.mates_link_down(ctx);
        match missed {
            Some(_) => self.held.sit(reading),
            None => self.held.rest(Some(reading)),
        }
        self.devices.cameras.link_changed();
        let (news, turn) = (Self::add_stream(news, ctx), self.plan_turn(ctx));
        let (devices, player) = (request.devices, request.player);
        let (asked_for, was_unread) = (devices.clone(), missed.is_some());
        let (alarms, watched, looks, _counted) = (None, None, LatestTask::default(), self.mates.hosts.seat());
        let seat = TakenSeat { news, turn, devices, player, shares_map, wake, slot, alarms, watched, looks, _counted };
        self.mates.seat = Some(seat);
        self.mates.carry_alarms(self.held.wake.has_alarms());
        self.mates.watch(self.feed.publisher.has_subscribers());
        log::debug!(server = self.server.as_str(); "a mate's link reads for this one");
        match missed {
            Some((info, mut chat)) => {
                // All devices are covered.
                self.mates.is_own_needed = false;
                self.update(GameUpdate::Connected(info), ctx);
                // The mate may have changed the team a moment ago.
                chat.messages.retain(|line| members.contains(&line.steam_id));
                self.update(GameUpdate::TeamByMate(TeamUpdate::Chat(chat)), ctx);
                self.commands.connected(self.context.clock.moment());
                self.commands_resynced(ctx);
                if self.mates.is_awaited() {
                    self.make_own_link(ctx);
                }
            }
            None => _ = self.update(GameUpdate::LinkSwitched { asked_since }, ctx),
        }
        self.hear_overlap(overlap, ctx);
        let mut unasked = BTreeSet::clone(&asked_for);
        for (device, Answered { asked_after, content }) in answers {
            unasked.remove(&device);
            let answer = Ok(Answered { asked_after, content: Some(content) });
            self.update(OwnUpdate::Device { device: device.to_string().into(), answer }, ctx);
        }
        if was_unread {
            self.look_from_seat(unasked, ctx);
        }
    }

    /// Takes the news of the moments in which both links were heard: the own one has said the same, but perhaps not all of
    /// it yet.
    fn hear_overlap(&mut self, overlap: Vec<Arc<SeatNews>>, ctx: &mut Context<Self>) {
        let last = overlap.iter().rposition(|news| matches!(**news, SeatNews::TeamChanged(..)));
        for (place, news) in overlap.into_iter().enumerate() {
            let is_news =
                matches!(*news, SeatNews::Said(_) | SeatNews::Device(..) | SeatNews::Missed | SeatNews::Waited(_));
            if is_news || Some(place) == last {
                self.hear_seat(news, ctx);
            }
        }
    }

    /// Gives the seat up.
    pub(super) fn leave_seat(&mut self, ctx: &mut Context<Self>) {
        self.end_leaving(ctx);
        if let Some(news) = self.stand_up(ctx) {
            ctx.cancel_future(news);
        }
    }

    /// The seat ends, but for its news, which its caller keeps or ends.
    fn stand_up(&mut self, ctx: &mut Context<Self>) -> Option<SpawnHandle> {
        let TakenSeat { news, turn, looks, .. } = self.mates.seat.take()?;
        ctx.cancel_future(turn);
        looks.end(ctx);
        Some(news)
    }

    /// The seat has ended: the own link reads as soon as it is up, and until then all is as it was last known.
    fn seat_lost(&mut self, ctx: &mut Context<Self>) {
        if self.mates.seat.is_none() {
            return;
        }
        self.leave_seat(ctx);
        self.update(GameUpdate::Unread, ctx);
        self.end_pause(ctx);
        if self.held.task.is_some() {
            // The own link is under way, perhaps in the slot of this one.
            self.held.set_reading(None);
            return self.look_for_seat(ctx);
        }
        // First, while the seat's link still counts as the one that reads.
        self.begin_link(LinkPurpose::Read, ctx);
        self.held.rest(None);
        self.look_for_seat(ctx);
    }

    fn hear_seat(&mut self, news: Arc<SeatNews>, ctx: &mut Context<Self>) {
        let Some(player) = self.mates.seat.as_ref().map(|seat| seat.player) else {
            return self.hear_leaving(&news, ctx);
        };
        let update: GameUpdate = match Arc::unwrap_or_clone(news) {
            SeatNews::Info(info) => WorldUpdate::Info(info).into(),
            SeatNews::Time(time) => WorldUpdate::Time(time).into(),
            SeatNews::Markers { all, players } => GameUpdate::MarkersByMate { all, players },
            SeatNews::Members(answer) => GameUpdate::TeamByMate(TeamUpdate::Members(answer)),
            SeatNews::TeamChanged(number, team) => GameUpdate::TeamByMate(TeamUpdate::Changed(number, team)),
            SeatNews::Said(line) => GameUpdate::TeamByMate(TeamUpdate::Said(line)),
            SeatNews::Waited(since) => GameUpdate::Waited(since),
            SeatNews::Device(number, changed) => GameUpdate::device_changed(number, changed),
            SeatNews::Missed => {
                // A game server that sends rubbish does not make the own link come and go.
                self.mates.keep_own();
                self.take_turn(true, ctx);
                return self.look_again_from_seat(ctx);
            }
            SeatNews::Moves => {
                // The mate's link waits for this one, which may be in a pause of minutes.
                self.end_pause(ctx);
                return self.take_turn(false, ctx);
            }
        };
        let is_listed = match &update {
            GameUpdate::TeamByMate(
                TeamUpdate::Members(Answered { content: team, .. }) | TeamUpdate::Changed(_, team),
            ) => team.members.iter().any(|member| member.steam_id == player),
            _ => true,
        };
        if !is_listed {
            return self.seat_lost(ctx);
        }
        self.held.heard.note(self.context.clock.now());
        self.update(update, ctx);
        if self.feed.live.wants_map() && !self.take_shared_map(ctx) {
            self.take_turn_for_map(ctx);
        }
        self.place_devices(ctx);
        self.keep_alive(false);
    }

    /// The own link is up, and has not asked every device yet. Its broadcasts are counted apart from those of the mate's.
    fn hear_leaving(&mut self, news: &SeatNews, ctx: &mut Context<Self>) {
        if let (Some(_), SeatNews::Device(_, changed)) = (&self.mates.leaving, news) {
            self.update(GameUpdate::device_changed(0, changed.clone()), ctx);
        }
    }
}

impl StreamHandler<Arc<SeatNews>> for GameConnection {
    fn handle(&mut self, news: Arc<SeatNews>, ctx: &mut Self::Context) {
        self.hear_seat(news, ctx);
    }

    fn finished(&mut self, ctx: &mut Self::Context) {
        self.seat_lost(ctx);
    }
}

impl Handler<TakeSeat> for GameConnection {
    type Result = MessageResult<TakeSeat>;

    /// Only a mate sits here, whose token the game server has accepted where this link ends.
    fn handle(&mut self, request: TakeSeat, ctx: &mut Self::Context) -> Self::Result {
        let TakeSeat { server, game_server, accepted, devices, news } = request;
        let at = server_of_link(&game_server, accepted.peer());
        let link = self.mates.link.as_ref().filter(|link| link.is_resynced && link.at == at);
        let reading = self.held.reading.clone().filter(|_| link.is_some() && server != self.server);
        let seat = Seat { server, player: accepted.player(), devices, news };
        let wake = self.held.wake.clone();
        let taken = reading.filter(|_| self.mates.seats.take(seat));
        if taken.is_some() {
            // One who sits here asks for no map, and that of a link that is gone may have taken the place of this one's.
            self.share_map(ctx);
        }
        let slot = self.held.slot;
        let (members, waited) = (self.mates.seats.members().clone(), self.mates.seats.waited());
        MessageResult(taken.map(|reading| HostLink { reading, wake, slot, members, waited }))
    }
}

impl Handler<LinkUsed> for GameConnection {
    type Result = ();

    fn handle(&mut self, _: LinkUsed, ctx: &mut Self::Context) {
        self.mates.used_at = Some(tokio::time::Instant::now());
        if self.held.is_resting() {
            self.held.wake.retry.notify_one();
            self.make_own_link(ctx);
        }
    }
}
