//! Raids as state: later clients get them, clients that took note are left in peace, and the ledger knows who heard.

use companion::simulator::{
    game_server::GameServer,
    world::{BASE_ALARM, WALL_ALARM},
};
use futures_util::FutureExt as _;
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{
    app::{LINKS, TestApp},
    browser::Browser,
    database::Postgres,
    game::{self, ALICE, BOB, add_device, is_complete, pair, share},
    relay_client::RelayClient,
};

/// Alice's game server with two alarms, all known, and no watcher.
struct AlarmBase {
    app: TestApp,
    alice: Browser,
    game: GameServer,
    server: String,
}

impl AlarmBase {
    async fn start(app: TestApp) -> Self {
        let game = game::still(&app).await;
        let mut alice = app.signed_in(ALICE).await;
        let server = pair(&mut alice, &game).await;
        for device in [BASE_ALARM, WALL_ALARM] {
            add_device(&mut alice, &server, device).await;
        }
        let mut client = RelayClient::watching(&app, &mut alice, &server).await;
        client.until(&server, |state| is_complete(state, 2)).await;
        Self { app, alice, game, server }
    }

    async fn watch(&mut self) -> RelayClient {
        RelayClient::watching(&self.app, &mut self.alice, &self.server).await
    }

    /// The incidents, once these are their states.
    #[track_caller]
    fn alarms_until(&mut self, states: &[&str]) -> impl Future<Output = Vec<Value>> {
        let path = format!("/paired-servers/{}/alarms", self.server);
        let states: Vec<String> = states.iter().map(|&state| state.to_owned()).collect();
        let shown = self.alice.get_until(path, move |shown| {
            shown["alarms"].as_array().unwrap().iter().map(|alarm| &alarm["state"]).eq(&states)
        });
        shown.map(|mut shown| match shown["alarms"].take() {
            Value::Array(alarms) => alarms,
            other => panic!("{other}"),
        })
    }

    /// Restarts the service; the alarm goes off while it is away.
    async fn restart_while_fired(self, alarm: u64) -> Self {
        let Self { app, alice, game, server } = self;
        let cookies = alice.cookies.clone();
        game.world(|world| world.fire_alarm(alarm));
        let app = app.restart().await;
        let mut alice = app.browser();
        alice.cookies = cookies;
        Self { app, alice, game, server }
    }
}

fn raids(state: &Value) -> Vec<(&String, &Value)> {
    state["raids"].as_object().unwrap().iter().collect()
}

#[actix_web::test]
async fn an_alarm_without_watchers_is_in_the_next_snapshot_also_after_a_restart() {
    let mut base = AlarmBase::start(TestApp::start_beside_games().await).await;
    base.game.world(|world| world.fire_alarm(BASE_ALARM));
    let alarms = base.alarms_until(&["unheard"]).await;
    let incident = alarms[0]["incident"].as_str().unwrap().to_owned();
    assert_eq!((&alarms[0]["alarmId"], &alarms[0]["sockets"]), (&json!(BASE_ALARM.to_string()), &json!(0)));
    assert_eq!((&alarms[0]["paths"], &alarms[0]["count"]), (&json!(["link"]), &json!(1)));
    assert_eq!((&alarms[0]["heardAt"], &alarms[0]["endedAt"]), (&Value::Null, &Value::Null));

    let client = base.watch().await;
    let shown = raids(client.state(&base.server));
    let [(id, raid)] = &shown[..] else { panic!("one incident: {shown:?}") };
    assert_eq!((id.as_str(), &raid["firstAt"]), (incident.as_str(), &json!("2026-11-21T12:00:00.000Z")));
    let alarms = base.alarms_until(&["delivered_later"]).await;
    assert_eq!((&alarms[0]["sockets"], &alarms[0]["heardAt"]), (&json!(0), &json!("2026-11-21T12:00:00.000Z")));

    let mut base = base.restart_while_fired(BASE_ALARM).await;
    // The raid survives a restart; the ledger may be read after the first snapshot.
    let mut client = base.watch().await;
    client.until(&base.server, |state| raids(state).first().is_some_and(|(id, _)| **id == incident)).await;
    assert_eq!(base.alarms_until(&["delivered_later"]).await.len(), 1, "an alarm that was on before is no news");
}

#[actix_web::test]
async fn an_alarm_that_went_off_while_the_service_was_down_rings() {
    let base = AlarmBase::start(TestApp::start_beside_games().await).await;
    let mut base = base.restart_while_fired(WALL_ALARM).await;
    let mut client = base.watch().await;
    let wall = json!(WALL_ALARM.to_string());
    let is_shown = |state: &Value| raids(state).iter().any(|(_, raid)| raid["alarmId"] == wall);
    client.until(&base.server, is_shown).await;
}

