//! The service's link to a game server: what it takes, what it refuses, and in which order.

use std::{sync::Arc, time::Duration};

use companion::{
    clock::Clock,
    game::{
        counting::Repeated,
        decoding::MessageDecoder,
        link::{AskError, Broadcasts, Link, LinkEnded, Player, Route, Way},
        outbound::Outbound,
        wire::*,
    },
    net::Network,
    simulator::{
        game_server::{DEMO_TOKEN, GameServer, GameServerOptions, Limits},
        world::GATE_SWITCH,
    },
};
use secrecy::SecretBox;

use crate::game_client::{DEADLINE, LEADER, get_entity, get_info, get_markers, options, server};

async fn connect(server: &GameServer) -> (Link, Broadcasts) {
    let (host, port) = (server.addr().ip().to_string(), server.addr().port());
    let outbound = Arc::new(Outbound::new(Clock::system(), true));
    let route = Route { host, port, proxy: None, outbound };
    let player = Player { id: LEADER, token: SecretBox::new(Box::new(DEMO_TOKEN)) };
    let network = Network::system();
    let way = Way { peers: route.find(&network).await.expect("an address"), own: None, slot: () };
    Link::connect(&network, &MessageDecoder::on_threads(), &route, way, player).await.expect("a link")
}

/// Takes broadcasts until the link ends.
fn take(mut broadcasts: Broadcasts) -> tokio::task::JoinHandle<LinkEnded> {
    actix_web::rt::spawn(async move {
        loop {
            if let Err(ended) = broadcasts.next().await {
                return ended;
            }
        }
    })
}

fn get_map() -> AppRequest {
    AppRequest { get_map: Some(AppEmpty {}), ..Default::default() }
}

#[actix_web::test]
async fn a_map_may_be_large_and_nothing_else() {
    let map_picture = Some(vec![7; 6 << 20].into());
    let server = GameServer::start(GameServerOptions { map_picture, ..options() }).await.expect("a free port");
    let (link, broadcasts) = connect(&server).await;
    let ended = take(broadcasts);
    let map = link.ask(get_map(), DEADLINE).await.expect("an answer").content.map.expect("a map");
    assert_eq!(map.jpg_image.len(), 6 << 20);
    link.ask(get_info(), DEADLINE).await.expect("the link stays");
    // Five megabytes, where no map is awaited.
    server.faults(|faults| faults.extra_markers = 350_000);
    assert_eq!(link.ask(get_markers(), DEADLINE).await, Err(AskError::Closed));
    assert_eq!(ended.await.expect("no panic"), LinkEnded::TooLarge);
}

#[actix_web::test]
async fn while_a_map_is_awaited_other_answers_are_no_larger() {
    let map_picture = Some(vec![7; 6 << 20].into());
    let server = GameServer::start(GameServerOptions { map_picture, ..options() }).await.expect("a free port");
    let (link, broadcasts) = connect(&server).await;
    let ended = take(broadcasts);
    link.ask(get_info(), DEADLINE).await.expect("the link is up");
    server.faults(|faults| {
        faults.extra_markers = 350_000;
        faults.delay = Some(Duration::from_millis(500));
    });
    // Both are asked before the first is answered.
    let (markers, map) = tokio::join!(link.ask(get_markers(), DEADLINE), link.ask(get_map(), DEADLINE));
    assert_eq!((markers, map), (Err(AskError::Closed), Err(AskError::Closed)));
    assert_eq!(ended.await.expect("no panic"), LinkEnded::TooLarge);
}

#[actix_web::test]
async fn a_map_whose_caller_has_given_up_is_no_larger_than_others() {
    let map_picture = Some(vec![7; 6 << 20].into());
    let server = GameServer::start(GameServerOptions { map_picture, ..options() }).await.expect("a free port");
    let (link, broadcasts) = connect(&server).await;
    let ended = take(broadcasts);
    server.faults(|faults| faults.delay = Some(Duration::from_millis(500)));
    assert_eq!(link.ask(get_map(), Duration::from_millis(50)).await, Err(AskError::TimedOut));
    // Any message shows that the map is not awaited.
    server.faults(|faults| faults.delay = None);
    link.ask(get_info(), DEADLINE).await.expect("the link is up");
    assert_eq!(ended.await.expect("no panic"), LinkEnded::TooLarge);
}

