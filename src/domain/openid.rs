//! Sign-in by OpenID 2.0, as a relying party in stateless mode: the login URL, and what must hold before an answer is
//! accepted.
//!
//! There is one provider and its address is configured: no discovery, no associations, and nothing in the answer
//! decides who is asked. The mandatory checks of a positive assertion are numbered 1 to 14, in their order. Here are 1
//! to 3, 5 to 10 and the reading of 12. The caller does the others: 4 (the login state), 11 (asking the provider), 13
//! (the nonce is used once) and 14 (only then sign in). Sources: OpenID Authentication 2.0 §§ 9 to 11, and the public
//! mistakes of other relying parties.

use chrono::NaiveDateTime;
use url::{Url, form_urlencoded};

use crate::domain::{ids::PlatformId, limits::PROVIDER_CLOCK_SKEW, time::Timestamp};

const NAMESPACE: &str = "http://specs.openid.net/auth/2.0";
const IDENTIFIER_SELECT: &str = "http://specs.openid.net/auth/2.0/identifier_select";
/// Longest query of a callback that is read, bytes.
const MAX_QUERY: usize = 8 * 1024;
/// OpenID Authentication 2.0 § 10.1.
const MAX_NONCE: usize = 255;

/// Fields of every positive assertion.
const EXPECTED: [&str; 9] =
    ["ns", "mode", "op_endpoint", "claimed_id", "identity", "return_to", "response_nonce", "signed", "assoc_handle"];
/// Fields that the signature must cover for the answer to mean anything.
const MUST_BE_SIGNED: [&str; 6] =
    ["op_endpoint", "claimed_id", "identity", "return_to", "response_nonce", "assoc_handle"];

/// Fault of a browser's answer. The text names the check, never the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    #[error("the answer is malformed: {0}")]
    Malformed(&'static str),
    #[error("the answer is not OpenID 2.0")]
    Namespace,
    #[error("the answer comes from another provider")]
    Endpoint,
    #[error("the answer was made for another address")]
    ReturnTo,
    #[error("the signature does not cover the answer")]
    Unsigned,
    #[error("the account is not one of this provider")]
    ClaimedId,
    #[error("the answer is too old, or from the future")]
    Nonce,
    #[error("the provider does not confirm the answer")]
    NotConfirmed,
}

/// The answer that came back with the browser, after the first three checks.
#[derive(Debug)]
pub enum Answer {
    /// The provider claims who the user is; nothing is verified yet.
    Assertion(Assertion),
    /// The user declined, or the provider could not ask the user: no session.
    Declined,
}

/// The parameters of a positive assertion, each exactly once, in their order.
#[derive(Debug)]
pub struct Assertion {
    /// All `openid.*` parameters without the prefix.
    fields: Vec<(String, String)>,
    /// All other parameters of the callback's query.
    others: Vec<(String, String)>,
}

/// An assertion that passed every local check.
#[derive(Debug)]
pub struct Checked {
    pub platform_id: PlatformId,
    /// To be used once: the provider may confirm the same assertion again and again.
    pub nonce: String,
    fields: Vec<(String, String)>,
}

impl Checked {
    /// The form that asks the provider's endpoint whether it made this assertion (check 11).
    pub fn verification(&self) -> Vec<(String, &str)> {
        let value = |name: &str, value| if name == "mode" { "check_authentication" } else { value };
        self.fields.iter().map(|(name, text)| (format!("openid.{name}"), value(name, text.as_str()))).collect()
    }
}

