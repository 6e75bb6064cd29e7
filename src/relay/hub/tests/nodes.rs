//! A hub on a node of several.

use std::{cell::Cell, collections::BTreeSet};

use serde_json::Value;
use tokio::sync::oneshot;

use super::*;
use crate::{
    cluster::node_mail::{Letter, MailRoute, Outbox, mail},
    db::{
        alarms::{
            alarm_ledger::{self, LedgerAlarm},
            incidents,
        },
        held_parts, node_news, sessions,
    },
    domain::{
        ids::{GameServerId, PartId},
        limits,
        node_news::NodeNews,
        world_event::{EventKind, WorldEvent},
    },
    net::shared_guesses::WrongGuess,
    ownership::{NodeSeat, needed_parts::push_session},
    relay::client::server_lookup::FindError,
};

/// The seat and the mail of a process, and what its hub gets.
fn node(process: &str) -> (NodeSeat, MailRoute, HubNode) {
    let ((seat, ownership), (mail, route)) = (NodeSeat::new(process), mail());
    (seat, route, HubNode { ownership, mail, guesses: Arc::default() })
}

/// A hub on a node that has nothing yet.
fn start(servers: &[&str]) -> (Relay, NodeSeat) {
    let (seat, _, node) = node("here");
    (Relay::start_on_node(GameLinkPolicy::Always, servers, |_| {}, Some(node)), seat)
}

/// Carries the messages of two processes to each other.
async fn carry(routes: [(&str, MailRoute); 2]) {
    carry_unless(routes, |_| false).await;
}

/// Likewise, but some are lost.
pub(super) async fn carry_unless(mut routes: [(&str, MailRoute); 2], is_lost: impl Fn(&Letter) -> bool) {
    loop {
        let [(_, one), (_, two)] = &mut routes;
        let letter = tokio::select! {
            letter = one.outgoing.recv() => letter,
            letter = two.outgoing.recv() => letter,
        };
        let Some(letter) = letter else { return };
        if is_lost(&letter) {
            continue;
        }
        let route = routes.iter().find(|(process, _)| *process == letter.to);
        route.into_iter().for_each(|(_, route)| route.deliver(letter.message.clone()));
    }
}

/// The node of this name takes over the game server of this one.
pub(super) fn take(relay: &Relay, server: &str, node: &str) -> Arc<Fence> {
    let part = PartId::links(&GameServerId::at(&host(server), 28082));
    let parts = BTreeSet::from([part]);
    let taken = relay.write(|db| {
        held_parts::note(db, &parts, now())?;
        let holders = held_parts::holders(db)?;
        held_parts::take(db, &parts, &holders, &node.into(), now())
    });
    Arc::new(taken.into_iter().next().expect("it is free, or of a node that is gone"))
}

impl Relay {
    /// The hub of another node over the same database.
    pub(super) fn hub_of(&self, node: HubNode) -> Addr<Hub> {
        let context = Arc::new(RelayContext::clone(&self.context));
        let arbiters = vec![Arbiter::current()];
        Hub::new(context, Arc::default(), arbiters, AlarmRoutes::default(), Some(node)).start()
    }
}

