//! Bob erases himself, and signs in again five seconds later as a new user. Nothing that was his is left, or arrives.

use std::time::Duration;

use companion::{
    db::{
        engine::pool::{Db, Pool},
        personal_data::{self, Erased},
        schema::{alarms, chat_lines, incidents, map_notes, timeline},
        users,
    },
    domain::ids::{SessionId, UserId},
    push::worker::{CredentialChanged, PushWorker, ServersChanged},
    relay::hub::{AccessChanged, AcknowledgementsErased, Hub, NotesChanged, ServerRemoved, ToConnection, UserErased},
    simulator::world::TEAM,
};
use diesel::{ExpressionMethods as _, QueryDsl as _, RunQueryDsl as _};
use tokio::time::{Instant, sleep};

use crate::{
    judge::Judge,
    life::{self, Service},
    run::Run,
    world::{PAIRED, PHONES, USERS, UserAct, world},
};

/// The user that erases himself.
pub const ERASED: usize = 1;

impl Run {
    /// He erases himself, and comes back as a new user.
    pub fn erase(&self) {
        let (world, next) = (self.world.clone(), self.next_session());
        let dashboards: Vec<_> = self.dashboards.iter().filter(|it| it.user == ERASED).cloned().collect();
        {
            let mut judge = world.judge.borrow_mut();
            judge.lossy = true;
            judge.forget_user();
        }
        tokio::task::spawn_local(async move {
            if world.act(UserAct::Erase).await {
                world.trace("erased");
                for dashboard in &dashboards {
                    if let Some((wire, _)) = &*dashboard.wire.borrow() {
                        wire.revoked_at.set(Some(Instant::now()));
                    }
                }
            }
            sleep(Duration::from_secs(5)).await;
            while !world.act(UserAct::Return(life::session(ERASED, next))).await {
                sleep(Duration::from_secs(2)).await;
            }
            dashboards.iter().for_each(|dashboard| dashboard.use_session(next));
        });
    }
}

impl Service {
    /// Does as `DELETE /me`.
    pub async fn erase(&self, hub: &actix::Addr<Hub>, push: &actix::Addr<PushWorker>) -> bool {
        let (world, id) = (world(), UserId::from(USERS[ERASED]));
        let shared = world.judge.borrow().server(PAIRED[0].0);
        let change = shared.as_ref().map(|server| world.judge.borrow_mut().guests.attempt(server, false));
        let (now, user) = (world.clock.now(), id.clone());
        let erase = move |db: &mut Db| match users::find(db, &user)? {
            Some(user) => personal_data::erase(db, &user, now).map(Some),
            None => Ok(None),
        };
        let (hub, push) = (hub.clone(), push.clone());
        let notify = move |erased: &Option<Erased>| {
            let Some(Erased { servers, shared, acknowledged, notes, .. }) = erased else { return };
            hub.do_send(UserErased { user: id.clone() });
            servers.iter().cloned().for_each(|server| hub.do_send(ServerRemoved { server }));
            for (server, note) in notes.iter().cloned() {
                hub.do_send(ToConnection { server, message: NotesChanged { deleted: Some(note) } });
            }
            shared.iter().cloned().for_each(|server| hub.do_send(AccessChanged { server }));
            for server in acknowledged.iter().cloned() {
                let message = AcknowledgementsErased { user: id.clone() };
                hub.do_send(ToConnection { server, message });
            }
            push.do_send(CredentialChanged { user: id.clone() });
            push.do_send(ServersChanged { user: id });
        };
        let Ok(Some(erased)) = self.pool.write_and_notify(erase, notify).await else { return false };
        let mut judge = world.judge.borrow_mut();
        erased.servers.iter().for_each(|server| judge.server_gone(server));
        if let (Some(server), Some(change)) = (shared, change) {
            judge.guests.acknowledge(&server, false, change);
        }
        true
    }

    /// He signs in again, and uploads his credential.
    pub async fn come_back(&self, session: SessionId, push: &actix::Addr<PushWorker>) -> bool {
        let (this, now, id) = (self.clone(), world().clock.now(), UserId::from(USERS[ERASED]));
        let sign_in = move |db: &mut Db| {
            users::sign_in(db, &id, &TEAM[ERASED].0.to_string().into(), None, now)?;
            life::put_session(db, &session, &id, now)?;
            this.upload(db, ERASED, PHONES[ERASED].1, &world())
        };
        let push = push.clone();
        let notify = move |_: &_| push.do_send(CredentialChanged { user: USERS[ERASED].into() });
        self.pool.write_and_notify(sign_in, notify).await.is_ok()
    }
}

impl Judge {
    /// Everything that is his may go with him from now on.
    fn forget_user(&mut self) {
        let own = PAIRED.iter().enumerate().filter(|(_, (_, owner, _))| *owner == ERASED);
        self.deleted.extend(own.map(|(paired, _)| paired));
        self.wishes.erase(ERASED);
        self.records.erase(ERASED);
    }

    /// Nothing is left of servers that were deleted.
    pub fn check_gone(&mut self, pool: &Pool, gone: &[String]) {
        let left = pool.read_blocking(|db| {
            let mut left = Vec::new();
            for server in gone {
                let rows: [i64; 5] = [
                    alarms::table.filter(alarms::server_id.eq(server)).count().get_result(db)?,
                    incidents::table.filter(incidents::server_id.eq(server)).count().get_result(db)?,
                    timeline::table.filter(timeline::server_id.eq(server)).count().get_result(db)?,
                    chat_lines::table.filter(chat_lines::server_id.eq(server)).count().get_result(db)?,
                    map_notes::table.filter(map_notes::server_id.eq(server)).count().get_result(db)?,
                ];
                left.extend(rows.iter().any(|rows| *rows > 0).then(|| format!("{server}: {rows:?}")));
            }
            Ok(left)
        });
        let left = left.expect("the database can be read");
        if !left.is_empty() {
            self.broken("gone-is-gone", left.join(", "));
        }
    }
}
