//! The pages of the wiki that admins wrote, changed or deleted: the newest versions of each. What is not here is as the
//! service ships it.

use diesel::dsl::max;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::{wiki_pages, wiki_versions},
    },
    domain::{
        ids::PlatformId,
        limits::WIKI_VERSIONS,
        time::Timestamp,
        wiki::{WikiPage, WikiPlace, WikiSlug},
    },
};

/// The last version of a page.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = wiki_pages)]
pub struct WikiHead {
    pub version: i64,
    place: Option<String>,
    /// Digest of the content.
    pub digest: String,
}

/// A version, without its content.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = wiki_versions)]
pub struct WikiVersion {
    pub version: i64,
    pub digest: String,
    pub written_at: Timestamp,
    /// Platform id.
    pub written_by: String,
}

impl WikiHead {
    /// An admin deleted the page.
    pub fn is_deleted(&self) -> bool {
        self.place.is_none()
    }
}

/// Place of the page of each slug; `None` for one that was deleted.
pub fn places(db: &mut Db) -> Result<Vec<(WikiSlug, Option<WikiPlace>)>, DbError> {
    let rows: Vec<(String, Option<String>)> =
        wiki_pages::table.select((wiki_pages::slug, wiki_pages::place)).order(wiki_pages::slug).load(db)?;
    let read = |(slug, place): (String, Option<String>)| {
        let place = match place {
            Some(text) => {
                let (section, title, order) = serde_json::from_str(&text).ok()?;
                Some(WikiPlace { section, title, order })
            }
            None => None,
        };
        Some((WikiSlug::parse(&slug)?, place))
    };
    Ok(rows.into_iter().filter_map(read).collect())
}

/// Number of pages in the database, also deleted ones.
pub fn count(db: &mut Db) -> Result<i64, DbError> {
    Ok(wiki_pages::table.count().get_result(db)?)
}

/// The last version of the page; `None` if no admin touched it.
pub fn head(db: &mut Db, slug: &WikiSlug) -> Result<Option<WikiHead>, DbError> {
    Ok(wiki_pages::table.find(slug.as_str()).select(WikiHead::as_select()).first(db).optional()?)
}

/// The versions that are kept, newest first.
pub fn versions(db: &mut Db, slug: &WikiSlug) -> Result<Vec<WikiVersion>, DbError> {
    let versions = wiki_versions::table.filter(wiki_versions::slug.eq(slug.as_str()));
    Ok(versions.order(wiki_versions::version.desc()).select(WikiVersion::as_select()).load(db)?)
}

/// The content of a version, and which version it is; `NotFound` if it is not kept.
pub fn get(db: &mut Db, slug: &WikiSlug, version: i64) -> Result<(WikiPage, WikiVersion), DbError> {
    let row = wiki_versions::table.find((slug.as_str(), version));
    let columns = (wiki_versions::frontmatter, wiki_versions::body, WikiVersion::as_select());
    let (frontmatter, body, version): (String, String, WikiVersion) = row.select(columns).first(db)?;
    Ok((WikiPage { frontmatter: serde_json::from_str(&frontmatter).unwrap_or_default(), body }, version))
}

/// Writes the next version. Gives it, and the numbers of the versions that are no longer kept.
pub fn put(
    db: &mut Db,
    slug: &WikiSlug,
    page: &WikiPage,
    digest: &str,
    by: &PlatformId,
    now: Timestamp,
) -> Result<(WikiVersion, Vec<i64>), DbError> {
    let WikiPlace { section, title, order } = page.place(slug);
    let place = serde_json::json!([section, title, order]).to_string();
    let version = head(db, slug)?.map_or(1, |head| head.version + 1);
    let written = WikiVersion { version, digest: digest.to_owned(), written_at: now, written_by: by.to_string() };
    put_head(db, slug, version, Some(&place), digest)?;
    let frontmatter = serde_json::Value::Object(page.frontmatter.clone()).to_string();
    diesel::insert_into(wiki_versions::table)
        .values((
            wiki_versions::slug.eq(slug.as_str()),
            wiki_versions::version.eq(version),
            wiki_versions::frontmatter.eq(frontmatter),
            wiki_versions::body.eq(&page.body),
            wiki_versions::digest.eq(digest),
            wiki_versions::written_at.eq(now),
            wiki_versions::written_by.eq(by.as_str()),
        ))
        .execute(db)?;
    let old: Vec<i64> = wiki_versions::table
        .filter(wiki_versions::slug.eq(slug.as_str()).and(wiki_versions::version.le(version - WIKI_VERSIONS)))
        .select(wiki_versions::version)
        .load(db)?;
    for version in &old {
        diesel::delete(wiki_versions::table.find((slug.as_str(), version))).execute(db)?;
    }
    Ok((written, old))
}

