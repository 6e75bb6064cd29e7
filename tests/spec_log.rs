//! No secret reaches the log, whatever its level: `tests/spec` logs everything and notes the secrets that it meets, and here
//! the ones are looked for in the other. Cargo runs the tests in the order of their names, these after those. Of the
//! binary, where a test runs it, only what the helper logs and prints is looked at.

use std::{collections::BTreeSet, fs, path::Path};

use aho_corasick::AhoCorasick;
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use companion::crypto::digest::{from_hex, to_hex};
use url::form_urlencoded;

/// The end of a longer secret is looked for, which differs where the first bytes of all are the same.
const LONGEST: usize = 24;

/// The forms in which a log could show it.
fn encodings(secret: &str) -> BTreeSet<Vec<u8>> {
    let mut bytes = vec![secret.as_bytes().to_vec()];
    bytes.extend(from_hex(secret));
    bytes.extend(STANDARD.decode(secret).ok().or_else(|| URL_SAFE_NO_PAD.decode(secret).ok()));
    // An integer, in decimal.
    if let Some(number) = secret.parse::<u64>().ok().or_else(|| secret.parse::<i64>().ok().map(|number| number as u64))
    {
        bytes.extend([number.to_be_bytes().to_vec(), number.to_le_bytes().to_vec(), varint(number)]);
    }
    // Shorter ones are found by chance.
    bytes.retain(|bytes| bytes.len() >= 5);
    let mut found = BTreeSet::new();
    for mut bytes in bytes {
        bytes.drain(..bytes.len().saturating_sub(LONGEST));
        let list = bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
        let hex = to_hex(&bytes);
        let escaped: String = bytes.iter().flat_map(|byte| std::ascii::escape_default(*byte)).map(char::from).collect();
        let percent: String = form_urlencoded::byte_serialize(&bytes).collect();
        let spaced = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
        found.extend([hex.to_uppercase(), hex, list, percent, escaped, spaced].map(String::into_bytes));
        // In base64 it depends on what comes before and after.
        for before in 0..3 {
            let shifted = [vec![0; before], bytes.clone()].concat();
            let (from, whole) = ((before * 8).div_ceil(6), shifted.len() * 8 / 6);
            for text in [STANDARD_NO_PAD.encode(&shifted), URL_SAFE_NO_PAD.encode(&shifted)] {
                found.insert(text.as_bytes()[from..whole].to_vec());
            }
        }
        found.insert(bytes);
    }
    found.retain(|pattern| pattern.len() >= 5);
    found
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Text that `tests/spec/canary.rs` logs with a secret.
const PLANTED: &str = "on purpose: ";

/// Lines that `tests/spec/harness/canary.rs` has written.
fn written(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; run `cargo test --test spec` first", path.display()))
}

#[test]
fn the_spec_logs_no_secret_but_the_one_on_purpose() {
    let outputs = written("spec.outputs");
    let helped = String::from_utf8_lossy(&outputs);
    assert!(helped.contains("a step of a registration failed") && helped.contains("handed over to"), "it logs");
    let log = [written("spec.log"), outputs].concat();
    let secrets = String::from_utf8(written("spec.secrets")).unwrap();
    let secrets: BTreeSet<&str> = secrets.lines().collect();
    let text = String::from_utf8_lossy(&log);
    let traced =
        text.lines().filter(|line| line.contains("\"level\":\"trace\"") || line.contains("\"level\":\"debug\""));
    assert!(secrets.len() > 1_000 && traced.count() > 1_000, "run all of `cargo test --test spec` first");
    assert!(text.contains("signed in") && text.contains("a helper device was paired"), "what is looked for is logged");

    let encoded: Vec<(&str, Vec<u8>)> =
        secrets.iter().flat_map(|secret| encodings(secret).into_iter().map(move |text| (*secret, text))).collect();
    let search = AhoCorasick::new(encoded.iter().map(|(_, text)| text)).unwrap();
    let mut shown = BTreeSet::new();
    for found in search.find_iter(&log) {
        let from = log[..found.start()].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let line = log[from..].split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line).chars().take(600).collect::<String>();
        shown.insert(format!("{}: {line}", encoded[found.pattern()].0));
    }
    let (planted, leaks): (Vec<String>, Vec<String>) = shown.into_iter().partition(|line| line.contains(PLANTED));
    assert!(leaks.is_empty(), "secrets are logged:\n{}", leaks[..leaks.len().min(20)].join("\n"));
    assert_eq!(planted.len(), 1, "the one that is logged on purpose is found: {planted:?}");
}

#[test]
fn a_line_that_a_thread_of_the_database_logs_names_its_request() {
    let log = String::from_utf8(written("spec.log")).unwrap();
    let mut paired = log.lines().filter(|line| line.contains("a helper device was paired")).peekable();
    assert!(paired.peek().is_some(), "run all of `cargo test --test spec` first");
    assert!(paired.all(|line| line.contains("\"request_id\"")));
}

#[test]
fn the_line_of_a_request_names_the_network_of_its_client_and_no_address() {
    let log = String::from_utf8(written("spec.log")).unwrap();
    let lines = log
        .lines()
        .filter(|line| line.contains("\"message\":\"request\"") && line.contains("\"target\":\"companion::"));
    let lines: Vec<serde_json::Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() > 1_000, "run all of `cargo test --test spec` first");
    let network = |line: &serde_json::Value| line["network"].as_str().unwrap_or_else(|| panic!("{line}")).to_owned();
    let networks: BTreeSet<String> = lines.iter().map(network).collect();
    assert!(networks.iter().all(|network| network.ends_with("/24") || network.ends_with("/48")), "{networks:?}");
    // One that tests/spec/operation.rs asks from, through a proxy.
    assert!(networks.contains("203.0.113.0/24"), "{networks:?}");
}

/// `tests/spec/operation.rs` removes one.
#[test]
fn a_journal_that_was_removed_is_an_error_in_the_log() {
    let log = String::from_utf8(written("spec.log")).unwrap();
    let damage = "the journal of alarms was removed, renamed or replaced: it is written again";
    let mut said = log.lines().filter(|line| line.contains(damage)).peekable();
    assert!(said.peek().is_some(), "run all of `cargo test --test spec` first");
    assert!(said.all(|line| line.contains("\"level\":\"error\"")));
}

#[test]
fn a_secret_is_found_in_any_of_these_forms() {
    let secret = "a-secret-1234567";
    let search = AhoCorasick::new(encodings(secret)).unwrap();
    let around = format!("xy{secret}z");
    for form in [
        format!("token={secret}"),
        to_hex(around.as_bytes()),
        to_hex(around.as_bytes()).to_uppercase(),
        STANDARD.encode(format!("{secret}z")),
        STANDARD.encode(format!("x{secret}")),
        URL_SAFE_NO_PAD.encode(&around),
        format!("{:?}", around.as_bytes()),
        format!("{around:?}"),
    ] {
        assert!(search.is_match(&form), "{form}");
    }
    assert!(!search.is_match("a-secret-123456"));
    assert!(AhoCorasick::new(encodings("6000000000000000001")).unwrap().is_match("tag: 53444835ec580001"));
}
