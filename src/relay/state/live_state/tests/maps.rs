//! The map that another link to the game server has.

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
