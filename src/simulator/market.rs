//! A seeded market on the island of a world: honest players' shops, and fakes of every kind that the suspicious scan
//! looks for. Nothing happens by itself: [`SeededMarket::step`] is one round of it.

use super::{
    point::Point,
    rng::Rng,
    world::{SimulatedWorld, TEAM},
};
use crate::{
    domain::items::Catalogue,
    game::wire::{AppMarker, AppMarkerType, app_marker::SellOrder},
};

/// Goods of honest shops: item, pieces, currency, cost.
const GOODS: [(&str, i32, &str, i32); 12] = [
    ("wood", 1000, "scrap", 20),
    ("stones", 1000, "scrap", 25),
    ("metal.fragments", 500, "scrap", 40),
    ("metal.refined", 50, "scrap", 60),
    ("sulfur", 500, "scrap", 75),
    ("cloth", 200, "scrap", 15),
    ("lowgradefuel", 100, "scrap", 12),
    ("explosive.timed", 1, "sulfur", 4200),
    ("ammo.rocket.basic", 1, "sulfur", 2600),
    ("gears", 5, "scrap", 60),
    ("techparts", 5, "scrap", 110),
    ("rifle.ak", 1, "scrap", 450),
];

const OWNERS: [&str; 10] =
    ["Oscar", "Lola", "Milo", "Gordon", "Isolde", "Pablo", "Carlo", "Ronja", "Leopold", "Apollo"];
const TRADES: [&str; 8] = ["Metals", "Explosives", "Lumber", "Tools", "Rarities", "Bargains", "Deals", "Supplies"];

/// Monuments whose shops are the map's own, and how far from them players build, metres.
const SAFE_ZONES: [&str; 4] =
    ["outpost", "bandit_camp", "fishing_village_display_name", "large_fishing_village_display_name"];
const BUILT_FROM: f32 = 150.0;
/// Between two owners' shops, metres.
const APART: f32 = 60.0;

/// Fraud of a shop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fake {
    /// Far cheaper than the others.
    TooCheap,
    /// Cheaper than its ingredients.
    BelowCrafting,
    /// Holds more than a machine can.
    Overfull,
    /// Has the name of an honest shop, but for a letter that looks the same.
    Imitation,
    /// Vanishes and comes back.
    Blinking,
    /// Cheap, and each time elsewhere.
    Moving,
}

const FAKES: [Fake; 6] =
    [Fake::TooCheap, Fake::BelowCrafting, Fake::Overfull, Fake::Imitation, Fake::Blinking, Fake::Moving];

/// See the module.
#[derive(Debug)]
pub struct SeededMarket {
    rng: Rng,
    stalls: Vec<Stall>,
}

#[derive(Debug)]
struct Stall {
    /// As it is on the map, or was before it vanished.
    marker: AppMarker,
    is_there: bool,
    /// Base of each order's cost; at other times the cost is near to it.
    costs: Vec<i32>,
    fake: Option<Fake>,
}

impl SeededMarket {
    /// Opens the given number of honest shops.
    pub fn open(world: &mut SimulatedWorld, seed: u64, shops: usize) -> Self {
        let mut market = Self { rng: Rng::new(seed), stalls: Vec::new() };
        for index in 0..shops {
            let round = index / (OWNERS.len() * TRADES.len());
            let (owner, trade) = (OWNERS[index % OWNERS.len()], TRADES[index / OWNERS.len() % TRADES.len()]);
            let name = if round == 0 { format!("{owner} {trade}") } else { format!("{owner} {trade} {}", round + 1) };
            let orders = (0..1 + market.rng.below(5)).map(|_| market.honest_order()).collect();
            market.add(world, name, orders, None);
        }
        market
    }

    /// Opens the given number of fakes, of each kind in turn.
    pub fn plant(&mut self, world: &mut SimulatedWorld, fakes: usize) {
        let honest: Vec<String> = self
            .stalls
            .iter()
            .filter(|stall| stall.fake.is_none())
            .map(|stall| stall.marker.name().to_owned())
            .collect();
        for index in 0..fakes {
            let fake = FAKES[index % FAKES.len()];
            let mut name = format!("Trader {}", (b'A' + (index % 26) as u8) as char);
            let order = self.honest_order();
            let cheaper = |order: SellOrder, part: f32| SellOrder {
                cost_per_item: ((order.cost_per_item as f32 * part) as i32).max(1),
                ..order
            };
            let order = match fake {
                Fake::TooCheap => cheaper(order, 0.12),
                Fake::Moving => cheaper(order, 0.35),
                Fake::BelowCrafting => order_of("explosive.timed", 1, "scrap", 10 + self.rng.below(20) as i32, 3),
                Fake::Overfull => SellOrder { amount_in_stock: 2_000_000, ..order },
                Fake::Imitation => {
                    name = imitated(&honest[self.rng.below(honest.len())]);
                    order
                }
                Fake::Blinking => order,
            };
            self.add(world, name, vec![order], Some(fake));
        }
    }

