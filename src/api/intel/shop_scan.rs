//! The suspicious shops of a game server: `/intel/{serverId}/shops/scan`.

use actix_web::{HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    api::{
        answer::{
            error::ApiError,
            list_page::{ListPage, ListPlace},
        },
        context::ApiContext,
        extract::{paired_server::WatchedServer, query::Query},
        intel::shops::{Delivery, MarketRead, OfferItems},
    },
    db::engine::pool::Db,
    domain::{
        items::Catalogue,
        shop::{
            VendorId,
            scan::{self, ScanReason},
        },
    },
};

/// A reason to suspect a shop.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ReasonView {
    #[schema(value_type = String, format = "scan-reason")]
    reason: ScanReason,
    weight: u32,
    /// The offer it is about, if it is about one.
    offer: Option<OfferItems>,
    /// In words.
    detail: String,
}

/// A suspicious shop.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct SuspectView {
    #[schema(value_type = String)]
    vendor_id: VendorId,
    name: String,
    x: f64,
    y: f64,
    grid: String,
    #[schema(minimum = 30, maximum = 100)]
    score: u32,
    /// Heaviest first.
    reasons: Vec<ReasonView>,
}

#[derive(Serialize, ToSchema)]
struct ScanResults {
    /// Most suspicious first.
    results: Vec<SuspectView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
    #[serde(flatten)]
    delivery: Delivery,
}

/// The suspicious shops of a game server.
#[utoipa::path(get, path = "/intel/{serverId}/shops/scan", tag = "intel",
    params(("serverId" = String, Path), ListPage), responses(
    (status = 200, body = ScanResults),
))]
pub async fn list(
    WatchedServer { id, .. }: WatchedServer,
    Query(page): Query<ListPage>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (now, live) = (context.clock.now(), context.services.markets.clone());
    let catalogue = context.caches.catalogue.current();
    // Scanned on the database's thread, which may block.
    let scan = move |db: &mut Db| {
        let market = MarketRead::load(db, &live, &id, now)?;
        let results: Vec<_> =
            scan::scan(&market.stored.shops, &catalogue).into_iter().map(|found| suspect(found, &catalogue)).collect();
        Ok((results, market))
    };
    let (results, market) = context.pool.read(scan).await?;
    let place = |suspect: &SuspectView| {
        ListPlace::new(u64::from(scan::HIGHEST_SCORE - suspect.score), suspect.vendor_id.to_string())
    };
    let (results, next) = page.cut(results, place)?;
    let delivery = market.delivery(&context);
    Ok(HttpResponse::Ok().json(ScanResults { results, next, delivery }))
}

fn suspect(suspect: scan::Suspect, catalogue: &Catalogue) -> SuspectView {
    let scan::Suspect { shop, score, reasons } = suspect;
    let (x, y) = shop.id.place();
    let reason = |scan::Suspicion { reason, weight, offer, detail }| {
        let offer = offer.map(|key| OfferItems::new(key, catalogue));
        ReasonView { reason, weight, offer, detail }
    };
    let (name, grid) = (shop.shown_name().to_owned(), shop.grid.clone());
    SuspectView { vendor_id: shop.id, name, x, y, grid, score, reasons: reasons.into_iter().map(reason).collect() }
}
