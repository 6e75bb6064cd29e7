//! The teams of players that this process has links to: which links are in each, which of them answers a line, and the
//! lines that wait to be said there. A team has one desk and one queue, however many of our users are in it.

pub mod line_ends;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use actix::{Message, Recipient};
use chrono::TimeDelta;

use self::line_ends::{AlarmLine, EndedTimers};
use crate::{
    domain::{
        channels::spoken_alarm::SpokenState,
        ids::{GameServerId, ServerId},
        team_command::{
            announced::AnnouncedLines,
            desk::{ChatNotice, TeamDesk},
            election::{Candidate, elect},
            heard_lines::HeardLines,
            speaker::{LineUse, NextLine, Speaker, WaitingLine},
            vocabulary::{UnderstoodCommand, Vocabulary},
        },
        time::{Moment, Timestamp},
    },
    relay::shared::own_link::OwnLink,
};

/// No game server cuts shorter lines.
const CUT_AT_LEAST: usize = 64;
/// Times of the game are whole seconds.
const SECOND: TimeDelta = TimeDelta::seconds(1);
/// Teams and lines to forget are looked for no more often: one look goes over all of them.
const SWEEPS_APART: TimeDelta = TimeDelta::seconds(10);

/// A team: the game has no name for it, but one leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TeamKey {
    /// The one at which the links end, which may be paired under several names.
    pub game_server: GameServerId,
    /// SteamID64; of a player whose leader is not known, the player's own.
    pub leader: u64,
}

/// News of a team for one of its game connections.
#[derive(Message)]
#[rtype(result = "()")]
pub enum TeamNews {
    /// This connection answers the command of this player, also if its link is gone meanwhile: the answer is said over
    /// another link, or the next.
    Asked { author: u64, command: UnderstoodCommand },
    /// The owner should know of this.
    Noticed(ChatNotice),
    /// This player has asked another link for no announcements until then.
    Muted { author: u64, until: Option<Timestamp> },
    /// The timers of the team are not what they were.
    Timers,
}

/// The link of a game connection, for its team.
#[derive(Clone)]
pub struct TeamLink {
    pub server: ServerId,
    pub link: OwnLink,
    pub connected_since: Moment,
    pub vocabulary: Arc<Vocabulary>,
    /// Passes leadership on when a member asks.
    pub passes_leadership: bool,
    pub news: Recipient<TeamNews>,
}

/// A line to say.
pub struct SaidLine {
    pub text: String,
    /// The paired server that answers: it is said over its link, if there is one.
    pub by: ServerId,
    /// SteamID64 of the player whose link took it last, as which it is heard.
    pub said_as: Option<u64>,
    /// The alarm that it announces.
    pub alarm: Option<Box<AlarmLine>>,
    /// The timers whose end it says, perhaps with other lines.
    pub timers: Option<Arc<EndedTimers>>,
}

#[derive(Default)]
struct LinkedTeam {
    links: Vec<TeamLink>,
    desk: TeamDesk,
    announced: AnnouncedLines,
    speaker: Speaker<SaidLine>,
    /// A task says the lines.
    is_speaking: bool,
    /// The line that is on its way to the game.
    saying: Option<LineOnItsWay>,
    /// Lines without an answer of the game server, each with the paired server over whose link it went: as long as that
    /// link is up, the game may say it yet.
    unanswered: Vec<(ServerId, WaitingLine<SaidLine>)>,
}

struct LineOnItsWay {
    text: String,
    player: u64,
    over: ServerId,
    /// A link has heard it.
    is_heard: bool,
}

impl LineOnItsWay {
    /// True if this player's line is ours.
    fn is_echo(&self, author: u64, text: &str) -> bool {
        self.player == author && is_echo(text, &self.text)
    }
}

/// The way of a line to the game.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SayOutcome {
    Said,
    /// The game server takes no line now.
    Refused,
    /// The game server takes no such line.
    Failed,
    /// The link has ended before there was an answer.
    Lost,
    /// There is no answer.
    Unanswered,
}

/// A line and the link over which it is said now.
pub struct NextSaid {
    pub waiting: WaitingLine<SaidLine>,
    pub link: OwnLink,
}

/// See the module. Shared by all game connections of the process.
#[derive(Default)]
pub struct Teams(Mutex<KnownTeams>);

