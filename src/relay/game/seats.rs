//! Seats at a link that reads for a whole team: paired servers of the team's members, which get what the link learns. A
//! member sits only as long as the newest complete answer about the team lists that member, and gets nothing of a player
//! who is not in it. Pure, but for the channels to those who sit.

use std::{collections::BTreeSet, sync::Arc};

use futures_channel::mpsc;

use crate::{
    domain::{
        ids::ServerId,
        map::Marker,
        server_state::{Keyed, ServerState},
        time::Timestamp,
    },
    game::{
        link::Answered,
        wire::{AppBroadcast, AppEntityChanged, AppInfo, AppTeamInfo, AppTeamMessage, AppTime},
    },
    relay::state::game_update::{GameUpdate, TeamUpdate, WorldUpdate},
};

/// News that wait for one seat. A connection that is behind by more reads for itself.
pub const NEWS: usize = 256;

/// News of a link for the mates of its player: never what is the player's alone.
#[derive(Clone, Debug)]
pub enum SeatNews {
    Info(AppInfo),
    Time(AppTime),
    /// All markers, and the players of the team on the map, as the link's own state has them.
    Markers {
        all: Keyed<u64, Marker>,
        players: Keyed<u64, Marker>,
    },
    /// An answer about the team.
    Members(Answered<AppTeamInfo>),
    /// The broadcast of this number on the link.
    TeamChanged(u64, AppTeamInfo),
    Said(AppTeamMessage),
    /// The broadcasts that follow may have waited since then.
    Waited(Option<Timestamp>),
    /// The broadcast of this number on the link is about a device of this seat.
    Device(u64, AppEntityChanged),
    /// A message could not be read: each who sits asks for what it may have been.
    Missed,
    /// The link is about to rest: each who sits looks for another.
    Moves,
}

/// The news of one seat.
pub type SeatReader = mpsc::Receiver<Arc<SeatNews>>;

/// One who sits.
pub struct Seat {
    pub server: ServerId,
    /// SteamID64 of a player whose token the game server has accepted.
    pub player: u64,
    /// Entity ids of the devices that have answered this player.
    pub devices: Arc<BTreeSet<u64>>,
    pub news: mpsc::Sender<Arc<SeatNews>>,
}

/// See the module. Dropping it, or a seat of it, ends the news.
#[derive(Default)]
pub struct Seats {
    /// SteamID64 of the members, as the newest complete answer lists them.
    members: Arc<BTreeSet<u64>>,
    /// Since when broadcasts may have waited that come now, as was said last.
    waited: Option<Timestamp>,
    seats: Vec<Seat>,
}

impl Seats {
    /// SteamID64 of the members.
    pub fn members(&self) -> &Arc<BTreeSet<u64>> {
        &self.members
    }

    /// Since when broadcasts may have waited that come now; `None`: they have just come.
    pub fn waited(&self) -> Option<Timestamp> {
        self.waited
    }

    /// A seat for this player, who is a member; false for anyone else. One of the same paired server ends.
    pub fn take(&mut self, seat: Seat) -> bool {
        let is_member = self.members.contains(&seat.player);
        if is_member {
            self.seats.retain(|taken| taken.server != seat.server);
            self.seats.push(seat);
        }
        is_member
    }

    /// All stand up, and the team is not known.
    pub fn close(&mut self) {
        *self = Self::default();
    }

    /// Lets all who sit look for another link. True once all have gone.
    pub fn let_go(&mut self) -> bool {
        self.send(SeatNews::Moves, |_| true);
        self.seats.is_empty()
    }

    /// A message could not be read.
    pub fn missed(&mut self) {
        self.send(SeatNews::Missed, |_| true);
    }

    /// Passes on what concerns the mates, but for markers. `reader`: SteamID64 of the player of the link. True if the
    /// members have changed.
    pub fn pass_on(&mut self, update: &GameUpdate, reader: u64) -> bool {
        match update {
            GameUpdate::World(WorldUpdate::Info(info)) => self.send(SeatNews::Info(info.clone()), |_| true),
            GameUpdate::World(WorldUpdate::Time(time)) => self.send(SeatNews::Time(*time), |_| true),
            GameUpdate::Team(TeamUpdate::Members(Answered { asked_after, content })) => {
                let has_changed = self.list(content, reader);
                let content = without_notes(content);
                self.send(SeatNews::Members(Answered { asked_after: *asked_after, content }), |_| true);
                return has_changed;
            }
            GameUpdate::Waited(since) => {
                self.waited = *since;
                self.send(SeatNews::Waited(*since), |_| true);
            }
            GameUpdate::Broadcast(number, broadcast) => return self.pass_broadcast_on(*number, broadcast, reader),
            _ => {}
        }
        false
    }

