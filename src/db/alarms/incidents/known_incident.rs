//! An incident that is stored, beside a write of it that may be older: lines of the journal come again after a crash.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        notices::count_updates,
        schema::incidents,
    },
    domain::incident::Incident,
};

/// See the module.
#[derive(Queryable)]
pub(super) struct KnownIncident {
    alarm_id: String,
    alarm_name: String,
    title: Option<String>,
    has_ended: bool,
    count: i64,
    paths: String,
}

impl KnownIncident {
    /// The incident of this id, if it is stored.
    pub(super) fn find(db: &mut Db, id: &str) -> Result<Option<Self>, DbError> {
        let columns = (
            incidents::alarm_id,
            incidents::alarm_name,
            incidents::title,
            incidents::ended_at.is_not_null(),
            incidents::count,
            incidents::paths,
        );
        Ok(incidents::table.find(id).select(columns).first(db).optional()?)
    }

    /// True if the write is an older one. Triggers and paths are only added, a device stays, and an end does until the
    /// next trigger.
    pub(super) fn is_newer_than(&self, incident: &Incident) -> bool {
        self.count > i64::from(incident.count)
            || self.path_count() > incident.paths.len()
            || (self.has_ended && incident.ended_at.is_none())
            || (self.may_be_newer_than(incident) && !is_pushed(&self.alarm_id) && is_pushed(&incident.alarm_id))
    }

    /// Has the count said by channels, if the alarm has gone off again.
    pub(super) fn note_triggers(&self, db: &mut Db, id: &str, incident: &Incident) -> Result<(), DbError> {
        let has_rung = self.count < i64::from(incident.count) && !incident.drill;
        if has_rung { count_updates::queue(db, id, incident.last_at) } else { Ok(()) }
    }

    /// The title to store. While the write may be an older one, a title stays unless the other is the device's own name,
    /// as that is the better one.
    pub(super) fn title<'a>(&'a self, incident: &Incident, title: Option<&'a str>) -> Option<&'a str> {
        let stays = |known: &&str| {
            let is_better = title == Some(incident.alarm_name.as_str()) && *known != self.alarm_name;
            self.may_be_newer_than(incident) && !is_better
        };
        self.title.as_deref().filter(stays).or(title)
    }

    /// No trigger and no path says which of the two is the newer one.
    fn may_be_newer_than(&self, incident: &Incident) -> bool {
        self.count == i64::from(incident.count) && self.path_count() == incident.paths.len()
    }

    fn path_count(&self) -> usize {
        self.paths.split_terminator(',').count()
    }
}

/// Only pushes know of it.
fn is_pushed(alarm_id: &str) -> bool {
    alarm_id.starts_with("push")
}