#[derive(Default)]
struct KnownTeams {
    teams: HashMap<TeamKey, LinkedTeam>,
    /// The team of each link, by its paired server.
    joined: HashMap<ServerId, TeamKey>,
    /// Not by team: its leader changes, for one link before the other.
    heard: HashMap<GameServerId, HeardLines>,
    swept_at: Option<Moment>,
}

impl Teams {
    fn lock(&self) -> MutexGuard<'_, KnownTeams> {
        // A panic elsewhere leaves nothing half done here.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This link is in this team now, and in no other. A task must begin to say the lines of each of the teams that it
    /// answers with.
    pub fn join(&self, key: &TeamKey, link: TeamLink, now: Moment) -> Vec<TeamKey> {
        let mut known = self.lock();
        let is_other = known.joined.get(&link.server).is_some_and(|joined| joined != key);
        let left = if is_other { known.leave(&link.server, now) } else { None };
        known.joined.insert(link.server.clone(), key.clone());
        let team = known.teams.entry(key.clone()).or_default();
        match team.links.iter_mut().find(|joined| joined.server == link.server) {
            Some(joined) => {
                if joined.vocabulary.prefix != link.vocabulary.prefix {
                    team.desk.forget_bot();
                }
                *joined = link;
            }
            None => team.links.push(link),
        }
        let begun = team.must_begin(now).then(|| key.clone());
        left.into_iter().chain(begun).collect()
    }

    /// The link of this server is gone. Answers like [`join`](Self::join).
    pub fn leave(&self, server: &ServerId, now: Moment) -> Option<TeamKey> {
        self.lock().leave(server, now)
    }

    /// A line that was just said; `id` is the same on every link. Sends it to the link that answers it, if it is a
    /// command.
    pub fn hear(&self, key: &TeamKey, id: &str, author: u64, text: &str, now: Moment) {
        let known = &mut *self.lock();
        let Some(team) = known.teams.get_mut(key).filter(|team| !team.links.is_empty()) else { return };
        let heard = known.heard.entry(key.game_server.clone()).or_default();
        let candidates: Vec<Candidate> = team.links.iter().map(|link| link.candidate(text)).collect();
        let elected = elect(&candidates, author);
        // One that no link understood is answered by a link that learns its words meanwhile.
        if !heard.is_first(id, elected.is_some(), now) {
            return;
        }
        match elected {
            Some(place) => {
                let link = &team.links[place];
                if let Some(command) = link.vocabulary.read(text) {
                    link.news.do_send(TeamNews::Asked { author, command });
                }
            }
            // Our own line, before the game server has confirmed it.
            None if team.saying.as_ref().is_some_and(|saying| saying.is_echo(author, text)) => {}
            None => {
                let is_ours = candidates.iter().any(|candidate| candidate.player == author);
                let noticed = team.desk.overheard(text, is_ours, now);
                team.notice(noticed);
            }
        }
    }

    /// A link has heard this line of this player, perhaps in a history: it may be one of ours whose answer is missing.
    /// `old`: the time of a line that is no news; it is no echo of one that we wanted to say later, or that is on its way.
    pub fn echo(&self, key: &TeamKey, author: u64, text: &str, old: Option<Timestamp>, now: Moment) {
        if let Some(team) = self.lock().teams.get_mut(key) {
            let noticed = team.echo(author, text, old, now);
            team.notice(noticed);
        }
    }

    /// True if the rates of this team admit the command.
    pub fn admit(&self, key: &TeamKey, caller: u64, command: &str, now: Moment) -> bool {
        self.lock().teams.get_mut(key).is_some_and(|team| team.desk.admit(caller, command, now))
    }

    /// True unless this caller has acknowledged just now.
    pub fn admit_acknowledgement(&self, key: &TeamKey, caller: u64, now: Moment) -> bool {
        self.lock().teams.get_mut(key).is_some_and(|team| team.desk.admit_acknowledgement(caller, now))
    }

    /// True if this team is answered that an acknowledgement was taken.
    pub fn answers_acknowledgement(&self, key: &TeamKey, now: Moment) -> bool {
        self.lock().teams.get_mut(key).is_some_and(|team| team.desk.answers_acknowledgement(now))
    }

    /// SteamID64 of the players whose links are in the team.
    pub fn players(&self, key: &TeamKey) -> HashSet<u64> {
        let known = self.lock();
        known.teams.get(key).into_iter().flat_map(|team| &team.links).map(|link| link.link.player()).collect()
    }

