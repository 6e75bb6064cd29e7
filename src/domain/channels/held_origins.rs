//! Origins (scheme, host and port) to which channels send nothing for a while: one that asks for a pause, or that does not
//! answer many users in a row, takes no room from the others. Then one message tries it, and with its answer go all.
//!
//! Each kind of channels has holds of its own, and users whose messages failed let others try first: one user whose
//! targets fail on purpose does not keep an origin from the others.

use std::collections::{BTreeSet, HashMap};

use chrono::TimeDelta;

use crate::domain::{
    channels::user_channel::{ChannelFault, ChannelKind},
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
/// After a hold, only users whose messages did not fail within it try the origin for so long.
const OTHERS_FIRST: TimeDelta = TimeDelta::seconds(1);
/// Users who are known to have failed; once there are more, all are equal again.
const MOST_FAILED: usize = 100;
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

/// A kind of channels, as a word, and an origin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KindAtOrigin {
    pub kind: String,
    pub origin: String,
}

impl KindAtOrigin {
    /// Both as one text.
    pub fn text(&self) -> String {
        format!("{}{}", self.kind, self.origin)
    }
}

/// An origin is held from now on, or no longer.
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
    /// Users whose messages failed: others try it first.
    failed: BTreeSet<String>,
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
pub struct HeldOrigins(HashMap<KindAtOrigin, WatchedOrigin>);

impl HeldOrigins {
    /// True if a message of this channel and user may go to this origin now. After a hold, the first such message tries
    /// it: of a user whose messages did not fail, if there is one soon.
    pub fn may_begin(&mut self, origin: &KindAtOrigin, (channel, user): (&str, &str), now: Moment) -> bool {
        let Some(hold) = self.0.get_mut(origin).and_then(|watched| watched.hold.as_mut()) else { return true };
        let is_first = !hold.failed.contains(user) || now >= hold.until + OTHERS_FIRST;
        let is_free = hold.is_over(now) && is_first;
        if is_free {
            hold.canary = Some(channel.to_owned());
        }
        is_free
    }

