//! Where a browser may be sent after sign-in: to the origin of FRONTEND_URL or ADMIN_ORIGIN, nowhere else.

use url::Url;

/// Longest `return` that is read, bytes: as it is given, and as it is written again.
const MAX_LENGTH: usize = 2048;

/// The parameter with the outcome of a sign-in, for the page of ours.
const SIGN_IN: &str = "signIn";

/// The target of the redirect: `requested` when its scheme, host and port are those of `frontend` or `admin`,
/// `frontend` otherwise.
pub fn choose(requested: Option<&str>, frontend: &Url, admin: &Url) -> String {
    let allowed = |url: &Url| [frontend, admin].into_iter().any(|known| same_origin(known, url));
    match requested.and_then(parse).filter(allowed) {
        Some(url) => url.into(),
        None => frontend.as_str().to_owned(),
    }
}

/// The query by which a page without others learns that the user did not sign in.
pub const CANCELLED: &str = "signIn=cancelled";

/// The target, with the outcome that the user did not sign in.
pub fn cancelled(target: &str) -> String {
    let Ok(mut url) = Url::parse(target) else { return target.to_owned() };
    let others: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(name, _)| name != SIGN_IN)
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    url.query_pairs_mut().clear().extend_pairs(others).append_pair(SIGN_IN, "cancelled");
    url.into()
}

/// Reads an absolute http(s) URL on which all browsers agree with our parser: anything that a parser would repair
/// (missing slashes, backslashes, control characters, blanks) is refused.
fn parse(text: &str) -> Option<Url> {
    if text.len() > MAX_LENGTH || text.contains(|c: char| c == '\\' || c.is_whitespace() || c.is_control()) {
        return None;
    }
    let (_, rest) = text.split_once(':')?;
    if !rest.starts_with("//") || rest.starts_with("///") {
        return None;
    }
    let url = Url::parse(text).ok()?;
    let plain = matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
    // An empty user (`https://@host`) leaves no trace in the parsed URL.
    let authority = rest[2..].split(['/', '?', '#']).next().unwrap_or_default();
    // Parsed, it may be longer: it is kept in a cookie.
    (plain && !authority.contains('@') && url.as_str().len() <= MAX_LENGTH).then_some(url)
}

/// True if scheme, host and port are equal; default ports count as written out.
pub fn same_origin(a: &Url, b: &Url) -> bool {
    a.scheme() == b.scheme() && a.host() == b.host() && a.port_or_known_default() == b.port_or_known_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRONTEND: &str = "https://app.example/";

    fn target(requested: &str) -> String {
        let frontend = Url::parse(FRONTEND).unwrap();
        let admin = Url::parse("https://admin.example:8443").unwrap();
        choose(Some(requested), &frontend, &admin)
    }

    #[test]
    fn the_two_configured_origins_are_accepted() {
        for (requested, expected) in [
            ("https://app.example", "https://app.example/"),
            ("https://app.example/map?server=1#team", "https://app.example/map?server=1#team"),
            ("https://APP.example/", "https://app.example/"),
            ("HTTPS://app.example:443/x", "https://app.example/x"),
            ("https://admin.example:8443/users", "https://admin.example:8443/users"),
        ] {
            assert_eq!(target(requested), expected, "{requested}");
        }
    }

    #[test]
    fn a_page_learns_that_the_sign_in_was_cancelled() {
        for (target, sent_to) in [
            ("https://app.example/", "https://app.example/?signIn=cancelled"),
            ("https://app.example/map?server=1#team", "https://app.example/map?server=1&signIn=cancelled#team"),
            ("https://app.example/?signIn=cancelled", "https://app.example/?signIn=cancelled"),
        ] {
            assert_eq!(cancelled(target), sent_to);
        }
    }

    #[test]
    fn anything_else_falls_back_to_the_front_end() {
        for requested in [
            "",
            "/",
            "/map",
            "app.example",
            "//app.example",
            "//evil.test",
            "https:evil.test",
            "https:app.example",
            "https:/app.example",
            "https:///app.example",
            "https://app.example.evil.test",
            "https://app.example@evil.test",
            "https://user@app.example",
            "https://user:pass@app.example",
            "https://@app.example",
            "https://app.example:8443",
            "https://app.example.",
            "http://app.example",
            "http://app.example:443",
            "https://admin.example",
            "https://evil.test",
            "https://evil.test/https://app.example",
            "https://evil.test#@app.example",
            "https://evil.test?https://app.example",
            "https:\\\\app.example",
            "https://evil.test\\@app.example",
            "https://app.example\\@evil.test",
            "https://app.example\t.evil.test",
            "https://app.exa\nmple",
            " https://app.example",
            "https://app.example ",
            "https://app.example\0",
            "javascript:alert(1)",
            "javascript://app.example/%0aalert(1)",
            "data:text/html,x",
            "ftp://app.example",
            "https://xn--",
            "https://",
            "null",
        ] {
            assert_eq!(target(requested), FRONTEND, "{requested:?}");
        }
        assert_eq!(target(&format!("https://app.example/{}", "a".repeat(MAX_LENGTH))), FRONTEND);
    }

    #[test]
    fn without_a_request_it_is_the_front_end() {
        let frontend = Url::parse(FRONTEND).unwrap();
        assert_eq!(choose(None, &frontend, &frontend), FRONTEND);
    }
}
