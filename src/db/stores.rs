//! Content that admins wrote into the stores: the newest versions of each. A store without any is as the service ships
//! it.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::store_versions,
    },
    domain::{ids::PlatformId, limits::STORE_VERSIONS, stores::StoreName, time::Timestamp},
};

/// A version, without its data.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = store_versions)]
pub struct StoreVersion {
    pub version: i64,
    pub bytes: i64,
    /// Digest of the data.
    pub digest: String,
    pub written_at: Timestamp,
    /// Platform id.
    pub written_by: String,
}

/// The newest version; `None` while the store is as it ships.
pub fn newest(db: &mut Db, store: StoreName) -> Result<Option<StoreVersion>, DbError> {
    let newest = store_versions::table.filter(store_versions::name.eq(store.word()));
    let newest = newest.order(store_versions::version.desc()).select(StoreVersion::as_select());
    Ok(newest.first(db).optional()?)
}

/// The data of the newest version, JSON text; `None` while the store is as it ships.
pub fn data(db: &mut Db, store: StoreName) -> Result<Option<String>, DbError> {
    let newest = store_versions::table.filter(store_versions::name.eq(store.word()));
    Ok(newest.order(store_versions::version.desc()).select(store_versions::data).first(db).optional()?)
}

/// The versions that are kept, newest first.
pub fn versions(db: &mut Db, store: StoreName) -> Result<Vec<StoreVersion>, DbError> {
    let versions = store_versions::table.filter(store_versions::name.eq(store.word()));
    Ok(versions.order(store_versions::version.desc()).select(StoreVersion::as_select()).load(db)?)
}

/// A version with its data, JSON text; `NotFound` if it is not kept.
pub fn get(db: &mut Db, store: StoreName, version: i64) -> Result<(StoreVersion, String), DbError> {
    let version = store_versions::table.find((store.word(), version));
    Ok(version.select((StoreVersion::as_select(), store_versions::data)).first(db)?)
}

/// Writes the next version, and drops those that are too old. `Conflict` if another admin wrote it at the same time.
pub fn put(
    db: &mut Db,
    store: StoreName,
    data: &str,
    digest: &str,
    by: &PlatformId,
    now: Timestamp,
) -> Result<StoreVersion, DbError> {
    let version = newest(db, store)?.map_or(1, |newest| newest.version + 1);
    let written = StoreVersion {
        version,
        bytes: data.len() as i64,
        digest: digest.to_owned(),
        written_at: now,
        written_by: by.to_string(),
    };
    diesel::insert_into(store_versions::table)
        .values((
            store_versions::name.eq(store.word()),
            store_versions::version.eq(version),
            store_versions::data.eq(data),
            store_versions::bytes.eq(written.bytes),
            store_versions::digest.eq(digest),
            store_versions::written_at.eq(now),
            store_versions::written_by.eq(by.as_str()),
        ))
        .execute(db)?;
    let old = store_versions::table.filter(store_versions::name.eq(store.word()));
    diesel::delete(old.filter(store_versions::version.le(version - STORE_VERSIONS))).execute(db)?;
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    #[test]
    fn the_newest_versions_are_kept_each_with_its_data() {
        testing::on_each_database(|pool| {
            let newest = |store| pool.read_blocking(|db| newest(db, store)).unwrap();
            let put = |data: &str, at| {
                let by = PlatformId::from("admin");
                pool.write_blocking(|db| put(db, StoreName::Faq, data, "digest", &by, at)).unwrap()
            };
            assert_eq!(newest(StoreName::Faq), None);
            let first = put("[1]", now());
            assert_eq!((first.version, first.bytes, first.written_at), (1, 3, now()));
            assert_eq!(newest(StoreName::Faq), Some(first));
            assert_eq!(newest(StoreName::Raid), None);
            for n in 2..=STORE_VERSIONS + 3 {
                put(&format!("[{n}]"), later(n));
            }
            let versions = pool.read_blocking(|db| versions(db, StoreName::Faq)).unwrap();
            assert_eq!(versions.len() as i64, STORE_VERSIONS);
            assert_eq!((versions[0].version, versions.last().unwrap().version), (STORE_VERSIONS + 3, 4));
            let get = |version| pool.read_blocking(|db| get(db, StoreName::Faq, version));
            assert_eq!(get(4).unwrap(), (versions.last().unwrap().clone(), "[4]".to_owned()));
            assert!(matches!(get(3), Err(DbError::NotFound)));
        });
    }
}
