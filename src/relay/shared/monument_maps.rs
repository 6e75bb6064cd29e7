//! Maps of the game servers that this process has links to, without their drawings: one for each, however many have
//! paired it. Several links to one game server ask for it once. Pure bookkeeping.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::domain::{doubling::Doubling, ids::GameServerId, world_map::MonumentMap};

/// Maps of which those that no one holds are not looked for.
const FEW: usize = 64;

/// See the module. Shared by all game connections of the process; a map is known as long as one of them holds it.
#[derive(Default)]
pub struct MonumentMaps(Mutex<HeldMaps>);

struct HeldMaps {
    maps: HashMap<GameServerId, Weak<MonumentMap>>,
    searched: Doubling,
}

impl Default for HeldMaps {
    fn default() -> Self {
        Self { maps: HashMap::new(), searched: Doubling::new(FEW) }
    }
}

impl MonumentMaps {
    /// The newest map of this game server that a link has, perhaps of another world than the present one.
    pub fn get(&self, at: &GameServerId) -> Option<Arc<MonumentMap>> {
        self.lock().maps.get(at)?.upgrade()
    }

    /// A link has this map. Returns the one to hold: that of the others, if it is the same.
    pub fn share(&self, at: &GameServerId, map: &Arc<MonumentMap>) -> Arc<MonumentMap> {
        let HeldMaps { maps, searched } = &mut *self.lock();
        if let Some(known) = maps.get(at).and_then(Weak::upgrade).filter(|known| known == map) {
            return known;
        }
        if searched.is_reached(maps.len()) {
            maps.retain(|_, map| map.strong_count() > 0);
            searched.searched(maps.len());
        }
        maps.insert(at.clone(), Arc::downgrade(map));
        map.clone()
    }

    fn lock(&self) -> MutexGuard<'_, HeldMaps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::detect::wipe::World;

    fn map(seed: u32) -> Arc<MonumentMap> {
        Arc::new(MonumentMap { world: World { seed: Some(seed), ..World::default() }, monuments: Vec::new() })
    }

    #[test]
    fn links_to_one_game_server_hold_one_map_and_that_of_the_next_world_takes_its_place() {
        let (maps, here) = (MonumentMaps::default(), GameServerId::at("203.0.113.7", 28_082));
        assert_eq!(maps.get(&here), None);
        let first = maps.share(&here, &map(1));
        assert!(Arc::ptr_eq(&maps.share(&here, &map(1)), &first));
        assert_eq!(maps.get(&GameServerId::at("203.0.113.8", 28_082)), None, "another game server");
        let next = maps.share(&here, &map(2));
        assert_eq!(maps.get(&here), Some(next.clone()));
        drop(next);
        assert_eq!(maps.get(&here), None, "no one holds it");
        for number in 0..10 * FEW {
            maps.share(&number.to_string().into(), &map(3));
        }
        assert!(maps.lock().maps.len() <= FEW);
    }
}
