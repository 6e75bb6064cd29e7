//! Notices as rows, and what each is about.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::{
    db::{
        access,
        alarms::incidents::{self, StoredIncident},
        engine::{error::DbError, pool::Db, prelude::*},
        notices::{count_updates, notice_queue::NoticeKey, notice_rules::NoticeRules},
        schema::notices,
    },
    domain::{
        access::{Action, Role},
        channels::{escalation::QUIET_AFTER, notice_step::DrillFor, noticed_event::NoticedEvent},
        ids::UserId,
        time::Timestamp,
        world_event::EventKind,
    },
};

/// A notice as it is stored, without the messages that its rounds send.
#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = notices)]
pub(in crate::db) struct NoticeRow {
    pub incident_id: String,
    pub server_id: String,
    pub user_id: String,
    pub opened_at: Timestamp,
    pub round: i32,
    pub round_at: Timestamp,
    pub due_at: Option<Timestamp>,
    /// [`NoticedEvent`] as JSON; `None`: the notice is about an incident.
    event: Option<String>,
}

/// The raid or the other event that a notice is about.
#[derive(Clone, Debug, PartialEq)]
pub enum NoticeSubject {
    Raid(Box<StoredIncident>),
    Event(NoticedEvent),
}

impl NoticeSubject {
    /// The kind of event.
    pub fn kind(&self) -> EventKind {
        match self {
            Self::Raid(_) => EventKind::Raid,
            Self::Event(event) => event.kind,
        }
    }

    /// True for a test alarm.
    fn is_drill(&self) -> bool {
        matches!(self, Self::Raid(incident) if incident.incident.drill)
    }
}

/// A notice that still concerns its user, who has this role at its server.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::db) struct NoticeConcern {
    pub subject: NoticeSubject,
    pub role: Role,
}

impl NoticeConcern {
    /// True for a raid that has gone off since a message about it was taken.
    pub(in crate::db) fn has_rung_since(&self, taken_at: Timestamp) -> bool {
        let NoticeSubject::Raid(stored) = &self.subject else { return false };
        count_updates::is_news(taken_at, stored.incident.last_at)
    }

    /// The user's part in a test alarm; `None`: it is none.
    pub(in crate::db) fn drill(&self) -> Option<DrillFor> {
        self.subject.is_drill().then(|| DrillFor::of(self.role))
    }
}

impl NoticeRow {
    /// Its key.
    pub(in crate::db) fn key(&self) -> NoticeKey {
        NoticeKey { incident: self.incident_id.clone(), user: self.user_id.as_str().into() }
    }

    /// True for a notice of a raid.
    pub(in crate::db) fn is_raid(&self) -> bool {
        self.event.is_none()
    }

    /// True for a raid whose first round waits for the end of quiet hours.
    pub(in crate::db) fn is_held(&self) -> bool {
        self.is_raid() && self.round == 0 && self.round_at > self.opened_at
    }

    /// The subject, if it still concerns the user: an alarm neither acknowledged nor over, or an event of just now.
    fn subject(&self, raids: &NoticedRaids, now: Timestamp) -> Option<NoticeSubject> {
        match &self.event {
            None => {
                let stored = raids.incidents.get(&self.incident_id)?;
                let is_over = raids.over.contains(&self.key());
                let is_acknowledged = stored.incident.acks.contains_key(&UserId::from(self.user_id.as_str()));
                (!is_over && !is_acknowledged).then(|| NoticeSubject::Raid(stored.clone().into()))
            }
            Some(event) => {
                let event: NoticedEvent = serde_json::from_str(event).ok()?;
                (event.ts + QUIET_AFTER > now).then_some(NoticeSubject::Event(event))
            }
        }
    }
}

/// The raids that these notices are about, each as its user sees it.
struct NoticedRaids {
    incidents: HashMap<String, StoredIncident>,
    /// Raids that are over for the user.
    over: HashSet<NoticeKey>,
}

impl NoticedRaids {
    fn read(db: &mut Db, notices: &[NoticeRow], now: Timestamp) -> Result<Self, DbError> {
        let raids = notices.iter().filter(|notice| notice.is_raid());
        let raids: BTreeSet<String> = raids.map(|notice| notice.incident_id.clone()).collect();
        let incidents = incidents::get_all(db, &raids)?;
        let quiet = notices.iter().filter_map(|notice| {
            let last_at = incidents.get(&notice.incident_id)?.incident.last_at;
            (last_at + QUIET_AFTER <= now).then_some((notice, last_at))
        });
        let over = over(db, &quiet.collect::<Vec<_>>(), now)?;
        Ok(Self { incidents, over })
    }
}

