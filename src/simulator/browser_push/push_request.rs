//! A push as a sender makes it (RFC 8030, RFC 8291), checked as strictly as the strictest service there is.

use actix_web::HttpRequest;
use serde::Serialize;

use super::refused::RefusedPush;

/// Longest body, bytes.
const LONGEST_BODY: usize = 4_096;
/// Longest time that a push is kept, seconds: four weeks.
const LONGEST_TTL: u32 = 2_419_200;
/// Most characters of a topic.
const LONGEST_TOPIC: usize = 32;
const URGENCIES: [&str; 4] = ["very-low", "low", "normal", "high"];
/// The parts of the body's header: salt, size of a record, length of the key, key.
const KEY_LENGTH_AT: usize = 20;
const KEY_LENGTH: usize = 65;
const HEADER: usize = KEY_LENGTH_AT + 1 + KEY_LENGTH;
/// The shortest record: a byte that ends it, and its tag.
const SHORTEST_RECORD: usize = 17;
const SMALLEST_RECORD_SIZE: u32 = 18;

/// Lifetime, urgency and topic of a push (RFC 8030), from the headers of its request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PushHeaders {
    /// Seconds.
    pub ttl: u32,
    pub urgency: String,
    /// A push of the same topic takes the place of one that still waits.
    pub topic: Option<String>,
}

impl PushHeaders {
    /// Reads and checks the headers.
    pub fn read(req: &HttpRequest) -> Result<Self, RefusedPush> {
        let header = |name: &str| req.headers().get(name).map(|value| value.to_str().unwrap_or_default());
        let malformed = RefusedPush::Malformed;
        let ttl = header("ttl").ok_or(malformed("there is no TTL"))?;
        let ttl = ttl.parse().ok().filter(|ttl| (1..=LONGEST_TTL).contains(ttl)).ok_or(malformed("TTL is no time"))?;
        let urgency = header("urgency").unwrap_or("normal").to_owned();
        let topic = header("topic").map(str::to_owned);
        match &topic {
            _ if !URGENCIES.contains(&&*urgency) => Err(malformed("Urgency is none of the four")),
            Some(topic) if !is_topic(topic) => Err(malformed("Topic is not base64url of at most 32 characters")),
            _ if header("content-encoding") != Some("aes128gcm") => Err(malformed("Content-Encoding is not aes128gcm")),
            _ => Ok(Self { ttl, urgency, topic }),
        }
    }
}

/// Apple's service decodes a topic: no base64 has the length 1 modulo 4.
fn is_topic(topic: &str) -> bool {
    let of_alphabet = topic.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    of_alphabet && (1..=LONGEST_TOPIC).contains(&topic.len()) && topic.len() % 4 != 1
}

/// Checks the layout of an encrypted body: one record for one key.
pub fn check_body(body: &[u8]) -> Result<(), RefusedPush> {
    if body.len() > LONGEST_BODY {
        return Err(RefusedPush::TooLarge);
    }
    let malformed = RefusedPush::Malformed;
    let (header, record) = body.split_at_checked(HEADER).ok_or(malformed("the body has no header"))?;
    let record_size =
        header[KEY_LENGTH_AT - 4..KEY_LENGTH_AT].iter().fold(0, |size, byte| size << 8 | u32::from(*byte));
    match () {
        () if usize::from(header[KEY_LENGTH_AT]) != KEY_LENGTH => {
            Err(malformed("the key of the body has another length"))
        }
        () if header[KEY_LENGTH_AT + 1] != 4 => Err(malformed("the key of the body is no uncompressed point")),
        () if record_size < SMALLEST_RECORD_SIZE => Err(malformed("the size of a record is too small")),
        () if record.len() < SHORTEST_RECORD => Err(malformed("the record is too short")),
        () if record.len() > record_size as usize => Err(malformed("there is more than one record")),
        () => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    const GOOD: [(&str, &str); 4] =
        [("ttl", "60"), ("urgency", "high"), ("topic", "abcd"), ("content-encoding", "aes128gcm")];

    fn read(change: (&'static str, &str)) -> Result<PushHeaders, RefusedPush> {
        let mut request = TestRequest::post();
        for (name, value) in GOOD {
            let value = if name == change.0 { change.1 } else { value };
            if !value.is_empty() {
                request = request.insert_header((name, value));
            }
        }
        PushHeaders::read(&request.to_http_request())
    }

    #[test]
    fn headers_that_one_service_refuses_are_refused() {
        let good = read(("", "")).unwrap();
        assert_eq!((good.ttl, &*good.urgency, good.topic.as_deref()), (60, "high", Some("abcd")));
        assert_eq!(read(("topic", "")).unwrap().topic, None);
        let long = "x".repeat(33);
        for (name, value) in [
            ("ttl", ""),
            ("ttl", "0"),
            ("ttl", "2419201"),
            ("ttl", "soon"),
            ("urgency", "urgent"),
            ("topic", "abcde"),
            ("topic", "a+b"),
            ("topic", &long),
            ("content-encoding", "aesgcm"),
            ("content-encoding", ""),
        ] {
            assert!(matches!(read((name, value)), Err(RefusedPush::Malformed(_))), "{name}: {value}");
        }
    }

    #[test]
    fn a_body_is_one_record_for_one_key() {
        let body = |length: usize, change: (usize, u8)| {
            let mut body = vec![0; length];
            body[18] = 16;
            (body[20], body[21]) = (65, 4);
            body[change.0] = change.1;
            check_body(&body)
        };
        assert_eq!((body(4_096, (0, 0)), body(HEADER + SHORTEST_RECORD, (0, 0))), (Ok(()), Ok(())));
        assert_eq!(body(4_097, (0, 0)), Err(RefusedPush::TooLarge));
        for (length, change) in [(102, (0, 0)), (200, (20, 64)), (200, (21, 2)), (200, (18, 0))] {
            assert!(matches!(body(length, change), Err(RefusedPush::Malformed(_))), "{length} {change:?}");
        }
        assert!(matches!(check_body(&[0; 50]), Err(RefusedPush::Malformed(_))));
    }
}
