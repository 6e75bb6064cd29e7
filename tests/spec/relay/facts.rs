//! Facts of a server that come by watching it: its day as earlier links learned it, its map, and members who are away.

use chrono::TimeDelta;
use companion::{
    domain::ids::GameServerId,
    simulator::{point::Point, world::TEAM},
};
use diesel::{Connection as _, SqliteConnection, connection::SimpleConnection as _};
use serde_json::json;

use crate::harness::{
    game::{is_complete, member, watched},
    relay_client::RelayClient,
};

#[actix_web::test]
async fn the_day_of_a_game_server_is_known_after_a_restart() {
    let (app, alice, game, server, mut client) = watched(&[]).await;
    client.until(&server, |state| !state["server"]["hour"].is_null()).await;
    let head = &client.state(&server)["server"];
    assert_eq!((&head["mapSeed"], &head["hour"]), (&json!(7), &json!(8.0)), "{head}");
    for unknown in ["daySeconds", "nightSeconds", "dayNightAt"] {
        assert_eq!(head[unknown], json!(null), "a link that has just come up has learned nothing");
    }
    drop(client);
    let id = GameServerId::at("127.0.0.1", game.addr().port());
    let mut db = SqliteConnection::establish(app.directory().join("test.db").to_str().unwrap()).unwrap();
    // Hours of the game for each second: the day of 12.5 hours lasts 2500 seconds, the night of 11.5 hours 1150.
    let learned = format!("INSERT INTO day_speeds (game_server, day, night) VALUES ('{id}', 0.005, 0.01)");
    db.batch_execute(&format!("PRAGMA busy_timeout = 10000; {learned}")).unwrap();
    drop(db);

    let app = app.restart().await;
    let mut alice = app.again(&alice);
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 0) && !state["server"]["dayNightAt"].is_null()).await;
    let head = &client.state(&server)["server"];
    assert_eq!((&head["daySeconds"], &head["nightSeconds"]), (&json!(2500), &json!(1150)), "{head}");
    // At eight, twelve hours before sunset.
    let night = app.clock.now() + TimeDelta::seconds(2_400);
    assert_eq!(head["dayNightAt"], json!(night.to_wire()), "{head}");
}

#[actix_web::test]
async fn a_member_who_does_not_move_is_away_until_he_does() {
    let (app, _alice, game, server, mut client) = watched(&[]).await;
    let (since, marlow) = (app.clock.now().to_wire(), member(1));
    app.clock.advance(TimeDelta::minutes(6));
    // The game says how the team is when one of it changes.
    let change = |online| game.world(|world| world.set_online(TEAM[3].0, online));
    change(false);
    client.until(&server, |state| state["team"]["members"][&marlow]["afkSince"] == since.as_str()).await;
    game.world(|world| {
        let at = world.member(TEAM[1].0).map(|marlow| Point::new(marlow.x + 5.0, marlow.y)).unwrap();
        world.move_member(TEAM[1].0, at);
    });
    change(true);
    client.until(&server, |state| state["team"]["members"][&marlow]["afkSince"].is_null()).await;
}
