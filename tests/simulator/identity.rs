//! The simulated identity provider.

use std::net::{Ipv4Addr, SocketAddr};

use companion::{
    clock::Clock,
    crypto::random::Random,
    simulator::{identity::IdentityProvider, persons},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::game_client::{DEADLINE, LEADER};

struct Browser {
    addr: SocketAddr,
}

impl Browser {
    /// Head and body of the answer.
    async fn send(&self, method: &str, path: &str, form: &[(&str, &str)]) -> (String, String) {
        self.send_with("", method, path, form).await
    }

    /// With this cookie.
    async fn send_with(&self, cookie: &str, method: &str, path: &str, form: &[(&str, &str)]) -> (String, String) {
        let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let (path, body) =
            if method == "GET" { (format!("{path}?{form}"), String::new()) } else { (path.to_owned(), form) };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nCookie: {cookie}\r\nConnection: close\r\nContent-Length: {}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}",
            self.addr,
            body.len()
        );
        let mut stream = TcpStream::connect(self.addr).await.expect("a listener");
        stream.write_all(request.as_bytes()).await.expect("an open socket");
        let mut answer = Vec::new();
        timeout(DEADLINE, stream.read_to_end(&mut answer)).await.expect("an end in time").expect("an orderly end");
        let answer = String::from_utf8(answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.to_owned(), body.to_owned())
    }
}

fn location(head: &str) -> url::Url {
    let line = head.lines().find_map(|line| line.strip_prefix("location: ")).expect("a redirect");
    line.parse().expect("an address")
}

const RETURN_TO: &str = "http://127.0.0.1:8080/auth/platform/callback?state=abc";

const SETUP: [(&str, &str); 6] = [
    ("openid.ns", "http://specs.openid.net/auth/2.0"),
    ("openid.mode", "checkid_setup"),
    ("openid.claimed_id", "http://specs.openid.net/auth/2.0/identifier_select"),
    ("openid.identity", "http://specs.openid.net/auth/2.0/identifier_select"),
    ("openid.return_to", RETURN_TO),
    ("openid.realm", "http://127.0.0.1:8080/"),
];

async fn provider() -> (IdentityProvider, Browser) {
    let provider =
        IdentityProvider::start((Ipv4Addr::LOCALHOST, 0).into(), persons(), Clock::system(), Random::system())
            .await
            .expect("a free port");
    let addr = provider.addr();
    (provider, Browser { addr })
}

#[actix_web::test]
async fn sign_in_needs_one_click_and_is_confirmed_once() {
    let (provider, browser) = provider().await;
    let (head, page) = browser.send("GET", "/openid/login", &SETUP).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(page.contains("Nox") && page.contains(&LEADER.to_string()));
    let mut clicked = SETUP.to_vec();
    let id = LEADER.to_string();
    clicked.push(("person", &id));
    let (head, _) = browser.send("POST", "/openid/choose", &clicked).await;
    assert!(head.starts_with("HTTP/1.1 302"), "{head}");
    let url = location(&head);
    assert!(url.as_str().starts_with(RETURN_TO));
    let answer: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    let field = |name: &str| answer.iter().find(|pair| pair.0 == name).map(|pair| pair.1.as_str());
    assert_eq!(field("state"), Some("abc"));
    assert_eq!(field("openid.mode"), Some("id_res"));
    assert_eq!(field("openid.op_endpoint"), Some(&*provider.login_url()));
    assert_eq!(field("openid.claimed_id"), Some(&*format!("{}{LEADER}", provider.claimed_id_prefix())));
    assert_eq!(field("openid.identity"), field("openid.claimed_id"));
    assert_eq!(field("openid.return_to"), Some(RETURN_TO));

    let check = |change: Option<(&'static str, &'static str)>| {
        answer
            .iter()
            .filter(|(name, _)| name.starts_with("openid."))
            .map(|(name, value)| match change {
                Some((changed, to)) if changed == name => (name.as_str(), to),
                _ if name == "openid.mode" => (name.as_str(), "check_authentication"),
                _ => (name.as_str(), value.as_str()),
            })
            .collect::<Vec<_>>()
    };
    let forged = Some(("openid.claimed_id", "http://127.0.0.1/openid/id/76561198000000002"));
    for (change, expected) in [
        (forged, "is_valid:false\n"),
        (Some(("openid.signed", "signed")), "is_valid:false\n"),
        (Some(("openid.mode", "id_res")), "error:Unknown mode\n"),
        (None, "is_valid:true\n"),
        (None, "is_valid:false\n"),
    ] {
        let (_, body) = browser.send("POST", "/openid/login", &check(change)).await;
        assert!(body.contains(expected), "{change:?}: {body}");
    }
}

