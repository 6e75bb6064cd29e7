//! The check that a node still has the part for which it writes: the last query of a transaction before it is committed.

use crate::{
    db::{
        engine::{error::DbError, prelude::*},
        schema::held_parts,
    },
    domain::fence::Fence,
};

/// Fails if another node has taken the part over. If it succeeds, none takes it over before this transaction ends.
pub fn on_postgres(db: &mut PgConnection, fence: &Fence) -> Result<(), DbError> {
    let holder = held_parts::table.find(fence.part.as_str()).select((held_parts::node, held_parts::number));
    compare(holder.for_share().first(db).optional()?, fence)
}

/// [`on_postgres`] for SQLite, where a transaction that writes is the only one.
pub fn on_sqlite(db: &mut SqliteConnection, fence: &Fence) -> Result<(), DbError> {
    let holder = held_parts::table.find(fence.part.as_str()).select((held_parts::node, held_parts::number));
    compare(holder.first(db).optional()?, fence)
}

fn compare(holder: Option<(String, i64)>, fence: &Fence) -> Result<(), DbError> {
    match holder {
        Some((node, number)) if node == fence.node.as_str() && number == fence.number => Ok(()),
        _ => Err(DbError::Fenced),
    }
}