#[actix_web::test]
async fn one_users_acknowledgement_is_seen_by_all_and_stored() {
    let mut base = AlarmBase::start(TestApp::start_beside_games().await).await;
    let mut client = base.watch().await;
    base.game.world(|world| world.fire_alarm(BASE_ALARM));
    let raid = client.expect("raid").await;
    let incident = raid["incident"].as_str().unwrap().to_owned();
    assert_eq!((&raid["x"], &raid["grid"]), (&Value::Null, &json!("")), "no place is set");
    base.alarms_until(&["delivered"]).await;

    let mut other = base.watch().await;
    let ack = json!({ "type": "raidAck", "serverId": base.server, "incident": incident, "requestId": "r" });
    client.send(ack).await;
    assert_eq!(client.expect("ack").await["requestId"], "r");
    let user = base.alice.get("/me").await.json()["id"].as_str().unwrap().to_owned();
    let is_noted = |state: &Value| state["raids"][&incident]["acks"][&user].is_string();
    client.until(&base.server, is_noted).await;
    other.until(&base.server, is_noted).await;
    let alarms = base.alarms_until(&["acknowledged"]).await;
    assert_eq!(alarms[0]["acks"][&user], "2026-11-21T12:00:00.000Z");

    // The raid counts on, and no longer rings her; another alarm does.
    base.app.clock.advance(chrono::Duration::seconds(20));
    base.game.world(|world| world.release_alarm(BASE_ALARM));
    client.until(&base.server, |state| state["devices"][BASE_ALARM.to_string()]["value"] == false).await;
    base.game.world(|world| world.fire_alarm(BASE_ALARM));
    client.until(&base.server, |state| state["raids"][&incident]["count"] == 2).await;
    base.game.world(|world| world.fire_alarm(WALL_ALARM));
    assert_eq!(client.expect("raid").await["alarmId"], WALL_ALARM.to_string());

    // Again, over HTTP: the first time counts.
    let path = format!("/paired-servers/{}/alarms/{incident}/ack", base.server);
    let answer = base.alice.post(&path, None).await;
    assert_eq!((answer.status, &answer.json()["acks"]), (200, &alarms[0]["acks"]));
}

#[actix_web::test]
async fn no_one_sees_what_an_erased_guest_took_note_of() {
    let mut base = AlarmBase::start(TestApp::start_beside_games().await).await;
    let mut bob = base.app.signed_in(BOB).await;
    share(&mut base.alice, &base.server, &mut bob).await;
    let user = bob.get("/me").await.json()["id"].as_str().unwrap().to_owned();
    let mut client = base.watch().await;
    base.game.world(|world| world.fire_alarm(BASE_ALARM));
    let incident = client.expect("raid").await["incident"].as_str().unwrap().to_owned();
    base.alarms_until(&["delivered"]).await;
    let path = format!("/paired-servers/{}/alarms/{incident}/ack", base.server);
    assert_eq!(bob.post(&path, None).await.status, 200);
    client.until(&base.server, |state| state["raids"][&incident]["acks"][&user].is_string()).await;

    let erase = bob.request(Method::DELETE, "/me").json(&json!({ "confirm": BOB }));
    assert_eq!(bob.send(erase).await.status, 200);
    client.until(&base.server, |state| state["raids"][&incident]["acks"] == json!({})).await;
    let fresh = base.watch().await;
    assert_eq!(fresh.state(&base.server)["raids"][&incident]["acks"], json!({}));
}

