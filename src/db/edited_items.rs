//! Edits of items by admins, over the embedded catalogue.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::{edited_items, edited_items_version},
    },
    domain::{items::ItemEdit, time::Timestamp},
};

/// The only row of `edited_items_version`.
const ONLY: i32 = 1;

#[derive(Queryable, Selectable)]
#[diesel(table_name = edited_items)]
pub(in crate::db) struct EditedItemRow {
    id: i32,
    shortname: String,
    name: String,
    category: String,
    stack_size: Option<i32>,
    icon: Option<String>,
}

impl From<EditedItemRow> for ItemEdit {
    fn from(row: EditedItemRow) -> Self {
        let EditedItemRow { id, shortname, name, category, stack_size, icon } = row;
        Self { id, shortname, name, category, stack_size: stack_size.and_then(|size| size.try_into().ok()), icon }
    }
}

/// All of them, and the version that they are of.
pub fn list(db: &mut Db) -> Result<(i64, Vec<ItemEdit>), DbError> {
    // The version first: one that is too old is asked again.
    let version = version(db)?;
    let rows: Vec<EditedItemRow> = edited_items::table.select(EditedItemRow::as_select()).load(db)?;
    Ok((version, rows.into_iter().map(Into::into).collect()))
}

/// Another one, whenever something changed.
pub fn version(db: &mut Db) -> Result<i64, DbError> {
    Ok(edited_items_version::table.find(ONLY).select(edited_items_version::version).first(db)?)
}

/// Number of edits, for their limit.
pub fn count(db: &mut Db) -> Result<i64, DbError> {
    Ok(edited_items::table.count().get_result(db)?)
}

/// The edit of this item.
pub fn find(db: &mut Db, id: i32) -> Result<Option<ItemEdit>, DbError> {
    let row = edited_items::table.find(id).select(EditedItemRow::as_select()).first(db).optional()?;
    Ok(row.map(Into::into))
}

/// Stores the edit, in place of the one before. `Conflict` if another item has the short name.
pub fn put(db: &mut Db, edit: &ItemEdit, now: Timestamp) -> Result<(), DbError> {
    rise(db)?;
    let ItemEdit { id, shortname, name, category, stack_size, icon } = edit;
    let values = (
        edited_items::shortname.eq(shortname),
        edited_items::name.eq(name),
        edited_items::category.eq(category),
        edited_items::stack_size.eq(stack_size.and_then(|size| i32::try_from(size).ok())),
        edited_items::icon.eq(icon.as_deref()),
        edited_items::updated_at.eq(now),
    );
    let put = diesel::insert_into(edited_items::table)
        .values((edited_items::id.eq(id), values))
        .on_conflict(edited_items::id)
        .do_update()
        .set(values);
    on_backend!(db, |db| put.execute(db))?;
    Ok(())
}

/// Takes back what was said; `NotFound` if nothing was.
pub fn delete(db: &mut Db, id: i32) -> Result<(), DbError> {
    rise(db)?;
    match diesel::delete(edited_items::table.find(id)).execute(db)? {
        0 => Err(DbError::NotFound),
        _ => Ok(()),
    }
}

/// Other writers wait from here until the transaction has ended.
fn rise(db: &mut Db) -> Result<(), DbError> {
    let version = edited_items_version::version;
    diesel::update(edited_items_version::table.find(ONLY)).set(version.eq(version + 1)).execute(db)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, now};

    #[test]
    fn an_item_is_said_once_and_every_change_is_noticed() {
        testing::on_each_database(|pool| {
            let edit = |id, shortname: &str| ItemEdit {
                id,
                shortname: shortname.into(),
                name: "Name".into(),
                category: "Misc".into(),
                stack_size: Some(5),
                icon: None,
            };
            let put = |edit: &ItemEdit| pool.write_blocking(|db| put(db, edit, now()));
            let list = || pool.read_blocking(list).unwrap();
            assert_eq!(list(), (0, vec![]));
            put(&edit(-7, "a")).unwrap();
            put(&edit(-7, "b")).unwrap();
            assert_eq!(list(), (2, vec![edit(-7, "b")]));
            assert!(matches!(put(&edit(8, "b")), Err(DbError::Conflict)));
            assert_eq!(pool.read_blocking(|db| find(db, -7)).unwrap(), Some(edit(-7, "b")));
            assert_eq!(pool.read_blocking(count).unwrap(), 1);
            pool.write_blocking(|db| delete(db, -7)).unwrap();
            assert_eq!(list(), (3, vec![]));
            assert!(matches!(pool.write_blocking(|db| delete(db, -7)), Err(DbError::NotFound)));
            assert_eq!(list(), (3, vec![]), "nothing changed");
        });
    }
}
