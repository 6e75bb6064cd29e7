//! Secrets at rest: AES-256-GCM, bound to the place where they are stored.
//!
//! Sealed bytes: version (1) ‖ key id (4) ‖ nonce (12) ‖ ciphertext ‖ tag (16). The associated data is the version,
//! the key id and the context, so that sealed bytes cannot be moved to another row or column, nor be sent to another peer
//! than the one that they were sealed for.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use secrecy::{SecretSlice, zeroize::Zeroize};

use crate::crypto::{keys::Key32, random::Random};

/// Versions: in the second, the associated data ends with the peer. Secrets that have a peer now were sealed in the first one
/// before.
const WITHOUT_PEER: u8 = 1;
const WITH_PEER: u8 = 2;
const KEY_ID_LEN: usize = 4;
const HEADER_LEN: usize = 1 + KEY_ID_LEN + NONCE_LEN;

/// Where sealed bytes are stored, and for what. Table, column and owner do not change while the row exists; when its peer
/// changes, the secret is sealed again in the same transaction.
#[derive(Clone, Copy, Debug)]
pub struct SealContext<'a> {
    pub table: &'static str,
    pub column: &'static str,
    /// The key of the row: the id of the paired server, or of the user for a push credential.
    pub owner: &'a str,
    /// The one that the secret is sent to, if the row says who that is: address and port of a game server.
    pub peer: Option<&'a str>,
}

impl SealContext<'_> {
    /// The version in which this context seals.
    fn version(&self) -> u8 {
        if self.peer.is_some() { WITH_PEER } else { WITHOUT_PEER }
    }
}

/// The secret that was sealed.
pub struct Opened {
    pub plaintext: SecretSlice<u8>,
    /// False if the previous key opened it, or if it was sealed without its peer: seal it again and store it, if the row has
    /// not changed since it was read.
    pub current: bool,
}

/// Reasons for which sealed bytes did not open; they do not reveal their content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("sealed with a key that is neither the current nor the previous one")]
    UnknownKey,
    #[error("not sealed here, or damaged")]
    Damaged,
}

/// Seals with the current key; opens with the current and the previous one.
pub struct Sealer {
    current: SealingKey,
    previous: Option<SealingKey>,
    key_version: i32,
    random: Random,
}

struct SealingKey {
    id: [u8; KEY_ID_LEN],
    key: LessSafeKey,
}

impl SealingKey {
    fn new(key: &Key32) -> Self {
        Self { id: key.id(), key: aes_256_gcm(key) }
    }
}

/// The cipher under this key.
pub(crate) fn aes_256_gcm(key: &Key32) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_bytes()).expect("AES-256 takes 32 bytes"))
}

impl Sealer {
    /// `previous` is the key before the last rotation, while rows sealed with it remain; `key_version` is the number
    /// of the current key, 1 for the first that the service ran with.
    pub fn new(current: &Key32, previous: Option<&Key32>, key_version: i32, random: Random) -> Self {
        Self { current: SealingKey::new(current), previous: previous.map(SealingKey::new), key_version, random }
    }

    /// The number of the key that seals.
    pub fn key_version(&self) -> i32 {
        self.key_version
    }