impl Answer {
    /// Checks 1 to 3 on the query string of the callback.
    pub fn parse(query: &str) -> Result<Self, Rejected> {
        // 1: bounded, each parameter once, all expected ones present.
        if query.len() > MAX_QUERY {
            return Err(Rejected::Malformed("it is too long"));
        }
        let mut assertion = Assertion { fields: Vec::new(), others: Vec::new() };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match name.strip_prefix("openid.") {
                Some(field) if assertion.field(field).is_some() => {
                    return Err(Rejected::Malformed("a parameter is repeated"));
                }
                Some(field) => assertion.fields.push((field.to_owned(), value.into_owned())),
                None => assertion.others.push((name.into_owned(), value.into_owned())),
            }
        }
        // 2
        if assertion.field("ns") != Some(NAMESPACE) {
            return Err(Rejected::Namespace);
        }
        // 3
        match assertion.field("mode") {
            Some("id_res") => {}
            Some(_) => return Ok(Self::Declined),
            None => return Err(Rejected::Malformed("the mode is missing")),
        }
        if EXPECTED.iter().any(|name| assertion.field(name).is_none_or(str::is_empty)) {
            return Err(Rejected::Malformed("a parameter is missing or empty"));
        }
        Ok(Self::Assertion(assertion))
    }
}

impl Assertion {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a field that must be there.
    fn expect(&self, name: &'static str) -> Result<&str, Rejected> {
        self.field(name).filter(|value| !value.is_empty()).ok_or(Rejected::Malformed("a parameter is missing or empty"))
    }

    /// Checks 5 to 10. `return_to` is the URL that was sent for this login; check 4, the login state, is the
    /// caller's and comes before.
    pub fn check(self, provider: &OpenIdProvider, return_to: &str, now: Timestamp) -> Result<Checked, Rejected> {
        // 5
        if self.expect("op_endpoint")? != provider.endpoint {
            return Err(Rejected::Endpoint);
        }
        // 6
        if self.expect("return_to")? != return_to || !self.carries_query_of(return_to) {
            return Err(Rejected::ReturnTo);
        }
        // 7: membership, not string equality: order and extra names differ between providers.
        let signed: Vec<&str> = self.expect("signed")?.split(',').collect();
        if !MUST_BE_SIGNED.iter().all(|name| signed.contains(name))
            || !signed.iter().all(|name| self.field(name).is_some())
        {
            return Err(Rejected::Unsigned);
        }
        // 8
        let claimed = self.expect("claimed_id")?;
        if claimed != self.expect("identity")? {
            return Err(Rejected::ClaimedId);
        }
        let platform_id = provider.account(claimed).ok_or(Rejected::ClaimedId)?;
        // 9
        let nonce = self.expect("response_nonce")?.to_owned();
        let made_at = nonce_time(&nonce).ok_or(Rejected::Nonce)?;
        if (now - made_at).abs().to_std().is_ok_and(|distance| distance > PROVIDER_CLOCK_SKEW) {
            return Err(Rejected::Nonce);
        }
        // 10
        self.expect("assoc_handle")?;
        self.expect("sig")?;
        Ok(Checked { platform_id, nonce, fields: self.fields })
    }

    /// Every parameter in the query of `return_to` came back once, with the same value.
    fn carries_query_of(&self, return_to: &str) -> bool {
        let Ok(url) = Url::parse(return_to) else { return false };
        url.query_pairs().all(|(name, value)| {
            let mut found = self.others.iter().filter(|(other, _)| *other == name);
            found.next().is_some_and(|(_, other)| *other == value) && found.next().is_none()
        })
    }
}

/// The instant at the head of a `response_nonce`: `YYYY-MM-DDThh:mm:ssZ`, then printable ASCII.
fn nonce_time(nonce: &str) -> Option<Timestamp> {
    if nonce.len() > MAX_NONCE || !nonce.bytes().all(|b| b.is_ascii_graphic()) {
        return None;
    }
    let (time, rest) = nonce.split_at_checked(20)?;
    let digits_in_place = time.bytes().enumerate().all(|(at, byte)| match at {
        4 | 7 | 10 | 13 | 16 | 19 => !byte.is_ascii_digit(),
        _ => byte.is_ascii_digit(),
    });
    // The tail makes it unique; a bare time would be no nonce.
    let parsed = NaiveDateTime::parse_from_str(time, "%Y-%m-%dT%H:%M:%SZ").ok()?;
    (digits_in_place && !rest.is_empty()).then(|| parsed.into())
}

