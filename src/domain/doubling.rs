//! When a growing collection is searched for entries that no longer count: once it has doubled since the last search, so
//! that all searches together cost each entry little.

/// See the module.
#[derive(Debug)]
pub struct Doubling {
    few: usize,
    full: usize,
}

impl Doubling {
    /// An empty collection, which is not searched while it has no more than a few entries.
    pub const fn new(few: usize) -> Self {
        Self { few, full: few }
    }

    /// True if a collection of this many entries is to be searched.
    pub fn is_reached(&self, entries: usize) -> bool {
        entries >= self.full
    }

    /// A search has left these entries.
    pub fn searched(&mut self, left: usize) {
        self.full = self.few.max(2 * left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_whose_entries_all_count_is_searched_each_time_that_it_has_doubled() {
        let mut doubling = Doubling::new(64);
        let searches = (0..10_000).filter(|entries| {
            let is_reached = doubling.is_reached(*entries);
            if is_reached {
                doubling.searched(*entries);
            }
            is_reached
        });
        assert_eq!(searches.collect::<Vec<_>>(), [64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192]);
        doubling.searched(3);
        assert!(doubling.is_reached(64) && !doubling.is_reached(63));
    }
}
