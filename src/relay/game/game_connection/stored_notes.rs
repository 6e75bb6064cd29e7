//! Map notes between the live state and the database.

use std::sync::Arc;

use crate::{
    db::map_notes::StoredNote,
    domain::{
        ids::ServerId,
        map::{MapNote, NoteSource},
    },
    relay::shared::write_behind::Record,
};

/// Notes of the detector, and, if they have changed, all that the team has placed in the game, to be stored.
pub fn to_store(
    server: &ServerId,
    deaths: Vec<(Arc<str>, MapNote)>,
    of_game: Option<Vec<(Arc<str>, MapNote)>>,
) -> Vec<Record> {
    let deaths = deaths.into_iter().map(|note| Record::Note(server.clone(), stored(note)));
    let of_game = of_game.map(|notes| Record::GameNotes(server.clone(), notes.into_iter().map(stored).collect()));
    deaths.chain(of_game).collect()
}

fn stored((id, note): (Arc<str>, MapNote)) -> StoredNote {
    let MapNote { x, y, category, label, source, author, created_at, expires_at, .. } = note;
    let (id, author_id, source) = (id.to_string(), author, source.to_owned());
    StoredNote { id, author_id, source, x, y, category, label, created_at, expires_at }
}

/// A stored note, as it is shown; the live state fills in its grid label.
pub fn shown(stored: StoredNote) -> (Arc<str>, MapNote) {
    let StoredNote { id, author_id: author, source, x, y, category, label, created_at, expires_at } = stored;
    let source = NoteSource::parse(&source).unwrap_or(NoteSource::Detector).word();
    let note = MapNote { x, y, grid: String::new(), category, label, source, author, created_at, expires_at };
    (id.into(), note)
}