/// True if the answer to `check_authentication` confirms (check 12): key-value form, each line split at its first
/// colon, keys in any order.
pub fn confirms(body: &str) -> bool {
    let value = |wanted: &str| {
        let mut found = body.split('\n').filter_map(|line| line.split_once(':')).filter(|(key, _)| *key == wanted);
        found.next().map(|(_, value)| value).filter(|_| found.next().is_none())
    };
    value("ns") == Some(NAMESPACE) && value("is_valid") == Some("true")
}

/// The provider that is trusted.
#[derive(Clone, Debug)]
pub struct OpenIdProvider {
    /// The OP endpoint: login page and verification.
    pub endpoint: String,
    /// Beginning of every claimed identifier, before the account number.
    pub claimed_id_prefix: String,
}

impl OpenIdProvider {
    /// The account in `prefix + 17 digits`, with at most one trailing slash.
    fn account(&self, claimed_id: &str) -> Option<PlatformId> {
        let id = claimed_id.strip_prefix(&self.claimed_id_prefix)?;
        let id = id.strip_suffix('/').unwrap_or(id);
        PlatformId::parse(id)
    }

    /// Where to send the browser; it comes back to `return_to`, which is under `realm`.
    pub fn login_url(&self, return_to: &str, realm: &str) -> String {
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs([
                ("openid.ns", NAMESPACE),
                ("openid.mode", "checkid_setup"),
                ("openid.claimed_id", IDENTIFIER_SELECT),
                ("openid.identity", IDENTIFIER_SELECT),
                ("openid.return_to", return_to),
                ("openid.realm", realm),
            ])
            .finish();
        let separator = if self.endpoint.contains('?') { '&' } else { '?' };
        format!("{}{separator}{query}", self.endpoint)
    }
}

#[cfg(test)]
mod tests {
    use chrono::{Duration, TimeZone as _, Utc};

    use super::*;

    const ENDPOINT: &str = "https://id.example/openid/login";
    const RETURN_TO: &str = "https://api.example/auth/platform/callback?state=abc";
    const ID: &str = "76561198000000001";

    fn provider() -> OpenIdProvider {
        OpenIdProvider { endpoint: ENDPOINT.into(), claimed_id_prefix: "https://id.example/openid/id/".into() }
    }

    fn now() -> Timestamp {
        Utc.with_ymd_and_hms(2026, 11, 21, 12, 0, 0).unwrap().into()
    }

    fn good() -> Vec<(&'static str, String)> {
        vec![
            ("state", "abc".into()),
            ("openid.ns", NAMESPACE.into()),
            ("openid.mode", "id_res".into()),
            ("openid.op_endpoint", ENDPOINT.into()),
            ("openid.claimed_id", format!("https://id.example/openid/id/{ID}")),
            ("openid.identity", format!("https://id.example/openid/id/{ID}")),
            ("openid.return_to", RETURN_TO.into()),
            ("openid.response_nonce", "2026-11-21T12:00:00Zab+/=".into()),
            ("openid.assoc_handle", "1234567890".into()),
            ("openid.signed", "signed,op_endpoint,claimed_id,identity,return_to,response_nonce,assoc_handle".into()),
            ("openid.sig", "c2ln".into()),
        ]
    }

    fn with(name: &'static str, value: &str) -> Vec<(&'static str, String)> {
        good().into_iter().map(|(n, v)| if n == name { (n, value.to_owned()) } else { (n, v) }).collect()
    }

    fn check_at(parameters: &[(&str, String)], now: Timestamp) -> Result<Checked, Rejected> {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
        match Answer::parse(&query)? {
            Answer::Assertion(assertion) => assertion.check(&provider(), RETURN_TO, now),
            Answer::Declined => panic!("declined"),
        }
    }

    fn check(parameters: &[(&str, String)]) -> Result<Checked, Rejected> {
        check_at(parameters, now())
    }

    #[test]
    fn a_good_assertion_names_the_account() {
        let checked = check(&good()).unwrap();
        assert_eq!(checked.platform_id.as_str(), ID);
        assert_eq!(checked.nonce, "2026-11-21T12:00:00Zab+/=");
    }

