//! Origins (scheme, host and port) to which channels send nothing for a while: one that asks for a pause, or that does not
//! answer many users in a row, takes no room from the others. Then one message tries it, and with its answer go all.

use std::collections::{BTreeSet, HashMap};

use chrono::TimeDelta;

use crate::domain::{
    channel::{ChannelFault, ChannelKind},
    time::Moment,
};

/// Users in a row without an answer, after which an origin is held. One user alone, whose URLs may be made to hang, holds
/// up no other.
pub const SILENT_USERS: usize = 8;
/// Time between two attempts at an origin that does not answer.
pub const TRIED_EVERY: TimeDelta = TimeDelta::seconds(30);
/// An origin is held no longer than this at the word of one target; that target itself waits as it asked.
pub const LONGEST_HOLD: TimeDelta = TimeDelta::minutes(1);
/// An origin without news for so long is forgotten.
const KEPT: TimeDelta = TimeDelta::minutes(10);
/// Origins that are watched at once; further ones are never held.
const MOST: usize = 500;

/// The sign that an attempt gives about its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginSign {
    /// There was an answer.
    Answered,
    /// An answer that it takes nothing for so long.
    Busy(TimeDelta),
    /// There was no connection, or no answer in time.
    Silent,
    /// No question was put.
    Unasked,
}

impl OriginSign {
    /// The sign of an attempt that failed, by the fault, the status and the pause that was asked for.
    pub fn of(kind: ChannelKind, fault: ChannelFault, status: Option<u16>, pause: Option<TimeDelta>) -> Self {
        // The others limit each target by itself, and the answer of a webhook may be in the hands of a user.
        let is_of_origin = matches!(kind, ChannelKind::WebPush | ChannelKind::Ntfy);
        match (fault, status, pause) {
            (ChannelFault::Throttled, _, Some(pause)) | (_, Some(503), Some(pause)) if is_of_origin => {
                Self::Busy(pause.min(LONGEST_HOLD))
            }
            (ChannelFault::Unavailable, None, _) => Self::Silent,
            (_, None, _) => Self::Unasked,
            (_, Some(_), _) => Self::Answered,
        }
    }
}

/// Change of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginChange {
    /// Held, because of this fault.
    Held(ChannelFault),
    Released,
}

/// The reason for which an origin is held, and until when.
#[derive(Debug)]
struct OriginHold {
    fault: ChannelFault,
    until: Moment,
    /// The channel whose message tries it then.
    canary: Option<String>,
}

/// An origin with a fault.
#[derive(Debug)]
struct WatchedOrigin {
    /// Users without an answer since the last one.
    silent: BTreeSet<String>,
    hold: Option<OriginHold>,
    noted: Moment,
}

/// The origins that are held, or may be soon.
#[derive(Debug, Default)]
pub struct HeldOrigins(HashMap<String, WatchedOrigin>);

impl HeldOrigins {
    /// True if a message of this channel may go to this origin now. After a hold, the first such message tries it.
    pub fn may_begin(&mut self, origin: &str, channel: &str, now: Moment) -> bool {
        let Some(hold) = self.0.get_mut(origin).and_then(|watched| watched.hold.as_mut()) else { return true };
        let is_free = hold.is_over(now);
        if is_free {
            hold.canary = Some(channel.to_owned());
        }
        is_free
    }

    /// Notes the sign of an attempt by this channel and user; the change that follows from it.
    pub fn note(
        &mut self,
        origin: &str,
        (channel, user): (&str, &str),
        sign: OriginSign,
        now: Moment,
    ) -> Option<OriginChange> {
        if !self.0.contains_key(origin) {
            let is_news = matches!(sign, OriginSign::Busy(_) | OriginSign::Silent);
            if !is_news || self.0.len() >= MOST {
                return None;
            }
        }
        let new = WatchedOrigin { silent: BTreeSet::new(), hold: None, noted: now };
        let watched = self.0.entry(origin.to_owned()).or_insert(new);
        watched.noted = now;
        let was_held = watched.hold.is_some();
        let is_canary = watched.hold.as_mut().is_some_and(|hold| hold.give_back(channel));
        match sign {
            OriginSign::Unasked => return None,
            OriginSign::Answered => {
                watched.silent.clear();
                // Answers from before the hold say nothing about the pause.
                let stays =
                    watched.hold.as_ref().is_some_and(|hold| hold.fault == ChannelFault::Throttled && !is_canary);
                if stays {
                    return None;
                }
                self.0.remove(origin);
                return was_held.then_some(OriginChange::Released);
            }
            OriginSign::Busy(pause) => {
                watched.silent.clear();
                watched.hold(ChannelFault::Throttled, now + pause);
            }
            OriginSign::Silent => {
                if watched.silent.len() < SILENT_USERS {
                    watched.silent.insert(user.to_owned());
                }
                if is_canary || watched.silent.len() >= SILENT_USERS {
                    watched.hold(ChannelFault::Unavailable, now + TRIED_EVERY);
                }
            }
        }
        let hold = watched.hold.as_ref().filter(|_| !was_held)?;
        Some(OriginChange::Held(hold.fault))
    }

