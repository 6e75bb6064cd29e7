//! The watches of shops that are refused.

use crate::{
    api::{
        answer::error::{ApiError, FieldError},
        intel::shops::MarketRead,
    },
    domain::{
        items::Catalogue,
        map::BEYOND_THE_MAP,
        shop::{VendorId, watch::ShopWatch},
    },
};

/// Refuses a watch of what cannot be. An item that the catalogue does not have may be new in the game, and is one if a
/// shop has it.
pub(super) fn check(
    watch: &ShopWatch,
    market: &MarketRead,
    catalogue: &Catalogue,
    map_size: u32,
) -> Result<(), ApiError> {
    let mut faults = Vec::new();
    let mut fault = |path: &str, message: &str| faults.push(FieldError { path: path.into(), message: message.into() });
    if !market.has_item(watch.item_id, catalogue) {
        fault("itemId", "is no item of the game");
    }
    match watch.currency_id {
        Some(currency) if currency == watch.item_id => fault("currencyId", "is the item itself"),
        Some(currency) if !market.has_item(currency, catalogue) => fault("currencyId", "is no item of the game"),
        _ => {}
    }
    let is_off = |at: f64| !(-BEYOND_THE_MAP..=f64::from(map_size) + BEYOND_THE_MAP).contains(&at);
    let place = watch.vendor_id().map(VendorId::place);
    if map_size > 0 && place.is_some_and(|(x, y)| is_off(x) || is_off(y)) {
        fault("vendorId", "is not on this map");
    }
    if faults.is_empty() { Ok(()) } else { Err(ApiError::Invalid(faults)) }
}

/// Refuses a watch that one of these already is.
pub(super) fn refuse_twin(watch: &ShopWatch, known: &[ShopWatch]) -> Result<(), ApiError> {
    match known.iter().find(|known| known.id != watch.id && known.is_same_offer(watch)) {
        Some(twin) => Err(ApiError::Exists(format!("It is watched already: {}.", twin.id))),
        None => Ok(()),
    }
}