    #[test]
    fn the_list_of_signed_names_may_be_longer_and_in_any_order() {
        let signed = "mode,ns,assoc_handle,response_nonce,return_to,identity,claimed_id,op_endpoint";
        assert!(check(&with("openid.signed", signed)).is_ok());
    }

    #[test]
    fn a_repeated_parameter_is_rejected() {
        for name in ["openid.claimed_id", "openid.mode", "openid.sig"] {
            let mut parameters = good();
            let twin = parameters.iter().find(|(n, _)| *n == name).unwrap().clone();
            parameters.push(twin);
            assert!(matches!(check(&parameters), Err(Rejected::Malformed(_))), "{name}");
        }
    }

    #[test]
    fn a_missing_or_empty_parameter_is_rejected() {
        for (name, _) in good() {
            let without: Vec<_> = good().into_iter().filter(|(n, _)| *n != name).collect();
            assert!(check(&without).is_err(), "{name} missing");
            if name != "openid.mode" {
                assert!(check(&with(name, "")).is_err(), "{name} empty");
            }
        }
    }

    #[test]
    fn an_oversized_query_is_rejected() {
        assert!(matches!(check(&with("openid.sig", &"a".repeat(MAX_QUERY))), Err(Rejected::Malformed(_))));
    }

    #[test]
    fn other_namespaces_and_endpoints_are_rejected() {
        let namespace = "https://specs.openid.net/auth/2.0";
        assert_eq!(check(&with("openid.ns", namespace)).unwrap_err(), Rejected::Namespace);
        for endpoint in
            ["https://evil.test/openid/login", "https://id.example/openid/login/", "http://id.example/openid/login"]
        {
            assert_eq!(check(&with("openid.op_endpoint", endpoint)).unwrap_err(), Rejected::Endpoint);
        }
    }

    #[test]
    fn every_other_mode_is_a_refusal_by_the_user() {
        for mode in ["cancel", "error", "setup_needed", "checkid_setup", ""] {
            let query = form_urlencoded::Serializer::new(String::new())
                .extend_pairs([("openid.ns", NAMESPACE), ("openid.mode", mode)])
                .finish();
            assert!(matches!(Answer::parse(&query), Ok(Answer::Declined)), "{mode}");
        }
    }

    #[test]
    fn return_to_is_the_one_that_was_sent_and_its_query_came_back() {
        let foreign = "https://evil.test/auth/platform/callback?state=abc";
        assert_eq!(check(&with("openid.return_to", foreign)).unwrap_err(), Rejected::ReturnTo);
        assert_eq!(check(&with("state", "other")).unwrap_err(), Rejected::ReturnTo);
        let mut twice = good();
        twice.push(("state", "abc".into()));
        assert_eq!(check(&twice).unwrap_err(), Rejected::ReturnTo);
    }

    #[test]
    fn the_signature_covers_what_matters_and_only_what_is_there() {
        let all = ["op_endpoint", "claimed_id", "identity", "return_to", "response_nonce", "assoc_handle"];
        for left_out in all {
            let signed: Vec<_> = all.into_iter().filter(|name| *name != left_out).collect();
            assert_eq!(check(&with("openid.signed", &signed.join(","))).unwrap_err(), Rejected::Unsigned, "{left_out}");
        }
        let signed = format!("{},invented", all.join(","));
        assert_eq!(check(&with("openid.signed", &signed)).unwrap_err(), Rejected::Unsigned);
    }

