//! Uploaded images, and what uses them: an image is deleted when nothing does. The images themselves are in
//! `uploads`.

use diesel::dsl::{exists, not};

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::{image_uses, images},
    },
    domain::{image_name::ImageName, time::Timestamp},
};

/// An image that was uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadedImage {
    pub name: ImageName,
    pub bytes: usize,
    /// Pixels.
    pub width: u32,
    pub height: u32,
}

/// An image was uploaded, or again; nothing uses a new one yet.
pub fn insert(db: &mut Db, image: &UploadedImage, now: Timestamp) -> Result<(), DbError> {
    let row = (
        images::name.eq(image.name.as_str()),
        images::bytes.eq(image.bytes as i64),
        images::width.eq(i32::try_from(image.width).unwrap_or(i32::MAX)),
        images::height.eq(i32::try_from(image.height).unwrap_or(i32::MAX)),
        images::uploaded_at.eq(now),
        images::unused_since.eq(now),
        images::doomed.eq(false),
    );
    let insert = diesel::insert_into(images::table).values(row).on_conflict_do_nothing();
    on_backend!(db, |db| insert.execute(db))?;
    let unused = images::table.find(image.name.as_str()).filter(images::unused_since.is_not_null());
    let fresh = (images::unused_since.eq(now), images::doomed.eq(false));
    diesel::update(unused).set(fresh).execute(db)?;
    Ok(())
}

/// All images but those that are about to be deleted.
pub fn kept(db: &mut Db) -> Result<Vec<ImageName>, DbError> {
    let kept = images::table.filter(images::doomed.eq(false)).order(images::name).select(images::name);
    let names: Vec<String> = kept.load(db)?;
    Ok(names.iter().filter_map(|name| ImageName::parse(name)).collect())
}

/// True if there is an image of this name, or one that is about to be deleted.
pub fn is_known(db: &mut Db, image: &ImageName) -> Result<bool, DbError> {
    Ok(diesel::select(exists(images::table.find(image.as_str()))).get_result(db)?)
}

/// This uses the image now; false if there is no such image.
pub fn use_by(db: &mut Db, image: &ImageName, user: &str) -> Result<bool, DbError> {
    let there = images::table.find(image.as_str()).filter(images::doomed.eq(false));
    let unused_since: Option<Timestamp> = None;
    if diesel::update(there).set(images::unused_since.eq(unused_since)).execute(db)? == 0 {
        return Ok(false);
    }
    let row = (image_uses::image.eq(image.as_str()), image_uses::used_by.eq(user));
    let insert = diesel::insert_into(image_uses::table).values(row).on_conflict_do_nothing();
    on_backend!(db, |db| insert.execute(db))?;
    Ok(true)
}

/// Ends every use of images by `user`. Gives those that nothing uses now.
pub fn release(db: &mut Db, user: &str, now: Timestamp) -> Result<Vec<ImageName>, DbError> {
    let uses = || image_uses::table.filter(image_uses::used_by.eq(user));
    let released: Vec<String> = uses().select(image_uses::image).load(db)?;
    diesel::delete(uses()).execute(db)?;
    let mut unused = Vec::new();
    for image in released {
        let used = exists(image_uses::table.filter(image_uses::image.eq(&image)));
        let row = images::table.filter(images::name.eq(&image).and(not(used)));
        if diesel::update(row).set(images::unused_since.eq(now)).execute(db)? > 0 {
            unused.extend(ImageName::parse(&image));
        }
    }
    Ok(unused)
}

/// From now on nothing can use the image, which is about to be deleted; false if something uses it.
pub fn mark_for_deletion(db: &mut Db, image: &ImageName) -> Result<bool, DbError> {
    let unused = images::table.find(image.as_str()).filter(images::unused_since.is_not_null());
    Ok(diesel::update(unused).set(images::doomed.eq(true)).execute(db)? > 0)
}

/// The image is deleted.
pub fn forget(db: &mut Db, image: &ImageName) -> Result<(), DbError> {
    diesel::delete(images::table.find(image.as_str()).filter(images::doomed.eq(true))).execute(db)?;
    Ok(())
}

/// Images that nothing has used since this time, the first of them.
pub fn unused(db: &mut Db, until: Timestamp, limit: i64) -> Result<Vec<ImageName>, DbError> {
    let unused = images::table.filter(images::unused_since.le(until));
    let names: Vec<String> = unused.order(images::unused_since).limit(limit).select(images::name).load(db)?;
    Ok(names.iter().filter_map(|name| ImageName::parse(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        db::testing::{self, later, now},
        domain::image_name::UploadFormat,
    };

    #[test]
    fn an_image_lives_as_long_as_something_uses_it() {
        testing::on_each_database(|pool| {
            let [a, b] = ["a", "b"].map(|digit| ImageName::new(&digit.repeat(64), UploadFormat::Png));
            let insert = |name: &ImageName, at| {
                let image = UploadedImage { name: name.clone(), bytes: 9, width: 1, height: 2 };
                pool.write_blocking(|db| insert(db, &image, at)).unwrap();
            };
            let use_by = |image: &ImageName, user: &str| pool.write_blocking(|db| use_by(db, image, user)).unwrap();
            let release = |user: &str, at| pool.write_blocking(|db| release(db, user, at)).unwrap();
            let unused = |until| pool.read_blocking(|db| unused(db, until, 9)).unwrap();
            let mark = |image: &ImageName| pool.write_blocking(|db| mark_for_deletion(db, image)).unwrap();
            let forget = |image: &ImageName| pool.write_blocking(|db| forget(db, image)).unwrap();
            assert!(!use_by(&a, "item:1"), "unknown");
            insert(&a, now());
            insert(&b, later(1));
            assert_eq!((unused(now()), unused(later(1))), (vec![a.clone()], vec![a.clone(), b.clone()]));
            assert!(use_by(&a, "item:1") && use_by(&a, "item:2") && use_by(&a, "item:2") && use_by(&b, "item:2"));
            assert_eq!(unused(later(9)), []);
            insert(&a, later(2));
            assert!(!mark(&a), "it is used, and was uploaded again");
            assert_eq!(release("item:2", later(3)), Vec::from([b.clone()]), "the other one is still used");
            assert_eq!(release("item:1", later(4)), Vec::from([a.clone()]));
            assert_eq!(unused(later(4)), [b.clone(), a.clone()]);
            assert!(mark(&a) && !use_by(&a, "item:1"), "too late");
            insert(&a, later(5));
            assert!(use_by(&a, "item:1"), "uploaded again");
            forget(&a);
            assert!(use_by(&a, "item:3"), "what is used is not forgotten");
            assert!(mark(&b));
            forget(&b);
            assert!(!use_by(&b, "item:1"));
        });
    }
}
