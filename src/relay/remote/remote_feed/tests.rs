//! Tests of a remote feed.

use std::{cell::RefCell, rc::Rc};

use tokio::time::sleep;

use super::*;
use crate::{
    cluster::node_mail::{Letter, MailRoute, NodeMail, mail},
    domain::time::Timestamp,
    relay::wire::publication::Announcement,
};

/// Notes which positions it gets; one socket takes each alarm.
struct Watcher(Rc<RefCell<Vec<u64>>>);

impl Actor for Watcher {
    type Context = Context<Self>;
}

impl Handler<Publication> for Watcher {
    type Result = usize;

    fn handle(&mut self, publication: Publication, _: &mut Self::Context) -> usize {
        match publication {
            Publication::Advance { step, .. } => self.0.borrow_mut().push(step.seq),
            Publication::Snapshot { position, .. } => self.0.borrow_mut().push(position.seq),
            Publication::DeliverAlarm { taken, .. } => {
                self.0.borrow_mut().push(u64::MAX);
                taken.add();
            }
            _ => {}
        }
        0
    }
}

fn content_of(letter: Letter) -> RemoteContent {
    RemoteMessage::read(letter.message).expect("a message").0.content
}

/// Messages to the other node so far, in words.
fn asked(route: &mut MailRoute) -> Vec<&'static str> {
    let letters = std::iter::from_fn(|| route.outgoing.try_recv().ok());
    let word = |content| match content {
        RemoteContent::Watch => "watch",
        RemoteContent::WantSnapshot => "snapshot",
        _ => "other",
    };
    letters.map(|letter| word(content_of(letter))).collect()
}

/// The next answer about an alarm: its number, the sockets that took it, and whether no more will.
async fn taken(route: &mut MailRoute) -> (u64, usize, bool) {
    loop {
        let letter = route.outgoing.recv().await.expect("the feed runs");
        if let RemoteContent::AlarmTaken { alarm, sockets, ended } = content_of(letter) {
            return (alarm, sockets, ended);
        }
    }
}

fn alarm_of(alarm: u64) -> RemoteContent {
    let about = Announcement { incident: "i".into(), count: 1, update: false, again: false };
    RemoteContent::Alarm { alarm, about, acknowledged: Vec::new() }
}

fn feed_to(mail: &NodeMail) -> Addr<RemoteFeed> {
    let start = FeedStart {
        server: "one".into(),
        owner: "there".into(),
        process: "here".into(),
        outbox: mail.outbox.clone(),
        clock: Clock::simulated(Timestamp::UNIX_EPOCH),
        catalogue: SharedCatalogue::default(),
    };
    RemoteFeed::new(start).start()
}

#[actix::test]
async fn an_alarm_that_comes_again_is_delivered_once_and_answered_with_the_sockets_that_took_it() {
    let (mail, mut route) = mail();
    let (feed, got) = (feed_to(&mail), Rc::default());
    let subscriber = Watcher(Rc::clone(&got)).start().recipient();
    feed.send(Subscribe { subscriber }).await.unwrap();
    let come = async |alarm| {
        feed.send(FromOwner { content: alarm_of(alarm), frame: Bytes::from_static(b"{}") }).await.unwrap();
    };
    for alarm in [7, 8] {
        come(alarm).await;
        assert_eq!(taken(&mut route).await, (alarm, 0, false), "it is here");
        while taken(&mut route).await != (alarm, 1, true) {}
    }
    come(7).await;
    assert_eq!(taken(&mut route).await, (7, 1, true));
    assert_eq!(*got.borrow(), [u64::MAX; 2]);
}

#[actix::test]
async fn a_question_about_an_alarm_is_answered_with_its_sockets_or_with_the_wish_for_it() {
    let (mail, mut route) = mail();
    let feed = feed_to(&mail);
    let subscriber = Watcher(Rc::default()).start().recipient();
    feed.send(Subscribe { subscriber }).await.unwrap();
    let from_owner = async |content| {
        feed.send(FromOwner { content, frame: Bytes::from_static(b"{}") }).await.unwrap();
    };
    from_owner(RemoteContent::AskTaken { alarm: 7 }).await;
    let letters = std::iter::from_fn(|| route.outgoing.try_recv().ok());
    let wanted = letters.filter(|letter| {
        let content = content_of(letter.clone());
        matches!(content, RemoteContent::WantAlarm { alarm: 7 })
    });
    assert_eq!(wanted.count(), 1);
    from_owner(alarm_of(7)).await;
    while taken(&mut route).await != (7, 1, true) {}
    from_owner(RemoteContent::AskTaken { alarm: 7 }).await;
    assert_eq!(taken(&mut route).await, (7, 1, true));
}

