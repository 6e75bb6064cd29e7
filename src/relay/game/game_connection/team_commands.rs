//! The commands of a team's chat at one game connection: the settings and words as they are stored, the lines that wait,
//! switches that turn back, and what is planned. It changes only itself and returns what follows; the connection says it,
//! stores it and shows it.

pub mod stored_commands;
pub mod switch_backs;
pub mod waiting_lines;

use std::{
    collections::{HashMap, HashSet},
    mem::{replace, take},
    sync::Arc,
};

use chrono::TimeDelta;

use self::{stored_commands::StoredCommands, switch_backs::SwitchBacks, waiting_lines::WaitingLines};
use super::latest_task::LatestTask;
use crate::{
    db::{smart_devices::SmartDevice, team_timers::StoredTimer},
    domain::{
        channels::spoken_alarm::is_unsaid,
        ids::UserId,
        incident::Raid,
        team_command::{
            desk::ChatNotice, device_words::OwnWords, memory::WorldMemory, settings::TeamChatSettings,
            vocabulary::Vocabulary,
        },
        team_timer::TimerTeam,
        time::{Moment, Timestamp},
        timeline::TimelineEntry,
    },
    relay::shared::teams::TeamKey,
};

/// The game shows another leader within this time, or did not do it. Until then there is no other change.
const PROMOTED_WITHIN: TimeDelta = TimeDelta::seconds(10);

/// See the module.
#[derive(Default)]
pub struct TeamCommands {
    pub settings: TeamChatSettings,
    /// The user who paired the server: switches are turned in this name.
    pub owner: Option<UserId>,
    /// SteamID64 of those who may watch.
    pub users: HashSet<u64>,
    pub vocabulary: Arc<Vocabulary>,
    pub memory: WorldMemory,
    pub switch_backs: SwitchBacks,
    pub lines: WaitingLines,
    /// The team as it was last known: what is asked while the link ends is answered there.
    pub key: Option<TeamKey>,
    /// Its members, as they were last known, also to the previous process: its timers are theirs.
    pub team: Option<TimerTeam>,
    /// SteamID64 of the paired player, as the last link had it.
    pub player: u64,
    words: HashMap<Arc<str>, OwnWords>,
    connected_since: Option<Moment>,
    /// Everything was asked since the link is up, so that the team is known.
    is_resynced: bool,
    /// The stored rows were read once.
    is_loaded: bool,
    /// The latest read of them is not answered.
    is_reading: bool,
    pub read: LatestTask,
    /// The stored travels of ship and helicopter are recalled.
    knows_travels: bool,
    /// Mutes that are not stored yet: what is read meanwhile may be older.
    unstored_mutes: usize,
    promotion: Option<Promotion>,
    /// Another bot was noticed under this prefix.
    has_other_bot: bool,
    /// A loop was noticed, and the silence after it is not over.
    has_loop: bool,
    pub loop_end: LatestTask,
    /// The next look at what is due, and when.
    pub planned_look: LatestTask,
    planned_for: Option<Moment>,
    /// Alarms that are still to be said: they wait until the team is known.
    unsaid: Vec<Raid>,
}

/// Effects of a read of the stored rows.
pub struct LoadedCommands {
    /// For the first read alone: later changes are made here and then stored, so that a later read may be older.
    pub timers: Option<Vec<StoredTimer>>,
    pub has_other_prefix: bool,
}

/// A change of the leader that was asked for.
struct Promotion {
    player: u64,
    until: Moment,
    is_said: bool,
}

impl TeamCommands {
    /// True once the stored travels of ship and helicopter are recalled.
    pub fn knows_travels(&self) -> bool {
        self.knows_travels
    }

    /// Takes in the stored travels, the newest first. `wiped_at`: what was seen before is of another world.
    pub fn recall(&mut self, travels: &[TimelineEntry], wiped_at: Option<Timestamp>) {
        self.knows_travels = true;
        self.memory.recall(travels, wiped_at);
    }

