//! The live state of one paired server, and what each answer of the game server makes of it. Pure: an update in, what
//! follows from it out. The game server's, the team's and the paired server's own part write one document.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use chrono::TimeDelta;

use crate::{
    domain::{
        change::{Change, Section},
        detect::{EventWindow, wipe::World},
        device::{Device, DeviceKind, DeviceReport},
        freshness::Freshness,
        grid::{self, GridStyle},
        ids::UserId,
        incident::Incident,
        monument::Monument,
        server_state::{ConnectionState, ServerState},
        shop::MarketGround,
        team_command::daylight::DayLearner,
        time::{Moment, Timestamp},
        world_event::EventKind,
        world_map::MonumentMap,
    },
    game::wire::{AppBroadcast, AppInfo},
    relay::state::{
        game_update::{GameUpdate, OwnUpdate, TeamUpdate, WorldUpdate},
        handed_state::HandedState,
        outcome::Outcome,
        own_state::OwnState,
        state_step::StateStep,
        team_state::{TeamState, TeamStep},
        world_facts::WorldFacts,
        world_state::{WorldState, WorldStep},
    },
};

/// See the module.
pub struct LiveState {
    document: ServerState,
    window: EventWindow,
    parts: StateParts,
}

/// The parts of a live state, which one update may concern together.
#[derive(Default)]
struct StateParts {
    world: WorldState,
    team: TeamState,
    own: OwnState,
    /// The memory of the node that had the server before, until a link is up here.
    handed: Option<Box<HandedState>>,
}

impl LiveState {
    /// Nothing known.
    pub fn new(now: Timestamp) -> Self {
        Self { document: ServerState::new(now), window: EventWindow::default(), parts: StateParts::default() }
    }

    /// The state that clients see.
    pub fn state(&self) -> &ServerState {
        &self.document
    }

    /// The monuments of the world; `None` until its map is known.
    pub fn monuments(&self) -> Option<&[Monument]> {
        self.parts.world.facts().known_monuments()
    }

    /// The map of the present world, to be shared; `None` until it is known.
    pub fn map(&self) -> Option<&Arc<MonumentMap>> {
        self.parts.world.facts().map.as_ref().filter(|_| !self.wants_map())
    }

    /// True if the map must be asked for.
    pub fn wants_map(&self) -> bool {
        self.parts.world.wants_map()
    }

    /// When the game server last said how many players there are.
    pub fn info_at(&self) -> Option<Timestamp> {
        self.parts.world.facts().info_at.map(|heard| heard.stamp)
    }

    /// True if a link was up here.
    pub fn has_been_up(&self) -> bool {
        self.parts.own.has_been_up()
    }

    /// When the link was last known to be up.
    pub fn alive_at(&self, now: Moment) -> Option<Timestamp> {
        self.parts.own.alive_at(now)
    }

    /// The memory of it, for the node that has the server next; `None` if no link was up since its process started.
    pub fn hand_over(&self, now: Moment) -> Option<HandedState> {
        let StateParts { world, team, own, handed } = &self.parts;
        if !own.has_been_up() {
            return handed.as_deref().cloned();
        }
        let (lost_at, map, world) = (own.alive_at(now)?, world.hand_over(), world.facts().world.clone());
        Some(HandedState { lost_at, world, map, team: team.hand_over(), alarms: own.alarms().clone() })
    }

    /// The world, as far as it is known.
    pub fn world(&self) -> Option<&World> {
        self.parts.world.facts().world.as_ref()
    }

    /// Where shops are the map's own.
    pub fn ground(&self) -> MarketGround {
        MarketGround::of(&self.parts.world.facts().around())
    }

    /// The game's clock, and what is known of its speeds.
    pub fn day(&self) -> &DayLearner {
        &self.parts.world.facts().day
    }

    /// The label of the grid cell of this place.
    pub fn grid_of(&self, x: f64, y: f64) -> String {
        grid::label(GridStyle::InGame, self.parts.world.facts().map_size, x, y)
    }

    /// Where this member of the team is alive, if an answer not older than this says so.
    pub fn member_place(&self, player: u64, now: Moment, age: TimeDelta) -> Option<(f64, f64)> {
        self.parts.team.heard_at().filter(|heard| now - *heard < age)?;
        let member = self.document.members.get(&player).filter(|member| member.alive)?;
        member.x.zip(member.y)
    }

    /// True once the link that reads has said who is in the team.
    pub fn knows_team(&self) -> bool {
        self.parts.team.is_heard()
    }

    /// True for members that were asked for before a broadcast about them, and so are older.
    pub fn is_late(&self, update: &TeamUpdate) -> bool {
        self.parts.team.is_late(update)
    }

    /// The devices, and when each was last heard of.
    pub fn devices(&self) -> HashMap<Arc<str>, DeviceReport> {
        self.parts.own.device_reports(&self.document)
    }

