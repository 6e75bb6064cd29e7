//! The map notes, as they are stored.

use actix::prelude::*;

use super::{GameConnection, stored_notes::shown};
use crate::{
    db::{engine::start_reads::read_until_answered, map_notes},
    relay::{game::commands::NotesChanged, state::game_update::OwnUpdate},
};

impl GameConnection {
    pub(super) fn load_notes(&mut self, ctx: &mut Context<Self>) {
        let (context, server) = (self.context.clone(), self.server.clone());
        let notes = async move {
            let clock = context.clock.clone();
            let read = move |db: &mut _| map_notes::list(db, &server, clock.now());
            read_until_answered(&context.pool, &context.random, "map notes", read).await
        };
        let read = ctx.spawn(notes.into_actor(self).map(|notes, connection, ctx| {
            let notes = notes.into_iter().map(shown).collect();
            connection.update(OwnUpdate::Notes(notes), ctx);
        }));
        self.feed.notes_read.replace(read, ctx);
    }
}

impl Handler<NotesChanged> for GameConnection {
    type Result = ();

    fn handle(&mut self, NotesChanged { deleted }: NotesChanged, ctx: &mut Self::Context) {
        if let Some(id) = deleted {
            self.update(OwnUpdate::NoteDeleted(id), ctx);
        }
        self.load_notes(ctx);
    }
}
