//! Lines that no player has asked for, and leadership that is passed on.

use companion::simulator::world::{GATE_SWITCH, TEAM, TOOL_CUPBOARD};
use serde_json::{Value, json};

use super::room::{ChatRoom, MARLOW};
use crate::harness::game::{self, add_device};

const PIP: (u64, &str) = TEAM[3];
/// The game's item of this name.
const STONES: i32 = -2_099_697_608;

/// Pip goes offline, and comes online again.
async fn comes_back(room: &mut ChatRoom) {
    for online in [false, true] {
        room.game.world(|world| world.set_online(PIP.0, online));
        let pip = game::member(3);
        room.client.until(&room.server, |state| state["team"]["members"][&pip]["online"] == online).await;
    }
}

#[actix_web::test]
async fn logins_switches_and_upkeep_are_announced_where_the_owner_wants_it() {
    let mut room = ChatRoom::watching(&[GATE_SWITCH]).await;
    // Nothing of this is said, until it is switched on.
    comes_back(&mut room).await;
    room.game.world(|world| world.set_switch(GATE_SWITCH, true)).unwrap();
    assert!(room.ask("!wipe").await.starts_with("wiped "));
    room.set(json!({ "announcements": { "login": true, "device": true, "upkeep": true } })).await;
    assert!(room.ask("!wipe").await.starts_with("wiped "));

    comes_back(&mut room).await;
    assert_eq!(room.late_answer().await, format!("{} came online", PIP.1));
    room.game.world(|world| world.set_switch(GATE_SWITCH, false)).unwrap();
    let said = room.late_answer().await;
    assert!(said.contains(&GATE_SWITCH.to_string()) && said.contains("off"), "{said}");
    // Stone is taken from the cupboard: it has less than a day's, and that has to last for some seconds.
    room.game.world(|world| world.set_storage(TOOL_CUPBOARD, vec![(STONES, 10_000)]));
    add_device(&mut room.alice, &room.server, TOOL_CUPBOARD).await;
    let cupboard = TOOL_CUPBOARD.to_string();
    let has = |state: &Value, stones| state["devices"][&cupboard]["storage"]["items"][0]["quantity"] == stones;
    room.client.until(&room.server, |state| has(state, 10_000)).await;
    room.game.world(|world| world.set_storage(TOOL_CUPBOARD, vec![(STONES, 5_000)]));
    room.client.until(&room.server, |state| has(state, 5_000)).await;
    let said = room.late_answer().await;
    assert!(said.starts_with(&format!("{TOOL_CUPBOARD} has upkeep for less than 24 h")), "{said}");
    assert_eq!(room.answers.len(), 5, "{:?}", room.texts());
}

#[actix_web::test]
async fn the_leader_who_allows_it_passes_leadership_on() {
    let mut room = ChatRoom::watching(&[]).await;
    let leader = |room: &ChatRoom| room.game.world(|world| world.team_info(MARLOW).leader_steam_id);
    assert_eq!(room.ask("!leader").await, "only Nox can pass it on, and has not allowed it here");
    assert_eq!(leader(&room), TEAM[0].0);
    room.set(json!({ "passLeadership": true })).await;
    assert!(room.ask("!wipe").await.starts_with("wiped "));
    // The game takes this of its leader alone: the request came over Nox's link.
    assert_eq!(room.ask("!leader").await, "Marlow leads now");
    assert_eq!(leader(&room), MARLOW);
    let marlow = json!(MARLOW.to_string());
    room.client.until(&room.server, |state| state["team"]["leaderId"] == marlow).await;
    // Once in ten seconds.
    assert_eq!(room.ask("!leader nox").await, "leadership has just changed, wait a moment");
    assert_eq!(room.ask("!leader nox").await, "only Marlow can pass it on, and does not use this service");
    assert_eq!((leader(&room), room.answers.len()), (MARLOW, 5), "{:?}", room.texts());
}
