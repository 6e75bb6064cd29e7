use super::*;
use crate::{domain::time::Timestamp, game::wire::AppMarkerType};

fn world() -> SimulatedWorld {
    SimulatedWorld::new(7, Timestamp::from_unix(1_790_000_000).expect("a time"))
}

fn marker(world: &SimulatedWorld, kind: AppMarkerType) -> Option<&AppMarker> {
    world.markers.iter().find(|marker| marker.r#type == kind as i32)
}

/// Advances the world second by second; the second at which this first holds.
fn first(
    world: &mut SimulatedWorld,
    seconds: i64,
    holds: impl Fn(&SimulatedWorld, &[WorldChange]) -> bool,
) -> Option<i64> {
    let start = world.now();
    (1..=seconds).find(|second| {
        world.advance_to(start + TimeDelta::seconds(*second));
        let changes = world.take_changes();
        holds(world, &changes)
    })
}

#[test]
fn first_ninety_seconds_are_dense() {
    let within = |low: i64, high: i64, what: &str, holds: &dyn Fn(&SimulatedWorld, &[WorldChange]) -> bool| {
        let second = first(&mut world(), 90, holds);
        assert!(second.is_some_and(|second| (low..=high).contains(&second)), "{what}: {second:?}");
    };
    let marlow = |world: &SimulatedWorld| world.member(TEAM[1].0).map(|member| (member.x, member.y));
    let before = marlow(&world());
    within(1, 1, "movement", &|world, _| marlow(world) != before);
    within(4, 6, "chat", &|_, changes| changes.iter().any(|change| matches!(change, WorldChange::Chat { .. })));
    within(9, 11, "cargo ship", &|world, _| marker(world, AppMarkerType::CargoShipMarker).is_some());
    within(19, 21, "alarm", &|_, changes| {
        let is_alarm =
            |change: &_| matches!(change, WorldChange::Entity { entity_id: BASE_ALARM, payload } if payload.value());
        changes.iter().any(is_alarm)
    });
    within(29, 31, "helicopter", &|world, _| marker(world, AppMarkerType::PatrolHelicopterMarker).is_some());
    within(39, 41, "death", &|world, _| world.players().any(|member| !member.is_alive));
    within(49, 90, "logout", &|world, _| world.players().skip(1).any(|member| !member.is_online));
    within(59, 61, "Chinook at a rig", &|world, _| {
        marker(world, AppMarkerType::Ch47Marker).is_some_and(|chinook| {
            let at = Point::new(chinook.x, chinook.y);
            ["oil_rig_small", "large_oil_rig"].iter().any(|rig| world.terrain().monument(rig).distance(at) < 550.0)
        })
    });
}

#[test]
fn same_seed_gives_the_same_events() {
    let run = |seed| {
        let mut world = SimulatedWorld::new(seed, Timestamp::from_unix(1_790_000_000).expect("a time"));
        first(&mut world, 120, |_, _| false);
        (world.map_markers(1), world.team_chat(TEAM[0].0))
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn a_week_later_the_world_is_no_larger() {
    let mut world = world();
    let mut shops_changed = false;
    for hour in 1..=24 * 7 {
        let before = world.markers.clone();
        world.advance_to(world.now() + TimeDelta::hours(1));
        shops_changed |= before != world.markers;
        world.take_changes();
        let markers = world.markers.iter().count();
        assert!(markers < 60, "hour {hour}: {markers} markers");
        assert!(world.script.len() < 60, "hour {hour}: {} events", world.script.len());
    }
    assert!(shops_changed);
    assert_eq!(world.team_chat(TEAM[0].0).expect("a team").messages.len(), chat::CHAT_LINES);
}

#[test]
fn a_world_that_was_asleep_skips_what_it_missed() {
    let mut world = world();
    let until = world.now() + TimeDelta::days(3650);
    world.advance_to(until);
    assert_eq!(world.now(), until);
    assert!(world.take_changes().len() < 1000);
    world.advance_to(until - TimeDelta::days(1));
    assert_eq!(world.now(), until, "time does not run backwards");
}

#[test]
fn a_wipe_removes_devices_and_map_and_keeps_the_team() {
    let mut world = world().with_markers(100);
    assert!(world.markers.iter().count() > 140);
    let before = world.info();
    world.wipe();
    assert_eq!(world.take_changes(), [WorldChange::Wiped]);
    let after = world.info();
    assert!(after.wipe_time > before.wipe_time + 60 && after.seed != before.seed);
    assert_eq!((world.devices().count(), world.team_info(TEAM[0].0).members.len()), (0, 4));
    first(&mut world, 600, |_, _| false);
}

#[test]
fn teams_of_a_lively_world_change_and_no_player_is_lost() {
    let mut world = world();
    let founders = roster(3, 3);
    for team in &founders {
        world.found_team(team);
    }
    world.enliven_teams();
    let mut leaders = std::collections::BTreeSet::new();
    let (mut alone, mut guests) = (0, 0);
    for _ in 0..240 {
        world.advance_to(world.now() + TimeDelta::seconds(15));
        world.take_changes();
        for team in &founders {
            let (first, last) = (world.team_of(team[0].0).expect("a team"), world.team_of(team[2].0));
            leaders.insert(first.leader());
            alone += usize::from(last.is_none());
            guests += usize::from(last.is_some_and(|last| last.id() != first.id()));
        }
        let members: Vec<u64> = world.teams().flat_map(|team| team.members()).copied().collect();
        let places: std::collections::BTreeSet<u64> = members.iter().copied().collect();
        assert_eq!(places.len(), members.len(), "a player is in one team at most");
    }
    assert!(leaders.len() == 6 && alone > 10 && guests > 10, "{leaders:?} {alone} {guests}");
    world.wipe();
    assert!(world.teams().map(|team| team.members().len()).eq([4, 3, 3, 3]));
}
