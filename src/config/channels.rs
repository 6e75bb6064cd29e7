//! Settings of the channels by which alarms reach users without a dashboard.

use url::{Host, Url};

use crate::{
    config::{
        base_url::BaseUrl,
        check::{Check, given},
    },
    domain::channels::channel_url::is_public_host,
};

/// The channels, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct ChannelSettings {
    /// Contact of the operator for the push services of browsers, a `mailto:` or `https:` URI; BASE_URL if absent
    #[arg(long, env)]
    pub vapid_subject: Option<String>,
    /// `true`: channels may name hosts in private networks, and be in the clear
    #[arg(long, env, default_value = "false")]
    pub allow_private_channel_targets: String,
}

/// Contact and reach of the messages that channels send.
#[derive(Clone, Debug)]
pub struct ChannelPolicy {
    contact: Option<String>,
    pub allows_private: bool,
}

impl ChannelSettings {
    /// Checks them, for a service at this URL.
    pub(super) fn check(self, check: &mut Check, base: Option<&BaseUrl>) -> Option<ChannelPolicy> {
        let contact = given(self.vapid_subject);
        match (&contact, base) {
            (Some(contact), _) if !is_contact(contact) => {
                check.fault("VAPID_SUBJECT", "is not a mailto: or https: URI that people can reach");
            }
            (None, Some(base)) if check.production && !is_contact(base.as_str()) => check.warning(
                "VAPID_SUBJECT",
                "is missing, and BASE_URL is none that people can reach: push services may refuse alarms for browsers",
            ),
            _ => {}
        }
        let allows_private = check.flag("ALLOW_PRIVATE_CHANNEL_TARGETS", &self.allow_private_channel_targets)?;
        Some(ChannelPolicy { contact, allows_private })
    }
}

/// True for a contact that people can reach: Apple's push service takes no other.
fn is_contact(text: &str) -> bool {
    let Ok(uri) = Url::parse(text) else { return false };
    match uri.scheme() {
        "https" => uri.host().is_some_and(|host| is_public_host(&host)),
        "mailto" => uri
            .path()
            .rsplit_once('@')
            .filter(|(name, _)| !name.is_empty())
            .and_then(|(_, host)| Host::parse(host).ok())
            .is_some_and(|host| is_public_host(&host)),
        _ => false,
    }
}

impl ChannelPolicy {
    /// The contact that push services are given, where the service is at this URL.
    pub fn contact(&self, base: &BaseUrl) -> String {
        self.contact.clone().unwrap_or_else(|| base.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The faults and warnings of this contact in production, at this URL.
    fn checked(subject: &str, base: &str) -> (Vec<String>, Vec<String>) {
        let mut check = Check { production: true, ..Check::default() };
        let settings = ChannelSettings {
            vapid_subject: Some(subject.to_owned()),
            allow_private_channel_targets: "false".to_owned(),
        };
        settings.check(&mut check, Some(&Url::parse(base).unwrap().into()));
        (check.faults, check.warnings)
    }

    #[test]
    fn the_contact_is_one_that_push_services_take() {
        let taken =
            ["mailto:admin@example.org", "mailto:a@b.example.org?subject=x", "https://example.org/contact.local", ""];
        for subject in taken {
            assert_eq!(
                checked(subject, "https://api.example.org"),
                (Vec::<String>::new(), Vec::<String>::new()),
                "{subject}"
            );
        }
        for subject in [
            "admin@example.org",
            "http://example.org",
            "https://localhost",
            "https://localhost:8080/x",
            "https://host.local/contact",
            "https://10.0.0.1/",
            "mailto:me@host.local",
            "mailto:me@host.local?cc=a@example.org",
            "mailto:@example.org",
            "mailto:example.org",
        ] {
            assert_eq!(checked(subject, "https://api.example.org").0.len(), 1, "{subject}");
        }
    }

    #[test]
    fn a_service_without_a_contact_whose_own_url_is_none_warns() {
        for base in ["http://localhost:8080", "https://host.local", "https://192.168.0.2"] {
            let (faults, warnings) = checked("", base);
            assert_eq!((faults.len(), warnings.len()), (0, 1), "{base}");
            assert!(checked("mailto:admin@example.org", base).1.is_empty(), "{base}");
        }
    }
}
