//! Alarms at a game server that takes few links: they come by push to those who wait, and over the link to those who have
//! no push credential, which go first.

use chrono::TimeDelta;
use companion::{
    domain::link_slots::SLICE,
    simulator::{
        game_server::GameServer,
        world::{BASE_ALARM, SimulatedWorld, roster},
    },
};
use serde_json::{Value, json};

use super::{
    link_turns::{assert_none_refused, is_waiting, pair_quietly},
    team_link::{game_of, links},
};
use crate::harness::{
    app::LINKS,
    browser::Browser,
    game::{is_complete, is_connected},
    push::{PushTest, bundle, named},
    relay_client::RelayClient,
};

/// A user who has paired a game server and an alarm there, perhaps with a phone that gets its pushes.
struct Owner {
    player: u64,
    browser: Browser,
    server: String,
    alarm: u64,
    phone: Option<(u64, u64)>,
}

impl Owner {
    async fn new(test: &PushTest, game: &GameServer, player: u64, base: usize, phone: Option<(u64, u64)>) -> Self {
        let (browser, server) = pair_quietly(&test.app, game, player).await;
        let alarm = SimulatedWorld::device_of(base, BASE_ALARM);
        let mut owner = Self { player, browser, server, alarm, phone };
        if phone.is_some() {
            owner.upload(test).await;
        }
        let (devices, device) =
            (format!("/paired-servers/{}/devices", owner.server), json!({ "entityId": alarm, "kind": "alarm" }));
        let added = owner.browser.post(&devices, Some(&device)).await;
        assert_eq!(added.status, 201, "{}", added.text());
        owner
    }

    async fn upload(&mut self, test: &PushTest) {
        let mut helper = test.app.paired(&mut self.browser).await;
        let uploaded = helper.upload(&bundle(&self.player.to_string(), self.phone.unwrap())).await;
        assert_eq!(uploaded.status, 200, "{}", uploaded.text());
    }

    async fn delete_server(&mut self) {
        let deleted = self.browser.delete(&format!("/paired-servers/{}", self.server)).await;
        assert_eq!(deleted.status, 200, "{}", deleted.text());
    }

    async fn watch(&mut self, test: &PushTest) -> RelayClient {
        RelayClient::watching(&test.app, &mut self.browser, &self.server).await
    }
}

fn phone(number: usize) -> (u64, u64) {
    (5_100_000_000_000_000_000 + number as u64, 6_100_000_000_000_000_000 + number as u64)
}

async fn start(phones: usize, links: usize) -> PushTest {
    let links = format!("--links-per-game-server={links}");
    PushTest::start_for((0..phones).map(phone).collect(), &["--allow-private-game-servers=true", LINKS, links.as_str()])
        .await
}

/// Teams of five, over this many links from one address. The first member of each of the last teams has no push
/// credential.
async fn every_alarm_is_delivered(teams: usize, most: usize, unpushed: usize) {
    let test = start(teams * 5, most).await;
    let teams = roster(teams, 5);
    let game = game_of(&test.app, &teams).await;
    let mut owners = Vec::new();
    for mate in 0..5 {
        for (place, team) in teams.iter().enumerate() {
            let is_unpushed = mate == 0 && place >= teams.len() - unpushed;
            let phone = (!is_unpushed).then(|| phone(place * 5 + mate));
            // The first base is that of the demo's team.
            owners.push(Owner::new(&test, &game, team[mate].0, place + 1, phone).await);
            // Sign-ins and pairings of helper devices are limited by the minute.
            test.app.clock.advance(TimeDelta::minutes(1));
        }
    }
    // Links end, and those whose alarms come over a link alone go before those who wait for longer.
    let held = |owner: &Owner| owner.phone.is_some() && game.connections_of(owner.player) > 0;
    let holders: Vec<usize> = (0..owners.len()).filter(|at| held(&owners[*at])).take(unpushed).collect();
    for holder in holders.into_iter().rev() {
        owners.remove(holder).delete_server().await;
    }
    let mut watched = Vec::new();
    let mut waiting = 0;
    for mut owner in owners {
        let mut client = owner.watch(&test).await;
        if owner.phone.is_none() {
            client.until(&owner.server, |state| is_complete(state, 1)).await;
        } else {
            client.until(&owner.server, |state| is_connected(state) || is_waiting(state)).await;
            let head = &client.state(&owner.server)["server"];
            if head["connection"] == "waiting" {
                assert!(head["reason"].as_str().unwrap().contains("takes no more connections"), "{head}");
                assert!(head["nextAttemptAt"].is_string(), "{head}");
                waiting += 1;
            }
        }
        watched.push((owner, client));
    }
    assert!(waiting > teams.len(), "{waiting} wait");
    links(&game, most).await;
    let phones: Vec<u64> = watched.iter().filter_map(|(owner, _)| owner.phone).map(|(phone, _)| phone).collect();
    test.until(|push| phones.iter().all(|phone| push.connected(*phone))).await;
    // The game reports an alarm to all who paired it, and broadcasts it to the links of those.
    for place in 0..teams.len() {
        game.world(|world| world.fire_alarm(SimulatedWorld::device_of(place + 1, BASE_ALARM)));
    }
    let named = named(&game);
    for (owner, _) in &watched {
        if let Some(phone) = owner.phone {
            test.push_sent(phone, named.alarm(&owner.alarm.to_string(), "Your base"), test.app.clock.now());
        }
    }
    for (owner, client) in &mut watched {
        let raid = client.expect("raid").await;
        assert_eq!(raid["serverId"], owner.server, "{raid}");
        if owner.phone.is_none() {
            assert_eq!(raid["alarmId"], owner.alarm.to_string(), "{raid}");
        } else {
            client.until(&owner.server, |state| state["raids"].as_object().is_some_and(|raids| raids.len() == 1)).await;
        }
    }
    assert_none_refused(&game, most);
}

