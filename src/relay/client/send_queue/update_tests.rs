//! Updates of incidents that wait: the newest makes up for those before it.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use tokio::sync::oneshot::error::TryRecvError;

use super::{
    lane_tests::{drain, feed, line},
    *,
};
use crate::{
    domain::{
        incident::DevicePlace,
        raid::{Raids, TriggerTime},
        time::{Moment, Timestamp},
    },
    relay::wire::receipt::Receipt,
};

/// As many alarms as a server may have go off every five seconds, so that there are more updates than a client may get.
#[test]
fn a_wall_of_flapping_alarms_ends_no_connection_and_each_incident_keeps_its_first_and_its_last_message() {
    const ALARMS: usize = 200;
    const SECONDS: u64 = 600;
    let (feed, mut queue, mut raids) = (feed("one"), SendQueue::default(), Raids::new());
    let (mut pushed, mut sent) = (BTreeMap::<String, Vec<String>>::new(), BTreeMap::<String, Vec<String>>::new());
    let mut note_sent = |frames: Vec<String>| {
        for frame in frames {
            let incident = frame.split(' ').next().expect("it begins with its incident").to_owned();
            sent.entry(incident).or_default().push(frame);
        }
    };
    let mut now = 0;
    for second in (0..SECONDS).step_by(5) {
        now = second * 1_000;
        let at = Moment::from(Timestamp::UNIX_EPOCH + TimeDelta::milliseconds(now as i64));
        let mut changes = raids.tick(at);
        for alarm in 0..ALARMS {
            let new_id = || format!("{second}-{alarm}");
            let outcome =
                raids.alarm(&alarm.to_string(), "Wall", &DevicePlace::default(), TriggerTime::Now, at, new_id);
            changes.extend(outcome.changes);
        }
        for raid in changes.into_iter().filter_map(|change| change.message) {
            let frame = format!("{} {}", raid.incident, raid.count);
            let update_of = raid.update.then(|| raid.incident.as_str().into());
            let queued = QueuedFrame { update_of, ..line(&feed, &frame) };
            assert_eq!(queue.push(Lane::Raid, queued, now), Ok(()), "after {second} s");
            pushed.entry(raid.incident).or_default().push(frame);
        }
        note_sent(drain(&mut queue, now));
    }
    while let Next::At(at) = queue.next(now) {
        now = at;
        note_sent(drain(&mut queue, now));
    }
    assert_eq!((pushed.len(), sent.len()), (ALARMS, ALARMS));
    for (incident, sent) in &sent {
        let pushed = &pushed[incident];
        assert_eq!((sent.first(), sent.last()), (pushed.first(), pushed.last()));
        assert_eq!(sent.iter().filter(|frame| **frame == pushed[0]).count(), 1, "announced once: {sent:?}");
        assert!(sent.len() < pushed.len(), "not each of its updates");
        assert!(sent.is_sorted_by_key(|frame| pushed.iter().position(|other| other == frame)), "{sent:?}");
    }
}

#[test]
fn an_update_takes_the_place_of_the_one_that_waits_of_its_own_incident() {
    let (feed, mut queue) = (feed("one"), SendQueue::default());
    let update = |incident: &str, frame: &str, receipt: Option<Rc<Receipt>>| QueuedFrame {
        receipt,
        update_of: Some(incident.into()),
        ..line(&feed, frame)
    };
    let (old, old_taken, mut old_finished) = Receipt::of_alarm(Default::default());
    let (new, new_taken, _new_finished) = Receipt::of_alarm(Default::default());
    let frames = [
        line(&feed, "first of a"),
        update("a", "old of a", Some(old)),
        update("b", "old of b", None),
        line(&feed, "first of c"),
        update("a", "new of a", Some(new)),
    ];
    for queued in frames {
        queue.push(Lane::Raid, queued, 0).expect("there is room");
    }
    assert_eq!(old_finished.try_recv(), Err(TryRecvError::Closed));
    let mut sent = Vec::new();
    while let Next::Send(QueuedFrame { frame, receipt, .. }) = queue.next(0) {
        sent.push(String::from_utf8_lossy(frame.plain()).into_owned());
        receipt.iter().for_each(|receipt| receipt.confirm());
    }
    assert_eq!(sent, ["first of a", "new of a", "old of b", "first of c"]);
    assert_eq!((old_taken.get(), new_taken.get()), (0, 1));
    queue.push(Lane::Raid, update("a", "next of a", None), 0).expect("there is room");
    assert_eq!(drain(&mut queue, 0), ["next of a"]);
}

#[test]
fn an_update_has_its_place_although_no_further_message_has() {
    let (feed, mut queue) = (feed("one"), SendQueue::default());
    let update = |frame: &str| QueuedFrame { update_of: Some("a".into()), ..line(&feed, frame) };
    queue.push(Lane::Raid, update("old"), 0).expect("there is room");
    for _ in 1..limits::WAITING_MESSAGES {
        queue.push(Lane::Raid, line(&feed, "raid"), 0).expect("there is room");
    }
    assert_eq!(queue.push(Lane::Raid, line(&feed, "raid"), 0), Err(Overflow));
    assert_eq!(queue.push(Lane::Raid, update("new"), 0), Ok(()));
    assert_eq!(drain(&mut queue, 0)[0], "new");
}