/// Deletes the page. Its versions are kept, and the deletion has a number of its own.
pub fn delete(db: &mut Db, slug: &WikiSlug) -> Result<(), DbError> {
    let version = head(db, slug)?.map_or(1, |head| head.version + 1);
    put_head(db, slug, version, None, "")
}

/// The deleted page that was written longest ago.
pub fn oldest_deleted(db: &mut Db) -> Result<Option<WikiSlug>, DbError> {
    let deleted = wiki_pages::table.filter(wiki_pages::place.is_null()).select(wiki_pages::slug);
    let deleted: Vec<String> = deleted.load(db)?;
    let versions = wiki_versions::table.filter(wiki_versions::slug.eq_any(deleted)).group_by(wiki_versions::slug);
    let newest: Vec<(Option<Timestamp>, String)> =
        versions.select((max(wiki_versions::written_at), wiki_versions::slug)).load(db)?;
    Ok(newest.into_iter().min().and_then(|(_, slug)| WikiSlug::parse(&slug)))
}

/// Forgets the page with all its versions; gives these.
pub fn forget(db: &mut Db, slug: &WikiSlug) -> Result<Vec<i64>, DbError> {
    let gone = versions(db, slug)?.into_iter().map(|version| version.version).collect();
    diesel::delete(wiki_versions::table.filter(wiki_versions::slug.eq(slug.as_str()))).execute(db)?;
    diesel::delete(wiki_pages::table.find(slug.as_str())).execute(db)?;
    Ok(gone)
}

fn put_head(db: &mut Db, slug: &WikiSlug, version: i64, place: Option<&str>, digest: &str) -> Result<(), DbError> {
    let values = (wiki_pages::version.eq(version), wiki_pages::place.eq(place), wiki_pages::digest.eq(digest));
    let put = diesel::insert_into(wiki_pages::table)
        .values((wiki_pages::slug.eq(slug.as_str()), values))
        .on_conflict(wiki_pages::slug)
        .do_update()
        .set(values);
    on_backend!(db, |db| put.execute(db))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::db::testing::{self, now};

    fn page(title: &str) -> WikiPage {
        let serde_json::Value::Object(frontmatter) = json!({ "title": title, "order": 2 }) else { unreachable!() };
        WikiPage { frontmatter, body: format!("# {title}") }
    }

    #[test]
    fn pages_have_versions_also_after_they_are_deleted() {
        testing::on_each_database(|pool| {
            let (slug, by) = (WikiSlug::parse("guides/doors").unwrap(), PlatformId::from("admin"));
            let put = |title: &str| pool.write_blocking(|db| put(db, &slug, &page(title), title, &by, now())).unwrap();
            let head = || pool.read_blocking(|db| head(db, &slug)).unwrap();
            assert_eq!(head(), None);
            assert_eq!(put("1").0.version, 1);
            for n in 2..=WIKI_VERSIONS {
                assert_eq!(put(&n.to_string()).1, [0; 0]);
            }
            let (last, dropped) = put("last");
            assert_eq!((last.version, dropped), (WIKI_VERSIONS + 1, vec![1]));
            assert_eq!(head().unwrap().digest, "last");
            let versions = || pool.read_blocking(|db| versions(db, &slug)).unwrap();
            assert_eq!((versions().len() as i64, versions()[0].version), (WIKI_VERSIONS, WIKI_VERSIONS + 1));
            let get = |version| pool.read_blocking(|db| get(db, &slug, version));
            assert_eq!(get(2).unwrap().0, page("2"));
            assert!(matches!(get(1), Err(DbError::NotFound)));
            let places = || pool.read_blocking(places).unwrap();
            let place = WikiPlace { section: "Other".into(), title: "last".into(), order: Some(2.0) };
            assert_eq!(places(), [(slug.clone(), Some(place))]);

            let delete = || pool.write_blocking(|db| delete(db, &slug)).unwrap();
            let oldest_deleted = || pool.read_blocking(oldest_deleted).unwrap();
            assert_eq!(oldest_deleted(), None);
            delete();
            assert!(head().unwrap().is_deleted());
            assert_eq!((places(), versions()[0].version), (vec![(slug.clone(), None)], WIKI_VERSIONS + 1));
            assert_eq!(oldest_deleted(), Some(slug.clone()));
            assert_eq!(put("again").0.version, WIKI_VERSIONS + 3, "no version number comes twice");
            assert_eq!(oldest_deleted(), None);
            delete();
            let forgotten = pool.write_blocking(|db| forget(db, &slug)).unwrap();
            assert_eq!(forgotten.first(), Some(&(WIKI_VERSIONS + 3)));
            assert_eq!((head(), versions(), pool.read_blocking(count).unwrap()), (None, vec![], 0));
        });
    }
}