    /// Passes on a complete answer of the map, as it is in the link's own state: it is read once for all, and held once.
    pub fn pass_markers_on(&mut self, state: &ServerState) {
        if self.seats.is_empty() {
            return;
        }
        let player = |marker: &Marker| marker.details.as_ref().and_then(|details| details.steam_id);
        let is_member = |marker: &Marker| player(marker).is_some_and(|player| self.members.contains(&player));
        let (all, players) = (state.map_markers.clone(), state.player_markers.filtered(is_member));
        self.send(SeatNews::Markers { all, players }, |_| true);
    }

    fn pass_broadcast_on(&mut self, number: u64, broadcast: &AppBroadcast, reader: u64) -> bool {
        if let Some(changed) = &broadcast.entity_changed {
            let device = changed.entity_id;
            self.send(SeatNews::Device(number, changed.clone()), |seat| seat.devices.contains(&device));
        }
        let mut has_changed = false;
        if let Some(changed) = &broadcast.team_changed {
            has_changed = self.list(&changed.team_info, reader);
            self.send(SeatNews::TeamChanged(number, without_notes(&changed.team_info)), |_| true);
        }
        // A line of a player who is not listed may be of another team: the link goes where its player goes.
        if let Some(said) = broadcast.team_message.as_ref().filter(|said| self.members.contains(&said.message.steam_id))
        {
            self.send(SeatNews::Said(said.message.clone()), |_| true);
        }
        has_changed
    }

    /// A complete answer: players that it does not list stand up. One without the player of the link lists no one.
    fn list(&mut self, team: &AppTeamInfo, reader: u64) -> bool {
        let mut members: BTreeSet<u64> = team.members.iter().map(|member| member.steam_id).collect();
        if !members.contains(&reader) {
            members.clear();
        }
        self.seats.retain(|seat| members.contains(&seat.player));
        let has_changed = *self.members != members;
        if has_changed {
            self.members = members.into();
        }
        has_changed
    }

    /// Sends news to these seats. One that does not take them loses its seat.
    fn send(&mut self, news: SeatNews, is_for: impl Fn(&Seat) -> bool) {
        if self.seats.is_empty() {
            return;
        }
        let news = Arc::new(news);
        self.seats.retain_mut(|seat| !is_for(seat) || seat.news.try_send(news.clone()).is_ok());
    }
}