    /// A read of the stored rows begins, in the place of an earlier one, whose answer may come later.
    pub fn begin_read(&mut self) {
        self.is_reading = true;
    }

    /// Takes what is stored.
    pub fn load(&mut self, stored: StoredCommands) -> LoadedCommands {
        let commands = stored.device_commands();
        let StoredCommands { mut settings, owner, accounts, devices, timers, switch_backs, .. } = stored;
        if self.unstored_mutes > 0 {
            settings.muted_until = self.settings.muted_until;
        }
        let has_other_prefix = self.is_loaded && self.settings.prefix != settings.prefix;
        self.vocabulary = Vocabulary::new(&settings, commands).into();
        self.settings = settings;
        self.owner = owner;
        self.users = accounts.iter().filter_map(|account| account.parse().ok()).collect();
        self.memory.retain(|id| devices.iter().any(|device| device.device_id == **id));
        let words = |device: SmartDevice| {
            let SmartDevice { device_id, custom_command: command, on_message: on, off_message: off, .. } = device;
            (Arc::from(device_id), OwnWords { command, on, off })
        };
        self.words = devices.into_iter().map(words).collect();
        if replace(&mut self.is_loaded, true) {
            return LoadedCommands { timers: None, has_other_prefix };
        }
        self.switch_backs.load(switch_backs);
        LoadedCommands { timers: Some(timers), has_other_prefix }
    }

    /// The read is over and its effects are carried out: lines that wait are read by the new words.
    pub fn end_read(&mut self) {
        self.is_reading = false;
    }

    /// No announcements until then, which is to be stored: until [`end_mute`](Self::end_mute) no read changes it.
    pub fn begin_mute(&mut self, until: Option<Timestamp>) {
        self.settings.muted_until = until;
        self.unstored_mutes += 1;
    }

    /// A mute is stored, or was not. The rows must be read once more: a read that has begun before may be older.
    pub fn end_mute(&mut self) {
        self.unstored_mutes -= 1;
    }

    /// The link is up.
    pub fn connected(&mut self, now: Moment) {
        self.connected_since.get_or_insert(now);
    }

    /// Since when the link is up.
    pub fn connected_since(&self) -> Option<Moment> {
        self.connected_since
    }

    /// Everything was asked once: the team is known, if there is one.
    pub fn resynced(&mut self) {
        self.is_resynced = true;
    }

    /// The link is gone.
    pub fn link_down(&mut self) {
        self.is_resynced = false;
        self.connected_since = None;
        self.lines.drop_echoes();
    }

    /// True if the team and the commands are known.
    pub fn is_known(&self) -> bool {
        self.is_resynced && self.is_loaded
    }

    /// True while newer words may be on their way.
    pub fn is_reading(&self) -> bool {
        self.is_reading
    }

    /// The owner's words for this device.
    pub fn words(&self, id: &Arc<str>) -> OwnWords {
        self.words.get(id).cloned().unwrap_or_default()
    }

    /// True while the game may still show another leader.
    pub fn is_promoting(&self, now: Moment) -> bool {
        self.promotion.as_ref().is_some_and(|last| now < last.until)
    }

    /// The game is asked to make this player the leader.
    pub fn promote(&mut self, player: u64, now: Moment) {
        self.promotion = Some(Promotion { player, until: now + PROMOTED_WITHIN, is_said: false });
    }

    /// The team has this leader. True if it is the wanted one, once.
    pub fn led_by(&mut self, leader: Option<u64>) -> bool {
        self.end_promotion(|promotion| leader == Some(promotion.player))
    }

    /// True once, when the time for the wanted leader is over.
    pub fn has_failed_to_promote(&mut self, now: Moment) -> bool {
        self.end_promotion(|promotion| promotion.until <= now)
    }

    fn end_promotion(&mut self, has_ended: impl Fn(&Promotion) -> bool) -> bool {
        let open = self.promotion.as_mut().filter(|promotion| !promotion.is_said && has_ended(promotion));
        open.map(|promotion| promotion.is_said = true).is_some()
    }

