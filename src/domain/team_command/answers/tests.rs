//! One team, one world, every command.

use std::sync::Arc;

use chrono::TimeDelta;
use proptest::prelude::*;

use super::*;
use crate::domain::{
    change::Section,
    device::{Device, DeviceKind, Reachable, Storage},
    incident::DevicePlace,
    map::{MapNote, MapPlace, Marker, MarkerKind},
    plain_text::plain_text,
    reporting::Reported,
    server_state::Member,
    team_command::{
        memory::LastEvent,
        settings::TeamChatSettings,
        vocabulary::{DeviceCommand, UnderstoodCommand},
    },
    team_timer::TeamTimer,
};

const BOB: u64 = 1;
const ALICE: u64 = 2;

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + TimeDelta::days(20_000)
}

fn ago(minutes: i64) -> Timestamp {
    now() - TimeDelta::minutes(minutes)
}

fn member(name: &str, grid: &str, alive_for: i64) -> Member {
    Member {
        name: name.into(),
        x: Some(10.0),
        y: Some(20.0),
        grid: grid.into(),
        online: true,
        alive: true,
        spawned_at: Some(ago(alive_for)),
        died_at: None,
        afk_since: None,
    }
}

fn cupboard(name: &str, reachable: Reachable, minutes: Option<i64>) -> Device {
    let storage = Storage {
        capacity: 24,
        used: 1,
        items: Vec::new(),
        has_protection: true,
        protection_expires_at: minutes.map(|minutes| ago(-minutes)),
    };
    Device {
        kind: DeviceKind::StorageMonitor,
        name: name.into(),
        label: None,
        value: None,
        reachable,
        place: DevicePlace::default(),
        storage: Some(storage),
        turns_back: None,
    }
}

fn vocabulary() -> Vocabulary {
    let gate = DeviceCommand { word: "gate".into(), group: None, devices: vec![Arc::from("7")] };
    Vocabulary::new(&TeamChatSettings::default(), vec![gate])
}

struct AnsweredWorld {
    state: ServerState,
    memory: WorldMemory,
    clock: Option<GameClock>,
    speeds: DaySpeeds,
    info_at: Option<Timestamp>,
    vocabulary: Vocabulary,
}

impl AnsweredWorld {
    fn new() -> Self {
        let mut world = Self {
            state: ServerState::new(now()),
            memory: WorldMemory::default(),
            clock: None,
            speeds: DaySpeeds::default(),
            info_at: Some(now()),
            vocabulary: vocabulary(),
        };
        let alice = Member { alive: false, died_at: Some(ago(5)), x: None, y: None, ..member("Alice", "F9", 44) };
        for (id, member) in [(BOB, member("Bob", "K12", 192)), (ALICE, alice)] {
            world.state.members.put(Section::Members, id, Some(member), &mut Vec::new());
        }
        world.state.edit_team(&mut Vec::new(), |team| team.leader_id = Some(BOB.to_string()));
        world
    }

    fn device(&mut self, id: &str, device: Device) {
        self.state.devices.put(Section::Devices, id.into(), Some(device), &mut Vec::new());
    }

    fn reply(&self, line: &str) -> TeamReply {
        let (word, argument) = line.split_once(' ').unwrap_or((line, ""));
        self.reply_to(CommandWord::typed(word).unwrap(), argument)
    }

    fn reply_to(&self, word: CommandWord, argument: &str) -> TeamReply {
        let view = TeamView {
            state: &self.state,
            now: now(),
            asker: BOB,
            info_at: self.info_at,
            clock: self.clock,
            speeds: self.speeds,
            memory: &self.memory,
            vocabulary: &self.vocabulary,
            texts: &BotMessages::default(),
        };
        answer(word, argument, &view)
    }

    fn says(&self, line: &str) -> String {
        match self.reply(line) {
            TeamReply::Say(lines) => lines.join("\n"),
            reply => panic!("{reply:?}"),
        }
    }
}

#[test]
fn players_are_counted_with_the_age_of_an_old_answer() {
    let mut world = AnsweredWorld::new();
    assert_eq!(world.says("pop"), "the server has not said how many play");
    world.state.edit_server(&mut Vec::new(), |server| {
        (server.players, server.max_players, server.queued_players) = (Some(214), Some(250), Some(12));
    });
    assert_eq!(world.says("pop"), "214/250 players, 12 in queue");
    world.info_at = Some(ago(3));
    world.state.edit_server(&mut Vec::new(), |server| server.queued_players = Some(0));
    assert_eq!(world.says("pop"), "214/250 players (3m ago)");
}

