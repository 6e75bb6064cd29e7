//! Links of one game server, and what they hear and say.

use actix::{Actor as _, Context, Handler};
use chrono::TimeDelta;
use tokio::sync::mpsc;

use super::*;
use crate::domain::{
    team_command::settings::{CommandWord, TeamChatSettings},
    time::Timestamp,
};

const ALICE: u64 = 1;
const BOB: u64 = 2;
/// A member without an account.
const EVE: u64 = 9;

fn at(millis: i64) -> Moment {
    (Timestamp::UNIX_EPOCH + TimeDelta::milliseconds(millis)).into()
}

fn led_by(leader: u64) -> TeamKey {
    TeamKey { game_server: GameServerId::at("game.example.com", 28_082), leader }
}

/// Passes the news of one game connection on.
struct NewsReader(ServerId, mpsc::UnboundedSender<(ServerId, String)>);

impl actix::Actor for NewsReader {
    type Context = Context<Self>;
}

impl Handler<TeamNews> for NewsReader {
    type Result = ();

    fn handle(&mut self, news: TeamNews, _: &mut Self::Context) {
        let text = match news {
            TeamNews::Asked { author, command } => format!("{author} {}", command.key(author).trim()),
            TeamNews::Noticed(notice) => notice.word().to_owned(),
            TeamNews::Muted { author, until } => format!("{author} muted {}", until.is_some()),
            TeamNews::Timers => "timers".to_owned(),
        };
        let _ = self.1.send((self.0.clone(), text));
    }
}

struct LinkedRoom {
    teams: Teams,
    news: mpsc::UnboundedReceiver<(ServerId, String)>,
    sender: mpsc::UnboundedSender<(ServerId, String)>,
}

impl LinkedRoom {
    fn new() -> Self {
        let (sender, news) = mpsc::unbounded_channel();
        Self { teams: Teams::default(), news, sender }
    }

    /// The link of this player, who has a paired server of the same name, is up since then.
    fn join(&self, player: u64, key: &TeamKey, since: i64) -> bool {
        self.join_with(OwnLink::up(player), key, since)
    }

    fn join_with(&self, link: OwnLink, key: &TeamKey, since: i64) -> bool {
        let player = link.player();
        let server: ServerId = player.to_string().as_str().into();
        let settings = TeamChatSettings { commands: vec![CommandWord::Pop], ..TeamChatSettings::default() };
        let link = TeamLink {
            server: server.clone(),
            link,
            connected_since: at(since),
            vocabulary: Vocabulary::new(&settings, Vec::new()).into(),
            passes_leadership: false,
            news: NewsReader(server, self.sender.clone()).start().recipient(),
        };
        self.teams.join(key, link, at(since)).contains(key)
    }

    fn leave(&self, player: u64, now: i64) -> Option<TeamKey> {
        self.teams.leave(&player.to_string().as_str().into(), at(now))
    }

    /// The next news: for which player's connection, and what.
    async fn next(&mut self) -> (u64, String) {
        let (server, news) = self.news.recv().await.unwrap();
        (server.as_str().parse().unwrap(), news)
    }

    fn push(&self, key: &TeamKey, by: u64, text: &str, purpose: LineUse, now: i64) -> bool {
        let by = by.to_string().as_str().into();
        let line = SaidLine { text: text.to_owned(), by, said_as: None, alarm: None, timers: None };
        self.teams.push(key, line, purpose, at(now))
    }

    /// The line that goes to the game now, and the player whose link takes it.
    #[track_caller]
    fn taken(&self, key: &TeamKey, now: i64) -> (u64, WaitingLine<SaidLine>) {
        match self.teams.next_line(key, at(now)) {
            NextStep::Say(NextSaid { waiting, link }) => (link.player(), waiting),
            NextStep::Wait(until) => panic!("it waits until {until:?}"),
            NextStep::End => panic!("no line waits"),
        }
    }