/// The team without the map notes of the player of the link.
fn without_notes(team: &AppTeamInfo) -> AppTeamInfo {
    let AppTeamInfo { leader_steam_id, members, leader_map_notes, map_notes: _ } = team;
    AppTeamInfo {
        leader_steam_id: *leader_steam_id,
        members: members.clone(),
        map_notes: Vec::new(),
        leader_map_notes: leader_map_notes.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::{
            change::Section,
            map::{MapPlace, MarkerDetails, MarkerKind},
        },
        game::wire::{AppNewTeamMessage, AppTeamChanged, app_team_info},
    };

    const READER: u64 = 1;
    const MATE: u64 = 2;
    const STRANGER: u64 = 9;

    fn team(members: &[u64]) -> AppTeamInfo {
        let member = |steam_id: &u64| app_team_info::Member { steam_id: *steam_id, ..Default::default() };
        let note = |label: &str| app_team_info::Note { label: Some(label.to_owned()), ..Default::default() };
        AppTeamInfo {
            leader_steam_id: READER,
            members: members.iter().map(member).collect(),
            map_notes: vec![note("stash of the reader")],
            leader_map_notes: vec![note("of the leader")],
        }
    }

    fn answered(members: &[u64]) -> GameUpdate {
        TeamUpdate::Members(Answered { asked_after: 0, content: team(members) }).into()
    }

    fn said(steam_id: u64) -> GameUpdate {
        let message = AppTeamMessage { steam_id, message: "over here".to_owned(), ..Default::default() };
        let team_message = Some(AppNewTeamMessage { message });
        GameUpdate::Broadcast(1, Box::new(AppBroadcast { team_message, ..Default::default() }))
    }

    fn seated(seats: &mut Seats, player: u64, devices: &[u64]) -> Option<SeatReader> {
        let (news, reader) = mpsc::channel(4);
        let (server, devices) = (player.to_string().as_str().into(), Arc::new(devices.iter().copied().collect()));
        seats.take(Seat { server, player, devices, news }).then_some(reader)
    }

    #[test]
    fn a_link_rests_once_all_have_gone_who_sit_at_it() {
        let mut seats = Seats::default();
        assert!(seats.let_go(), "no one sits");
        seats.pass_on(&answered(&[READER, MATE]), READER);
        let mut mate = seated(&mut seats, MATE, &[]).unwrap();
        assert!(!seats.let_go());
        assert!(matches!(*mate.try_recv().unwrap(), SeatNews::Moves));
        drop(mate);
        assert!(seats.let_go());
    }

    fn texts(reader: &mut SeatReader) -> Vec<String> {
        std::iter::from_fn(|| reader.try_recv().ok()).map(|news| format!("{news:?}")).collect()
    }

    fn has_ended(reader: &mut SeatReader) -> bool {
        texts(reader);
        matches!(reader.try_recv(), Err(mpsc::TryRecvError::Closed))
    }

    #[test]
    fn only_a_listed_player_gets_a_seat_and_loses_it_before_the_news_that_do_not_list_them() {
        let mut seats = Seats::default();
        assert!(seated(&mut seats, MATE, &[]).is_none(), "nothing is known of the team");
        assert!(seats.pass_on(&answered(&[READER, MATE]), READER));
        assert!(seated(&mut seats, STRANGER, &[]).is_none());
        let mut mate = seated(&mut seats, MATE, &[]).unwrap();
        assert!(!seats.pass_on(&answered(&[READER, MATE]), READER), "the members are the same");
        assert_eq!(texts(&mut mate).len(), 1);
        for left in [answered(&[READER, STRANGER]), answered(&[MATE, STRANGER])] {
            seats.pass_on(&answered(&[READER, MATE]), READER);
            let mut mate = seated(&mut seats, MATE, &[]).unwrap();
            seats.pass_on(&left, READER);
            seats.pass_on(&said(READER), READER);
            assert_eq!(texts(&mut mate), [""; 0]);
            assert!(has_ended(&mut mate));
        }
        seats.pass_on(&answered(&[READER, MATE]), READER);
        let mut mate = seated(&mut seats, MATE, &[]).unwrap();
        let team_changed = Some(AppTeamChanged { player_id: MATE, team_info: team(&[READER]) });
        let kicked = GameUpdate::Broadcast(2, Box::new(AppBroadcast { team_changed, ..Default::default() }));
        assert!(seats.pass_on(&kicked, READER) && has_ended(&mut mate));
    }

    #[test]
    fn one_who_sits_down_learns_since_when_broadcasts_may_have_waited() {
        let since = Timestamp::from_timestamp(7, 0);
        let mut seats = Seats::default();
        seats.pass_on(&GameUpdate::Waited(since), READER);
        assert_eq!(seats.waited(), since);
        seats.pass_on(&GameUpdate::Waited(None), READER);
        assert_eq!(seats.waited(), None);
        seats.pass_on(&GameUpdate::Waited(since), READER);
        seats.close();
        assert_eq!(seats.waited(), None, "the next link says so itself");
    }

    #[test]
    fn nothing_of_the_reader_alone_and_of_another_team_is_passed_on() {
        let mut seats = Seats::default();
        seats.pass_on(&answered(&[READER, MATE]), READER);
        let mut mate = seated(&mut seats, MATE, &[70]).unwrap();
        seats.pass_on(&answered(&[READER, MATE]), READER);
        let members = texts(&mut mate).concat();
        assert!(members.contains("of the leader") && !members.contains("stash of the reader"), "{members}");
        // Before the answer that says so, the reader may be in another team.
        seats.pass_on(&said(STRANGER), READER);
        let marker = |kind| Marker::new(kind, MapPlace::at(1.0, 1.0), 4_000);
        let player = |id, steam_id| {
            let details = MarkerDetails { steam_id: Some(steam_id), ..MarkerDetails::default() };
            (id, Marker { details: Some(details.into()), ..marker(MarkerKind::Player) })
        };
        let (mut state, mut changes) = (ServerState::new(Timestamp::UNIX_EPOCH), Vec::new());
        state.map_markers.replace(Section::MapMarkers, [(3, marker(MarkerKind::CargoShip))], &mut changes);
        let players = [player(1, READER), player(2, STRANGER)];
        state.player_markers.replace(Section::MapMarkers, players, &mut changes);
        seats.pass_markers_on(&state);
        let Ok(news) = mate.try_recv() else { panic!("markers are passed on") };
        let SeatNews::Markers { all, players } = &*news else { panic!("{news:?}") };
        let ids = |shown: &Keyed<u64, Marker>| shown.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        assert_eq!((ids(all), ids(players)), (vec![3], vec![1]));
        assert!(all.get(&3).zip(state.map_markers.get(&3)).is_some_and(|(seat, own)| Arc::ptr_eq(seat, own)));
        for (entity_id, is_theirs) in [(70, true), (71, false)] {
            let entity_changed = Some(AppEntityChanged { entity_id, payload: Default::default() });
            let changed = AppBroadcast { entity_changed, ..Default::default() };
            seats.pass_on(&GameUpdate::Broadcast(3, Box::new(changed)), READER);
            assert_eq!(texts(&mut mate).len(), usize::from(is_theirs), "{entity_id}");
        }
    }

    #[test]
    fn one_that_is_behind_loses_its_seat_and_the_others_stay() {
        let mut seats = Seats::default();
        seats.pass_on(&answered(&[READER, MATE]), READER);
        let (mut slow, mut fast) = (seated(&mut seats, MATE, &[]).unwrap(), seated(&mut seats, READER, &[]).unwrap());
        for _ in 0..10 {
            seats.missed();
            assert_eq!(texts(&mut fast), ["Missed"]);
        }
        assert!(has_ended(&mut slow) && !has_ended(&mut fast));
    }
}
