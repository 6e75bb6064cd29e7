//! Counts the repeated elements of a game server's message before it is decoded: a marker is two bytes on the wire and
//! hundreds in memory, so the bytes of a message say little about the memory that it takes.
//!
//! One pass over the protobuf wire, without allocation. It follows only the fields that lead to repeated ones; every
//! other field is one value, however often it comes.

use std::fmt;

/// Repeated element of a message. The limits are per message, and far above what real game servers send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeated {
    Markers,
    SellOrders,
    Members,
    Notes,
    Monuments,
    ChatLines,
    Items,
    ClanEntries,
    CameraEntities,
}

const KINDS: usize = Repeated::CameraEntities as usize + 1;

impl Repeated {
    /// Largest number of these elements in one message.
    pub fn limit(self) -> usize {
        match self {
            Self::Markers => 20_000,
            Self::SellOrders => 40_000,
            Self::Monuments => 4_096,
            Self::Members | Self::Notes | Self::ChatLines | Self::Items | Self::CameraEntities => 1_024,
            Self::ClanEntries => 4_096,
        }
    }
}

impl fmt::Display for Repeated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Markers => "markers",
            Self::SellOrders => "sell orders",
            Self::Members => "team members",
            Self::Notes => "map notes",
            Self::Monuments => "monuments",
            Self::ChatLines => "chat lines",
            Self::Items => "items",
            Self::ClanEntries => "clan entries",
            Self::CameraEntities => "camera entities",
        })
    }
}

/// The bytes are no protobuf message.
#[derive(Debug, PartialEq, Eq)]
pub struct NoMessage;

/// The element that an `AppMessage` repeats more often than it may, if any.
pub fn excess(message: &[u8]) -> Result<Option<Repeated>, NoMessage> {
    let mut counts = [0; KINDS];
    let mut excess = None;
    count(message, MESSAGE, &mut |repeated| {
        counts[repeated as usize] += 1;
        if counts[repeated as usize] > repeated.limit() {
            excess.get_or_insert(repeated);
        }
    })?;
    Ok(excess)
}

/// The `seq` of the response in an `AppMessage`, if it has one.
pub fn response_seq(message: &[u8]) -> Option<u32> {
    let of = |response| fields(response).filter_map(Result::ok).filter(|(number, _)| *number == 1).last();
    let response = fields(message).filter_map(Result::ok).filter(|(number, _)| *number == 1).last();
    match response {
        Some((_, Content::Bytes(response))) => match of(response) {
            Some((_, Content::Number(seq))) => Some(seq as u32),
            _ => None,
        },
        _ => None,
    }
}

/// A field that is a message: its number, the element that each one counts as, and its nested fields.
struct Nested(u64, Option<Repeated>, &'static [Nested]);

const TEAM: &[Nested] = &[
    Nested(2, Some(Repeated::Members), &[]),
    Nested(3, Some(Repeated::Notes), &[]),
    Nested(4, Some(Repeated::Notes), &[]),
];
const PAYLOAD: &[Nested] = &[Nested(2, Some(Repeated::Items), &[])];
const MARKER: &[Nested] = &[Nested(13, Some(Repeated::SellOrders), &[])];
const CLAN: &[Nested] = &[
    Nested(10, Some(Repeated::ClanEntries), &[]),
    Nested(11, Some(Repeated::ClanEntries), &[]),
    Nested(12, Some(Repeated::ClanEntries), &[]),
];
const CLAN_INFO: &[Nested] = &[Nested(1, None, CLAN)];
const CHAT: &[Nested] = &[Nested(1, Some(Repeated::ChatLines), &[])];
const RESPONSE: &[Nested] = &[
    Nested(8, None, &[Nested(5, Some(Repeated::Monuments), &[])]),
    Nested(9, None, TEAM),
    Nested(10, None, CHAT),
    Nested(11, None, &[Nested(3, None, PAYLOAD)]),
    Nested(13, None, &[Nested(1, Some(Repeated::Markers), MARKER)]),
    Nested(15, None, CLAN_INFO),
    Nested(16, None, CHAT),
];
const BROADCAST: &[Nested] = &[
    Nested(4, None, &[Nested(2, None, TEAM)]),
    Nested(6, None, &[Nested(2, None, PAYLOAD)]),
    Nested(7, None, CLAN_INFO),
    Nested(10, None, &[Nested(5, Some(Repeated::CameraEntities), &[])]),
];
const MESSAGE: &[Nested] = &[Nested(1, None, RESPONSE), Nested(2, None, BROADCAST)];

fn count(message: &[u8], nested: &[Nested], see: &mut impl FnMut(Repeated)) -> Result<(), NoMessage> {
    for field in fields(message) {
        let (number, content) = field?;
        let Content::Bytes(within) = content else { continue };
        let Some(Nested(_, repeated, nested)) = nested.iter().find(|nested| nested.0 == number) else { continue };
        if let Some(repeated) = repeated {
            see(*repeated);
        }
        if !nested.is_empty() {
            count(within, nested, see)?;
        }
    }
    Ok(())
}

enum Content<'a> {
    /// A varint; values of fixed length are not looked at.
    Number(u64),
    Fixed,
    Bytes(&'a [u8]),
}

/// The fields of a message, by their numbers. Groups, which the game does not use, are no message.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = Result<(u64, Content<'_>), NoMessage>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = field(&mut rest).ok_or(NoMessage);
        if field.is_err() {
            rest = &[];
        }
        Some(field)
    })
}

