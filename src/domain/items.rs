//! The game's items: the meaning of an item id, its pieces in a slot, and its recipe. The embedded default catalogue
//! (`data/items.tsv`, `data/crafting.tsv`) is read once. Look items up with [`item`] or [`by_shortname`].
//!
//! Admins edit items, and names are wanted deep in the live state, where they cost nothing until they are written. So
//! there is one catalogue for the process, in memory: [`put`] and [`reset_to_shipped`] change it, and nothing else does.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, PoisonError, RwLock},
};

use serde::{Serialize, Serializer};
use utoipa::ToSchema;

/// Scrap, which most shops are paid in.
pub const SCRAP: i32 = -932_201_673;

/// An item of the game.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogueItem {
    /// The game's item id.
    pub id: i32,
    /// The game's own name, such as `rifle.ak`.
    pub shortname: Arc<str>,
    /// In English.
    pub name: Arc<str>,
    /// Empty for a few that are never held.
    pub category: Arc<str>,
    /// Pieces that one slot of a container holds, where it is known.
    pub stack_size: Option<u32>,
    /// Item id and pieces of each ingredient of one crafting; empty: it cannot be crafted.
    pub ingredients: Arc<[(i32, u32)]>,
    /// Name of the uploaded image.
    pub icon: Option<Arc<str>>,
    pub source: ItemSource,
}

/// Source of an item's facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ItemSource {
    /// The embedded catalogue.
    Catalogue,
    /// An admin, for an item of the catalogue or a new one.
    Admin,
}

/// An admin's edit of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemEdit {
    pub id: i32,
    pub shortname: String,
    pub name: String,
    pub category: String,
    pub stack_size: Option<u32>,
    pub icon: Option<String>,
}

/// The item's names, as messages have them beside an item id; `null` for an id that is not in the catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ItemNames {
    #[schema(value_type = Option<String>, required)]
    pub name: Option<Arc<str>>,
    #[schema(value_type = Option<String>, required)]
    pub shortname: Option<Arc<str>>,
}

/// The game's item id on the wire: text, as every id. For `serialize_with`.
pub fn id_text<S: Serializer>(id: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// Pieces that one crafting makes, where it is known: the data does not say.
const MADE_AT_ONCE: [(&str, u32); 8] = [
    ("ammo.rifle.explosive", 2),
    ("ammo.rocket.basic", 1),
    ("explosive.satchel", 1),
    ("explosive.timed", 1),
    ("explosives", 1),
    ("grenade.beancan", 1),
    ("gunpowder", 10),
    ("lowgradefuel", 4),
];

/// All items, by both of their keys.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    by_id: HashMap<i32, Arc<CatalogueItem>>,
    by_shortname: HashMap<Arc<str>, i32>,
}

static EMBEDDED: LazyLock<Catalogue> =
    LazyLock::new(|| Catalogue::read(include_str!("data/items.tsv"), include_str!("data/crafting.tsv")));
static CATALOGUE: LazyLock<RwLock<Catalogue>> = LazyLock::new(|| RwLock::new(EMBEDDED.clone()));

impl Catalogue {
    /// Reads the tables, each with a head line; a line that makes no sense is left out.
    fn read(items: &str, crafting: &str) -> Self {
        let mut by_id: HashMap<i32, CatalogueItem> = items.lines().skip(1).filter_map(read_item).collect();
        let by_shortname: HashMap<_, _> = by_id.values().map(|item| (item.shortname.clone(), item.id)).collect();
        let mut ingredients: HashMap<i32, Vec<(i32, u32)>> = HashMap::new();
        for line in crafting.lines().skip(1) {
            let mut cells = line.split('\t').map(str::trim);
            let (Some(made), Some(of), Some(pieces)) = (cells.next(), cells.next(), cells.next()) else { continue };
            let (Some(made), Some(of)) = (by_shortname.get(made), by_shortname.get(of)) else { continue };
            let Ok(pieces) = pieces.parse() else { continue };
            ingredients.entry(*made).or_default().push((*of, pieces));
        }
        for (id, of) in ingredients {
            if let Some(item) = by_id.get_mut(&id) {
                item.ingredients = of.into();
            }
        }
        Self { by_id: by_id.into_iter().map(|(id, item)| (id, Arc::new(item))).collect(), by_shortname }
    }

    fn get(&self, id: i32) -> Option<Arc<CatalogueItem>> {
        self.by_id.get(&id).cloned()
    }

    fn insert(&mut self, item: CatalogueItem) {
        self.remove(item.id);
        self.by_shortname.insert(item.shortname.clone(), item.id);
        self.by_id.insert(item.id, Arc::new(item));
    }

    fn remove(&mut self, id: i32) {
        if let Some(before) = self.by_id.remove(&id)
            && self.by_shortname.get(&before.shortname) == Some(&id)
        {
            self.by_shortname.remove(&before.shortname);
        }
    }
}

fn read_item(line: &str) -> Option<(i32, CatalogueItem)> {
    let mut cells = line.split('\t').map(str::trim);
    let item = CatalogueItem {
        id: cells.next()?.parse().ok()?,
        shortname: cells.next()?.into(),
        name: cells.next()?.into(),
        category: cells.next()?.into(),
        stack_size: cells.next()?.parse().ok(),
        ingredients: Arc::default(),
        icon: None,
        source: ItemSource::Catalogue,
    };
    Some((item.id, item))
}

/// Runs this on the catalogue as it is now. It must be quick: an edit waits for it.
fn read<T>(look: impl FnOnce(&Catalogue) -> T) -> T {
    look(&CATALOGUE.read().unwrap_or_else(PoisonError::into_inner))
}