#[test]
fn the_clock_is_said_with_the_time_to_the_next_change_once_that_is_known() {
    let mut world = AnsweredWorld::new();
    assert_eq!(world.says("time"), "the server has not said what time it is");
    world.clock = Some(GameClock { hour: 14.54, sunrise: 7.0, sunset: 19.0 });
    assert_eq!(world.says("time"), "14:32");
    world.speeds.day = Some(4.46 / (18.0 * 60.0));
    assert_eq!(world.says("time"), "14:32, night in 18m");
    world.clock = Some(GameClock { hour: 2.17, sunrise: 7.0, sunset: 19.0 });
    world.speeds.night = Some(4.83 / 360.0);
    assert_eq!(world.says("time"), "02:10, day in 6m");
    assert_eq!(world.says("wipe"), "the server has not said when it was wiped");
    world.state.edit_server(&mut Vec::new(), |server| server.wiped_at = Some(ago(52 * 60)));
    assert_eq!(world.says("wipe"), "wiped 2d 4h ago");
}

#[test]
fn silence_of_a_server_that_reports_no_events_is_no_absence() {
    let mut world = AnsweredWorld::new();
    assert_eq!(world.says("cargo"), "no cargo ship seen yet");
    world.state.edit_server(&mut Vec::new(), |server| server.reports.events = Reported::No);
    assert_eq!((world.says("cargo"), world.says("heli")), {
        let unreported = "this server does not report events".to_owned();
        (unreported.clone(), unreported)
    });
    world.state.edit_server(&mut Vec::new(), |server| server.reports.events = Reported::Yes);
    let last =
        |action: &str, minutes| Some(LastEvent { action: action.to_owned(), grid: "D7".into(), at: ago(minutes) });
    (world.memory.cargo, world.memory.heli) = (last("left", 34), last("shot_down", 12));
    assert_eq!(world.says("cargo"), "cargo left 34m ago");
    assert_eq!(world.says("heli"), "heli downed 12m ago at D7");
    world.memory.heli = last("left", 40);
    assert_eq!(world.says("heli"), "heli left 40m ago");
    world.memory.heli = last("entered", 50);
    assert_eq!(world.says("heli"), "heli last seen 50m ago at D7");
    let ship = Marker::new(MarkerKind::CargoShip, MapPlace::at(100.0, 2_900.0), 3_000);
    let grid = ship.grid();
    world.state.map_markers.put(Section::MapMarkers, 9, Some(ship), &mut Vec::new());
    world.memory.cargo_leaves_at = Some(ago(-21));
    assert_eq!(world.says("cargo"), format!("cargo at {grid}, leaves in ~21m"));
}

#[test]
fn members_are_found_by_a_part_of_their_name() {
    let mut world = AnsweredWorld::new();
    assert_eq!(world.says("alive"), "Bob 3h 12m");
    assert_eq!(
        (world.says("alive bo"), world.says("alive ALI")),
        ("Bob alive for 3h 12m".into(), "Alice died 5m ago at F9".into())
    );
    assert_eq!(world.says("alive zed"), "no member of the team is called zed");
    for (id, name) in [(3, "Bobby"), (4, "Bobo"), (5, "Bobine")] {
        world.state.members.put(Section::Members, id, Some(member(name, "", 1)), &mut Vec::new());
    }
    assert_eq!(world.says("alive bo"), "which one: Bob, Bobby, Bobo?");
    assert_eq!(world.says("alive bob"), "Bob alive for 3h 12m", "the whole name is one");
    assert_eq!(world.says("team"), "online 5/5: Bob K12, Alice F9 (dead), Bobby, Bobo, Bobine");
    assert_eq!(world.says("afk"), "no member is AFK");
    let still = Member { afk_since: Some(ago(12)), ..member("Bob", "K12", 192) };
    world.state.members.put(Section::Members, BOB, Some(still), &mut Vec::new());
    assert_eq!(world.says("afk"), "AFK: Bob 12m");
}

#[test]
fn leadership_goes_to_the_caller_or_to_a_member() {
    let mut world = AnsweredWorld::new();
    assert_eq!(world.says("leader"), "Bob leads already");
    assert_eq!(world.reply("leader alice"), TeamReply::Promote(ALICE));
    world.state.edit_team(&mut Vec::new(), |team| team.leader_id = Some(ALICE.to_string()));
    assert_eq!(world.reply("leader"), TeamReply::Promote(BOB));
}

