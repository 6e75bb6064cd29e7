//! Pages of lists: `limit` and `before`, answered with `next`, as every list has it. A [`ListPage`] is cut out of a
//! list that is short or in memory, and so read whole; the database cuts the others.

use garde::Validate;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::{
    api::answer::error::ApiError,
    domain::{time::Timestamp, timeline::Cursor},
};

/// Part of a list: the number of entries, and the entry before them.
#[derive(Default, Deserialize, IntoParams, Validate)]
pub struct ListPage {
    /// Most entries of the page; all if absent.
    #[garde(range(min = 1, max = 500))]
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// Only what comes after the page before: its `next`.
    #[garde(length(max = 1_024))]
    #[param(max_length = 1_024, format = "cursor")]
    before: Option<String>,
}

impl ListPage {
    /// The page of at most `limit` entries after the one that `before` names.
    pub fn new(limit: usize, before: Option<String>) -> Self {
        Self { limit: Some(limit), before }
    }

    /// True for the whole list.
    pub fn is_whole(&self) -> bool {
        self.limit.is_none() && self.before.is_none()
    }

    /// Puts the list in the order of the entries' places and cuts the page out of it; with the `next` of it, none after the
    /// last.
    pub fn cut<T>(
        &self,
        mut all: Vec<T>,
        place: impl Fn(&T) -> ListPlace,
    ) -> Result<(Vec<T>, Option<String>), ApiError> {
        all.sort_by_cached_key(&place);
        if let Some(before) = &self.before {
            let last = ListPlace::parse(before).ok_or_else(not_a_next)?;
            all.retain(|entry| place(entry) > last);
        }
        let limit = self.limit.unwrap_or(all.len());
        let last = limit.checked_sub(1).and_then(|last| all.get(last)).filter(|_| all.len() > limit);
        let next = last.map(|last| place(last).to_wire());
        all.truncate(limit);
        Ok((all, next))
    }
}

/// The place of an entry in its list, whatever else is in it: a page begins after the place of the last entry before, also when
/// that one is gone. By number, then by text, which is of this entry alone.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListPlace {
    number: u64,
    text: String,
}

/// The last time of [`ListPlace::newest_first`], in microseconds: the year 2286.
const LATEST: u64 = 9_999_999_999_999_999;

impl ListPlace {
    /// The place of an entry with this number and this text.
    pub fn new(number: u64, text: impl Into<String>) -> Self {
        Self { number, text: text.into() }
    }

    /// A place in a list by time, the oldest entry first.
    pub fn oldest_first(at: Timestamp, id: impl Into<String>) -> Self {
        Self::new(micros(at), id)
    }

    /// A place in a list by time, the newest entry first.
    pub fn newest_first(at: Timestamp, id: impl Into<String>) -> Self {
        Self::new(LATEST.saturating_sub(micros(at)), id)
    }

    /// As clients have it: opaque, `<number>.<text>`.
    fn to_wire(&self) -> String {
        format!("{}.{}", self.number, self.text)
    }

    fn parse(text: &str) -> Option<Self> {
        let (number, text) = text.split_once('.')?;
        Some(Self::new(number.parse::<u64>().ok()?, text))
    }
}

fn micros(at: Timestamp) -> u64 {
    at.timestamp_micros().try_into().unwrap_or_default()
}

/// The refusal of a `before` that no page has as its `next`.
pub fn not_a_next() -> ApiError {
    ApiError::invalid("before", "must be the `next` of another page")
}

/// The place that `before` names in a list by time.
pub fn cursor(before: Option<String>) -> Result<Option<Cursor>, ApiError> {
    before.map(|before| Cursor::parse(&before).ok_or_else(not_a_next)).transpose()
}

/// The `next` of a page that the database cut to `limit` entries; `None` when it is not full, and so the last.
pub fn next_of<T>(page: &[T], limit: usize, name: impl FnOnce(&T) -> String) -> Option<String> {
    page.last().filter(|_| page.len() == limit).map(name)
}

#[cfg(test)]
mod tests {

    use proptest::prelude::*;

    use super::*;

    fn cut(all: &[Entry], limit: usize, before: Option<String>) -> (Vec<Entry>, Option<String>) {
        ListPage::new(limit, before).cut(all.to_vec(), |(number, text)| ListPlace::new(*number, text)).unwrap()
    }

    type Entry = (u64, String);

    fn entries() -> impl Strategy<Value = Vec<Entry>> {
        let entry = (0..4_u64, "[a-c.]{1,2}");
        prop::collection::btree_set(entry, 0..12).prop_map(|entries| entries.into_iter().collect())
    }

    proptest! {
        #[test]
        fn whatever_is_deleted_between_pages_each_entry_that_stays_is_seen_once(
            all in entries(),
            limit in 1..5_usize,
            doomed in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..4), 12),
        ) {
            let (mut left, mut seen, mut before) = (all.clone(), Vec::new(), None);
            for doomed in doomed {
                let (page, next) = cut(&left, limit, before);
                seen.extend(page);
                before = next;
                if before.is_none() {
                    break;
                }
                for index in doomed.iter().filter(|_| !all.is_empty()) {
                    left.retain(|entry| entry != index.get(&all));
                }
            }
            prop_assert!(before.is_none(), "the pages end");
            prop_assert!(seen.is_sorted_by(|one, other| one < other), "each once: {seen:?}");
            prop_assert!(left.iter().all(|entry| seen.contains(entry)));
        }
    }

    #[test]
    fn the_whole_list_is_in_the_order_of_places() {
        let list = |at: i64| Timestamp::from_timestamp(at, 0).unwrap();
        let times = [3, 1, 2].map(list).to_vec();
        let cut = |place: fn(&Timestamp) -> ListPlace| ListPage::default().cut(times.clone(), place).unwrap();
        assert_eq!(cut(|at| ListPlace::oldest_first(*at, "")), ([1, 2, 3].map(list).to_vec(), None));
        assert_eq!(cut(|at| ListPlace::newest_first(*at, "")), ([3, 2, 1].map(list).to_vec(), None));
        assert_eq!(ListPage::default().cut(Vec::<String>::new(), |id| ListPlace::new(0, id)).unwrap(), (vec![], None));
    }

    #[test]
    fn another_text_is_no_cursor() {
        for bad in ["", "b", "x.b", "-1.b"] {
            let page = ListPage::new(2, Some(bad.to_owned())).cut(vec!["a"], |id| ListPlace::new(0, *id));
            assert!(page.is_err(), "{bad}");
        }
    }
}
