//! Which server of the player-statistics service a paired game server is.
//!
//! The service knows a server by its game port; a pairing has the companion port, by default 67 above it. Several
//! servers share an address, and names are copied: the certainty of a match and its evidence are shown.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::plain_text::plain_text;

/// Default distances of the companion port above the game port, or above a remote-control port next to it.
const COMPANION_OFFSETS: [u16; 3] = [67, 68, 69];
/// Names are compared as far as this, characters.
const SERVER_NAME_CHARS: usize = 120;

/// The facts of a paired game server that a match needs.
#[derive(Clone, Debug, Default)]
pub struct PairedPlace {
    /// The address as it is paired, and those that its name leads to.
    pub addresses: BTreeSet<String>,
    /// The companion port.
    pub port: u16,
    /// Names given by users: the game's, unless they changed it.
    pub names: BTreeSet<String>,
}

/// A server that the service lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedServer {
    pub id: String,
    pub name: String,
    /// Address and perhaps host name.
    pub addresses: Vec<String>,
    /// Game port and perhaps query port.
    pub ports: Vec<u16>,
}

/// Certainty of a match; the later, the surer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Confidence {
    /// Only the name is the same.
    Possible,
    /// The address is the same, and the name or nothing that speaks for another server.
    Likely,
    /// Address and port.
    Certain,
}

/// A fact on which both agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum MatchedBy {
    Address,
    Port,
    Name,
}

/// The matched server of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerMatch {
    /// Its id there.
    pub id: String,
    /// Its name there.
    pub name: String,
    pub confidence: Confidence,
    pub by: Vec<MatchedBy>,
}

/// The best match; `None` if there is none, or two are equally good.
pub fn best_match(paired: &PairedPlace, listed: &[ListedServer]) -> Option<ServerMatch> {
    let neighbours = listed.iter().filter(|server| is_at(paired, server)).count();
    let matches = listed.iter().filter_map(|server| matched(paired, server, neighbours));
    let mut best: Vec<ServerMatch> = Vec::new();
    for found in matches {
        let rank = |found: &ServerMatch| (found.confidence, found.by.len());
        match best.first().map(rank) {
            Some(known) if known > rank(&found) => {}
            Some(known) if known == rank(&found) => best.push(found),
            _ => best = vec![found],
        }
    }
    let mut best = best.into_iter();
    best.next().filter(|_| best.next().is_none())
}

/// The match of this place and this server, if they are one. `neighbours` are listed at the same address.
fn matched(paired: &PairedPlace, server: &ListedServer, neighbours: usize) -> Option<ServerMatch> {
    let address = is_at(paired, server);
    let port = server.ports.iter().any(|listed| {
        *listed == paired.port
            || COMPANION_OFFSETS.iter().any(|offset| listed.checked_add(*offset) == Some(paired.port))
    });
    let name = plain_name(&server.name);
    let name = !name.is_empty() && paired.names.iter().any(|known| plain_name(known) == name);
    let confidence = match (address, port, name) {
        (true, true, _) => Confidence::Certain,
        (true, false, true) => Confidence::Likely,
        (true, false, false) if neighbours == 1 => Confidence::Likely,
        (false, _, true) => Confidence::Possible,
        _ => return None,
    };
    // A port alone says nothing.
    let same = [(address, MatchedBy::Address), (address && port, MatchedBy::Port), (name, MatchedBy::Name)];
    let by = same.into_iter().filter(|(same, _)| *same).map(|(_, by)| by).collect();
    Some(ServerMatch { id: server.id.clone(), name: server.name.clone(), confidence, by })
}

fn is_at(paired: &PairedPlace, server: &ListedServer) -> bool {
    server.addresses.iter().any(|listed| paired.addresses.contains(&listed.to_ascii_lowercase()))
}

fn plain_name(name: &str) -> String {
    let plain = plain_text(name, SERVER_NAME_CHARS).to_lowercase();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paired() -> PairedPlace {
        PairedPlace {
            addresses: ["203.0.113.9".to_owned(), "play.example.com".into()].into(),
            port: 28_082,
            names: ["<b>Rusty</b> Moose |Monthly|".to_owned()].into(),
        }
    }

    fn listed(id: &str, name: &str, address: &str, port: u16) -> ListedServer {
        ListedServer { id: id.into(), name: name.into(), addresses: vec![address.into()], ports: vec![port] }
    }

    #[track_caller]
    fn check(servers: &[ListedServer], expected: Option<(&str, Confidence, &[MatchedBy])>) {
        let found = best_match(&paired(), servers);
        let brief = found.as_ref().map(|found| (found.id.as_str(), found.confidence, &found.by[..]));
        assert_eq!(brief, expected);
    }

    #[test]
    fn address_and_port_are_certain() {
        use MatchedBy::{Address, Name, Port};
        let wanted = listed("1", "Rusty Moose  |monthly|", "203.0.113.9", 28_015);
        let neighbour = listed("2", "Rusty Moose |Monthly|", "203.0.113.9", 28_025);
        check(&[neighbour.clone(), wanted.clone()], Some(("1", Confidence::Certain, &[Address, Port, Name])));
        check(&[listed("1", "Other", "Play.Example.com", 28_082)], Some(("1", Confidence::Certain, &[Address, Port])));
        check(&[neighbour], Some(("2", Confidence::Likely, &[Address, Name])));
    }

    #[test]
    fn the_only_server_of_an_address_is_likely_and_one_of_two_is_not_guessed() {
        let one = listed("1", "Moved", "203.0.113.9", 29_000);
        check(std::slice::from_ref(&one), Some(("1", Confidence::Likely, &[MatchedBy::Address])));
        check(&[one, listed("2", "Also", "203.0.113.9", 29_100)], None);
    }

    #[test]
    fn a_name_alone_is_possible_as_long_as_it_is_the_only_one() {
        let one = listed("1", "rusty moose |MONTHLY|", "198.51.100.1", 28_015);
        check(std::slice::from_ref(&one), Some(("1", Confidence::Possible, &[MatchedBy::Name])));
        let copy = ListedServer { id: "2".into(), ..one.clone() };
        check(&[one, copy], None);
        check(&[listed("1", "Another", "198.51.100.1", 28_015)], None);
        check(&[], None);
    }
}
