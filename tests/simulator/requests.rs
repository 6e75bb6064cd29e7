//! Requests of a client, and what it gets without asking.

use std::{collections::HashSet, time::Duration};

use companion::{
    game::wire::*,
    simulator::{
        game_server::{GameServer, GameServerOptions},
        point::Point,
        world::{BASE_ALARM, GATE_SWITCH, LOOT_BOX, SimulatedDevice, TEAM, TOOL_CUPBOARD, TURNING_CAMERA},
    },
};
use tokio::time::timeout;

use crate::game_client::{
    DEADLINE, LEADER, MARLOW, MARLOWS_TOKEN, Peer, get_entity, get_info, get_markers, get_team, get_time, options, say,
    server, set_entity, steer, subscribe,
};

#[actix_web::test]
async fn info_time_team_chat_and_markers_are_answered() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    let info = peer.ask(get_info()).await.info.expect("info");
    assert_eq!((info.map_size, info.cameras_enabled), (4000, Some(true)));
    assert!(info.wipe_time > 1_789_000_000 && info.max_players >= info.players);
    let time = peer.ask(get_time()).await.time.expect("time");
    assert!((0.0..24.0).contains(&time.time) && time.sunrise < time.sunset);
    let team = peer.ask(get_team()).await.team_info.expect("team");
    assert_eq!((team.leader_steam_id, team.members.len()), (LEADER, 4));
    assert!(team.members.iter().any(|member| member.steam_id == LEADER && !member.is_online && member.is_alive));
    let chat = AppRequest { get_team_chat: Some(AppEmpty {}), ..Default::default() };
    assert!(peer.ask(chat).await.team_chat.expect("chat").messages.is_empty());
    let markers = peer.ask(get_markers()).await.map_markers.expect("markers").markers;
    let shops = markers.iter().filter(|marker| marker.r#type == AppMarkerType::VendingMachineMarker as i32).count();
    assert_eq!(shops, 41);
    assert!(markers.iter().all(|marker| marker.id < 1 << 32));
    let ids: HashSet<u64> = markers.iter().map(|marker| marker.id).collect();
    assert_eq!(ids.len(), markers.len());
}

#[actix_web::test]
async fn the_map_is_a_picture_with_monuments() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    let request = AppRequest { get_map: Some(AppEmpty {}), ..Default::default() };
    let map = peer.ask(request).await.map.expect("a map");
    let picture = image::load_from_memory(&map.jpg_image).expect("a JPEG");
    assert_eq!((picture.width(), picture.height()), (map.width, map.height));
    for token in
        ["oil_rig_small", "large_oil_rig", "harbor_display_name", "harbor_2_display_name", "outpost", "launchsite"]
    {
        assert!(map.monuments.iter().any(|monument| monument.token == token), "{token}");
    }
}

#[actix_web::test]
async fn a_switch_is_broadcast_to_its_subscribers_when_it_changes() {
    let server = server().await;
    let (mut peer, mut other) = (Peer::connect(&server).await, Peer::connect(&server).await);
    let info = peer.ask(get_entity(GATE_SWITCH)).await.entity_info.expect("entity info");
    assert_eq!((info.r#type, info.payload.value), (AppEntityType::Switch as i32, Some(false)));
    other.ask(get_info()).await;
    assert!(peer.ask(set_entity(GATE_SWITCH, false)).await.success.is_some());
    assert!(peer.broadcasts_so_far().await.is_empty(), "nothing changed");
    assert!(peer.ask(set_entity(GATE_SWITCH, true)).await.success.is_some());
    let changed = peer.entity_changed().await;
    assert_eq!((changed.entity_id, changed.payload.value), (GATE_SWITCH, Some(true)));
    assert!(other.broadcasts_so_far().await.is_empty(), "never asked for the entity");
    let asked_again = peer.ask(get_entity(GATE_SWITCH)).await.entity_info.expect("entity info");
    assert_eq!(asked_again.payload.value, Some(true));
}

#[actix_web::test]
async fn an_alarm_is_broadcast_when_it_goes_off_and_when_it_is_released() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    peer.ask(get_entity(BASE_ALARM)).await.entity_info.expect("entity info");
    server.world(|world| {
        world.fire_alarm(BASE_ALARM);
        world.fire_alarm(BASE_ALARM);
        world.release_alarm(BASE_ALARM);
    });
    assert_eq!(peer.entity_changed().await.payload.value, Some(true));
    assert_eq!(peer.entity_changed().await.payload.value, Some(false));
    assert!(peer.broadcasts_so_far().await.is_empty());
}

#[actix_web::test]
async fn a_storage_monitor_is_broadcast_twice() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    let cupboard = peer.ask(get_entity(TOOL_CUPBOARD)).await.entity_info.expect("entity info").payload;
    assert_eq!((cupboard.capacity, cupboard.has_protection), (Some(29), Some(true)));
    assert!(cupboard.protection_expiry() > 1_790_000_000);
    peer.ask(get_entity(LOOT_BOX)).await.entity_info.expect("entity info");
    server.world(|world| world.set_storage(LOOT_BOX, vec![(-932201673, 12)]));
    let first = peer.entity_changed().await.payload;
    assert_eq!((first.value, first.items[0].quantity), (Some(true), 12));
    assert!(peer.broadcasts_so_far().await.is_empty(), "the second comes half a second later");
    server.advance(Duration::from_millis(500));
    let second = peer.entity_changed().await.payload;
    assert_eq!((second.value, second.items[0].quantity), (Some(false), 12));
}

