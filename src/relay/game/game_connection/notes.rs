//! The map notes, as they are stored.

use std::sync::Arc;

use actix::prelude::*;

use super::GameConnection;
use crate::{
    db::{
        engine::start::read_until_answered,
        map_notes::{self, StoredNote},
    },
    domain::{map::MapNote, time::Timestamp},
    relay::{game::commands::NotesChanged, shared::fact_sink::Fact, state::live_state::GameUpdate},
};

impl GameConnection {
    pub(super) fn load_notes(&mut self, ctx: &mut Context<Self>) {
        self.notes_version += 1;
        let (version, context, server) = (self.notes_version, self.context.clone(), self.server.clone());
        let notes = async move {
            let clock = context.clock.clone();
            let read = move |db: &mut _| map_notes::list(db, &server, clock.now());
            read_until_answered(&context.pool, &context.random, "map notes", read).await
        };
        ctx.spawn(notes.into_actor(self).map(move |notes, connection, ctx| {
            // An answer to an earlier question may come later.
            if connection.notes_version == version {
                let notes = notes.into_iter().map(shown).collect();
                connection.update(GameUpdate::Notes(notes), ctx);
            }
        }));
    }

    /// Keeps what the detector noted, and, if it has changed, what the team has placed in the game: all of it.
    pub(super) fn store_notes(&self, deaths: Vec<(Arc<str>, MapNote)>, of_game: Option<Vec<(Arc<str>, MapNote)>>) {
        for note in deaths.into_iter().map(to_store) {
            self.context.facts.store(Fact::Note(self.server.clone(), note));
        }
        if let Some(notes) = of_game {
            let notes = notes.into_iter().map(to_store).collect();
            self.context.facts.store(Fact::GameNotes(self.server.clone(), notes));
        }
    }

    /// Drops the notes of before: they are of another world.
    pub(super) fn wipe_notes(&self, at: Timestamp) {
        self.context.facts.store(Fact::NotesWiped(self.server.clone(), at));
    }
}

fn to_store((id, note): (Arc<str>, MapNote)) -> StoredNote {
    let MapNote { x, y, category, label, source, author, created_at, expires_at, .. } = note;
    let (id, author_id, source) = (id.to_string(), author, source.to_owned());
    StoredNote { id, author_id, source, x, y, category, label, created_at, expires_at }
}

fn shown(stored: StoredNote) -> (Arc<str>, MapNote) {
    let StoredNote { id, author_id: author, source, x, y, category, label, created_at, expires_at } = stored;
    let source = ["user", "game"].into_iter().find(|known| *known == source).unwrap_or("detector");
    let note = MapNote { x, y, grid: String::new(), category, label, source, author, created_at, expires_at };
    (id.into(), note)
}

impl Handler<NotesChanged> for GameConnection {
    type Result = ();

    fn handle(&mut self, NotesChanged { deleted, .. }: NotesChanged, ctx: &mut Self::Context) {
        if let Some(id) = deleted {
            self.update(GameUpdate::NoteDeleted(id), ctx);
        }
        self.load_notes(ctx);
    }
}
