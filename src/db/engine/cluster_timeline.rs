//! The timeline of a PostgreSQL: each promotion of a replica begins one. A primary of an older one was left behind by a
//! failover, and what is written there is seen by no replica.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use diesel::{PgConnection, QueryableByName, sql_query, sql_types::Text};

use crate::{
    config::create_private_dir,
    db::engine::{error::DbError, prelude::RunQuery as _},
};

/// Name of the file in the data directory.
const NEWEST_TIMELINE: &str = "postgres.timeline";

/// The timeline of a server now.
#[derive(Clone, Debug, PartialEq, Eq, QueryableByName)]
struct ClusterTimeline {
    /// Servers that are replicas of one another, or were, share it.
    #[diesel(sql_type = Text)]
    cluster: String,
    /// Eight hexadecimal digits.
    #[diesel(sql_type = Text)]
    timeline: String,
}

/// The newest timeline that was seen with a data directory, in a file there.
pub struct NewestTimeline {
    data_dir: PathBuf,
}

impl NewestTimeline {
    /// The one of this data directory.
    pub fn of(data_dir: &Path) -> Self {
        Self { data_dir: data_dir.to_owned() }
    }

    /// Fails if this server was left behind. Notes a newer timeline, and one of another cluster. Blocks.
    pub fn check(&self, db: &mut PgConnection) -> Result<(), DbError> {
        let query = sql_query(
            "SELECT system_identifier::text AS cluster, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) AS timeline \
             FROM pg_control_system()",
        );
        let now: ClusterTimeline = match query.get_result(db).map_err(DbError::from) {
            Ok(now) => now,
            // A replica has no log of its own, and some services do not show theirs.
            Err(error) => {
                log::debug!("the timeline of the database is not known: {error}");
                return Ok(());
            }
        };
        let seen = self.seen();
        if let Some(newer) = seen.as_ref().filter(|seen| is_left_behind(&now, seen)) {
            return Err(DbError::Unavailable(format!(
                "this PostgreSQL was left behind by a failover: it is on timeline {}, and {} of the same cluster was \
                 served from. End it, or make it a replica (docs/operations.md, Failover). If it was restored so on \
                 purpose, remove {NEWEST_TIMELINE} from DATA_DIR",
                now.timeline, newer.timeline
            )));
        }
        if seen.as_ref() != Some(&now)
            && let Err(error) = self.note(&now)
        {
            log::warn!("the timeline of the database could not be noted in DATA_DIR: {error}");
        }
        Ok(())
    }

    fn seen(&self) -> Option<ClusterTimeline> {
        let text = fs::read_to_string(self.data_dir.join(NEWEST_TIMELINE)).ok()?;
        let (cluster, timeline) = text.trim().split_once(' ')?;
        Some(ClusterTimeline { cluster: cluster.to_owned(), timeline: timeline.to_owned() })
    }

    fn note(&self, ClusterTimeline { cluster, timeline }: &ClusterTimeline) -> io::Result<()> {
        create_private_dir(&self.data_dir)?;
        // Whole or not at all: a kill may come meanwhile.
        let unfinished = self.data_dir.join(format!("{NEWEST_TIMELINE}.new"));
        fs::write(&unfinished, format!("{cluster} {timeline}\n"))?;
        fs::rename(unfinished, self.data_dir.join(NEWEST_TIMELINE))
    }
}

/// True if the cluster has gone on, on the other timeline.
fn is_left_behind(now: &ClusterTimeline, seen: &ClusterTimeline) -> bool {
    now.cluster == seen.cluster && now.timeline < seen.timeline
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_older_timeline_of_the_same_cluster_was_left_behind() {
        let at = |cluster: &str, timeline: &str| ClusterTimeline { cluster: cluster.into(), timeline: timeline.into() };
        let seen = at("77", "0000000A");
        for (cluster, timeline, expected) in [
            ("77", "00000009", true),
            ("77", "0000000A", false),
            ("77", "0000000B", false),
            ("77", "00000010", false),
            ("78", "00000001", false),
        ] {
            assert_eq!(is_left_behind(&at(cluster, timeline), &seen), expected, "{cluster} {timeline}");
        }
    }

    #[test]
    fn the_newest_one_is_kept_whole() {
        let directory = tempfile::tempdir().unwrap();
        let newest = NewestTimeline::of(&directory.path().join("data"));
        assert_eq!(newest.seen(), None);
        let now = ClusterTimeline { cluster: "77".to_owned(), timeline: "0000000A".to_owned() };
        newest.note(&now).unwrap();
        assert_eq!(newest.seen(), Some(now));
        fs::write(newest.data_dir.join(NEWEST_TIMELINE), "").unwrap();
        assert_eq!(newest.seen(), None);
    }
}