/// The item of this id.
pub fn item(id: i32) -> Option<Arc<CatalogueItem>> {
    read(|catalogue| catalogue.get(id))
}

/// The item of this short name.
pub fn by_shortname(shortname: &str) -> Option<Arc<CatalogueItem>> {
    read(|catalogue| catalogue.by_shortname.get(shortname).and_then(|id| catalogue.get(*id)))
}

/// All items, by name and then by id.
pub fn all() -> Vec<Arc<CatalogueItem>> {
    let mut all: Vec<_> = read(|catalogue| catalogue.by_id.values().cloned().collect());
    all.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
    all
}

/// All items of the embedded catalogue, in no order.
pub fn embedded_all() -> Vec<Arc<CatalogueItem>> {
    EMBEDDED.by_id.values().cloned().collect()
}

/// The item as the embedded catalogue has it, regardless of edits.
pub fn embedded(id: i32) -> Option<Arc<CatalogueItem>> {
    EMBEDDED.get(id)
}

/// The embedded item of this short name.
pub fn embedded_by_shortname(shortname: &str) -> Option<Arc<CatalogueItem>> {
    EMBEDDED.by_shortname.get(shortname).and_then(|id| EMBEDDED.get(*id))
}

/// Number of items in the embedded catalogue.
pub fn count() -> usize {
    EMBEDDED.by_id.len()
}

/// Makes the item as in the edit from now on. The recipe remains.
pub fn put(edit: &ItemEdit) {
    let item = CatalogueItem {
        id: edit.id,
        shortname: edit.shortname.as_str().into(),
        name: edit.name.as_str().into(),
        category: edit.category.as_str().into(),
        stack_size: edit.stack_size,
        ingredients: embedded(edit.id).map(|item| item.ingredients.clone()).unwrap_or_default(),
        icon: edit.icon.as_deref().map(Into::into),
        source: ItemSource::Admin,
    };
    CATALOGUE.write().unwrap_or_else(PoisonError::into_inner).insert(item);
}

/// Takes back an admin's edit of the item.
pub fn reset_to_shipped(id: i32) {
    let mut catalogue = CATALOGUE.write().unwrap_or_else(PoisonError::into_inner);
    match embedded(id) {
        Some(item) => catalogue.insert((*item).clone()),
        None => catalogue.remove(id),
    }
}

impl CatalogueItem {
    /// Number of pieces that one crafting makes, where it is known.
    pub fn made_at_once(&self) -> Option<u32> {
        MADE_AT_ONCE.iter().find(|(shortname, _)| *shortname == &*self.shortname).map(|(_, made)| *made)
    }
}

impl ItemNames {
    /// The names of this item.
    pub fn of(id: i32) -> Self {
        let item = item(id);
        let shortname = item.as_ref().map(|item| item.shortname.clone());
        Self { name: item.map(|item| item.name.clone()), shortname }
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
        assert_eq!((count(), EMBEDDED.by_shortname.len()), (1_131, 1_131));
        assert_eq!(count(), lines(include_str!("data/items.tsv")));
        let ingredients: usize = EMBEDDED.by_id.values().map(|item| item.ingredients.len()).sum();
        assert_eq!(ingredients, lines(include_str!("data/crafting.tsv")));
    }

    #[test]
    fn items_are_found_by_id_and_by_short_name() {
        let rifle = by_shortname("rifle.ak").unwrap();
        assert_eq!((rifle.id, &*rifle.name, rifle.stack_size), (1_545_779_598, "Assault Rifle", Some(1)));
        assert_eq!(item(rifle.id), Some(rifle.clone()));
        assert_eq!(item(SCRAP).map(|scrap| scrap.shortname.clone()).as_deref(), Some("scrap"));
        let metal = by_shortname("metal.refined").unwrap();
        assert!(rifle.ingredients.contains(&(metal.id, 50)), "{:?}", rifle.ingredients);
        assert!(by_shortname("scrap").unwrap().ingredients.is_empty());
    }

    #[test]
    fn what_is_not_in_the_catalogue_has_no_name() {
        assert_eq!((item(7), by_shortname("no.such.item")), (None, None));
        assert_eq!(ItemNames::of(7), ItemNames::default());
        assert_eq!(in_words(7, true), "item 7 (blueprint)");
        assert_eq!(in_words(SCRAP, false), "Scrap");
    }

    /// Uses items that no other test looks at: the process has one catalogue.
    #[test]
    fn what_an_admin_says_counts_until_it_is_taken_back() {
        let edit = |id, shortname: &str, name: &str| ItemEdit {
            id,
            shortname: shortname.into(),
            name: name.into(),
            category: "Fun".into(),
            stack_size: Some(7),
            icon: Some("a.png".into()),
        };
        let pool = by_shortname("abovegroundpool").unwrap();
        put(&edit(pool.id, "abovegroundpool", "Paddling Pool"));
        let edited = item(pool.id).unwrap();
        assert_eq!((&*edited.name, edited.stack_size, edited.source), ("Paddling Pool", Some(7), ItemSource::Admin));
        assert_eq!(edited.ingredients, pool.ingredients);
        assert_eq!(in_words(pool.id, false), "Paddling Pool");
        reset_to_shipped(pool.id);
        assert_eq!(item(pool.id), Some(pool));

        put(&edit(12, "new.item", "New Item"));
        put(&edit(12, "newer.item", "Newer Item"));
        assert_eq!(by_shortname("new.item"), None, "the short name before is free");
        assert_eq!(ItemNames::of(12).name.as_deref(), Some("Newer Item"));
        reset_to_shipped(12);
        assert_eq!((item(12), by_shortname("newer.item")), (None, None));
        assert_eq!(count(), 1_131);
    }
}