    /// The origins to which nothing goes now.
    pub fn held(&self, now: Moment) -> Vec<String> {
        self.all_held(now).map(|(origin, _)| origin.clone()).collect()
    }

    /// The origins to which nothing goes now because of this fault.
    pub fn held_for(&self, fault: ChannelFault, now: Moment) -> Vec<String> {
        self.all_held(now).filter(|(_, hold)| hold.fault == fault).map(|(origin, _)| origin.clone()).collect()
    }

    fn all_held(&self, now: Moment) -> impl Iterator<Item = (&String, &OriginHold)> {
        let holds = self.0.iter().filter_map(|(origin, watched)| Some((origin, watched.hold.as_ref()?)));
        holds.filter(move |(_, hold)| !hold.is_over(now))
    }

    /// Forgets origins without news for long, and returns how many of the others are held.
    pub fn forget_old(&mut self, now: Moment) -> usize {
        self.0.retain(|_, watched| now - watched.noted < KEPT);
        self.0.values().filter(|watched| watched.hold.is_some()).count()
    }
}

impl WatchedOrigin {
    /// Holds it, or longer.
    fn hold(&mut self, fault: ChannelFault, until: Moment) {
        match &mut self.hold {
            Some(hold) => {
                hold.fault = fault;
                hold.until = hold.until.max(until);
            }
            None => self.hold = Some(OriginHold { fault, until, canary: None }),
        }
    }
}

impl OriginHold {
    /// True if a message may try the origin.
    fn is_over(&self, now: Moment) -> bool {
        now >= self.until && self.canary.is_none()
    }

