//! Public URLs of the service and its front ends.

use std::net::{Ipv4Addr, SocketAddr};

use url::Url;

use super::{
    base_url::BaseUrl,
    check::{Check, HTTP, WEB_SOCKET, given},
};

/// The public URLs, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct UrlSettings {
    /// Public URL of the HTTP API [default: http://API_LISTEN; required in production]
    #[arg(long, env)]
    pub base_url: Option<String>,
    /// URL of the dashboard [default: BASE_URL, with the bundled dashboard]
    #[arg(long, env)]
    pub frontend_url: Option<String>,
    /// URL of the admin pages [default: FRONTEND_URL]
    #[arg(long, env)]
    pub admin_origin: Option<String>,
    /// Public URL of the relay, without `/v1`, for clients that ask where it is [default: ws://RELAY_LISTEN while BASE_URL is
    /// absent]
    #[arg(long, env)]
    pub relay_url: Option<String>,
}

/// The public URLs as given; those that are absent follow from the others.
#[derive(Clone, Debug)]
pub struct Urls {
    pub(super) base: Option<BaseUrl>,
    frontend: Option<BaseUrl>,
    admin: Option<BaseUrl>,
    relay: Option<BaseUrl>,
}

/// URLs by which browsers reach the API and the front ends.
#[derive(Clone, Debug)]
pub struct PublicUrls {
    pub base: BaseUrl,
    pub frontend: BaseUrl,
    pub admin: BaseUrl,
    /// `None` if its place behind the reverse proxy is not configured.
    pub relay: Option<BaseUrl>,
}

impl UrlSettings {
    pub(super) fn check(self, check: &mut Check) -> Option<Urls> {
        let faults = check.faults.len();
        let relay_url = given(self.relay_url);
        if check.production && relay_url.is_none() {
            check.warning(
                "RELAY_URL",
                "is missing: clients that ask GET /client-config learn of no relay, and the dashboard is not live",
            );
        }
        let relay = relay_url.and_then(|text| check.url("RELAY_URL", &text, WEB_SOCKET));
        if relay.as_ref().is_some_and(|url| url.path().trim_end_matches('/').ends_with("/v1")) {
            check.fault("RELAY_URL", "ends with /v1, which clients put behind it");
        }
        let mut url = |variable, text, required| match given(text) {
            Some(text) => check.url(variable, &text, HTTP),
            None => {
                if required && check.production {
                    check.fault(variable, "is missing");
                }
                None
            }
        };
        let urls = Urls {
            base: url("BASE_URL", self.base_url, true),
            frontend: url("FRONTEND_URL", self.frontend_url, false),
            admin: url("ADMIN_ORIGIN", self.admin_origin, false),
            relay,
        };
        (check.faults.len() == faults).then_some(urls)
    }
}

impl Urls {
    /// URLs under which clients come, with their variables; `None`: it is not given.
    pub fn given(&self) -> [(&'static str, Option<&BaseUrl>); 2] {
        [("BASE_URL", self.base.as_ref()), ("RELAY_URL", self.relay.as_ref())]
    }

    /// All URLs, when the API and the relay listen at these addresses.
    pub fn listening_at(self, api: SocketAddr, relay: SocketAddr) -> PublicUrls {
        let own = |scheme: &str, mut address: SocketAddr| {
            if address.ip().is_unspecified() {
                address.set_ip(Ipv4Addr::LOCALHOST.into());
            }
            BaseUrl::from(Url::parse(&format!("{scheme}://{address}")).expect("an address and port make a URL"))
        };
        let relay = self.relay.or_else(|| self.base.is_none().then(|| own("ws", relay)));
        let base = self.base.unwrap_or_else(|| own("http", api));
        let frontend = self.frontend.unwrap_or_else(|| base.clone());
        let admin = self.admin.unwrap_or_else(|| frontend.clone());
        PublicUrls { base, frontend, admin, relay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls([base_url, frontend_url, admin_origin]: [Option<&str>; 3]) -> PublicUrls {
        let [base_url, frontend_url, admin_origin] =
            [base_url, frontend_url, admin_origin].map(|url| url.map(Into::into));
        let urls = UrlSettings { base_url, frontend_url, admin_origin, relay_url: None }.check(&mut Check::default());
        urls.unwrap().listening_at("0.0.0.0:9090".parse().unwrap(), "0.0.0.0:9091".parse().unwrap())
    }

    #[test]
    fn urls_that_are_absent_follow_from_the_others() {
        let all = |urls: PublicUrls| [urls.base, urls.frontend, urls.admin].map(|url| url.to_string());
        assert_eq!(all(urls([None, None, None])), ["http://127.0.0.1:9090"; 3]);
        let (base, app, admin) = ("https://api.test/v2", "https://app.test", "https://admin.test");
        assert_eq!(all(urls([Some("https://api.test/v2/"), None, Some("")])), [base; 3]);
        assert_eq!(all(urls([Some(base), Some("https://app.test/"), None])), [base, app, app]);
        assert_eq!(all(urls([Some(base), Some(app), Some(admin)])), [base, app, admin]);
    }

    #[test]
    fn the_relay_is_where_it_is_said_to_be_or_where_it_listens_if_the_api_is_there_too() {
        let relay = |urls: PublicUrls| urls.relay.map(|url| url.to_string());
        assert_eq!(relay(urls([None, None, None])).as_deref(), Some("ws://127.0.0.1:9091"));
        assert_eq!(relay(urls([Some("https://api.test"), None, None])), None);
        let relay_url = Some("wss://relay.test/".to_owned());
        let given = UrlSettings { base_url: None, frontend_url: None, admin_origin: None, relay_url };
        let given = given.check(&mut Check::default()).unwrap();
        let address = "127.0.0.1:1".parse().unwrap();
        assert_eq!(relay(given.listening_at(address, address)).as_deref(), Some("wss://relay.test"));
    }

    #[test]
    fn the_relay_is_named_without_its_path_and_missed_in_production() {
        let checked = |relay_url: Option<&str>| {
            let url = |text: &str| Some(text.to_owned());
            let settings = UrlSettings {
                base_url: url("https://api.test"),
                frontend_url: url("https://app.test"),
                admin_origin: None,
                relay_url: relay_url.map(str::to_owned),
            };
            let mut check = Check { production: true, ..Check::default() };
            settings.check(&mut check);
            (check.faults.len(), check.warnings.len())
        };
        assert_eq!(checked(None), (0, 1));
        assert_eq!(checked(Some(" ")), (0, 1));
        assert_eq!(checked(Some("wss://relay.test/v1/")), (1, 0));
        assert_eq!(checked(Some("wss://relay.test/live")), (0, 0));
    }

    #[test]
    fn paths_are_appended() {
        let urls = urls([Some("https://api.test"), Some("https://app.test/a/"), None]);
        assert_eq!(urls.base.at("/me"), "https://api.test/me");
        assert_eq!(urls.frontend.at("/me"), "https://app.test/a/me");
    }
}