    fn is_over(&self, key: &TeamKey, now: i64) -> bool {
        matches!(self.teams.next_line(key, at(now)), NextStep::End)
    }
}

#[actix::test]
async fn each_line_goes_to_one_link_also_while_the_leader_changes() {
    let (mut room, team) = (LinkedRoom::new(), led_by(ALICE));
    room.join(ALICE, &team, 20);
    room.join(BOB, &team, 10);
    let hear = |room: &LinkedRoom, key: &TeamKey, id: &str, author| room.teams.hear(key, id, author, "!pop", at(100));
    for (id, author, answers) in [("a", EVE, BOB), ("b", ALICE, ALICE), ("c", BOB, BOB)] {
        hear(&room, &team, id, author);
        hear(&room, &team, id, author);
        assert_eq!(room.next().await, (answers, format!("{author} pop")));
    }
    // Bob's link says the new leader first.
    room.join(BOB, &led_by(BOB), 200);
    hear(&room, &led_by(BOB), "d", EVE);
    hear(&room, &team, "d", EVE);
    assert_eq!(room.next().await, (BOB, "9 pop".to_owned()));
    assert_eq!(room.teams.players(&team), HashSet::from([ALICE]), "a link is in one team");
    assert_eq!(room.teams.links_of(&led_by(BOB), BOB).len(), 1);
    // A line that is no command, and a link that does not understand one.
    room.teams.hear(&team, "e", EVE, "!time", at(300));
    room.leave(BOB, 300);
    hear(&room, &led_by(BOB), "f", EVE);
    hear(&room, &team, "g", EVE);
    assert_eq!(room.next().await, (ALICE, "9 pop".to_owned()));
    assert!(room.news.try_recv().is_err());
}

#[actix::test]
async fn a_line_is_said_over_a_link_that_is_up_before_one_that_would_have_to_be_made() {
    let (room, team) = (LinkedRoom::new(), led_by(ALICE));
    room.join_with(OwnLink::ended(BOB, None), &team, 500);
    room.push(&team, BOB, "over mine", LineUse::Answer, 600);
    let (player, line) = room.taken(&team, 700);
    assert_eq!(player, BOB, "there is no other");
    room.teams.said(&team, line, SayOutcome::Lost, at(800));
    room.join(ALICE, &team, 1_000);
    assert_eq!(room.taken(&team, 6_000).0, ALICE);
}

#[actix::test]
async fn a_line_is_said_over_the_answering_link_or_another_or_waits_for_one() {
    let (room, team) = (LinkedRoom::new(), led_by(ALICE));
    assert!(!room.push(&team, BOB, "early", LineUse::Answer, 0), "there is no link");
    assert!(room.join(ALICE, &team, 1_000), "now there is one");
    assert!(!room.join(BOB, &team, 1_500), "the task is there");
    let (player, line) = room.taken(&team, 2_000);
    assert_eq!((player, line.line.text.as_str()), (BOB, "early"), "Bob's connection answers");
    room.teams.said(&team, line, SayOutcome::Said, at(2_000));
    assert!(!room.push(&team, BOB, "next", LineUse::Answer, 2_000));
    room.leave(BOB, 2_500);
    assert!(matches!(room.teams.next_line(&team, at(2_500)), NextStep::Wait(until) if until == at(4_000)));
    let (player, line) = room.taken(&team, 4_000);
    assert_eq!((player, line.line.text.as_str()), (ALICE, "next"));
    room.leave(ALICE, 4_500);
    room.teams.said(&team, line, SayOutcome::Lost, at(4_600));
    assert!(room.is_over(&team, 8_000), "the task ends without a link");
    assert!(room.join(ALICE, &team, 8_000));
    assert_eq!(room.taken(&team, 8_000).1.line.text, "next");
}