/// Two nodes over one database. The first has the server "one"; the other has none, and its hub is `hub`.
pub(super) struct Nodes {
    pub relay: Relay,
    pub hub: Addr<Hub>,
    pub here: NodeSeat,
    pub there: NodeSeat,
    /// Messages of the first.
    pub outbox: Outbox,
    /// For [`carry`].
    pub routes: [(&'static str, MailRoute); 2],
}

impl Nodes {
    pub(super) async fn start() -> Self {
        Self::start_with(GameLinkPolicy::Always).await
    }

    pub(super) async fn start_with(link_policy: GameLinkPolicy) -> Self {
        let nodes = Self::without_parts(link_policy, &["one"]);
        nodes.here.seat([take(&nodes.relay, "one", "here-1")]);
        nodes.there.seat([]);
        sleep(Duration::from_secs(10)).await;
        nodes
    }

    /// Neither has a lease yet.
    pub(super) fn without_parts(link_policy: GameLinkPolicy, servers: &[&str]) -> Self {
        let ((here, route, node_here), (there, route_there, node_there)) = (node("here"), node("there"));
        let outbox = node_here.mail.outbox.clone();
        let relay = Relay::start_on_node(link_policy, servers, |_| {}, Some(node_here));
        let hub = relay.hub_of(node_there);
        Self { relay, hub, here, there, outbox, routes: [("here", route), ("there", route_there)] }
    }
}

/// A player of the server "one", with the title of the event.
pub(super) fn came_online(title: String) -> PlayerSeen {
    let (kind, action, grid, data) = (EventKind::Login, "login", String::new(), Default::default());
    let event = WorldEvent { kind, action, grid, x: None, y: None, ts: now(), title, data };
    PlayerSeen { server: "one".into(), event }
}

#[test]
fn a_node_has_the_links_of_its_game_servers_only() {
    simulated(async {
        let (relay, seat) = start(&["one", "two"]);
        let (worker, one, alice) = (relay.worker(), "one".into(), "alice".into());
        sleep(Duration::from_secs(20)).await;
        assert!(relay.hub.send(LinksLoaded).await.unwrap());
        assert_eq!((relay.outside.dials("one"), relay.outside.dials("two")), (0, 0));
        let found = relay.hub.send(FindServer { server: "one".into() }).await.unwrap();
        assert!(matches!(found, Err(FindError::NoNode)));
        assert!(worker.subscription(&one, &alice).await.is_err(), "it is tried again");

        let right = take(&relay, "one", "here");
        seat.seat([right.clone()]);
        sleep(Duration::from_secs(20)).await;
        assert!(relay.outside.dials("one") > 0 && relay.outside.dials("two") == 0);
        assert!(relay.status("one").await.is_some() && relay.status("two").await.is_none());
        assert!(Arc::strong_count(&right) > 2, "its game connection shares the right");

        let (_subscription, socket, _client) = watch(&worker, "one").await;
        seat.seat([take(&relay, "two", "here")]);
        sleep(Duration::from_secs(20)).await;
        assert!(relay.outside.dials("two") > 0);
        let reason = relay.status("one").await.and_then(|link| link.reason);
        assert_eq!(reason, Some(LinkReason::NodeSilent), "by the database it is still here");
        assert_eq!(socket.closing(), None, "its subscription looks for the node that has the server");
        assert_eq!((Arc::strong_count(&right), relay.outside.open.load(Ordering::Relaxed)), (1, 1));
    });
}

#[test]
fn a_game_server_that_comes_back_is_written_for_by_the_new_right() {
    simulated(async {
        let (relay, seat) = start(&["one"]);
        let first = take(&relay, "one", "here");
        seat.seat([first.clone()]);
        sleep(Duration::from_secs(5)).await;
        take(&relay, "one", "elsewhere");
        let second = take(&relay, "one", "here");
        assert_eq!((first.number, second.number), (1, 3));
        // Both changes at once, for the hub.
        seat.seat([second.clone()]);
        sleep(Duration::from_secs(5)).await;
        assert_eq!(Arc::strong_count(&first), 1);
        assert!(Arc::strong_count(&second) > 2);
    });
}

#[test]
fn servers_that_other_nodes_pair_and_delete_are_found() {
    simulated(async {
        let (relay, seat) = start(&["one", "two"]);
        seat.seat(["one", "two", "three"].map(|server| take(&relay, server, "here")));
        sleep(Duration::from_secs(20)).await;
        assert!(relay.outside.dials("one") > 0 && relay.outside.dials("two") > 0);
        assert_eq!(relay.outside.dials("three"), 0);
        pair(&relay.context, &["three"]);
        sleep(Duration::from_secs(10)).await;
        assert!(relay.outside.dials("three") > 0);
        relay.delete_row("two");
        sleep(Duration::from_secs(80)).await;
        assert!(relay.status("two").await.is_none() && relay.status("one").await.is_some());
    });
}

#[test]
fn an_alarm_that_another_node_has_stored_is_delivered() {
    simulated(async {
        let (relay, seat) = start(&["one", "two"]);
        seat.seat([take(&relay, "one", "here")]);
        sleep(Duration::from_secs(5)).await;
        for server in ["one", "two"] {
            let alarm = testing::received_alarm(&format!("alarm of {server}"));
            let alarm = LedgerAlarm { server: Some(server.into()), ..alarm };
            assert!(relay.write(|db| alarm_ledger::receive(db, &alarm)));
        }
        sleep(Duration::from_secs(5)).await;
        let count = |db: &mut Db, server: &str| incidents::list(db, &server.into(), None, 9).map(|known| known.len());
        let waiting = |db: &mut Db| alarm_ledger::all_waiting(db, None, 9).map(|page| page.pushes.len());
        let counts = relay.write(|db| Ok((count(db, "one")?, count(db, "two")?, waiting(db)?)));
        assert_eq!(counts, (1, 0, 1), "another node has the other server");
    });
}

/// Another node has these news.
fn hear(relay: &Relay, news: NodeNews) {
    relay.write(|db| node_news::add(db, "elsewhere", &[(news.to_text(), news)], now()));
}

#[test]
fn sessions_and_users_that_end_at_another_node_close_their_sockets_within_a_second() {
    simulated(async {
        let (relay, _seat) = start(&["one"]);
        for session in ["ended", "lost", "other"] {
            relay.write(|db| sessions::insert(db, &session.into(), &"alice".into(), now()));
        }
        sleep(Duration::from_secs(5)).await;
        let mut doors = Vec::new();
        for session in ["ended", "lost", "other"] {
            let admit = Admit { user: "alice".into(), session: session.into(), access: RelayAccess::Session };
            let admission = relay.hub.send(admit).await.unwrap().unwrap_or_else(|refused| panic!("{refused:?}"));
            let closed = Rc::default();
            let door = Door(Rc::clone(&closed)).start();
            admission.opened(door.downgrade().recipient());
            doors.push((admission, door, closed));
        }
        let closed = || doors.iter().map(|(.., closed)| !closed.borrow().is_empty()).collect::<Vec<_>>();
        sleep(Duration::from_secs(70)).await;
        assert_eq!(closed(), [false; 3], "their sessions go on");
        hear(&relay, NodeNews::SessionEnded { session: "ended".into() });
        sleep(Duration::from_secs(1)).await;
        assert_eq!(closed(), [true, false, false]);
        // The news are lost, and the next look at everything finds it.
        assert!(relay.write(|db| sessions::delete(db, &"lost".into())));
        sleep(Duration::from_secs(70)).await;
        assert_eq!(closed(), [true, true, false]);
        let rings = || !relay.context.early_alarms.changes.has_left(&"one".into(), &"alice".into());
        assert!(rings());
        hear(&relay, NodeNews::UserErased { user: "alice".into() });
        sleep(Duration::from_secs(1)).await;
        assert_eq!((closed(), rings()), (vec![true; 3], false));
    });
}

#[test]
fn wrong_guesses_count_at_all_nodes() {
    simulated(async {
        let (_seat, _, node) = node("here");
        let guesses = node.guesses.clone();
        let relay = Relay::start_on_node(GameLinkPolicy::Always, &["one"], |_| {}, Some(node));
        sleep(Duration::from_secs(5)).await;
        let guess = |what: &str| WrongGuess { what: what.to_owned(), from: "2001:db8::".parse().unwrap() };
        guesses.made(guess("invite"));
        sleep(Duration::from_secs(2)).await;
        let news = |WrongGuess { what, from }: WrongGuess| NodeNews::WrongGuess { what, from };
        let stored: Vec<NodeNews> = relay.write(node_news::list).into_iter().map(|stored| stored.news).collect();
        assert_eq!(stored, [news(guess("invite"))]);
        hear(&relay, news(guess("chat-code")));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(guesses.take_heard(), [guess("chat-code")], "and none of its own");
    });
}

#[test]
fn other_nodes_hear_what_concerns_their_sockets_and_servers() {
    simulated(async {
        let (relay, seat) = start(&["one", "two"]);
        seat.seat([take(&relay, "one", "here")]);
        sleep(Duration::from_secs(5)).await;
        relay.hub.do_send(SessionEnded { session: "session".into() });
        for server in ["one", "two"] {
            relay.hub.do_send(ToConnection { server: server.into(), message: DevicesChanged });
        }
        sleep(Duration::from_secs(1)).await;
        let mut stored: Vec<String> =
            relay.write(node_news::list).into_iter().map(|news| news.news.to_text()).collect();
        stored.sort();
        let news =
            [NodeNews::DevicesChanged { server: "two".into() }, NodeNews::SessionEnded { session: "session".into() }];
        assert_eq!(stored, news.map(|news| news.to_text()), "the other server is here");
        sleep(Duration::from_secs(600)).await;
        assert_eq!(relay.write(node_news::list), [], "each node has heard of it");
    });
}

#[test]
fn a_socket_watches_a_server_of_another_node_and_goes_on_when_that_passes_on() {
    simulated(async {
        let Nodes { relay, hub, here, there, routes, .. } = Nodes::start().await;
        actix::spawn(carry(routes));
        let (_subscription, socket, client) = watch(&relay.worker_of(&hub), "one").await;
        sleep(Duration::from_secs(1)).await;
        let first = snapshot_epoch(&received(&client));
        let drill = relay.hub.send(StartDrill { server: "one".into() }).await.unwrap().unwrap();
        assert_eq!(drill.sockets, 1, "a socket of the other node took it");
        let text = received(&client);
        assert!(text.contains("\"raid\"") && text.contains(&drill.incident), "{text}");
        sleep(Duration::from_secs(5)).await;
        let stored = relay.write(|db| incidents::get(db, &drill.incident)).unwrap();
        assert_eq!((&*stored.state, stored.sockets), ("delivered", 1));

        here.seat([]);
        there.seat([take(&relay, "one", "there-1")]);
        sleep(Duration::from_secs(30)).await;
        let text = received(&client);
        assert_ne!(snapshot_epoch(&text), first, "{text}");
        assert_eq!(socket.closing(), None);
    });
}

#[test]
fn a_user_whose_access_has_ended_watches_at_no_node() {
    simulated(async {
        let Nodes { relay, hub, here: _here, there: _there, routes, .. } = Nodes::start().await;
        actix::spawn(carry(routes));
        let (subscription, _socket, client) = watch(&relay.worker_of(&hub), "one").await;
        sleep(Duration::from_secs(1)).await;
        assert!(subscription.watchers.may_watch(&"alice".into()));
        received(&client);
        relay.delete_row("one");
        relay.hub.do_send(ServerRemoved { server: "one".into() });
        sleep(Duration::from_secs(2)).await;
        assert!(received(&client).contains("unknown_server"));
    });
}

#[test]
fn a_command_for_a_server_of_another_node_is_answered_from_there() {
    simulated(async {
        let Nodes { relay, hub, here: _here, there: _there, routes, .. } = Nodes::start().await;
        let toggle = |user: &str| {
            let wish = Wish { value: None, by: user.into() };
            hub.send(UserCommand { server: "one".into(), toggle: DeviceToggle { device: "7".into(), wish } })
        };
        assert_eq!(toggle("stranger").await.unwrap(), Err(CommandError::UnknownServer));
        assert_eq!(toggle("alice").await.unwrap(), Err(CommandError::Unavailable), "no message comes through");
        actix::spawn(carry(routes));
        let wish = Wish { value: None, by: "alice".into() };
        let toggle_here = UserCommand { server: "one".into(), toggle: DeviceToggle { device: "7".into(), wish } };
        assert_eq!(toggle("alice").await.unwrap(), relay.hub.send(toggle_here).await.unwrap());
        let say = || SendChat { server: "one".into(), user: "alice".into(), text: "hello".to_owned() };
        assert_eq!(hub.send(say()).await.unwrap(), relay.hub.send(say()).await.unwrap());
    });
}

#[test]
fn questions_about_a_server_of_another_node_are_answered_from_there() {
    simulated(async {
        let Nodes { relay, hub, here: _here, there: _there, routes, .. } = Nodes::start().await;
        let links = async || {
            let links = hub.send(LinkStatuses { servers: vec!["one".into(), "two".into()] }).await.unwrap();
            let is_silent = |link: LinkStatus| link.reason == Some(LinkReason::NodeSilent);
            links.into_iter().map(|(server, link)| (server.to_string(), is_silent(link))).collect::<Vec<_>>()
        };
        let find = |incident: &str| hub.send(FindRaid { server: "one".into(), incident: incident.to_owned() });
        let devices = || hub.send(ReadDevices { server: "one".into() });
        // No message comes through.
        assert_eq!(links().await, [("one".to_owned(), true)]);
        assert_eq!(find("unknown").await.unwrap(), Err(Unanswered));
        assert_eq!(devices().await.unwrap().map(|devices| devices.len()), Err(Unanswered));
        actix::spawn(carry(routes));
        assert_eq!(links().await, [("one".to_owned(), false)]);
        assert_eq!(find("unknown").await.unwrap(), Ok(None));
        assert_eq!(devices().await.unwrap().map(|devices| devices.len()), Ok(0));
        assert_eq!(hub.send(StartDrill { server: "none".into() }).await.unwrap(), Err(DrillError::UnknownServer));
        let incident = hub.send(StartDrill { server: "one".into() }).await.unwrap().unwrap().incident;
        let found = find(&incident).await.unwrap().unwrap();
        assert_eq!(found.map(|found| found.id), Some(incident));
        let say = async |hub: &Addr<Hub>| {
            let ((answer, said), line) = (oneshot::channel(), ChannelLine::Event("hello".to_owned()));
            let message = SayForChannel { line, answer };
            hub.do_send(ToConnection { server: "one".into(), message });
            said.await.ok()
        };
        let said = say(&hub).await;
        assert!(said.is_some() && said == say(&relay.hub).await, "{said:?}");
        let (_subscription, _socket, client) = watch(&relay.worker(), "one").await;
        hub.do_send(PlayersSeen(vec![came_online("Vex came online".to_owned())]));
        sleep(Duration::from_secs(1)).await;
        assert!(received(&client).contains("Vex came online"));
    });
}

#[test]
fn sockets_at_another_node_are_counted_and_their_users_are_online() {
    simulated(async {
        let Nodes { relay, hub, here, there, routes, .. } = Nodes::without_parts(GameLinkPolicy::Always, &["one"]);
        for seat in [&here, &there] {
            seat.seat([]);
            seat.sees(&["here-1", "there-1"]);
        }
        actix::spawn(carry(routes));
        relay.write(|db| sessions::insert(db, &"session".into(), &"alice".into(), now()));
        let admit = || Admit { user: "alice".into(), session: "session".into(), access: RelayAccess::Session };
        let (closed, mut open) = (Rc::default(), Vec::new());
        let door = Door(Rc::clone(&closed)).start();
        for _ in 0..limits::CONNECTIONS_PER_USER - 1 {
            let admission = relay.hub.send(admit()).await.unwrap().unwrap_or_else(|refused| panic!("{refused:?}"));
            admission.opened(door.downgrade().recipient());
            open.push(admission);
        }
        sleep(Duration::from_secs(2)).await;
        assert_eq!(hub.send(OnlineUsers).await.unwrap(), ["alice".into()].into());
        let one_more = hub.send(admit()).await.unwrap().unwrap_or_else(|refused| panic!("{refused:?}"));
        assert!(hub.send(admit()).await.unwrap().is_err());
        drop((one_more, open));
        sleep(Duration::from_secs(2)).await;
        assert!(hub.send(admit()).await.unwrap().is_ok());
        assert!(hub.send(OnlineUsers).await.unwrap().is_empty());
    });
}

/// Knows the push session of Alice.
struct PushSessionsOfNode;

impl Actor for PushSessionsOfNode {
    type Context = Context<Self>;
}

impl Handler<ReadPushSession> for PushSessionsOfNode {
    type Result = MessageResult<ReadPushSession>;

    fn handle(&mut self, ReadPushSession { user }: ReadPushSession, _: &mut Self::Context) -> Self::Result {
        MessageResult(Ok((user.as_str() == "alice").then_some("connected").into()))
    }
}

#[test]
fn a_push_session_is_read_at_the_node_that_has_it() {
    simulated(async {
        let Nodes { relay, hub, here, there, routes, .. } = Nodes::without_parts(GameLinkPolicy::Always, &["one"]);
        let part = push_session(&"alice".into());
        let parts = BTreeSet::from([part]);
        let taken = relay.write(|db| {
            held_parts::note(db, &parts, now())?;
            held_parts::take(db, &parts, &BTreeSet::new(), &"here-1".into(), now())
        });
        here.seat(taken.into_iter().map(Arc::new));
        there.seat([]);
        relay.hub.do_send(PushSessionsAt(PushSessionsOfNode.start().recipient()));
        let read = |hub: &Addr<Hub>, user: &str| hub.send(ReadPushSession { user: user.into() });
        assert_eq!(read(&hub, "alice").await.unwrap(), Err(Unanswered), "no message comes through");
        actix::spawn(carry(routes));
        assert_eq!(read(&hub, "alice").await.unwrap(), Ok("connected".into()));
        assert_eq!(read(&hub, "bob").await.unwrap(), Ok(Value::Null), "no node has it");
        assert_eq!(read(&relay.hub, "alice").await.unwrap(), Ok(Value::Null), "it is here: its push worker is asked");
        here.seat([]);
        assert_eq!(read(&hub, "alice").await.unwrap(), Err(Unanswered), "it is on its way");
    });
}

#[test]
fn sockets_of_a_server_that_comes_here_wait_for_no_answer_of_a_node_that_is_gone() {
    simulated(async {
        let nodes = Nodes::start().await;
        let is_gone = Rc::new(Cell::new(false));
        let gone = is_gone.clone();
        actix::spawn(carry_unless(nodes.routes, move |_| gone.get()));
        let (_subscription, _socket, client) = watch(&nodes.relay.worker_of(&nodes.hub), "one").await;
        // A snapshot comes no sooner after another one.
        sleep(Duration::from_secs(6)).await;
        assert!(received(&client).contains("\"snapshot\""));
        is_gone.set(true);
        nodes.there.seat([take(&nodes.relay, "one", "there-1")]);
        sleep(Duration::from_secs(4)).await;
        assert!(received(&client).contains("\"snapshot\""), "of the game connection that is here");
    });
}

#[test]
fn sockets_find_a_server_soon_however_often_it_has_passed_on() {
    simulated(async {
        let Nodes { relay, hub, here, there, routes, .. } = Nodes::start().await;
        actix::spawn(carry(routes));
        let (_subscription, socket, client) = watch(&relay.worker_of(&hub), "one").await;
        for turn in 0..8 {
            let (before, next, node) =
                if turn % 2 == 0 { (&here, &there, "there-1") } else { (&there, &here, "here-1") };
            received(&client);
            before.seat([]);
            next.seat([take(&relay, "one", node)]);
            for _ in 0..3 {
                sleep(Duration::from_secs(5)).await;
                socket.heard();
            }
            assert!(received(&client).contains("\"snapshot\""), "turn {turn}");
        }
    });
}