    /// When a look is to be planned now for what is due next, unless one is for then or before. `timers`: the ends of all.
    pub fn plan_look(&mut self, timers: impl Iterator<Item = Timestamp>, now: Moment) -> Option<Moment> {
        let promotion = self.promotion.as_ref().filter(|promotion| !promotion.is_said);
        let times = timers.chain(self.switch_backs.next_tries()).map(|at| now.at(at));
        let due = times.chain(promotion.map(|promotion| promotion.until)).min()?;
        if self.planned_for.is_some_and(|planned| planned <= due) {
            return None;
        }
        self.planned_for = Some(due);
        Some(due)
    }

    /// The planned look has come.
    pub fn reach_plan(&mut self) {
        // Ends by itself.
        (self.planned_look, self.planned_for) = (LatestTask::default(), None);
    }

    /// An alarm goes off. True if it is left unsaid, as those of an earlier process are: there was no team yet whose queue could
    /// have its line. Without its link a team that is known has the line: the link of a mate may say it.
    pub fn wait_for_team(&mut self, raid: &Raid, is_ready: bool, now: Timestamp) -> bool {
        let waits = !is_ready && self.key.is_none();
        if waits {
            self.leave_unsaid(vec![raid.clone()], now);
        }
        waits
    }

    /// These alarms are not said yet, by this process or an earlier one, or by another node. Those that have waited for too long
    /// are dropped.
    pub fn leave_unsaid(&mut self, unsaid: Vec<Raid>, now: Timestamp) {
        self.unsaid.extend(unsaid);
        self.unsaid.retain(|raid| is_unsaid(raid.ts, None, now));
    }

    /// The alarms that are still to be said.
    pub fn take_unsaid(&mut self) -> Vec<Raid> {
        take(&mut self.unsaid)
    }

    /// Another bot answers under this prefix.
    pub fn note_other_bot(&mut self) {
        self.has_other_bot = true;
    }

    /// The prefix is another, which parts us from the other bot.
    pub fn part_from_other_bot(&mut self) {
        self.has_other_bot = false;
    }

    /// A loop was noticed.
    pub fn note_loop(&mut self) {
        self.has_loop = true;
    }

    /// The silence after a loop is over.
    pub fn end_loop(&mut self) {
        self.has_loop = false;
    }

