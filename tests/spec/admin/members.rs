//! Members: search, detail, overview, signing out, and taking their servers away.

use chrono::Duration;
use companion::simulator::world::GATE_SWITCH;
use serde_json::{Value, json};

use super::{audited, done, start};
use crate::harness::{
    app::{ADA, ADMINS, LINKS, TestApp},
    browser::Browser,
    game::{self, ALICE, BOB, add_device, is_complete, pair, share},
    relay_client::RelayClient,
};

async fn me(browser: &mut Browser) -> String {
    browser.get("/me").await.json()["id"].as_str().unwrap().to_owned()
}

/// Beside a simulated game server.
async fn start_beside_games() -> (TestApp, Browser) {
    let app = TestApp::start_with(&[ADMINS, "--allow-private-game-servers=true", LINKS]).await;
    let ada = app.signed_in(ADA).await;
    (app, ada)
}

#[actix_web::test]
async fn members_are_found_and_paged_newest_first() {
    let (app, mut ada) = start().await;
    app.signed_in(ALICE).await;
    app.clock.advance(Duration::seconds(1));
    let mut bob = app.signed_in(BOB).await;
    let page = async |ada: &mut Browser, query: &str| {
        let answer = ada.get(&format!("/admin/users?{query}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let list = answer.json();
        let accounts: Vec<Value> = list["users"].as_array().unwrap().iter().map(|u| u["platformId"].clone()).collect();
        (list["total"].as_u64().unwrap(), accounts)
    };
    assert_eq!(page(&mut ada, "").await.0, 3);
    let (total, accounts) = page(&mut ada, "limit=1").await;
    assert_eq!((total, accounts), (3, vec![json!(BOB)]));
    assert_eq!(page(&mut ada, "limit=9&offset=1").await.1.len(), 2);
    let (mut paged, mut query) = (Vec::new(), "limit=1".to_owned());
    loop {
        let list = ada.get(&format!("/admin/users?{query}")).await.json();
        paged.extend(list["users"].as_array().unwrap().iter().map(|user| user["id"].clone()));
        let Some(next) = list["next"].as_str() else { break };
        query = format!("limit=1&before={next}");
    }
    let all = ada.get("/admin/users").await.json();
    assert_eq!((&paged.len(), &all["next"]), (&3, &serde_json::Value::Null));
    assert!(paged.iter().eq(all["users"].as_array().unwrap().iter().map(|user| &user["id"])), "{all}");
    assert_eq!(page(&mut ada, &format!("q={ALICE}")).await, (1, vec![json!(ALICE)]));
    assert_eq!(page(&mut ada, "q=765611980000000").await.0, 3, "what it begins with");
    for query in ["q=%25", "q=_", "q=%5C", "q=%E2%80%8B", "q=0001", "q=%27%20OR%201%3D1"] {
        assert_eq!(page(&mut ada, query).await, (0, vec![]), "{query}");
    }
    let list = ada.get(&format!("/admin/users?q={BOB}")).await.json();
    let id = me(&mut bob).await;
    assert_eq!(
        list["users"][0],
        json!({
            "id": id, "platformId": BOB, "displayName": list["users"][0]["displayName"],
            "avatarUrl": list["users"][0]["avatarUrl"], "subscription": { "tier": null, "source": null, "status": null, "interval": null },
            "createdAt": "2026-11-21T12:00:01.000Z", "lastSeenAt": "2026-11-21T12:00:01.000Z",
        })
    );
    for bad in ["limit=0", "limit=501", "offset=-1", "offset=2147483648", "limit=x"] {
        ada.get(&format!("/admin/users?{bad}")).await.expect_problem(400, "invalid_request");
    }
}

#[actix_web::test]
async fn a_member_is_shown_with_all_there_is_but_secrets() {
    let (app, mut ada) = start_beside_games().await;
    let game = game::still(&app).await;
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let server = pair(&mut alice, &game).await;
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 0)).await;
    share(&mut alice, &server, &mut bob).await;
    let link = alice.post(&format!("/paired-servers/{server}/guests"), Some(&json!({ "link": true }))).await;
    assert_eq!(link.status, 201);
    let mut helper = app.paired(&mut alice).await;
    let bundle = json!({ "platformId": ALICE, "canary": "Hunter2" });
    assert_eq!(helper.upload(&bundle).await.status, 200);

    let path = format!("/admin/users/{}", me(&mut alice).await);
    let answer = ada.get(&path).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(!answer.text().contains("Hunter2"));
    let user = answer.json()["user"].clone();
    assert_eq!((&user["platformId"], &user["subscription"]["tier"]), (&json!(ALICE), &Value::Null));
    assert_eq!(user["subscription"]["why"], json!(["There is no subscription."]));
    let [paired] = &user["pairedServers"].as_array().unwrap()[..] else { panic!("{user}") };
    assert_eq!((&paired["id"], &paired["connection"]["state"]), (&json!(server), &json!("connected")));
    assert_eq!(paired["address"], "127.0.0.1");
    assert_eq!(user["pushCredential"]["state"], "unproven");
    let invites = user["dashboardGuestInvites"].as_array().unwrap();
    assert_eq!(invites.len(), 2);
    assert_eq!((&invites[0]["serverId"], &invites[0]["platformId"]), (&json!(server), &json!(BOB)));
    assert_eq!((&invites[0]["state"], &invites[1]["state"]), (&json!("guest"), &json!("invited")));
    assert!(invites[1].get("token").is_none(), "{invites:?}");
    assert_eq!(user["alarms"], json!({ "incidents": {}, "lastAt": null }));

    let guest = ada.get(&format!("/admin/users/{}", me(&mut bob).await)).await.json()["user"].clone();
    assert_eq!(guest["guestOf"][0]["serverId"], json!(server));
    assert_eq!((&guest["pairedServers"], &guest["pushCredential"]["state"]), (&json!([]), &json!("missing")));
    ada.get("/admin/users/nobody").await.expect_problem(404, "not_found");
}

