//! A live state goes on at another node.

use serde_json::json;

use super::*;
use crate::relay::state::handed_state::HandedState;

/// As another node reads it.
fn sent(handed: &HandedState) -> GameUpdate {
    GameUpdate::HandedOver(serde_json::from_str(&serde_json::to_string(handed).unwrap()).unwrap())
}

fn hand_over(watched: &Watched) -> HandedState {
    watched.live.hand_over(at(watched.now).into()).expect("its link was up")
}

/// A team, by who is online.
fn team(online: &[(u64, bool)]) -> TeamUpdate {
    let member = |&(steam_id, is_online): &(u64, bool)| app_team_info::Member {
        steam_id,
        name: format!("Player {steam_id}"),
        is_online,
        is_alive: true,
        ..app_team_info::Member::default()
    };
    let members = online.iter().map(member).collect();
    team_after(0, AppTeamInfo { leader_steam_id: 7, members, ..AppTeamInfo::default() })
}

/// The history of the chat: a line each second.
fn chat(texts: &[&str]) -> TeamUpdate {
    let line = |(time, text): (u32, &&str)| AppTeamMessage {
        steam_id: 7,
        name: "Ann".into(),
        message: (*text).into(),
        time,
        ..AppTeamMessage::default()
    };
    TeamUpdate::Chat(AppTeamChat { messages: (1..).zip(texts).map(line).collect() })
}

fn stored(wipe_time: u32) -> GameUpdate {
    GameUpdate::StoredWorld {
        world: Some(reading::world(&info(wipe_time))),
        monuments: None,
        alive_until: None,
        reports: Default::default(),
        speeds: Default::default(),
    }
}

#[test]
fn another_node_goes_on_as_after_a_link_that_was_lost_for_a_moment() {
    let mut before = Watched::connected();
    before.update(paired(DeviceKind::Alarm));
    before.update(answer(AppEntityType::Alarm, value(false)));
    assert_eq!(before.update(changed(value(true))).own.alarms.len(), 1);
    before.update(team(&[(7, true), (8, true), (9, false)]));
    assert_eq!(before.update(chat(&["a"])).team.chat.len(), 1);

    let mut after = Watched::new();
    after.now = 5;
    after.update(paired(DeviceKind::Alarm));
    assert!(after.update(sent(&hand_over(&before))).changes.is_empty(), "no link is up");
    assert!(after.update(GameUpdate::Connected(info(1_000))).events.is_empty());
    assert_eq!(after.client["team"], before.client["team"]);
    let answered = after.update(answer(AppEntityType::Alarm, value(true)));
    assert!(answered.own.alarms.is_empty(), "it was on");
    let online = after.update(team(&[(7, true), (8, true), (9, true)])).events;
    assert_eq!(online.into_iter().map(|event| event.title).collect::<Vec<_>>(), ["Player 9 came online"]);
    let said = after.update(chat(&["a", "b"])).team.chat;
    assert_eq!(said.iter().map(|line| (&*line.stored.line.text, line.is_news)).collect::<Vec<_>>(), [("b", true)]);
}

#[test]
fn markers_that_come_meanwhile_are_news_and_earlier_ones_are_not() {
    let markers = |kinds: &[AppMarkerType]| {
        let marker = |(id, kind): (u64, &AppMarkerType)| AppMarker {
            id,
            r#type: (*kind).into(),
            x: 100.0,
            y: 100.0,
            ..AppMarker::default()
        };
        WorldUpdate::Markers(AppMapMarkers { markers: (1..).zip(kinds).map(marker).collect() })
    };
    let (ship, helicopter) = (AppMarkerType::CargoShipMarker, AppMarkerType::PatrolHelicopterMarker);
    let mut before = Watched::connected();
    assert!(before.update(markers(&[ship])).events.is_empty(), "the first answer");
    let mut after = Watched::new();
    after.now = 5;
    after.update(sent(&hand_over(&before)));
    after.update(GameUpdate::Connected(info(1_000)));
    let events = after.update(markers(&[ship, helicopter])).events;
    assert_eq!(events.iter().map(|event| event.kind).collect::<Vec<_>>(), [EventKind::Heli]);
}

#[test]
fn a_wipe_that_another_node_has_reported_is_none_here_and_its_world_is_stored() {
    let mut before = Watched::connected();
    assert_eq!(before.update(WorldUpdate::Info(info(90_000))).events.len(), 1);
    let mut after = Watched::new();
    after.update(stored(1_000));
    after.update(sent(&hand_over(&before)));
    let connected = after.update(GameUpdate::Connected(info(90_000)));
    assert!(connected.events.is_empty() && connected.world.learned);
    assert!(!after.update(WorldUpdate::Info(info(90_000))).world.learned, "once");
}

#[test]
fn a_link_that_was_up_here_knows_more_and_a_memory_that_was_never_used_is_handed_on() {
    let mut before = Watched::connected();
    before.update(team(&[(7, true), (8, true)]));
    let handed = hand_over(&before);
    let mut waiting = Watched::new();
    assert!(waiting.live.hand_over(at(0).into()).is_none(), "it knows nothing");
    waiting.update(sent(&handed));
    waiting.now = 9;
    let again = hand_over(&waiting);
    assert_eq!((again.lost_at, again.team.members), (handed.lost_at, handed.team.members.clone()));
    let mut late = Watched::connected();
    late.update(sent(&handed));
    late.update(GameUpdate::Unread);
    late.update(GameUpdate::Connected(info(1_000)));
    assert_eq!(late.client["team"]["members"], json!({}));
}
