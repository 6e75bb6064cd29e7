//! Settings of the channels by which alarms reach users without a dashboard.

use crate::config::{
    base_url::BaseUrl,
    check::{Check, given},
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

/// The channels.
#[derive(Clone, Debug)]
pub struct ChannelPolicy {
    contact: Option<String>,
    pub allows_private: bool,
}

impl ChannelSettings {
    pub(super) fn check(self, check: &mut Check) -> Option<ChannelPolicy> {
        let contact = given(self.vapid_subject);
        let is_contact = |text: &String| {
            let local = ["localhost", ".local", ".invalid"].iter().any(|ending| text.ends_with(ending));
            (text.starts_with("mailto:") && text.contains('@') || text.starts_with("https://")) && !local
        };
        // Apple's push service takes no other.
        if contact.as_ref().is_some_and(|contact| !is_contact(contact)) {
            check.fault("VAPID_SUBJECT", "is not a mailto: or https: URI that people can reach");
        }
        let allows_private = check.flag("ALLOW_PRIVATE_CHANNEL_TARGETS", &self.allow_private_channel_targets)?;
        Some(ChannelPolicy { contact, allows_private })
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

    fn checked(subject: &str) -> (Option<ChannelPolicy>, Vec<String>) {
        let mut check = Check::default();
        let settings = ChannelSettings {
            vapid_subject: Some(subject.to_owned()),
            allow_private_channel_targets: "false".to_owned(),
        };
        (settings.check(&mut check), check.faults)
    }

    #[test]
    fn the_contact_is_one_that_push_services_take() {
        for subject in ["mailto:admin@example.org", "https://example.org/contact", ""] {
            assert_eq!(checked(subject).1, Vec::<String>::new(), "{subject}");
        }
        for subject in ["admin@example.org", "http://example.org", "https://localhost", "mailto:me@host.local"] {
            assert_eq!(checked(subject).1.len(), 1, "{subject}");
        }
    }
}