#[actix_web::test]
async fn the_overview_says_who_is_online_and_where_members_are_stuck() {
    let (app, mut ada) = start_beside_games().await;
    let game = game::still(&app).await;
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let overview = ada.get("/admin/users/overview").await.json();
    assert_eq!((&overview["relayReachable"], overview.get("relayError")), (&json!(true), None));
    assert_eq!(
        overview["totals"],
        json!({
            "totalUsers": 3, "online": 0, "paid": 0, "beta": 0, "withCreds": 0, "withChat": 0, "withPaired": 0,
            "stuck": { "no-subscription": 3, "no-credentials": 0, "no-paired-server": 0 },
        })
    );
    let server = pair(&mut alice, &game).await;
    share(&mut alice, &server, &mut bob).await;
    let tester = json!({ "platformId": ALICE, "tier": "OPERATOR" });
    assert_eq!(ada.post("/admin/beta-testers", Some(&tester)).await.status, 201);
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.ping().await;
    assert_eq!(ada.all_pages("/admin/users/overview", "users", 1).await.len(), 3);
    let overview = ada.get("/admin/users/overview").await.json();
    assert_eq!(overview["totals"]["totalUsers"], 3);
    assert_eq!(overview["totals"]["beta"], 0, "the totals are kept for a moment");
    app.clock.advance(Duration::seconds(10));
    let overview = ada.get("/admin/users/overview").await.json();
    let totals = &overview["totals"];
    assert_eq!((&totals["online"], &totals["beta"], &totals["withPaired"]), (&json!(1), &json!(1), &json!(1)));
    assert_eq!(totals["stuck"], json!({ "no-subscription": 1, "no-credentials": 1, "no-paired-server": 0 }));

    let only = async |ada: &mut Browser, account: &str| {
        let users = ada.get(&format!("/admin/users/overview?q={account}&limit=1")).await.json()["users"].clone();
        assert_eq!(users.as_array().unwrap().len(), 1, "{users}");
        users[0].clone()
    };
    let shown = only(&mut ada, ALICE).await;
    assert_eq!((&shown["online"], &shown["tier"], &shown["status"]), (&json!(true), &json!("OPERATOR"), &Value::Null));
    assert_eq!((&shown["hasCredential"], &shown["credentialState"]), (&json!(false), &json!("missing")));
    assert_eq!((&shown["pairedServers"], &shown["funnelStage"]), (&json!(1), &json!("no-credentials")));
    assert_eq!(shown["stuckReason"], "Has not uploaded a push credential.");
    let shown = only(&mut ada, BOB).await;
    assert_eq!((&shown["online"], &shown["funnelStage"]), (&json!(false), &json!("guest-ready")));
    assert_eq!((&shown["guestOf"][0]["serverId"], &shown["stuckReason"]), (&json!(server), &Value::Null));
    assert_eq!(shown["guestOf"][0]["hostId"], json!(me(&mut alice).await));

    let mut helper = app.paired(&mut alice).await;
    assert_eq!(helper.upload(&json!({ "platformId": ALICE })).await.status, 200);
    assert_eq!(only(&mut ada, ALICE).await["funnelStage"], "ready", "of those shown, nothing is kept");
    for bad in ["limit=0", "limit=501"] {
        ada.get(&format!("/admin/users/overview?{bad}")).await.expect_problem(400, "invalid_request");
    }
    drop(bob.get("/me").await);
}