/// The raids among these, which are quiet since their times, of which the users' rules make no further step.
fn over(db: &mut Db, quiet: &[(&NoticeRow, Timestamp)], now: Timestamp) -> Result<HashSet<NoticeKey>, DbError> {
    if quiet.is_empty() {
        return Ok(HashSet::new());
    }
    let users = quiet.iter().map(|(notice, _)| notice.user_id.clone()).collect();
    let servers = quiet.iter().map(|(notice, _)| notice.server_id.clone()).collect();
    let rules = NoticeRules::read(db, &servers, &users)?;
    let is_over = |(notice, last_at): &&(&NoticeRow, Timestamp)| {
        let (of_user, _) = rules.of(&notice.server_id, &notice.user_id);
        of_user.raid_end(*last_at, &rules.channels(&notice.server_id, &notice.user_id)) <= now
    };
    Ok(quiet.iter().filter(is_over).map(|(notice, _)| notice.key()).collect())
}

/// The notices among these that still concern their users.
pub(in crate::db) fn concerns(
    db: &mut Db,
    notices: &[NoticeRow],
    now: Timestamp,
) -> Result<HashMap<NoticeKey, NoticeConcern>, DbError> {
    let raids = NoticedRaids::read(db, notices, now)?;
    of_watchers(db, notices, |notice| notice.subject(&raids, now))
}

/// The notices among these whose users have acknowledged the raid, and may watch.
pub(in crate::db) fn acknowledged(
    db: &mut Db,
    notices: &[NoticeRow],
) -> Result<HashMap<NoticeKey, NoticeConcern>, DbError> {
    if notices.is_empty() {
        return Ok(HashMap::new());
    }
    let incidents: BTreeSet<String> = notices.iter().map(|notice| notice.incident_id.clone()).collect();
    let incidents = incidents::get_all(db, &incidents)?;
    of_watchers(db, notices, |notice| {
        let stored = incidents.get(&notice.incident_id)?;
        let is_acknowledged = stored.incident.acks.contains_key(&UserId::from(notice.user_id.as_str()));
        is_acknowledged.then(|| NoticeSubject::Raid(stored.clone().into()))
    })
}

/// The notices that have a subject, and whose users may watch.
fn of_watchers(
    db: &mut Db,
    notices: &[NoticeRow],
    subject: impl Fn(&NoticeRow) -> Option<NoticeSubject>,
) -> Result<HashMap<NoticeKey, NoticeConcern>, DbError> {
    let users: BTreeSet<String> = notices.iter().map(|notice| notice.user_id.clone()).collect();
    let servers: BTreeSet<String> = notices.iter().map(|notice| notice.server_id.clone()).collect();
    let roles = access::roles(db, &users, &servers)?;
    let concern = |notice: &NoticeRow| {
        let role = *roles.get(&(notice.user_id.clone(), notice.server_id.clone()))?;
        let subject = subject(notice).filter(|_| role.may(Action::Watch))?;
        Some((notice.key(), NoticeConcern { subject, role }))
    };
    Ok(notices.iter().filter_map(concern).collect())
}

/// The raids among these notices that their users have not acknowledged and may watch, also those that are over.
pub(in crate::db) fn open_raids(
    db: &mut Db,
    notices: &[NoticeRow],
) -> Result<HashMap<NoticeKey, NoticeConcern>, DbError> {
    let raids: Vec<NoticeRow> = notices.iter().filter(|notice| notice.is_raid()).cloned().collect();
    // No raid was over then.
    concerns(db, &raids, Timestamp::UNIX_EPOCH)
}

/// The notices of these keys.
pub(in crate::db) fn rows(db: &mut Db, keys: &BTreeSet<NoticeKey>) -> Result<Vec<NoticeRow>, DbError> {
    // Another row of the incident that cannot be read is not in its way.
    if let Some(NoticeKey { incident, user }) = keys.first().filter(|_| keys.len() == 1) {
        let row = notices::table.find((incident.as_str(), user.as_str()));
        return Ok(row.select(NoticeRow::as_select()).load(db)?);
    }
    let incidents: BTreeSet<&str> = keys.iter().map(|key| key.incident.as_str()).collect();
    let rows: Vec<NoticeRow> =
        notices::table.filter(notices::incident_id.eq_any(incidents)).select(NoticeRow::as_select()).load(db)?;
    // Two lists in one statement would be looked up in each combination.
    Ok(rows.into_iter().filter(|row| keys.contains(&row.key())).collect())
}
