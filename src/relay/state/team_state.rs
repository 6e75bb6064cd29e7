//! The team's part of the live state: its members, its leader and the leader's notes, and its chat.

use std::sync::Arc;

use crate::{
    domain::{
        change::{Change, Section},
        detect::{EventWindow, MapContext, team::TeamDetector},
        map::Marker,
        server_state::{Keyed, Member},
        team_command::stillness::Stillness,
        time::Moment,
        world_event::WorldEvent,
    },
    game::{
        reading::{self, MapNoteSeen},
        wire::{AppMapMarkers, AppTeamInfo, AppTeamMessage},
    },
    relay::state::{game_update::TeamUpdate, handed_state::HandedTeam, outcome::TeamOutcome, team_chat::TeamChat},
};

/// See the module.
#[derive(Default)]
pub struct TeamState {
    /// SteamID64.
    leader: Option<String>,
    /// By SteamID64.
    members: Keyed<u64, Member>,
    /// Its players on the map, by the game's marker id.
    players: Keyed<u64, Marker>,
    chat: TeamChat,
    stillness: Stillness,
    detector: TeamDetector,
    /// The notes that the leader has placed in the game, by note id.
    leader_notes: Vec<(Arc<str>, MapNoteSeen)>,
    /// The last answer about the team.
    heard_at: Option<Moment>,
    /// The members were heard of since this link came up, or it reads for the same team for certain.
    heard_on_link: bool,
    /// The history of the chat that came before them: only they say if it is of another team.
    held_history: Option<Vec<AppTeamMessage>>,
    /// The last broadcast of this link about the team. What was asked for before is older.
    last_broadcast: u64,
}

/// One step of the team's part, for all who show it. Its leader, members and notes are shown as they then are.
#[derive(Default)]
pub struct TeamStep {
    /// Changes of the members and of the players on the map.
    pub changes: Vec<Change>,
    pub events: Vec<WorldEvent>,
    pub outcome: TeamOutcome,
}

impl TeamState {
    /// SteamID64 of the leader.
    pub fn leader(&self) -> Option<&str> {
        self.leader.as_deref()
    }

    /// The members, by SteamID64.
    pub fn members(&self) -> &Keyed<u64, Member> {
        &self.members
    }

    /// Its players on the map, by the game's marker id.
    pub fn players(&self) -> &Keyed<u64, Marker> {
        &self.players
    }

    /// The notes that the leader has placed in the game, by note id.
    pub fn leader_notes(&self) -> &[(Arc<str>, MapNoteSeen)] {
        &self.leader_notes
    }

    /// When the members were last heard of.
    pub fn heard_at(&self) -> Option<Moment> {
        self.heard_at
    }

    /// True if the link that reads has said who is in the team, which may have been another under the link before.
    pub fn is_heard(&self) -> bool {
        self.heard_on_link
    }

    /// The memory of it, for the node that has the server next.
    pub fn hand_over(&self) -> HandedTeam {
        let members = self.members.iter().map(|(id, member)| (*id, Member::clone(member))).collect();
        let (leader, chat) = (self.leader.clone(), self.chat.clone());
        HandedTeam { leader, members, chat, detector: self.detector.memory() }
    }

    /// Goes on with what another node knew, whose link was lost then.
    pub fn take_over(&mut self, handed: HandedTeam, lost_at: Moment, now: Moment, changes: &mut Vec<Change>) {
        let HandedTeam { leader, members, chat, detector } = handed;
        self.members.replace(Section::Members, members, changes);
        self.chat.take_over(chat);
        self.leader = leader;
        self.detector = TeamDetector::remembering(detector, lost_at, now);
    }

    /// The link was lost.
    pub fn link_lost(&mut self, now: Moment) {
        self.detector.link_lost(now);
        self.stillness.interrupt();
    }

    /// There is a new link, which counts its broadcasts from 1.
    pub fn link_up(&mut self, now: Moment) {
        self.detector.link_up(now);
        self.last_broadcast = 0;
        (self.heard_on_link, self.held_history) = (false, None);
    }