#[actix_web::test]
async fn signing_a_member_out_ends_every_session_and_its_sockets() {
    let (app, mut ada) = start_beside_games().await;
    let (mut alice, mut again) = (app.signed_in(ALICE).await, app.signed_in(ALICE).await);
    let mut client = RelayClient::connect(&app, &mut alice).await;
    client.ping().await;
    let id = me(&mut alice).await;
    let path = format!("/admin/users/{id}/sign-out");
    assert_eq!(ada.post(&path, None).await.json(), json!({ "ok": true, "sessions": 2 }));
    assert_eq!(client.expect_close().await, 4501);
    for browser in [&mut alice, &mut again] {
        browser.get("/me").await.expect_problem(401, "unauthenticated");
    }
    assert_eq!(ada.get("/me").await.json()["admin"], true, "nobody else's");
    assert_eq!(ada.post(&path, None).await.json(), json!({ "ok": true, "sessions": 0 }), "a second click");
    ada.post("/admin/users/nobody/sign-out", None).await.expect_problem(404, "not_found");
    let (two, none) = (json!({ "sessions": 2 }), json!({ "sessions": 0 }));
    assert_eq!(
        audited(&mut ada, 9).await,
        [done("user.sign_out", &id, none.clone(), none.clone()), done("user.sign_out", &id, two, none)]
    );
    let mut alice = app.signed_in(ALICE).await;
    assert_eq!(alice.get("/me").await.json()["admin"], false, "and may come again");
}

#[actix_web::test]
async fn taking_a_server_away_ends_its_link_and_watches() {
    let (app, mut ada) = start_beside_games().await;
    let games = [game::still(&app).await, game::still(&app).await, game::still(&app).await];
    let mut alice = app.signed_in(ALICE).await;
    let mut servers = Vec::new();
    for game in &games {
        servers.push(pair(&mut alice, game).await);
    }
    add_device(&mut alice, &servers[0], GATE_SWITCH).await;
    let mut client = RelayClient::connect(&app, &mut alice).await;
    for server in &servers {
        client.subscribe(server).await;
    }
    client.until(&servers[0], |state| is_complete(state, 1)).await;
    client.until(&servers[1], |state| is_complete(state, 0)).await;
    client.until(&servers[2], |state| is_complete(state, 0)).await;

    let path = format!("/admin/paired-servers/{}", servers[0]);
    assert_eq!(ada.delete(&path).await.json(), json!({ "ok": true }));
    assert_eq!(client.expect_error("unknown_server").await["serverId"], servers[0]);
    ada.delete(&path).await.expect_problem(404, "not_found");
    assert_eq!(alice.get("/paired-servers").await.json()["servers"].as_array().unwrap().len(), 2);
    client.ping().await;

    let id = me(&mut alice).await;
    let path = format!("/admin/users/{id}/paired-servers");
    assert_eq!(ada.delete(&path).await.json(), json!({ "ok": true, "deleted": 2 }));
    for _ in 0..2 {
        client.expect_error("unknown_server").await;
    }
    assert_eq!(ada.delete(&path).await.json(), json!({ "ok": true, "deleted": 0 }), "a second click");
    ada.delete("/admin/users/nobody/paired-servers").await.expect_problem(404, "not_found");
    alice.get_until("/paired-servers", |list| list["servers"] == json!([])).await;
    let gone = async {
        while games.iter().any(|game| game.connections() > 0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::harness::relay_client::PATIENCE, gone).await.expect("no link stays open");

    let log = audited(&mut ada, 9).await;
    let [nothing, all, one] = &log[..] else { panic!("{log:?}") };
    assert_eq!(*nothing, done("user.paired_servers.delete", &id, json!([]), json!([])));
    assert_eq!((&all["action"], &all["target"]), (&json!("user.paired_servers.delete"), &json!(id)));
    let listed: Vec<&Value> = all["payload"]["before"].as_array().unwrap().iter().map(|server| &server["id"]).collect();
    assert_eq!(listed, [&json!(servers[1]), &json!(servers[2])]);
    let before = &one["payload"]["before"];
    assert_eq!((&one["actor"], &one["action"]), (&json!(ADA), &json!("paired_server.delete")));
    assert_eq!((&one["target"], &one["payload"]["after"]), (&json!(servers[0]), &Value::Null));
    assert_eq!((&before["ownerId"], &before["playerId"]), (&json!(id), &json!(ALICE)));
    assert!(before.get("playerTokenSealed").is_none(), "{before}");
}