    /// Ends the attempt of this channel; true if it was the one that tried the origin.
    fn give_back(&mut self, channel: &str) -> bool {
        let is_canary = self.canary.as_deref() == Some(channel);
        if is_canary {
            self.canary = None;
        }
        is_canary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;

    const DEAD: &str = "https://push.example";

    fn at(seconds: i64) -> Moment {
        Timestamp::from_timestamp(seconds, 0).unwrap().into()
    }

    fn silent(origins: &mut HeldOrigins, user: usize, now: Moment) -> Option<OriginChange> {
        origins.note(DEAD, (&format!("c{user}"), &format!("u{user}")), OriginSign::Silent, now)
    }

    #[test]
    fn an_origin_that_is_silent_to_many_users_is_tried_by_one_message_at_a_time() {
        let mut origins = HeldOrigins::default();
        for _ in 0..100 {
            assert_eq!(silent(&mut origins, 0, at(0)), None, "one user may have made URLs that hang");
        }
        let changes: Vec<_> = (1..20).filter_map(|user| silent(&mut origins, user, at(0))).collect();
        assert_eq!(changes, [OriginChange::Held(ChannelFault::Unavailable)]);
        assert_eq!((origins.held(at(29)), origins.held(at(30))), (vec![DEAD.to_owned()], vec![]));
        assert!(!origins.may_begin(DEAD, "c30", at(29)) && origins.may_begin("https://other.example", "c", at(29)));
        assert!(origins.may_begin(DEAD, "c30", at(30)) && !origins.may_begin(DEAD, "c31", at(30)));
        assert_eq!(origins.held_for(ChannelFault::Unavailable, at(30)), [DEAD], "one is under way");
        assert_eq!(silent(&mut origins, 30, at(38)), None);
        assert!(!origins.may_begin(DEAD, "c31", at(67)) && origins.may_begin(DEAD, "c31", at(68)));
        let answered = origins.note(DEAD, ("c31", "u31"), OriginSign::Answered, at(69));
        assert_eq!((answered, origins.0.len()), (Some(OriginChange::Released), 0));
        assert!(origins.may_begin(DEAD, "c1", at(69)) && origins.may_begin(DEAD, "c2", at(69)));
    }

    #[test]
    fn an_answer_in_between_begins_the_row_again() {
        let mut origins = HeldOrigins::default();
        (1..SILENT_USERS).for_each(|user| assert_eq!(silent(&mut origins, user, at(0)), None));
        assert_eq!(origins.note(DEAD, ("c", "u"), OriginSign::Answered, at(1)), None);
        (1..SILENT_USERS).for_each(|user| assert_eq!(silent(&mut origins, user, at(2)), None));
        assert_eq!(origins.held(at(2)), [""; 0]);
        assert_eq!(origins.forget_old(at(601)), 0);
        assert_eq!((origins.0.len(), origins.forget_old(at(602)), origins.0.len()), (1, 0, 0));
    }

    #[test]
    fn a_pause_that_one_target_asks_for_is_of_the_whole_origin() {
        let (push, minute) = (ChannelKind::WebPush, TimeDelta::seconds(60));
        let sign = |kind, fault, status, pause: Option<i64>| {
            OriginSign::of(kind, fault, status, pause.map(TimeDelta::seconds))
        };
        let (throttled, away) = (ChannelFault::Throttled, ChannelFault::Unavailable);
        assert_eq!(sign(push, throttled, Some(429), Some(20)), OriginSign::Busy(TimeDelta::seconds(20)));
        assert_eq!(sign(ChannelKind::Ntfy, away, Some(503), Some(3_600)), OriginSign::Busy(minute));
        assert_eq!(
            sign(ChannelKind::Webhook, away, Some(503), Some(20)),
            OriginSign::Answered,
            "a user may have made it"
        );
        assert_eq!(sign(push, throttled, Some(429), None), OriginSign::Answered);
        assert_eq!(sign(push, ChannelFault::Gone, Some(410), None), OriginSign::Answered);
        assert_eq!(sign(ChannelKind::Discord, throttled, Some(429), Some(20)), OriginSign::Answered, "of its webhook");
        assert_eq!(sign(ChannelKind::Ntfy, away, None, None), OriginSign::Silent);
        assert_eq!(sign(push, ChannelFault::Unreadable, None, None), OriginSign::Unasked);

        let mut origins = HeldOrigins::default();
        let held = origins.note(DEAD, ("c1", "u1"), OriginSign::Busy(minute), at(0));
        assert_eq!(held, Some(OriginChange::Held(throttled)));
        assert_eq!(origins.note(DEAD, ("c2", "u2"), OriginSign::Answered, at(1)), None, "it was sent before");
        assert_eq!(origins.note(DEAD, ("c3", "u3"), OriginSign::Busy(TimeDelta::seconds(5)), at(2)), None);
        assert!(!origins.may_begin(DEAD, "c4", at(59)) && origins.may_begin(DEAD, "c4", at(60)));
        assert_eq!(origins.note(DEAD, ("c4", "u4"), OriginSign::Unasked, at(61)), None, "it could not be read");
        assert!(origins.may_begin(DEAD, "c5", at(61)) && !origins.may_begin(DEAD, "c6", at(61)));
        assert_eq!(origins.note(DEAD, ("c5", "u5"), OriginSign::Busy(minute), at(62)), None);
        assert_eq!(origins.held(at(121)), [DEAD]);
        assert!(origins.may_begin(DEAD, "c6", at(122)));
        let answered = origins.note(DEAD, ("c6", "u6"), OriginSign::Answered, at(123));
        assert_eq!(answered, Some(OriginChange::Released));
    }

    #[test]
    fn the_origins_that_are_watched_are_bounded() {
        let mut origins = HeldOrigins::default();
        let many = (0..=MOST).map(|number| format!("https://{number}.example"));
        let busy = OriginSign::Busy(TimeDelta::seconds(9));
        let held = many.filter(|origin| origins.note(origin, ("c", "u"), busy, at(0)).is_some()).count();
        assert_eq!((held, origins.forget_old(at(1))), (MOST, MOST));
    }
}
