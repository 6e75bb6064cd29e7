//! Keeps the catalogue of items in memory ([`items`]) as the database has it: at once when this process changed it,
//! within five seconds when another one did.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use tokio::{sync::Mutex, time};

use crate::{
    db::{
        edited_items,
        engine::{error::DbError, pool::Pool},
        query_failures::log_failure,
    },
    domain::items::{self, ItemEdit},
};

/// Interval of the looks for changes by another process.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// See the module.
pub struct CatalogueKeeper {
    pool: Pool,
    version: AtomicI64,
    /// The part of the catalogue in memory that comes from the database.
    known: Mutex<HashMap<i32, ItemEdit>>,
}

impl CatalogueKeeper {
    /// Brings the catalogue up to date. Blocks.
    pub fn open(pool: Pool) -> Result<Self, DbError> {
        let (version, edits) = pool.read_blocking(edited_items::list)?;
        let mut known = HashMap::new();
        apply(&mut known, edits);
        Ok(Self { pool, version: AtomicI64::new(version), known: Mutex::new(known) })
    }

    /// The version of the catalogue in memory: another one, another catalogue.
    pub fn version(&self) -> i64 {
        self.version.load(Ordering::Acquire)
    }

    /// Brings the catalogue up to date, if it is not. Call it after every change.
    pub async fn refresh(&self) -> Result<(), DbError> {
        // One at a time, or an older answer could come last.
        let mut known = self.known.lock().await;
        if self.pool.read(edited_items::version).await? != self.version() {
            let (version, edits) = self.pool.read(edited_items::list).await?;
            apply(&mut known, edits);
            self.version.store(version, Ordering::Release);
        }
        Ok(())
    }

    /// Looks for changes of other processes, as long as it runs.
    pub async fn run(&self) {
        let mut ticks = time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = self.refresh().await {
                log_failure("the catalogue of items may be out of date", &error);
            }
        }
    }
}

/// Makes the catalogue what these edits say; `known` is what was said before.
fn apply(known: &mut HashMap<i32, ItemEdit>, edits: Vec<ItemEdit>) {
    let edits: HashMap<i32, ItemEdit> = edits.into_iter().map(|edit| (edit.id, edit)).collect();
    for id in known.keys().filter(|id| !edits.contains_key(id)) {
        items::reset_to_shipped(*id);
    }
    for (id, edit) in &edits {
        if known.get(id) != Some(edit) {
            items::put(edit);
        }
    }
    *known = edits;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, now};

    /// Uses an item that no other test looks at: the catalogue is one for the process.
    #[test]
    fn a_change_of_another_process_is_noticed() {
        testing::on_each_database(|pool| {
            let edit = ItemEdit {
                id: 31_415,
                shortname: "kept.item".into(),
                name: "Kept Item".into(),
                category: "Misc".into(),
                stack_size: None,
                icon: None,
            };
            let name = || items::item(31_415).map(|item| item.name.to_string());
            let keeper = CatalogueKeeper::open(pool.clone()).unwrap();
            let runtime = actix::System::new();
            runtime.block_on(keeper.refresh()).unwrap();
            assert_eq!((keeper.version(), name()), (0, None));
            pool.write_blocking(|db| edited_items::put(db, &edit, now())).unwrap();
            runtime.block_on(keeper.refresh()).unwrap();
            assert_eq!((keeper.version(), name().as_deref()), (1, Some("Kept Item")));
            let restarted = CatalogueKeeper::open(pool.clone()).unwrap();
            pool.write_blocking(|db| edited_items::delete(db, 31_415)).unwrap();
            runtime.block_on(restarted.refresh()).unwrap();
            assert_eq!((restarted.version(), name()), (2, None));
        });
    }
}