#[actix_web::test]
async fn chat_reaches_the_team_and_the_sender() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    let mut mate = Peer::connect_as(&server, MARLOW, MARLOWS_TOKEN).await;
    mate.ask(get_info()).await;
    assert!(peer.ask(say("  hello  ")).await.success.is_some());
    for line in [peer.broadcast().await, mate.broadcast().await] {
        let line = line.team_message.expect("teamMessage").message;
        assert_eq!((line.steam_id, line.message.as_str(), line.name.as_str()), (LEADER, "hello", "Nox"));
    }
    assert!(peer.ask(say("   ")).await.success.is_some());
    assert!(peer.broadcasts_so_far().await.is_empty(), "an empty line is not sent");
    peer.ask(say(&"ä".repeat(300))).await;
    let long = peer.broadcast().await.team_message.expect("teamMessage").message.message;
    assert_eq!((long.chars().count(), long.chars().last()), (256, Some('…')));
    let chat = AppRequest { get_team_chat: Some(AppEmpty {}), ..Default::default() };
    assert_eq!(peer.ask(chat).await.team_chat.expect("chat").messages.len(), 2);
}

#[actix_web::test]
async fn team_changes_are_broadcast_whole() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    peer.ask(get_info()).await;
    server.world(|world| world.kill(MARLOW));
    let changed = peer.broadcast().await.team_changed.expect("teamChanged");
    assert_eq!((changed.player_id, changed.team_info.members.len()), (LEADER, 4));
    let marlow = changed.team_info.members.iter().find(|member| member.steam_id == MARLOW).expect("a member");
    assert!(!marlow.is_alive && marlow.death_time > 0);
    server.world(|world| {
        world.respawn(MARLOW);
        world.set_online(MARLOW, false);
    });
    peer.broadcast().await.team_changed.expect("respawned");
    let changed = peer.broadcast().await.team_changed.expect("logged out");
    assert!(changed.team_info.members.iter().any(|member| member.steam_id == MARLOW && !member.is_online));

    let mut mate = Peer::connect_as(&server, MARLOW, MARLOWS_TOKEN).await;
    let promote =
        |steam_id| AppRequest { promote_to_leader: Some(AppPromoteToLeader { steam_id }), ..Default::default() };
    let kick = |steam_id| AppRequest { kick_from_team: Some(AppTeamKick { steam_id }), ..Default::default() };
    assert_eq!(mate.refusal(promote(MARLOW)).await, "access_denied");
    assert_eq!(mate.refusal(kick(LEADER)).await, "access_denied");
    assert_eq!(peer.refusal(promote(1)).await, "not_found");
    assert!(peer.ask(kick(MARLOW)).await.success.is_some());
    let left = mate.broadcast().await.team_changed.expect("the broadcast to the removed player").team_info;
    assert_eq!((left.leader_steam_id, left.members.len()), (MARLOW, 1));
    let left = peer.broadcast().await.team_changed.expect("the broadcast to the team").team_info;
    assert_eq!(left.members.len(), 3);
    let chat = AppRequest { get_team_chat: Some(AppEmpty {}), ..Default::default() };
    assert_eq!(mate.refusal(chat).await, "no_team");
    assert_eq!(mate.refusal(say("hello?")).await, "no_team");
    assert_eq!(mate.refusal(promote(MARLOW)).await, "no_team");
}