#[test]
fn cupboards_are_said_the_worst_first() {
    let mut world = AnsweredWorld::new();
    assert_eq!((world.says("upkeep"), world.says("decay")), {
        let none = "no tool cupboard is paired".to_owned();
        (none.clone(), none)
    });
    world.device("1", cupboard("Main", Reachable::Ok, Some(51 * 60)));
    assert_eq!(world.says("decay"), "no tool cupboard is low");
    world.device("2", cupboard("Bunker", Reachable::Ok, Some(5 * 60)));
    world.device("3", cupboard("Shop", Reachable::Ok, None));
    // Its monitor has lost power: it shows nothing.
    world.device("4", Device { storage: None, ..cupboard("Farm", Reachable::Ok, None) });
    world.memory.upkeep.insert("4".into(), Some(ago(-49 * 60)));
    assert_eq!(world.says("upkeep"), "Shop DECAYING, Bunker 5h, Main 2d 3h, Farm no power, 2d 1h left when last seen");
    assert_eq!(world.says("upkeep bun"), "Bunker 5h");
    let nameless = |id: &str| format!("{id} 5h");
    for (id, name) in [("7", "gate"), ("8", "8")] {
        world.device(id, cupboard(id, Reachable::Ok, Some(5 * 60)));
        assert_eq!(world.says(&format!("upkeep {name}")), nameless(name), "added by its id");
        world.state.devices.put(Section::Devices, id.into(), None, &mut Vec::new());
    }
    assert_eq!(world.says("decay"), "Shop DECAYING, Bunker 5h");
    assert_eq!(world.says("decay armored wall 450"), "armored wall 450/2000: 2h 42m");
    assert_eq!(world.says("decay moon"), "not known, nearest: twig wall, wooden wall, stone wall");
}

#[test]
fn timers_have_a_duration_a_text_and_a_number() {
    let mut world = AnsweredWorld::new();
    let start = |minutes| TeamReply::StartTimer { lasts: TimeDelta::minutes(minutes), text: "heli".into() };
    assert_eq!((world.reply("timer 15m heli"), world.reply("timer 20 heli")), (start(15), start(20)));
    for wrong in ["timer", "timer heli", "timer 15m", "timer 8d heli", "timer off", "timer off x"] {
        assert_eq!(world.says(wrong), "timer 15m text, or timer off 2", "{wrong}");
    }
    assert_eq!(
        (world.says("timer off 2"), world.says("timers")),
        ("there is no timer 2".into(), "no timer runs".into())
    );
    for number in 1..=20 {
        let timer = TeamTimer { number, text: format!("t{number}"), ends_at: ago(-i64::from(number)) };
        world.state.timers.put(Section::Timers, number.to_string().into(), Some(timer), &mut Vec::new());
        if number == 2 {
            assert_eq!(world.says("timers"), "timer 1: t1 in 60s\ntimer 2: t2 in 2m");
        }
    }
    assert_eq!(world.reply("timer off 2"), TeamReply::EndTimer(2));
    assert_eq!(world.says("timer 15m heli"), "20 timers run already");
    let all = world.says("timers");
    assert!(all.starts_with("1 t1 60s, 2 t2 2m") && all.ends_with('…') && !all.contains('\n'), "{all}");
}

#[test]
fn notes_are_taken_where_the_caller_is() {
    let mut world = AnsweredWorld::new();
    let added = |category, label: &str| TeamReply::AddNote { category, label: label.into(), x: 10.0, y: 20.0 };
    assert_eq!(world.reply("note roof camper"), added("warning", "roof camper"));
    assert_eq!(world.reply("note ENEMY roof camper"), added("enemy", "roof camper"));
    assert_eq!((world.says("note"), world.says("note enemy")), {
        let usage = "note text, or note category text".to_owned();
        (usage.clone(), usage)
    });
    assert_eq!(world.says("notes"), "there are no notes");
    for (number, source) in [(1, "user"), (2, "detector"), (3, "user"), (4, "user"), (5, "user")] {
        let (category, label) = ("raid".to_owned(), Some(format!("n{number}")));
        let (x, y, grid, author, created_at) = (0.0, 0.0, "K12".into(), None, ago(-number));
        let note = MapNote { x, y, grid, category, label, source, author, created_at, expires_at: None };
        world.state.map_notes.put(Section::MapNotes, number.to_string().into(), Some(note), &mut Vec::new());
    }
    assert_eq!(world.says("notes"), "note 4 at K12: n5\nnote 3 at K12: n4\nnote 2 at K12: n3");
    world.state.members.put(Section::Members, BOB, Some(Member { x: None, ..member("Bob", "", 1) }), &mut Vec::new());
    assert_eq!(world.says("note x"), "your place is not known");
}

