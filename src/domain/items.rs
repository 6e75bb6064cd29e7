//! The game's items: the meaning of an item id, its pieces in a slot, and its recipe. The embedded default catalogue
//! (`data/items.tsv`, `data/crafting.tsv`) is read once.
//!
//! A [`Catalogue`] never changes: an admin's edit makes another one. So a function that writes names is handed the catalogue of
//! that moment, and looks names up without a lock.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
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

/// All items, by both of their keys, as admins have edited them.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// Number of the last edit; 0 for the embedded catalogue.
    version: i64,
    by_id: HashMap<i32, Arc<CatalogueItem>>,
    by_shortname: HashMap<Arc<str>, i32>,
}

static EMBEDDED: LazyLock<Arc<Catalogue>> =
    LazyLock::new(|| Arc::new(Catalogue::read(include_str!("data/items.tsv"), include_str!("data/crafting.tsv"))));

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
        Self { version: 0, by_id: by_id.into_iter().map(|(id, item)| (id, Arc::new(item))).collect(), by_shortname }
    }

    /// The embedded catalogue, regardless of edits.
    pub fn embedded() -> &'static Arc<Self> {
        &EMBEDDED
    }

    /// The embedded catalogue with these edits, the last of which is number `version`. Recipes remain.
    pub fn edited(version: i64, edits: &[ItemEdit]) -> Self {
        let mut catalogue = Self { version, ..Self::clone(&EMBEDDED) };
        for edit in edits {
            catalogue.insert(CatalogueItem {
                id: edit.id,
                shortname: edit.shortname.as_str().into(),
                name: edit.name.as_str().into(),
                category: edit.category.as_str().into(),
                stack_size: edit.stack_size,
                ingredients: EMBEDDED.item(edit.id).map(|item| item.ingredients.clone()).unwrap_or_default(),
                icon: edit.icon.as_deref().map(Into::into),
                source: ItemSource::Admin,
            });
        }
        catalogue
    }

    /// Number of the last edit; 0: there was none.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// The item of this id.
    pub fn item(&self, id: i32) -> Option<&Arc<CatalogueItem>> {
        self.by_id.get(&id)
    }

    /// The item of this short name.
    pub fn by_shortname(&self, shortname: &str) -> Option<&Arc<CatalogueItem>> {
        self.item(*self.by_shortname.get(shortname)?)
    }

    /// All items, by name and then by id.
    pub fn all(&self) -> Vec<Arc<CatalogueItem>> {
        let mut all: Vec<_> = self.by_id.values().cloned().collect();
        all.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
        all
    }

    /// The name of this item.
    pub fn name(&self, id: i32) -> Option<Arc<str>> {
        self.item(id).map(|item| item.name.clone())
    }

    /// The names of this item.
    pub fn names(&self, id: i32) -> ItemNames {
        let item = self.item(id);
        ItemNames { name: item.map(|item| item.name.clone()), shortname: item.map(|item| item.shortname.clone()) }
    }

    /// The item in words: its name, `item 123` when it has none, with `(blueprint)` for the blueprint of it.
    pub fn in_words(&self, id: i32, is_blueprint: bool) -> String {
        let blueprint = if is_blueprint { " (blueprint)" } else { "" };
        match self.item(id) {
            Some(item) => format!("{}{blueprint}", item.name),
            None => format!("item {id}{blueprint}"),
        }
    }

    fn insert(&mut self, item: CatalogueItem) {
        if let Some(before) = self.by_id.get(&item.id)
            && self.by_shortname.get(&before.shortname) == Some(&item.id)
        {
            self.by_shortname.remove(&before.shortname);
        }
        self.by_shortname.insert(item.shortname.clone(), item.id);
        self.by_id.insert(item.id, Arc::new(item));
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

impl CatalogueItem {
    /// Number of pieces that one crafting makes, where it is known.
    pub fn made_at_once(&self) -> Option<u32> {
        MADE_AT_ONCE.iter().find(|(shortname, _)| *shortname == &*self.shortname).map(|(_, made)| *made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_tables_is_read() {
        let lines = |table: &str| table.lines().skip(1).filter(|line| !line.trim().is_empty()).count();
        assert_eq!((EMBEDDED.by_id.len(), EMBEDDED.by_shortname.len()), (1_131, 1_131));
        assert_eq!(EMBEDDED.by_id.len(), lines(include_str!("data/items.tsv")));
        let ingredients: usize = EMBEDDED.by_id.values().map(|item| item.ingredients.len()).sum();
        assert_eq!(ingredients, lines(include_str!("data/crafting.tsv")));
    }

    #[test]
    fn items_are_found_by_id_and_by_short_name() {
        let rifle = EMBEDDED.by_shortname("rifle.ak").unwrap();
        assert_eq!((rifle.id, &*rifle.name, rifle.stack_size), (1_545_779_598, "Assault Rifle", Some(1)));
        assert_eq!(EMBEDDED.item(rifle.id), Some(rifle));
        assert_eq!(EMBEDDED.item(SCRAP).map(|scrap| &*scrap.shortname), Some("scrap"));
        let metal = EMBEDDED.by_shortname("metal.refined").unwrap();
        assert!(rifle.ingredients.contains(&(metal.id, 50)), "{:?}", rifle.ingredients);
        assert!(EMBEDDED.by_shortname("scrap").unwrap().ingredients.is_empty());
    }

    #[test]
    fn what_is_not_in_the_catalogue_has_no_name() {
        assert_eq!((EMBEDDED.item(7), EMBEDDED.by_shortname("no.such.item")), (None, None));
        assert_eq!(EMBEDDED.names(7), ItemNames::default());
        assert_eq!(EMBEDDED.in_words(7, true), "item 7 (blueprint)");
        assert_eq!(EMBEDDED.in_words(SCRAP, false), "Scrap");
    }

    #[test]
    fn an_edit_counts_in_the_catalogue_that_is_made_with_it() {
        let edit = |id, shortname: &str, name: &str| ItemEdit {
            id,
            shortname: shortname.into(),
            name: name.into(),
            category: "Fun".into(),
            stack_size: Some(7),
            icon: Some("a.png".into()),
        };
        let rifle = EMBEDDED.by_shortname("rifle.ak").unwrap();
        let edited =
            Catalogue::edited(3, &[edit(rifle.id, "rifle.ak", "Kalashnikov"), edit(12, "new.item", "New Item")]);
        assert_eq!(edited.version(), 3);
        let named = edited.by_shortname("rifle.ak").unwrap();
        assert_eq!((&*named.name, named.stack_size, named.source), ("Kalashnikov", Some(7), ItemSource::Admin));
        assert_eq!(named.ingredients, rifle.ingredients);
        assert_eq!(edited.in_words(rifle.id, false), "Kalashnikov");
        assert_eq!(edited.names(12).name.as_deref(), Some("New Item"));
        assert_eq!((edited.all().len(), edited.by_shortname.len()), (1_132, 1_132));
        assert_eq!(&*rifle.name, "Assault Rifle", "the embedded one is as it was");

        let renamed = Catalogue::edited(4, &[edit(12, "new.item", "New Item"), edit(12, "newer.item", "Newer Item")]);
        assert_eq!(renamed.by_shortname("new.item"), None, "the short name before is free");
        assert_eq!(renamed.by_shortname("newer.item").map(|item| item.id), Some(12));
    }
}
