//! Messages keep their form, as the nodes of two versions serve side by side while they are upgraded. A field that is added has a
//! default where it is read, and is left out by the version before; a message with a new variant is dropped by that.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;
use crate::domain::server_state::ConnectionState;

/// Contents as a node of any version writes them, each variant at least once. None of these lines changes.
const SAMPLES: &str = r#""watch"
"unwatch"
"wantSnapshot"
{"stateTaken":{"epoch":7,"seq":9}}
{"alarmTaken":{"alarm":3,"sockets":2,"ended":true}}
{"wantAlarm":{"alarm":3}}
{"toBrowsers":{"user":"alice"}}
{"sockets":{"of":[["alice",3]]}}
{"here":{"at":{"epoch":7,"seq":9}}}
{"here":{"at":null}}
"notHere"
{"handOver":{"part":"links:203.0.113.7:28082","number":7}}
{"step":{"epoch":7,"base":9,"changes":[{"section":6,"key":{"text":"i"},"old":null,"new":{"count":1}}]}}
{"step":{"epoch":7,"base":9,"changes":[{"section":2,"key":{"number":7},"old":{"name":"Ann"},"new":null}]}}
{"step":{"epoch":7,"base":9,"changes":[{"section":0,"key":"whole","old":{},"new":{"name":"Two"}}]}}
{"snapshot":{"epoch":7,"seq":9,"changed":[1,2]}}
{"deliver":{"lane":"chat","about":"team mapMarkers"}}
{"askTaken":{"alarm":3}}
{"alarm":{"alarm":3,"about":{"incident":"i","count":1,"update":false,"again":true},"acknowledged":["alice"]}}
{"ask":{"id":1,"question":{"toggle":{"device":"7","value":null,"by":"alice"}}}}
{"ask":{"id":1,"question":{"say":{"text":"hello"}}}}
{"ask":{"id":1,"question":{"sayForChannel":{"line":{"alarm":{"name":"Door","grid":"K17","drill":false}}}}}}
{"ask":{"id":1,"question":{"sayForChannel":{"line":{"event":"Cargo ship"}}}}}
{"ask":{"id":1,"question":"drill"}}
{"ask":{"id":1,"question":{"look":{"camera":"GATE"}}}}
{"ask":{"id":1,"question":{"keep":{"incident":"i","user":"alice","at":"2026-11-29T20:00:00.123Z"}}}}
{"ask":{"id":1,"question":"devices"}}
{"ask":{"id":1,"question":{"raid":{"incident":"i"}}}}
{"ask":{"id":1,"question":{"command":{"command":"pop","texts":{"error.unavailable":"Later."}}}}}
{"ask":{"id":1,"question":"budget"}}
{"ask":{"id":1,"question":{"players":{"players":[["one",{"came":true,"ts":"2026-11-29T20:00:00.123Z","title":"Vex","data":{"name":"Vex"}}]]}}}}
{"ask":{"id":1,"question":{"links":{"servers":["one"]}}}}
{"ask":{"id":1,"question":"online"}}
{"ask":{"id":1,"question":{"pushSession":{"user":"alice"}}}}
{"answer":{"id":1,"answer":"notHere"}}
{"answer":{"id":1,"answer":{"toggled":{"Ok":true}}}}
{"answer":{"id":1,"answer":{"toggled":{"Err":"notASwitch"}}}}
{"answer":{"id":1,"answer":{"said":{"Ok":{"id":"l","author":"Ann","author_id":null,"text":"hello","ts":"2026-11-29T20:00:00.123Z"}}}}}
{"answer":{"id":1,"answer":{"said":{"Err":"noTeam"}}}}
{"answer":{"id":1,"answer":{"saidForChannel":null}}}
{"answer":{"id":1,"answer":{"saidForChannel":{"Ok":null}}}}
{"answer":{"id":1,"answer":{"saidForChannel":{"Err":"no_link"}}}}
{"answer":{"id":1,"answer":{"drilled":{"incident":"i","sockets":2}}}}
{"answer":{"id":1,"answer":{"seen":{"Ok":{"view":{"width":4,"height":4,"near_plane":0.5,"far_plane":250.0},"at":"2026-11-29T20:00:00.123Z","frames":[[3,"AAAA"]],"vertical_fov":65.0,"entities":[{"kind":"Player","position":[1.0,1.0,1.0],"size":[0.5,0.5,0.5],"name":"Ann"}]}}}}}
{"answer":{"id":1,"answer":{"seen":{"Err":"timedOut"}}}}
{"answer":{"id":1,"answer":{"kept":{"Ok":{"id":"i","incident":{"alarmId":"7","alarmName":"Door","x":1.5,"y":null,"grid":"K17","firstAt":"2026-11-29T20:00:00.123Z","lastAt":"2026-11-29T20:00:00.123Z","endedAt":null,"count":1,"paths":["link","push"],"late":false,"drill":false,"acks":{"alice":"2026-11-29T20:00:00.123Z"}},"title":null,"state":"unheard","sockets":0,"heard_at":null}}}}}
{"answer":{"id":1,"answer":"done"}}
{"answer":{"id":1,"answer":{"devices":[{"id":"7","kind":"storageMonitor","name":"Box","label":null,"value":true,"reachable":"no_response","place":{"x":1.5,"y":null,"grid":"K17"},"storage":{"capacity":24,"used":1,"items":[[-5,7,true]],"has_protection":true,"protection_expires_at":null},"turns_back":[false,"2026-11-29T20:00:00.123Z"],"as_of":null}]}}}
{"answer":{"id":1,"answer":{"raid":null}}}
{"answer":{"id":1,"answer":{"lines":["one"]}}}
{"answer":{"id":1,"answer":{"budget":true}}}
{"answer":{"id":1,"answer":{"links":[["one",{"state":"no_credentials","since":"2026-11-29T20:00:00.123Z","reason":"paired again, connecting","next_attempt_at":null}]]}}}
{"answer":{"id":1,"answer":{"online":["alice"]}}}
{"answer":{"id":1,"answer":{"pushSession":{"state":"connected"}}}}"#;

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// True if everything of the sample is in what was written.
fn has(written: &Value, sample: &Value) -> bool {
    match (written, sample) {
        (Value::Object(written), Value::Object(sample)) => {
            sample.iter().all(|(key, sample)| written.get(key).is_some_and(|written| has(written, sample)))
        }
        (Value::Array(written), Value::Array(sample)) => {
            written.len() == sample.len() && written.iter().zip(sample).all(|(written, sample)| has(written, sample))
        }
        _ => written == sample,
    }
}

