//! Promises of browsers at the end: what each showed against what is stored.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use companion::{db::notices::notice_queue::ACKNOWLEDGED, domain::time::Timestamp};

use crate::{
    browsers::{BROWSERS, Browser, REPEATED_WORD},
    channels::{Message, NoticedIncident, SENT_WITHIN, StoredMessages, TAKEN_WITHIN},
    judge::Judge,
    script::HEALTHY_FROM,
    world::{PAIRED, USERS, World},
};

/// An alarm may ring for so long after its acknowledgement, which the database or the journal has to take first, and for so
/// long while the database takes nothing or hardly anything.
const RINGS_AFTER: TimeDelta = TimeDelta::seconds(10);
const RINGS_AFTER_SLOWLY: TimeDelta = TimeDelta::seconds(30);

impl Judge {
    /// Promises of browsers at the end.
    pub fn check_browsers(&mut self, world: &World, stored: &StoredMessages, now: Timestamp) {
        for (user, own) in BROWSERS.into_iter().enumerate() {
            let Some(browser) = world.receiver.browsers.of(user) else { continue };
            let is_own = |message: &&Message| stored.channels.get(&message.channel).is_some_and(|name| name == own);
            let messages: Vec<&Message> = stored.messages.iter().filter(is_own).collect();
            self.check_repetitions(world, stored, &browser, &messages);
            if !self.jumped {
                self.check_silence(world, stored, &browser, now);
                self.check_acknowledgements(stored, &browser, &messages, now);
                self.check_woken(world, stored, &browser, &messages, now);
            }
        }
    }

    /// A repetition is sent twice only if its answer, or what was stored of it, was lost.
    fn check_repetitions(&mut self, world: &World, stored: &StoredMessages, browser: &Browser, messages: &[&Message]) {
        if self.lossy || self.bad_disk || world.receiver.has_lost_answers() {
            return;
        }
        let shown = browser.shown.borrow();
        let repeated =
            || shown.iter().filter(|shown| shown.event == REPEATED_WORD).map(|shown| shown.incident.as_str());
        let is_stored =
            |incident: &&str| stored.incidents.contains_key(*incident) && !stored.wholes.contains(*incident);
        for incident in repeated().filter(is_stored).collect::<BTreeSet<_>>() {
            let times = repeated().filter(|other| *other == incident).count();
            let accepted = messages.iter().filter(|one| one.incident == incident && one.round > 0);
            let accepted = accepted.filter(|one| one.state == "accepted").count();
            // Messages of one who may no longer watch go with that.
            if times > accepted && messages.iter().any(|one| one.incident == incident) {
                let name = BROWSERS[browser.user];
                self.broken("sent-once", format!("{name}: {incident} came {times} times, {accepted} are stored"));
            }
        }
    }

    /// Nothing rings once its user has acknowledged.
    fn check_silence(&mut self, world: &World, stored: &StoredMessages, browser: &Browser, now: Timestamp) {
        let millis = |millis: u64| TimeDelta::milliseconds(millis as i64);
        let began = now - millis(world.millis());
        let within = if self.bad_disk { RINGS_AFTER_SLOWLY } else { RINGS_AFTER };
        for ring in browser.shown.borrow().iter().filter(|shown| shown.rings()) {
            let acked = stored.acknowledged(&ring.incident, USERS[browser.user]);
            let Some(acked) = acked.filter(|_| !stored.wholes.contains(&ring.incident)) else { continue };
            if began + millis(ring.millis) > *acked + within {
                let details = format!("{} of {} rings, acknowledged at {acked}", ring.event, ring.incident);
                self.broken("acknowledged-rings-nothing", details);
            }
        }
    }

    /// A browser that rang hears that its user has acknowledged.
    fn check_acknowledgements(
        &mut self,
        stored: &StoredMessages,
        browser: &Browser,
        messages: &[&Message],
        now: Timestamp,
    ) {
        let is_settled = |at: Timestamp| at + SENT_WITHIN < now;
        for ring in messages.iter().filter(|message| message.round >= 0 && message.state == "accepted") {
            let acked = stored.acknowledged(&ring.incident, &ring.user);
            let acked = acked.filter(|_| !stored.wholes.contains(&ring.incident));
            let is_due = acked.is_some_and(|at| is_settled(*at)) && ring.ended_at.is_some_and(is_settled);
            let says = |one: &Message| one.round == ACKNOWLEDGED && one.state != "superseded";
            let is_said = || messages.iter().any(|one| one.incident == ring.incident && says(one));
            if is_due && browser.gone().is_none() && !is_said() {
                self.broken("browsers-hear-of-acknowledgements", format!("acknowledged at {acked:?}: {ring:?}"));
            }
        }
    }

    /// An alarm wakes its owner's browser at once: in Alice's rules it is in the first step, and without rules it is that.
    fn check_woken(
        &mut self,
        world: &World,
        stored: &StoredMessages,
        browser: &Browser,
        messages: &[&Message],
        now: Timestamp,
    ) {
        // Bob has quiet hours, and is a guest.
        if browser.user != 0 || browser.gone().is_some() {
            return;
        }
        let healthy_from = now - TimeDelta::milliseconds((world.millis() - HEALTHY_FROM) as i64);
        let owned = PAIRED.iter().filter(|paired| paired.1 == 0).filter_map(|paired| self.server(paired.0));
        let owned: BTreeSet<String> = owned.map(|id| id.to_string()).collect();
        let is_checked =
            |incident: &&NoticedIncident| !incident.late && !incident.drill && owned.contains(&incident.server);
        for NoticedIncident { id, first_at, .. } in stored.incidents.values().filter(is_checked) {
            if stored.acknowledged(id, USERS[0]).is_some() {
                continue;
            }
            match messages.iter().find(|message| message.incident == *id && message.round == 0) {
                None if *first_at + SENT_WITHIN < now => {
                    self.broken("alarms-wake-their-owner", format!("{id} at {first_at}: not in the browser"));
                }
                Some(message)
                    if message.state != "accepted" && (healthy_from..now - TAKEN_WITHIN).contains(first_at) =>
                {
                    self.broken("healthy-alarms-are-taken", format!("{id} at {first_at}: {message:?}"));
                }
                _ => {}
            }
        }
    }
}
