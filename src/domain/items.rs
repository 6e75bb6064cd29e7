//! The game's items: what an item id means, how much of it a slot holds, and what it is crafted of. The embedded default
//! catalogue (`data/items.tsv`, `data/crafting.tsv`) is read once. Whoever needs an item asks [`item`] or [`by_shortname`].

use std::{collections::HashMap, sync::LazyLock};

use serde::Serialize;

/// Scrap, which most shops are paid in.
pub const SCRAP: i32 = -932_201_673;

/// An item of the game.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogueItem {
    /// The game's item id.
    pub id: i32,
    /// The game's own name, such as `rifle.ak`.
    pub shortname: &'static str,
    /// In English.
    pub name: &'static str,
    /// Empty for a few that are never held.
    pub category: &'static str,
    /// Pieces that one slot of a container holds, where it is known.
    pub stack_size: Option<u32>,
    /// Item id and pieces of each ingredient of one crafting; empty: it cannot be crafted. How many pieces one crafting
    /// makes, the data does not say.
    pub ingredients: Vec<(i32, u32)>,
}

/// The item's names, as messages have them beside an item id; `null` for an id that is not in the catalogue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ItemNames {
    pub name: Option<&'static str>,
    pub shortname: Option<&'static str>,
}

struct Catalogue {
    by_id: HashMap<i32, CatalogueItem>,
    by_shortname: HashMap<&'static str, i32>,
}

static CATALOGUE: LazyLock<Catalogue> =
    LazyLock::new(|| Catalogue::read(include_str!("data/items.tsv"), include_str!("data/crafting.tsv")));

impl Catalogue {
    /// Reads the tables, each with a head line; a line that makes no sense is left out.
    fn read(items: &'static str, crafting: &'static str) -> Self {
        let mut by_id: HashMap<i32, CatalogueItem> = items.lines().skip(1).filter_map(read_item).collect();
        let by_shortname: HashMap<_, _> = by_id.values().map(|item| (item.shortname, item.id)).collect();
        for line in crafting.lines().skip(1) {
            let mut cells = line.split('\t').map(str::trim);
            let (Some(made), Some(of), Some(pieces)) = (cells.next(), cells.next(), cells.next()) else { continue };
            let (Some(made), Some(of)) = (by_shortname.get(made), by_shortname.get(of)) else { continue };
            let (Some(made), Ok(pieces)) = (by_id.get_mut(made), pieces.parse()) else { continue };
            made.ingredients.push((*of, pieces));
        }
        Self { by_id, by_shortname }
    }
}

fn read_item(line: &'static str) -> Option<(i32, CatalogueItem)> {
    let mut cells = line.split('\t').map(str::trim);
    let item = CatalogueItem {
        id: cells.next()?.parse().ok()?,
        shortname: cells.next()?,
        name: cells.next()?,
        category: cells.next()?,
        stack_size: cells.next()?.parse().ok(),
        ingredients: Vec::new(),
    };
    Some((item.id, item))
}

/// The item of this id.
pub fn item(id: i32) -> Option<&'static CatalogueItem> {
    CATALOGUE.by_id.get(&id)
}

/// The item of this short name.
pub fn by_shortname(shortname: &str) -> Option<&'static CatalogueItem> {
    CATALOGUE.by_shortname.get(shortname).and_then(|id| item(*id))
}

/// How many items there are.
pub fn count() -> usize {
    CATALOGUE.by_id.len()
}

impl ItemNames {
    /// The names of this item.
    pub fn of(id: i32) -> Self {
        let item = item(id);
        Self { name: item.map(|item| item.name), shortname: item.map(|item| item.shortname) }
    }
}

/// The item in words: its name, `item 123` when it has none, with `(blueprint)` for the blueprint of it.
pub fn in_words(id: i32, is_blueprint: bool) -> String {
    let blueprint = if is_blueprint { " (blueprint)" } else { "" };
    match item(id) {
        Some(item) => format!("{}{blueprint}", item.name),
        None => format!("item {id}{blueprint}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_tables_is_read() {
        let lines = |table: &str| table.lines().skip(1).filter(|line| !line.trim().is_empty()).count();
        assert_eq!((count(), CATALOGUE.by_shortname.len()), (1_131, 1_131));
        assert_eq!(count(), lines(include_str!("data/items.tsv")));
        let ingredients: usize = CATALOGUE.by_id.values().map(|item| item.ingredients.len()).sum();
        assert_eq!(ingredients, lines(include_str!("data/crafting.tsv")));
    }

    #[test]
    fn items_are_found_by_id_and_by_short_name() {
        let rifle = by_shortname("rifle.ak").unwrap();
        assert_eq!((rifle.id, rifle.name, rifle.stack_size), (1_545_779_598, "Assault Rifle", Some(1)));
        assert_eq!(item(rifle.id), Some(rifle));
        assert_eq!(item(SCRAP).map(|scrap| scrap.shortname), Some("scrap"));
        let metal = by_shortname("metal.refined").unwrap();
        assert!(rifle.ingredients.contains(&(metal.id, 50)), "{:?}", rifle.ingredients);
        assert_eq!(by_shortname("scrap").unwrap().ingredients, []);
    }

    #[test]
    fn what_is_not_in_the_catalogue_has_no_name() {
        assert_eq!((item(7), by_shortname("no.such.item")), (None, None));
        assert_eq!(ItemNames::of(7), ItemNames::default());
        assert_eq!(in_words(7, true), "item 7 (blueprint)");
        assert_eq!(in_words(SCRAP, false), "Scrap");
    }
}
