//! Reports of the own link at a game connection: it came up or ended, and the game server has said something over it.

use actix::prelude::*;

use super::{ConnectionEvent, GameConnection, LinkDown};
use crate::{
    game::map_picture,
    relay::{
        game::pool::link_report::{LinkReport, ReportOfLink},
        state::game_update::{GameUpdate, WorldUpdate},
    },
};

impl Handler<ReportOfLink> for GameConnection {
    type Result = bool;

    fn handle(&mut self, ReportOfLink { link, report }: ReportOfLink, ctx: &mut Self::Context) -> bool {
        let is_fact = matches!(report, LinkReport::Update(_) | LinkReport::Map { .. });
        if link != self.held.links && !is_fact {
            return false;
        }
        match report {
            LinkReport::Up { reading, acting, credentials, slot, game_server, info } => {
                self.held.heard.note(self.context.clock.now());
                self.held.link_up(reading, acting, credentials, slot);
                self.join_market(&game_server, ctx);
                self.held.game_server = Some(game_server);
                self.mates_link_up(ctx);
                self.devices.cameras.link_changed();
                log::info!(server = self.server.as_str(); "connected to the game server");
                let wanted = self.update(GameUpdate::Connected(info), ctx);
                self.share_map(ctx);
                self.commands.connected(self.context.clock.moment());
                self.keep_alive(false);
                wanted
            }
            LinkReport::Resynced => {
                self.commands_resynced(ctx);
                self.mates_resynced(ctx);
                false
            }
            LinkReport::DevicesAsked => {
                self.mates_devices_asked(ctx);
                false
            }
            LinkReport::Missed => {
                self.mates.seats.missed();
                false
            }
            LinkReport::GivenUp => {
                self.link_given_up(ctx);
                false
            }
            LinkReport::Down { state, reason, next_attempt_at } => {
                let down = LinkDown { state, reason: Some(reason), next_attempt_at: Some(next_attempt_at) };
                match self.mates.seat.is_some() {
                    true => self.turn_failed(down, ctx),
                    false => self.disconnected(down, ctx),
                }
                false
            }
            // A mate's link reads until the own one is up.
            LinkReport::Update(update) if self.mates.seat.is_some() && !update.is_stored() => false,
            LinkReport::Update(update) => self.apply_answer(update, ctx),
            LinkReport::MapTurn => self.feed.live.wants_map() && !self.take_shared_map(ctx),
            LinkReport::Map { map, address, port, turn } => {
                let drawing = map_picture::read(&map);
                let wanted = self.update(WorldUpdate::Map(map), ctx);
                self.store_map(drawing, address, port, turn);
                self.share_map(ctx);
                wanted
            }
            LinkReport::ServerGone => {
                self.hub.do_send(ConnectionEvent::ServerGone { server: self.server.clone() });
                false
            }
        }
    }
}

impl GameConnection {
    /// The game server has said this over the own link. True if the map must be asked for.
    fn apply_answer(&mut self, mut update: GameUpdate, ctx: &mut Context<Self>) -> bool {
        self.held.heard.note(self.context.clock.now());
        self.devices.cameras.take_frame(&mut update);
        self.pass_on(&update, ctx);
        let has_members = matches!(&update, GameUpdate::Team(update) if update.has_members());
        let wanted = self.update(update, ctx);
        self.place_devices(ctx);
        self.keep_alive(false);
        if has_members {
            self.find_seat(ctx);
        }
        wanted
    }
}