    /// The paired alarms of this name.
    pub fn alarms_named(&self, name: &str) -> BTreeSet<String> {
        let is_named = |device: &Device| device.name == name || device.label.as_deref() == Some(name);
        let alarms = self.document.devices.iter().filter(|(_, device)| device.kind == DeviceKind::Alarm);
        alarms.filter(|(_, device)| is_named(device)).map(|(id, _)| id.to_string()).collect()
    }

    /// A user toggles a switch: what changes is by that user.
    pub fn toggled(&mut self, id: &str, value: Option<bool>, by: UserId, now: Moment) {
        self.parts.own.toggled(id, value, by, now);
    }

    /// Applies an update.
    pub fn update(&mut self, update: impl Into<GameUpdate>, now: Moment) -> Outcome {
        self.step(now, |parts, step| {
            parts.apply(update.into(), step);
            parts.follow_events(step);
            // New stale sections are for the tick; those that were stale may be fresh again.
            if !step.document.server.stale.is_empty() {
                parts.judge_freshness(step);
            }
        })
    }

    /// A user begins to watch, or the last one stops: sections that are asked for more often are stale sooner.
    pub fn watch(&mut self, is_watched: bool, now: Moment) {
        self.parts.own.watch(is_watched, now);
    }

    /// When something comes due, if no answer comes before.
    pub fn next_due(&self, now: Moment) -> Option<Moment> {
        let Self { document, parts, .. } = self;
        let timers = [
            parts.world.next_due(),
            parts.own.devices_next_due(now),
            parts.team.next_due(),
            parts.freshness().next_due(now),
            parts.own.notes_due(document, now),
        ];
        timers.into_iter().flatten().min()
    }

    /// Does all that comes due without an answer: timers of detectors, notes that expire, sections that become stale.
    /// Call it when something does.
    pub fn tick(&mut self, now: Moment) -> Outcome {
        self.step(now, |parts, step| {
            step.outcome.events.extend(parts.world.tick(step.now, step.window));
            step.outcome.events.extend(parts.team.tick(step.now));
            parts.own.devices_due(&parts.world.facts().around(), step);
            parts.follow_events(step);
            parts.own.expire_notes(step);
            parts.judge_freshness(step);
        })
    }

    /// Shows a raid incident as it is now; none: no longer.
    pub fn show_incident(&mut self, id: &str, incident: Option<&Incident>, changes: &mut Vec<Change>) {
        self.document.raids.put(Section::Raids, id.into(), incident.cloned(), changes);
    }

    fn step(&mut self, now: Moment, make: impl FnOnce(&mut StateParts, &mut StateStep)) -> Outcome {
        let Self { document, window, parts } = self;
        let mut outcome = Outcome::default();
        make(parts, &mut StateStep { document, window, outcome: &mut outcome, now });
        outcome
    }
}

impl StateParts {
    fn apply(&mut self, update: GameUpdate, step: &mut StateStep) {
        let Self { world, team, own, handed } = self;
        match update {
            GameUpdate::StoredWorld { world: stored, monuments, alive_until, reports, speeds } => {
                world.remember_speeds(speeds);
                world.remember(stored, monuments);
                if own.remember_alive(alive_until) {
                    self.update_world(WorldUpdate::Reports(reports), step);
                }
            }
            GameUpdate::HandedOver(state) => *handed = Some(state).filter(|_| !own.has_been_up()),
            GameUpdate::Connected(info) => self.connect(info, step),
            GameUpdate::Disconnected { state, reason, next_attempt_at } => {
                self.link_lost(step.now);
                self.own.show_connection(state, reason, next_attempt_at, step);
            }
            GameUpdate::Unread => self.link_lost(step.now),
            GameUpdate::Waited(since) => own.broadcasts_waited(since),
            GameUpdate::Broadcast(number, broadcast) => self.update_by_broadcast(number, *broadcast, step),
            GameUpdate::World(update) => self.update_world(update, step),
            GameUpdate::Team(mut update) => {
                if !team.is_late(&update)
                    && let Some(placed) = update.take_own_notes()
                {
                    own.update_placed_notes(&placed);
                }
                self.update_team(update, step);
            }
            GameUpdate::TeamByMate(update) => {
                team.read_by_mate();
                self.update_team(update, step);
            }
            GameUpdate::MarkersByMate { all, players } => {
                self.update_world(WorldUpdate::SharedMarkers(all), step);
                self.update_team(TeamUpdate::SharedPlayers(players), step);
            }
            GameUpdate::LinkSwitched { asked_since } => {
                team.link_switched();
                own.link_switched(asked_since);
            }
            GameUpdate::Own(update) => self.update_own(update, step),
        }
    }

    fn update_world(&mut self, mut update: WorldUpdate, step: &mut StateStep) {
        let Self { world, team, own, .. } = self;
        let players = update.take_players();
        let WorldStep { changes, events, outcome, is_resized, is_wiped } = world.update(update, step.now, step.window);
        let facts = world.facts();
        step.document.map_markers = facts.markers.clone();
        step.outcome.changes.extend(changes);
        step.edit_server(|server| server.show_world(&facts.head));
        if is_resized {
            own.relabel(&facts.around(), step);
        }
        if is_wiped {
            team.wipe(&mut step.outcome.changes);
            step.document.player_markers = team.players().clone();
            own.wipe(step);
        }
        step.outcome.events.extend(events);
        step.outcome.world = outcome;
        if let Some(players) = players {
            self.update_team(TeamUpdate::Players(players), step);
        }
    }

