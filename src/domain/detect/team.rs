//! The team: who joined, left, came online, died.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    events::{EventWindow, Events, MapContext},
    link_gap::LinkGap,
    presence::{Sighting, Sightings},
};
use crate::domain::{
    plain_text::plain_text,
    server_state::Member,
    time::{Moment, Timestamp},
    world_event::{EventKind, WorldEvent},
};

/// Members that are followed; the game's default team has eight.
const MAX_MEMBERS: u32 = 256;

/// Characters of a name in a title.
const LONGEST_NAME: usize = 64;

/// The facts by which a member is compared.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Known {
    name: String,
    at: Option<(f64, f64)>,
    online: bool,
    alive: bool,
    spawned_at: Option<Timestamp>,
    died_at: Option<Timestamp>,
}

/// Memory of a detector, for the one of another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TeamMemory {
    members: Sightings<u64, Known>,
    leader: Option<String>,
    primed: bool,
}

/// Compares the lists of one team.
#[derive(Debug)]
pub struct TeamDetector {
    members: Sightings<u64, Known>,
    leader: Option<String>,
    primed: bool,
    gap: LinkGap,
}

impl Default for TeamDetector {
    fn default() -> Self {
        Self { members: Sightings::new(MAX_MEMBERS), leader: None, primed: false, gap: LinkGap::default() }
    }
}

impl TeamDetector {
    /// The detector of this memory, whose link was lost then.
    pub fn remembering(memory: TeamMemory, lost_at: Moment, now: Moment) -> Self {
        let TeamMemory { members, leader, primed } = memory;
        let mut detector = Self { leader, primed, ..Self::default() };
        detector.members.take_over(members, now);
        detector.link_lost(lost_at);
        detector
    }

    /// Its memory.
    pub fn memory(&self) -> TeamMemory {
        TeamMemory { members: self.members.clone(), leader: self.leader.clone(), primed: self.primed }
    }

    /// A complete list of the team, by SteamID64, and its leader's. The first one primes.
    pub fn answer<'a>(
        &mut self,
        around: &MapContext,
        leader: Option<&str>,
        members: impl Iterator<Item = (u64, &'a Member)> + Clone,
        now: Moment,
        window: &mut EventWindow,
    ) -> Vec<WorldEvent> {
        let priming = !self.primed || self.is_another(members.clone());
        let mut events = Events::new(around, now, priming, window);
        self.primed = true;
        self.compare(leader, members, &mut events);
        events.finish()
    }

    /// The link was lost.
    pub fn link_lost(&mut self, now: Moment) {
        self.gap.begin(now);
    }

    /// The link is back. After a long gap the next answer primes.
    pub fn link_up(&mut self, now: Moment) {
        if self.gap.end(now) {
            self.primed = false;
        }
    }

    /// A wipe: everything known is of another world.
    pub fn wiped(&mut self) {
        *self = Self::default();
    }

    /// True if the list is of another team: at most the paired player is in both, and others took the others' place.
    fn is_another<'a>(&self, members: impl Iterator<Item = (u64, &'a Member)>) -> bool {
        let known = self.members.present().count();
        let (mut kept, mut joined) = (0, 0);
        for (id, _) in members {
            if self.members.contains(&id) {
                kept += 1;
            } else {
                joined += 1;
            }
        }
        kept <= 1 && joined > 0 && known > kept
    }

    /// A complete list. An empty one says nothing: the paired player is always in it.
    fn compare<'a>(
        &mut self,
        leader: Option<&str>,
        members: impl Iterator<Item = (u64, &'a Member)>,
        events: &mut Events,
    ) {
        let mut members = members.peekable();
        if members.peek().is_none() {
            return;
        }
        for (id, member) in members {
            self.see(id, member, events);
        }
        self.members.sweep(events.now, events.priming, |id, member| {
            let data = json!({ "steamId": id.to_string(), "name": member.name });
            events.report(EventKind::Team, "left", None, data, |_| format!("{} left the team", member.name));
        });
        if let Some(leader) = leader
            && self.leader.as_deref() != Some(leader)
        {
            let before = self.leader.replace(leader.to_owned());
            if before.is_some() {
                let named = leader.parse().ok().and_then(|id| self.members.get(&id));
                let name = named.map_or("Another player", |member| &member.name);
                let data = json!({ "steamId": leader, "previousSteamId": before });
                events.report(EventKind::Team, "leader_changed", None, data, |_| format!("{name} leads the team now"));
            }
        }
    }

    fn see(&mut self, id: u64, member: &Member, events: &mut Events) {
        let now = known(member);
        let Some((sighting, before)) = self.members.see(id, || known(member)) else { return };
        let before = std::mem::replace(before, now);
        let name = plain_name(member);
        let data = json!({ "steamId": id.to_string(), "name": name });
        let at = position(member);
        if sighting != Sighting::Known {
            events.report(EventKind::Team, "joined", None, data, |_| format!("{name} joined the team"));
            return;
        }
        match (before.online, member.online) {
            (false, true) => {
                events.report(EventKind::Login, "login", at, data.clone(), |_| format!("{name} came online"));
            }
            (true, false) => {
                events.report(EventKind::Logout, "logout", at, data.clone(), |_| format!("{name} went offline"));
            }
            _ => {}
        }
        let died_again = match (before.died_at, member.died_at) {
            (Some(before), Some(now)) => now > before,
            // The time of a death that was reported already may come late.
            (None, Some(_)) => before.alive,
            _ => false,
        };
        if died_again || (before.alive && !member.alive) {
            let mut data = data.clone();
            data["diedAt"] = json!(member.died_at.map(Timestamp::to_wire));
            // Where the member was before: afterwards the game sends nothing, or the place of the new life.
            let place = before.at.or(at);
            events.report(EventKind::Death, "died", place, data, |place| format!("{name} died {place}"));
        }
        let spawned_again = matches!((before.spawned_at, member.spawned_at), (Some(before), Some(now)) if now > before);
        if member.alive && (spawned_again || !before.alive) {
            events.report(EventKind::Team, "respawned", at, data, |place| format!("{name} respawned {place}"));
        }
    }
}

