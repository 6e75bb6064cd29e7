//! Holds the list of erasures against the database: a kill, or a disk that took nothing, may have kept one off it.

use actix_web::web;

use crate::{
    api::context::ApiContext,
    db::{
        engine::query_failures::log_failure,
        files::erasure_list::{self, ERASURES, OpenErasures},
        node_news,
    },
};

impl ApiContext {
    /// Notes on the list who has erased themselves at another node.
    pub(super) async fn copy_erasures(&self) {
        let (notes, data_dir, now) =
            (self.health.erasure_notes.clone(), self.settings.data_dir.clone(), self.clock.now());
        match self.pool.read(node_news::erased_users).await {
            Ok(erased) => {
                // A panic is reported there.
                if let Ok(Err(error)) = web::block(move || notes.copy(&data_dir, erased, now)).await {
                    log::warn!("{ERASURES} cannot be read: {error}");
                }
            }
            Err(error) => log_failure("erasures of other nodes are noted later", &error),
        }
    }

    /// Notes on the list what it lacks. Costs nothing while no user erases themselves.
    pub(super) async fn settle_erasures(&self) {
        let (notes, data_dir, now) =
            (self.health.erasure_notes.clone(), self.settings.data_dir.clone(), self.clock.now());
        // On a thread that may wait: a file system may hang.
        let (caught_up, directory) = (notes.clone(), data_dir.clone());
        let open = match web::block(move || caught_up.catch_up(&directory, now)).await {
            Ok(Ok(open)) => open,
            Ok(Err(error)) => {
                log::warn!("{ERASURES} cannot be read: {error}");
                return;
            }
            // A panic, which is reported there.
            Err(_) => OpenErasures::new(),
        };
        if open.is_empty() {
            return;
        }
        let users: Vec<_> = open.keys().cloned().collect();
        match self.pool.read(move |db| erasure_list::present(db, &users)).await {
            Ok(Some(present)) => {
                let _ = web::block(move || notes.settle(&data_dir, &open, &present, now)).await;
            }
            Ok(None) => {}
            Err(error) => log_failure("the list of erasures is not held against the database", &error),
        }
    }
}
