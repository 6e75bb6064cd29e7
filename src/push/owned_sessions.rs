//! On a node of several: the push sessions as they are shared out. Other nodes take uploads, too: the users with a
//! credential are read again and again.

use std::{collections::HashMap, sync::Arc};

use crate::{
    domain::{
        fence::Fence,
        ids::{PartId, UserId},
        one_at_a_time::OneAtATime,
        time::Timestamp,
    },
    ownership::{Ownership, needed_parts::push_session},
};

/// See the module.
pub struct OwnedSessions {
    pub ownership: Ownership,
    uploads: KnownUploads,
    /// Push sessions of this node at the last count.
    counted: usize,
    /// The read of the users with a credential.
    pub reading: OneAtATime,
}

impl OwnedSessions {
    /// No session is known yet.
    pub fn new(ownership: Ownership) -> Self {
        Self { ownership, uploads: KnownUploads::default(), counted: 0, reading: OneAtATime::default() }
    }

    /// The right of this node to the session of this user; `None`: another node has it, or none has, or there is no
    /// credential as far as that was read.
    pub fn fence(&self, user: &UserId) -> Option<Arc<Fence>> {
        self.ownership.fence(&self.uploads.0.get(user)?.part)
    }

    /// The users to whose sessions this node has the right.
    pub fn here(&self) -> impl Iterator<Item = &UserId> {
        self.uploads.0.keys().filter(move |user| self.fence(user).is_some())
    }

    /// True if this node has more sessions than at the last question: perhaps one of a user that was not read yet.
    pub fn has_more(&mut self) -> bool {
        let count = self.ownership.push_sessions();
        count > std::mem::replace(&mut self.counted, count)
    }

    /// Takes the users that were read, each with the upload of the newest bundle.
    pub fn read(&mut self, uploads: Vec<(UserId, Timestamp)>) -> UploadChanges {
        self.uploads.read(uploads)
    }
}

/// Differences between two reads.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UploadChanges {
    /// Users who have uploaded another bundle.
    pub renewed: Vec<UserId>,
    /// Parts of users who had no credential before.
    pub new_parts: Vec<PartId>,
}

/// Pure: the users with a credential, as they were read.
#[derive(Debug, Default)]
struct KnownUploads(HashMap<UserId, KnownUpload>);

#[derive(Debug)]
struct KnownUpload {
    part: PartId,
    /// When the newest bundle was uploaded.
    newest: Timestamp,
}

impl KnownUploads {
    fn read(&mut self, uploads: Vec<(UserId, Timestamp)>) -> UploadChanges {
        let mut before = std::mem::take(&mut self.0);
        let mut changes = UploadChanges::default();
        for (user, newest) in uploads {
            let part = match before.remove(&user) {
                Some(known) => {
                    // A bundle that takes the place of the one in use was uploaded before.
                    if known.newest < newest {
                        changes.renewed.push(user.clone());
                    }
                    known.part
                }
                None => {
                    let part = push_session(&user);
                    changes.new_parts.push(part.clone());
                    part
                }
            };
            self.0.insert(user, KnownUpload { part, newest });
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{later, now};

    #[test]
    fn users_are_compared_with_those_that_were_read_before() {
        let (mut known, [alice, bob]) = (KnownUploads::default(), ["alice", "bob"].map(UserId::from));
        let first = known.read(vec![(alice.clone(), now()), (bob.clone(), now())]);
        assert_eq!((first.renewed.len(), first.new_parts), (0, vec![push_session(&alice), push_session(&bob)]));
        let second = known.read(vec![(alice.clone(), later(1)), (bob.clone(), now())]);
        assert_eq!(second, UploadChanges { renewed: vec![alice.clone()], new_parts: vec![] });
        assert_eq!(known.read(vec![(alice, now())]), UploadChanges::default());
        assert_eq!(known.read(vec![(bob.clone(), now())]).new_parts, [push_session(&bob)]);
    }
}