#[actix::test]
async fn an_alarm_that_comes_before_the_first_subscription_is_delivered_when_it_comes_again() {
    let (mail, mut route) = mail();
    let (feed, got) = (feed_to(&mail), Rc::default());
    let come = async || {
        feed.send(FromOwner { content: alarm_of(7), frame: Bytes::from_static(b"{}") }).await.unwrap();
    };
    come().await;
    assert_eq!(asked(&mut route), ["watch"], "it is not confirmed");
    let subscriber = Watcher(Rc::clone(&got)).start().recipient();
    feed.send(Subscribe { subscriber }).await.unwrap();
    come().await;
    while taken(&mut route).await != (7, 1, true) {}
    assert_eq!(*got.borrow(), [u64::MAX]);
}

#[actix::test]
async fn the_other_node_is_asked_soon_after_a_last_step_and_seldom_while_nothing_comes() {
    tokio::time::pause();
    let (mail, mut route) = mail();
    let feed = feed_to(&mail);
    let from_owner = async |content| {
        feed.send(FromOwner { content, frame: Bytes::from_static(b"{}") }).await.unwrap();
    };
    let here = |seq| RemoteContent::Here { at: Some(Position { epoch: 7, seq }) };
    from_owner(RemoteContent::Snapshot { epoch: 7, seq: 3, changed: Vec::new() }).await;
    from_owner(here(3)).await;
    assert_eq!(asked(&mut route), ["watch"], "at the start");
    sleep(Duration::from_millis(12_500)).await;
    assert_eq!(asked(&mut route), ["watch"; 2], "each 6 s");
    from_owner(RemoteContent::Step { epoch: 7, base: 3, changes: Vec::new() }).await;
    sleep(Duration::from_secs(4)).await;
    assert_eq!(asked(&mut route), ["watch"], "another step may have been lost");
    from_owner(here(4)).await;
    sleep(Duration::from_secs(4)).await;
    assert_eq!(asked(&mut route), [""; 0]);
}

#[actix::test]
async fn a_last_step_that_was_lost_is_asked_for_once_the_other_node_says_where_it_is() {
    let (mail, mut route) = mail();
    let feed = feed_to(&mail);
    let got = Rc::default();
    let subscriber = Watcher(Rc::clone(&got)).start().recipient();
    feed.send(Subscribe { subscriber: subscriber.clone() }).await.unwrap();
    let from_owner = async |content| {
        feed.send(FromOwner { content, frame: Bytes::from_static(b"{}") }).await.unwrap();
    };
    let here = |seq| RemoteContent::Here { at: Some(Position { epoch: 7, seq }) };
    let step = |base| RemoteContent::Step { epoch: 7, base, changes: Vec::new() };
    from_owner(RemoteContent::Here { at: None }).await;
    assert_eq!(asked(&mut route), ["watch"], "it says nothing of a step");
    from_owner(RemoteContent::Snapshot { epoch: 7, seq: 3, changed: Vec::new() }).await;
    from_owner(step(3)).await;
    from_owner(here(4)).await;
    assert_eq!(asked(&mut route), [""; 0]);
    // The step to 5 was lost.
    from_owner(here(5)).await;
    from_owner(here(5)).await;
    assert_eq!(asked(&mut route), ["snapshot"], "once");
    from_owner(RemoteContent::Snapshot { epoch: 7, seq: 5, changed: Vec::new() }).await;
    from_owner(step(6)).await;
    from_owner(here(7)).await;
    assert_eq!(asked(&mut route), ["snapshot"], "a step that does not follow brings no one there");
    subscriber.send(Publication::Skipped).await.unwrap();
    assert_eq!(*got.borrow(), [3, 4, 5, 7]);
}
