//! One of several links to one team on one game server answers a line: that of its author, or else the one that is
//! connected longest.

use std::net::SocketAddr;

use crate::domain::{ids::GameServerId, time::Moment};

/// A link of a team, for one line.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// SteamID64 of the paired player.
    pub player: u64,
    pub connected_since: Moment,
    /// Its paired server takes the line for a command.
    pub understands: bool,
}

/// The game server of a link, the same for all its links, also if one user has paired it by a name and another by its
/// address: it is where the link ended. A name alone says less: its owner may let it point elsewhere. The name and map
/// that a game server reports prove nothing: any other may report the same, and would be sent the team's answers.
/// Without that address (behind a proxy) it is as it was paired.
pub fn server_of_link(paired: &GameServerId, peer: Option<SocketAddr>) -> GameServerId {
    peer.map_or_else(|| paired.clone(), |peer| GameServerId::at(&peer.ip().to_string(), peer.port()))
}

/// The place of the link that answers this author.
pub fn elect(candidates: &[Candidate], author: u64) -> Option<usize> {
    let able = candidates.iter().enumerate().filter(|(_, candidate)| candidate.understands);
    let rank = |candidate: &Candidate| (candidate.player != author, candidate.connected_since, candidate.player);
    able.min_by_key(|(_, candidate)| rank(candidate)).map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::domain::time::Timestamp;

    #[test]
    fn a_game_server_is_where_its_links_end_and_else_as_it_was_paired() {
        let (name, address) = (GameServerId::at("game.example.com", 28_082), GameServerId::at("203.0.113.7", 28_082));
        let peer = |text: &str| Some(text.parse().unwrap());
        let met = |paired: &GameServerId, at| server_of_link(paired, peer(at));
        assert_eq!(met(&name, "203.0.113.7:28082"), met(&address, "203.0.113.7:28082"));
        assert_ne!(met(&name, "203.0.113.7:28082"), met(&name, "203.0.113.8:28082"), "the name points elsewhere now");
        assert_ne!(met(&name, "203.0.113.7:28082"), met(&name, "203.0.113.7:28083"));
        assert_eq!(server_of_link(&address, None), met(&name, "203.0.113.7:28082"));
        assert_eq!(server_of_link(&name, None), name);
    }

    #[test]
    fn the_authors_own_link_answers_or_the_longest_connected_that_understands() {
        let link = |player, seconds, understands| Candidate {
            player,
            connected_since: (Timestamp::UNIX_EPOCH + TimeDelta::seconds(seconds)).into(),
            understands,
        };
        let all = [link(1, 30, true), link(2, 10, true), link(3, 5, false)];
        assert_eq!(elect(&all, 1), Some(0));
        assert_eq!(elect(&all, 9), Some(1));
        assert_eq!(elect(&all, 3), Some(1), "it does not know this command");
        assert_eq!(elect(&[link(3, 5, false)], 3), None);
        assert_eq!(elect(&[], 1), None);
    }
}
