//! The traces that an attack leaves for an operator.

use std::path::Path;

use reqwest::Method;
use serde_json::json;
use yaml_rust2::YamlLoader;

use crate::harness::app::TestApp;

/// Guesses, each from a client network of its own in one /48.
const GUESSES: usize = 400;

/// All that was counted with these labels.
async fn counted(app: &TestApp, labels: &[&str]) -> u64 {
    let text = app.browser().get("/metrics").await.text();
    let is_it =
        |line: &&str| line.starts_with("companion_refusals_total{") && labels.iter().all(|label| line.contains(label));
    text.lines().filter(is_it).map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// An alert rule's expression, and for how long it has to hold.
fn rule(name: &str) -> (String, Option<String>) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/prometheus/alerts.yml");
    let rules = YamlLoader::load_from_str(&std::fs::read_to_string(file).unwrap()).unwrap().remove(0);
    let rules = rules["groups"][0]["rules"].as_vec().unwrap();
    let rule = rules.iter().find(|rule| rule["alert"].as_str() == Some(name)).unwrap();
    (rule["expr"].as_str().unwrap().to_owned(), rule["for"].as_str().map(str::to_owned))
}

#[actix_web::test]
async fn codes_that_are_guessed_from_one_network_ring_an_operator() {
    let app = TestApp::start_with(&["--trusted-proxies=127.0.0.1"]).await;
    let (refused, wrong) = ([r#"code="rate_limited""#, r#"limit="pairing""#], [r#"code="invalid_pairing_code""#]);
    let before = (counted(&app, &refused).await, counted(&app, &wrong).await);
    let browser = app.browser();
    for number in 0..GUESSES {
        let request = browser.request(Method::POST, "/pairing/device/activate");
        let request = request.header("x-forwarded-for", format!("2001:db8:77:{number:x}::1"));
        let answer = browser.clone().send(request.json(&json!({ "code": "LINK-2222" }))).await;
        assert!(matches!(answer.status, 401 | 429), "{}", answer.text());
    }
    let refused = counted(&app, &refused).await - before.0;
    let wrong = counted(&app, &wrong).await - before.1;
    assert!(wrong >= 20 && refused + wrong >= GUESSES as u64, "{wrong} wrong, {refused} not looked up");
    let (expr, held) = rule("CompanionCodesGuessed");
    assert_eq!(held, None, "it rings with the first look at it");
    let part = expr.split(" or ").find(|part| part.contains("pairing|")).unwrap();
    assert!(part.contains(r#"{code="rate_limited", limit=~"pairing|invites|chat-codes"}[2m]"#), "{part}");
    let threshold: u64 = part.rsplit("> ").next().unwrap().trim().parse().unwrap();
    assert!(refused > threshold);
}