#[actix_web::test]
async fn seven_teams_take_turns_at_three_links_and_every_alarm_is_delivered() {
    every_alarm_is_delivered(7, 3, 2).await;
}

#[actix_web::test]
#[ignore = "takes minutes"]
async fn twenty_teams_take_turns_at_five_links_and_every_alarm_is_delivered() {
    every_alarm_is_delivered(20, 5, 3).await;
}

/// The first has the only link; the second and the third, who has no push credential, wait. The third goes before the second,
/// who waits for longer, except between these acts: a push credential of the third comes, and goes.
async fn the_third_goes_next(
    comes: impl AsyncFnOnce(&PushTest, &mut Owner),
    goes: impl AsyncFnOnce(&PushTest, &mut Owner),
) {
    let test = start(3, 1).await;
    let teams = roster(3, 1);
    let game = game_of(&test.app, &teams).await;
    let mut first = Owner::new(&test, &game, teams[0][0].0, 1, Some(phone(0))).await;
    links(&game, 1).await;
    let mut second = Owner::new(&test, &game, teams[1][0].0, 2, Some(phone(1))).await;
    let mut third = Owner::new(&test, &game, teams[2][0].0, 3, None).await;
    // Both are watched: nothing but the alarms parts them.
    let mut seconds = second.watch(&test).await;
    let mut client = third.watch(&test).await;
    // The slot is for the first who waits after a minute, and for the second after two.
    let is_at = |place: i32| {
        let at = json!(test.app.clock.now() + SLICE * place);
        move |state: &Value| is_waiting(state) && state["server"]["nextAttemptAt"] == at
    };
    client.until(&third.server, is_at(1)).await;
    seconds.ping().await;
    comes(&test, &mut third).await;
    client.until(&third.server, is_at(2)).await;
    seconds.ping().await;
    goes(&test, &mut third).await;
    client.until(&third.server, is_at(1)).await;
    first.delete_server().await;
    client.until(&third.server, |state| is_complete(state, 1)).await;
    assert_eq!(game.connections_of(second.player), 0);
    assert_none_refused(&game, 1);
}

#[actix_web::test]
async fn who_deletes_their_push_credential_goes_before_one_who_waits_for_longer() {
    let comes = async |test: &PushTest, third: &mut Owner| {
        third.phone = Some(phone(2));
        third.upload(test).await;
    };
    let goes = async |_: &PushTest, third: &mut Owner| {
        let deleted = third.browser.delete("/credentials/push").await;
        assert_eq!(deleted.status, 200, "{}", deleted.text());
    };
    the_third_goes_next(comes, goes).await;
}

#[actix_web::test]
async fn who_has_a_push_credential_that_is_refused_goes_before_one_who_waits_for_longer() {
    let comes = async |test: &PushTest, third: &mut Owner| {
        let phones = [phone(0), phone(1)];
        test.until(|push| phones.iter().all(|(phone, _)| push.connected(*phone))).await;
        // While its login is not answered, the credential counts.
        test.push.faults(|faults| faults.mute_login = true);
        third.phone = Some((phone(2).0, 7));
        third.upload(test).await;
    };
    let goes = async |test: &PushTest, _: &mut Owner| {
        test.push.faults(|faults| faults.mute_login = false);
        test.push.restart().await.unwrap();
    };
    the_third_goes_next(comes, goes).await;
}

#[actix_web::test]
async fn who_has_a_push_credential_that_expires_goes_before_one_who_waits_for_longer() {
    let comes = async |test: &PushTest, third: &mut Owner| {
        let mut helper = test.app.paired(&mut third.browser).await;
        let mut bundle = bundle(&third.player.to_string(), phone(2));
        bundle["expiresAt"] = json!(test.app.clock.now() + TimeDelta::seconds(2));
        assert_eq!(helper.upload(&bundle).await.status, 200);
        test.until(|push| push.connected(phone(2).0)).await;
    };
    let goes = async |test: &PushTest, _: &mut Owner| test.app.clock.advance(TimeDelta::seconds(2));
    the_third_goes_next(comes, goes).await;
}
