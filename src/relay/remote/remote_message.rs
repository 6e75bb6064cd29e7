//! Messages between the node of a game connection and those whose sockets watch it, as bytes. Pure.
//!
//! A message is its version, the length of its head, the head as JSON, and perhaps the text of a frame for clients, which
//! nodes pass on as it is. Parts of a message that is too large for one are put together by [`MessageParts`]. A message that
//! cannot be read is of a newer program, and is dropped.

use std::{collections::VecDeque, sync::Arc};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    domain::{
        change::{Change, Key, Node, Section},
        ids::{PartId, ServerId, UserId},
        items::Catalogue,
    },
    relay::{
        remote::remote_question::{RemoteAnswer, RemoteQuestion},
        wire::publication::{Announcement, Lane, Position},
    },
};

/// First byte of a message, and of a part of one.
const WHOLE: u8 = 1;
const PART: u8 = 2;
/// Bytes of one part; NATS takes a mebibyte.
const PART_BYTES: usize = 512 * 1024;
/// Parts of one message, and of all messages of which some have come: 64 MiB, of many nodes at once.
const MOST_PARTS: u16 = 64;
const MOST_WAITING: u16 = 128;

/// A message about a paired server.
#[derive(Debug, Serialize, Deserialize)]
pub struct RemoteMessage {
    pub server: ServerId,
    /// The process that sends it.
    pub from: String,
    pub content: RemoteContent,
}

/// See [`RemoteMessage`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RemoteContent {
    /// Sockets of the sender watch, and go on to.
    Watch,
    /// None do any longer.
    Unwatch,
    /// Send a snapshot.
    WantSnapshot,
    /// A socket has the state of this position.
    StateTaken { epoch: u64, seq: u64 },
    /// The alarm is here, and this number of sockets took it; `ended`: no more will.
    AlarmTaken { alarm: u64, sockets: usize, ended: bool },
    /// The alarm that was asked for is not here: send it.
    WantAlarm { alarm: u64 },
    /// A question or a command; `id` is its number.
    Ask { id: u64, question: RemoteQuestion },
    /// The answer to it.
    Answer { id: u64, answer: RemoteAnswer },
    /// The frame is for the browsers of this user.
    ToBrowsers { user: UserId },
    /// The number of sockets of users who have several at this node; no others have.
    Sockets { of: Vec<(UserId, usize)> },
    /// The game connection is here, and its last step was to this position, as far as its node has seen one.
    Here { at: Option<Position> },
    /// The game connection is not here, or no longer.
    NotHere,
    /// The server is to be at the receiver's node next. The frame is the memory of the game connection that wrote by the right
    /// to this part, of this number.
    HandOver { part: PartId, number: i64 },
    /// A step of the state, with the frame.
    Step { epoch: u64, base: u64, changes: Vec<RemoteChange> },
    /// The state, with the frame; `changed` is at which `seq` each key of it changed last.
    Snapshot { epoch: u64, seq: u64, changed: Vec<u64> },
    /// An event or a line, with the frame; `about` are keys of the state.
    Deliver { lane: RemoteLane, about: String },
    /// Answer how many sockets took this alarm, which was here.
    AskTaken { alarm: u64 },
    /// An alarm, with the frame; `alarm` is its number.
    Alarm { alarm: u64, about: Announcement, acknowledged: Vec<UserId> },
}

/// A [`Lane`] of what is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RemoteLane {
    Raid,
    Event,
    Chat,
    Reply,
    State,
}

impl From<Lane> for RemoteLane {
    fn from(lane: Lane) -> Self {
        match lane {
            Lane::Raid => Self::Raid,
            Lane::Event => Self::Event,
            Lane::Chat => Self::Chat,
            Lane::Reply => Self::Reply,
            Lane::State => Self::State,
        }
    }
}

impl From<RemoteLane> for Lane {
    fn from(lane: RemoteLane) -> Self {
        match lane {
            RemoteLane::Raid => Self::Raid,
            RemoteLane::Event => Self::Event,
            RemoteLane::Chat => Self::Chat,
            RemoteLane::Reply => Self::Reply,
            RemoteLane::State => Self::State,
        }
    }
}

/// A [`Change`], with its values as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct RemoteChange {
    section: u8,
    key: RemoteKey,
    old: Option<Box<RawValue>>,
    new: Option<Box<RawValue>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum RemoteKey {
    Whole,
    Number(u64),
    Text(Arc<str>),
}

/// Sections by their numbers, which stay.
const SECTIONS: [Section; 8] = [
    Section::Server,
    Section::Team,
    Section::Members,
    Section::MapMarkers,
    Section::Devices,
    Section::MapNotes,
    Section::Raids,
    Section::Timers,
];