#[actix::test]
async fn a_line_that_was_lost_is_said_again_unless_a_link_heard_it() {
    let (room, team) = (LinkedRoom::new(), led_by(ALICE));
    room.join(ALICE, &team, 0);
    room.join(BOB, &team, 0);
    let echo = |author, text: &str, now| room.teams.echo(&team, author, text, None, at(now));
    let lose = |text: &str, now, outcome| {
        room.push(&team, ALICE, text, LineUse::Answer, now);
        let (player, line) = room.taken(&team, now);
        assert_eq!(player, ALICE);
        room.teams.said(&team, line, outcome, at(now));
    };
    // Not heard: another link says it.
    lose("a", 100_000, SayOutcome::Lost);
    room.leave(ALICE, 100_000);
    echo(EVE, "a", 101_000);
    echo(ALICE, "b", 101_000);
    echo(BOB, "a", 101_000);
    let (player, line) = room.taken(&team, 103_000);
    assert_eq!((player, line.line.text.as_str()), (BOB, "a"));
    room.teams.said(&team, line, SayOutcome::Said, at(103_000));
    // In the first history of another link: it counts unless it is older than the line.
    let old = |text: &str, said_at, now| room.teams.echo(&team, ALICE, text, Some(at(said_at).stamp), at(now));
    room.join(ALICE, &team, 104_000);
    lose("old", 105_000, SayOutcome::Lost);
    old("old", 103_000, 106_000);
    let (_, line) = room.taken(&team, 108_000);
    old("old", 108_000, 108_500);
    room.teams.said(&team, line, SayOutcome::Lost, at(109_000));
    old("old", 108_000, 109_500);
    assert!(room.is_over(&team, 112_000), "it was said");
    // Heard after it was lost, or while it was on its way.
    room.join(ALICE, &team, 110_000);
    lose("a", 120_000, SayOutcome::Lost);
    echo(ALICE, "a", 121_000);
    assert!(room.is_over(&team, 123_000));
    room.push(&team, ALICE, "a", LineUse::Answer, 140_000);
    let (_, line) = room.taken(&team, 140_000);
    echo(ALICE, "a", 140_000);
    room.teams.said(&team, line, SayOutcome::Lost, at(140_000));
    assert!(room.is_over(&team, 150_000));
    // Without an answer it may be said yet, as long as the link is up; then it is said again.
    lose("c", 160_000, SayOutcome::Unanswered);
    assert!(room.is_over(&team, 163_000));
    lose("d", 165_000, SayOutcome::Unanswered);
    echo(ALICE, "d", 166_000);
    assert!(room.is_over(&team, 166_000));
    assert_eq!(room.leave(ALICE, 167_000), Some(team.clone()), "Bob's link says it");
    let (player, line) = room.taken(&team, 170_000);
    assert_eq!((player, line.line.text.as_str()), (BOB, "c"));
}

#[actix::test]
async fn a_cut_line_is_heard_and_a_refused_or_unfit_one_is_no_echo() {
    let (room, team) = (LinkedRoom::new(), led_by(ALICE));
    room.join(ALICE, &team, 0);
    let long = "x".repeat(100);
    room.push(&team, ALICE, &long, LineUse::Answer, 0);
    let (_, line) = room.taken(&team, 0);
    room.teams.echo(&team, ALICE, &format!("{}…", &long[..80]), None, at(0));
    room.teams.said(&team, line, SayOutcome::Lost, at(0));
    room.push(&team, ALICE, "muted", LineUse::Answer, 3_000);
    let (_, line) = room.taken(&team, 3_000);
    room.teams.said(&team, line, SayOutcome::Refused, at(3_000));
    let (_, line) = room.taken(&team, 7_000);
    assert_eq!((line.line.text.as_str(), line.may_be_said), ("muted", false));
    room.teams.said(&team, line, SayOutcome::Failed, at(7_000));
    assert!(room.is_over(&team, 60_000));
}