fn known(member: &Member) -> Known {
    Known {
        name: plain_name(member),
        at: position(member),
        online: member.online,
        alive: member.alive,
        spawned_at: member.spawned_at,
        died_at: member.died_at,
    }
}

fn plain_name(member: &Member) -> String {
    let name = plain_text(&member.name, LONGEST_NAME);
    if name.is_empty() { "A team member".to_owned() } else { name }
}

fn position(member: &Member) -> Option<(f64, f64)> {
    member.x.zip(member.y).filter(|(x, y)| x.is_finite() && y.is_finite())
}

#[cfg(test)]
mod tests {
    use super::{TeamDetector, TeamMemory};
    use crate::domain::{
        detect::{
            EventWindow, MapContext,
            testing::{Timeline, at},
        },
        server_state::Member,
        world_event::EventKind,
    };

    const ANN: u64 = 76561190000000001;
    const BOB: u64 = 76561190000000002;
    const CAT: u64 = 76561190000000003;
    const DAN: u64 = 76561190000000004;

    fn member(id: u64) -> (u64, Member) {
        let name = match id {
            ANN => "Ann",
            BOB => "Bob",
            CAT => "Cat",
            _ => "Dan",
        };
        let member = Member {
            name: name.to_owned(),
            x: Some(100.0),
            y: Some(2900.0),
            grid: String::new(),
            online: true,
            alive: true,
            spawned_at: Some(at(1).stamp),
            died_at: None,
            afk_since: None,
        };
        (id, member)
    }

    fn edited(id: u64, edit: impl FnOnce(&mut Member)) -> (u64, Member) {
        let mut member = member(id);
        edit(&mut member.1);
        member
    }

    /// A timeline in which Ann leads Bob.
    fn two() -> Timeline {
        let mut timeline = Timeline::new(3000);
        assert_eq!(timeline.team(0, &ANN.to_string(), &[member(ANN), member(BOB)]), [""; 0]);
        timeline
    }