#[test]
fn messages_of_other_versions_are_read_and_written_in_the_same_form() {
    for content in SAMPLES.lines() {
        let sample = format!(r#"{{"server":"one","from":"there","content":{content}}}"#);
        let read: RemoteMessage = serde_json::from_str(&sample).unwrap_or_else(|error| panic!("{content}: {error}"));
        let written = serde_json::to_string(&read).unwrap();
        assert!(has(&parsed(&written), &parsed(&sample)), "{content} is written as {written}");
    }
}

/// The variants of an enum, as serde names them.
fn variants<T: for<'read> Deserialize<'read>>() -> BTreeSet<String> {
    let refusal = serde_json::from_str::<T>(r#""none""#).err().expect("no variant has this name").to_string();
    refusal.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}

/// The variant of a value.
fn variant(value: &Value) -> String {
    let name = value.as_str().or_else(|| value.as_object()?.keys().next().map(String::as_str));
    name.expect("it is of an enum").to_owned()
}

#[test]
fn each_variant_has_a_sample() {
    let contents: Vec<Value> = SAMPLES.lines().map(parsed).collect();
    let within = |path: [&str; 2]| -> BTreeSet<String> {
        contents.iter().filter_map(|content| content.get(path[0])?.get(path[1])).map(variant).collect()
    };
    assert_eq!(contents.iter().map(variant).collect::<BTreeSet<_>>(), variants::<RemoteContent>());
    assert_eq!(within(["ask", "question"]), variants::<RemoteQuestion>());
    assert_eq!(within(["answer", "answer"]), variants::<RemoteAnswer>());
}

#[test]
fn fields_and_reasons_of_a_newer_version_hide_nothing_else() {
    let link = r#"{"state":"unreachable","since":"2026-11-29T20:00:00.123Z","reason":"in other words","next_attempt_at":null,"for":7}"#;
    let content = format!(r#"{{"answer":{{"id":1,"late":true,"answer":{{"links":[["one",{link}]]}}}}}}"#);
    let message = format!(r#"{{"server":"one","from":"there","sent":1,"content":{content}}}"#);
    let read: RemoteMessage = serde_json::from_str(&message).unwrap();
    let RemoteContent::Answer { answer: RemoteAnswer::Links(links), .. } = read.content else {
        panic!("it is another message")
    };
    assert_eq!((links[0].1.state, links[0].1.reason), (ConnectionState::Unreachable, None));
}

#[test]
fn the_bytes_before_a_message_and_its_parts_stay() {
    let watch = RemoteMessage { server: "one".into(), from: "here".into(), content: RemoteContent::Watch };
    let head = r#"{"server":"one","from":"here","content":"watch"}"#;
    let whole = [&[1, 0, 0, 0, head.len() as u8][..], head.as_bytes(), &b"frame"[..]].concat();
    assert_eq!(watch.write(b"frame", 7), [Bytes::from(whole)]);
    let parts = watch.write(&vec![0; PART_BYTES], 7);
    let before: Vec<&[u8]> = parts.iter().map(|part| &part[..13]).collect();
    let (first, second) = (b"\x02\0\0\0\0\0\0\0\x07\0\0\0\x02", b"\x02\0\0\0\0\0\0\0\x07\0\x01\0\x02");
    assert_eq!(before, [&first[..], &second[..]]);
}
