//! URLs that users give for channels. They are untrusted: no one may make this service call its own network.

use std::net::IpAddr;

use url::{Host, Url};

use crate::domain::public_address::is_public;

/// Longest URL, characters.
pub const MOST_CHARACTERS: usize = 2_048;

/// The reason for which a URL is refused; the text follows the name of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlFault {
    #[error("must be a URL of at most {MOST_CHARACTERS} characters")]
    Malformed,
    #[error("must begin with https://")]
    Scheme,
    #[error("must not have a user name or password")]
    UserInfo,
    #[error("must have port 443, or one from 1024 on")]
    Port,
    #[error("must name a host of the public internet")]
    Host,
}

/// Reads a URL. With `allows_private`, it may name a host of this network, and be in the clear.
pub fn parse(text: &str, allows_private: bool) -> Result<Url, UrlFault> {
    let url = Url::parse(text.trim()).ok().filter(|url| url.as_str().len() <= MOST_CHARACTERS);
    let url = url.ok_or(UrlFault::Malformed)?;
    check(&url, allows_private)?;
    Ok(url)
}

/// Checks all of a URL but its length: a service has its own path below it.
pub fn check(url: &Url, allows_private: bool) -> Result<(), UrlFault> {
    if url.scheme() != "https" && !(allows_private && url.scheme() == "http") {
        return Err(UrlFault::Scheme);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(UrlFault::UserInfo);
    }
    if allows_private {
        return Ok(());
    }
    if !matches!(url.port_or_known_default(), Some(443 | 1_024..)) {
        return Err(UrlFault::Port);
    }
    if url.host().is_some_and(|host| is_public_host(&host)) { Ok(()) } else { Err(UrlFault::Host) }
}

/// True for a host of the public internet, as far as its name or address says so.
pub fn is_public_host<S: AsRef<str>>(host: &Host<S>) -> bool {
    match host {
        Host::Domain(name) => is_public_name(name.as_ref().strip_suffix('.').unwrap_or(name.as_ref())),
        Host::Ipv4(address) => is_public((*address).into()),
        Host::Ipv6(address) => is_public(IpAddr::from(*address).to_canonical()),
    }
}

/// Names that only mean something in one network (RFC 6761, RFC 6762, RFC 8375) are not public.
fn is_public_name(name: &str) -> bool {
    const LOCAL: [&str; 5] = ["localhost", "local", "internal", "home.arpa", "invalid"];
    let is_local =
        |ending: &&str| name.strip_suffix(*ending).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    name.contains('.') && !LOCAL.iter().any(is_local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_the_longest_may_have_a_path_below_it() {
        let mut longest = "https://example.com/".to_owned();
        longest.extend(std::iter::repeat_n('a', MOST_CHARACTERS - longest.len()));
        assert!(parse(&longest, false).is_ok());
        longest.push_str("/message");
        assert_eq!(parse(&longest, false), Err(UrlFault::Malformed));
        assert_eq!(check(&Url::parse(&longest).unwrap(), false), Ok(()));
    }

    #[test]
    fn only_hosts_of_the_public_internet_are_taken() {
        for url in [
            "https://ntfy.sh",
            "https://example.com:8443/hook?key=1",
            "https://93.184.216.34/",
            "https://[2606:2800::1]/",
        ] {
            assert!(parse(url, false).is_ok(), "{url}");
        }
        for (url, fault) in [
            ("", UrlFault::Malformed),
            ("ntfy.sh", UrlFault::Malformed),
            ("http://ntfy.sh", UrlFault::Scheme),
            ("file:///etc/passwd", UrlFault::Scheme),
            ("https://user@example.com", UrlFault::UserInfo),
            ("https://:secret@example.com", UrlFault::UserInfo),
            ("https://example.com:25", UrlFault::Port),
            ("https://example.com:80", UrlFault::Port),
            ("https://localhost", UrlFault::Host),
            ("https://a.localhost.", UrlFault::Host),
            ("https://printer.local", UrlFault::Host),
            ("https://intranet", UrlFault::Host),
            ("https://127.1", UrlFault::Host),
            ("https://0x7f000001/", UrlFault::Host),
            ("https://2130706433", UrlFault::Host),
            ("https://10.0.0.1", UrlFault::Host),
            ("https://169.254.169.254/latest", UrlFault::Host),
            ("https://[::1]", UrlFault::Host),
            ("https://[::ffff:10.0.0.1]", UrlFault::Host),
            ("https://[64:ff9b::a00:1]", UrlFault::Host),
        ] {
            assert_eq!(parse(url, false).map(drop), Err(fault), "{url}");
        }
        assert_eq!(parse(&format!("https://example.com/{}", "x".repeat(2_048)), false), Err(UrlFault::Malformed));
        assert!(parse("http://127.0.0.1:9/x", true).is_ok() && parse("http://a@b.example", true).is_err());
    }
}
