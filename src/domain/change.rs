//! One edit of the live state, and how a run of edits becomes a JSON Patch (RFC 6902).
//!
//! A patch is written from the changes, never from a comparison of two documents, so its cost follows the change and
//! not the state. Because a change carries the old and the new value, any run of consecutive changes merges into one
//! patch without a look at the state ([`merge`]).

use std::{
    collections::{BTreeMap, HashMap},
    fmt::{self, Write as _},
    sync::Arc,
};

use serde::{Serialize, Serializer, ser::SerializeSeq as _};
use serde_json::value::{RawValue, to_raw_value};
use utoipa::ToSchema;

use crate::domain::items::Catalogue;

/// Which object of the state a change is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Section {
    Server,
    Team,
    Members,
    MapMarkers,
    Devices,
    MapNotes,
    Raids,
    Timers,
}

/// An id within a section.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// The section is one object.
    Whole,
    Number(u64),
    Text(Arc<str>),
}

impl From<u64> for Key {
    fn from(number: u64) -> Self {
        Key::Number(number)
    }
}

impl From<Arc<str>> for Key {
    fn from(text: Arc<str>) -> Self {
        Key::Text(text)
    }
}

/// A value of the state: an object whose fields are compared one by one, by their text.
pub trait Node: fmt::Debug + Send + Sync {
    /// The value as JSON, with the names of items that this catalogue has.
    fn json(&self, catalogue: &Catalogue) -> Box<RawValue>;

    /// About how many bytes of memory it takes, rather too many: data behind pointers counts as long as its JSON.
    fn bytes(&self, catalogue: &Catalogue) -> usize {
        size_of_val(self) + self.json(catalogue).get().len()
    }
}

/// Values without items.
impl<T: Serialize + fmt::Debug + Send + Sync> Node for T {
    fn json(&self, _: &Catalogue) -> Box<RawValue> {
        to_raw_value(self).expect("every node of the state is a struct with plain fields")
    }
}

/// The fields of a node's JSON, each as it is written.
fn fields(json: &RawValue) -> BTreeMap<&str, &RawValue> {
    serde_json::from_str(json.get()).expect("a node is an object, and names of fields have no escapes")
}

/// One value before and after an edit; absent = not there.
#[derive(Clone, Debug)]
pub struct Change {
    pub section: Section,
    pub key: Key,
    pub old: Option<Arc<dyn Node>>,
    pub new: Option<Arc<dyn Node>>,
}

/// About how many bytes of memory these changes keep from being freed. New values do not count: they are part of the
/// state, and later the old values of the changes that follow.
pub fn held_bytes(changes: &[Change], catalogue: &Catalogue) -> usize {
    let old = changes.iter().filter_map(|change| change.old.as_ref());
    size_of_val(changes) + old.map(|old| old.bytes(catalogue)).sum::<usize>()
}

/// Folds consecutive changes into one per value: the first old, the last new. What came and went is left out.
pub fn merge<'a>(changes: impl IntoIterator<Item = &'a Change>) -> Vec<Change> {
    let mut merged: Vec<Change> = Vec::new();
    let mut place: HashMap<(Section, &Key), usize> = HashMap::new();
    for change in changes {
        match place.get(&(change.section, &change.key)) {
            Some(&index) => merged[index].new = change.new.clone(),
            None => {
                place.insert((change.section, &change.key), merged.len());
                merged.push(change.clone());
            }
        }
    }
    merged.retain(|change| change.old.is_some() || change.new.is_some());
    merged
}

/// One operation of a JSON Patch (RFC 6902).
#[derive(Serialize, ToSchema)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum PatchOperation<'a> {
    Add {
        /// JSON Pointer (RFC 6901) into the state.
        path: &'a str,
        #[schema(value_type = serde_json::Value)]
        value: &'a RawValue,
    },
    Remove {
        /// JSON Pointer (RFC 6901) into the state.
        path: &'a str,
    },
    Replace {
        /// JSON Pointer (RFC 6901) into the state.
        path: &'a str,
        #[schema(value_type = serde_json::Value)]
        value: &'a RawValue,
    },
}

/// Changes, in JSON as an RFC 6902 document, with the names of items that the catalogue has.
pub struct JsonPatch<'a> {
    pub changes: &'a [Change],
    pub catalogue: &'a Catalogue,
}

impl Serialize for JsonPatch<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut patch = serializer.serialize_seq(None)?;
        for change in self.changes {
            match (&change.old, &change.new) {
                (None, None) => {}
                (None, Some(new)) => {
                    let (path, value) = (&pointer(change, None), &new.json(self.catalogue));
                    patch.serialize_element(&PatchOperation::Add { path, value })?;
                }
                (Some(_), None) => {
                    patch.serialize_element(&PatchOperation::Remove { path: &pointer(change, None) })?;
                }
                (Some(old), Some(new)) => {
                    let (old, new) = (old.json(self.catalogue), new.json(self.catalogue));
                    let (mut old, new) = (fields(&old), fields(&new));
                    for (name, value) in new {
                        let before = old.remove(name);
                        if before.is_some_and(|before| before.get() == value.get()) {
                            continue;
                        }
                        let path = &pointer(change, Some(name));
                        patch.serialize_element(&match before {
                            Some(_) => PatchOperation::Replace { path, value },
                            None => PatchOperation::Add { path, value },
                        })?;
                    }
                    for name in old.keys() {
                        patch.serialize_element(&PatchOperation::Remove { path: &pointer(change, Some(name)) })?;
                    }
                }
            }
        }
        patch.end()
    }
}

/// The JSON Pointer (RFC 6901) of a change, or of one field of it.
fn pointer(change: &Change, field: Option<&str>) -> String {
    let mut path = String::from(match change.section {
        Section::Server => "/server",
        Section::Team => "/team",
        Section::Members => "/team/members",
        Section::MapMarkers => "/mapMarkers",
        Section::Devices => "/devices",
        Section::MapNotes => "/mapNotes",
        Section::Raids => "/raids",
        Section::Timers => "/timers",
    });
    match &change.key {
        Key::Whole => {}
        Key::Number(number) => write!(path, "/{number}").expect("a String takes every write"),
        Key::Text(text) => push_token(&mut path, text),
    }
    if let Some(field) = field {
        push_token(&mut path, field);
    }
    path
}

fn push_token(path: &mut String, token: &str) {
    path.push('/');
    for character in token.chars() {
        match character {
            '~' => path.push_str("~0"),
            '/' => path.push_str("~1"),
            other => path.push(other),
        }
    }
}
