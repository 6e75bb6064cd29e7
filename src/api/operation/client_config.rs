//! Settings that a client needs before sign-in: `/client-config`; and the schema of the relay's messages.

use std::{sync::Arc, time::Duration};

use actix_web::{HttpRequest, HttpResponse, http::header, web};
use futures_util::future::join_all;
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::{
    api::{
        answer::{
            error::ApiError,
            etags::{self, Caching},
        },
        context::ApiContext,
    },
    billing::context::BillingContext,
    clients::payments::ProviderPrice,
    crypto::digest::sha256_hex,
    domain::{
        limits,
        money::{
            billing_interval::BillingInterval,
            plan::Plan,
            tier::{Entitlements, Tier},
        },
    },
};

/// Plans with the prices at which they are sold.
type PlanPrices = Vec<(Plan, ProviderPrice)>;

/// Longest wait of a client for the payment provider.
const PRICES_DEADLINE: Duration = Duration::from_secs(2);

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct ClientConfig {
    /// Version of the service.
    version: &'static str,
    /// The hash of the bundled pages: one that is open and has another should be loaded again. Null: they are read from files.
    #[schema(required)]
    pages: Option<String>,
    urls: ClientUrls,
    features: Features,
    /// The smallest first.
    #[schema(max_items = 3)]
    tiers: Vec<TierOffer>,
    limits: ClientLimits,
}

/// Public URLs. None ends with a slash.
#[derive(Serialize, ToSchema)]
struct ClientUrls {
    api: String,
    /// Clients connect to `/v1` of it. Null: this service does not know it; it may be known otherwise.
    #[schema(required)]
    relay: Option<String>,
    frontend: String,
}

/// Features that are switched on.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Features {
    /// Tiers can be bought.
    payments: bool,
    /// There is a support bot, and accounts can be linked with it.
    chat: bool,
    /// Tracked players are looked for, and aliases can be asked for.
    player_stats: bool,
    /// The service registers for the game's pushes itself.
    registrations: bool,
    /// Pictures of players can be fetched from `/players/{platformId}/avatar`.
    avatars: bool,
    /// Users are held to what their tier unlocks.
    tiers_enforced: bool,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct TierOffer {
    tier: Tier,
    /// For a month. Null: it cannot be bought, or the payment provider does not answer.
    #[schema(required)]
    price: Option<OfferedPrice>,
    /// For a year. Null: it is not sold by the year, or as above.
    #[schema(required)]
    yearly_price: Option<OfferedPrice>,
    /// Guests and open invitations of each server.
    guests_per_server: u32,
    /// On all servers together.
    watched_shops: u32,
}

/// Price of a tier.
#[derive(Serialize, ToSchema)]
struct OfferedPrice {
    /// In the smallest unit of the currency.
    amount: i64,
    /// Lower-case ISO code.
    currency: String,
}

/// Limits for clients, beside those that the document of the API gives for single values.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ClientLimits {
    /// Requests of one user in a minute, and at once.
    requests_per_minute: u32,
    toggles_per_minute: u32,
    camera_frames_per_minute: u32,
    /// Bytes.
    json_body: usize,
    bundle_bytes: usize,
    paired_servers: usize,
    devices_per_server: usize,
    map_notes_per_server: usize,
    tracked_players_per_server: usize,
    shop_watches_per_server: usize,
    guests_per_server: usize,
    helper_devices: usize,
    api_tokens: usize,
    relay: RelayLimits,
}

/// Limits for clients of the relay.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RelayLimits {
    /// Open connections of one user.
    connections: usize,
    /// Servers that one connection watches.
    subscriptions: usize,
    /// Bytes of one message to the relay.
    message_bytes: usize,
    /// Messages to the relay in 10 s.
    messages_in: usize,
    /// Messages from the relay in 10 s.
    messages_out: usize,
}

/// The public URLs, what is switched on, what tiers unlock and cost, and limits. Needs no session.
#[utoipa::path(get, path = "/client-config", tag = "content",
    params(("if-none-match" = Option<String>, Header, description = "The `ETag` of what the client has")), responses(
    (status = 200, body = ClientConfig, headers(("ETag" = String), ("Cache-Control" = String))),
    (status = 304, description = "The client has it"),
))]
pub async fn get(req: HttpRequest, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let prices = match &context.services.billing {
        Some(billing) => known_prices(&context, billing).await?,
        None => Arc::default(),
    };
    let config = ClientConfig::new(&context, &prices);
    let body = serde_json::to_vec(&config).map_err(|error| ApiError::Internal(error.into()))?;
    Ok(etags::json(&req, &sha256_hex(&body), Caching::Public, || body.clone().into()))
}

