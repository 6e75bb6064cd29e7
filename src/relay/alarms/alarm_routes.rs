//! Routes of pushed alarms: straight to the game connection of their server while one runs, otherwise to the hub, which
//! starts one. Push sessions and the database's threads send along them; the hub alone changes them.
//!
//! A connection may end between the look-up and its turn: an alarm that it has not taken goes to the hub. Nothing depends
//! on the order of a burst, which the tasks of a connection do not keep either.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use actix::prelude::*;

use crate::{
    domain::ids::ServerId,
    relay::alarms::{alarm_delivery::PushedAlarm, received_at::ReceivedAt},
};

/// A push reports an alarm of this server. For the hub, which starts a game connection if need be.
#[derive(Message)]
#[rtype(result = "()")]
pub struct AlarmPushed {
    pub server: ServerId,
    pub alarm: PushedAlarm,
    pub received_at: ReceivedAt,
}

/// A pushed alarm, for the game connection of its server.
#[derive(Message)]
#[rtype(result = "()")]
pub struct DeliverPushedAlarm {
    /// None once it is taken.
    alarm: Option<AlarmPushed>,
    hub: Option<Recipient<AlarmPushed>>,
}

impl DeliverPushedAlarm {
    /// `hub` gets the alarm if the connection ends before it takes it. Without, it waits in the ledger for the next one.
    pub fn new(alarm: AlarmPushed, hub: Option<Recipient<AlarmPushed>>) -> Self {
        Self { alarm: Some(alarm), hub }
    }

    /// The alarm, which the caller delivers.
    pub fn take(mut self) -> Option<AlarmPushed> {
        self.alarm.take()
    }
}

impl Drop for DeliverPushedAlarm {
    fn drop(&mut self) {
        if let (Some(alarm), Some(hub)) = (self.alarm.take(), &self.hub) {
            hub.do_send(alarm);
        }
    }
}

/// The game connections that run. Clones share them.
#[derive(Clone, Default)]
pub struct AlarmRoutes(Arc<Mutex<HashMap<ServerId, Recipient<DeliverPushedAlarm>>>>);

impl AlarmRoutes {
    fn running(&self) -> MutexGuard<'_, HashMap<ServerId, Recipient<DeliverPushedAlarm>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on alarms of this server go to this connection.
    pub fn add(&self, server: ServerId, connection: Recipient<DeliverPushedAlarm>) {
        self.running().insert(server, connection);
    }

    /// From now on they go to the hub.
    pub fn remove(&self, server: &ServerId) {
        self.running().remove(server);
    }

    /// Delivers an alarm; a full mailbox takes it, too. Waits for nothing, and may be called on any thread.
    pub fn deliver(&self, alarm: AlarmPushed, hub: Recipient<AlarmPushed>) {
        let connection = self.running().get(&alarm.server).cloned();
        match connection {
            Some(connection) => connection.do_send(DeliverPushedAlarm::new(alarm, Some(hub))),
            None => hub.do_send(alarm),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;

    /// A game connection, or a hub, with room for one message; the ids of the alarms that it took.
    #[derive(Default)]
    struct SmallMailbox(Vec<String>);

    impl Actor for SmallMailbox {
        type Context = Context<Self>;

        fn started(&mut self, ctx: &mut Self::Context) {
            ctx.set_mailbox_capacity(1);
        }
    }

    impl Handler<DeliverPushedAlarm> for SmallMailbox {
        type Result = ();

        fn handle(&mut self, message: DeliverPushedAlarm, _: &mut Self::Context) {
            self.0.extend(message.take().map(|pushed| pushed.alarm.id));
        }
    }

    impl Handler<AlarmPushed> for SmallMailbox {
        type Result = ();

        fn handle(&mut self, pushed: AlarmPushed, _: &mut Self::Context) {
            self.0.push(pushed.alarm.id);
        }
    }

    /// The ids of the alarms that came since the last question.
    #[derive(Message)]
    #[rtype(result = "Vec<String>")]
    struct TakeIds;

    impl Handler<TakeIds> for SmallMailbox {
        type Result = Vec<String>;

        fn handle(&mut self, _: TakeIds, _: &mut Self::Context) -> Vec<String> {
            std::mem::take(&mut self.0)
        }
    }

    /// End at once: messages that wait are dropped.
    #[derive(Message)]
    #[rtype(result = "()")]
    struct EndNow;

    impl Handler<EndNow> for SmallMailbox {
        type Result = ();

        fn handle(&mut self, _: EndNow, ctx: &mut Self::Context) {
            ctx.stop();
        }
    }

    fn pushed(id: &str) -> AlarmPushed {
        let alarm = PushedAlarm {
            id: id.into(),
            title: "Raid".into(),
            message: String::new(),
            sent: Timestamp::UNIX_EPOCH,
            incident: None,
        };
        AlarmPushed { server: "one".into(), alarm, received_at: ReceivedAt::now() }
    }

    /// Actors that have started: a game connection with the route of the server, and the hub.
    async fn started() -> (AlarmRoutes, Addr<SmallMailbox>, Addr<SmallMailbox>) {
        let (connection, hub) = (SmallMailbox::default().start(), SmallMailbox::default().start());
        assert!(connection.send(TakeIds).await.unwrap().is_empty() && hub.send(TakeIds).await.unwrap().is_empty());
        let routes = AlarmRoutes::default();
        routes.add("one".into(), connection.clone().recipient());
        (routes, connection, hub)
    }

    #[actix::test]
    async fn a_full_mailbox_takes_every_alarm() {
        let (routes, connection, hub) = started().await;
        let ids: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        ids.iter().for_each(|id| routes.deliver(pushed(id), hub.clone().recipient()));
        assert_eq!(connection.send(TakeIds).await.unwrap(), ids);
        assert!(hub.send(TakeIds).await.unwrap().is_empty());
    }

    #[actix::test]
    async fn alarms_that_a_connection_has_not_taken_go_to_the_hub() {
        let (routes, connection, hub) = started().await;
        routes.deliver(pushed("taken"), hub.clone().recipient());
        connection.do_send(EndNow);
        ["waits", "waits, too"].into_iter().for_each(|id| routes.deliver(pushed(id), hub.clone().recipient()));
        // Dropped with the mailbox.
        assert!(connection.send(TakeIds).await.is_err());
        routes.deliver(pushed("comes later"), hub.clone().recipient());
        routes.remove(&"one".into());
        routes.deliver(pushed("has no route"), hub.clone().recipient());
        assert_eq!(hub.send(TakeIds).await.unwrap(), ["waits", "waits, too", "comes later", "has no route"]);
    }

    #[actix::test]
    async fn an_alarm_of_the_hub_does_not_come_back() {
        let (_, connection, hub) = started().await;
        connection.send(EndNow).await.unwrap();
        connection.do_send(DeliverPushedAlarm::new(pushed("by the hub"), None));
        assert!(connection.send(TakeIds).await.is_err());
        assert!(hub.send(TakeIds).await.unwrap().is_empty());
    }
}