    /// The links of this player in the team.
    pub fn links_of(&self, key: &TeamKey, player: u64) -> Vec<TeamLink> {
        let known = self.lock();
        let links = known.teams.get(key).into_iter().flat_map(|team| &team.links);
        links.filter(|link| link.link.player() == player).cloned().collect()
    }

    /// The paired servers in the team, but for this one.
    pub fn mates(&self, key: &TeamKey, server: &ServerId) -> Vec<ServerId> {
        let known = self.lock();
        let links = known.teams.get(key).into_iter().flat_map(|team| &team.links);
        links.filter(|link| link.server != *server).map(|link| link.server.clone()).collect()
    }

    /// All links of the team look which timers it has.
    pub fn pass_timers_on(&self, key: &TeamKey) {
        let known = self.lock();
        let links = known.teams.get(key).into_iter().flat_map(|team| &team.links);
        links.for_each(|link| link.news.do_send(TeamNews::Timers));
    }

    /// Passes a mute on to the other links of the team: each announces for itself.
    pub fn pass_mute_on(&self, key: &TeamKey, by: &ServerId, author: u64, until: Option<Timestamp>) {
        let known = self.lock();
        let links = known.teams.get(key).into_iter().flat_map(|team| &team.links);
        for link in links.filter(|link| link.server != *by) {
            link.news.do_send(TeamNews::Muted { author, until });
        }
    }

    /// Adds a line to say, unless another of our users has just announced the same. True if a task must begin to say the lines of this team.
    pub fn push(&self, key: &TeamKey, line: SaidLine, purpose: LineUse, now: Moment) -> bool {
        let mut known = self.lock();
        let team = known.teams.entry(key.clone()).or_default();
        let is_of_all = matches!(purpose, LineUse::Announcement | LineUse::Alarm);
        if is_of_all && !team.announced.is_first(&line.by, &line.text, now) {
            if let Some(alarm) = line.alarm {
                alarm.end(SpokenState::Superseded, None);
            }
            return false;
        }
        team.speaker.push(line, purpose, now);
        team.must_begin(now)
    }

    /// The next line of the team. With [`NextStep::End`] the task that asks must end.
    pub fn next_line(&self, key: &TeamKey, now: Moment) -> NextStep {
        match self.lock().teams.get_mut(key) {
            Some(team) => team.next_line(now),
            None => NextStep::End,
        }
    }

    /// The outcome of a line.
    pub fn said(&self, key: &TeamKey, line: WaitingLine<SaidLine>, outcome: SayOutcome, now: Moment) {
        if let Some(team) = self.lock().teams.get_mut(key) {
            let noticed = team.said(line, outcome, now);
            team.notice(noticed);
        }
    }
}

/// The next thing to do for the task that says the lines of a team.
pub enum NextStep {
    /// Say it, then call [`Teams::said`].
    Say(NextSaid),
    /// No line before then.
    Wait(Moment),
    End,
}

impl KnownTeams {
    /// The link of this server is in no team. A team without links is kept as long as it remembers what was said: its
    /// link may come back.
    fn leave(&mut self, server: &ServerId, now: Moment) -> Option<TeamKey> {
        let left = self.joined.remove(server);
        let begun = left.filter(|key| {
            self.teams.get_mut(key).is_some_and(|team| {
                team.leave(server, now);
                team.must_begin(now)
            })
        });
        self.sweep(now);
        begun
    }

    fn sweep(&mut self, now: Moment) {
        if self.swept_at.is_some_and(|at| now - at < SWEEPS_APART) {
            return;
        }
        self.swept_at = Some(now);
        self.teams.retain(|_, team| {
            !team.links.is_empty() || team.is_speaking || !team.desk.is_idle(now) || !team.speaker.is_idle(now)
        });
        self.heard.retain(|_, lines| !lines.is_empty(now));
    }
}

impl LinkedTeam {
    fn notice(&self, noticed: Option<ChatNotice>) {
        let Some(noticed) = noticed else { return };
        for link in &self.links {
            link.news.do_send(TeamNews::Noticed(noticed));
        }
    }

    fn leave(&mut self, server: &ServerId, now: Moment) {
        self.links.retain(|link| link.server != *server);
        for (_, line) in self.unanswered.extract_if(.., |(over, _)| over == server) {
            self.speaker.lost(line, now);
        }
    }