    /// Seals with the current key and a fresh nonce.
    pub fn seal(&self, context: &SealContext<'_>, plaintext: &[u8]) -> Vec<u8> {
        let SealingKey { id, key } = &self.current;
        let version = context.version();
        let nonce: [u8; NONCE_LEN] = self.random.bytes();
        let mut sealed = Vec::with_capacity(HEADER_LEN + plaintext.len() + AES_256_GCM.tag_len());
        sealed.push(version);
        sealed.extend_from_slice(id);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plaintext);
        let tag = key
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(associated_data(version, context, id)),
                &mut sealed[HEADER_LEN..],
            )
            .expect("plaintexts are far below the cipher's 64 GiB");
        sealed.extend_from_slice(tag.as_ref());
        sealed
    }

    /// Opens what [`seal`](Self::seal) gave for the same context, or for the same without a peer.
    pub fn open(&self, context: &SealContext<'_>, sealed: &[u8]) -> Result<Opened, OpenError> {
        let SealedParts { version, key_id: id, nonce, ciphertext } = split(sealed).ok_or(OpenError::Damaged)?;
        // The new key first, then the old one; the id saves the attempt with the wrong one.
        let mut error = OpenError::UnknownKey;
        for (candidate, is_newest) in [(Some(&self.current), true), (self.previous.as_ref(), false)] {
            let Some(SealingKey { key, .. }) = candidate.filter(|candidate| candidate.id == id) else { continue };
            let nonce = Nonce::assume_unique_for_key(nonce);
            let mut buffer = ciphertext.to_vec();
            let opened = key.open_in_place(nonce, Aad::from(associated_data(version, context, &id)), &mut buffer);
            // An exact copy: shrinking the buffer could leave a second one behind in freed memory.
            let plaintext = opened.map(|plaintext| SecretSlice::from(plaintext.to_vec()));
            buffer.zeroize();
            match plaintext {
                Ok(plaintext) => {
                    return Ok(Opened { plaintext, current: is_newest && version == context.version() });
                }
                Err(_) => error = OpenError::Damaged,
            }
        }
        Err(error)
    }
}

struct SealedParts<'a> {
    version: u8,
    key_id: [u8; KEY_ID_LEN],
    nonce: [u8; NONCE_LEN],
    /// With its tag.
    ciphertext: &'a [u8],
}

fn split(sealed: &[u8]) -> Option<SealedParts<'_>> {
    let (&version, rest) = sealed.split_first()?;
    let (&key_id, rest) = rest.split_first_chunk()?;
    let (&nonce, ciphertext) = rest.split_first_chunk()?;
    let parts = SealedParts { version, key_id, nonce, ciphertext };
    matches!(version, WITHOUT_PEER | WITH_PEER).then_some(parts)
}

