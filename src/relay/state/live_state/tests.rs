mod clock;
mod devices;
mod handed_over;
mod maps;

use std::collections::HashMap;

use chrono::TimeDelta;
use serde_json::Value;

use super::LiveState;
use crate::{
    domain::{
        change::JsonPatch,
        device::DeviceKind,
        items::Catalogue,
        link_reason::LinkReason,
        monument::Monument,
        raid::TriggerTime,
        reporting::{Reported, Reports},
        server_state::ConnectionState,
        time::{Moment, Timestamp},
        world_event::EventKind,
    },
    game::{
        link::{Answered, AskError},
        reading,
        wire::{
            AppBroadcast, AppEntityChanged, AppEntityInfo, AppEntityPayload, AppEntityType, AppInfo, AppMap,
            AppMapMarkers, AppMarker, AppMarkerType, AppTeamChanged, AppTeamChat, AppTeamInfo, AppTeamMessage,
            app_team_info,
        },
    },
    relay::state::{
        game_update::{GameUpdate, OwnUpdate, PairedDevice, TeamUpdate, WorldUpdate},
        outcome::{AlarmTrigger, Outcome},
        own_state::notes,
        world_state::TRUNCATED_BELIEVED,
    },
};

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + TimeDelta::seconds(1_800_000_000 + seconds)
}

fn info(wipe_time: u32) -> AppInfo {
    AppInfo { name: "Rustopia".into(), map: "Procedural Map".into(), map_size: 4_000, wipe_time, ..AppInfo::default() }
}

fn shops(ids: std::ops::Range<u64>) -> AppMapMarkers {
    let shop = |id: u64| AppMarker {
        id,
        r#type: AppMarkerType::VendingMachineMarker.into(),
        x: 100.0 * id as f32,
        y: 200.0,
        ..AppMarker::default()
    };
    AppMapMarkers { markers: ids.map(shop).collect() }
}

fn member(alive: bool) -> AppTeamInfo {
    let member = app_team_info::Member {
        steam_id: 7,
        name: "Ann".into(),
        x: 1_000.0,
        y: 1_000.0,
        is_online: true,
        is_alive: alive,
        ..app_team_info::Member::default()
    };
    AppTeamInfo { leader_steam_id: 7, members: vec![member], ..AppTeamInfo::default() }
}

fn device(kind: DeviceKind) -> PairedDevice {
    PairedDevice {
        kind,
        name: "Smart device".into(),
        label: Some("Front door".into()),
        last_value: None,
        reported: None,
        place: None,
    }
}

fn paired(kind: DeviceKind) -> OwnUpdate {
    OwnUpdate::Devices(HashMap::from([("42".into(), device(kind))]))
}

fn answer(kind: AppEntityType, payload: AppEntityPayload) -> OwnUpdate {
    answer_after(u64::MAX, kind, payload)
}

