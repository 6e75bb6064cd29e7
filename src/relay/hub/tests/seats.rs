//! The link of a mate reads for a player, who loses the seat at it, or whose own link waits for its next attempt.

use std::{cell::RefCell, collections::BTreeSet};

use futures_channel::mpsc;
use futures_util::StreamExt as _;

use super::*;
use crate::{
    domain::{detect::wipe::World, device::DeviceKind, ids::GameServerId, world_map::MonumentMap},
    game::{
        acting_link::ActingLink,
        link::Answered,
        paced_link::PacedLink,
        reading_link::ReadingLink,
        wire::{
            AppEntityInfo, AppEntityType, AppError, AppInfo, AppMap, AppRequest, AppResponse, AppTeamInfo,
            app_team_info,
        },
    },
    relay::{
        game::{
            pool::{link_report::LinkReport, wake::Wake},
            seats::SeatNews,
            team_hosts::{HostLink, LinkNumber, TakeSeat, TeamHost},
        },
        state::game_update::{GameUpdate, OwnUpdate, PairedDevice, TeamUpdate, WorldUpdate},
    },
};

const MATE: u64 = 1;
const PLAYER: u64 = 2;

/// Asks for the links that may read for others.
#[derive(Message)]
#[rtype(result = "Arc<TeamHosts>")]
struct FindHosts;

impl Handler<FindHosts> for Hub {
    type Result = Arc<TeamHosts>;

    fn handle(&mut self, _: FindHosts, _: &mut Self::Context) -> Self::Result {
        self.hosts.clone()
    }
}

/// The link of the mate, who may read no device; one sits at it until its news are dropped.
#[derive(Clone, Default)]
struct MateLink(Rc<RefCell<Vec<mpsc::Sender<Arc<SeatNews>>>>>);

impl Actor for MateLink {
    type Context = Context<Self>;
}

impl Handler<TakeSeat> for MateLink {
    type Result = Option<HostLink>;

    fn handle(&mut self, TakeSeat { news, .. }: TakeSeat, _: &mut Self::Context) -> Self::Result {
        self.0.borrow_mut().push(news);
        let (reading, wake) = (ReadingLink::new(PacedLink::answering(MATE, answer)), Arc::new(Wake::default()));
        Some(HostLink { reading, wake, slot: None, members: members(), waited: None })
    }
}

impl MateLink {
    /// Others find it at this game server.
    fn publish(&self, hosts: &TeamHosts, number: LinkNumber, game_server: &GameServerId) {
        let seats = self.clone().start().recipient();
        let (server, paired, members) = ("mate".into(), game_server.clone(), members());
        let host = TeamHost { number, server, player: MATE, paired, members, seats };
        hosts.publish(game_server, host);
    }
}

fn answer(request: &AppRequest) -> AppResponse {
    let error = request.get_entity_info.as_ref().map(|_| AppError { error: "not_found".to_owned() });
    AppResponse { info: Some(AppInfo::default()), error, ..Default::default() }
}

fn members() -> Arc<BTreeSet<u64>> {
    Arc::new([MATE, PLAYER].into())
}

/// The player's own link says who is in the team.
fn team() -> LinkReport {
    let member = |steam_id| app_team_info::Member { steam_id, ..Default::default() };
    let content = AppTeamInfo { members: vec![member(MATE), member(PLAYER)], ..Default::default() };
    LinkReport::Update(TeamUpdate::Members(Answered { asked_after: 0, content }).into())
}

