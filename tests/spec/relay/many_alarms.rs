//! More alarms at once than a socket may be sent messages.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::harness::{
    game::{self, is_connected},
    push::{PHONE, PushTest, named, pairing, servers},
    relay_client::RelayClient,
};

/// Alarms of each of two game servers; more names of one are one alarm.
const ALARMS: usize = 30;
/// Messages of raids in ten seconds.
const MESSAGES: usize = 28;

fn raids(state: &Value) -> usize {
    state["raids"].as_object().map_or(0, serde_json::Map::len)
}

/// Slow, as the messages of this many alarms take more than twenty seconds.
#[actix_web::test]
async fn many_alarms_at_once_are_known_by_a_patch_ahead_of_their_messages_and_each_has_its_own() {
    let test = PushTest::start_beside_games().await;
    let (mut alice, _) = test.alice_receiving().await;
    let games = [game::still(&test.app).await, game::still(&test.app).await];
    for game in &games {
        test.push(pairing(&named(game)));
    }
    test.until(|push| push.unacknowledged(PHONE.0) == 0).await;
    let ids: Vec<String> =
        servers(&mut alice).await.iter().map(|server| server["id"].as_str().unwrap().to_owned()).collect();
    let [one, two] = &ids[..] else { panic!("two servers: {ids:?}") };
    let mut client = RelayClient::watching(&test.app, &mut alice, one).await;
    client.subscribe(two).await;
    for server in &ids {
        client.until(server, is_connected).await;
    }

    for number in 0..ALARMS {
        for game in &games {
            test.push(named(game).alarm(&format!("Alarm {number}"), ""));
        }
    }
    for server in &ids {
        client.until(server, |state| raids(state) == ALARMS).await;
    }
    let early = client.waiting.iter().filter(|message| message["type"] == "raid").count();
    assert!(early <= MESSAGES, "{early} messages came before the state");
    // Heard of, though their messages wait.
    for server in &ids {
        let path = format!("/paired-servers/{server}/alarms?limit=100");
        let are_heard = |shown: &Value| {
            let alarms = shown["alarms"].as_array().unwrap();
            alarms.len() == ALARMS && alarms.iter().all(|alarm| alarm["heardAt"].is_string())
        };
        alice.get_until(path, are_heard).await;
    }

    let mut messages = HashSet::new();
    while messages.len() < 2 * ALARMS {
        let raid = client.expect_where("raid", |raid| raid["update"] == false).await;
        assert!(messages.insert(raid["incident"].as_str().unwrap().to_owned()), "once: {raid}");
        assert_eq!(raid["count"], json!(1));
    }
}
