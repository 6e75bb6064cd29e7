//! The team's part of the live state: its members, its leader and the leader's notes, and its chat.

use std::sync::Arc;

use crate::{
    domain::{
        change::Section,
        detect::{MapContext, team::TeamDetector},
        team_command::stillness::Stillness,
        time::Moment,
        world_event::WorldEvent,
    },
    game::{
        link::Answered,
        reading::{self, MapNoteSeen},
        wire::{AppTeamChat, AppTeamInfo, AppTeamMessage, app_team_info},
    },
    relay::state::{state_step::StateStep, team_chat::TeamChat},
};

/// See the module.
#[derive(Default)]
pub struct TeamState {
    chat: TeamChat,
    stillness: Stillness,
    detector: TeamDetector,
    /// The notes that the leader has placed in the game, by note id.
    leader_notes: Vec<(Arc<str>, MapNoteSeen)>,
    /// The last answer about the team.
    heard_at: Option<Moment>,
    /// The last broadcast of this link about the team. What was asked for before is older.
    last_broadcast: u64,
}

impl TeamState {
    /// When the members were last heard of.
    pub fn heard_at(&self) -> Option<Moment> {
        self.heard_at
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
    }

    /// A new map.
    pub fn wipe(&mut self) {
        self.detector.wiped();
        self.leader_notes.clear();
    }

    /// The members in an answer, unless a broadcast came since it was asked for: that says the same, and is not older.
    pub fn unless_late(&self, answer: Answered<AppTeamInfo>) -> Option<AppTeamInfo> {
        (answer.asked_after >= self.last_broadcast).then_some(answer.content)
    }

    /// The broadcast of this number is about the team.
    pub fn note_broadcast(&mut self, number: u64) {
        self.last_broadcast = number;
    }

    /// The notes that the leader has placed in the game, all of them.
    pub fn update_notes(&mut self, placed: &[app_team_info::Note]) {
        self.leader_notes = reading::notes(placed);
    }

    /// The notes that the leader has placed in the game, by note id.
    pub fn leader_notes(&self) -> &[(Arc<str>, MapNoteSeen)] {
        &self.leader_notes
    }

    /// A complete list of the members.
    pub fn update_members(&mut self, team: AppTeamInfo, around: &MapContext, step: &mut StateStep) {
        self.heard_at = Some(step.now);
        let (leader, mut members) = reading::team(team, around.map_size);
        self.stillness.see(&mut members, step.now);
        step.edit_team(|head| head.leader_id = leader);
        let StateStep { document, window, outcome, now } = step;
        document.members.replace(Section::Members, members, &mut outcome.changes);
        let members = document.members.iter().map(|(id, member)| (*id, &**member));
        let leader = document.team.leader_id.as_deref();
        outcome.events.extend(self.detector.answer(around, leader, members, *now, window));
    }

    /// The history of the team's chat.
    pub fn update_chat(&mut self, chat: AppTeamChat, step: &mut StateStep) {
        step.outcome.team.chat = self.chat.history(chat.messages, step.now);
    }

    /// A line of the team's chat that was just said.
    pub fn hear(&mut self, line: AppTeamMessage, step: &mut StateStep) {
        step.outcome.team.chat.extend(self.chat.line(line, step.now));
    }

    /// When lines that were too many are to be reported.
    pub fn next_due(&self) -> Option<Moment> {
        self.chat.next_due()
    }

    /// Reports lines that were too many.
    pub fn tick(&mut self, step: &mut StateStep) {
        let dropped = self.chat.take_dropped(step.now);
        step.outcome.events.extend(dropped.map(|lines| WorldEvent::chat_dropped(lines, step.now.stamp)));
    }
}