impl RemoteChange {
    /// The change, with the names of items that this catalogue has.
    pub fn of(change: &Change, catalogue: &Catalogue) -> Self {
        let json = |node: &Option<Arc<dyn Node>>| node.as_ref().map(|node| node.json(catalogue));
        let section = SECTIONS.iter().position(|section| *section == change.section);
        let key = match &change.key {
            Key::Whole => RemoteKey::Whole,
            Key::Number(number) => RemoteKey::Number(*number),
            Key::Text(text) => RemoteKey::Text(text.clone()),
        };
        let section = u8::try_from(section.expect("each section has a number")).expect("there are eight");
        Self { section, key, old: json(&change.old), new: json(&change.new) }
    }

    /// The change as it was; `None`: in a section of a newer program.
    pub fn read(self) -> Option<Change> {
        let Self { section, key, old, new } = self;
        let node = |json: Option<Box<RawValue>>| json.map(|json| Arc::new(json) as Arc<dyn Node>);
        let key = match key {
            RemoteKey::Whole => Key::Whole,
            RemoteKey::Number(number) => Key::Number(number),
            RemoteKey::Text(text) => Key::Text(text),
        };
        let section = *SECTIONS.get(usize::from(section))?;
        Some(Change { section, key, old: node(old), new: node(new) })
    }
}

impl RemoteContent {
    /// True for messages of a node whose sockets watch.
    pub fn is_of_watcher(&self) -> bool {
        matches!(
            self,
            Self::Watch
                | Self::Unwatch
                | Self::WantSnapshot
                | Self::StateTaken { .. }
                | Self::AlarmTaken { .. }
                | Self::WantAlarm { .. }
        )
    }
}

impl RemoteMessage {
    /// The message as it is sent, in one part or more; `id` is that of the parts.
    pub fn write(&self, frame: &[u8], id: u64) -> Vec<Bytes> {
        let head = serde_json::to_vec(self).expect("its fields are plain");
        let mut message = BytesMut::with_capacity(5 + head.len() + frame.len());
        message.put_u8(WHOLE);
        message.put_u32(head.len() as u32);
        message.put_slice(&head);
        message.put_slice(frame);
        let message = message.freeze();
        if message.len() <= PART_BYTES {
            return vec![message];
        }
        let count = message.len().div_ceil(PART_BYTES) as u16;
        let part = |(number, bytes): (usize, &[u8])| {
            let mut part = BytesMut::with_capacity(13 + bytes.len());
            part.put_u8(PART);
            part.put_u64(id);
            part.put_u16(number as u16);
            part.put_u16(count);
            part.put_slice(bytes);
            part.freeze()
        };
        message.chunks(PART_BYTES).enumerate().map(part).collect()
    }

    /// A whole message, and the text of its frame.
    pub fn read(mut message: Bytes) -> Option<(Self, Bytes)> {
        if message.len() < 5 || message.get_u8() != WHOLE {
            return None;
        }
        let length = message.get_u32() as usize;
        if message.len() < length {
            return None;
        }
        let head = message.split_to(length);
        Some((serde_json::from_slice(&head).ok()?, message))
    }
}

/// Messages of which some parts have come, the newest last.
#[derive(Debug, Default)]
pub struct MessageParts(VecDeque<PartialMessage>);

#[derive(Debug)]
struct PartialMessage {
    id: u64,
    count: u16,
    bytes: BytesMut,
    /// Parts that have come, in their order.
    come: u16,
}

impl MessageParts {
    /// Takes what has come; gives the message if it is whole. Parts come in their order, or not at all.
    pub fn take(&mut self, mut message: Bytes) -> Option<Bytes> {
        if message.first() != Some(&PART) || message.len() < 13 {
            return Some(message);
        }
        message.advance(1);
        let (id, number, count) = (message.get_u64(), message.get_u16(), message.get_u16());
        if number == 0 && (1..=MOST_PARTS).contains(&count) {
            while self.0.iter().map(|known| known.count).sum::<u16>() + count > MOST_WAITING {
                self.0.pop_front();
            }
            self.0.push_back(PartialMessage { id, count, bytes: BytesMut::new(), come: 0 });
        }
        let place = self.0.iter().position(|known| known.id == id)?;
        let known = &mut self.0[place];
        if known.come != number {
            self.0.remove(place);
            return None;
        }
        known.bytes.put_slice(&message);
        known.come += 1;
        let is_whole = known.come == known.count;
        is_whole.then(|| self.0.remove(place)).flatten().map(|known| known.bytes.freeze())
    }
}