#[actix::test]
async fn a_loop_ends_the_answers_that_wait_and_not_the_alarms() {
    let (mut room, team) = (LinkedRoom::new(), led_by(ALICE));
    room.join(ALICE, &team, 0);
    room.join(BOB, &team, 0);
    for number in 0..3 {
        room.push(&team, ALICE, "same", LineUse::Answer, number * 2_000);
        let (_, line) = room.taken(&team, number * 2_000);
        room.teams.said(&team, line, SayOutcome::Said, at(number * 2_000));
    }
    let noticed = [room.next().await, room.next().await];
    assert_eq!(noticed, [(ALICE, "loop".to_owned()), (BOB, "loop".to_owned())]);
    assert!(!room.teams.admit(&team, EVE, "pop", at(5_000)));
    assert!(room.teams.admit_acknowledgement(&team, EVE, at(5_000)));
    room.push(&team, ALICE, "answer", LineUse::Answer, 6_000);
    room.push(&team, ALICE, "raid", LineUse::Alarm, 6_000);
    for number in 0..8 {
        room.push(&team, ALICE, &format!("timer {number}"), LineUse::Reminder, 6_000);
    }
    assert_eq!(room.taken(&team, 6_000).1.line.text, "raid");
    for number in 0..8 {
        let (_, line) = room.taken(&team, 6_000 + 2_000 * number);
        assert_eq!(line.line.text, format!("timer {number}"));
        room.teams.said(&team, line, SayOutcome::Said, at(6_000 + 2_000 * number));
    }
    assert!(room.is_over(&team, 22_000));
    assert!(room.teams.admit(&team, EVE, "pop", at(64_000)));
    assert!(!room.teams.admit(&led_by(BOB), EVE, "pop", at(64_000)), "there is no such team");
}

#[actix::test]
async fn another_bot_is_noticed_also_while_our_answer_is_on_its_way() {
    let (mut room, team) = (LinkedRoom::new(), led_by(ALICE));
    room.join(ALICE, &team, 0);
    let hear = |author, text: &str, now| {
        room.teams.echo(&team, author, text, None, at(now));
        room.teams.hear(&team, &format!("{author} {now}"), author, text, at(now));
    };
    for now in [0, 21_000, 42_000] {
        let answer = format!("wiped {now} ago");
        room.push(&team, ALICE, &answer, LineUse::Answer, now);
        let (_, line) = room.taken(&team, now);
        hear(ALICE, &answer, now);
        hear(EVE, &answer, now);
        assert!(room.news.try_recv().is_err(), "our own line is none");
        room.teams.said(&team, line, SayOutcome::Said, at(now));
    }
    assert_eq!(room.next().await, (ALICE, "other_bot".to_owned()));
}

#[actix::test]
async fn a_mute_is_passed_on_to_the_other_links_of_the_team() {
    let (mut room, team) = (LinkedRoom::new(), led_by(ALICE));
    room.join(ALICE, &team, 0);
    room.join(BOB, &team, 0);
    let alice = ALICE.to_string().as_str().into();
    room.teams.pass_mute_on(&team, &alice, EVE, Some(at(60_000).stamp));
    room.teams.pass_mute_on(&led_by(BOB), &alice, EVE, None);
    room.teams.pass_mute_on(&team, &alice, EVE, None);
    assert_eq!(room.next().await, (BOB, "9 muted true".to_owned()));
    assert_eq!(room.next().await, (BOB, "9 muted false".to_owned()));
}

#[actix::test]
async fn a_team_without_links_keeps_its_rates_and_is_then_forgotten() {
    let (room, team) = (LinkedRoom::new(), led_by(ALICE));
    room.join(ALICE, &team, 0);
    assert!(room.teams.admit(&team, EVE, "pop", at(0)));
    room.teams.hear(&team, "a", EVE, "hello", at(0));
    room.leave(ALICE, 1_000);
    room.join(ALICE, &team, 2_000);
    assert!(!room.teams.admit(&team, BOB, "pop", at(2_000)), "it was answered just now");
    room.leave(ALICE, 3_000);
    assert_eq!(room.teams.lock().teams.len(), 1);
    room.leave(ALICE, 60_000);
    let known = room.teams.lock();
    assert!(known.teams.is_empty() && known.heard.is_empty());
}