    /// The notice that the owner sees; a loop comes first.
    pub fn notice(&self) -> Option<ChatNotice> {
        let a_loop = self.has_loop.then_some(ChatNotice::Loop);
        a_loop.or(self.has_other_bot.then_some(ChatNotice::OtherBot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{ids::GameServerId, incident::DevicePlace};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    fn raid(incident: &str, rang_at: i64) -> Raid {
        Raid {
            incident: incident.to_owned(),
            alarm_id: "7".to_owned(),
            alarm_name: "Roof".to_owned(),
            place: DevicePlace::default(),
            ts: at(rang_at),
            count: 1,
            update: false,
            late: false,
            drill: false,
        }
    }

    /// The incidents of the alarms that are still to be said.
    fn unsaid(commands: &mut TeamCommands) -> Vec<String> {
        commands.take_unsaid().into_iter().map(|raid| raid.incident).collect()
    }

    #[test]
    fn a_mute_is_kept_from_reads_that_began_before_it_was_stored() {
        let mut commands = TeamCommands::default();
        let read = |commands: &mut TeamCommands, muted_until, prefix: &str| {
            let settings = TeamChatSettings { muted_until, prefix: prefix.to_owned(), ..TeamChatSettings::default() };
            commands.load(StoredCommands { settings, ..StoredCommands::default() });
            (commands.settings.muted_until, commands.settings.prefix.clone())
        };
        commands.begin_mute(Some(at(60)));
        assert_eq!(read(&mut commands, None, "?"), (Some(at(60)), "?".to_owned()));
        commands.begin_mute(None);
        commands.end_mute();
        assert_eq!(read(&mut commands, Some(at(60)), "?"), (None, "?".to_owned()), "the second is not stored");
        commands.end_mute();
        assert_eq!(
            read(&mut commands, Some(at(90)), "!"),
            (Some(at(90)), "!".to_owned()),
            "set in the dashboard since"
        );
    }

    #[test]
    fn the_travels_are_recalled_apart_from_the_other_rows() {
        let mut commands = TeamCommands::default();
        commands.load(StoredCommands::default());
        assert!(!commands.knows_travels());
        commands.recall(&[], None);
        commands.load(StoredCommands::default());
        assert!(commands.knows_travels());
    }

    #[test]
    fn a_promotion_ends_once_by_the_leader_or_by_time() {
        let mut commands = TeamCommands::default();
        commands.promote(7, at(0).into());
        assert!(commands.is_promoting(at(9).into()) && !commands.is_promoting(at(10).into()));
        assert!(!commands.led_by(Some(8)) && !commands.has_failed_to_promote(at(9).into()));
        assert!(commands.led_by(Some(7)));
        assert!(!commands.led_by(Some(7)) && !commands.has_failed_to_promote(at(10).into()));
        commands.promote(7, at(20).into());
        assert!(commands.has_failed_to_promote(at(30).into()) && !commands.led_by(Some(7)));
    }

    #[test]
    fn the_first_of_timers_switches_and_promotion_is_due() {
        let mut commands = TeamCommands::default();
        let due = |commands: &mut TeamCommands, timers: &[i64]| {
            commands.plan_look(timers.iter().copied().map(at), at(0).into()).map(|due| due.stamp)
        };
        assert_eq!(due(&mut commands, &[]), None);
        assert_eq!(due(&mut commands, &[50, 40]), Some(at(40)));
        assert_eq!(due(&mut commands, &[50, 40]), None, "it is planned");
        commands.switch_backs.set("9".into(), true, at(30));
        assert_eq!(due(&mut commands, &[40]), Some(at(30)));
        commands.promote(7, at(0).into());
        assert_eq!(due(&mut commands, &[40]), Some(at(10)));
        assert!(commands.led_by(Some(7)));
        commands.reach_plan();
        assert_eq!(due(&mut commands, &[40]), Some(at(30)), "it has ended");
    }

    #[test]
    fn alarms_that_are_unsaid_wait_together_and_not_for_long() {
        let mut commands = TeamCommands::default();
        for (incident, rang_at) in [("first", 0), ("second", 30), ("third", 60)] {
            commands.leave_unsaid(vec![raid(incident, rang_at)], at(rang_at + 1));
        }
        assert_eq!(unsaid(&mut commands), ["second", "third"]);
        assert!(commands.take_unsaid().is_empty());
    }

    #[test]
    fn an_alarm_waits_for_the_first_team_and_later_in_the_queue_of_the_one_that_is_known() {
        let mut commands = TeamCommands::default();
        assert!(commands.wait_for_team(&raid("first", 0), false, at(1)), "no link was up yet");
        assert!(commands.wait_for_team(&raid("second", 60), false, at(60)));
        assert_eq!(unsaid(&mut commands), ["second"], "the first is too old");
        assert!(!commands.wait_for_team(&raid("third", 61), true, at(61)), "it is known");
        commands.key = Some(TeamKey { game_server: GameServerId::at("game.example.com", 28_082), leader: 7 });
        assert!(!commands.wait_for_team(&raid("fourth", 62), false, at(62)), "a mate's link may say it");
        assert!(commands.take_unsaid().is_empty());
    }

    #[test]
    fn an_other_bot_is_shown_until_the_prefix_changes_and_a_loop_first() {
        let mut commands = TeamCommands::default();
        assert_eq!(commands.notice(), None);
        commands.note_other_bot();
        assert_eq!(commands.notice(), Some(ChatNotice::OtherBot));
        commands.note_loop();
        assert_eq!(commands.notice(), Some(ChatNotice::Loop));
        commands.end_loop();
        assert_eq!(commands.notice(), Some(ChatNotice::OtherBot));
        commands.part_from_other_bot();
        assert_eq!(commands.notice(), None);
    }
}