#[actix_web::test]
async fn several_people_sign_in_each_as_themselves() {
    let (provider, browser) = provider().await;
    let people = persons();
    assert!(people.len() > 2);
    let (_, page) = browser.send("GET", "/openid/login", &SETUP).await;
    let mut answers = Vec::new();
    for person in &people {
        assert!(page.contains(&person.name));
        let mut clicked = SETUP.to_vec();
        let id = person.platform_id.to_string();
        clicked.push(("person", &id));
        let (head, _) = browser.send("POST", "/openid/choose", &clicked).await;
        answers.push(location(&head));
    }
    // All have signed in before the first of them is confirmed.
    for (person, answer) in people.iter().zip(answers) {
        let mut pairs: Vec<(String, String)> = answer.query_pairs().into_owned().collect();
        let claimed = format!("{}{}", provider.claimed_id_prefix(), person.platform_id);
        assert!(pairs.contains(&("openid.claimed_id".to_owned(), claimed)));
        pairs.retain(|(name, _)| name.starts_with("openid."));
        pairs
            .iter_mut()
            .filter(|(name, _)| name == "openid.mode")
            .for_each(|(_, mode)| *mode = "check_authentication".into());
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let (_, body) = browser.send("POST", "/openid/login", &pairs).await;
        assert!(body.contains("is_valid:true\n"), "{}: {body}", person.name);
    }
}

#[actix_web::test]
async fn sign_in_can_be_cancelled_or_refused() {
    let (_provider, browser) = provider().await;
    let mut cancelled = SETUP.to_vec();
    cancelled.push(("person", ""));
    let (head, _) = browser.send("POST", "/openid/choose", &cancelled).await;
    assert!(location(&head).query_pairs().any(|pair| pair == ("openid.mode".into(), "cancel".into())));
    let mut immediate = SETUP;
    immediate[1].1 = "checkid_immediate";
    let (head, _) = browser.send("GET", "/openid/login", &immediate).await;
    assert!(location(&head).query_pairs().any(|pair| pair == ("openid.mode".into(), "setup_needed".into())));
    for (at, value) in [
        (0, "http://specs.openid.net/auth/1.0"),
        (1, "associate"),
        (2, "http://elsewhere.test/"),
        (4, "javascript:alert(1)"),
        (5, "http://elsewhere.test/"),
    ] {
        let mut request = SETUP;
        request[at].1 = value;
        let (head, _) = browser.send("GET", "/openid/login", &request).await;
        assert!(head.starts_with("HTTP/1.1 400"), "{value}: {head}");
    }
    let mut hostile = SETUP;
    hostile[4].1 = "http://127.0.0.1:8080/\"><script>alert(1)</script>";
    let (_, page) = browser.send("GET", "/openid/login", &hostile).await;
    assert!(!page.contains("<script>"));
}

#[actix_web::test]
async fn profiles_have_names_and_need_a_key() {
    let (_provider, browser) = provider().await;
    let ids = format!("{LEADER},76561198999999999");
    let path = "/ISteamUser/GetPlayerSummaries/v0002/";
    let (_, body) = browser.send("GET", path, &[("key", "demo"), ("steamids", &ids)]).await;
    let answer: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(answer["response"]["players"].as_array().map(Vec::len), Some(1));
    assert_eq!(answer["response"]["players"][0]["personaname"], "Nox");
    let (head, _) = browser.send("GET", path, &[("steamids", &ids)]).await;
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
}

#[actix_web::test]
async fn a_one_time_link_signs_its_browser_in_without_a_click_and_no_other() {
    let (provider, browser) = provider().await;
    let link: url::Url = provider.one_time_link("http://127.0.0.1:8080/auth/platform").parse().unwrap();
    let (head, _) = browser.send("GET", link.path(), &[]).await;
    assert_eq!(location(&head).as_str(), "http://127.0.0.1:8080/auth/platform");
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    let cookie = cookie.split(';').next().unwrap();

    let (_, form) = browser.send_with("simulated_link=other", "GET", "/openid/login", &SETUP).await;
    assert!(form.contains("<button"), "another browser has to choose: {form}");
    let (head, _) = browser.send_with(cookie, "GET", "/openid/login", &SETUP).await;
    assert!(location(&head).query().unwrap().contains(&LEADER.to_string()), "{head}");
    let (_, form) = browser.send_with(cookie, "GET", "/openid/login", &SETUP).await;
    assert!(form.contains("<button"), "the next sign-in is asked for: {form}");

    let (head, _) = browser.send("GET", link.path(), &[]).await;
    assert!(!head.contains("set-cookie"), "{head}");
    assert_eq!(location(&head).as_str(), "http://127.0.0.1:8080/", "a used link still leads to the page");
}
