//! The longest wait of a registration, without its pauses.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use url::Url;

use super::*;
use crate::{clients::http, config::BaseUrl, crypto, net};

/// An identity: field 7 is 1, field 8 is 2.
const IDENTITY: [u8; 18] = [0x39, 1, 0, 0, 0, 0, 0, 0, 0, 0x41, 2, 0, 0, 0, 0, 0, 0, 0];

/// Settings with services that are not there.
pub(super) fn settings() -> Registration {
    let url = |text: &str| BaseUrl::from(Url::parse(text).unwrap());
    let text = str::to_owned;
    Registration {
        api_key: "AIza".into(),
        google_url: url("https://google.test"),
        installations_url: url("https://installations.test"),
        expo_url: url("https://expo.test"),
        game_url: url("https://game.test"),
        project: text("project"),
        sender_id: text("97"),
        app_id: text("1:97:android:d6"),
        package: text("a.package"),
        certificate: text("E28D"),
        expo_project: text("expo"),
    }
}

/// Reads a request, and returns its path; none at the end of the connection.
fn read_path(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim().to_lowercase().split_once(": ") {
            Some(("content-length", text)) => length = text.parse().ok()?,
            Some(_) => {}
            None => break,
        }
    }
    reader.read_exact(&mut vec![0; length]).ok()?;
    first.split(' ').nth(1).map(str::to_owned)
}

/// Google, which knows no fresh device; the paths that it was asked for.
fn forgetful_google() -> (BaseUrl, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = asked.clone();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            let Some(path) = read_path(&mut reader) else { continue };
            let body = match path.as_str() {
                "/checkin" => IDENTITY.to_vec(),
                "/c2dm/register3" => b"Error=PHONE_REGISTRATION_ERROR".to_vec(),
                _ => br#"{"authToken":{"token":"a.b.c"}}"#.to_vec(),
            };
            seen.lock().unwrap().push(path);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = reader.get_mut().write_all(&[head.as_bytes(), &body].concat());
        }
    });
    (url.into(), asked)
}

#[actix_web::test]
async fn a_device_that_google_never_recognises_keeps_its_identity_and_is_named() {
    let (google, asked) = forgetful_google();
    let settings = Registration {
        google_url: google.clone(),
        installations_url: google.clone(),
        expo_url: google.clone(),
        game_url: google,
        ..settings()
    };
    crypto::install();
    let http = http::client(net::tls_config(None).unwrap()).unwrap();
    let client =
        RegistrationClient { unit: Duration::ZERO, ..RegistrationClient::new(http, settings, Random::seeded(1)) };
    let mut device = RegisteredDevice::new("device".to_owned());
    device.auth_token = Some("token".into());
    for _ in [RegistrationStep::CheckIn, RegistrationStep::Installation] {
        client.advance(&mut device, Timestamp::UNIX_EPOCH).await.unwrap();
    }
    let failure = client.advance(&mut device, Timestamp::UNIX_EPOCH).await.unwrap_err();
    let expected =
        StepFailure { step: RegistrationStep::PushAddress, fault: StepFault::PhoneRegistration, answer: None };
    assert_eq!(failure, expected);
    assert!(failure.is_transient());
    assert_eq!(device.identity.map(|identity| identity.android_id), Some(1));
    let asked = asked.lock().unwrap();
    let count = |path: &str| asked.iter().filter(|known| *known == path).count();
    // The check-in once more after the first round; in each, one more than there are pauses.
    assert_eq!((count("/checkin"), count("/c2dm/register3")), (2, 22));
}