    #[test]
    fn only_whole_identifiers_of_the_provider_are_accounts() {
        for claimed in [
            format!("https://evil.test/openid/id/{ID}"),
            format!("https://id.example.evil.test/openid/id/{ID}"),
            format!("https://idXexample/openid/id/{ID}"),
            format!("http://id.example/openid/id/{ID}"),
            format!("https://id.example/openid/id/{ID}0"),
            format!("https://id.example/openid/id/{ID}//"),
            format!("https://id.example/openid/id/{ID}/x"),
            format!("https://id.example/openid/id/{ID}\n"),
            format!("https://evil.test/?https://id.example/openid/id/{ID}"),
            "https://id.example/openid/id/".into(),
            "https://id.example/openid/id/76561197960265727".into(),
            "https://id.example/openid/id/76561202255233024".into(),
            "https://id.example/openid/id/+6561198000000001".into(),
            "https://id.example/openid/id/7656119800000000١".into(),
        ] {
            let mut parameters = with("openid.claimed_id", &claimed);
            for (name, value) in &mut parameters {
                if *name == "openid.identity" {
                    value.clone_from(&claimed);
                }
            }
            assert_eq!(check(&parameters).unwrap_err(), Rejected::ClaimedId, "{claimed:?}");
        }
        let other = "https://id.example/openid/id/76561198000000002";
        assert_eq!(check(&with("openid.claimed_id", other)).unwrap_err(), Rejected::ClaimedId);
        assert_eq!(check(&with("openid.identity", other)).unwrap_err(), Rejected::ClaimedId);
        assert!(provider().account(&format!("https://id.example/openid/id/{ID}/")).is_some());
    }

    #[test]
    fn a_nonce_is_valid_for_five_minutes_either_way() {
        for (seconds, good_then) in [(0, true), (300, true), (301, false), (-300, true), (-301, false)] {
            let then = now() + Duration::seconds(seconds);
            assert_eq!(check_at(&good(), then).is_ok(), good_then, "{seconds}");
        }
        for nonce in [
            "2026-11-21T12:00:00Z",
            "2026-11-21 12:00:00Zx",
            "2026-11-21T12:00:00+x",
            "2026-13-21T12:00:00Zx",
            "+026-11-21T12:00:00Zx",
            "2026-11-21T12:00:00Zé",
            "2026-11-21T12:00:00Za b",
            "é",
        ] {
            assert_eq!(check(&with("openid.response_nonce", nonce)).unwrap_err(), Rejected::Nonce, "{nonce}");
        }
        let long = format!("2026-11-21T12:00:00Z{}", "a".repeat(236));
        assert_eq!(check(&with("openid.response_nonce", &long)).unwrap_err(), Rejected::Nonce);
    }

    #[test]
    fn only_is_valid_true_in_key_value_form_confirms() {
        let ns = format!("ns:{NAMESPACE}");
        for body in [format!("{ns}\nis_valid:true\n"), format!("is_valid:true\n{ns}\n"), format!("is_valid:true\n{ns}")]
        {
            assert!(confirms(&body), "{body}");
        }
        for body in [
            String::new(),
            "is_valid:true\n".into(),
            format!("{ns}\nis_valid:false\n"),
            format!("{ns}\nerror:is_valid:true\n"),
            format!("{ns}\n is_valid:true\n"),
            format!("{ns}\nis_valid: true\n"),
            format!("{ns}\nis_valid:TRUE\n"),
            format!("{ns}\nis_valid:false\nis_valid:true\n"),
            format!("{ns}\nis_valid:true\nis_valid:false\n"),
            "ns:http://specs.openid.net/auth/1.0\nis_valid:true\n".into(),
            format!("<html>{ns}\nis_valid:true</html>"),
        ] {
            assert!(!confirms(&body), "{body}");
        }
    }

    #[test]
    fn the_login_url_asks_for_any_account_and_comes_back_to_us() {
        let url = Url::parse(&provider().login_url(RETURN_TO, "https://api.example/")).unwrap();
        let query: std::collections::HashMap<_, _> = url.query_pairs().into_owned().collect();
        assert_eq!(query["openid.return_to"], RETURN_TO);
        assert_eq!(query["openid.realm"], "https://api.example/");
        assert_eq!(query["openid.claimed_id"], IDENTIFIER_SELECT);
        assert_eq!(query["openid.mode"], "checkid_setup");
        assert!(url.as_str().starts_with(ENDPOINT));
    }
}
