//! Servers pass from one node to another with what is known of them.

use std::cell::Cell;

use bytes::Bytes;

use super::{
    lossy_nodes::store_push,
    nodes::{Nodes, carry_unless, take},
    *,
};
use crate::{
    cluster::node_mail::{MailRoute, Outbox},
    db::{alarms::incidents, smart_devices},
    domain::device::DeviceKind,
    game::{
        link::Answered,
        wire::{
            AppEntityChanged, AppEntityInfo, AppEntityPayload, AppEntityType, AppInfo, AppTeamChat, AppTeamInfo,
            AppTeamMessage, app_team_info,
        },
    },
    ownership::NodeSeat,
    relay::{
        game::pool::link_report::{LinkReport, ReportOfLink},
        state::game_update::{GameUpdate, OwnUpdate, TeamUpdate},
    },
};

const NODES: [&str; 2] = ["here-1", "there-1"];
/// Within this time all that is done for a server that passes on has ended.
const ENDED_WITHIN: Duration = Duration::from_millis(1_500);
/// Within this time sockets have found a server that has passed on.
const FOUND_WITHIN: Duration = Duration::from_secs(6);

/// Two nodes over one database. The first has the servers, each with an alarm; the hub of the other is `hub`.
struct TwoNodes {
    relay: Relay,
    hub: Addr<Hub>,
    here: NodeSeat,
    there: NodeSeat,
    /// The rights of the first node.
    rights: Vec<Arc<Fence>>,
    /// Messages between them are lost.
    is_silent: Rc<Cell<bool>>,
    /// Messages of the first node.
    outbox: Outbox,
}

impl TwoNodes {
    async fn start(servers: &[&str]) -> Self {
        let (nodes, routes) = Self::without_carrier(servers);
        nodes.carry(routes);
        sleep(Duration::from_secs(1)).await;
        nodes
    }