    /// One round: every machine has another marker id, shops sell, restock and change prices a little, blinking fakes
    /// vanish or are back, and moving ones move.
    pub fn step(&mut self, world: &mut SimulatedWorld) {
        for index in 0..self.stalls.len() {
            let moved = (self.stalls[index].fake == Some(Fake::Moving)).then(|| self.place(world));
            let stall = &mut self.stalls[index];
            if stall.is_there {
                world.remove_marker(stall.marker.id);
            }
            stall.is_there = stall.fake != Some(Fake::Blinking) || !stall.is_there;
            if let Some(at) = moved {
                (stall.marker.x, stall.marker.y) = (at.x, at.y);
            }
            let may_trade = !matches!(stall.fake, Some(Fake::Overfull | Fake::Moving));
            for (order, cost) in stall.marker.sell_orders.iter_mut().zip(&stall.costs).filter(|_| may_trade) {
                if self.rng.chance(0.3) {
                    order.amount_in_stock = self.rng.below(8) as i32;
                }
                if self.rng.chance(0.1) {
                    order.cost_per_item = ((*cost as f32 * self.rng.between(0.85, 1.15)).round() as i32).max(1);
                }
            }
            if stall.is_there {
                stall.marker.id = world.add_marker(AppMarker { id: 0, ..stall.marker.clone() });
            }
        }
    }

    /// Place and fraud of each fake.
    pub fn fakes(&self) -> impl Iterator<Item = (Point, Fake)> {
        self.stalls.iter().filter_map(|stall| Some((Point::new(stall.marker.x, stall.marker.y), stall.fake?)))
    }

    fn add(&mut self, world: &mut SimulatedWorld, name: String, sell_orders: Vec<SellOrder>, fake: Option<Fake>) {
        let at = self.place(world);
        let costs = sell_orders.iter().map(|order| order.cost_per_item).collect();
        let mut marker = AppMarker {
            r#type: AppMarkerType::VendingMachineMarker as i32,
            x: at.x,
            y: at.y,
            name: Some(name),
            sell_orders,
            ..Default::default()
        };
        marker.id = world.add_marker(marker.clone());
        self.stalls.push(Stall { marker, is_there: true, costs, fake });
    }

    fn honest_order(&mut self) -> SellOrder {
        let (item, quantity, currency, cost) = GOODS[self.rng.below(GOODS.len())];
        let cost = (cost as f32 * self.rng.between(0.8, 1.25)).round() as i32;
        order_of(item, quantity, currency, cost, 1 + self.rng.below(8) as i32)
    }

    /// A place on land where players build, away from all shops.
    fn place(&mut self, world: &SimulatedWorld) -> Point {
        let shops: Vec<Point> = world
            .map_markers(TEAM[0].0)
            .markers
            .iter()
            .filter(|marker| !marker.sell_orders.is_empty())
            .map(|marker| Point::new(marker.x, marker.y))
            .collect();
        let terrain = world.terrain();
        let is_free = |at: &Point| {
            SAFE_ZONES.iter().all(|zone| terrain.monument(zone).distance(*at) > BUILT_FROM)
                && shops.iter().all(|shop| shop.distance(*at) > APART)
        };
        let mut at = terrain.land(&mut self.rng);
        for _ in 0..500 {
            if is_free(&at) {
                break;
            }
            at = terrain.land(&mut self.rng);
        }
        at
    }
}

fn order_of(item: &str, quantity: i32, currency: &str, cost_per_item: i32, amount_in_stock: i32) -> SellOrder {
    let id = |shortname| Catalogue::embedded().by_shortname(shortname).map(|item| item.id).unwrap_or_default();
    SellOrder {
        item_id: id(item),
        quantity,
        currency_id: id(currency),
        cost_per_item,
        amount_in_stock,
        ..Default::default()
    }
}

/// The name with its first letter that has a lookalike replaced.
fn imitated(name: &str) -> String {
    let lookalike = |character| match character {
        'O' | 'o' => Some('0'),
        'I' | 'l' => Some('1'),
        'e' => Some('3'),
        'a' => Some('а'), // the Cyrillic one
        _ => None,
    };
    match name.char_indices().find_map(|(at, character)| Some((at, character, lookalike(character)?))) {
        Some((at, character, other)) => format!("{}{other}{}", &name[..at], &name[at + character.len_utf8()..]),
        None => format!("{name}!"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;

    #[test]
    fn the_same_seed_gives_the_same_market_with_all_kinds_of_fakes() {
        let run = || {
            let mut world = SimulatedWorld::new(7, Timestamp::from_unix(1_790_000_000).expect("a time"));
            let mut market = SeededMarket::open(&mut world, 3, 40);
            market.plant(&mut world, 12);
            let before: Vec<u64> = market.stalls.iter().map(|stall| stall.marker.id).collect();
            market.step(&mut world);
            let after: Vec<u64> = market.stalls.iter().map(|stall| stall.marker.id).collect();
            let blinking = market.stalls.iter().filter(|stall| !stall.is_there).count();
            assert_eq!(before.iter().zip(&after).filter(|(before, after)| before == after).count(), blinking);
            (world.map_markers(1), market.fakes().map(|(_, fake)| fake).collect::<Vec<_>>(), blinking)
        };
        let (markers, mut fakes, blinking) = run();
        assert_eq!(run().0, markers);
        fakes.sort_unstable();
        fakes.dedup();
        assert_eq!((fakes.len(), blinking), (FAKES.len(), 2));
        assert!(GOODS.iter().all(|(item, _, currency, _)| {
            [item, currency].into_iter().all(|shortname| Catalogue::embedded().by_shortname(shortname).is_some())
        }));
    }
}