    fn then(timeline: &mut Timeline, seconds: i64, members: &[(u64, Member)]) -> Vec<&'static str> {
        timeline.team(seconds, &ANN.to_string(), members)
    }

    #[test]
    fn members_join_and_leave() {
        let mut timeline = two();
        assert_eq!(then(&mut timeline, 5, &[member(ANN), member(BOB), member(CAT)]), ["joined"]);
        assert_eq!(timeline.last().title, "Cat joined the team");
        let reported: Vec<_> = [10, 15, 20]
            .into_iter()
            .flat_map(|seconds| then(&mut timeline, seconds, &[member(CAT), member(ANN)]))
            .collect();
        assert_eq!(reported, ["left"]);
        assert_eq!(timeline.last().title, "Bob left the team");
    }

    #[test]
    fn coming_online_and_going_are_reported() {
        let mut timeline = two();
        let offline = edited(BOB, |bob| bob.online = false);
        assert_eq!(then(&mut timeline, 5, &[member(ANN), offline]), ["logout"]);
        assert_eq!(timeline.last().kind, EventKind::Logout);
        assert_eq!(then(&mut timeline, 10, &[member(ANN), member(BOB)]), ["login"]);
    }

    #[test]
    fn a_death_is_reported_where_the_member_was_before() {
        let mut timeline = two();
        let dead = edited(BOB, |bob| (bob.alive, bob.died_at, bob.x, bob.y) = (false, Some(at(5).stamp), None, None));
        assert_eq!(then(&mut timeline, 5, &[member(ANN), dead.clone()]), ["died"]);
        let event = timeline.last();
        assert_eq!(
            (event.kind, event.x, event.y, event.grid.as_str()),
            (EventKind::Death, Some(100.0), Some(2900.0), "A0")
        );
        assert_eq!((event.title.as_str(), &event.data["name"]), ("Bob died in A0", &"Bob".into()));
        assert_eq!(then(&mut timeline, 10, &[member(ANN), dead]), [""; 0]);
        let again = edited(BOB, |bob| (bob.died_at, bob.spawned_at) = (Some(at(5).stamp), Some(at(12).stamp)));
        assert_eq!(then(&mut timeline, 15, &[member(ANN), again]), ["respawned"]);
    }

    #[test]
    fn a_respawn_between_two_answers_hides_no_death() {
        let mut timeline = two();
        let reborn = edited(BOB, |bob| {
            (bob.died_at, bob.spawned_at, bob.x) = (Some(at(6).stamp), Some(at(7).stamp), Some(2000.0))
        });
        assert_eq!(then(&mut timeline, 10, &[member(ANN), reborn]), ["died", "respawned"]);
        assert_eq!(timeline.last().x, Some(2000.0));
    }

    #[test]
    fn the_time_of_a_death_may_come_late() {
        let mut timeline = two();
        let dead = edited(BOB, |bob| bob.alive = false);
        assert_eq!(then(&mut timeline, 5, &[member(ANN), dead]), ["died"]);
        let dated = edited(BOB, |bob| (bob.alive, bob.died_at) = (false, Some(at(5).stamp)));
        assert_eq!(then(&mut timeline, 10, &[member(ANN), dated]), [""; 0]);
    }

    #[test]
    fn a_new_leader_is_reported() {
        let mut timeline = two();
        assert_eq!(timeline.team(5, &BOB.to_string(), &[member(ANN), member(BOB)]), ["leader_changed"]);
        assert_eq!(timeline.last().title, "Bob leads the team now");
    }

    #[test]
    fn another_team_is_no_news() {
        let mut timeline = Timeline::new(3000);
        timeline.team(0, &BOB.to_string(), &[member(ANN), member(BOB)]);
        assert_eq!(timeline.team(5, &CAT.to_string(), &[member(ANN), member(CAT), member(DAN)]), [""; 0]);
        for seconds in [10, 15, 20, 25] {
            assert_eq!(timeline.team(seconds, &CAT.to_string(), &[member(ANN), member(CAT), member(DAN)]), [""; 0]);
        }
    }

    /// The titles of what a detector reports.
    fn titles(detector: &mut TeamDetector, seconds: i64, members: &[(u64, Member)]) -> Vec<String> {
        let (around, leader) = (MapContext { map_size: 3_000, monuments: &[] }, ANN.to_string());
        let members = members.iter().map(|(id, member)| (*id, member));
        let events = detector.answer(&around, Some(&leader), members, at(seconds), &mut EventWindow::default());
        events.into_iter().map(|event| event.title).collect()
    }

    #[test]
    fn a_list_is_compared_with_what_another_process_remembers() {
        let offline = |id| edited(id, |member| member.online = false);
        let mut before = TeamDetector::default();
        assert_eq!(titles(&mut before, 0, &[member(ANN), member(BOB), offline(CAT), member(DAN)]), [""; 0]);
        // Dan is missing, perhaps for an answer only.
        assert_eq!(titles(&mut before, 5, &[member(ANN), member(BOB), offline(CAT)]), [""; 0]);
        let memory: TeamMemory = serde_json::from_str(&serde_json::to_string(&before.memory()).unwrap()).unwrap();
        let now = [member(ANN), offline(BOB), member(CAT)];
        let mut after = TeamDetector::remembering(memory.clone(), at(6), at(10));
        after.link_up(at(12));
        assert_eq!(titles(&mut after, 12, &now), ["Bob went offline", "Cat came online"]);
        let later: Vec<String> =
            [15, 18, 21].into_iter().flat_map(|seconds| titles(&mut after, seconds, &now)).collect();
        assert_eq!(later, ["Dan left the team"]);
        // The first list after a long gap only shows how things are.
        let mut late = TeamDetector::remembering(memory, at(6), at(10));
        late.link_up(at(67));
        assert_eq!(titles(&mut late, 67, &now), [""; 0]);
    }

    #[test]
    fn an_empty_list_says_nothing() {
        let mut timeline = two();
        for seconds in [5, 10, 15, 20] {
            assert_eq!(then(&mut timeline, seconds, &[]), [""; 0]);
        }
        assert_eq!(then(&mut timeline, 25, &[member(ANN), member(BOB)]), [""; 0]);
    }
}
