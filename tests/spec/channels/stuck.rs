//! Alarms while the database takes nothing: they ring all the same, and once.

use std::net::Ipv4Addr;

use companion::{crypto::random::Random, simulator::browser_push::BrowserPushService};

use super::*;

#[actix_web::test]
async fn a_stuck_database_lets_no_one_sleep_and_each_channel_rings_once() {
    let mut base = base().await;
    let key = base.alice.get("/channels/web-push/key").await.json()["key"].as_str().unwrap().to_owned();
    let local = (Ipv4Addr::LOCALHOST, 0).into();
    let service = BrowserPushService::start(local, base.app.clock.clone(), Random::system()).await.unwrap();
    let endpoint = service.subscribe(Some(&key));
    let keys = json!({ "p256dh": P256DH, "auth": AUTH });
    let browser = json!({ "kind": "webPush", "name": "Phone", "subscription": { "endpoint": endpoint, "keys": keys } });
    let browser = add(&mut base.alice, &browser).await;
    let hook = add_webhook(&mut base.alice, &base.receiver, "/hook").await;
    let steps = json!([{ "afterSeconds": 0, "channels": [browser["id"], hook["id"]] }]);
    let rules = json!({
        "enabled": true, "steps": steps, "repeatSeconds": 180, "rounds": 10, "kinds": ["raid"], "quiet": null
    });
    let path = format!("/paired-servers/{}/alarm-rules", base.server);
    assert_eq!(base.alice.put(&path, &rules).await.status, 200);
    add_device(&mut base.alice, &base.server, BASE_ALARM).await;
    let mut client = RelayClient::watching(&base.app, &mut base.alice, &base.server).await;
    client.until(&base.server, |state| is_complete(state, 1)).await;

    let lock = base.app.freeze();
    base.game.world(|world| world.fire_alarm(BASE_ALARM));
    let incident = client.expect("raid").await["incident"].as_str().unwrap().to_owned();
    let rung = base.receiver.next().await;
    assert_eq!((&rung.json()["type"], &rung.json()["data"]["incident"]), (&json!("raid.opened"), &json!(incident)));
    let link = ack_path(&rung.json());
    let early = base.app.browser().get(&link).await;
    assert!(early.status == 200 && early.text().contains("<form"), "{}", early.text());
    timeout(PATIENCE, service.until_asked(1)).await.expect("a push in time");
    let pushed = service.waiting(&endpoint);
    assert_eq!(pushed.len(), 1, "{:?}", service.refused());

    drop(lock);
    let alarms = format!("/paired-servers/{}/alarms", base.server);
    base.alice.get_until(&alarms, |list| list["alarms"][0]["incident"] == incident.as_str()).await;
    let are_accepted = |list: &Value| {
        let list = list["deliveries"].as_array().unwrap();
        list.len() == 2 && list.iter().all(|delivery| delivery["state"] == "accepted")
    };
    base.alice.get_until(&format!("{alarms}/{incident}/deliveries"), are_accepted).await;
    assert_eq!(base.app.browser().get(&link).await.status, 200);
    let another = base.drill().await;
    assert_eq!(base.receiver.next().await.json()["data"]["incident"], another, "the raid is not sent again");
    timeout(PATIENCE, service.until_asked(2)).await.expect("a push in time");
    let waiting = service.waiting(&endpoint);
    assert!(waiting.len() == 2 && waiting.iter().any(|push| push.id == pushed[0].id), "the first was not replaced");

    // The rest follows from the rows.
    base.app.clock.advance(Duration::seconds(180));
    let repeated = base.receiver.next().await;
    assert_eq!(
        (&repeated.json()["type"], &repeated.json()["data"]["incident"]),
        (&json!("raid.repeated"), &json!(incident))
    );
    assert_ne!(repeated.header("webhook-id"), rung.header("webhook-id"));
}

#[actix_web::test]
async fn an_alarm_in_a_stuck_database_is_acknowledged_by_its_link_and_stored_later() {
    let mut base = base().await;
    add_webhook(&mut base.alice, &base.receiver, "/hook").await;
    add_device(&mut base.alice, &base.server, BASE_ALARM).await;
    let mut client = RelayClient::watching(&base.app, &mut base.alice, &base.server).await;
    client.until(&base.server, |state| is_complete(state, 1)).await;
    let lock = base.app.freeze();
    base.game.world(|world| world.fire_alarm(BASE_ALARM));
    let incident = client.expect("raid").await["incident"].as_str().unwrap().to_owned();
    let link = ack_path(&base.receiver.next().await.json());
    let page = base.app.browser().post(&link, None).await;
    assert!(page.status == 200 && !page.text().contains("<form"), "{}", page.text());
    let is_acknowledged =
        |state: &Value| state["raids"][&incident]["acks"].as_object().is_some_and(|acks| acks.len() == 1);
    client.until(&base.server, is_acknowledged).await;

    drop(lock);
    let alarms = format!("/paired-servers/{}/alarms", base.server);
    let is_stored = |list: &Value| list["alarms"][0]["acks"].as_object().is_some_and(|acks| acks.len() == 1);
    base.alice.get_until(&alarms, is_stored).await;
    let said = base.receiver.next().await.json();
    assert_eq!((&said["type"], &said["data"]["incident"]), (&json!("raid.acknowledged"), &json!(incident)));
    base.app.clock.advance(Duration::seconds(180));
    let another = base.drill().await;
    assert_eq!(base.receiver.next().await.json()["data"]["incident"], another, "no further round rings");
}

#[actix_web::test]
async fn an_alarm_that_the_database_took_and_cannot_give_rings_once_too() {
    let mut base = base().await;
    add_webhook(&mut base.alice, &base.receiver, "/hook").await;
    let file = base.app.directory().join("test.db");
    let rename = |from: &str, to: &str| {
        let mut db = SqliteConnection::establish(file.to_str().unwrap()).unwrap();
        db.batch_execute(&format!("PRAGMA busy_timeout = 10000; ALTER TABLE {from} RENAME TO {to}")).unwrap();
    };
    rename("deliveries", "deliveries_away");
    drop(base.raid().await);
    let rung = base.receiver.next().await.json();
    assert_eq!(rung["type"], "raid.opened");
    let alarms = format!("/paired-servers/{}/alarms", base.server);
    let list = base.alice.get_until(&alarms, |list| list["alarms"][0]["incident"].is_string()).await;
    let incident = list["alarms"][0]["incident"].as_str().unwrap();
    assert_eq!(rung["data"]["incident"], incident);

    rename("deliveries_away", "deliveries");
    let is_accepted = |list: &Value| list["deliveries"][0]["state"] == "accepted";
    base.alice.get_until(&format!("{alarms}/{incident}/deliveries"), is_accepted).await;
    let another = base.drill().await;
    assert_eq!(base.receiver.next().await.json()["data"]["incident"], another, "the raid is not sent again");
}

#[actix_web::test]
async fn a_drill_knows_what_rang_while_the_database_takes_nothing() {
    let mut base = base().await;
    let hook = add_webhook(&mut base.alice, &base.receiver, "/hook").await;
    drop(base.raid().await);
    base.receiver.next().await;
    let lock = base.app.freeze();
    let drill = base.alice.post(&format!("/paired-servers/{}/drill", base.server), None).await;
    drop(lock);
    let (status, report) = (drill.status, drill.json());
    let channel = &report["channels"][0];
    assert_eq!((status, &channel["id"], &channel["reach"]), (200, &hook["id"], &json!("accepted")), "{report}");
}
