//! Timers of two users in one team, and their rows.

use std::time::Duration;

use actix::{Actor, Context, Handler};
use tokio::sync::mpsc;

use super::*;
use crate::{
    crypto::random::Random,
    db::{
        engine::pool::Pool,
        team_timers,
        testing::{self, later, now},
    },
};

/// Passes on that there are news.
struct TimersReader(mpsc::UnboundedSender<()>);

impl Actor for TimersReader {
    type Context = Context<Self>;
}

impl Handler<TeamNews> for TimersReader {
    type Result = ();

    fn handle(&mut self, _: TeamNews, _: &mut Self::Context) {
        let _ = self.0.send(());
    }
}

fn reader() -> (Recipient<TeamNews>, mpsc::UnboundedReceiver<()>) {
    let (sender, news) = mpsc::unbounded_channel();
    (TimersReader(sender).start().recipient(), news)
}

fn team() -> TimerTeam {
    TimerTeam::new(Some(1), [1, 2])
}

fn stored(id: &str, number: u32, ends_in: i64) -> StoredTimer {
    let timer = TeamTimer { number, text: id.to_owned(), ends_at: later(ends_in) };
    StoredTimer { id: id.into(), timer, created_at: now(), team: Some(team()) }
}

fn shown(timers: &TeamTimers, server: &ServerId) -> Vec<(u32, String)> {
    timers.of(server).into_iter().map(|(_, timer)| (timer.number, timer.text)).collect()
}

struct SharedRoom {
    timers: TeamTimers,
    pool: Pool,
    sink: WriteBehind,
    /// Their users are in one team.
    servers: [ServerId; 2],
}

impl SharedRoom {
    fn new(pool: &Pool) -> Self {
        let (timers, pool) = (TeamTimers::default(), pool.clone());
        let sink = WriteBehind::start(pool.clone(), Random::seeded(7));
        Self { timers, pool, sink, servers: ["first", "second"].map(ServerId::from) }
    }

    /// Both are open, and see each other in their team. Passes on what the first learns.
    fn open(&self) -> mpsc::UnboundedReceiver<()> {
        let (news, of_first) = reader();
        let [first, second] = &self.servers;
        self.timers.open(first, Vec::new(), news);
        self.timers.open(second, Vec::new(), reader().0);
        assert!(self.timers.see(first, 1, &team()) && self.timers.see(second, 2, &team()));
        of_first
    }

    /// The player of this server has set a timer.
    async fn set(&self, server: &ServerId, timer: StoredTimer) {
        let number = timer.timer.number;
        let set = self.timers.set(server, timer);
        assert_eq!(set.timer.number, number);
        self.set_row(server, set).await;
    }

    async fn set_row(&self, server: &ServerId, row: StoredTimer) {
        let server = server.clone();
        self.pool.write(move |db| team_timers::put(db, &server, &row)).await.unwrap();
    }

    async fn rows(&self, server: &ServerId) -> Vec<(u32, String)> {
        assert!(self.sink.flush(Duration::from_secs(60)).await);
        let server = server.clone();
        let mut rows = self.pool.read(move |db| team_timers::list(db, &server)).await.unwrap();
        rows.sort_by(|one, other| one.id.cmp(&other.id));
        rows.into_iter().map(|row| (row.timer.number, row.timer.text)).collect()
    }
}

/// Runs this with two users.
fn with_room(test: impl AsyncFn(SharedRoom)) {
    testing::on_each_database(|pool| {
        for user in ["first", "second"] {
            testing::user(pool, user);
            testing::server(pool, user, user);
        }
        let test = &test;
        actix::System::new().block_on(async move { test(SharedRoom::new(pool)).await });
    });
}

#[test]
fn mates_have_a_timer_that_ends_once_and_is_left_by_one() {
    with_room(async |room| {
        let (timers, [first, second]) = (&room.timers, &room.servers);
        let mut of_first = room.open();
        room.set(first, stored("early", 1, 10)).await;
        room.set(first, stored("late", 2, 20)).await;
        timers.share(second, std::slice::from_ref(first), &room.sink);
        assert_eq!(timers.of(second), timers.of(first));
        assert_eq!(room.rows(second).await, [(1, "early".to_owned()), (2, "late".to_owned())]);

        let due = timers.take_due(second, true, later(15));
        assert_eq!(due.iter().map(|(_, timer)| timer.text.as_str()).collect::<Vec<_>>(), ["early"]);
        due.into_iter().for_each(|(end, _)| room.sink.store(end));
        assert!(timers.take_due(first, true, later(15)).is_empty());
        of_first.recv().await.unwrap();
        assert_eq!(shown(timers, first), [(2, "late".to_owned())]);

        timers.leave(first, &room.sink);
        assert_eq!((shown(timers, first), shown(timers, second)), (vec![], vec![(2, "late".to_owned())]));
        assert!(room.rows(first).await.is_empty());
        timers.cancel(second, &"late".into(), &room.sink);
        assert!(shown(timers, second).is_empty());
    });
}