#[test]
fn silence_has_a_length_and_help_names_every_command() {
    let world = AnsweredWorld::new();
    assert_eq!(world.reply("mute"), TeamReply::Mute(TimeDelta::minutes(30)));
    assert_eq!(world.reply("mute 2h"), TeamReply::Mute(TimeDelta::hours(2)));
    assert_eq!((world.says("mute x"), world.reply("unmute")), ("mute, or mute 2h".into(), TeamReply::Unmute));
    let help = world.says("help");
    let (own, devices) = help.split_once('\n').unwrap();
    assert!(CommandWord::WORDS.iter().all(|word| own.contains(word)), "{own}");
    assert_eq!(devices, "devices after ! gate");
    assert!(own.encode_utf16().count() <= reply::LINE, "{own}");
}

/// Pieces of names and lines that look like commands, hide, turn the direction, or are long; with `^` between.
const ODD: &str = "!^！^‼\u{fe0f}^👨\u{200d}👩\u{200d}👧^e\u{301}^\u{202e}^\u{200f}^\u{61c}^\u{ad}^\u{200b}^\u{feff}^\u{a0}^\u{3000}^\
    \n^\0^\u{1b}[2J^<b>^</b>^<size=9>^<^İ^ı^ẞ^ﷺ^🦀🦀🦀🦀🦀🦀🦀🦀^{name}^{^…^ ^,^|^pop^alive^timer 15m ^off 1^\
    decay armored wall 99^99999999999999999999^Bob";

fn odd() -> impl Strategy<Value = String> {
    let pieces = prop::collection::vec(prop::sample::select(ODD.split('^').collect::<Vec<_>>()), 0..24)
        .prop_map(|pieces| pieces.concat());
    prop_oneof![3 => pieces, 1 => any::<String>()]
}

proptest! {
    #[test]
    fn no_name_and_no_line_makes_an_answer_too_long_or_a_command(
        names in prop::collection::vec(odd(), 4),
        argument in odd(),
        hidden in odd(),
    ) {
        let mut world = AnsweredWorld::new();
        for (id, name) in names.iter().enumerate() {
            let still = Member { afk_since: Some(ago(12)), ..member(name, "K12", 192) };
            world.state.members.put(Section::Members, id as u64, Some(still), &mut Vec::new());
            let shop = Device { label: Some(name.clone()), ..cupboard(name, Reachable::Ok, None) };
            world.device(&id.to_string(), shop);
            let timer = TeamTimer { number: id as u32, text: name.clone(), ends_at: ago(-9) };
            world.state.timers.put(Section::Timers, id.to_string().into(), Some(timer), &mut Vec::new());
        }
        let vocabulary = vocabulary();
        let check = |reply: TeamReply| -> Result<(), TestCaseError> {
            let TeamReply::Say(lines) = reply else { return Ok(()) };
            prop_assert!((1..=4).contains(&lines.len()), "{lines:?}");
            for said in lines.iter().filter_map(|line| reply::line(line)) {
                prop_assert!(said.encode_utf16().count() <= reply::LINE, "{said}");
                prop_assert_eq!(vocabulary.read(&said), None);
                prop_assert_eq!(&plain_text(&said, 256), &said, "its echo is known");
            }
            Ok(())
        };
        for word in CommandWord::ALL {
            check(world.reply_to(word, argument.trim()))?;
            for name in &names {
                check(world.reply_to(word, name.trim()))?;
            }
            let line = plain_text(&format!("{hidden}!{hidden}{}{hidden} {argument}", word.word()), 256);
            if let Some(UnderstoodCommand::BuiltIn(word, argument)) = vocabulary.read(&line) {
                check(world.reply_to(word, &argument))?;
            }
        }
    }
}

/// Commands that are given, unless this variable names another number.
const COMMANDS: (&str, u32) = ("TEAM_CHAT_COMMANDS", 64);

