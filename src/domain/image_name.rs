//! The name of an uploaded image: the SHA-256 of its bytes and its format. Different bytes have different names, so
//! what has a name never changes.

use std::{collections::BTreeSet, fmt};

/// Where images are served, before their name.
pub const IMAGE_PATH: &str = "/images/";
/// Hex digits of a SHA-256.
const DIGITS: usize = 64;

/// A format that is taken and served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UploadFormat {
    Png,
    WebP,
}

impl UploadFormat {
    const ALL: [Self; 2] = [Self::Png, Self::WebP];

    fn extension(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::WebP => "webp",
        }
    }

    /// The `Content-Type`.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::WebP => "image/webp",
        }
    }
}

/// `<64 hex digits>.png` or `….webp`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageName {
    text: String,
    format: UploadFormat,
}

impl ImageName {
    /// The name of bytes with this digest, lower-case hex.
    pub fn new(sha256: &str, format: UploadFormat) -> Self {
        Self { text: format!("{sha256}.{}", format.extension()), format }
    }

    /// Reads a name; nothing else passes, so it is safe as a file name and as a key.
    pub fn parse(text: &str) -> Option<Self> {
        let (digest, extension) = text.split_once('.')?;
        let format = UploadFormat::ALL.into_iter().find(|format| format.extension() == extension)?;
        let is_digest = digest.len() == DIGITS && digest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        is_digest.then(|| Self { text: text.to_owned(), format })
    }

    /// Reads the name in the URL or path of an image.
    pub fn of_url(url: &str) -> Option<Self> {
        Self::parse(url.rsplit_once(IMAGE_PATH)?.1)
    }

    /// The path under which the image is served.
    pub fn path(&self) -> String {
        format!("{IMAGE_PATH}{}", self.text)
    }

    /// The name with its extension, as in a URL.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The format, by the extension.
    pub fn format(&self) -> UploadFormat {
        self.format
    }

    /// The names in the image URLs of a text.
    pub fn all_in(text: &str) -> BTreeSet<Self> {
        let name = |rest: &str| {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(rest.len());
            // A sentence may end after the URL.
            Self::parse(rest[..end].trim_end_matches('.'))
        };
        text.match_indices(IMAGE_PATH).filter_map(|(at, path)| name(&text[at + path.len()..])).collect()
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_digest_and_a_format_are_a_name() {
        let digest = "0123456789abcdef".repeat(4);
        let name = ImageName::parse(&format!("{digest}.webp")).unwrap();
        assert_eq!(name, ImageName::new(&digest, UploadFormat::WebP));
        assert_eq!((name.format().media_type(), name.path()), ("image/webp", format!("/images/{digest}.webp")));
        let upper = digest.to_uppercase();
        for other in [
            String::new(),
            digest.clone(),
            format!("{digest}.svg"),
            format!("{digest}.png.png"),
            format!("{digest}a.png"),
            format!("{upper}.png"),
            format!("../{}.png", &digest[3..]),
            format!("{digest}.png\0"),
        ] {
            assert_eq!(ImageName::parse(&other), None, "{other:?}");
        }
    }

    #[test]
    fn images_are_found_in_markdown() {
        let [a, b] = ["a", "b"].map(|digit| ImageName::new(&digit.repeat(64), UploadFormat::Png));
        let text = format!(
            "![one](https://api.test{}) and {}. <img src=\"{}\"> ![x](/images/short.png) /images/",
            a.path(),
            b.path(),
            a.path()
        );
        assert_eq!(ImageName::all_in(&text), [a.clone(), b].into());
        assert_eq!(ImageName::of_url(&format!("https://api.test/v2{}", a.path())), Some(a));
        assert_eq!(ImageName::of_url("https://evil.test/a.png"), None);
    }
}
