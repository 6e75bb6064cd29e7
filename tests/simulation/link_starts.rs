//! Starts of links in the healthy minutes: an answer of a device is lost, or is older than a broadcast about it. Soon
//! after, every device is shown as it is.

use std::{rc::Rc, time::Duration};

use chrono::TimeDelta;
use companion::{
    domain::time::Timestamp,
    simulator::world::{BASE_ALARM, GATE_SWITCH, SimulatedDevice, SimulatedWorld, TEAM, WALL_ALARM},
};
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    dashboard::Dashboard,
    judge::Judge,
    random::Stream,
    run::Run,
    world::{GAMES, PAIRED, ROOF_ALARM, SHED_ALARM, USERS, World},
};

/// When every link breaks and starts again, and when all that was missed was asked for again.
pub const LINKS_START: u64 = 335_000;
pub const DEVICES_TRUE: u64 = 390_000;
/// The last moment for that at a game server whose links are young.
const LAST_START: u64 = 350_000;
/// The pause after a link that was up for less goes on growing, up to five minutes: more than is left until the end. An
/// attempt that is under way when all is well again may fail seconds later, and its link is as much younger.
const YOUNG: TimeDelta = TimeDelta::seconds(60);

/// Answers come so much later, when they are to be overtaken; meanwhile the gate turns again and again.
const SLOW_ANSWERS: Duration = Duration::from_millis(800);
const GATE_TURNS_EVERY: Duration = Duration::from_millis(250);
/// For so long the game answers nothing: about one question of a link that has just started.
const NO_ANSWERS: Duration = Duration::from_millis(10);
/// Devices that nothing changes when they are looked at.
pub const STILL: [u64; 5] = [BASE_ALARM, WALL_ALARM, ROOF_ALARM, SHED_ALARM, GATE_SWITCH];

/// The value of a device in the game.
pub fn device_value(world: &SimulatedWorld, device: u64) -> Value {
    match world.devices().find(|(id, ..)| *id == device).map(|(.., device)| device) {
        Some(SimulatedDevice::Switch { on } | SimulatedDevice::Alarm { on, .. }) => Value::from(*on),
        _ => Value::Null,
    }
}

impl Run {
    /// Every link breaks, and what the next one asks first is answered late, or one question of it not at all.
    pub fn restart_links(self: &Rc<Self>) {
        for game in 0..GAMES.len() {
            let run = self.clone();
            tokio::task::spawn_local(async move {
                while run.has_young_link(game) {
                    if run.world.millis() >= LAST_START {
                        return;
                    }
                    sleep(Duration::from_secs(1)).await;
                }
                restart_links_of(run.world.clone(), game).await;
            });
        }
    }

    /// True if a dashboard shows a link to this game server that came up a moment ago.
    fn has_young_link(&self, game: usize) -> bool {
        let judge = self.world.judge.borrow();
        let paired = PAIRED.iter().filter(|(.., of)| *of == game);
        let servers: Vec<_> = paired.filter_map(|(name, ..)| judge.server(name)).collect();
        self.dashboards.iter().any(|dashboard| {
            let known = dashboard.known.borrow();
            let mut shown = servers.iter().filter_map(|server| known.get(server.as_str()));
            shown.any(|shown| {
                // One that is up since before the clock was set back is not young.
                let age = link_age(&self.world, &shown.state);
                shown.state["server"]["connection"] == "connected"
                    && age.is_some_and(|age| (TimeDelta::zero()..YOUNG).contains(&age))
            })
        })
    }
}

async fn restart_links_of(world: Rc<World>, game: usize) {
    let mut random = Stream::of(world.seed, &format!("links of {game} start"));
    let (is_slow, turns, freezes_after) = (random.chance(50), random.between(8, 30), random.between(5, 60));
    let server = &world.games[game];
    server.faults(|faults| faults.delay = is_slow.then_some(SLOW_ANSWERS));
    server.drop_connections();
    // A link that asks is another one.
    for _ in 0..2_500 {
        if (0..USERS.len()).any(|user| server.connections_of(TEAM[user].0) > 0) {
            break;
        }
        sleep(Duration::from_millis(2)).await;
    }
    if is_slow {
        for turn in 0..turns {
            // A gate that is not there turns nowhere.
            let _ = server.world(|world| world.set_switch(GATE_SWITCH, turn % 2 == 0));
            sleep(GATE_TURNS_EVERY).await;
        }
        server.faults(|faults| faults.delay = None);
    } else {
        sleep(Duration::from_millis(freezes_after)).await;
        server.faults(|faults| faults.frozen = true);
        sleep(NO_ANSWERS).await;
        server.faults(|faults| faults.frozen = false);
    }
}

impl Judge {
    /// Each dashboard that watches a server with a link shows its devices as they are, and that they answer.
    pub fn check_devices(&mut self, world: &World, dashboards: &[Rc<Dashboard>]) {
        for dashboard in dashboards {
            if !dashboard.open_wire().is_some_and(|wire| wire.lossless.get()) {
                continue;
            }
            for paired in dashboard.watches.borrow().iter() {
                let (name, _, game) = PAIRED[*paired];
                let known = dashboard.known.borrow();
                let Some(known) = self.server(name).and_then(|server| known.get(server.as_str())) else { continue };
                // One that came up just now has still to ask.
                if known.state["server"]["connection"] != "connected" || !is_up_long(world, &known.state) {
                    continue;
                }
                for device in STILL {
                    let (shown, is) = (
                        &known.state["devices"][device.to_string()],
                        world.games[game].world(|world| device_value(world, device)),
                    );
                    if shown["value"] != is || shown["reachable"] != "ok" {
                        let details = format!("dashboard {} of {name}: {device} is {is}: {shown}", dashboard.number);
                        self.broken("devices-are-true", details);
                    }
                }
            }
        }
    }
}

/// The link of this state has been up for the time that all questions may take.
pub fn is_up_long(world: &World, state: &Value) -> bool {
    link_age(world, state).is_some_and(|age| age > TimeDelta::seconds(40))
}

/// For how long the link of this state is as it is, by the clock.
fn link_age(world: &World, state: &Value) -> Option<TimeDelta> {
    let since = serde_json::from_value::<Timestamp>(state["server"]["since"].clone()).ok()?;
    Some(world.clock.now() - since)
}