#[actix_web::test]
async fn alarms_are_listed_in_pages_and_for_those_who_may_watch() {
    let mut base = AlarmBase::start(TestApp::start_beside_games().await).await;
    for alarm in [BASE_ALARM, WALL_ALARM] {
        base.game.world(|world| world.fire_alarm(alarm));
    }
    let alarms = base.alarms_until(&["unheard", "unheard"]).await;
    let path = format!("/paired-servers/{}/alarms", base.server);
    let page = base.alice.get(&format!("{path}?limit=1")).await.json();
    assert_eq!((&page["alarms"], &page["next"]), (&json!([alarms[0]]), &alarms[0]["incident"]));
    let newest = alarms[0]["incident"].as_str().unwrap();
    let page = base.alice.get(&format!("{path}?limit=1&before={newest}")).await.json();
    assert_eq!(page["alarms"], json!([alarms[1]]));
    for wrong in ["limit=0", "limit=501", "limit=x", "limit=1&limit=2", "before=zzzz", "before=%00", "before="] {
        base.alice.get(&format!("{path}?{wrong}")).await.expect_problem(400, "invalid_request");
    }

    let ack = format!("{path}/{newest}/ack");
    let mut bob = base.app.signed_in(BOB).await;
    bob.get(&path).await.expect_problem(404, "not_found");
    bob.post(&ack, None).await.expect_problem(404, "not_found");
    base.app.browser().post(&ack, None).await.expect_problem(401, "unauthenticated");
    base.alice.post(&format!("{path}/nothing/ack"), None).await.expect_problem(404, "not_found");

    let mut strange = RelayClient::connect(&base.app, &mut bob).await;
    let server = base.server.clone();
    let incident = |id: &str| json!({ "type": "raidAck", "serverId": server, "incident": id });
    strange.send(incident(newest)).await;
    strange.expect_error("unknown_server").await;
    let mut client = base.watch().await;
    client.send(incident("nothing")).await;
    client.expect_error("unknown_incident").await;
    client.send(json!({ "type": "raidAck", "serverId": base.server })).await;
    client.expect_error("malformed").await;
}

#[actix_web::test]
async fn an_alarm_that_is_over_ends_and_is_forgotten_after_a_day() {
    let mut base = AlarmBase::start(TestApp::start_beside_games().await).await;
    let mut client = base.watch().await;
    base.game.world(|world| world.fire_alarm(BASE_ALARM));
    let incident = client.expect("raid").await["incident"].as_str().unwrap().to_owned();
    base.app.clock.advance(chrono::Duration::seconds(91));
    client.until(&base.server, |state| state["raids"][&incident]["endedAt"].is_string()).await;
    base.app.clock.advance(chrono::Duration::hours(24));
    client.until(&base.server, |state| raids(state).is_empty()).await;
    base.alarms_until(&["delivered"]).await;
}

#[actix_web::test]
async fn an_alarm_that_waits_for_the_database_is_sent_before_the_service_stops() {
    let flags = ["--allow-private-game-servers=true", LINKS, "--drain-seconds=0"];
    let mut base = AlarmBase::start(TestApp::start_with(&flags).await).await;
    let mut client = base.watch().await;
    let lock = base.app.freeze();
    base.game.world(|world| world.fire_alarm(BASE_ALARM));
    let device = BASE_ALARM.to_string();
    client.until(&base.server, |state| state["devices"][&device]["value"] == true).await;

    let AlarmBase { app, alice, game, server } = base;
    let closing = async {
        let raid = client.expect("raid").await;
        (raid, client.expect_close().await)
    };
    let ((raid, closed), app) = tokio::join!(closing, app.restart_after(|| drop(lock)));
    assert_eq!(closed, 4412);
    let alice = app.again(&alice);
    let alarms = AlarmBase { app, alice, game, server }.alarms_until(&["delivered"]).await;
    assert_eq!(alarms[0]["incident"], raid["incident"]);
}

#[actix_web::test]
async fn all_of_it_holds_on_postgresql() {
    let Some(database) = Postgres::create() else { return };
    let flags = ["--allow-private-game-servers=true", LINKS];
    let mut base = AlarmBase::start(TestApp::start_on(database.url(), &flags).await).await;
    base.game.world(|world| world.fire_alarm(BASE_ALARM));
    base.alarms_until(&["unheard"]).await;
    let client = base.watch().await;
    let incident = raids(client.state(&base.server))[0].0.clone();
    base.alarms_until(&["delivered_later"]).await;
    let path = format!("/paired-servers/{}/alarms/{incident}/ack", base.server);
    assert_eq!(base.alice.post(&path, None).await.status, 200);
    base.alarms_until(&["acknowledged"]).await;

    // Text that this database cannot hold is no id.
    let alarms = format!("/paired-servers/{}/alarms", base.server);
    base.alice.get(&format!("{alarms}?before=%00")).await.expect_problem(400, "invalid_request");
    base.alice.post(&format!("{alarms}/%00/ack"), None).await.expect_problem(404, "not_found");
    let mut client = base.watch().await;
    let server = base.server.as_str();
    for message in [
        json!({ "type": "subscribe", "serverId": "\0" }),
        json!({ "type": "raidAck", "serverId": server, "incident": "\0" }),
        json!({ "type": "deviceToggle", "serverId": server, "deviceId": "7\0" }),
    ] {
        client.send(message).await;
        client.expect_error("malformed").await;
    }
}
