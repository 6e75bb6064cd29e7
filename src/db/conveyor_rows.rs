//! The conveyor map: the category of each item on a conveyor, by short name.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::conveyor_rows,
    },
    domain::time::Timestamp,
};

/// An item and the category in which conveyors sort it.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = conveyor_rows)]
pub struct ConveyorRow {
    pub shortname: String,
    pub item_id: i32,
    pub category: String,
    pub updated_at: Timestamp,
}

/// At most `limit` rows after this short name, by short name.
pub fn list(db: &mut Db, after: Option<&str>, limit: i64) -> Result<Vec<ConveyorRow>, DbError> {
    let mut rows = conveyor_rows::table.order(conveyor_rows::shortname).limit(limit).into_boxed();
    if let Some(after) = after {
        rows = rows.filter(conveyor_rows::shortname.gt(after));
    }
    Ok(rows.select(ConveyorRow::as_select()).load(db)?)
}

/// Number of rows, for their limit.
pub fn count(db: &mut Db) -> Result<i64, DbError> {
    Ok(conveyor_rows::table.count().get_result(db)?)
}

/// The row, or `NotFound`.
pub fn get(db: &mut Db, shortname: &str) -> Result<ConveyorRow, DbError> {
    Ok(conveyor_rows::table.find(shortname).select(ConveyorRow::as_select()).first(db)?)
}

/// Adds a row; `Conflict` if there is one.
pub fn insert(db: &mut Db, row: &ConveyorRow) -> Result<(), DbError> {
    diesel::insert_into(conveyor_rows::table)
        .values((
            conveyor_rows::shortname.eq(&row.shortname),
            conveyor_rows::item_id.eq(row.item_id),
            conveyor_rows::category.eq(&row.category),
            conveyor_rows::updated_at.eq(row.updated_at),
        ))
        .execute(db)?;
    Ok(())
}

/// Changes a row, and gives it as it now is; `NotFound` without one.
pub fn set_category(db: &mut Db, shortname: &str, category: &str, now: Timestamp) -> Result<ConveyorRow, DbError> {
    let change = (conveyor_rows::category.eq(category), conveyor_rows::updated_at.eq(now));
    diesel::update(conveyor_rows::table.find(shortname)).set(change).execute(db)?;
    get(db, shortname)
}

/// Deletes a row; `NotFound` without one.
pub fn delete(db: &mut Db, shortname: &str) -> Result<(), DbError> {
    match diesel::delete(conveyor_rows::table.find(shortname)).execute(db)? {
        0 => Err(DbError::NotFound),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    #[test]
    fn a_row_has_one_category_at_a_time() {
        testing::on_each_database(|pool| {
            let row = |shortname: &str, category: &str, updated_at| ConveyorRow {
                shortname: shortname.into(),
                item_id: 7,
                category: category.into(),
                updated_at,
            };
            let insert = |shortname: &str| pool.write_blocking(|db| insert(db, &row(shortname, "Misc", now())));
            insert("b").unwrap();
            insert("a").unwrap();
            assert!(matches!(insert("a"), Err(DbError::Conflict)));
            let set = |shortname: &str| pool.write_blocking(|db| set_category(db, shortname, "Food", later(1)));
            assert_eq!(set("b").unwrap(), row("b", "Food", later(1)));
            assert!(matches!(set("c"), Err(DbError::NotFound)));
            let list = |after, limit| pool.read_blocking(|db| list(db, after, limit)).unwrap();
            assert_eq!(list(None, 9), [row("a", "Misc", now()), row("b", "Food", later(1))]);
            assert_eq!((list(None, 1).len(), list(Some("a"), 9).len(), list(Some("b"), 9).len()), (1, 1, 0));
            assert_eq!(pool.read_blocking(count).unwrap(), 2);
            pool.write_blocking(|db| delete(db, "a")).unwrap();
            assert!(matches!(pool.write_blocking(|db| delete(db, "a")), Err(DbError::NotFound)));
        });
    }
}
