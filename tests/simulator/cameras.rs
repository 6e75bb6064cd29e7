//! Cameras: subscriptions, pictures, steering.

use std::time::Duration;

use companion::{
    game::{
        camera::{Sample, decode_rays, sample_order},
        wire::*,
    },
    simulator::world::{FIXED_CAMERA, TURNING_CAMERA},
};

use crate::game_client::{DEADLINE, LEADER, MARLOW, MARLOWS_TOKEN, Peer, server, steer, subscribe};

#[actix_web::test]
async fn a_camera_streams_a_whole_picture() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    let info = peer.ask(subscribe(TURNING_CAMERA)).await.camera_subscribe_info.expect("a camera");
    assert_eq!((info.width, info.height, info.control_flags), (160, 90, 10));
    let order = sample_order(160, 90);
    let mut picture = vec![None; order.len()];
    for frame in 0..5 {
        let rays = peer.broadcast().await.camera_rays.expect("cameraRays");
        assert_eq!(rays.sample_offset, frame * 3000);
        let samples = decode_rays(&rays.ray_data).expect("whole samples");
        assert_eq!(samples.len(), 3000);
        assert!(rays.entities.iter().any(|entity| entity.r#type == 1));
        for (n, sample) in samples.into_iter().enumerate() {
            let (x, y) = order[(rays.sample_offset as usize + n) % order.len()];
            picture[usize::from(y) * 160 + usize::from(x)] = Some(sample);
        }
    }
    let picture: Vec<Sample> = picture.into_iter().map(|sample| sample.expect("every pixel is covered")).collect();
    assert!(picture[89 * 160..].iter().all(|sample| *sample == Sample::SKY), "y counts upwards: sky in the last row");
    assert!(picture[..160].iter().all(|sample| *sample != Sample::SKY), "ground in the first");
    peer.ask(subscribe(TURNING_CAMERA)).await.camera_subscribe_info.expect("a renewal");
    assert_eq!(server.camera_subscriptions(), (1, 1), "a renewal is no subscription");
    let stopped = AppRequest { camera_unsubscribe: Some(AppEmpty {}), ..Default::default() };
    assert!(peer.ask(stopped).await.success.is_some());
    assert_eq!(server.camera_subscriptions(), (1, 0));
    assert_eq!(peer.refusal(steer(0, 1.0, 0.0)).await, "no_camera");
}

#[actix_web::test]
async fn frames_end_when_the_player_logs_in_or_the_client_leaves() {
    let server = server().await;
    let (mut peer, mut other) = (Peer::connect(&server).await, Peer::connect_as(&server, MARLOW, MARLOWS_TOKEN).await);
    server.world(|world| [LEADER, MARLOW].map(|player| world.set_online(player, false)));
    for peer in [&mut peer, &mut other] {
        peer.ask(subscribe(FIXED_CAMERA)).await.camera_subscribe_info.expect("a camera");
        while peer.broadcast().await.camera_rays.is_none() {}
    }
    assert_eq!(server.camera_subscriptions(), (2, 2));
    server.world(|world| world.set_online(LEADER, true));
    assert_eq!(peer.refusal(subscribe(FIXED_CAMERA)).await, "player_online");
    until(|| server.camera_subscriptions() == (2, 1)).await;
    drop(other);
    until(|| server.camera_subscriptions() == (2, 0)).await;
}

async fn until(holds: impl Fn() -> bool) {
    let poll = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, poll).await.expect("it holds in time");
}

#[actix_web::test]
async fn a_camera_turns_and_zooms_for_the_client_that_steers_it() {
    let server = server().await;
    let (mut peer, mut other) = (Peer::connect(&server).await, Peer::connect(&server).await);
    assert_eq!(peer.ask(subscribe(TURNING_CAMERA)).await.camera_subscribe_info.expect("a camera").control_flags, 10);
    assert_eq!(other.ask(subscribe(TURNING_CAMERA)).await.camera_subscribe_info.expect("a camera").control_flags, 0);
    let before = server.world(|world| *world.camera(TURNING_CAMERA).expect("a camera"));
    other.ask(steer(0, 10.0, 0.0)).await.success.expect("acknowledged and ignored");
    assert_eq!(server.world(|world| world.camera(TURNING_CAMERA).map(|camera| camera.yaw)), Some(before.yaw));
    for buttons in [1024, 0] {
        peer.ask(steer(buttons, 5.0, f32::NAN)).await.success.expect("acknowledged");
    }
    peer.ask(steer(0, 10.0, 2.0)).await.success.expect("acknowledged");
    let after = server.world(|world| *world.camera(TURNING_CAMERA).expect("a camera"));
    assert!(after.yaw != before.yaw && after.pitch != before.pitch && after.zoom == 1);
    let zoomed = loop {
        let rays = peer.broadcast().await.camera_rays.expect("cameraRays");
        if rays.vertical_fov < 65.0 {
            break rays.vertical_fov;
        }
    };
    assert_eq!(zoomed, 43.33);
}

#[actix_web::test]
async fn refusals_are_checked_in_the_games_order() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    assert_eq!(peer.refusal(subscribe("")).await, "invalid_id");
    assert_eq!(peer.refusal(subscribe("NOWHERE")).await, "not_found");
    assert_eq!(peer.refusal(subscribe("OILRIG1DOCK")).await, "access_denied");
    assert_eq!(peer.refusal(steer(0, 0.0, 0.0)).await, "no_camera");
    server.world(|world| world.set_online(LEADER, true));
    assert_eq!(peer.refusal(subscribe(FIXED_CAMERA)).await, "player_online");
    server.world(|world| world.kill(LEADER));
    assert_eq!(peer.refusal(subscribe(FIXED_CAMERA)).await, "no_player");
    server.world(|world| {
        world.respawn(LEADER);
        world.set_online(LEADER, false);
    });
    assert_eq!(peer.ask(subscribe(FIXED_CAMERA)).await.camera_subscribe_info.expect("a camera").control_flags, 0);
}
