//! The users of the demo and what they have: they are signed in and registered, have paired the game server, and one pays.

use std::net::SocketAddr;

use super::{
    error::DemoError,
    file::{DemoFile, DemoServer, DemoTeammate},
    neighbours::{DemoNeighbours, SERVER_NAME},
    pairing::{self, RegisteredPhone},
    phone,
    teams::{self, DemoTeams},
    user,
};
use crate::{
    api::context::ApiContext,
    billing::checkout::{self, CheckoutError, PageRequest},
    db::{engine::error::DbError, users},
    domain::{
        ids::UserId,
        money::{billing_interval::BillingInterval, plan::Plan, tier::Tier},
        time::Timestamp,
    },
    simulator::{
        game_server::DEMO_TOKEN,
        world::{SimulatedDevice, TEAM},
    },
};

/// Facts about them.
pub struct DemoCast {
    /// The demo user.
    pub user: UserId,
    /// End of the registration of the user's device for the game's pushes, unless it is renewed.
    pub registered_until: Timestamp,
    /// Device id of a switch of the user.
    pub switch: Option<String>,
    /// The page on which the demo user pays for OPERATOR with one click; `None` if they have, in an earlier run.
    pub checkout_url: Option<String>,
    pub file: DemoFile,
}

impl DemoCast {
    /// Gathers them at a service with these neighbours, whose relay listens there. Its push worker and hub run; it need not
    /// serve clients yet.
    pub async fn gather(
        context: &ApiContext,
        relay: SocketAddr,
        neighbours: &DemoNeighbours,
        teams: &DemoTeams,
    ) -> Result<Self, DemoError> {
        let DemoNeighbours { game, pushes, sites, identity, .. } = neighbours;
        let base = &context.settings.urls.base;
        let switch = game.world(|world| {
            let switch = world.devices().find(|(_, _, device)| matches!(device, SimulatedDevice::Switch { .. }));
            switch.map(|(id, ..)| id.to_string())
        });
        let (player, name) = TEAM[0];
        let user = user::sign_in(context, player, name).await?;
        let RegisteredPhone { android_id: phone, ends_at } =
            pairing::register(context, &user.id, player, sites).await?;
        let others = teams.sign_in(context, sites).await?;
        let mut phones = teams::phones(&others);
        phones.insert(player, phone);
        game.push_through(pushes.clone(), SERVER_NAME, phones);
        let paired = pairing::pair(context, (&user.id, player), game, (pushes, phone)).await?;
        let teams = teams::pair(context, others, game, pushes).await?;
        phone::add(context, &user.id, &neighbours.phone).await?;
        neighbours.call(&base.to_string());
        let checkout_url = open_checkout(context, &user.id).await?;
        let (host, port) = (game.addr().ip().to_string(), game.addr().port());
        let file = DemoFile {
            api_url: base.to_string(),
            relay_url: format!("ws://{relay}"),
            sign_in_url: base.at("/auth/platform"),
            open_url: identity.one_time_link(&base.at("/auth/platform")),
            cookie: user.cookie,
            browser_push_url: neighbours.browsers.url(),
            servers: vec![DemoServer { id: paired.id, name: paired.name }],
            teammate: DemoTeammate { host, port, player: TEAM[1].0, token: DEMO_TOKEN },
            teams,
            nodes: Vec::new(),
        };
        Ok(Self { user: user.id, registered_until: ends_at, switch, checkout_url, file })
    }
}

/// A checkout of the demo user; the address of its page.
async fn open_checkout(context: &ApiContext, user: &UserId) -> Result<Option<String>, DemoError> {
    let Some(billing) = &context.services.billing else { return Ok(None) };
    let id = user.clone();
    let user = context.pool.read(move |db| users::find(db, &id)?.ok_or(DbError::NotFound)).await?;
    let key = context.random.hex::<16>();
    let plan = Plan { tier: Tier::Operator, interval: BillingInterval::Month };
    let Some(wanted) = billing.prices.sold(plan) else { return Ok(None) };
    let frontend = &context.settings.urls.frontend;
    let request = PageRequest { user: &user, wanted: &wanted, frontend, key: &key };
    match checkout::open_checkout(billing, request).await {
        Err(CheckoutError::Subscribed) => Ok(None),
        opened => Ok(Some(opened?.url)),
    }
}