#[test]
fn only_players_who_are_in_each_others_team_share_their_timers() {
    with_room(async |room| {
        let (timers, [first, second]) = (&room.timers, &room.servers);
        let _news = room.open();
        room.set(first, stored("heli", 1, 10)).await;
        let share = || timers.share(second, std::slice::from_ref(first), &room.sink);
        assert!(timers.see(first, 1, &TimerTeam::new(Some(1), [1])));
        share();
        assert!(shown(timers, second).is_empty(), "the first has left");
        assert!(timers.see(first, 1, &team()) && !timers.see(first, 1, &team()));
        assert!(timers.see(second, 2, &TimerTeam::new(Some(2), [2])));
        share();
        assert!(shown(timers, second).is_empty(), "the second has left");
        assert!(timers.see(second, 2, &team()));
        share();
        assert_eq!(shown(timers, second), [(1, "heli".to_owned())]);
    });
}

#[test]
fn a_timer_that_is_left_while_its_row_is_stored_has_none() {
    with_room(async |room| {
        let (timers, [first, _]) = (&room.timers, &room.servers);
        let _news = room.open();
        room.set(first, stored("heli", 1, 10)).await;
        assert_eq!(timers.stored(first, &"heli".into(), &room.sink).map(|timer| timer.number), Some(1));
        timers.leave(first, &room.sink);
        room.set_row(first, stored("heli", 1, 10)).await;
        assert_eq!(timers.stored(first, &"heli".into(), &room.sink), None);
        assert!(room.rows(first).await.is_empty());
    });
}

#[test]
fn two_timers_of_one_number_get_two() {
    with_room(async |room| {
        let (timers, [first, second]) = (&room.timers, &room.servers);
        let mut of_first = room.open();
        room.set(first, stored("heli", 1, 10)).await;
        room.set(second, stored("ship", 1, 10)).await;
        room.set(second, stored("shop", 2, 10)).await;
        timers.share(second, std::slice::from_ref(first), &room.sink);
        of_first.recv().await.unwrap();
        let all = [(3, "heli"), (1, "ship"), (2, "shop")].map(|(number, text)| (number, text.to_owned()));
        assert_eq!(shown(timers, second), all);
        assert_eq!(shown(timers, first), all[..1]);
        assert_eq!(room.rows(first).await, all[..1]);
        assert_eq!(room.rows(second).await, all);
    });
}

#[test]
fn a_connection_that_starts_again_has_its_rows_without_those_that_ended_meanwhile() {
    with_room(async |room| {
        let (timers, [first, second]) = (&room.timers, &room.servers);
        let rows = || vec![stored("early", 1, 10), stored("late", 2, 20)];
        let (before, now_open) = (reader().0, reader().0);
        timers.open(first, rows(), before.clone());
        timers.open(second, rows(), reader().0);
        timers.close(first, &before);
        assert!(shown(timers, first).is_empty());
        assert_eq!(timers.take_due(second, true, later(15)).len(), 1);
        timers.open(first, rows(), now_open);
        assert_eq!(shown(timers, first), [(2, "late".to_owned())]);
        timers.close(first, &before);
        assert_eq!(shown(timers, first).len(), 1, "that one has ended before");
    });
}

#[test]
fn each_of_a_pair_that_has_parted_says_a_timer_once_and_takes_only_its_own_row() {
    with_room(async |room| {
        let (timers, [first, second]) = (&room.timers, &room.servers);
        let rows = || vec![stored("heli", 1, 10)];
        let say = |server: &ServerId| {
            let due = timers.take_due(server, false, later(15));
            due.into_iter().for_each(|(end, _)| room.sink.store(end));
        };
        for server in [first, second] {
            room.set_row(server, stored("heli", 1, 10)).await;
        }
        timers.open(first, rows(), reader().0);
        // The other one's connection starts later.
        say(first);
        assert!(room.rows(first).await.is_empty());
        timers.open(first, rows(), reader().0);
        assert!(shown(timers, first).is_empty(), "read before the row had gone");
        assert_eq!(room.rows(second).await, [(1, "heli".to_owned())]);
        timers.open(second, rows(), reader().0);
        assert_eq!(shown(timers, second), [(1, "heli".to_owned())]);
        say(second);
        assert_eq!((shown(timers, second), room.rows(second).await), (vec![], vec![]));
    });
}

#[test]
fn a_wipe_ends_what_was_set_before_it_for_all() {
    with_room(async |room| {
        let (timers, [first, second]) = (&room.timers, &room.servers);
        let _news = room.open();
        room.set(first, stored("old", 1, 100)).await;
        room.set(first, StoredTimer { created_at: later(5), ..stored("new", 2, 100) }).await;
        timers.share(second, std::slice::from_ref(first), &room.sink);
        timers.wipe(second, later(5), &room.sink);
        for server in [first, second] {
            assert_eq!(shown(timers, server), [(2, "new".to_owned())]);
            assert_eq!(room.rows(server).await, [(2, "new".to_owned())]);
        }
    });
}
