//! On a node of several: push sessions begin and end as they come to this node and go.

use std::{sync::Arc, time::Duration};

use actix::prelude::*;

use super::PushWorker;
use crate::{
    db::{
        engine::{error::DbError, query_failures::log_failure},
        push_credentials,
    },
    domain::{fence::Fence, ids::UserId, time::Timestamp},
    ownership::Ownership,
    push::{context::PushContext, login_pacer, owned_sessions::UploadChanges},
};

/// Time between two reads of the users with a credential, where nothing gives a reason before.
const READ_EVERY: Duration = Duration::from_secs(20);
/// Pause before a read that failed is tried again.
const READ_AGAIN: Duration = Duration::from_secs(5);

impl PushWorker {
    /// The context of the session of this user, and the right by which it stores; `None`: another node has the session,
    /// or none has.
    pub(super) fn context_of(&self, user: &UserId) -> Option<(Arc<PushContext>, Option<Fence>)> {
        let Some(owned) = &self.owned else { return Some((self.context.clone(), None)) };
        let fence = owned.fence(user)?;
        let right = Fence::clone(&fence);
        Some((Arc::new(self.context.fenced_by(fence)), Some(right)))
    }

    /// Begins and ends sessions from now on, as parts come and go.
    pub(super) fn follow_parts(&mut self, ctx: &mut Context<Self>) {
        let Some(owned) = &self.owned else { return };
        self.await_parts(owned.ownership.clone(), ctx);
        self.read_uploads(ctx);
        ctx.run_interval(READ_EVERY, Self::read_uploads);
    }

    fn await_parts(&self, mut ownership: Ownership, ctx: &mut Context<Self>) {
        let changed = async move {
            let goes_on = ownership.changed().await;
            (ownership, goes_on)
        };
        ctx.spawn(changed.into_actor(self).map(|(ownership, goes_on), worker, ctx| {
            worker.take_parts();
            if worker.owned.as_mut().is_some_and(|owned| owned.has_more()) {
                worker.read_uploads(ctx);
            }
            if goes_on {
                worker.await_parts(ownership, ctx);
            }
        }));
    }

    /// Ends the sessions that this node has no longer, and begins those that it has now.
    fn take_parts(&mut self) {
        let Some(owned) = &self.owned else { return };
        self.sessions.retain(|user, session| owned.fence(user).as_deref() == session.fence.as_ref());
        self.context.logins.set_sessions(self.sessions.len());
        let new = owned.here().filter(|user| !self.sessions.contains_key(*user));
        let new: Vec<UserId> = new.cloned().collect();
        let (spread, count) = (login_pacer::spread(new.len()), new.len() as f64);
        for (place, user) in new.into_iter().enumerate() {
            self.supervise(user, spread.mul_f64(place as f64 / count));
        }
    }

    /// Reads the users with a credential; one read at a time.
    pub(super) fn read_uploads(&mut self, ctx: &mut Context<Self>) {
        let Some(owned) = &mut self.owned else { return };
        if !owned.reading.begin() {
            return;
        }
        let pool = self.context.pool.clone();
        let read = async move { pool.read(push_credentials::list_uploads).await };
        ctx.spawn(read.into_actor(self).map(|uploads, worker, ctx| worker.uploads_read(uploads, ctx)));
    }

    fn uploads_read(&mut self, uploads: Result<Vec<(UserId, Timestamp)>, DbError>, ctx: &mut Context<Self>) {
        let Some(owned) = &mut self.owned else { return };
        let again = owned.reading.end();
        match uploads {
            Ok(uploads) => {
                let UploadChanges { renewed, new_parts } = owned.read(uploads);
                // At a start all are new, and the node lists them by itself.
                if self.sessions_loaded {
                    new_parts.into_iter().for_each(|part| owned.ownership.want(part));
                }
                self.sessions_loaded = true;
                for user in renewed {
                    self.supervise(user, Duration::ZERO);
                }
                self.take_parts();
            }
            Err(error) => {
                log_failure("the users with a push credential are read later", &error);
                ctx.run_later(READ_AGAIN, Self::read_uploads);
            }
        }
        if again {
            self.read_uploads(ctx);
        }
    }
}