#[actix_web::test]
async fn refusals_are_the_games_error_texts() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    let check = |id| AppRequest { entity_id: Some(id), check_subscription: Some(AppEmpty {}), ..Default::default() };
    assert_eq!(peer.refusal(get_entity(1)).await, "not_found");
    assert_eq!(peer.refusal(set_entity(1, true)).await, "not_found");
    assert_eq!(peer.refusal(set_entity(BASE_ALARM, true)).await, "wrong_type");
    assert_eq!(peer.refusal(check(GATE_SWITCH)).await, "wrong_type");
    assert_eq!(peer.refusal(AppRequest::default()).await, "unhandled");
    let clan = AppRequest { get_clan_info: Some(AppEmpty {}), ..Default::default() };
    assert_eq!(peer.refusal(clan).await, "no_clan");
    server.world(|world| world.destroy_device(GATE_SWITCH));
    assert_eq!(peer.refusal(get_entity(GATE_SWITCH)).await, "not_found");

    assert!(peer.ask(check(BASE_ALARM)).await.flag.expect("a flag").value);
    let set_subscription = Some(AppFlag { value: false });
    let off = AppRequest { entity_id: Some(BASE_ALARM), set_subscription, ..Default::default() };
    assert!(peer.ask(off.clone()).await.success.is_some());
    assert!(!peer.ask(check(BASE_ALARM)).await.flag.expect("a flag").value);
    let subscribers = (0..20).collect();
    server.world(|world| world.add_device(9, "Full", SimulatedDevice::Alarm { on: false, subscribers }));
    let set_subscription = Some(AppFlag { value: true });
    let on = AppRequest { entity_id: Some(9), set_subscription, ..Default::default() };
    assert_eq!(peer.refusal(on).await, "too_many_subscribers");
}

#[actix_web::test]
async fn broadcasts_follow_the_player_of_the_last_request() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    assert!(peer.ask(subscribe(TURNING_CAMERA)).await.camera_subscribe_info.is_some());
    (peer.player_id, peer.player_token) = (MARLOW, MARLOWS_TOKEN);
    peer.ask(get_info()).await;
    peer.broadcasts.clear();
    server.world(|world| world.set_online(TEAM[2].0, false));
    let changed = peer.broadcast().await.team_changed.expect("teamChanged");
    assert_eq!(changed.player_id, MARLOW);
    assert_eq!(peer.refusal(steer(0, 0.0, 0.0)).await, "no_camera");
}

#[actix_web::test]
async fn markers_can_be_added_moved_and_removed() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    let explosion = AppMarker { r#type: AppMarkerType::ExplosionMarker as i32, x: 1.0, y: 2.0, ..Default::default() };
    let id = server.world(|world| world.add_marker(explosion));
    let find = |markers: AppMapMarkers| markers.markers.into_iter().find(|marker| marker.id == id);
    let marker = find(peer.ask(get_markers()).await.map_markers.expect("markers")).expect("the marker");
    assert_eq!((marker.x, marker.y), (1.0, 2.0));
    server.world(|world| world.move_marker(id, Point::new(5.0, 6.0)));
    let marker = find(peer.ask(get_markers()).await.map_markers.expect("markers")).expect("the marker");
    assert_eq!((marker.x, marker.y), (5.0, 6.0));
    server.world(|world| world.remove_marker(id));
    assert!(find(peer.ask(get_markers()).await.map_markers.expect("markers")).is_none());
}

#[actix_web::test]
async fn the_script_runs_with_the_time() {
    let running = GameServerOptions { time_scale: 50.0, tick: Duration::from_millis(10), ..options() };
    let server = GameServer::start(running).await.expect("a free port");
    let mut peer = Peer::connect(&server).await;
    peer.ask(get_info()).await;
    timeout(DEADLINE, async {
        loop {
            if peer.broadcast().await.team_message.is_some() {
                break;
            }
        }
    })
    .await
    .expect("a chat line after five seconds of the script");
}
