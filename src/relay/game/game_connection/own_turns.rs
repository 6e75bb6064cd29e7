//! The own link of a game connection beside the seat at a mate's: it is made in its turn, and when it is needed.

use std::time::Duration;

use actix::prelude::*;

use super::{GameConnection, LinkDown, shared_reading::TakenSeat};
use crate::{
    domain::{backoff::jittered, freshness::DEVICES_EVERY, server_state::ConnectionState},
    relay::game::pool::link_owner::LinkPurpose,
};

/// The own link is made so often for the map alone.
const MAP_TURNS_APART: Duration = Duration::from_secs(600);

impl GameConnection {
    /// The own link rests from now on. One that waits for its next attempt makes that first, as its token may be refused
    /// by now.
    pub(super) fn begin_rest(&mut self, ctx: &mut Context<Self>) {
        match self.held.wake.is_paused() {
            true => self.held.purpose = LinkPurpose::Turn,
            false => self.end_task(ctx),
        }
    }

    pub(super) fn plan_turn(&self, ctx: &mut Context<Self>) -> SpawnHandle {
        let pause = jittered(DEVICES_EVERY.unwatched, self.context.random.byte());
        ctx.run_later(pause, |connection, ctx| {
            let turn = connection.plan_turn(ctx);
            if let Some(seat) = &mut connection.mates.seat {
                seat.turn = turn;
            }
            connection.take_turn(false, ctx);
        })
    }

    /// Makes the own link, if it rests: it proves that the token is still accepted, and asks what the player alone is
    /// answered. Where there is no room, one that is needed waits for a slot, and the seat goes on meanwhile.
    pub(super) fn take_turn(&mut self, is_needed: bool, ctx: &mut Context<Self>) {
        if self.mates.seat.is_none() {
            return;
        }
        self.mates.is_own_needed |= is_needed;
        if is_needed || !self.held.is_proven() {
            self.begin_other_link(LinkPurpose::Read, ctx);
        } else {
            self.begin_link(LinkPurpose::Turn, ctx);
        }
    }

    /// Makes the own link for this, also if it is under way for less: a turn waits for no slot and takes no mate's.
    fn begin_other_link(&mut self, purpose: LinkPurpose, ctx: &mut Context<Self>) {
        let is_for_less = match self.held.purpose {
            LinkPurpose::Turn => true,
            LinkPurpose::Read => matches!(purpose, LinkPurpose::Act(_)),
            LinkPurpose::Act(_) => false,
        };
        if is_for_less {
            self.end_task(ctx);
        }
        self.begin_link(purpose, ctx);
    }

    /// Makes the own link to do something over it, in the slot of the mate's if there is no other.
    pub(super) fn make_own_link(&mut self, ctx: &mut Context<Self>) {
        let purpose = match &self.mates.seat {
            Some(TakenSeat { slot: Some(slot), .. }) => LinkPurpose::Act(*slot),
            _ => LinkPurpose::Read,
        };
        self.begin_other_link(purpose, ctx);
    }

    /// The own link could not be made in its turn. That waits for no slot, but for some seconds if it was in its pause before the
    /// seat was taken. The seat stays, unless the token is refused.
    pub(super) fn turn_failed(&mut self, down: LinkDown, ctx: &mut Context<Self>) {
        if matches!(down.state, ConnectionState::Rejected | ConnectionState::NoCredentials) {
            self.leave_seat(ctx);
            self.disconnected(down, ctx);
            self.begin_link(LinkPurpose::Read, ctx);
        } else if self.held.is_unproven() {
            // The own link is tried again, and until it is up all is as it was last known.
            self.leave_seat(ctx);
            self.disconnected(down, ctx);
        } else if down.state != ConnectionState::Waiting || self.held.purpose == LinkPurpose::Turn {
            self.rest_on(ctx);
        }
    }

    /// There is no own link in its turn. One that reads is tried again.
    pub(super) fn rest_on(&mut self, ctx: &mut Context<Self>) {
        let is_tried_again = self.held.purpose == LinkPurpose::Read;
        if !is_tried_again {
            self.end_task(ctx);
        }
        let reading = self.held.reading.clone();
        self.held.rest(reading);
        if !is_tried_again && self.mates.is_own_needed {
            self.begin_link(LinkPurpose::Read, ctx);
        }
    }

    /// The map is another. The own link asks for it, unless the mate's asks for the same.
    pub(super) fn take_turn_for_map(&mut self, ctx: &mut Context<Self>) {
        let is_another = self.mates.seat.as_ref().is_some_and(|seat| !seat.shares_map);
        if is_another && self.mates.map_asked_at.is_none_or(|at| at.elapsed() >= MAP_TURNS_APART) {
            self.mates.map_asked_at = Some(tokio::time::Instant::now());
            self.take_turn(false, ctx);
        }
    }
}