/// An answer to a question that was asked after this number of broadcasts.
fn answer_after(asked_after: u64, kind: AppEntityType, payload: AppEntityPayload) -> OwnUpdate {
    let content = Some(AppEntityInfo { r#type: kind.into(), payload });
    OwnUpdate::Device { device: "42".into(), answer: Ok(Answered { asked_after, content }) }
}

fn changed(payload: AppEntityPayload) -> GameUpdate {
    changed_with(1, payload)
}

fn changed_with(number: u64, payload: AppEntityPayload) -> GameUpdate {
    let entity_changed = Some(AppEntityChanged { entity_id: 42, payload });
    GameUpdate::Broadcast(number, Box::new(AppBroadcast { entity_changed, ..AppBroadcast::default() }))
}

fn team_after(asked_after: u64, content: AppTeamInfo) -> TeamUpdate {
    TeamUpdate::Members(Answered { asked_after, content })
}

fn team_changed(number: u64, team_info: AppTeamInfo) -> GameUpdate {
    let team_changed = Some(AppTeamChanged { player_id: 7, team_info });
    GameUpdate::Broadcast(number, Box::new(AppBroadcast { team_changed, ..AppBroadcast::default() }))
}

fn value(value: bool) -> AppEntityPayload {
    AppEntityPayload { value: Some(value), ..AppEntityPayload::default() }
}

/// A live state with a client that applies every step, as a JSON Patch.
struct Watched {
    live: LiveState,
    client: Value,
    now: i64,
    /// Next due time after the last step.
    due: Option<Moment>,
}

impl Watched {
    fn new() -> Self {
        let mut live = LiveState::new(at(0));
        live.watch(true, at(0).into());
        let client = document(&live);
        Self { live, client, now: 0, due: None }
    }

    fn connected() -> Self {
        let mut watched = Self::new();
        assert!(watched.update(GameUpdate::Connected(info(1_000))).world.map_wanted);
        watched
    }

    fn update(&mut self, update: impl Into<GameUpdate>) -> Outcome {
        let outcome = self.live.update(update, at(self.now).into());
        self.apply(&outcome);
        outcome
    }

    fn tick(&mut self) -> Outcome {
        let (due, now) = (self.due, at(self.now).into());
        let outcome = self.live.tick(now);
        assert!(outcome.changes.is_empty() || due.is_some_and(|due| due <= now), "it was due");
        assert!(self.live.next_due(now).is_none_or(|due| due > now), "nothing more is");
        self.apply(&outcome);
        outcome
    }

    fn apply(&mut self, outcome: &Outcome) {
        self.due = self.live.next_due(at(self.now).into());
        let patch = serde_json::to_value(JsonPatch { changes: &outcome.changes, catalogue: Catalogue::embedded() })
            .expect("JSON");
        let patch: json_patch::Patch = serde_json::from_value(patch).expect("a patch");
        json_patch::patch(&mut self.client, &patch).expect("it applies");
        assert_eq!(self.client, document(&self.live), "one update is one step, and the client follows it");
    }
}

fn document(live: &LiveState) -> Value {
    serde_json::to_value(live.state().document(Catalogue::embedded())).expect("JSON")
}

#[test]
fn a_link_that_comes_and_goes_is_visible_and_a_long_gap_is_an_event() {
    let mut watched = Watched::connected();
    assert_eq!(watched.client["server"]["connection"], "connected");
    watched.now = 10;
    let lost = || GameUpdate::Disconnected {
        state: ConnectionState::Unreachable,
        reason: Some(LinkReason::Silent),
        next_attempt_at: Some(at(20)),
    };
    assert!(watched.update(lost()).own.connection_changed);
    assert!(!watched.update(lost()).own.connection_changed, "nothing new");
    assert_eq!(watched.client["server"]["reason"], "the game server does not answer");
    watched.now = 20;
    assert!(watched.update(GameUpdate::Connected(info(1_000))).events.is_empty(), "ten seconds are no event");
    watched.update(lost());
    watched.now = 60;
    let events = watched.update(GameUpdate::Connected(info(1_000))).events;
    assert!(matches!(&events[..], [event] if event.kind == EventKind::Gap), "{events:?}");
    assert_eq!(watched.client["server"]["reason"], Value::Null);
}

#[test]
fn the_map_is_wanted_until_it_came_and_again_after_a_wipe() {
    let mut watched = Watched::connected();
    assert!(watched.update(WorldUpdate::Info(info(1_000))).world.map_wanted);
    watched.update(WorldUpdate::Map(AppMap::default()));
    assert!(!watched.update(WorldUpdate::Info(info(1_000))).world.map_wanted);
    watched.update(WorldUpdate::Markers(shops(0..3)));
    watched.update(paired(DeviceKind::Switch));
    let wiped = watched.update(WorldUpdate::Info(info(90_000)));
    assert!(wiped.world.map_wanted && wiped.world.learned);
    assert!(matches!(&wiped.events[..], [event] if event.kind == EventKind::Wipe));
    assert_eq!(watched.client["mapMarkers"], serde_json::json!({}));
    assert_eq!(watched.client["devices"]["42"]["reachable"], "removed");
}

#[test]
fn a_wipe_in_our_absence_is_seen_from_the_stored_world_and_what_is_known_is_newer() {
    let mut watched = Watched::new();
    let stored = |wipe_time| GameUpdate::StoredWorld {
        world: Some(reading::world(&info(wipe_time))),
        monuments: None,
        alive_until: None,
        reports: Default::default(),
        speeds: Default::default(),
    };
    watched.update(stored(1_000));
    let events = watched.update(GameUpdate::Connected(info(90_000))).events;
    assert!(matches!(&events[..], [event] if event.kind == EventKind::Wipe));
    watched.update(stored(1_000));
    assert!(watched.update(WorldUpdate::Info(info(90_000))).events.is_empty(), "the wipe is known");
}

#[test]
fn the_time_between_two_lives_of_the_service_is_a_gap_that_the_second_reports_once() {
    let stored = |alive_until| GameUpdate::StoredWorld {
        world: None,
        monuments: None,
        alive_until,
        reports: Default::default(),
        speeds: Default::default(),
    };
    let mut watched = Watched::new();
    watched.update(stored(Some(at(-600))));
    assert_eq!(watched.live.alive_at(at(0).into()), Some(at(-600)));
    let events = watched.update(GameUpdate::Connected(info(1_000))).events;
    let [gap] = &events[..] else { panic!("{events:?}") };
    assert_eq!((gap.kind, gap.ts), (EventKind::Gap, at(0)));
    assert_eq!((&gap.data["from"], &gap.data["to"]), (&at(-600).to_wire().into(), &at(0).to_wire().into()));
    assert_eq!(watched.live.alive_at(at(5).into()), Some(at(5)));
    let down = || GameUpdate::Disconnected { state: ConnectionState::Unreachable, reason: None, next_attempt_at: None };
    watched.now = 10;
    watched.update(down());
    // The known state is newer than the stored one.
    watched.update(stored(Some(at(-600))));
    watched.now = 20;
    assert!(watched.update(GameUpdate::Connected(info(1_000))).events.is_empty());

    for (alive_until, why) in [(None, "never"), (Some(at(-29)), "too short"), (Some(at(600)), "the clock was set back")]
    {
        let mut watched = Watched::new();
        watched.update(stored(alive_until));
        watched.update(down());
        assert!(watched.update(GameUpdate::Connected(info(1_000))).events.is_empty(), "{why}");
    }
}

#[test]
fn the_map_is_asked_for_once_in_a_wipe_also_across_a_restart() {
    let mut watched = Watched::new();
    assert!(watched.update(GameUpdate::Connected(info(1_000))).world.map_wanted);
    assert_eq!(watched.live.monuments(), None);
    assert!(watched.update(WorldUpdate::Map(AppMap::default())).world.learned);
    let stored = watched.live.world().cloned();
    assert_eq!((&stored, watched.live.monuments()), (&Some(reading::world(&info(1_000))), Some(&[][..])));

    let mut restarted = Watched::new();
    let monuments: Vec<_> = Monument::new("launchsite", 1.0, 2.0).into_iter().collect();
    restarted.update(GameUpdate::StoredWorld {
        world: stored,
        monuments: Some(monuments.clone()),
        alive_until: None,
        reports: Default::default(),
        speeds: Default::default(),
    });
    let up = restarted.update(GameUpdate::Connected(info(1_060)));
    assert!(!up.world.map_wanted && up.events.is_empty(), "the game server rounds its wipe time");
    assert_eq!(restarted.live.monuments(), Some(&monuments[..]));
    let wiped = restarted.update(WorldUpdate::Info(info(90_000)));
    assert!(wiped.world.map_wanted && wiped.world.learned);
    assert_eq!(restarted.live.monuments(), None, "those of the old map");
}

#[test]
fn shops_that_vanish_all_at_once_are_believed_after_five_answers() {
    let mut watched = Watched::connected();
    watched.update(WorldUpdate::Markers(shops(0..10)));
    for _ in 1..TRUNCATED_BELIEVED {
        assert!(watched.update(WorldUpdate::Markers(shops(0..0))).changes.is_empty());
    }
    assert_eq!(watched.update(WorldUpdate::Markers(shops(0..0))).changes.len(), 10);
}

#[test]
fn players_on_the_map_are_the_teams_and_all_else_is_everybodys() {
    let mut watched = Watched::connected();
    let player = |id| AppMarker { id, r#type: AppMarkerType::PlayerMarker.into(), x: 9.0, ..AppMarker::default() };
    let mut all = shops(1..3);
    all.markers.extend([player(2), player(7)]);
    watched.update(WorldUpdate::Markers(all));
    let shown: Vec<_> = watched.client["mapMarkers"].as_object().expect("an object").keys().cloned().collect();
    assert_eq!(shown, ["1", "2", "7"]);
    assert_eq!(watched.client["mapMarkers"]["2"]["kind"], "vendingMachine", "an id has one marker");
    let ids: Vec<u64> = watched.live.state().map_markers.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, [1, 2]);
    watched.update(WorldUpdate::Markers(shops(1..3)));
    assert_eq!(watched.client["mapMarkers"].as_object().expect("an object").len(), 2);
}

#[test]
fn a_game_server_that_falls_silent_takes_nothing_away() {
    let mut watched = Watched::connected();
    let mut all = shops(0..3);
    all.markers.push(AppMarker {
        id: 77,
        r#type: AppMarkerType::CargoShipMarker as i32,
        x: 50.0,
        y: 50.0,
        ..Default::default()
    });
    watched.update(WorldUpdate::Markers(all.clone()));
    for poll in 1..20 {
        watched.now = poll * 10;
        assert!(watched.update(WorldUpdate::Markers(shops(0..0))).events.is_empty());
    }
    let reports = |events, shops| WorldUpdate::Reports(Reports { events, shops });
    watched.update(reports(Reported::No, Reported::No));
    assert_eq!(watched.client["server"]["reports"], serde_json::json!({ "events": "no", "shops": "no" }));
    for poll in 20..40 {
        watched.now = poll * 10;
        assert!(watched.update(WorldUpdate::Markers(shops(0..0))).events.is_empty());
    }
    // The server reports again. The ship may be a new one; the shops were there all the while.
    let events = watched.update(WorldUpdate::Markers(all)).events;
    assert!(matches!(&events[..], [ship] if ship.kind == EventKind::Cargo && ship.action == "located"), "{events:?}");
    watched.update(reports(Reported::Yes, Reported::Yes));
    let left: usize = (40..44)
        .map(|poll| {
            watched.now = poll * 10;
            watched.update(WorldUpdate::Markers(shops(0..3))).events.len()
        })
        .sum();
    assert_eq!(left, 1, "the ship has left, which shops that are there bear out");
}

#[test]
fn a_death_is_an_event_and_a_note_that_expires() {
    let mut watched = Watched::connected();
    watched.update(team_after(0, member(true)));
    let notes = |watched: &Watched| watched.client["mapNotes"].as_object().expect("an object").len();
    for _ in 0..3 {
        watched.now += 5;
        watched.update(team_after(0, member(false)));
    }
    assert_eq!(notes(&watched), 1, "{}", watched.client["mapNotes"]);
    watched.update(team_after(0, member(false)));
    assert_eq!(notes(&watched), 1, "the team's answer leaves it alone");
    watched.now += notes::DEATH_NOTE_LIFE.num_seconds();
    watched.tick();
    assert_eq!(notes(&watched), 0);
    for _ in 0..2 * notes::DEATH_NOTES {
        watched.now += 5;
        watched.update(team_after(0, member(true)));
        watched.update(team_after(0, member(false)));
    }
    assert_eq!(notes(&watched), notes::DEATH_NOTES, "the newest");
}

#[test]
fn chat_and_a_broadcast_of_several_parts_are_one_outcome() {
    let mut watched = Watched::connected();
    let said = |time, message: &str| crate::game::wire::AppTeamMessage {
        steam_id: 7,
        name: "Ann".into(),
        message: message.into(),
        time,
        ..Default::default()
    };
    watched.update(team_after(0, member(true)));
    let history = AppTeamChat { messages: vec![said(1, "old")] };
    assert!(watched.update(TeamUpdate::Chat(history)).team.chat.iter().all(|line| !line.is_news));
    let broadcast = AppBroadcast {
        team_changed: Some(AppTeamChanged { player_id: 7, team_info: member(true) }),
        team_message: Some(crate::game::wire::AppNewTeamMessage { message: said(2, "new") }),
        ..AppBroadcast::default()
    };
    let outcome = watched.update(GameUpdate::Broadcast(1, Box::new(broadcast)));
    assert_eq!(outcome.team.chat.iter().map(|line| line.stored.line.text.as_str()).collect::<Vec<_>>(), ["new"]);
    assert_eq!(watched.client["team"]["members"]["7"]["name"], "Ann");
}

#[test]
fn the_next_history_of_a_team_that_was_joined_is_old_and_that_of_ones_own_is_news() {
    let team = |leader: u64, members: &[u64]| {
        let listed = |steam_id: &u64| app_team_info::Member { steam_id: *steam_id, ..member(true).members[0].clone() };
        let members = members.iter().map(listed).collect();
        team_after(0, AppTeamInfo { leader_steam_id: leader, members, ..AppTeamInfo::default() })
    };
    let check = |case: &str, before: (u64, &[u64]), after: (u64, &[u64]), is_news: bool| {
        for is_noticed in [true, false] {
            let mut watched = Watched::connected();
            watched.update(TeamUpdate::Chat(AppTeamChat::default()));
            watched.update(team(before.0, before.1));
            if is_noticed {
                watched.update(team(after.0, after.1));
            }
            let mut history_after_gap = |time| {
                let (state, reason) = (ConnectionState::Unreachable, Some(LinkReason::Closed));
                watched.update(GameUpdate::Disconnected { state, reason, next_attempt_at: None });
                watched.update(GameUpdate::Connected(info(1_000)));
                let line = AppTeamMessage { steam_id: 8, message: "hi".into(), time, ..Default::default() };
                let early = watched.update(TeamUpdate::Chat(AppTeamChat { messages: vec![line] })).team.chat;
                assert!(early.is_empty(), "{case}: the team is not known yet");
                watched.update(team(after.0, after.1)).team.chat[0].is_news
            };
            let case = format!("{case}, noticed before the link was lost: {is_noticed}");
            assert_eq!(history_after_gap(5), is_news, "{case}");
            assert!(history_after_gap(6), "{case}, then of the same team");
        }
    };
    check("a friend joins one who is alone", (7, &[7]), (7, &[7, 8]), true);
    check("one who is alone joins others", (7, &[7]), (8, &[7, 8]), false);
    check("one goes over to others", (7, &[7, 8]), (9, &[7, 9, 10]), false);
    check("all but one leave", (7, &[7, 8, 9]), (7, &[7]), true);
    check("one of three is replaced", (8, &[7, 8, 9]), (8, &[7, 8, 10]), true);
}

#[test]
fn the_team_is_known_once_the_link_that_reads_has_said_who_is_in_it() {
    let mut watched = Watched::connected();
    assert!(!watched.live.knows_team());
    watched.update(team_after(0, member(true)));
    assert!(watched.live.knows_team());
    watched.update(GameUpdate::Unread);
    watched.update(GameUpdate::Connected(info(1_000)));
    assert!(!watched.live.knows_team(), "it may be another since");
    watched.update(GameUpdate::TeamByMate(team_after(0, member(true))));
    assert!(watched.live.knows_team());
}

#[test]
fn an_answer_that_was_asked_for_before_a_broadcast_does_not_undo_it() {
    let mut watched = Watched::connected();
    watched.update(paired(DeviceKind::Switch));
    watched.update(answer_after(0, AppEntityType::Switch, value(false)));
    watched.update(changed_with(1, value(true)));
    watched.update(answer_after(0, AppEntityType::Switch, value(false)));
    assert_eq!(watched.client["devices"]["42"]["value"], true, "the broadcast is newer");
    watched.update(answer_after(1, AppEntityType::Switch, value(false)));
    assert_eq!(watched.client["devices"]["42"]["value"], false, "the answer is newer");

    watched.update(team_after(1, member(true)));
    watched.update(team_changed(2, member(false)));
    watched.update(team_after(1, member(true)));
    assert_eq!(watched.client["team"]["members"]["7"]["alive"], false, "the broadcast is newer");
    watched.update(team_after(2, member(true)));
    assert_eq!(watched.client["team"]["members"]["7"]["alive"], true, "the answer is newer");

    // The next link counts from the beginning.
    let (state, reason) = (ConnectionState::Unreachable, Some(LinkReason::Closed));
    watched.update(GameUpdate::Disconnected { state, reason, next_attempt_at: None });
    watched.update(GameUpdate::Connected(info(1_000)));
    watched.update(answer_after(0, AppEntityType::Switch, value(true)));
    watched.update(team_after(0, member(false)));
    assert_eq!(watched.client["devices"]["42"]["value"], true);
    assert_eq!(watched.client["team"]["members"]["7"]["alive"], false);
}

#[test]
fn sections_without_answers_become_stale_also_without_a_link_and_fresh_with_the_next_answer() {
    let mut watched = Watched::new();
    watched.now = 100_000;
    assert!(watched.tick().changes.is_empty(), "what was never known is not stale");
    watched.update(GameUpdate::Connected(info(1_000)));
    watched.update(WorldUpdate::Markers(shops(0..1)));
    watched.update(team_after(0, member(true)));
    assert!(watched.tick().changes.is_empty() && watched.client["server"].get("stale").is_none());
    watched.now += 10;
    watched.tick();
    let as_of = |seconds| serde_json::json!({ "asOf": at(seconds).to_wire() });
    assert_eq!(watched.client["server"]["stale"], serde_json::json!({ "mapMarkers": as_of(100_000) }));
    let (state, reason) = (ConnectionState::Unreachable, Some(LinkReason::Closed));
    watched.update(GameUpdate::Disconnected { state, reason, next_attempt_at: None });
    watched.now += 200;
    watched.tick();
    let stale = ["mapMarkers", "server", "team"].map(|section| (section.to_owned(), as_of(100_000)));
    assert_eq!(watched.client["server"]["stale"], Value::Object(stale.into_iter().collect()));
    assert!(watched.tick().changes.is_empty(), "said once");
    watched.update(GameUpdate::Connected(info(1_000)));
    watched.update(team_changed(1, member(true)));
    watched.update(WorldUpdate::Markers(shops(0..1)));
    assert!(watched.client["server"].get("stale").is_none(), "{}", watched.client["server"]);
}
