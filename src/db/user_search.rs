//! Search keys of members: the platform id, and the name from the start of each of its words. A search is a range of
//! keys, which both engines serve from an index; no text of a search is a pattern.

use std::collections::BTreeSet;

use diesel::dsl::count;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::user_search,
    },
    domain::{
        ids::{PlatformId, UserId},
        player_name::NameKey,
    },
};

/// The user has this account and name from now on.
pub fn put(db: &mut Db, user: &UserId, account: &PlatformId, name: &str) -> Result<(), DbError> {
    let wanted = keys(account, name);
    let of_user = user_search::table.filter(user_search::user_id.eq(user.as_str()));
    let stored: Vec<String> = of_user.select(user_search::key).load(db)?;
    if stored.into_iter().collect::<BTreeSet<_>>() == wanted {
        return Ok(());
    }
    diesel::delete(user_search::table.filter(user_search::user_id.eq(user.as_str()))).execute(db)?;
    for key in &wanted {
        let row = (user_search::user_id.eq(user.as_str()), user_search::key.eq(key));
        // Another sign-in of the same user may be under way.
        let insert = diesel::insert_into(user_search::table).values(row).on_conflict_do_nothing();
        on_backend!(db, |db| insert.execute(db))?;
    }
    Ok(())
}

fn keys(account: &PlatformId, name: &str) -> BTreeSet<String> {
    let mut keys = BTreeSet::from([account.to_string()]);
    let Some(name) = NameKey::of(name) else { return keys };
    let name = name.as_str();
    let mut within_word = false;
    for (at, character) in name.char_indices() {
        let is_word = character.is_alphanumeric();
        // An emoji is a word by itself.
        let is_symbol = !is_word && !character.is_ascii() && !character.is_whitespace();
        if at == 0 || is_symbol || is_word && !within_word {
            keys.insert(name[at..].to_owned());
        }
        within_word = is_word;
    }
    keys
}

/// Number of users with a key that begins with this, and at most `limit` of them, the newest first; with `before`, of
/// those that are older than that one.
pub fn find(
    db: &mut Db,
    start: &NameKey,
    before: Option<&UserId>,
    limit: i64,
    offset: i64,
) -> Result<(i64, Vec<UserId>), DbError> {
    let start = start.as_str();
    // No name has the last character there is.
    let end = format!("{start}\u{10ffff}");
    let found = || user_search::table.filter(user_search::key.ge(start).and(user_search::key.lt(end.as_str())));
    let total = found().select(count(user_search::user_id).aggregate_distinct()).first(db)?;
    let mut page = found().into_boxed();
    if let Some(before) = before {
        page = page.filter(user_search::user_id.lt(before.as_str()));
    }
    let ids: Vec<String> = page
        .select(user_search::user_id)
        .distinct()
        // Ids are in the order of time.
        .order(user_search::user_id.desc())
        .limit(limit)
        .offset(offset)
        .load(db)?;
    Ok((total, ids.into_iter().map(UserId::from).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::player_name::NAME_CHARS;

    #[test]
    fn a_name_is_found_from_the_start_of_each_word_and_an_account_by_its_id() {
        let keys = |name: &str| keys(&"7656".into(), name).into_iter().collect::<Vec<_>>();
        assert_eq!(keys("[Wolf] Ada-Löwe"), ["7656", "[wolf] ada-löwe", "ada-löwe", "löwe", "wolf] ada-löwe"]);
        assert_eq!(keys("50%_off"), ["50%_off", "7656", "off"]);
        assert_eq!(keys("\u{200b}"), ["7656"]);
        assert_eq!(keys("ada🐺🦊 x"), ["7656", "ada🐺🦊 x", "x", "🐺🦊 x", "🦊 x"]);
        assert!(keys("one 2 3 4 5 6 7 8 9 ten").contains(&"ten".to_owned()));
        assert_eq!(keys(&"🐺".repeat(100)).len(), 1 + NAME_CHARS);
    }
}
