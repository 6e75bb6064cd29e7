//! Looks at everything: at what is needed, and at what is noted. They take longer than all else, and go on beside it.

use std::{collections::BTreeSet, future::pending, time::Duration};

use futures_util::{FutureExt as _, future::LocalBoxFuture};
use tokio::time::Instant;

use crate::{
    db::{
        engine::{
            error::DbError,
            pool::{Db, Pool},
            query_failures::log_failure,
        },
        held_parts,
    },
    domain::ids::PartId,
    ownership::needed_parts::{all_parts, is_listed},
};

/// Time between two looks.
pub const LIST_EVERY: Duration = Duration::from_secs(60);
/// Pause after one that had no answer in time.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Findings of a look.
pub struct ListedParts {
    /// Parts that are needed and not noted.
    pub missing: BTreeSet<PartId>,
    /// Parts of this node that nothing needs.
    pub unneeded: BTreeSet<PartId>,
}

/// See the module.
#[derive(Default)]
pub struct PartListing {
    under_way: Option<LocalBoxFuture<'static, Result<ListedParts, DbError>>>,
    /// When the next one begins; `None`: now.
    next_at: Option<Instant>,
}

impl PartListing {
    /// Begins a look, by a node that has these parts, if one is due.
    pub fn begin_if_due<'a>(&mut self, pool: &Pool, held: impl Iterator<Item = &'a PartId>, now: Instant) {
        if self.under_way.is_some() || self.next_at.is_some_and(|at| now < at) {
            return;
        }
        let (pool, held) = (pool.clone(), held.filter(|part| is_listed(part)).cloned().collect::<BTreeSet<_>>());
        let list = async move {
            let list = move |db: &mut Db| {
                let all = all_parts(db)?;
                let unneeded: BTreeSet<PartId> = &held - &all;
                Ok(ListedParts { missing: held_parts::missing(db, all)?, unneeded })
            };
            pool.read(list).await
        };
        self.next_at = Some(now + LIST_EVERY);
        self.under_way = Some(list.boxed_local());
    }

    /// True while one goes on.
    #[cfg(test)]
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Completes when a look has ended well.
    pub async fn ended(&mut self) -> ListedParts {
        if let Some(under_way) = &mut self.under_way {
            let listed = under_way.await;
            self.under_way = None;
            match listed {
                Ok(listed) => return listed,
                Err(error) => {
                    self.next_at = Some(Instant::now() + AGAIN_AFTER);
                    log_failure("parts of the service are looked for later", &error);
                }
            }
        }
        pending().await
    }
}
