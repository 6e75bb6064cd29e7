//! The team chat of paired servers: the last lines of each.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::chat_lines,
    },
    domain::{
        chat::{ChatLine, StoredLine},
        ids::ServerId,
        limits::CHAT_LINES_PER_SERVER,
        time::Timestamp,
        timeline::Cursor,
    },
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = chat_lines)]
pub(in crate::db) struct LineRow {
    id: String,
    said_at: Timestamp,
    author: String,
    text: String,
    author_id: Option<String>,
}

impl From<LineRow> for StoredLine {
    fn from(LineRow { id, said_at: ts, author, text, author_id }: LineRow) -> Self {
        Self { id, line: ChatLine { author, author_id, text, ts } }
    }
}

/// Adds a line; one with a known id is there already. Of too many, the oldest go.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn insert(db: &mut Db, server: &ServerId, kept: &StoredLine) -> Result<(), DbError> {
    let row = (
        chat_lines::server_id.eq(server.as_str()),
        chat_lines::id.eq(&kept.id),
        chat_lines::said_at.eq(kept.line.ts),
        chat_lines::author.eq(&kept.line.author),
        chat_lines::text.eq(&kept.line.text),
        chat_lines::author_id.eq(&kept.line.author_id),
    );
    let insert = diesel::insert_into(chat_lines::table).values(row).on_conflict_do_nothing();
    if on_backend!(db, |db| insert.execute(db))? == 0 {
        return Ok(());
    }
    let of_server = || chat_lines::table.filter(chat_lines::server_id.eq(server.as_str()));
    let surplus = of_server()
        .order((chat_lines::said_at.desc(), chat_lines::id.desc()))
        .offset(CHAT_LINES_PER_SERVER as i64)
        .select(LineRow::as_select())
        .first(db)
        .optional()?;
    if let Some(LineRow { id, said_at, .. }) = surplus {
        let at = said_at;
        let until = chat_lines::said_at.le(at).and(chat_lines::said_at.lt(at).or(chat_lines::id.le(id)));
        diesel::delete(of_server().filter(until)).execute(db)?;
    }
    Ok(())
}

/// The lines of a server that were said at `since` or later, newest first.
pub fn list(
    db: &mut Db,
    server: &ServerId,
    since: Option<Timestamp>,
    before: Option<&Cursor>,
    limit: usize,
) -> Result<Vec<StoredLine>, DbError> {
    let mut query = chat_lines::table.filter(chat_lines::server_id.eq(server.as_str())).into_boxed();
    if let Some(since) = since {
        query = query.filter(chat_lines::said_at.ge(since));
    }
    if let Some(Cursor { ts, id }) = before {
        // In a form that an index can serve.
        let at = ts;
        query = query.filter(chat_lines::said_at.le(at).and(chat_lines::said_at.lt(at).or(chat_lines::id.lt(id))));
    }
    let query = query.order((chat_lines::said_at.desc(), chat_lines::id.desc())).limit(limit as i64);
    let rows: Vec<LineRow> = query.select(LineRow::as_select()).load(db)?;
    Ok(rows.into_iter().map(StoredLine::from).collect())
}

/// Deletes a batch of what was said until then; returns how many.
pub fn purge(db: &mut Db, until: Timestamp) -> Result<usize, DbError> {
    Ok(purge_oldest!(db, chat_lines, said_at, until))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{
        engine::pool::Pool,
        testing::{self, later},
    };

    fn line(number: i64) -> StoredLine {
        let author_id = (number % 2 == 0).then(|| "76561198000000001".to_owned());
        let (text, ts) = (format!("line {number}"), later(number / 3));
        let line = ChatLine { author: "Ann".into(), author_id, text, ts };
        StoredLine { id: format!("{number:05}"), line }
    }

    fn say(pool: &Pool, server: &str, numbers: impl IntoIterator<Item = i64>) {
        pool.write_blocking(|db| numbers.into_iter().try_for_each(|number| insert(db, &server.into(), &line(number))))
            .unwrap();
    }

    fn lines(pool: &Pool, server: &str, before: Option<Cursor>, limit: usize) -> Vec<StoredLine> {
        pool.read_blocking(|db| list(db, &server.into(), None, before.as_ref(), limit)).unwrap()
    }

    #[test]
    fn a_line_is_kept_once_and_pages_of_any_size_together_are_the_whole() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            testing::server(pool, "owner", "one");
            say(pool, "one", [3, 1, 2, 0, 1, 4, 4, 5, 6]);
            let whole = lines(pool, "one", None, 100);
            assert_eq!(whole, (0..=6).rev().map(line).collect::<Vec<_>>());
            for limit in [1, 2, 7] {
                let (mut paged, mut before) = (Vec::new(), None);
                loop {
                    let page = lines(pool, "one", before, limit);
                    let Some(last) = page.last() else { break };
                    before = Some(last.cursor());
                    paged.extend(page);
                }
                assert_eq!(paged, whole);
            }
            let since = pool.read_blocking(|db| list(db, &"one".into(), Some(later(1)), None, 100)).unwrap();
            assert_eq!(since, (3..=6).rev().map(line).collect::<Vec<_>>());
            assert_eq!(lines(pool, "two", None, 100), []);
            let gone = pool.write_blocking(|db| insert(db, &"gone".into(), &line(1)));
            assert!(matches!(gone, Err(DbError::Conflict)));
        });
    }

    #[test]
    fn the_newest_lines_stay_by_count_and_age() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            testing::server(pool, "owner", "one");
            let all = CHAT_LINES_PER_SERVER as i64 + 5;
            say(pool, "one", 0..all);
            let kept = lines(pool, "one", None, 5_000);
            assert_eq!((kept.len(), &kept[CHAT_LINES_PER_SERVER - 1]), (CHAT_LINES_PER_SERVER, &line(5)));
            // An older one that is heard again finds no room.
            say(pool, "one", [2]);
            assert_eq!(lines(pool, "one", None, 5_000), kept);
            let purge = |until| pool.write_blocking(|db| purge(db, until)).unwrap();
            assert_eq!(purge(later(2)), 4, "lines 5 to 8");
            assert_eq!(lines(pool, "one", None, 5_000).last(), Some(&line(9)));
        });
    }
}
