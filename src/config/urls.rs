//! How browsers reach the service and its front ends.

use std::net::{Ipv4Addr, SocketAddr};

use url::Url;

use super::{
    base_url::BaseUrl,
    check::{Check, HTTP, given},
};

/// The public URLs, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct UrlSettings {
    /// Public URL of the HTTP API [default: http://API_LISTEN; required in production]
    #[arg(long, env)]
    pub base_url: Option<String>,
    /// URL of the dashboard [default: BASE_URL; required in production]
    #[arg(long, env)]
    pub frontend_url: Option<String>,
    /// URL of the admin pages [default: FRONTEND_URL]
    #[arg(long, env)]
    pub admin_origin: Option<String>,
}

/// The public URLs as given; those that are absent follow from the others.
#[derive(Debug)]
pub struct Urls {
    base: Option<BaseUrl>,
    frontend: Option<BaseUrl>,
    admin: Option<BaseUrl>,
}

/// How browsers reach the API and the front ends.
#[derive(Clone, Debug)]
pub struct PublicUrls {
    pub base: BaseUrl,
    pub frontend: BaseUrl,
    pub admin: BaseUrl,
}

impl UrlSettings {
    pub(super) fn check(self, check: &mut Check) -> Option<Urls> {
        let faults = check.faults.len();
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
            frontend: url("FRONTEND_URL", self.frontend_url, true),
            admin: url("ADMIN_ORIGIN", self.admin_origin, false),
        };
        (check.faults.len() == faults).then_some(urls)
    }
}

impl Urls {
    /// All URLs, when the API listens at this address.
    pub fn listening_at(self, mut api: SocketAddr) -> PublicUrls {
        if api.ip().is_unspecified() {
            api.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        let own = || BaseUrl::from(Url::parse(&format!("http://{api}")).expect("an address and port make a URL"));
        let base = self.base.unwrap_or_else(own);
        let frontend = self.frontend.unwrap_or_else(|| base.clone());
        let admin = self.admin.unwrap_or_else(|| frontend.clone());
        PublicUrls { base, frontend, admin }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls([base_url, frontend_url, admin_origin]: [Option<&str>; 3]) -> PublicUrls {
        let [base_url, frontend_url, admin_origin] =
            [base_url, frontend_url, admin_origin].map(|url| url.map(Into::into));
        let urls = UrlSettings { base_url, frontend_url, admin_origin }.check(&mut Check::default());
        urls.unwrap().listening_at("0.0.0.0:9090".parse().unwrap())
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
    fn paths_are_appended() {
        let urls = urls([Some("https://api.test"), Some("https://app.test/a/"), None]);
        assert_eq!(urls.base.at("/me"), "https://api.test/me");
        assert_eq!(urls.frontend.at("/me"), "https://app.test/a/me");
    }
}
