//! Encryption of a Web Push message for one browser: RFC 8291 over RFC 8188, in one record.

use base64::{
    Engine as _,
    alphabet::URL_SAFE,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use ring::{
    aead::{AES_128_GCM, Aad, LessSafeKey, MAX_TAG_LEN, NONCE_LEN, Nonce, UnboundKey},
    agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral},
    error::Unspecified,
    hkdf::{HKDF_SHA256, KeyType, Prk, Salt},
    rand::SystemRandom,
};

use crate::crypto::random::system_random;

/// An uncompressed point of P-256, bytes.
pub const POINT_LEN: usize = 65;
/// The secret that a browser shares with us, bytes.
pub const AUTH_LEN: usize = 16;
/// Largest message that every push service takes: 4096 bytes, less header, tag and the byte that ends the record.
pub const MOST: usize = 4096 - HEADER_LEN - MAX_TAG_LEN - 1;

const SALT_LEN: usize = 16;
const RECORD_SIZE: u32 = 4096;
const HEADER_LEN: usize = SALT_LEN + 4 + 1 + POINT_LEN;
/// Messages are padded to a multiple of this, so that their length says little.
const PADDED_TO: usize = 256;
/// The byte that ends the last record.
const LAST_RECORD: u8 = 2;

/// Browsers send base64url, some with padding.
const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The keys of a browser's subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrowserKeys {
    public: [u8; POINT_LEN],
    auth: [u8; AUTH_LEN],
}

impl BrowserKeys {
    /// Reads `p256dh` and `auth` of a subscription, base64url. None if they are no keys.
    pub fn parse(p256dh: &str, auth: &str) -> Option<Self> {
        let public: [u8; POINT_LEN] = BASE64URL.decode(p256dh).ok()?.try_into().ok()?;
        let auth = BASE64URL.decode(auth).ok()?.try_into().ok()?;
        let keys = Self { public, auth };
        // A point that is not on the curve is refused by the agreement alone.
        keys.agree(&system_random()).ok().map(|_| keys)
    }

    /// A fresh key pair's public point, and what it shares with the browser.
    fn agree(&self, random: &SystemRandom) -> Result<([u8; POINT_LEN], Vec<u8>), Unspecified> {
        let private = EphemeralPrivateKey::generate(&ECDH_P256, random)?;
        let own = private.compute_public_key()?.as_ref().try_into().map_err(|_| Unspecified)?;
        let browser = UnparsedPublicKey::new(&ECDH_P256, self.public);
        agree_ephemeral(private, &browser, |shared| (own, shared.to_vec()))
    }

    /// Encrypts a message of at most [`MOST`] bytes: the body of the request. None if it is longer.
    pub fn encrypt(&self, message: &[u8], salt: [u8; SALT_LEN]) -> Option<Vec<u8>> {
        let padded = (message.len() + 1).next_multiple_of(PADDED_TO) - 1;
        let mut record = message.to_vec();
        record.push(LAST_RECORD);
        record.resize(padded.min(MOST).max(message.len()) + 1, 0);
        let (own, shared) = self.agree(&system_random()).ok()?;
        self.seal(record, &own, &shared, salt).filter(|_| message.len() <= MOST)
    }

    /// Everything after the agreement: `record` is the message with its end and padding.
    fn seal(&self, record: Vec<u8>, own: &[u8; POINT_LEN], shared: &[u8], salt: [u8; SALT_LEN]) -> Option<Vec<u8>> {
        let mut input = [0; 32];
        let prk = Salt::new(HKDF_SHA256, &self.auth).extract(shared);
        expand(&prk, &[b"WebPush: info\0", &self.public, own], &mut input)?;
        let prk = Salt::new(HKDF_SHA256, &salt).extract(&input);
        let (mut key, mut nonce) = ([0; 16], [0; NONCE_LEN]);
        expand(&prk, &[b"Content-Encoding: aes128gcm\0"], &mut key)?;
        expand(&prk, &[b"Content-Encoding: nonce\0"], &mut nonce)?;
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).ok()?);
        let mut sealed = record;
        let nonce = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(nonce, Aad::empty(), &mut sealed).ok()?;
        let mut body = Vec::with_capacity(HEADER_LEN + sealed.len());
        body.extend(salt);
        body.extend(RECORD_SIZE.to_be_bytes());
        body.push(POINT_LEN as u8);
        body.extend(own);
        body.extend(sealed);
        Some(body)
    }
}

/// A length of key material.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand(prk: &Prk, info: &[&[u8]], output: &mut [u8]) -> Option<()> {
    prk.expand(info, Length(output.len())).and_then(|material| material.fill(output)).ok()
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    /// RFC 8291, section 5 and appendix A.
    const P256DH: &str = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
    const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";
    const OWN: &str = "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8";
    const SHARED: &str = "kyrL1jIIOHEzg3sM2ZWRHDRB62YACZhhSlknJ672kSs";
    const SALT: &str = "DGv6ra1nlYgDCS1FRnbzlw";
    const BODY: &str = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6Tlz\
                        AC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN";

    fn bytes<const N: usize>(text: &str) -> [u8; N] {
        URL_SAFE_NO_PAD.decode(text).unwrap().try_into().unwrap()
    }

    #[test]
    fn the_vector_of_the_rfc_comes_out() {
        let keys = BrowserKeys::parse(P256DH, AUTH).unwrap();
        let record = [b"When I grow up, I want to be a watermelon".as_slice(), &[LAST_RECORD]].concat();
        let body = keys.seal(record, &bytes(OWN), &bytes::<32>(SHARED), bytes(SALT)).unwrap();
        assert_eq!(URL_SAFE_NO_PAD.encode(body), BODY);
    }

    #[test]
    fn keys_are_read_with_and_without_padding_and_only_if_they_are_keys() {
        assert_eq!(BrowserKeys::parse(&format!("{P256DH}="), &format!("{AUTH}==")), BrowserKeys::parse(P256DH, AUTH));
        let mut off_curve: [u8; POINT_LEN] = bytes(P256DH);
        off_curve[64] ^= 1;
        let compressed = URL_SAFE_NO_PAD.encode(&off_curve[..33]);
        for p256dh in [&URL_SAFE_NO_PAD.encode(off_curve), &compressed, "", "+/", "AAAA"] {
            assert_eq!(BrowserKeys::parse(p256dh, AUTH), None, "{p256dh}");
        }
        assert_eq!(BrowserKeys::parse(P256DH, "AAAA"), None);
    }

    #[test]
    fn a_message_is_padded_and_has_a_bound() {
        let keys = BrowserKeys::parse(P256DH, AUTH).unwrap();
        let length = |message: usize| keys.encrypt(&vec![b'x'; message], [7; SALT_LEN]).map(|body| body.len());
        let overhead = HEADER_LEN + MAX_TAG_LEN;
        assert_eq!((length(0), length(255)), (Some(overhead + 256), Some(overhead + 256)));
        assert_eq!((length(256), length(MOST)), (Some(overhead + 512), Some(4096)));
        assert_eq!(length(MOST + 1), None);
    }
}
