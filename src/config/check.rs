//! Reads the text of single variables and collects what is wrong with them.

use std::{fmt, str::FromStr};

use secrecy::{ExposeSecret as _, SecretString};
use url::{Host, Url};

use crate::config::{base_url::BaseUrl, sources::SourceFindings};

/// The schemes of a URL, without and with encryption.
pub const HTTP: [&str; 2] = ["http", "https"];
/// The schemes of a WebSocket's URL, likewise.
pub const WEB_SOCKET: [&str; 2] = ["ws", "wss"];

/// Collects faults; a check that found one gives `None`.
#[derive(Debug, Default)]
pub struct Check {
    /// Production is stricter: nothing is made up, no placeholder is accepted, and traffic is encrypted.
    pub production: bool,
    /// Nothing is made that is missing.
    pub read_only: bool,
    /// One line each, the variable first.
    pub faults: Vec<String>,
    /// Likewise what the service runs with all the same.
    pub warnings: Vec<String>,
}

impl Check {
    /// Begins with what was found where the variables come from.
    pub fn of_sources(SourceFindings { faults, warnings }: SourceFindings) -> Self {
        Self { faults, warnings, ..Self::default() }
    }

    /// Adds a warning: the variable, then the rest of the sentence.
    pub fn warning(&mut self, variable: &str, what: impl fmt::Display) {
        self.warnings.push(format!("{variable} {what}"));
    }

    /// Adds a fault: the variable, then the rest of the sentence.
    pub fn fault(&mut self, variable: &str, what: impl fmt::Display) {
        self.faults.push(format!("{variable} {what}"));
    }

    /// The parsed text; a fault "is not `what`" otherwise.
    pub fn parse<T: FromStr>(&mut self, variable: &str, text: &str, what: &str) -> Option<T> {
        let value = text.trim().parse().ok();
        if value.is_none() {
            self.fault(variable, format!("is not {what}"));
        }
        value
    }

    /// The value that this word names.
    pub fn choice<T: Copy>(&mut self, variable: &str, text: &str, words: [(&str, T); 2]) -> Option<T> {
        let chosen = words.iter().find(|(word, _)| *word == text.trim()).map(|(_, value)| *value);
        if chosen.is_none() {
            self.fault(variable, format!("is neither {} nor {}", words[0].0, words[1].0));
        }
        chosen
    }

    /// Reads `true`, `false`, `1`, `0` or nothing, which is false; in any case.
    pub fn flag(&mut self, variable: &str, text: &str) -> Option<bool> {
        match text.trim().to_ascii_lowercase().as_str() {
            "1" => Some(true),
            "0" | "" => Some(false),
            text => self.choice(variable, text, [("true", true), ("false", false)]),
        }
    }

    /// A URL of one of these schemes. In production it is encrypted, unless it leads to this machine.
    pub fn url(&mut self, variable: &str, text: &str, [plain, encrypted]: [&str; 2]) -> Option<BaseUrl> {
        let Some(url) = Url::parse(text.trim()).ok().filter(|url| [plain, encrypted].contains(&url.scheme())) else {
            self.fault(variable, format!("is not an {plain} or {encrypted} URL"));
            return None;
        };
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            self.fault(variable, "has a user name, a query or a fragment");
            return None;
        }
        if self.production && url.scheme() == plain && !is_loopback(&url) {
            self.fault(variable, format!("is not {encrypted}, which production requires"));
            return None;
        }
        Some(BaseUrl::from(url))
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Trimmed; `None` if nothing is left.
pub fn given(text: Option<String>) -> Option<String> {
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// As it is; `None` if it is blank.
pub fn given_secret(secret: Option<SecretString>) -> Option<SecretString> {
    secret.filter(|secret| !secret.expose_secret().trim().is_empty())
}
