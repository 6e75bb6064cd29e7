use std::time::Duration;

use url::Url;

use super::*;

fn base() -> BaseUrl {
    Url::parse("https://api.example/companion").unwrap().into()
}

#[test]
fn a_problem_has_the_fields_of_the_contract() {
    let problem = ApiError::invalid("port", "must be between 1 and 65535").problem("r-1", &base());
    let json = serde_json::to_value(&problem).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "type": "https://api.example/companion/problems/invalid_request",
            "title": "Invalid request",
            "status": 400,
            "detail": "Some values are missing or not allowed; see `errors`.",
            "code": "invalid_request",
            "requestId": "r-1",
            "errors": [{ "path": "port", "message": "must be between 1 and 65535" }],
        })
    );
}

#[test]
fn no_document_shows_an_internal_cause() {
    let problem = ApiError::Internal("postgres://user:secret@host".into()).problem("r-1", &base());
    assert!(!serde_json::to_string(&problem).unwrap().contains("secret"));
}

#[test]
fn a_spent_limit_says_when_to_try_again() {
    let limit = LimitReport {
        policy: "sign-in",
        quota: 30,
        window: Duration::from_secs(60),
        remaining: 0,
        reset: Duration::from_millis(1_200),
    };
    assert_eq!(limit.item(), "\"sign-in\";r=0;t=2");
    assert_eq!(limit.policy_item(), "\"sign-in\";q=30;w=60");
    let response = ApiError::RateLimited(limit).error_response();
    assert_eq!(response.headers().get("retry-after").unwrap(), "2");
}

#[test]
fn paths_of_a_report_are_wire_names() {
    assert_eq!(camel_case("player_token"), "playerToken");
    assert_eq!(camel_case("items[0].expires_at"), "items[0].expiresAt");
}

#[test]
fn who_is_refused_learns_what_to_present() {
    let challenge = |error: ApiError| {
        let response = error.error_response();
        response.headers().get("www-authenticate").map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(challenge(ApiError::DeadToken).unwrap(), "Bearer realm=\"companion\", error=\"invalid_token\"");
    for error in [ApiError::Unauthenticated, ApiError::NoDeviceToken, ApiError::InvalidPairingCode] {
        assert_eq!(error.status_code(), 401);
        assert!(challenge(error).is_some_and(|value| value.contains("realm=\"companion\"")));
    }
    assert_eq!(challenge(ApiError::NotFound), None);
}

#[test]
fn a_condition_that_fails_has_a_status_of_its_own() {
    assert_eq!(ApiError::PreconditionFailed.status_code(), 412);
    assert_eq!(ApiError::Conflict.status_code(), 409);
    assert_eq!(ApiError::Framework(StatusCode::URI_TOO_LONG).status_code(), 414);
}