fn field<'a>(rest: &mut &'a [u8]) -> Option<(u64, Content<'a>)> {
    let key = varint(rest)?;
    let content = match key & 7 {
        0 => Content::Number(varint(rest)?),
        1 => rest.split_off(..8).map(|_| Content::Fixed)?,
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            Content::Bytes(rest.split_off(..length)?)
        }
        5 => rest.split_off(..4).map(|_| Content::Fixed)?,
        _ => return None,
    };
    Some((key >> 3, content))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let byte = *rest.split_off_first()?;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or_default();
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;
    use crate::game::wire::{
        AppBroadcast, AppCameraRays, AppClanChat, AppClanInfo, AppClanMessage, AppEntityChanged, AppEntityInfo,
        AppEntityPayload, AppMap, AppMapMarkers, AppMarker, AppMessage, AppResponse, AppTeamChanged, AppTeamChat,
        AppTeamInfo, AppTeamMessage, ClanInfo, app_camera_rays, app_entity_payload, app_map, app_marker, app_team_info,
        clan_info,
    };

    fn of<T: Clone + Default>(n: usize) -> Vec<T> {
        vec![T::default(); n]
    }

    fn response(response: AppResponse) -> Vec<u8> {
        AppMessage { response: Some(AppResponse { seq: 9, ..response }), ..Default::default() }.encode_to_vec()
    }

    fn broadcast(broadcast: AppBroadcast) -> Vec<u8> {
        AppMessage { broadcast: Some(broadcast), ..Default::default() }.encode_to_vec()
    }

    fn markers(n: usize) -> Vec<u8> {
        response(AppResponse { map_markers: Some(AppMapMarkers { markers: of(n) }), ..Default::default() })
    }

    /// A message that repeats one element the given number of times.
    type Many = fn(usize) -> Vec<u8>;

    /// Every repeated field of an `AppMessage`.
    const REPEATED: [(Repeated, Many); 16] = [
        (Repeated::Markers, markers),
        (Repeated::SellOrders, |n| {
            let marker = |n| AppMarker { sell_orders: of::<app_marker::SellOrder>(n), ..Default::default() };
            let markers = vec![marker(n / 2), marker(n - n / 2)];
            response(AppResponse { map_markers: Some(AppMapMarkers { markers }), ..Default::default() })
        }),
        (Repeated::Members, |n| {
            let team = AppTeamInfo { members: of::<app_team_info::Member>(n), ..Default::default() };
            response(AppResponse { team_info: Some(team), ..Default::default() })
        }),
        (Repeated::Members, |n| {
            let team_info = AppTeamInfo { members: of(n), ..Default::default() };
            broadcast(AppBroadcast {
                team_changed: Some(AppTeamChanged { player_id: 1, team_info }),
                ..Default::default()
            })
        }),
        (Repeated::Notes, |n| {
            let team = AppTeamInfo { map_notes: of::<app_team_info::Note>(n), ..Default::default() };
            response(AppResponse { team_info: Some(team), ..Default::default() })
        }),
        (Repeated::Notes, |n| {
            let team_info = AppTeamInfo { leader_map_notes: of(n), ..Default::default() };
            broadcast(AppBroadcast {
                team_changed: Some(AppTeamChanged { player_id: 1, team_info }),
                ..Default::default()
            })
        }),
        (Repeated::Monuments, |n| {
            let map = AppMap { monuments: of::<app_map::Monument>(n), ..Default::default() };
            response(AppResponse { map: Some(map), ..Default::default() })
        }),
        (Repeated::ChatLines, |n| {
            let messages = of::<AppTeamMessage>(n);
            response(AppResponse { team_chat: Some(AppTeamChat { messages }), ..Default::default() })
        }),
        (Repeated::ChatLines, |n| {
            let messages = of::<AppClanMessage>(n);
            response(AppResponse { clan_chat: Some(AppClanChat { messages }), ..Default::default() })
        }),
        (Repeated::Items, |n| {
            let payload = AppEntityPayload { items: of::<app_entity_payload::Item>(n), ..Default::default() };
            response(AppResponse { entity_info: Some(AppEntityInfo { r#type: 3, payload }), ..Default::default() })
        }),
        (Repeated::Items, |n| {
            let payload = AppEntityPayload { items: of(n), ..Default::default() };
            broadcast(AppBroadcast {
                entity_changed: Some(AppEntityChanged { entity_id: 1, payload }),
                ..Default::default()
            })
        }),
        (Repeated::ClanEntries, |n| clan(ClanInfo { roles: of::<clan_info::Role>(n), ..Default::default() })),
        (Repeated::ClanEntries, |n| clan(ClanInfo { members: of::<clan_info::Member>(n), ..Default::default() })),
        (Repeated::ClanEntries, |n| clan(ClanInfo { invites: of::<clan_info::Invite>(n), ..Default::default() })),
        (Repeated::ClanEntries, |n| {
            let clan_info = Some(ClanInfo { members: of(n), ..Default::default() });
            let clan_changed = Some(crate::game::wire::AppClanChanged { clan_info });
            broadcast(AppBroadcast { clan_changed, ..Default::default() })
        }),
        (Repeated::CameraEntities, |n| {
            let rays = AppCameraRays { entities: of::<app_camera_rays::Entity>(n), ..Default::default() };
            broadcast(AppBroadcast { camera_rays: Some(rays), ..Default::default() })
        }),
    ];

    fn clan(clan: ClanInfo) -> Vec<u8> {
        response(AppResponse { clan_info: Some(AppClanInfo { clan_info: Some(clan) }), ..Default::default() })
    }

    #[test]
    fn every_repeated_field_has_a_limit() {
        for (repeated, many) in REPEATED {
            assert_eq!(excess(&many(repeated.limit())), Ok(None), "{repeated}");
            assert_eq!(excess(&many(repeated.limit() + 1)), Ok(Some(repeated)), "{repeated}");
        }
        let proto = include_str!("companion.proto");
        let declared = proto.lines().filter(|line| line.contains("repeated ")).count();
        // A team, a payload, a chat line and a clan come in two messages each.
        assert_eq!(declared, 13, "a repeated field that is not in the list");
    }

    #[test]
    fn one_value_in_many_pieces_is_counted_as_a_whole() {
        // Protobuf merges the occurrences of a field that is not repeated.
        let pieces = [markers(15_000), markers(5_001)].concat();
        assert_eq!(excess(&pieces), Ok(Some(Repeated::Markers)));
    }

    #[test]
    fn an_answer_says_which_request_it_is_for_without_being_decoded() {
        assert_eq!(response_seq(&markers(3)), Some(9));
        assert_eq!(response_seq(&broadcast(AppBroadcast::default())), None);
        assert_eq!(response_seq(&[0xff; 3]), None);
    }

    proptest! {
        #[test]
        fn bytes_of_any_kind_end_the_pass(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let passed = excess(&bytes);
            // The pass accepts every message that prost accepts, except those with groups.
            if AppMessage::decode(&bytes[..]).is_ok() && !bytes.iter().any(|byte| matches!(byte & 7, 3 | 4)) {
                prop_assert_eq!(passed, Ok(None));
            }
            response_seq(&bytes);
        }
    }
}
