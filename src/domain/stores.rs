//! The stores: JSON that the dashboard and the bot read at run time and admins edit. Each ships with content, which
//! counts until an admin writes another.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::domain::{items::Catalogue, raid_cost, words::words};

words! {
    /// A document of the service that admins change.
    #[derive(PartialOrd, Ord, Hash, ToSchema)]
    pub enum StoreName {
        /// Texts of the dashboard and the bot, with places in braces.
        Messages = "messages",
        /// Ingredients of items.
        Crafting = "crafting",
        /// Tools needed to get through walls and doors.
        Raid = "raid",
        /// Questions about this service, and their answers.
        Faq = "faq",
    }
}

impl StoreName {
    /// The content that the store ships with, as JSON text.
    pub fn shipped(self) -> &'static str {
        static CRAFTING: LazyLock<String> = LazyLock::new(|| crafting().to_string());
        static RAID: LazyLock<String> = LazyLock::new(|| raid().to_string());
        match self {
            Self::Messages => include_str!("data/stores/messages.json"),
            Self::Crafting => &CRAFTING,
            Self::Raid => &RAID,
            Self::Faq => include_str!("data/stores/faq.json"),
        }
    }
}

/// Fault of a text that cannot be the data of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreDataError {
    #[error("must be at most {0} bytes of JSON")]
    TooLarge(usize),
    #[error("must be JSON that nests at most 127 levels, with numbers that a program can hold")]
    Unreadable,
}

/// Checks that this well-formed JSON text can be the data of a store: readers must be able to parse it, too.
pub fn check_data(text: &str, most_bytes: usize) -> Result<(), StoreDataError> {
    if text.len() > most_bytes {
        return Err(StoreDataError::TooLarge(most_bytes));
    }
    serde_json::from_str::<Value>(text).map(drop).map_err(|_| StoreDataError::Unreadable)
}

fn crafting() -> Value {
    let craftable = Catalogue::embedded().all().into_iter().filter(|item| !item.ingredients.is_empty());
    let recipes: BTreeMap<_, _> = craftable
        .map(|item| {
            let ingredients = item.ingredients.iter().filter_map(|(id, quantity)| {
                let of = Catalogue::embedded().item(*id)?;
                Some(json!({ "shortname": of.shortname, "name": of.name, "quantity": quantity }))
            });
            let ingredients: Vec<Value> = ingredients.collect();
            let recipe = json!({ "name": item.name, "makes": item.made_at_once(), "ingredients": ingredients });
            (item.shortname.to_string(), recipe)
        })
        .collect();
    json!({ "note": "Ingredients of one crafting; `makes` is how many pieces it gives, where that is known.", "recipes": recipes })
}

fn raid() -> Value {
    let note = "For a piece at full health, hit from its hard side. Sulfur is computed from the crafting table.";
    json!({ "note": note, "targets": raid_cost::targets() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::limits::STORE_BYTES;

    #[test]
    fn every_store_ships_with_content_that_it_would_take() {
        for store in StoreName::ALL {
            assert_eq!(StoreName::parse(store.word()), Some(store));
            assert_eq!(check_data(store.shipped(), STORE_BYTES), Ok(()), "{store:?}");
            let content: Value = serde_json::from_str(store.shipped()).unwrap();
            assert!(content.as_object().is_some_and(|content| !content.is_empty()), "{store:?}");
        }
        assert_eq!(StoreName::parse("Faq"), None);
    }

    #[test]
    fn crafting_and_raids_are_those_of_the_game() {
        let content = |store: StoreName| serde_json::from_str::<Value>(store.shipped()).unwrap();
        let crafting = content(StoreName::Crafting);
        assert_eq!(crafting["recipes"]["gunpowder"]["makes"], 10);
        assert_eq!(
            crafting["recipes"]["gunpowder"]["ingredients"][1],
            json!({ "shortname": "sulfur", "name": "Sulfur", "quantity": 20 })
        );
        assert_eq!(content(StoreName::Raid)["targets"][1]["name"], "Stone wall");
    }

    #[test]
    fn every_question_has_an_answer_and_every_message_is_a_text() {
        let faq: Value = serde_json::from_str(StoreName::Faq.shipped()).unwrap();
        let entries = faq["entries"].as_array().unwrap();
        assert!(entries.len() >= 10);
        for entry in entries {
            for field in ["id", "question", "answer"] {
                assert!(entry[field].as_str().is_some_and(|text| !text.is_empty()), "{entry}");
            }
        }
        let messages: Value = serde_json::from_str(StoreName::Messages.shipped()).unwrap();
        assert!(messages.as_object().unwrap().values().all(Value::is_string));
    }

    #[test]
    fn data_that_readers_could_not_parse_is_refused() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for (text, expected) in [
            ("null", Ok(())),
            (r#"{"a":[1,2.5,"x"]}"#, Ok(())),
            ("[1,2,3,4,5,6,7,8,9,10]", Err(StoreDataError::TooLarge(20))),
            (deep.as_str(), Err(StoreDataError::Unreadable)),
            ("1e999", Err(StoreDataError::Unreadable)),
        ] {
            let most = if text.len() > 100 { 1_000 } else { 20 };
            assert_eq!(check_data(text, most), expected, "{text}");
        }
    }
}