#[actix_web::test]
async fn an_answer_that_repeats_too_much_is_refused_and_the_link_stays() {
    let server = server().await;
    let (link, broadcasts) = connect(&server).await;
    take(broadcasts);
    // Large enough to be decoded on a thread, and small enough not to be.
    for (extra, refused) in [(10_000, false), (19_000, false), (25_000, true), (100_000, true)] {
        server.faults(|faults| faults.extra_markers = extra);
        match link.ask(get_markers(), DEADLINE).await {
            Ok(answered) => assert!(!refused && answered.content.map_markers.is_some(), "{extra}"),
            Err(error) => assert!(refused && error == AskError::TooMany(Repeated::Markers), "{extra}: {error}"),
        }
        link.ask(get_info(), DEADLINE).await.expect("the link stays");
    }
}

#[actix_web::test]
async fn an_answer_waits_for_the_broadcasts_before_it_and_counts_those_before_its_request() {
    let server = server().await;
    let (link, mut broadcasts) = connect(&server).await;
    let turn = || {
        server.world(|world| world.flip_device(GATE_SWITCH));
    };
    let ask = link.ask(get_entity(GATE_SWITCH), DEADLINE);
    let (first, nothing) = tokio::join!(ask, tokio::time::timeout(Duration::from_millis(1), broadcasts.next()));
    assert_eq!((first.expect("an answer").asked_after, nothing.is_err()), (0, true));
    turn();
    assert_eq!(broadcasts.next().await.expect("a broadcast").0, 1);
    server.faults(|faults| faults.overtaken = true);
    let mut overtaken = Box::pin(link.ask(get_entity(GATE_SWITCH), DEADLINE));
    let number = tokio::select! {
        biased;
        _ = &mut overtaken => panic!("the broadcast before it is not handled yet"),
        heard = broadcasts.next() => heard.expect("a broadcast").0,
    };
    assert_eq!(number, 2);
    let answered = tokio::select! {
        answered = &mut overtaken => answered.expect("an answer"),
        _ = broadcasts.next() => panic!("there is no third"),
    };
    assert_eq!(answered.asked_after, 1, "it is older than the second");
}

#[actix_web::test]
async fn without_its_broadcasts_a_link_ends_and_what_is_asked_with_it() {
    let server = server().await;
    let (link, broadcasts) = connect(&server).await;
    server.faults(|faults| faults.delay = Some(DEADLINE));
    let (asked, ()) = tokio::join!(link.ask(get_info(), DEADLINE), async { drop(broadcasts) });
    assert_eq!(asked, Err(AskError::Closed));
}

#[actix_web::test]
async fn little_is_kept_of_requests_that_are_given_up_while_a_link_is_held_up() {
    let limits = Limits { queue: 1_000, player_tokens: (1e6, 1.0), address_tokens: (1e6, 1.0), ..Limits::default() };
    let server = GameServer::start(GameServerOptions { limits, ..options() }).await.expect("a free port");
    let (link, broadcasts) = connect(&server).await;
    let (other, mut others) = connect(&server).await;
    for link in [&link, &other] {
        link.ask(get_entity(GATE_SWITCH), DEADLINE).await.expect("an answer");
    }
    // The messages of the one link are not taken; those of the other say that they were sent.
    for _ in 0..400 {
        server.world(|world| world.flip_device(GATE_SWITCH));
        others.next().await.expect("a broadcast");
    }
    let give_up = || link.ask(get_map(), Duration::from_millis(20));
    futures_util::future::join_all((0..300).map(|_| give_up())).await;
    take(broadcasts);
    link.ask(get_info(), DEADLINE).await.expect("it goes on");
    assert!(server.maps() < 100, "{}", server.maps());
}
