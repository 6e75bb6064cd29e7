//! The map, and what is on it, as another link to the game server has it.

use std::sync::Arc;

use super::*;
use crate::domain::world_map::MonumentMap;

fn map(wipe_time: u32) -> Arc<MonumentMap> {
    let monuments = Monument::new("launchsite", 1.0, 2.0).into_iter().collect();
    Arc::new(MonumentMap { world: reading::world(&info(wipe_time)), monuments })
}

#[test]
fn the_map_of_another_link_is_taken_if_it_is_of_the_present_world() {
    let mut watched = Watched::connected();
    assert!(!watched.update(WorldUpdate::SharedMap(map(90_000))).world.learned);
    assert!(watched.live.wants_map() && watched.live.map().is_none(), "it is of the next world");
    let (shared, same) = (map(1_000), map(1_000));
    assert!(watched.update(WorldUpdate::SharedMap(shared.clone())).world.learned);
    assert!(!watched.live.wants_map() && watched.live.map().is_some_and(|map| Arc::ptr_eq(map, &shared)));
    assert!(!watched.update(WorldUpdate::SharedMap(same.clone())).world.learned, "it was known");
    assert!(watched.live.map().is_some_and(|map| Arc::ptr_eq(map, &same)), "and is held once");
    watched.update(WorldUpdate::Info(info(90_000)));
    assert!(!watched.update(WorldUpdate::SharedMap(same)).world.learned);
    assert!(watched.live.wants_map() && watched.live.monuments().is_none(), "it is of the last world");
}

#[test]
fn markers_of_a_mates_link_are_shown_and_held_once() {
    let (mut mate, mut own) = (Watched::connected(), Watched::connected());
    for (ids, changes) in [(0..10, 10), (2..12, 4), (2..12, 0)] {
        mate.update(WorldUpdate::Markers(shops(ids)));
        let state = mate.live.state();
        let (all, players) = (state.map_markers.clone(), state.player_markers.clone());
        let outcome = own.update(GameUpdate::MarkersByMate { all, players });
        assert_eq!((outcome.changes.len(), outcome.world.shops_seen), (changes, true));
        assert_eq!(own.client["mapMarkers"], mate.client["mapMarkers"]);
    }
    let held = |watched: &Watched| watched.live.state().map_markers.get(&2).cloned();
    assert!(held(&mate).zip(held(&own)).is_some_and(|(of_mate, own)| Arc::ptr_eq(&of_mate, &own)));
    own.update(WorldUpdate::Markers(shops(1..12)));
    assert_eq!((own.client["mapMarkers"].as_object().unwrap().len(), mate.live.state().map_markers.len()), (11, 10));
}