/// Each part with its length before it, so that no two contexts give the same bytes.
fn associated_data(version: u8, context: &SealContext<'_>, key_id: &[u8; KEY_ID_LEN]) -> Vec<u8> {
    let mut data = vec![version];
    data.extend_from_slice(key_id);
    let peer = context.peer.filter(|_| version == WITH_PEER);
    for part in [context.table, context.column, context.owner].into_iter().chain(peer) {
        data.extend_from_slice(&(part.len() as u64).to_be_bytes());
        data.extend_from_slice(part.as_bytes());
    }
    data
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;
    use crate::crypto::digest;

    const CONTEXT: SealContext<'static> =
        SealContext { table: "push_credentials", column: "bundle_sealed", owner: "user-1", peer: None };
    const TO_PEER: SealContext<'static> = SealContext { peer: Some("192.0.2.1:28082"), ..CONTEXT };

    fn key(byte: u8) -> Key32 {
        Key32::new([byte; 32])
    }

    /// Computed with two independent implementations.
    #[test]
    fn the_cipher_gives_the_known_answer() {
        let key = aes_256_gcm(&Key32::new(std::array::from_fn(|index| index as u8)));
        let nonce = Nonce::assume_unique_for_key(std::array::from_fn(|index| index as u8));
        let mut data = br#"{"platformId":"76561198000000001"}"#.to_vec();
        let aad = Aad::from(b"push-credential:v1:user-1");
        let tag = key.seal_in_place_separate_tag(nonce, aad, &mut data).unwrap();
        let expected = "3c20a677a491a474ff2cdeef93d35a5ab5e3b105c142674c0857d5b52d593083236d";
        assert_eq!(digest::to_hex(&data), expected);
        assert_eq!(digest::to_hex(tag.as_ref()), "1698d951db90cb24aa5fda00a9043f85");
    }

    #[test]
    fn sealed_bytes_open_in_their_context_only() {
        let sealer = Sealer::new(&key(1), None, 1, Random::system());
        let sealed = sealer.seal(&CONTEXT, b"secret");
        assert_eq!(sealed.len(), HEADER_LEN + 6 + 16);
        let opened = sealer.open(&CONTEXT, &sealed).unwrap();
        assert_eq!(opened.plaintext.expose_secret(), b"secret");
        assert!(opened.current);
        for other in [
            SealContext { owner: "user-2", ..CONTEXT },
            SealContext { column: "other", ..CONTEXT },
            SealContext { table: "other", ..CONTEXT },
            SealContext { table: "push_credentialsb", column: "undle_sealed", ..CONTEXT },
        ] {
            assert_eq!(sealer.open(&other, &sealed).err(), Some(OpenError::Damaged), "{other:?}");
        }
    }

    #[test]
    fn sealed_bytes_with_a_peer_open_for_that_peer_only() {
        let sealer = Sealer::new(&key(1), None, 1, Random::system());
        let mut sealed = sealer.seal(&TO_PEER, b"secret");
        assert!(sealer.open(&TO_PEER, &sealed).unwrap().current);
        for version in [WITH_PEER, WITHOUT_PEER] {
            // Nor do they open as if they had been sealed without one.
            sealed[0] = version;
            for peer in [Some("192.0.2.1:28083"), Some("192.0.2.2:28082"), Some(""), None] {
                let opened = sealer.open(&SealContext { peer, ..CONTEXT }, &sealed);
                assert_eq!(opened.err(), Some(OpenError::Damaged), "{version} {peer:?}");
            }
        }
        assert_eq!(sealer.open(&TO_PEER, &sealed).err(), Some(OpenError::Damaged));
    }

    #[test]
    fn what_was_sealed_before_there_were_peers_opens_as_not_current() {
        let sealer = Sealer::new(&key(1), None, 1, Random::system());
        let opened = sealer.open(&TO_PEER, &sealer.seal(&CONTEXT, b"secret")).unwrap();
        assert_eq!((opened.plaintext.expose_secret(), opened.current), (&b"secret"[..], false));
        let resealed = sealer.seal(&TO_PEER, opened.plaintext.expose_secret());
        assert!(sealer.open(&TO_PEER, &resealed).unwrap().current);
    }

    #[test]
    fn every_seal_has_its_own_nonce() {
        let sealer = Sealer::new(&key(1), None, 1, Random::system());
        assert_ne!(sealer.seal(&CONTEXT, b"same"), sealer.seal(&CONTEXT, b"same"));
    }

    #[test]
    fn the_previous_key_opens_as_not_current_and_an_older_one_does_not() {
        let old = Sealer::new(&key(1), None, 1, Random::system()).seal(&CONTEXT, b"secret");
        let rotated = Sealer::new(&key(2), Some(&key(1)), 1, Random::system());
        let opened = rotated.open(&CONTEXT, &old).unwrap();
        assert!(!opened.current);
        let resealed = rotated.seal(&CONTEXT, opened.plaintext.expose_secret());
        assert!(Sealer::new(&key(2), None, 1, Random::system()).open(&CONTEXT, &resealed).unwrap().current);
        assert_eq!(
            Sealer::new(&key(3), Some(&key(2)), 1, Random::system()).open(&CONTEXT, &old).err(),
            Some(OpenError::UnknownKey)
        );
    }

    #[test]
    fn any_changed_or_missing_byte_is_refused() {
        let sealer = Sealer::new(&key(1), Some(&key(2)), 1, Random::system());
        for context in [CONTEXT, TO_PEER] {
            let sealed = sealer.seal(&context, b"secret");
            for index in 0..sealed.len() {
                let mut damaged = sealed.clone();
                damaged[index] ^= 1;
                assert!(sealer.open(&context, &damaged).is_err(), "byte {index}");
                assert!(sealer.open(&context, &sealed[..index]).is_err(), "length {index}");
            }
        }
    }
}
