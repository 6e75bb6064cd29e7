//! Everything that a registration for the game's pushes calls, in one server: Google's check-in, installations and push
//! addresses, Expo's tokens, and the game's companion site with its login. Each is as strict as the real one, and fails
//! on demand.
//!
//! An identity that the check-in gives out is an account of the simulated push service, so that a push for a player
//! reaches all devices that are registered for them.

mod books;
pub mod browser;
mod faults;
mod game_site;
mod google;
mod shared;
mod token;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    time::Duration,
};

use actix_web::{
    HttpResponse,
    web::{self, ServiceConfig},
};
use ring::hmac;
use serde_json::json;
use tokio::sync::watch;

pub use self::{books::StepCounts, faults::RegistrationFaults, shared::SIMULATED_API_KEY};
use self::{shared::SharedSites, token::signed_token};
use super::{
    http_server::NeighbourServer, identity::IdentityProvider, loopback_client::loopback_client,
    push_service::PushService,
};
use crate::{clock::Clock, crypto::random::Random};

/// Time of the identity provider for an answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// The running servers; they stop when dropped.
pub struct RegistrationSites {
    addr: SocketAddr,
    shared: Arc<SharedSites>,
    _server: NeighbourServer,
}

impl RegistrationSites {
    /// Binds and begins to serve; port 0 takes a free one. Players sign in at the identity provider. Call it inside an
    /// actix system.
    pub async fn start(
        listen: SocketAddr,
        identity: &IdentityProvider,
        pushes: Arc<PushService>,
        clock: Clock,
        random: Random,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(SharedSites {
            addr,
            clock,
            pushes,
            key: hmac::Key::new(hmac::HMAC_SHA512, &random.bytes::<64>()),
            identity_url: identity.login_url(),
            claimed_id_prefix: identity.claimed_id_prefix(),
            http: loopback_client(DEADLINE)?,
            hanging: watch::Sender::new(false),
            books: Mutex::default(),
            random,
        });
        let data = web::Data::from(shared.clone());
        let routes = move |config: &mut ServiceConfig| {
            config
                .app_data(data.clone())
                .service(web::resource("/faults").post(set_faults))
                .service(web::resource("/checkin").post(google::check_in))
                .service(web::resource("/v1/projects/{project}/installations").post(google::install))
                .service(web::resource("/c2dm/register3").post(google::register))
                .service(web::resource("/--/api/v2/push/getExpoPushToken").post(google::expo_token))
                .service(web::resource("/login").get(game_site::login_page).post(game_site::begin_login))
                .service(web::resource("/signin-steam").get(game_site::end_login))
                .service(web::resource("/api/push/register").post(game_site::register))
                .service(web::resource("/api/push/unregister").delete(game_site::unregister));
        };
        Ok(Self { addr, shared, _server: NeighbourServer::start(listener, routes)? })
    }

    /// The address that all of them listen on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The base URL of all of them.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The settings of a service that registers here.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let url = self.url();
        vec![
            ("REGISTRATION_API_KEY", SIMULATED_API_KEY.to_owned()),
            ("REGISTRATION_GOOGLE_URL", url.clone()),
            ("REGISTRATION_INSTALLATIONS_URL", url.clone()),
            ("REGISTRATION_EXPO_URL", url.clone()),
            ("REGISTRATION_GAME_URL", url),
        ]
    }

    /// From now on the sites answer with these faults.
    pub fn set_faults(&self, faults: RegistrationFaults) {
        self.shared.books().faults = faults;
    }

    /// Waits until a request hangs.
    pub async fn until_hanging(&self) {
        let mut hanging = self.shared.hanging.subscribe();
        hanging.wait_for(|hanging| *hanging).await.expect("self owns the sender");
    }

    /// Requests of each step so far.
    pub fn counts(&self) -> StepCounts {
        self.shared.books().counts.clone()
    }

    /// Everything secret that was given out so far, as text.
    pub fn secrets(&self) -> Vec<String> {
        self.shared.books().secrets()
    }

    /// A token of this player's login, as the login page gives it.
    pub fn token(&self, player: u64) -> String {
        let now = self.shared.clock.now().timestamp();
        signed_token(&self.shared.key, player, now, self.shared.books().faults.token_life())
    }

    /// The Android ids of the devices to which pushes for this player go.
    pub fn devices(&self, player: u64) -> Vec<u64> {
        self.shared.books().devices(player, self.shared.clock.now())
    }

    /// Pushes to every device of this player; the number of devices.
    pub fn push(&self, player: u64, app_data: &[(String, String)]) -> usize {
        let devices = self.devices(player);
        for android_id in &devices {
            self.shared.pushes.push(*android_id, app_data.to_vec());
        }
        devices.len()
    }
}

async fn set_faults(shared: web::Data<SharedSites>, faults: web::Json<RegistrationFaults>) -> HttpResponse {
    shared.books().faults = faults.into_inner();
    HttpResponse::Ok().json(json!({ "ok": true }))
}