/// The plans that are sold with their prices, as far as the provider shows them.
async fn known_prices(context: &ApiContext, billing: &BillingContext) -> Result<Arc<PlanPrices>, ApiError> {
    let ask = || async {
        let prices = Plan::all().map(|plan| async move {
            let sold = billing.prices.sold(plan)?;
            match timeout(PRICES_DEADLINE, billing.client.price(&sold.price)).await {
                Ok(Ok(price)) => Some((plan, price)),
                Ok(Err(error)) => {
                    log::warn!("{} is not known: {error}", plan.variable());
                    None
                }
                Err(_) => None,
            }
        });
        Ok(join_all(prices).await.into_iter().flatten().collect())
    };
    context.caches.plan_prices.get(&context.clock, ask).await
}

impl ClientConfig {
    fn new(context: &ApiContext, prices: &PlanPrices) -> Self {
        let urls = &context.settings.urls;
        Self {
            version: env!("CARGO_PKG_VERSION"),
            pages: context.settings.pages.hash().map(str::to_owned),
            urls: ClientUrls {
                api: urls.base.to_string(),
                relay: urls.relay.as_ref().map(ToString::to_string),
                frontend: urls.frontend.to_string(),
            },
            features: Features {
                payments: context.services.billing.is_some(),
                chat: context.services.chat_bot.is_some(),
                player_stats: context.services.tracking.is_some(),
                registrations: context.services.registrar.is_some(),
                avatars: context.services.identity.has_profiles(),
                tiers_enforced: context.settings.enforce_tiers,
            },
            tiers: Tier::ALL.map(|tier| TierOffer::new(tier, prices)).into(),
            limits: ClientLimits::new(),
        }
    }

    /// Without prices, for which the payment provider would have to be asked.
    pub fn without_prices(context: &ApiContext) -> Self {
        Self::new(context, &PlanPrices::new())
    }
}

impl TierOffer {
    fn new(tier: Tier, prices: &PlanPrices) -> Self {
        let Entitlements { guests_per_server, watched_shops } = Entitlements::of(Some(tier));
        let price = |interval| {
            let (_, price) = prices.iter().find(|(plan, _)| *plan == Plan { tier, interval })?;
            let amount = price.amount.filter(|_| price.is_active)?;
            Some(OfferedPrice { amount, currency: price.currency.clone() })
        };
        let (price, yearly_price) = (price(BillingInterval::Month), price(BillingInterval::Year));
        Self { tier, price, yearly_price, guests_per_server, watched_shops }
    }
}

impl ClientLimits {
    fn new() -> Self {
        Self {
            requests_per_minute: limits::REQUESTS_PER_USER,
            toggles_per_minute: limits::TOGGLES_PER_USER,
            camera_frames_per_minute: limits::CAMERA_FRAMES_PER_USER,
            json_body: limits::JSON_BODY,
            bundle_bytes: limits::BUNDLE_BYTES,
            paired_servers: limits::PAIRED_SERVERS_PER_USER,
            devices_per_server: limits::DEVICES_PER_SERVER,
            map_notes_per_server: limits::MAP_NOTES_PER_SERVER,
            tracked_players_per_server: limits::TRACKED_PLAYERS_PER_SERVER,
            shop_watches_per_server: limits::SHOP_WATCHES_PER_SERVER,
            guests_per_server: limits::GUESTS_PER_SERVER,
            helper_devices: limits::HELPER_DEVICES_PER_USER,
            api_tokens: limits::API_TOKENS_PER_USER,
            relay: RelayLimits {
                connections: limits::CONNECTIONS_PER_USER,
                subscriptions: limits::SUBSCRIPTIONS,
                message_bytes: limits::INBOUND_BYTES,
                messages_in: limits::INBOUND_MESSAGES,
                messages_out: limits::OUTBOUND_FRAMES,
            },
        }
    }
}

/// The messages of the relay as a JSON Schema (2020-12), in both directions.
#[utoipa::path(get, path = "/relay.schema.json", tag = "relay",
    params(("if-none-match" = Option<String>, Header, description = "The `ETag` of what the client has")), responses(
    (status = 200, body = Object, content_type = "application/schema+json", headers(("ETag" = String))),
    (status = 304, description = "The client has it"),
))]
pub async fn relay_schema(req: HttpRequest, context: web::Data<ApiContext>) -> HttpResponse {
    let schema = &context.settings.relay_schema;
    let mut answer = etags::json(&req, &sha256_hex(schema), Caching::Public, || schema.clone());
    if answer.status().is_success() {
        answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/schema+json"));
    }
    answer
}