    /// Notes the sign of an attempt by this channel and user; the change that follows from it.
    pub fn note(
        &mut self,
        origin: &KindAtOrigin,
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
        let watched = self.0.entry(origin.clone()).or_insert(new);
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
                watched.hold(ChannelFault::Throttled, now + pause, Some(user));
            }
            OriginSign::Silent => {
                if watched.silent.len() < SILENT_USERS {
                    watched.silent.insert(user.to_owned());
                }
                let was_silent =
                    watched.hold.as_ref().is_some_and(|hold| is_canary && hold.fault == ChannelFault::Unavailable);
                if was_silent || watched.silent.len() >= SILENT_USERS {
                    watched.hold(ChannelFault::Unavailable, now + TRIED_EVERY, is_canary.then_some(user));
                } else if is_canary {
                    // The pause is over, and one user's word is not enough for another hold.
                    watched.hold = None;
                    return Some(OriginChange::Released);
                }
            }
        }
        let hold = watched.hold.as_ref().filter(|_| !was_held)?;
        Some(OriginChange::Held(hold.fault))
    }

    /// The origins to which nothing goes now, as [texts](KindAtOrigin::text).
    pub fn held(&self, now: Moment) -> Vec<String> {
        self.all_held(now).map(|(origin, _)| origin.text()).collect()
    }

    /// The origins to which nothing goes now because of this fault.
    pub fn held_for(&self, fault: ChannelFault, now: Moment) -> Vec<String> {
        self.all_held(now).filter(|(_, hold)| hold.fault == fault).map(|(origin, _)| origin.text()).collect()
    }

    fn all_held(&self, now: Moment) -> impl Iterator<Item = (&KindAtOrigin, &OriginHold)> {
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
    /// Holds it, or longer, because a message of this user failed, or those of many.
    fn hold(&mut self, fault: ChannelFault, until: Moment, failed: Option<&str>) {
        let new = OriginHold { fault, until, canary: None, failed: BTreeSet::new() };
        let hold = self.hold.get_or_insert(new);
        hold.fault = fault;
        hold.until = hold.until.max(until);
        if hold.failed.len() >= MOST_FAILED {
            hold.failed.clear();
        }
        hold.failed.extend(failed.map(str::to_owned));
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

    const DEAD: &str = "webPushhttps://push.example";
    const BUSY: OriginSign = OriginSign::Busy(TimeDelta::seconds(60));

    fn origin(kind: ChannelKind, origin: &str) -> KindAtOrigin {
        KindAtOrigin { kind: kind.word().to_owned(), origin: origin.to_owned() }
    }

    fn dead() -> KindAtOrigin {
        origin(ChannelKind::WebPush, "https://push.example")
    }

    fn at(seconds: i64) -> Moment {
        Timestamp::from_timestamp(seconds, 0).unwrap().into()
    }

    fn silent(origins: &mut HeldOrigins, user: usize, now: Moment) -> Option<OriginChange> {
        origins.note(&dead(), (&format!("c{user}"), &format!("u{user}")), OriginSign::Silent, now)
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
        let other = origin(ChannelKind::WebPush, "https://other.example");
        assert!(!origins.may_begin(&dead(), ("c30", "u30"), at(29)) && origins.may_begin(&other, ("c", "u"), at(29)));
        assert!(
            origins.may_begin(&dead(), ("c30", "u30"), at(30)) && !origins.may_begin(&dead(), ("c31", "u31"), at(30))
        );
        assert_eq!(origins.held_for(ChannelFault::Unavailable, at(30)), [DEAD], "one is under way");
        assert_eq!(silent(&mut origins, 30, at(38)), None);
        assert!(
            !origins.may_begin(&dead(), ("c31", "u31"), at(67)) && origins.may_begin(&dead(), ("c31", "u31"), at(68))
        );
        let answered = origins.note(&dead(), ("c31", "u31"), OriginSign::Answered, at(69));
        assert_eq!((answered, origins.0.len()), (Some(OriginChange::Released), 0));
        assert!(origins.may_begin(&dead(), ("c1", "u1"), at(69)) && origins.may_begin(&dead(), ("c2", "u2"), at(69)));
    }

    #[test]
    fn an_answer_in_between_begins_the_row_again() {
        let mut origins = HeldOrigins::default();
        (1..SILENT_USERS).for_each(|user| assert_eq!(silent(&mut origins, user, at(0)), None));
        assert_eq!(origins.note(&dead(), ("c", "u"), OriginSign::Answered, at(1)), None);
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
        let held = origins.note(&dead(), ("c1", "u1"), OriginSign::Busy(minute), at(0));
        assert_eq!(held, Some(OriginChange::Held(throttled)));
        assert_eq!(origins.note(&dead(), ("c2", "u2"), OriginSign::Answered, at(1)), None, "it was sent before");
        assert_eq!(origins.note(&dead(), ("c3", "u3"), OriginSign::Busy(TimeDelta::seconds(5)), at(2)), None);
        assert!(!origins.may_begin(&dead(), ("c4", "u4"), at(59)) && origins.may_begin(&dead(), ("c4", "u4"), at(60)));
        assert_eq!(origins.note(&dead(), ("c4", "u4"), OriginSign::Unasked, at(61)), None, "it could not be read");
        assert!(origins.may_begin(&dead(), ("c5", "u5"), at(61)) && !origins.may_begin(&dead(), ("c6", "u6"), at(61)));
        assert_eq!(origins.note(&dead(), ("c5", "u5"), OriginSign::Busy(minute), at(62)), None);
        assert_eq!(origins.held(at(121)), [DEAD]);
        assert!(origins.may_begin(&dead(), ("c6", "u6"), at(122)));
        let answered = origins.note(&dead(), ("c6", "u6"), OriginSign::Answered, at(123));
        assert_eq!(answered, Some(OriginChange::Released));
    }

    #[test]
    fn the_origins_that_are_watched_are_bounded() {
        let mut origins = HeldOrigins::default();
        let many = (0..=MOST).map(|number| origin(ChannelKind::Ntfy, &format!("https://{number}.example")));
        let busy = OriginSign::Busy(TimeDelta::seconds(9));
        let held = many.filter(|origin| origins.note(origin, ("c", "u"), busy, at(0)).is_some()).count();
        assert_eq!((held, origins.forget_old(at(1))), (MOST, MOST));
    }

    #[test]
    fn a_hold_of_one_kind_holds_up_no_other() {
        let mut origins = HeldOrigins::default();
        assert!(origins.note(&dead(), ("c1", "u1"), BUSY, at(0)).is_some());
        let hook = origin(ChannelKind::Webhook, &dead().origin);
        assert!(origins.may_begin(&hook, ("c2", "u2"), at(1)) && !origins.may_begin(&dead(), ("c3", "u3"), at(1)));
        assert_eq!(origins.held(at(1)), [DEAD]);
    }

    #[test]
    fn a_user_whose_messages_fail_lets_others_try_first_and_is_not_starved() {
        let mut origins = HeldOrigins::default();
        origins.note(&dead(), ("c1", "bad"), BUSY, at(0));
        assert!(!origins.may_begin(&dead(), ("c2", "bad"), at(60)), "another may come");
        assert!(origins.may_begin(&dead(), ("c2", "bad"), at(61)), "none came");
        assert_eq!(origins.note(&dead(), ("c2", "bad"), BUSY, at(62)), None);
        assert!(
            !origins.may_begin(&dead(), ("c3", "bad"), at(122)) && origins.may_begin(&dead(), ("c4", "u4"), at(122))
        );
        let answered = origins.note(&dead(), ("c4", "u4"), OriginSign::Answered, at(123));
        assert_eq!(answered, Some(OriginChange::Released));

        for user in 1..=SILENT_USERS {
            silent(&mut origins, user, at(200));
        }
        assert!(origins.may_begin(&dead(), ("c1", "u1"), at(230)));
        assert_eq!(silent(&mut origins, 1, at(240)), None);
        assert!(
            !origins.may_begin(&dead(), ("c1", "u1"), at(270)) && origins.may_begin(&dead(), ("c2", "u2"), at(270))
        );
    }

    #[test]
    fn the_users_who_failed_are_bounded() {
        let mut origins = HeldOrigins::default();
        for user in 0..3 * MOST_FAILED {
            origins.note(&dead(), ("c", &format!("u{user}")), BUSY, at(0));
            assert!(origins.0[&dead()].hold.as_ref().unwrap().failed.len() <= MOST_FAILED);
        }
    }

    #[test]
    fn a_pause_and_then_silence_of_one_user_is_no_outage() {
        let mut origins = HeldOrigins::default();
        origins.note(&dead(), ("c1", "bad"), OriginSign::Busy(TimeDelta::seconds(1)), at(0));
        assert!(origins.may_begin(&dead(), ("c1", "bad"), at(2)));
        let silence = origins.note(&dead(), ("c1", "bad"), OriginSign::Silent, at(12));
        assert_eq!((silence, origins.held(at(12))), (Some(OriginChange::Released), vec![]));
        assert!(origins.may_begin(&dead(), ("c2", "u2"), at(12)));
    }
}