    /// A mate's link reads: each of the two players is in the newest list of the other.
    pub fn read_by_mate(&mut self) {
        self.heard_on_link = true;
    }

    /// Another link reads from now on, without a gap. It counts its broadcasts from 1.
    pub fn link_switched(&mut self) {
        self.last_broadcast = 0;
        self.chat.switched();
    }

    /// A new map, which shows no player yet.
    pub fn wipe(&mut self, changes: &mut Vec<Change>) {
        self.players.replace(Section::MapMarkers, [], changes);
        self.detector.wiped();
        self.leader_notes.clear();
    }

    /// True for members that were asked for before a broadcast about them: that says the same, and is not older.
    pub fn is_late(&self, update: &TeamUpdate) -> bool {
        matches!(update, TeamUpdate::Members(answer) if answer.asked_after < self.last_broadcast)
    }

    /// Applies an update that is not late.
    pub fn update(
        &mut self,
        update: TeamUpdate,
        around: &MapContext,
        now: Moment,
        window: &mut EventWindow,
    ) -> TeamStep {
        let mut step = TeamStep::default();
        match update {
            TeamUpdate::Members(answer) => self.update_members(answer.content, around, now, window, &mut step),
            TeamUpdate::Changed(number, team) => {
                self.last_broadcast = number;
                self.update_members(team, around, now, window, &mut step);
            }
            TeamUpdate::Chat(chat) if !self.heard_on_link => self.held_history = Some(chat.messages),
            TeamUpdate::Chat(chat) => step.outcome.chat = self.chat.history(chat.messages, now),
            TeamUpdate::Said(line) => step.outcome.chat.extend(self.chat.line(line, now)),
            TeamUpdate::Players(markers) => {
                let players = reading::markers(AppMapMarkers { markers }, around.map_size);
                self.players.replace(Section::MapMarkers, players, &mut step.changes);
            }
            TeamUpdate::SharedPlayers(players) => self.players.share(Section::MapMarkers, players, &mut step.changes),
        }
        step
    }

    /// A complete list of the members.
    fn update_members(
        &mut self,
        team: AppTeamInfo,
        around: &MapContext,
        now: Moment,
        window: &mut EventWindow,
        step: &mut TeamStep,
    ) {
        self.heard_at = Some(now);
        self.leader_notes = reading::notes(&team.leader_map_notes);
        let (leader, mut members) = reading::team(team, around.map_size);
        self.stillness.see(&mut members, now);
        if self.is_another(leader.as_deref(), &members) {
            self.chat.joined_another();
        }
        if let Some(lines) = self.held_history.take() {
            step.outcome.chat = self.chat.history(lines, now);
        }
        (self.leader, self.heard_on_link) = (leader, true);
        self.members.replace(Section::Members, members, &mut step.changes);
        let members = self.members.iter().map(|(id, member)| (*id, &**member));
        step.events = self.detector.answer(around, self.leader.as_deref(), members, now, window);
    }

    /// True if the list is of another team, which the paired player has joined since the last one.
    fn is_another(&self, leader: Option<&str>, members: &[(u64, Member)]) -> bool {
        let mut common = members.iter().filter(|(id, _)| self.members.get(id).is_some());
        let (player, others) = (common.next(), common.next());
        // One who was alone and leads was joined by others.
        let leads = player.is_some_and(|(id, _)| leader == Some(&id.to_string()) && self.leader.as_deref() == leader);
        others.is_none() && members.len() > 1 && !leads
    }

    /// When lines that were too many are to be reported.
    pub fn next_due(&self) -> Option<Moment> {
        self.chat.next_due()
    }

    /// Lines that were too many, as an event, once that is due.
    pub fn tick(&mut self, now: Moment) -> Option<WorldEvent> {
        self.chat.take_dropped(now).map(|lines| WorldEvent::chat_dropped(lines, now.stamp))
    }
}
