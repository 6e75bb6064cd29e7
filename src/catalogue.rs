//! The catalogue of items as admins have edited it: shared by all that write names ([`SharedCatalogue`]), and kept as
//! the database has it ([`CatalogueKeeper`]), at once when this process changed it, within five seconds when another one
//! did.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tokio::{sync::Mutex, time};

use crate::{
    db::{
        edited_items,
        engine::{error::DbError, pool::Pool, query_failures::log_failure},
    },
    domain::items::Catalogue,
};

/// Interval of the looks for changes by another process.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The catalogue of now. Clones share it; without an edit it is the embedded one.
#[derive(Clone, Debug)]
pub struct SharedCatalogue(Arc<RwLock<Arc<Catalogue>>>);

impl Default for SharedCatalogue {
    fn default() -> Self {
        Self(Arc::new(RwLock::new(Catalogue::embedded().clone())))
    }
}

impl SharedCatalogue {
    /// The catalogue of now. Ask for it again with each request or message, or edits stay unseen.
    pub fn current(&self) -> Arc<Catalogue> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, catalogue: Catalogue) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(catalogue);
    }
}

/// See the module.
pub struct CatalogueKeeper {
    pool: Pool,
    shared: SharedCatalogue,
    refreshing: Mutex<()>,
}

impl CatalogueKeeper {
    /// Brings the catalogue up to date. Blocks.
    pub fn open(pool: Pool) -> Result<Self, DbError> {
        let (version, edits) = pool.read_blocking(edited_items::list)?;
        let shared = SharedCatalogue::default();
        if version != 0 {
            shared.set(Catalogue::edited(version, &edits));
        }
        Ok(Self { pool, shared, refreshing: Mutex::default() })
    }

    /// The catalogue that it keeps up to date.
    pub fn shared(&self) -> &SharedCatalogue {
        &self.shared
    }

    /// The catalogue of now.
    pub fn current(&self) -> Arc<Catalogue> {
        self.shared.current()
    }

    /// Brings the catalogue up to date, if it is not. Call it after every change.
    pub async fn refresh(&self) -> Result<(), DbError> {
        // One at a time, or an older answer could come last.
        let _turn = self.refreshing.lock().await;
        if self.pool.read(edited_items::version).await? != self.current().version() {
            let (version, edits) = self.pool.read(edited_items::list).await?;
            self.shared.set(Catalogue::edited(version, &edits));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        db::testing::{self, now},
        domain::items::ItemEdit,
    };

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
            let keeper = CatalogueKeeper::open(pool.clone()).unwrap();
            let shared = keeper.shared().clone();
            let seen = || {
                let catalogue = shared.current();
                (catalogue.version(), catalogue.name(31_415).as_deref().map(str::to_owned))
            };
            let runtime = actix::System::new();
            runtime.block_on(keeper.refresh()).unwrap();
            assert_eq!(seen(), (0, None));
            pool.write_blocking(|db| edited_items::put(db, &edit, now())).unwrap();
            assert_eq!(seen(), (0, None));
            runtime.block_on(keeper.refresh()).unwrap();
            assert_eq!(seen(), (1, Some("Kept Item".to_owned())));
            let restarted = CatalogueKeeper::open(pool.clone()).unwrap();
            assert_eq!(restarted.current().name(31_415).as_deref(), Some("Kept Item"));
            pool.write_blocking(|db| edited_items::delete(db, 31_415)).unwrap();
            runtime.block_on(restarted.refresh()).unwrap();
            assert_eq!((restarted.current().version(), restarted.current().name(31_415)), (2, None));
            assert_eq!(seen().0, 1, "each keeper has its own");
        });
    }
}
