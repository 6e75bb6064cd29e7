//! Secrets at rest: AES-256-GCM, bound to the place where they are stored.
//!
//! Sealed bytes: version (1) ‖ key id (4) ‖ nonce (12) ‖ ciphertext ‖ tag (16). The associated data is the version,
//! the key id and the context, so that sealed bytes cannot be moved to another row or column.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use secrecy::{SecretSlice, zeroize::Zeroize};

use crate::crypto::{keys::Key32, random::Random};

const VERSION: u8 = 1;
const KEY_ID_LEN: usize = 4;
const HEADER_LEN: usize = 1 + KEY_ID_LEN + NONCE_LEN;

/// Where sealed bytes are stored. None of the three changes while the row exists.
#[derive(Clone, Copy, Debug)]
pub struct SealContext<'a> {
    pub table: &'static str,
    pub column: &'static str,
    /// The key of the row: the id of the paired server, or of the user for a push credential.
    pub owner: &'a str,
}

/// The secret that was sealed.
pub struct Opened {
    pub plaintext: SecretSlice<u8>,
    /// False if the previous key opened it: seal it again and store it, if the row has not changed since it was read.
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
        let nonce: [u8; NONCE_LEN] = self.random.bytes();
        let mut sealed = Vec::with_capacity(HEADER_LEN + plaintext.len() + AES_256_GCM.tag_len());
        sealed.push(VERSION);
        sealed.extend_from_slice(id);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plaintext);
        let tag = key
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(associated_data(context, id)),
                &mut sealed[HEADER_LEN..],
            )
            .expect("plaintexts are far below the cipher's 64 GiB");
        sealed.extend_from_slice(tag.as_ref());
        sealed
    }

    /// Opens what [`seal`](Self::seal) gave for the same context.
    pub fn open(&self, context: &SealContext<'_>, sealed: &[u8]) -> Result<Opened, OpenError> {
        let (id, nonce, ciphertext) = split(sealed).ok_or(OpenError::Damaged)?;
        // The new key first, then the old one; the id saves the attempt with the wrong one.
        let mut error = OpenError::UnknownKey;
        for (candidate, current) in [(Some(&self.current), true), (self.previous.as_ref(), false)] {
            let Some(SealingKey { key, .. }) = candidate.filter(|candidate| candidate.id == id) else { continue };
            let nonce = Nonce::assume_unique_for_key(nonce);
            let mut buffer = ciphertext.to_vec();
            let opened = key.open_in_place(nonce, Aad::from(associated_data(context, &id)), &mut buffer);
            // An exact copy: shrinking the buffer could leave a second one behind in freed memory.
            let plaintext = opened.map(|plaintext| SecretSlice::from(plaintext.to_vec()));
            buffer.zeroize();
            match plaintext {
                Ok(plaintext) => return Ok(Opened { plaintext, current }),
                Err(_) => error = OpenError::Damaged,
            }
        }
        Err(error)
    }
}

fn split(sealed: &[u8]) -> Option<([u8; KEY_ID_LEN], [u8; NONCE_LEN], &[u8])> {
    let (version, rest) = sealed.split_first()?;
    let (id, rest) = rest.split_first_chunk()?;
    let (nonce, ciphertext) = rest.split_first_chunk()?;
    (*version == VERSION).then_some((*id, *nonce, ciphertext))
}

/// Each part with its length before it, so that no two contexts give the same bytes.
fn associated_data(context: &SealContext<'_>, key_id: &[u8; KEY_ID_LEN]) -> Vec<u8> {
    let mut data = vec![VERSION];
    data.extend_from_slice(key_id);
    for part in [context.table, context.column, context.owner] {
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
        SealContext { table: "push_credentials", column: "bundle_sealed", owner: "user-1" };

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
        let sealed = sealer.seal(&CONTEXT, b"secret");
        for index in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[index] ^= 1;
            assert!(sealer.open(&CONTEXT, &damaged).is_err(), "byte {index}");
            assert!(sealer.open(&CONTEXT, &sealed[..index]).is_err(), "length {index}");
        }
    }
}