    fn update_team(&mut self, update: TeamUpdate, step: &mut StateStep) {
        let Self { world, team, own, .. } = self;
        if team.is_late(&update) {
            return;
        }
        let (around, has_members) = (world.facts().around(), update.has_members());
        let TeamStep { changes, events, outcome } = team.update(update, &around, step.now, step.window);
        if has_members {
            own.show_game_notes(team.leader_notes(), &around, step);
            step.document.members = team.members().clone();
            step.edit_team(|head| head.leader_id = team.leader().map(str::to_owned));
        }
        step.document.player_markers = team.players().clone();
        step.outcome.changes.extend(changes);
        step.outcome.events.extend(events);
        step.outcome.team.chat.extend(outcome.chat);
    }

    fn update_own(&mut self, update: OwnUpdate, step: &mut StateStep) {
        let Self { world, own, .. } = self;
        let facts = world.facts();
        let around = facts.around();
        match update {
            OwnUpdate::Devices(known) => own.update_devices(known, &around, step),
            OwnUpdate::Notes(notes) => own.update_notes(notes, &around, facts.wiped_at, step),
            OwnUpdate::NoteDeleted(id) => own.delete_note(id, step),
            OwnUpdate::Device { device, answer } => own.update_device(device, answer, &around, step),
            OwnUpdate::Camera { device, reachable, frame_at } => own.camera_seen(device, reachable, frame_at, step),
            OwnUpdate::Timers(timers) => own.update_timers(timers, step),
            OwnUpdate::TurnBacks(backs) => own.show_turn_backs(backs, step),
            OwnUpdate::ChatNotice(notice) => own.show_chat_notice(notice, step),
        }
    }

    fn update_by_broadcast(&mut self, number: u64, broadcast: AppBroadcast, step: &mut StateStep) {
        if let Some(changed) = broadcast.entity_changed {
            self.own.device_changed(changed, number, &self.world.facts().around(), step);
        }
        if let Some(changed) = broadcast.team_changed {
            self.apply(TeamUpdate::Changed(number, changed.team_info).into(), step);
        }
        if let Some(said) = broadcast.team_message {
            self.update_team(TeamUpdate::Said(said.message), step);
        }
    }

    fn link_lost(&mut self, now: Moment) {
        if self.own.link_lost(now) {
            self.world.link_lost(now);
            self.team.link_lost(now);
        }
    }

    /// Goes on with what another node knew, as if its link had been lost here.
    fn take_over(&mut self, handed: HandedState, step: &mut StateStep) {
        let (now, HandedState { lost_at, world, map, team, alarms }) = (step.now, handed);
        let lost_at = now.at(lost_at.min(now.stamp));
        self.world.take_over(world, map.as_deref(), lost_at, now);
        self.own.take_over(alarms, lost_at, now);
        self.team.take_over(team, lost_at, now, &mut step.outcome.changes);
        step.document.members = self.team.members().clone();
        let leader = self.team.leader();
        step.edit_team(|head| head.leader_id = leader.map(str::to_owned));
    }

    fn connect(&mut self, info: AppInfo, step: &mut StateStep) {
        if let Some(handed) = self.handed.take() {
            self.take_over(*handed, step);
        }
        if step.document.server.connection == ConnectionState::Connected {
            self.team.link_switched();
        }
        self.world.link_up(step.now);
        self.team.link_up(step.now);
        self.own.link_up(step.now);
        self.update_world(WorldUpdate::Info(info), step);
        self.own.show_connection(ConnectionState::Connected, None, None, step);
        self.own.end_gap(step);
    }

    /// Deaths are noted. What changes within shops is left out of the events: it concerns those who watch an item, not
    /// everybody.
    fn follow_events(&mut self, step: &mut StateStep) {
        let is_for_all = |kind: EventKind, action| kind != EventKind::Shop || matches!(action, "opened" | "removed");
        step.outcome.events.retain(|event| is_for_all(event.kind, event.action));
        self.own.note_deaths(step);
        self.own.report_facts(step);
    }

    fn freshness(&self) -> Freshness {
        let WorldFacts { info_at: info, time_at: time, markers_at: markers, .. } = **self.world.facts();
        Freshness {
            info,
            time,
            team: self.team.heard_at(),
            markers,
            devices: self.own.devices_heard_at(),
            watched_since: self.own.watched_since(),
        }
    }

    fn judge_freshness(&self, step: &mut StateStep) {
        let stale = self.freshness().stale(step.now);
        if stale != step.document.server.stale {
            step.edit_server(|server| server.stale = stale);
        }
    }
}

#[cfg(test)]
mod tests;