fn commands() -> ProptestConfig {
    let wanted = std::env::var(COMMANDS.0).ok().and_then(|wanted| wanted.parse().ok());
    ProptestConfig::with_cases(wanted.unwrap_or(COMMANDS.1))
}

/// Names and texts of several words, longer than is shown of most.
fn long() -> impl Strategy<Value = String> {
    prop::collection::vec("[A-Za-z0-9é]{1,14}", 2..14).prop_map(|words| words.join(" "))
}

/// A command with what players write behind it.
fn asked() -> impl Strategy<Value = (CommandWord, String)> {
    let argument = prop_oneof![
        Just(String::new()),
        long(),
        ("[1-9][0-9]?[smh]?", long()).prop_map(|(lasts, text)| format!("{lasts} {text}")),
        ("enemy|base|nothing", long()).prop_map(|(category, text)| format!("{category} {text}")),
        "off [0-9]{1,3}",
        "(armored|stone|wooden) (wall|door|moon) [0-9]{1,9}",
    ];
    (prop::sample::select(CommandWord::ALL.to_vec()), argument)
}

/// A team that has as much to say as is possible.
fn crowded(names: &[String], timers: usize) -> AnsweredWorld {
    let mut world = AnsweredWorld::new();
    for (id, name) in names.iter().enumerate() {
        let alive = id % 3 != 1;
        let died_at = (!alive).then(|| ago(1_500));
        let player = Member { alive, died_at, afk_since: Some(ago(3_000)), ..member(name, "AA123", 4_000) };
        world.state.members.put(Section::Members, BOB + id as u64, Some(player), &mut Vec::new());
        let shop = Device { label: Some(name.clone()), ..cupboard(name, Reachable::Ok, (id % 2 > 0).then_some(300)) };
        world.device(&id.to_string(), shop);
        let note = MapNote {
            x: 0.0,
            y: 0.0,
            grid: "AA123".into(),
            category: "raid".to_owned(),
            label: Some(plain_words(name, LONGEST_NOTE)),
            source: "user",
            author: None,
            created_at: ago(id as i64),
            expires_at: None,
        };
        world.state.map_notes.put(Section::MapNotes, id.to_string().into(), Some(note), &mut Vec::new());
        let word = name.replace(' ', "").to_lowercase().chars().take(32).collect();
        let command = DeviceCommand { word, group: None, devices: vec![id.to_string().into()] };
        world.vocabulary.devices.push(command);
    }
    for (number, name) in names.iter().take(timers).enumerate() {
        let text = plain_words(name, LONGEST_TIMER_TEXT);
        let timer = TeamTimer { number: number as u32, text, ends_at: ago(-1_600) };
        world.state.timers.put(Section::Timers, number.to_string().into(), Some(timer), &mut Vec::new());
    }
    world
}

/// The end of the line is that of a word of the text.
fn ends_with_a_word(said: &str, text: &str) -> bool {
    let (whole, kept) = (plain_text(text, 1_000), said.trim_end_matches('…'));
    whole == said || whole.strip_prefix(kept).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

proptest! {
    #![proptest_config(commands())]
    #[test]
    fn a_long_answer_fits_and_ends_with_a_whole_word(
        names in prop::collection::vec(long(), 8),
        timers in 0_usize..8,
        (word, argument) in asked(),
    ) {
        let world = crowded(&names, timers);
        let texts = BotMessages::default();
        let lines = match world.reply_to(word, &argument) {
            TeamReply::Say(lines) => lines,
            TeamReply::StartTimer { lasts, text } => {
                prop_assert!(ends_with_a_word(&text, argument.split_once(' ').map_or("", |(_, text)| text)), "{text}");
                let left = durations::shown(lasts);
                vec![texts.say("team.timer", &[("number", "20"), ("text", &text), ("left", &left)])]
            }
            TeamReply::AddNote { label, .. } => {
                let is_whole = |asked: &str| ends_with_a_word(&label, asked);
                let behind = argument.split_once(' ').map_or("", |(_, text)| text);
                prop_assert!(is_whole(&argument) || is_whole(behind), "{label}");
                Vec::new()
            }
            _ => Vec::new(),
        };
        prop_assert!(lines.len() <= 4, "{lines:?}");
        for line in &lines {
            let said = reply::line(line).expect("it has letters");
            prop_assert!(said.encode_utf16().count() <= reply::LINE, "{said}");
            prop_assert!(ends_with_a_word(&said, line), "{said} of {line}");
        }
    }
}
