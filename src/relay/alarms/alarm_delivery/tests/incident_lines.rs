//! The lines of the log about incidents.

use std::sync::Once;

use log::{LevelFilter, Log, Metadata, Record, kv::Key};

use super::*;

/// Keys of a line, in the order of `docs/alarms.md`.
const KEYS: [&str; 10] =
    ["server", "incident", "alarm", "paths", "received", "kept", "stored", "published", "taken", "sockets"];

/// The values of a line, by these keys and `message`.
type LogLine = BTreeMap<&'static str, String>;

thread_local! {
    static LINES: RefCell<Vec<LogLine>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the lines about alarms, each for the test on its thread.
struct ThreadLog;

impl Log for ThreadLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("companion::relay::alarms::alarm_delivery")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let pairs = record.key_values();
            let pairs = KEYS.iter().filter_map(|key| Some((*key, pairs.get(Key::from_str(key))?.to_string())));
            let line = pairs.chain([("message", record.args().to_string())]).collect();
            LINES.with_borrow_mut(|lines| lines.push(line));
        }
    }

    fn flush(&self) {}
}

/// The lines with this message since the last call on this thread.
fn logged(message: &str) -> Vec<LogLine> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&ThreadLog).expect("no other test of the library has a logger");
        log::set_max_level(LevelFilter::Debug);
    });
    let mut lines = LINES.take();
    lines.retain(|line| line["message"] == message);
    lines
}

/// The one line about an incident since the last call.
fn raid_alarm() -> LogLine {
    let mut lines = logged("raid alarm");
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines.remove(0)
}

/// The values of these keys.
fn values<const N: usize>(line: &LogLine, keys: [&str; N]) -> [String; N] {
    keys.map(|key| line[key].clone())
}

/// True for a number of milliseconds.
fn is_time(line: &LogLine, key: &str) -> bool {
    line[key].parse::<u64>().is_ok()
}

/// A thread whose sockets do not read.
struct Stuck;

impl Actor for Stuck {
    type Context = Context<Self>;
}

impl Handler<Publication> for Stuck {
    type Result = ResponseFuture<usize>;

    fn handle(&mut self, _: Publication, _: &mut Self::Context) -> Self::Result {
        Box::pin(std::future::pending())
    }
}

#[actix::test]
async fn an_incident_has_one_line_of_its_alarm_and_when_it_got_how_far() {
    let world = World::new();
    let life = world.start(2).await;
    logged("");
    life.link_alarm().await;
    let line = raid_alarm();
    assert_eq!(line.len(), KEYS.len() + 1, "{line:?}");
    let stored = world.context.pool.read_blocking(|db| alarm_ledger::newest_finished(db, &"one".into(), 9)).unwrap();
    assert_eq!(line["alarm"], stored[0], "its row in the ledger");
    let of = values(&line, ["server", "incident", "paths", "kept", "sockets"]);
    assert_eq!(of, ["one", &life.seen()[0].0, "link", "database", "2"]);
    assert!(["stored", "published", "taken"].into_iter().all(|key| is_time(&line, key)), "{line:?}");

    world.later(600);
    let push = world.receive("push", "Back door");
    life.pushed_alarm(push).await;
    assert_eq!(values(&raid_alarm(), ["alarm", "paths"]), ["push", "push"]);
}

#[actix::test]
async fn an_alarm_that_no_one_watches_has_its_line_at_once() {
    let world = World::new();
    let life = world.start(0).await;
    logged("");
    life.link_alarm().await;
    let line = raid_alarm();
    assert!(is_time(&line, "published"));
    assert_eq!(values(&line, ["taken", "sockets"]), ["none", "0"]);
}

#[actix::test]
async fn an_alarm_that_is_merged_before_it_is_sent_has_the_line_of_the_known_incident() {
    let world = World::new();
    let before = world.start(1).await;
    before.link_alarm().await;
    before.alarms.ledger.idle().await;
    world.later(20);
    let life = world.start_unread(1);
    let news = life.alarms.clone().link_alarm(trigger("7")).await;
    life.load().await;
    logged("");
    life.publish(news).all.await;
    assert_eq!(values(&raid_alarm(), ["incident", "paths"]), [before.seen()[0].0.as_str(), "link"]);
}

#[actix::test]
async fn a_game_connection_that_ends_leaves_the_line_with_what_is_known() {
    let world = World::new();
    let life = world.start(0).await;
    life.publisher.borrow_mut().subscribe(Stuck.start().recipient());
    logged("");
    let stored = life.alarms.clone().link_alarm(trigger("7")).await;
    let heard = life.publish(stored).all;
    assert!(logged("raid alarm").is_empty());
    drop(heard);
    let line = raid_alarm();
    assert!(is_time(&line, "published"));
    assert_eq!(values(&line, ["kept", "taken"]), ["database", "none"]);

    assert!(life.alarms.clone().link_alarm(trigger("8")).now_or_never().is_none(), "it waits for the ledger");
    let line = raid_alarm();
    assert_eq!(values(&line, ["kept", "stored", "published"]), ["unknown", "none", "none"]);
}

#[actix::test]
async fn a_socket_that_does_not_read_holds_the_line_up_for_seconds_only() {
    let world = World::new();
    let life = world.start(0).await;
    life.publisher.borrow_mut().subscribe(Stuck.start().recipient());
    logged("");
    let stored = life.alarms.clone().link_alarm(trigger("7")).await;
    let heard = actix::spawn(life.publish(stored).all);
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(values(&raid_alarm(), ["taken", "sockets"]), ["none", "0"]);
    heard.abort();
}

#[actix::test]
async fn a_later_alarm_of_an_incident_has_a_line_too() {
    let world = World::new();
    let life = world.start(1).await;
    life.link_alarm().await;
    logged("");
    let push = world.receive("push", "Front door");
    life.pushed_alarm(push).await;
    world.later(1);
    life.link_alarm().await;
    let lines = logged("an alarm joined a raid");
    assert_eq!(lines.iter().map(|line| line["alarm"].as_str()).collect::<Vec<_>>(), ["push", "none"]);
    assert!(lines.iter().all(|line| line["incident"] == life.seen()[0].0));
}
