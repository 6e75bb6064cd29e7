//! Further users of the demo: players of its teams, who have paired the same game server.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{
    pairing::{self, DemoPairingError},
    user::{self, SignedInUser},
};
use crate::{
    api::context::ApiContext,
    domain::ids::ServerId,
    simulator::{
        game_server::{DEMO_TOKEN, GameServer},
        identity::Person,
        push_service::PushService,
        registration::RegistrationSites,
        world::{BASE_ALARM, SimulatedWorld, TEAM, WALL_ALARM, roster},
    },
};

/// Players of each team who use the service.
const USERS: usize = 3;

/// A further user, in `demo.json`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DemoPlayer {
    /// SteamID64, as text.
    pub player: String,
    pub name: String,
    /// `rp_sess=…` of this user.
    pub cookie: String,
    /// The game server, as this user has paired it.
    pub server_id: ServerId,
}

/// The players who use the service by team, the demo user's team first; none without `--teams`.
pub struct DemoTeams(Vec<Vec<(u64, String)>>);

impl DemoTeams {
    /// This many teams.
    pub fn new(teams: Option<usize>) -> Self {
        let Some(further) = teams.and_then(|teams| teams.checked_sub(1)) else { return Self(Vec::new()) };
        let first = TEAM[..USERS].iter().map(|(player, name)| (*player, (*name).to_owned())).collect();
        Self(std::iter::once(first).chain(roster(further, USERS)).collect())
    }

    /// Founds the teams beside that of the demo user, in which the alarms then push to each user.
    pub fn found(&self, world: &mut SimulatedWorld) {
        for founders in self.0.iter().skip(1) {
            world.found_team(founders);
        }
        for (player, _) in self.0.iter().take(1).flatten() {
            for alarm in [BASE_ALARM, WALL_ALARM] {
                world.set_subscription(alarm, *player, true).expect("the entity is an alarm");
            }
        }
        if self.0.len() > 1 {
            world.enliven_teams();
        }
    }

    /// Token of each player.
    pub fn tokens(&self) -> impl Iterator<Item = (u64, i32)> {
        self.0.iter().flatten().map(|(player, _)| (*player, token(*player)))
    }

    /// The players who are not in the first team, which can sign in anyway.
    pub fn persons(&self) -> impl Iterator<Item = Person> {
        let person = |(platform_id, name): &(u64, String)| Person {
            platform_id: *platform_id,
            name: name.clone(),
            avatar_url: String::new(),
        };
        self.0.iter().skip(1).flatten().map(person)
    }

    /// Signs all in but the demo user, and registers a device of each.
    pub async fn sign_in(
        &self,
        context: &ApiContext,
        sites: &RegistrationSites,
    ) -> Result<Vec<Vec<TeamUser>>, DemoPairingError> {
        let mut teams = Vec::new();
        for team in &self.0 {
            let mut users = Vec::new();
            for (player, name) in team.iter().filter(|(player, _)| *player != TEAM[0].0) {
                let user = user::sign_in(context, *player, name).await?;
                let phone = pairing::register(context, &user.id, *player, sites).await?.android_id;
                users.push(TeamUser { user, player: *player, name: name.clone(), phone });
            }
            teams.push(users);
        }
        Ok(teams)
    }
}

/// The token of a player; all of the first team have one.
fn token(player: u64) -> i32 {
    let of_team = TEAM.iter().any(|(member, _)| *member == player);
    if of_team { DEMO_TOKEN } else { DEMO_TOKEN - (player - TEAM[0].0) as i32 }
}

/// A further user, who is signed in and has a registered device.
pub struct TeamUser {
    user: SignedInUser,
    player: u64,
    name: String,
    /// Android id.
    phone: u64,
}

/// The phones of these users: Android id by SteamID64.
pub fn phones(teams: &[Vec<TeamUser>]) -> HashMap<u64, u64> {
    teams.iter().flatten().map(|user| (user.player, user.phone)).collect()
}

/// Each user pairs the game server and the devices that they may use.
pub async fn pair(
    context: &ApiContext,
    teams: Vec<Vec<TeamUser>>,
    game: &GameServer,
    pushes: &PushService,
) -> Result<Vec<Vec<DemoPlayer>>, DemoPairingError> {
    let mut paired = Vec::new();
    for team in teams {
        let mut players = Vec::new();
        for TeamUser { user, player, name, phone } in team {
            let server = pairing::pair(context, (&user.id, player), game, (pushes, phone)).await?;
            let player = player.to_string();
            players.push(DemoPlayer { player, name, cookie: user.cookie, server_id: server.id });
        }
        paired.push(players);
    }
    Ok(paired)
}
