//! The link of a mate reads for a player, who loses the seat at it.

use std::{cell::RefCell, collections::BTreeSet};

use futures_channel::mpsc;

use super::*;
use crate::{
    domain::ids::GameServerId,
    game::{
        acting_link::ActingLink,
        link::Answered,
        paced_link::PacedLink,
        reading_link::ReadingLink,
        wire::{AppInfo, AppMap, AppTeamInfo, app_team_info},
    },
    relay::{
        game::{
            pool::{link_report::LinkReport, wake::Wake},
            seats::SeatNews,
            team_hosts::{HostLink, TakeSeat, TeamHost},
        },
        state::game_update::{TeamUpdate, WorldUpdate},
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

/// The link of the mate; one sits at it until its news are dropped.
#[derive(Clone, Default)]
struct MateLink(Rc<RefCell<Vec<mpsc::Sender<Arc<SeatNews>>>>>);

impl Actor for MateLink {
    type Context = Context<Self>;
}

impl Handler<TakeSeat> for MateLink {
    type Result = Option<HostLink>;

    fn handle(&mut self, TakeSeat { news, .. }: TakeSeat, _: &mut Self::Context) -> Self::Result {
        self.0.borrow_mut().push(news);
        let (reading, wake) = (ReadingLink::new(PacedLink::ended(MATE, None)), Arc::new(Wake::default()));
        Some(HostLink { reading, wake, slot: None, members: members(), waited: None })
    }
}

fn members() -> Arc<BTreeSet<u64>> {
    Arc::new([MATE, PLAYER].into())
}

/// Reports of the player's own link, which is up and has asked everything.
fn up(game_server: GameServerId) -> Vec<LinkReport> {
    let member = |steam_id| app_team_info::Member { steam_id, ..Default::default() };
    let content = AppTeamInfo { members: vec![member(MATE), member(PLAYER)], ..Default::default() };
    let (reading, acting) = (ReadingLink::new(PacedLink::ended(PLAYER, None)), ActingLink::ended(PLAYER, None));
    vec![
        LinkReport::Up { reading, acting, credentials: 1, slot: None, game_server, info: AppInfo::default() },
        LinkReport::Update(WorldUpdate::Map(AppMap::default()).into()),
        LinkReport::Update(TeamUpdate::Members(Answered { asked_after: 0, content }).into()),
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
        let (number, seats) = (hosts.number(), mate.clone().start().recipient());
        let host = TeamHost { number, server: "mate".into(), player: MATE, members: members(), seats };
        hosts.publish(&game_server, host);
        sleep(Duration::from_secs(5)).await;
        let connection = relay.find("one").await.expect("a server").connection;
        for report in up(game_server) {
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
        mate.0.borrow_mut().clear();
        sleep(Duration::from_secs(10)).await;
        let dials = relay.outside.dials("one") - before;
        assert!((3..=6).contains(&dials), "{dials}: pauses of seconds");
    });
}
