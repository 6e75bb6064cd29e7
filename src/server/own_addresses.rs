//! Where this service itself is reached: no game server has these addresses, whatever its name leads to.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use actix_web::web;
use tokio::time::{MissedTickBehavior, interval};
use url::Host;

use crate::{api::context::ApiContext, net::Names};

/// Names lead elsewhere when the service moves.
const LOOK_EVERY: Duration = Duration::from_secs(600);

/// Says which addresses are the service's own, as long as it runs: where it listens, and where its public URLs lead.
pub async fn watch(context: web::Data<ApiContext>, listening: [SocketAddr; 2]) {
    let urls = &context.settings.urls;
    let names = Names::system();
    let mut known = Vec::new();
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let mut own: Vec<IpAddr> = listening.map(|address| address.ip().to_canonical()).to_vec();
        for url in [Some(&urls.base), urls.relay.as_ref()].into_iter().flatten() {
            match url.host() {
                Some(Host::Domain(name)) => {
                    match names.look_up(name, 0).await {
                        Ok(found) => own.extend(found.into_iter().map(|address| address.ip().to_canonical())),
                        // The addresses of before, until the name is found again.
                        Err(_) => own.extend(&known),
                    }
                }
                Some(Host::Ipv4(ip)) => own.push(ip.into()),
                Some(Host::Ipv6(ip)) => own.push(IpAddr::from(ip).to_canonical()),
                None => {}
            }
        }
        own.sort_unstable();
        own.dedup();
        known.clone_from(&own);
        context.limits.outbound.set_own(own);
    }
}