#[cfg(test)]
mod version_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::{change::JsonPatch, server_state::ServerState, time::Timestamp},
        relay::game::commands::{ChatError, CommandError},
    };

    fn message(content: RemoteContent) -> RemoteMessage {
        RemoteMessage { server: "one".into(), from: "here".into(), content }
    }

    #[test]
    fn a_message_is_read_as_it_was_written_also_in_parts() {
        let snapshot = message(RemoteContent::Snapshot { epoch: 7, seq: 9, changed: vec![1, 2] });
        for length in [0, 10, 2_000_000] {
            let frame: Vec<u8> = (0..length).map(|number| (number % 251) as u8).collect();
            let (mut parts, written) = (MessageParts::default(), snapshot.write(&frame, 3));
            assert_eq!(written.len(), if length < 1_000 { 1 } else { 4 });
            let (last, first) = written.split_last().unwrap();
            assert!(first.iter().all(|part| parts.take(part.clone()).is_none()));
            let (read, text) = RemoteMessage::read(parts.take(last.clone()).unwrap()).unwrap();
            assert_eq!((format!("{read:?}"), &text[..]), (format!("{snapshot:?}"), &frame[..]));
            assert!(parts.0.is_empty());
        }
    }

    #[test]
    fn parts_that_are_missing_and_messages_of_others_are_dropped() {
        let frame = vec![0; 2_000_000];
        let write = |id| message(RemoteContent::Here { at: None }).write(&frame, id);
        let mut parts = MessageParts::default();
        let (one, two) = (write(1), write(2));
        assert!(
            [&one[0], &two[0], &one[2], &one[3], &two[1], &two[2]]
                .iter()
                .all(|part| parts.take((*part).clone()).is_none())
        );
        assert!(parts.take(two[3].clone()).is_some());
        let mut of_none = BytesMut::from(&one[0][..]);
        of_none[11..13].fill(0);
        assert!(parts.take(of_none.freeze()).is_none() && parts.0.is_empty(), "it would never be whole, and grow");
        (0..40).for_each(|id| assert!(parts.take(write(id)[0].clone()).is_none()));
        assert_eq!(parts.0.len(), usize::from(MOST_WAITING) / 4, "the oldest are dropped");
        for other in [&b""[..], b"\x01", b"\x01\0\0\0\x09{}", b"\x09\0\0\0\x02{}", b"\x01\0\0\0\x02{}"] {
            assert!(RemoteMessage::read(Bytes::from_static(other)).is_none(), "{other:?}");
        }
        let newer = br#"{"server":"one","from":"there","content":{"moonRisen":{"phase":1}}}"#;
        let mut bytes = BytesMut::new();
        bytes.put_u8(WHOLE);
        bytes.put_u32(newer.len() as u32);
        bytes.put_slice(newer);
        assert!(RemoteMessage::read(bytes.freeze()).is_none());
    }

    #[test]
    fn questions_and_their_answers_are_read_as_they_were_written() {
        let toggle = RemoteQuestion::Toggle { device: "7".into(), value: Some(true), by: "alice".into() };
        for content in [
            RemoteContent::Ask { id: u64::MAX, question: toggle },
            RemoteContent::Answer { id: 1, answer: RemoteAnswer::Toggled(Err(CommandError::NotASwitch)) },
            RemoteContent::Answer { id: 1, answer: RemoteAnswer::Said(Err(ChatError::NoTeam)) },
            RemoteContent::Answer { id: 1, answer: RemoteAnswer::SaidForChannel(Some(Ok(()))) },
            RemoteContent::Sockets { of: vec![("alice".into(), 3)] },
            RemoteContent::HandOver { part: "links:a:1".into(), number: 7 },
        ] {
            let written = message(content);
            let (read, _) = RemoteMessage::read(written.write(&[], 0).remove(0)).unwrap();
            assert_eq!(format!("{read:?}"), format!("{written:?}"));
        }
    }

    #[test]
    fn changes_make_the_same_patch_at_another_node() {
        let (mut state, mut changes) = (ServerState::new(Timestamp::UNIX_EPOCH), Vec::new());
        state.edit_team(&mut changes, |team| team.leader_id = Some("7".to_owned()));
        state.edit_server(&mut changes, |server| server.since = "2026-11-29T20:00:00Z".parse().unwrap());
        let catalogue = Catalogue::embedded();
        let sent: Vec<RemoteChange> = changes.iter().map(|change| RemoteChange::of(change, catalogue)).collect();
        let text = serde_json::to_string(&sent).unwrap();
        let read: Vec<RemoteChange> = serde_json::from_str(&text).unwrap();
        let read: Vec<Change> = read.into_iter().map(|change| change.read().unwrap()).collect();
        let patch = |changes: &[Change]| serde_json::to_string(&JsonPatch { changes, catalogue }).unwrap();
        assert_eq!(patch(&read), patch(&changes));
        assert!(patch(&read).contains("leaderId"));
    }
}
