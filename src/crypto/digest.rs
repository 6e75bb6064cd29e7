//! SHA-256, for secrets of which only a fingerprint is kept, and for names of content.

use std::io::{self, Read};

use ring::digest::{Context, SHA256, digest};

/// SHA-256 of `data`, 64 lower-case hex digits.
pub fn sha256_hex(data: &[u8]) -> String {
    to_hex(&sha256(data))
}

/// SHA-256 of `data`, 32 bytes.
pub fn sha256(data: &[u8]) -> Vec<u8> {
    digest(&SHA256, data).as_ref().to_vec()
}

/// SHA-256 of what comes in parts.
#[derive(Clone)]
pub struct PartsDigest(Context);

impl Default for PartsDigest {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl PartsDigest {
    /// Adds a part; parts have no borders in the digest.
    pub fn update(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    /// The digest of the parts so far, 64 lower-case hex digits.
    pub fn hex(&self) -> String {
        to_hex(self.0.clone().finish().as_ref())
    }
}

/// Passes on what it reads, and takes the digest of it.
pub struct DigestingReader<R> {
    inner: R,
    digest: PartsDigest,
    bytes: u64,
}

impl<R> DigestingReader<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, digest: PartsDigest::default(), bytes: 0 }
    }

    /// Number of bytes that were read, and their SHA-256 in lower-case hex.
    pub fn finish(self) -> (u64, String) {
        (self.bytes, self.digest.hex())
    }
}

impl<R: Read> Read for DigestingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.digest.update(&buffer[..read]);
        self.bytes += read as u64;
        Ok(read)
    }
}

/// Lower-case hex.
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes of an even number of hex digits of either case; `None` for anything else.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|value| value as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-2, appendix B.1.
    #[test]
    fn sha256_of_abc() {
        assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let mut parts = PartsDigest::default();
        parts.update(b"a");
        parts.update(b"bc");
        assert_eq!(parts.hex(), sha256_hex(b"abc"));
    }

    #[test]
    fn hex_reads_back_and_refuses_what_is_not_hex() {
        assert_eq!(to_hex(&[0, 0x1f, 0xff]), "001fff");
        assert_eq!(from_hex("001fFF"), Some(vec![0, 0x1f, 0xff]));
        for bad in ["0", "0g", "é", "+1"] {
            assert_eq!(from_hex(bad), None, "{bad}");
        }
    }
}