/// The player pairs a switch, and the own link asks for it.
fn switch() -> [LinkReport; 2] {
    let (kind, name) = (DeviceKind::Switch, "Vault".to_owned());
    let paired = PairedDevice { kind, name, label: None, last_value: None, reported: None, place: None };
    let content = Some(AppEntityInfo { r#type: AppEntityType::Switch.into(), payload: Default::default() });
    let answer = Ok(Answered { asked_after: 0, content });
    let paired = OwnUpdate::Devices([("70".into(), paired)].into());
    [paired, OwnUpdate::Device { device: "70".into(), answer }].map(|update| LinkReport::Update(update.into()))
}

/// Reports of the player's own link, which is up and has asked everything.
fn up(game_server: GameServerId) -> Vec<LinkReport> {
    let (reading, acting) = (ReadingLink::new(PacedLink::ended(PLAYER, None)), ActingLink::ended(PLAYER, None));
    vec![
        LinkReport::Up { reading, acting, credentials: 0, slot: None, game_server, info: AppInfo::default() },
        LinkReport::Update(WorldUpdate::Map(AppMap::default()).into()),
        team(),
        LinkReport::Resynced,
        LinkReport::DevicesAsked,
    ]
}

#[test]
fn who_loses_the_seat_while_the_own_link_is_in_a_long_pause_tries_it_at_once() {
    simulated(async {
        let relay = Relay::start(GameLinkPolicy::Always, &["one"]);
        let (mate, game_server) = (MateLink::default(), GameServerId::from("game:1"));
        let hosts = relay.hub.send(FindHosts).await.unwrap();
        mate.publish(&hosts, hosts.number(), &game_server);
        sleep(Duration::from_secs(5)).await;
        let connection = relay.find("one").await.expect("a server").connection;
        for report in up(game_server.clone()) {
            connection.send(ReportOfLink { link: 1, report }).await.unwrap();
        }
        sleep(Duration::from_secs(1)).await;
        assert_eq!((mate.0.borrow().len(), hosts.seated()), (1, 1), "the mate's link reads");

        // A user asks for the own link. The game server takes no new ones.
        relay.outside.refuses.store(true, Ordering::Relaxed);
        connection.send(RetryLink { changed: false }).await.unwrap();
        sleep(Duration::from_secs(200)).await;
        assert_eq!(hosts.seated(), 1, "it reads on");
        let before = relay.outside.dials("one");
        hosts.withdraw(&game_server, &"mate".into());
        mate.0.borrow_mut().clear();
        sleep(Duration::from_secs(10)).await;
        let dials = relay.outside.dials("one") - before;
        assert!((3..=6).contains(&dials), "{dials}: pauses of seconds");
    });
}

#[test]
fn who_has_no_map_yet_sits_at_a_mates_link_that_asks_for_the_same_one() {
    for (paired, shares_map) in [("game:1", true), ("the same game by another name:1", false)] {
        simulated(async {
            let (relay, mate) = (Relay::start(GameLinkPolicy::Always, &["one"]), MateLink::default());
            let game_server = GameServerId::from("game:1");
            let hosts = relay.hub.send(FindHosts).await.unwrap();
            let (number, server, paired, members) = (hosts.number(), "mate".into(), paired.into(), members());
            let seats = mate.clone().start().recipient();
            hosts.publish(&game_server, TeamHost { number, server, player: MATE, paired, members, seats });
            sleep(Duration::from_secs(5)).await;
            let connection = relay.find("one").await.expect("a server").connection;
            let is_map =
                |report: &LinkReport| matches!(report, LinkReport::Update(GameUpdate::World(WorldUpdate::Map(_))));
            for report in up(game_server).into_iter().filter(|report| !is_map(report)) {
                connection.send(ReportOfLink { link: 1, report }).await.unwrap();
            }
            sleep(Duration::from_secs(1)).await;
            assert_eq!((mate.0.borrow().len(), hosts.seated()), (usize::from(shares_map), usize::from(shares_map)));
        });
    }
}

#[test]
fn a_link_shares_its_map_with_each_who_sits_down_at_it() {
    simulated(async {
        let (relay, game_server) = (Relay::start(GameLinkPolicy::Always, &["one"]), GameServerId::from("game:1"));
        sleep(Duration::from_secs(5)).await;
        let connection = relay.find("one").await.expect("a server").connection;
        let map = LinkReport::Map { map: AppMap::default(), address: "game".to_owned(), port: 1, turn: None };
        for report in up(game_server.clone()).into_iter().chain([map]) {
            connection.send(ReportOfLink { link: 1, report }).await.unwrap();
        }
        let maps = &relay.context.maps;
        let own = maps.get(&game_server).expect("a map");
        let world = World { seed: Some(1), ..World::default() };
        maps.share(&game_server, &Arc::new(MonumentMap { world, monuments: Vec::new() }));
        assert_eq!(maps.get(&game_server), None, "the link that had it is gone");
        let (news, _reader) = mpsc::channel(1);
        let (server, accepted) = ("other".into(), ActingLink::ended(MATE, None));
        let request = TakeSeat { server, game_server: game_server.clone(), accepted, devices: Arc::default(), news };
        assert!(connection.send(request).await.unwrap().is_some(), "another sits at it");
        assert!(maps.get(&game_server).is_some_and(|shared| Arc::ptr_eq(&shared, &own)));
    });
}

/// The player's own link is up for a moment more, and no attempt to make it will succeed. That of the mate is there.
async fn own_link_fails(relay: &Relay, mate: &MateLink) -> (Addr<GameConnection>, Arc<TeamHosts>) {
    let game_server = GameServerId::from("game:1");
    let hosts = relay.hub.send(FindHosts).await.unwrap();
    let number = hosts.number();
    sleep(Duration::from_secs(5)).await;
    let connection = relay.find("one").await.expect("a server").connection;
    for report in up(game_server.clone()) {
        connection.send(ReportOfLink { link: 1, report }).await.unwrap();
    }
    mate.publish(&hosts, number, &game_server);
    relay.outside.refuses.store(true, Ordering::Relaxed);
    (connection, hosts)
}

/// Completes when the mate's link reads for the player.
async fn sits_down(hosts: &TeamHosts) {
    until("a seat", || hosts.seated() > 0).await;
}

/// Completes when this holds.
async fn until(wanted: &str, holds: impl Fn() -> bool) {
    let held = async {
        while !holds() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(60), held).await.expect(wanted);
}

#[test]
fn who_waits_for_the_next_attempt_sits_at_a_mates_link_and_that_attempt_is_made_all_the_same() {
    simulated(async {
        let (relay, mate) = (Relay::start(GameLinkPolicy::Always, &["one"]), MateLink::default());
        let (_, hosts) = own_link_fails(&relay, &mate).await;
        let state = async || relay.status("one").await.expect("a server").state;
        sits_down(&hosts).await;
        assert_eq!(state().await, ConnectionState::Connected);
        let before = relay.outside.dials("one");
        sleep(Duration::from_secs(200)).await;
        assert_eq!((hosts.seated(), state().await), (1, ConnectionState::Connected));
        assert_eq!(relay.outside.dials("one") - before, 1, "the next attempt is the turn");

        mate.0.borrow_mut().clear();
        sleep(Duration::from_millis(500)).await;
        assert_eq!((hosts.seated(), relay.outside.dials("one") - before), (0, 2), "the own link is tried at once");
        sits_down(&hosts).await;
    });
}

#[test]
fn an_own_link_that_comes_up_while_a_seat_is_asked_for_first_lets_those_go_who_sit_at_it() {
    simulated(async {
        let (relay, mate) = (Relay::start(GameLinkPolicy::Always, &["one"]), MateLink::default());
        let (connection, hosts) = own_link_fails(&relay, &mate).await;
        until("a seat is asked for", || !mate.0.borrow().is_empty()).await;
        assert_eq!(hosts.seated(), 0, "it is listened to for a moment");
        let mut reports = up("game:1".into());
        let devices_asked = reports.pop().expect("the last of them");
        for report in reports {
            connection.send(ReportOfLink { link: 1, report }).await.unwrap();
        }
        let (news, mut reader) = mpsc::channel(1);
        let (server, game_server, accepted) = ("other".into(), "game:1".into(), ActingLink::ended(MATE, None));
        let request = TakeSeat { server, game_server, accepted, devices: Arc::default(), news };
        assert!(connection.send(request).await.unwrap().is_some(), "another sits at it");
        connection.send(ReportOfLink { link: 1, report: devices_asked }).await.unwrap();
        assert!(matches!(reader.next().await.as_deref(), Some(SeatNews::Moves)));
    });
}

#[test]
fn who_waits_for_the_next_attempt_makes_it_at_once_when_the_mates_link_is_about_to_rest() {
    simulated(async {
        let (relay, mate) = (Relay::start(GameLinkPolicy::Always, &["one"]), MateLink::default());
        let (_, hosts) = own_link_fails(&relay, &mate).await;
        let game_server = GameServerId::from("game:1");
        hosts.withdraw(&game_server, &"mate".into());
        // The pauses have grown to a minute by then.
        sleep(Duration::from_secs(95)).await;
        mate.publish(&hosts, hosts.number(), &game_server);
        sits_down(&hosts).await;
        let before = relay.outside.dials("one");
        mate.0.borrow_mut()[0].try_send(Arc::new(SeatNews::Moves)).unwrap();
        sleep(Duration::from_millis(500)).await;
        assert_eq!((hosts.seated(), relay.outside.dials("one") - before), (1, 1));
    });
}

#[test]
fn a_device_that_mates_may_not_read_keeps_the_own_link_up_and_leaves_its_player_in_no_gap() {
    simulated(async {
        let (relay, mate) = (Relay::start(GameLinkPolicy::Always, &["one"]), MateLink::default());
        let (connection, hosts) = own_link_fails(&relay, &mate).await;
        for report in switch().into_iter().chain([team()]) {
            connection.send(ReportOfLink { link: 1, report }).await.unwrap();
        }
        sleep(Duration::from_secs(2)).await;
        assert_eq!((mate.0.borrow().len(), hosts.seated()), (1, 0), "the own link is up");
        sits_down(&hosts).await;
        sleep(Duration::from_secs(200)).await;
        assert_eq!(hosts.seated(), 1, "the own link is tried meanwhile");
    });
}

#[test]
fn no_mates_link_reads_with_a_token_that_was_replaced_or_refused_since() {
    for is_replaced in [true, false] {
        simulated(async {
            let (relay, mate) = (Relay::start(GameLinkPolicy::Always, &["one"]), MateLink::default());
            let (connection, _) = own_link_fails(&relay, &mate).await;
            if is_replaced {
                relay.write(|db| paired_servers::change_credentials(db, &"one".into()));
                connection.send(RetryLink { changed: true }).await.unwrap();
            } else {
                let (state, reason) = (ConnectionState::Rejected, LinkReason::UnknownToken);
                let report = LinkReport::Down { state, reason, next_attempt_at: now() };
                connection.send(ReportOfLink { link: 1, report }).await.unwrap();
            }
            sleep(Duration::from_secs(300)).await;
            assert!(mate.0.borrow().is_empty(), "replaced: {is_replaced}");
        });
    }
}
