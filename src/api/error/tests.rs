use super::*;

#[test]
fn a_problem_has_the_fields_of_the_contract() {
    let problem = ApiError::invalid("port", "must be between 1 and 65535").problem("r-1");
    let json = serde_json::to_value(&problem).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "type": "urn:companion:problem:invalid_request",
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
    let problem = ApiError::Internal("postgres://user:secret@host".into()).problem("r-1");
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