    /// True if a line waits that can be said, and no task is there to say it: it is from now on.
    fn must_begin(&mut self, now: Moment) -> bool {
        let can_speak = !self.links.is_empty() && !self.speaker.is_idle(now);
        can_speak && !std::mem::replace(&mut self.is_speaking, true)
    }

    fn next_line(&mut self, now: Moment) -> NextStep {
        loop {
            let next = if self.links.is_empty() { NextLine::Idle } else { self.speaker.next(now) };
            match next {
                // A loop ends with the answers that wait.
                NextLine::Say(WaitingLine { purpose: LineUse::Answer, .. }) if self.desk.is_stopped(now) => {}
                NextLine::Say(mut waiting) => {
                    let own = self.links.iter().find(|link| link.server == waiting.line.by);
                    // One that rests would have to be made, perhaps in place of the one that reads for all.
                    let best = |link: &&TeamLink| (!link.link.is_up(), link.connected_since, link.link.player());
                    let own = own.filter(|own| own.link.is_up());
                    let Some(link) = own.or_else(|| self.links.iter().min_by_key(best)) else { continue };
                    let (text, player, over) = (waiting.line.text.clone(), link.link.player(), link.server.clone());
                    waiting.line.said_as = Some(player);
                    self.saying = Some(LineOnItsWay { text, player, over, is_heard: false });
                    return NextStep::Say(NextSaid { waiting, link: link.link.clone() });
                }
                NextLine::Wait(until) => return NextStep::Wait(until),
                NextLine::Idle => {
                    self.is_speaking = false;
                    return NextStep::End;
                }
            }
        }
    }

    fn said(&mut self, line: WaitingLine<SaidLine>, outcome: SayOutcome, now: Moment) -> Option<ChatNotice> {
        let saying = self.saying.take()?;
        let outcome = if saying.is_heard { SayOutcome::Said } else { outcome };
        match outcome {
            SayOutcome::Said => {
                self.speaker.said(now);
                return self.taken(line, now);
            }
            SayOutcome::Refused => self.speaker.refused(line, now),
            SayOutcome::Failed => self.speaker.said(now),
            SayOutcome::Unanswered if self.links.iter().any(|link| link.server == saying.over) => {
                self.speaker.said(now);
                self.unanswered.retain(|(_, line)| !line.is_stale(now));
                self.unanswered.push((saying.over, line));
            }
            SayOutcome::Lost | SayOutcome::Unanswered => self.speaker.lost(line, now),
        }
        None
    }

    /// The game server took the line.
    fn taken(&mut self, line: WaitingLine<SaidLine>, now: Moment) -> Option<ChatNotice> {
        let WaitingLine { line: SaidLine { text, alarm, .. }, purpose, .. } = line;
        if let Some(alarm) = alarm {
            alarm.end(SpokenState::Accepted, None);
        }
        (purpose == LineUse::Answer).then(|| self.desk.answered(&text, now)).flatten()
    }

    fn echo(&mut self, author: u64, text: &str, old: Option<Timestamp>, now: Moment) -> Option<ChatNotice> {
        let is_saying = |saying: &&mut LineOnItsWay| old.is_none() && saying.is_echo(author, text);
        if let Some(saying) = self.saying.as_mut().filter(is_saying) {
            saying.is_heard = true;
            return None;
        }
        let is_it = |line: &WaitingLine<SaidLine>| {
            let is_after = old.is_none_or(|said_at| said_at + SECOND >= line.since.stamp);
            is_after && line.line.said_as == Some(author) && is_echo(text, &line.line.text)
        };
        let unanswered = self.unanswered.iter().position(|(_, line)| is_it(line));
        let unanswered = unanswered.map(|place| self.unanswered.remove(place).1);
        let line = unanswered.or_else(|| self.speaker.take_said(is_it))?;
        self.taken(line, now)
    }
}

/// True if the line that was heard is ours; game servers may have cut it.
fn is_echo(heard: &str, ours: &str) -> bool {
    let start = heard.trim_end_matches('…');
    heard == ours || (start.chars().count() >= CUT_AT_LEAST && ours.starts_with(start))
}

impl TeamLink {
    fn candidate(&self, text: &str) -> Candidate {
        Candidate {
            player: self.link.player(),
            connected_since: self.connected_since,
            understands: self.vocabulary.read(text).is_some(),
        }
    }
}

#[cfg(test)]
mod tests;
