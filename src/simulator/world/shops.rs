//! Shops: their goods and their trade.

use super::{
    items::{
        ASSAULT_RIFLE, CLOTH, EXPLOSIVE_CHARGE, GEARS, GUNPOWDER, HIGH_QUALITY_METAL, LOW_GRADE_FUEL, METAL,
        METAL_PIPE, ROCKET, SCRAP, STONES, SULFUR, TECH_TRASH, WOOD,
    },
    markers::Markers,
};
use crate::{
    game::wire::{AppMarker, AppMarkerType, app_marker::SellOrder},
    simulator::{rng::Rng, terrain::Terrain},
};

/// Shops of an island, besides the bait.
const SHOPS: usize = 40;
/// Shops among them at the outpost.
const OUTPOST_SHOPS: usize = 8;
/// The name of shops whose stock never changes.
pub const STATIC_SHOP: &str = "Static Shop";

/// Goods of shops: item, pieces, currency, cost.
const GOODS: [(i32, i32, i32, i32); 14] = [
    (WOOD, 1000, SCRAP, 20),
    (STONES, 1000, SCRAP, 25),
    (METAL, 500, SCRAP, 40),
    (HIGH_QUALITY_METAL, 50, SCRAP, 60),
    (SULFUR, 500, SCRAP, 75),
    (GUNPOWDER, 100, SULFUR, 350),
    (CLOTH, 200, SCRAP, 15),
    (LOW_GRADE_FUEL, 100, SCRAP, 12),
    (EXPLOSIVE_CHARGE, 1, SULFUR, 4200),
    (ROCKET, 1, SULFUR, 2600),
    (METAL_PIPE, 5, SCRAP, 40),
    (GEARS, 5, SCRAP, 60),
    (TECH_TRASH, 5, SCRAP, 110),
    (ASSAULT_RIFLE, 1, SCRAP, 450),
];

const NAMES: [&str; 12] = [
    "A Shop",
    "Bang for Bucks",
    "Cheap Comps",
    "Metal Mart",
    "Night Owl",
    "Oil & Rust",
    "Roadside",
    "Scrap Heap",
    "Sulfur Springs",
    "The Green Door",
    "Twig Trading",
    "Wood 4 All",
];

/// Opens the shops of an island: some at the outpost, the others anywhere, and one that is too cheap to be honest.
pub fn open_all(markers: &mut Markers, terrain: &Terrain, rng: &mut Rng) {
    let outpost = terrain.monument("outpost");
    for index in 0..SHOPS {
        let npc = index < OUTPOST_SHOPS;
        let name = if npc { "Outpost" } else { NAMES[index % NAMES.len()] };
        let shop = open(markers, terrain, rng, name, 1 + index % 4);
        if npc {
            markers.move_to(shop, outpost.towards(index as f32 * 0.8, 35.0));
        }
    }
    let bait = open(markers, terrain, rng, "Closing down!!!", 0);
    if let Some(marker) = markers.get_mut(bait) {
        marker.sell_orders.push(order(EXPLOSIVE_CHARGE, 1, SCRAP, 10, 3));
        marker.out_of_stock = Some(false);
    }
}

/// Opens a shop with this many sell orders somewhere on the island. Returns its marker id.
pub fn open(markers: &mut Markers, terrain: &Terrain, rng: &mut Rng, name: &str, orders: usize) -> u64 {
    let at = terrain.land(rng);
    let sell_orders: Vec<SellOrder> = (0..orders)
        .map(|_| {
            let (item, quantity, currency, cost) = GOODS[rng.below(GOODS.len())];
            let cost = (cost as f32 * rng.between(0.8, 1.25)).round() as i32;
            order(item, quantity, currency, cost.max(1), rng.below(40) as i32)
        })
        .collect();
    markers.add(AppMarker {
        r#type: AppMarkerType::VendingMachineMarker as i32,
        x: at.x,
        y: at.y,
        name: Some(name.to_owned()),
        out_of_stock: Some(is_sold_out(&sell_orders)),
        sell_orders,
        ..Default::default()
    })
}

/// One shop sells something or restocks, and perhaps changes a price.
pub fn trade(markers: &mut Markers, rng: &mut Rng) {
    let open: Vec<u64> = markers
        .iter()
        .filter(|marker| !marker.sell_orders.is_empty() && marker.name.as_deref() != Some(STATIC_SHOP))
        .map(|marker| marker.id)
        .collect();
    if open.is_empty() {
        return;
    }
    let shop = open[rng.below(open.len())];
    let (sells, restocks, reprices) = (rng.chance(0.7), rng.chance(0.8), rng.chance(0.12));
    let (pick, bought, added) = (rng.bits() as usize, 1 + rng.below(3), 5 + rng.below(20));
    let factor = rng.between(0.75, 1.3);
    let Some(marker) = markers.get_mut(shop) else { return };
    let pick = pick % marker.sell_orders.len();
    let order = &mut marker.sell_orders[pick];
    if order.amount_in_stock > 0 && sells {
        order.amount_in_stock = (order.amount_in_stock - bought as i32).max(0);
    } else if restocks {
        order.amount_in_stock += added as i32;
    }
    if reprices {
        order.cost_per_item = ((order.cost_per_item as f32 * factor).round() as i32).max(1);
    }
    marker.out_of_stock = Some(is_sold_out(&marker.sell_orders));
}

fn is_sold_out(orders: &[SellOrder]) -> bool {
    orders.iter().all(|order| order.amount_in_stock == 0)
}

fn order(item_id: i32, quantity: i32, currency_id: i32, cost_per_item: i32, amount_in_stock: i32) -> SellOrder {
    SellOrder { item_id, quantity, currency_id, cost_per_item, amount_in_stock, ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stock_and_prices_change_and_stay_sensible() {
        let (terrain, mut rng, mut markers) = (Terrain::new(7), Rng::new(7), Markers::default());
        open_all(&mut markers, &terrain, &mut rng);
        let orders = |markers: &Markers| -> Vec<SellOrder> {
            markers.iter().flat_map(|marker| marker.sell_orders.iter().copied()).collect()
        };
        let before = orders(&markers);
        for _ in 0..200 {
            trade(&mut markers, &mut rng);
        }
        let after = orders(&markers);
        assert!(before.iter().zip(&after).any(|(before, after)| before.amount_in_stock != after.amount_in_stock));
        assert!(before.iter().zip(&after).any(|(before, after)| before.cost_per_item != after.cost_per_item));
        assert!(after.iter().all(|order| order.amount_in_stock >= 0 && order.cost_per_item > 0));
    }
}