    /// Nothing carries their messages yet.
    fn without_carrier(servers: &[&str]) -> (Self, [(&'static str, MailRoute); 2]) {
        let Nodes { relay, hub, here, there, outbox, routes } = Nodes::without_parts(GameLinkPolicy::Always, servers);
        for server in servers {
            let (server, kind) = (ServerId::from(*server), DeviceKind::Alarm);
            relay.write(|db| smart_devices::upsert(db, &server, "7", kind, "Front door", now()));
        }
        let rights: Vec<Arc<Fence>> = servers.iter().map(|server| take(&relay, server, NODES[0])).collect();
        here.seat(rights.iter().cloned());
        there.seat([]);
        here.sees(&NODES);
        there.sees(&NODES);
        (Self { relay, hub, here, there, rights, is_silent: Rc::default(), outbox }, routes)
    }

    fn carry(&self, routes: [(&'static str, MailRoute); 2]) {
        let silent = self.is_silent.clone();
        actix::spawn(carry_unless(routes, move |_| silent.get()));
    }

    /// With the server "one", which a socket at each node watches, and whose link is up.
    async fn watched() -> (Self, [(Rc<Subscription>, Rc<Socket>, Memory); 2]) {
        let nodes = Self::start(&["one"]).await;
        let Self { relay, hub, .. } = &nodes;
        let watches = [watch(&relay.worker(), "one").await, watch(&relay.worker_of(hub), "one").await];
        sleep(Duration::from_secs(1)).await;
        connect(&relay.hub, "one").await;
        (nodes, watches)
    }

    /// The first node gives up all, and the other one takes it.
    async fn pass_on(&self, servers: &[&str]) {
        self.here.seat([]);
        self.here.sees(&NODES);
        sleep(ENDED_WITHIN).await;
        assert!(self.rights.iter().all(|right| Arc::strong_count(right) == 1), "more is done for them");
        self.there.seat(servers.iter().map(|server| take(&self.relay, server, NODES[1])));
        self.there.sees(&NODES);
        sleep(Duration::from_millis(100)).await;
    }
}

/// The link to the game server of this server reports it.
async fn report(hub: &Addr<Hub>, server: &str, update: impl Into<GameUpdate>) {
    let connection = hub.send(FindConnection(server.into())).await.unwrap().expect("it is here");
    let report = LinkReport::Update(update.into());
    connection.send(ReportOfLink { link: 0, report }).await.unwrap();
}

async fn connect(hub: &Addr<Hub>, server: &str) {
    report(hub, server, GameUpdate::Connected(AppInfo::default())).await;
}

fn payload(value: bool) -> AppEntityPayload {
    AppEntityPayload { value: Some(value), ..AppEntityPayload::default() }
}

/// The answer of the alarm.
fn alarm(value: bool) -> OwnUpdate {
    let content = Some(AppEntityInfo { r#type: AppEntityType::Alarm.into(), payload: payload(value) });
    OwnUpdate::Device { device: "7".into(), answer: Ok(Answered { asked_after: u64::MAX, content }) }
}

/// The broadcast of this number about the alarm.
fn turned(number: u64, value: bool) -> GameUpdate {
    GameUpdate::device_changed(number, AppEntityChanged { entity_id: 7, payload: payload(value) })
}

/// A team of which these are online, and those with higher numbers are not.
fn team(online: std::ops::RangeInclusive<u64>) -> TeamUpdate {
    let member = |steam_id: u64| app_team_info::Member {
        steam_id,
        name: format!("Player {steam_id}"),
        is_online: online.contains(&steam_id),
        is_alive: true,
        ..app_team_info::Member::default()
    };
    let content = AppTeamInfo { leader_steam_id: 7, members: (7..10).map(member).collect(), ..AppTeamInfo::default() };
    TeamUpdate::Members(Answered { asked_after: 0, content })
}

/// The history of the chat, with a line in each second.
fn chat(texts: &[&str]) -> TeamUpdate {
    let line = |(time, text): (u32, &&str)| AppTeamMessage {
        steam_id: 7,
        name: "Player 7".into(),
        message: (*text).into(),
        time,
        ..AppTeamMessage::default()
    };
    TeamUpdate::Chat(AppTeamChat { messages: (1..).zip(texts).map(line).collect() })
}

/// The counts of the incidents in the ledger.
fn counts(relay: &Relay) -> Vec<u32> {
    let stored = relay.write(|db| incidents::list(db, &"one".into(), None, 9));
    stored.into_iter().map(|stored| stored.incident.count).collect()
}

#[test]
fn an_alarm_that_is_on_while_its_server_passes_on_opens_no_second_incident_and_sends_no_second_raid() {
    simulated(async {
        let (nodes, watches) = TwoNodes::watched().await;
        let TwoNodes { relay, hub, .. } = &nodes;
        report(&relay.hub, "one", alarm(false)).await;
        // The third value is not stored yet when the server passes on.
        for (number, value) in [(1, true), (2, false), (3, true)] {
            report(&relay.hub, "one", turned(number, value)).await;
            sleep(Duration::from_secs(2)).await;
        }
        nodes.pass_on(&["one"]).await;
        connect(hub, "one").await;
        report(hub, "one", alarm(true)).await;
        // By the trigger that the link has seen at the other node.
        let alarm = store_push(relay, "Front door");
        hub.do_send(AlarmPushed { server: "one".into(), alarm, received_at: ReceivedAt::now() });
        sleep(Duration::from_secs(14)).await;
        assert_eq!(counts(relay), [2]);
        for (_, socket, client) in &watches {
            let text = received(client);
            assert_eq!(text.matches("\"update\":false").count(), 1, "{text}");
            assert!(text.contains("\"count\":2") && !text.contains("\"count\":3"), "{text}");
            assert_eq!(socket.closing(), None);
        }
    });
}

#[test]
fn earlier_lines_and_players_are_no_news_after_a_server_has_passed_on_and_those_of_meanwhile_are() {
    simulated(async {
        let (nodes, watches) = TwoNodes::watched().await;
        let TwoNodes { relay, hub, .. } = &nodes;
        report(&relay.hub, "one", team(7..=7)).await;
        report(&relay.hub, "one", team(7..=8)).await;
        report(&relay.hub, "one", chat(&["first"])).await;
        report(&relay.hub, "one", chat(&["first", "before"])).await;
        sleep(Duration::from_secs(1)).await;
        nodes.pass_on(&["one"]).await;
        sleep(FOUND_WITHIN).await;
        connect(hub, "one").await;
        report(hub, "one", team(7..=9)).await;
        report(hub, "one", chat(&["first", "before", "meanwhile"])).await;
        sleep(Duration::from_secs(1)).await;
        for (_, socket, client) in &watches {
            let text = received(client);
            let count = |part: &str| text.matches(part).count();
            let lines = ["first", "before", "meanwhile"].map(|line| count(&format!("\"text\":\"{line}\"")));
            assert_eq!(lines, [0, 1, 1], "{text}");
            let players = [7, 8, 9].map(|player| count(&format!("\"title\":\"Player {player} came online\"")));
            assert_eq!(players, [0, 1, 1], "{text}");
            assert_eq!(socket.closing(), None);
        }
    });
}

#[test]
fn a_memory_that_is_lost_leaves_the_next_node_with_what_is_stored() {
    simulated(async {
        let nodes = TwoNodes::start(&["one"]).await;
        let TwoNodes { relay, hub, .. } = &nodes;
        connect(&relay.hub, "one").await;
        report(&relay.hub, "one", alarm(false)).await;
        report(&relay.hub, "one", turned(1, true)).await;
        report(&relay.hub, "one", team(7..=7)).await;
        report(&relay.hub, "one", chat(&["first"])).await;
        nodes.is_silent.set(true);
        nodes.pass_on(&["one"]).await;
        nodes.is_silent.set(false);
        let (_subscription, _socket, client) = watch(&relay.worker_of(hub), "one").await;
        connect(hub, "one").await;
        report(hub, "one", alarm(true)).await;
        report(hub, "one", team(7..=9)).await;
        report(hub, "one", chat(&["first", "meanwhile"])).await;
        sleep(Duration::from_secs(12)).await;
        let text = received(&client);
        assert!(text.contains("Player 9") && !text.contains("came online"), "{text}");
        assert!(!text.contains("\"text\":\"meanwhile\"") && !text.contains("\"update\""), "{text}");
        assert_eq!(counts(relay), [1]);
    });
}

#[test]
fn a_memory_waits_for_room_among_the_messages() {
    simulated(async {
        let (nodes, routes) = TwoNodes::without_carrier(&["one"]);
        let TwoNodes { relay, hub, .. } = &nodes;
        sleep(Duration::from_secs(1)).await;
        connect(&relay.hub, "one").await;
        report(&relay.hub, "one", team(7..=7)).await;
        report(&relay.hub, "one", chat(&["before"])).await;
        (0..5_000).for_each(|_| nodes.outbox.send("there", Bytes::new()));
        let ended = actix::spawn(relay.hub.send(EndLinks));
        sleep(Duration::from_secs(1)).await;
        nodes.carry(routes);
        ended.await.unwrap().unwrap();
        nodes.pass_on(&["one"]).await;
        let (_subscription, _socket, client) = watch(&relay.worker_of(hub), "one").await;
        connect(hub, "one").await;
        report(hub, "one", team(7..=7)).await;
        report(hub, "one", chat(&["before", "meanwhile"])).await;
        sleep(Duration::from_secs(1)).await;
        let text = received(&client);
        assert!(text.contains("\"text\":\"meanwhile\"") && !text.contains("\"text\":\"before\""), "{text}");
    });
}

#[test]
fn a_node_that_leaves_hands_all_its_servers_over_before() {
    simulated(async {
        let servers = ["one", "two"];
        let nodes = TwoNodes::start(&servers).await;
        let TwoNodes { relay, hub, .. } = &nodes;
        for server in servers {
            connect(&relay.hub, server).await;
            report(&relay.hub, server, team(7..=7)).await;
            report(&relay.hub, server, chat(&["before"])).await;
        }
        relay.hub.send(EndLinks).await.unwrap();
        for server in servers {
            let connection = relay.hub.send(FindConnection(server.into())).await.unwrap();
            assert!(connection.is_none_or(|connection| !connection.connected()));
        }
        nodes.pass_on(&servers).await;
        for server in servers {
            let (_subscription, _socket, client) = watch(&relay.worker_of(hub), server).await;
            connect(hub, server).await;
            report(hub, server, team(7..=7)).await;
            report(hub, server, chat(&["before", "meanwhile"])).await;
            sleep(Duration::from_secs(1)).await;
            let text = received(&client);
            assert!(text.contains("\"text\":\"meanwhile\"") && !text.contains("\"text\":\"before\""), "{text}");
        }
    });
}
