//! Settings: every variable of the process, read once by the command line and checked as a whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    error, fmt, fs,
    io::{self, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    str::FromStr,
    thread,
};

use secrecy::{ExposeSecret as _, SecretString};
use url::{Host, Url};

use crate::{
    crypto::{keys::Key32, random::Random},
    domain::ids::PlatformId,
};

/// The variables as given, each also a flag. An empty value counts as absent, except where a default is named here.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// `development` makes missing secrets itself; `production` refuses to start without them
    #[arg(long, env, default_value = "development")]
    pub app_env: String,
    /// Directory for the SQLite file, uploads and secrets made in development
    #[arg(long, env, default_value = "data")]
    pub data_dir: PathBuf,
    /// `sqlite:PATH` or `postgres://…` [default: companion.db in the data directory]
    #[arg(long, env, hide_env_values = true)]
    pub database_url: Option<SecretString>,

    /// Address and port of the HTTP API
    #[arg(long, env, default_value = "127.0.0.1:8080")]
    pub api_listen: String,
    /// Address and port of the WebSocket relay
    #[arg(long, env, default_value = "127.0.0.1:8081")]
    pub relay_listen: String,
    /// Worker threads of each listener [default: one per core]
    #[arg(long, env)]
    pub workers: Option<String>,
    /// Comma-separated addresses of reverse proxies whose X-Forwarded-For is believed
    #[arg(long, env)]
    pub trusted_proxies: Option<String>,

    /// Public URL of the HTTP API [default: http://API_LISTEN; required in production]
    #[arg(long, env)]
    pub base_url: Option<String>,
    /// Public URL of the relay, ws or wss [default: ws://RELAY_LISTEN; required in production]
    #[arg(long, env)]
    pub relay_url: Option<String>,
    /// URL of the dashboard [default: BASE_URL; required in production]
    #[arg(long, env)]
    pub frontend_url: Option<String>,
    /// URL of the admin pages [default: FRONTEND_URL]
    #[arg(long, env)]
    pub admin_origin: Option<String>,
    /// Comma-separated account ids (SteamID64) of admins; while empty, the admin routes are off
    #[arg(long, env)]
    pub admin_platform_ids: Option<String>,

    /// Secret of sessions and relay tokens, random, at least 32 bytes
    #[arg(long, env, hide_env_values = true)]
    pub session_secret: Option<SecretString>,
    /// Salt to SESSION_SECRET, at least 16 bytes
    #[arg(long, env, hide_env_values = true)]
    pub session_salt: Option<SecretString>,
    /// Key that seals stored credentials: 32 bytes as base64 or 64 hex digits
    #[arg(long, env, hide_env_values = true)]
    pub creds_encryption_key: Option<SecretString>,
    /// The key before the last rotation, while rows sealed with it remain
    #[arg(long, env, hide_env_values = true)]
    pub creds_encryption_key_prev: Option<SecretString>,

    /// OpenID 2.0 endpoint of the identity provider
    #[arg(long, env, default_value = "https://steamcommunity.com/openid/login")]
    pub identity_login_url: String,
    /// What stands before the account id in a claimed identifier
    #[arg(long, env, default_value = "https://steamcommunity.com/openid/id/")]
    pub identity_claimed_id_prefix: String,
    /// Base URL of the identity provider's Web API
    #[arg(long, env, default_value = "https://api.steampowered.com")]
    pub platform_api_url: String,
    /// Key of the Web API; without it users have no names and pictures
    #[arg(long, env, hide_env_values = true)]
    pub platform_api_key: Option<SecretString>,

    /// Base URL of the payment provider
    #[arg(long, env, default_value = "https://api.stripe.com")]
    pub payment_api_url: String,
    /// Secret API key of the payment provider; payments need all five PAYMENT_ secrets and prices, or none
    #[arg(long, env, hide_env_values = true)]
    pub payment_secret_key: Option<SecretString>,
    /// Secret with which the payment provider signs webhooks
    #[arg(long, env, hide_env_values = true)]
    pub payment_webhook_secret: Option<SecretString>,
    /// Price id of tier SCOUT
    #[arg(long, env)]
    pub payment_price_scout: Option<String>,
    /// Price id of tier OPERATOR
    #[arg(long, env)]
    pub payment_price_operator: Option<String>,
    /// Price id of tier OVERLORD
    #[arg(long, env)]
    pub payment_price_overlord: Option<String>,

    /// Base URL of the chat platform
    #[arg(long, env, default_value = "https://discord.com/api/v10")]
    pub chat_api_url: String,
    /// Base URL of the player-statistics service
    #[arg(long, env, default_value = "https://api.battlemetrics.com")]
    pub player_stats_url: String,
    /// Host and port of the push service
    #[arg(long, env, default_value = "mtalk.google.com:5228")]
    pub push_address: String,
    /// PEM file with further certificates that outgoing TLS trusts
    #[arg(long, env)]
    pub extra_ca_file: Option<PathBuf>,

    /// What stands before the hyphen of a pairing code
    #[arg(long, env, default_value = "LINK")]
    pub pairing_code_prefix: String,
    /// Proxy for game servers that are not reached directly, for example wss://companion-rust.facepunch.com/game
    #[arg(long, env)]
    pub game_proxy_url: Option<String>,
    /// Keep the link to a game server `always`, or only while somebody is `subscribed`
    #[arg(long, env, default_value = "always")]
    pub game_link_policy: String,
    /// `true`: connect to game servers in private networks too
    #[arg(long, env, default_value = "false")]
    pub allow_private_game_servers: String,
    /// `true`: refuse what a user's tier does not include
    #[arg(long, env, default_value = "false")]
    pub enforce_tiers: String,
}

/// The checked settings.
#[derive(Clone, Debug)]
pub struct Config {
    pub environment: Environment,
    pub data_dir: PathBuf,
    pub database: Database,
    pub listen: Listen,
    pub urls: PublicUrls,
    pub admins: BTreeSet<PlatformId>,
    pub secrets: Secrets,
    pub identity: Identity,
    pub payments: Payments,
    pub chat_api_url: String,
    pub player_stats_url: String,
    /// `host:port`.
    pub push_address: String,
    pub extra_ca_file: Option<PathBuf>,
    /// Upper-case letters and digits.
    pub pairing_code_prefix: String,
    pub game: Game,
    pub enforce_tiers: bool,
}

/// Where the process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Environment {
    Development,
    Production,
}

/// Which database to use.
#[derive(Clone, Debug)]
pub enum Database {
    Sqlite(PathBuf),
    /// A libpq URL, possibly with a password.
    Postgres(SecretString),
}

/// The listeners.
#[derive(Clone, Debug)]
pub struct Listen {
    pub api: SocketAddr,
    pub relay: SocketAddr,
    pub workers: NonZeroUsize,
    pub trusted_proxies: Vec<IpAddr>,
}

/// How browsers reach us and the front ends; without trailing slash.
#[derive(Clone, Debug)]
pub struct PublicUrls {
    pub base: String,
    pub relay: String,
    pub frontend: String,
    pub admin: String,
}

/// What only this service knows.
#[derive(Clone, Debug)]
pub struct Secrets {
    pub session_secret: SecretString,
    pub session_salt: SecretString,
    pub credentials_key: Key32,
    pub credentials_key_previous: Option<Key32>,
}

/// The identity provider.
#[derive(Clone, Debug)]
pub struct Identity {
    pub login_url: String,
    /// Compared as it stands, with its trailing slash.
    pub claimed_id_prefix: String,
    pub platform_api_url: String,
    pub platform_api_key: Option<SecretString>,
}

/// The payment provider.
#[derive(Clone, Debug)]
pub struct Payments {
    pub api_url: String,
    /// `None`: payments are off.
    pub account: Option<PaymentAccount>,
}

/// Our account at the payment provider.
#[derive(Clone, Debug)]
pub struct PaymentAccount {
    pub secret_key: SecretString,
    pub webhook_secret: SecretString,
    pub price_scout: String,
    pub price_operator: String,
    pub price_overlord: String,
}

/// The links to game servers.
#[derive(Clone, Debug)]
pub struct Game {
    pub proxy_url: Option<String>,
    pub link_policy: GameLinkPolicy,
    pub allow_private_servers: bool,
}

/// When the link to a paired server is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GameLinkPolicy {
    Always,
    /// Only while a client watches.
    Subscribed,
}

/// Everything that is wrong with the settings, one line each.
#[derive(Debug)]
pub struct Faults(Vec<String>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl error::Error for Faults {}

/// A fresh value for each secret that the service makes for itself, as (variable, value).
pub fn fresh_secrets() -> [(&'static str, String); 3] {
    let random = Random::system();
    [
        ("SESSION_SECRET", random.base64url::<32>()),
        ("SESSION_SALT", random.base64url::<16>()),
        ("CREDS_ENCRYPTION_KEY", Key32::random(&random).to_base64()),
    ]
}

impl Config {
    /// Writes the ports that were really bound into the addresses, and into the URLs that follow from them, where the
    /// settings said port 0.
    pub fn bound(&mut self, api: SocketAddr, relay: SocketAddr) {
        let (api_before, relay_before) = (format!("http://{}", self.listen.api), format!("ws://{}", self.listen.relay));
        for url in [&mut self.urls.base, &mut self.urls.frontend, &mut self.urls.admin] {
            if *url == api_before {
                *url = format!("http://{api}");
            }
        }
        if self.urls.relay == relay_before {
            self.urls.relay = format!("ws://{relay}");
        }
        (self.listen.api, self.listen.relay) = (api, relay);
    }

    /// Checks all settings and says all that is wrong. In development, makes the secrets that are missing, keeps them
    /// in `secrets.env` of the data directory and finds them there the next time.
    pub fn check(settings: Settings) -> Result<Config, Faults> {
        let environment = match settings.app_env.as_str() {
            "development" => Some(Environment::Development),
            "production" => Some(Environment::Production),
            _ => None,
        };
        let mut check = Check { production: environment == Some(Environment::Production), faults: Vec::new() };
        if environment.is_none() {
            check.fault("APP_ENV", "is neither development nor production");
        }

        let api = check.parse::<SocketAddr>("API_LISTEN", &settings.api_listen, "an address and port");
        let relay = check.parse::<SocketAddr>("RELAY_LISTEN", &settings.relay_listen, "an address and port");
        let reachable = |scheme: &str, address: Option<SocketAddr>| {
            let mut address = address?;
            if address.ip().is_unspecified() {
                address.set_ip(Ipv4Addr::LOCALHOST.into());
            }
            Some(format!("{scheme}://{address}"))
        };
        let base = check.public_url("BASE_URL", settings.base_url, reachable("http", api), Scheme::Http);
        let relay_url = check.public_url("RELAY_URL", settings.relay_url, reachable("ws", relay), Scheme::WebSocket);
        let frontend = check.public_url("FRONTEND_URL", settings.frontend_url, base.clone(), Scheme::Http);
        let admin = match given(settings.admin_origin) {
            Some(url) => check.url("ADMIN_ORIGIN", &url, Scheme::Http),
            None => frontend.clone(),
        };

        let database = check.database(settings.database_url, &settings.data_dir);
        let secrets = check.secrets(
            &settings.data_dir,
            [settings.session_secret, settings.session_salt, settings.creds_encryption_key],
            settings.creds_encryption_key_prev,
        );
        let admins = check.list("ADMIN_PLATFORM_IDS", settings.admin_platform_ids, "account ids", |id| {
            ((1..=20).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_digit())).then(|| PlatformId::from(id))
        });
        let trusted_proxies =
            check.list("TRUSTED_PROXIES", settings.trusted_proxies, "IP addresses", |address| address.parse().ok());
        let workers = match given(settings.workers) {
            Some(workers) => check.parse("WORKERS", &workers, "a number from 1"),
            None => Some(thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)),
        };

        let login_url = check.url("IDENTITY_LOGIN_URL", &settings.identity_login_url, Scheme::Http);
        check.url("IDENTITY_CLAIMED_ID_PREFIX", &settings.identity_claimed_id_prefix, Scheme::Http);
        let platform_api_url = check.url("PLATFORM_API_URL", &settings.platform_api_url, Scheme::Http);
        let payment_api_url = check.url("PAYMENT_API_URL", &settings.payment_api_url, Scheme::Http);
        let chat_api_url = check.url("CHAT_API_URL", &settings.chat_api_url, Scheme::Http);
        let player_stats_url = check.url("PLAYER_STATS_URL", &settings.player_stats_url, Scheme::Http);
        let account = check.payment_account(
            [settings.payment_secret_key, settings.payment_webhook_secret],
            [settings.payment_price_scout, settings.payment_price_operator, settings.payment_price_overlord],
        );
        if !is_host_and_port(&settings.push_address) {
            check.fault("PUSH_ADDRESS", "is not host:port");
        }
        let extra_ca_file = settings.extra_ca_file.filter(|path| !path.as_os_str().is_empty());
        if let Some(path) = &extra_ca_file
            && let Err(error) = fs::File::open(path)
        {
            check.fault("EXTRA_CA_FILE", format!("cannot be read: {error}"));
        }

        let pairing_code_prefix = settings.pairing_code_prefix.trim().to_ascii_uppercase();
        if !(1..=16).contains(&pairing_code_prefix.len())
            || !pairing_code_prefix.bytes().all(|byte| byte.is_ascii_alphanumeric())
        {
            check.fault("PAIRING_CODE_PREFIX", "is not 1 to 16 letters and digits");
        }
        let proxy_url =
            given(settings.game_proxy_url).and_then(|url| check.url("GAME_PROXY_URL", &url, Scheme::WebSocket));
        let link_policy = match settings.game_link_policy.as_str() {
            "always" => GameLinkPolicy::Always,
            "subscribed" => GameLinkPolicy::Subscribed,
            _ => {
                check.fault("GAME_LINK_POLICY", "is neither always nor subscribed");
                GameLinkPolicy::Always
            }
        };
        let allow_private_servers = check.flag("ALLOW_PRIVATE_GAME_SERVERS", &settings.allow_private_game_servers);
        let enforce_tiers = check.flag("ENFORCE_TIERS", &settings.enforce_tiers);

        let faults = check.faults;
        let config = (|| {
            Some(Config {
                environment: environment?,
                data_dir: settings.data_dir,
                database: database?,
                listen: Listen { api: api?, relay: relay?, workers: workers?, trusted_proxies },
                urls: PublicUrls { base: base?, relay: relay_url?, frontend: frontend?, admin: admin? },
                admins: admins.into_iter().collect(),
                secrets: secrets?,
                identity: Identity {
                    login_url: login_url?,
                    claimed_id_prefix: settings.identity_claimed_id_prefix,
                    platform_api_url: platform_api_url?,
                    platform_api_key: given_secret(settings.platform_api_key),
                },
                payments: Payments { api_url: payment_api_url?, account },
                chat_api_url: chat_api_url?,
                player_stats_url: player_stats_url?,
                push_address: settings.push_address,
                extra_ca_file,
                pairing_code_prefix,
                game: Game { proxy_url, link_policy, allow_private_servers },
                enforce_tiers,
            })
        })();
        config.filter(|_| faults.is_empty()).ok_or(Faults(faults))
    }
}

/// Makes the directory and its parents where missing, for this user only.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[derive(Clone, Copy)]
enum Scheme {
    Http,
    WebSocket,
}

/// Collects faults; a check that found one gives `None`.
struct Check {
    production: bool,
    faults: Vec<String>,
}

impl Check {
    fn fault(&mut self, variable: &str, what: impl fmt::Display) {
        self.faults.push(format!("{variable} {what}"));
    }

    fn parse<T: FromStr>(&mut self, variable: &str, text: &str, what: &str) -> Option<T> {
        let value = text.trim().parse().ok();
        if value.is_none() {
            self.fault(variable, format!("is not {what}"));
        }
        value
    }

    fn flag(&mut self, variable: &str, text: &str) -> bool {
        match text.trim().to_ascii_lowercase().as_str() {
            "true" | "1" => true,
            "false" | "0" | "" => false,
            _ => {
                self.fault(variable, "is neither true nor false");
                false
            }
        }
    }

    fn list<T>(
        &mut self,
        variable: &str,
        list: Option<String>,
        what: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Vec<T> {
        let list = list.unwrap_or_default();
        let entries: Option<Vec<T>> =
            list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(read).collect();
        if entries.is_none() {
            self.fault(variable, format!("is not a comma-separated list of {what}"));
        }
        entries.unwrap_or_default()
    }

    /// Without trailing slash. In production, encrypted, except to this machine.
    fn url(&mut self, variable: &str, text: &str, scheme: Scheme) -> Option<String> {
        let (plain, encrypted) = match scheme {
            Scheme::Http => ("http", "https"),
            Scheme::WebSocket => ("ws", "wss"),
        };
        let text = text.trim();
        let Some(url) = Url::parse(text).ok().filter(|url| [plain, encrypted].contains(&url.scheme())) else {
            self.fault(variable, format!("is not an {plain} or {encrypted} URL"));
            return None;
        };
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            self.fault(variable, "has a user name, a query or a fragment");
            return None;
        }
        if self.production && url.scheme() == plain && !is_loopback(&url) {
            self.fault(variable, format!("is not {encrypted}, which production asks for"));
            return None;
        }
        Some(url.as_str().trim_end_matches('/').to_owned())
    }

    fn public_url(
        &mut self,
        variable: &str,
        text: Option<String>,
        default: Option<String>,
        scheme: Scheme,
    ) -> Option<String> {
        match given(text) {
            Some(text) => self.url(variable, &text, scheme),
            None if self.production => {
                self.fault(variable, "is missing");
                None
            }
            None => default,
        }
    }

    fn database(&mut self, url: Option<SecretString>, data_dir: &Path) -> Option<Database> {
        let Some(url) = given_secret(url) else { return Some(Database::Sqlite(data_dir.join("companion.db"))) };
        let text = url.expose_secret();
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            // In memory, every connection would have a database of its own.
            if path.is_empty() || path.contains(":memory:") {
                self.fault("DATABASE_URL", "names no SQLite file");
                return None;
            }
            return Some(Database::Sqlite(PathBuf::from(path)));
        }
        // A mistyped scheme must not turn into a new, empty file. The URL may hold a password, so it is not repeated.
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Some(Database::Postgres(url));
        }
        self.fault("DATABASE_URL", "is neither sqlite:PATH nor a postgres:// URL");
        None
    }

    fn payment_account(
        &mut self,
        secrets: [Option<SecretString>; 2],
        prices: [Option<String>; 3],
    ) -> Option<PaymentAccount> {
        let [secret_key, webhook_secret] = secrets.map(given_secret);
        let [scout, operator, overlord] = prices.map(given);
        let variables = [
            ("PAYMENT_SECRET_KEY", secret_key.is_some()),
            ("PAYMENT_WEBHOOK_SECRET", webhook_secret.is_some()),
            ("PAYMENT_PRICE_SCOUT", scout.is_some()),
            ("PAYMENT_PRICE_OPERATOR", operator.is_some()),
            ("PAYMENT_PRICE_OVERLORD", overlord.is_some()),
        ];
        if variables.iter().any(|(_, given)| *given) {
            for (variable, _) in variables.iter().filter(|(_, given)| !given) {
                self.fault(variable, "is missing, while other PAYMENT_ variables are set");
            }
        }
        for (variable, secret) in [("PAYMENT_SECRET_KEY", &secret_key), ("PAYMENT_WEBHOOK_SECRET", &webhook_secret)] {
            if self.production && secret.as_ref().is_some_and(|secret| is_placeholder(secret.expose_secret())) {
                self.fault(variable, "is a placeholder");
            }
        }
        Some(PaymentAccount {
            secret_key: secret_key?,
            webhook_secret: webhook_secret?,
            price_scout: scout?,
            price_operator: operator?,
            price_overlord: overlord?,
        })
    }

    /// `settings`: SESSION_SECRET, SESSION_SALT, CREDS_ENCRYPTION_KEY, in the order of [`fresh_secrets`].
    fn secrets(
        &mut self,
        data_dir: &Path,
        settings: [Option<SecretString>; 3],
        previous: Option<SecretString>,
    ) -> Option<Secrets> {
        let mut settings = settings.map(given_secret);
        if !self.production
            && settings.iter().any(Option::is_none)
            && let Err(error) = fill_from_data_dir(&mut settings, data_dir)
        {
            self.fault("DATA_DIR", format!("does not take the development secrets: {error}"));
            return None;
        }
        let mut each = settings.into_iter().zip(fresh_secrets()).map(|(secret, (variable, _))| {
            match &secret {
                None => self.fault(variable, "is missing"),
                Some(secret) if self.production && is_placeholder(secret.expose_secret()) => {
                    self.fault(variable, "is a placeholder; `companion gen-secrets` makes a value");
                }
                Some(_) => {}
            }
            secret
        });
        let (session_secret, session_salt, key) = (each.next()?, each.next()?, each.next()?);
        drop(each);
        for (variable, secret, least) in [("SESSION_SECRET", &session_secret, 32), ("SESSION_SALT", &session_salt, 16)]
        {
            if self.production && secret.as_ref().is_some_and(|secret| secret.expose_secret().len() < least) {
                self.fault(variable, format!("is shorter than {least} bytes"));
            }
        }
        let current = key.and_then(|key| self.key("CREDS_ENCRYPTION_KEY", &key));
        let previous = given_secret(previous).and_then(|key| self.key("CREDS_ENCRYPTION_KEY_PREV", &key));
        if previous.is_some() && previous == current {
            self.fault("CREDS_ENCRYPTION_KEY_PREV", "is equal to CREDS_ENCRYPTION_KEY");
        }
        Some(Secrets {
            session_secret: session_secret?,
            session_salt: session_salt?,
            credentials_key: current?,
            credentials_key_previous: previous,
        })
    }

    fn key(&mut self, variable: &str, text: &SecretString) -> Option<Key32> {
        let key = Key32::parse(text.expose_secret());
        if key.is_none() {
            self.fault(variable, "is not 32 bytes as base64 (44 characters) or 64 hex digits");
        }
        key
    }
}

fn given(text: Option<String>) -> Option<String> {
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn given_secret(secret: Option<SecretString>) -> Option<SecretString> {
    secret.filter(|secret| !secret.expose_secret().trim().is_empty())
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn is_host_and_port(text: &str) -> bool {
    text.rsplit_once(':')
        .is_some_and(|(host, port)| Host::parse(host).is_ok() && port.parse::<u16>().is_ok_and(|port| port != 0))
}

/// Words of example files, and values with hardly any different characters.
fn is_placeholder(secret: &str) -> bool {
    const WORDS: [&str; 8] =
        ["changeme", "change-me", "change_me", "placeholder", "replace", "example", "your-", "your_"];
    let lower = secret.to_ascii_lowercase();
    WORDS.iter().any(|word| lower.contains(word)) || lower.bytes().collect::<BTreeSet<u8>>().len() < 6
}

/// Takes what is missing from `secrets.env` in the data directory, and first makes there what that lacks too.
fn fill_from_data_dir(secrets: &mut [Option<SecretString>; 3], data_dir: &Path) -> io::Result<()> {
    create_private_dir(data_dir)?;
    let path = data_dir.join("secrets.env");
    let mut stored: BTreeMap<String, String> = match fs::read_to_string(&path) {
        Ok(text) => text
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(variable, value)| (variable.trim().to_owned(), value.trim().to_owned()))
            .collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
        Err(error) => return Err(error),
    };
    let before = stored.len();
    for (secret, (variable, fresh)) in secrets.iter_mut().zip(fresh_secrets()) {
        if secret.is_none() {
            let value = stored.entry(variable.to_owned()).or_insert(fresh);
            *secret = Some(SecretString::from(value.as_str()));
        }
    }
    if stored.len() == before {
        return Ok(());
    }
    // Written beside and renamed, so that a crash leaves the old file or the new one.
    let unfinished = data_dir.join("secrets.env.new");
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    for (variable, value) in &stored {
        writeln!(file, "{variable}={value}")?;
    }
    file.sync_all()?;
    fs::rename(&unfinished, &path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct CommandLine {
        #[command(flatten)]
        settings: Settings,
    }

    fn settings(flags: &[&str]) -> Settings {
        CommandLine::try_parse_from(["companion"].iter().chain(flags)).expect("the flags parse").settings
    }

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn production() -> Settings {
        let [secret, salt, key] = fresh_secrets().map(|(_, value)| value);
        settings(&[
            "--app-env=production",
            "--base-url=https://api.example.org/",
            "--relay-url=wss://relay.example.org",
            "--frontend-url=https://app.example.org",
            &format!("--session-secret={secret}"),
            &format!("--session-salt={salt}"),
            &format!("--creds-encryption-key={key}"),
        ])
    }

    fn faults(settings: Settings) -> Vec<String> {
        Config::check(settings).err().map(|faults| faults.0).unwrap_or_default()
    }

    fn secret(text: &str) -> Option<SecretString> {
        Some(SecretString::from(text))
    }

    #[test]
    fn a_production_that_names_its_secrets_and_urls_starts() {
        let config = Config::check(production()).unwrap();
        assert_eq!(config.urls.base, "https://api.example.org");
        assert_eq!(config.urls.admin, "https://app.example.org");
        assert!(config.payments.account.is_none());
        assert!(config.admins.is_empty());
        assert_eq!(config.identity.claimed_id_prefix, "https://steamcommunity.com/openid/id/");
        assert!(matches!(config.database, Database::Sqlite(path) if path == Path::new("data/companion.db")));
    }

    #[test]
    fn production_refuses_to_invent_anything() {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("data");
        let mut bare = settings(&["--app-env=production"]);
        bare.data_dir = data_dir.clone();
        assert_eq!(
            faults(bare),
            [
                "BASE_URL is missing",
                "RELAY_URL is missing",
                "FRONTEND_URL is missing",
                "SESSION_SECRET is missing",
                "SESSION_SALT is missing",
                "CREDS_ENCRYPTION_KEY is missing",
            ]
        );
        assert!(!data_dir.exists());
    }

    #[test]
    fn production_refuses_weak_secrets_and_plain_neighbours() {
        let weak = Settings {
            session_secret: secret("please-change-me-please-change-me-now"),
            session_salt: secret("short salt 1234"),
            creds_encryption_key: secret(&"0".repeat(64)),
            payment_api_url: "http://payments.example.org".into(),
            platform_api_url: "http://127.0.0.1:9000".into(),
            frontend_url: Some("http://app.example.org".into()),
            ..production()
        };
        assert_eq!(
            faults(weak),
            [
                "FRONTEND_URL is not https, which production asks for",
                "SESSION_SECRET is a placeholder; `companion gen-secrets` makes a value",
                "CREDS_ENCRYPTION_KEY is a placeholder; `companion gen-secrets` makes a value",
                "SESSION_SALT is shorter than 16 bytes",
                "PAYMENT_API_URL is not https, which production asks for",
            ]
        );
        let short = Settings { session_secret: secret("0123456789abcdef0123456789abcde"), ..production() };
        assert_eq!(faults(short), ["SESSION_SECRET is shorter than 32 bytes"]);
        let absent = Settings { session_secret: secret(" "), ..production() };
        assert_eq!(faults(absent), ["SESSION_SECRET is missing"]);
    }

    #[test]
    fn all_faults_are_told_at_once_one_per_line() {
        let wrong = settings(&[
            "--app-env=staging",
            "--api-listen=localhost",
            "--base-url=ftp://example.org",
            "--admin-origin=https://user@example.org",
            "--database-url=postgress://user:hunter2@db/companion",
            "--session-secret=a",
            "--session-salt=b",
            "--creds-encryption-key=c",
            "--admin-platform-ids=76561198000000001,ada",
            "--trusted-proxies=10.0.0.0/8",
            "--workers=0",
            "--payment-secret-key=sk_test_1",
            "--push-address=mtalk.google.com",
            "--extra-ca-file=/nonexistent/ca.pem",
            "--pairing-code-prefix=LI NK",
            "--game-proxy-url=https://proxy.example.org",
            "--game-link-policy=never",
            "--enforce-tiers=maybe",
        ]);
        let faults = Config::check(wrong).unwrap_err().to_string();
        let expected = [
            "APP_ENV",
            "API_LISTEN",
            "BASE_URL",
            "ADMIN_ORIGIN",
            "DATABASE_URL",
            "CREDS_ENCRYPTION_KEY",
            "ADMIN_PLATFORM_IDS",
            "TRUSTED_PROXIES",
            "WORKERS",
            "PAYMENT_WEBHOOK_SECRET",
            "PAYMENT_PRICE_SCOUT",
            "PAYMENT_PRICE_OPERATOR",
            "PAYMENT_PRICE_OVERLORD",
            "PUSH_ADDRESS",
            "EXTRA_CA_FILE",
            "PAIRING_CODE_PREFIX",
            "GAME_PROXY_URL",
            "GAME_LINK_POLICY",
            "ENFORCE_TIERS",
        ];
        let named: Vec<&str> = faults.lines().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(named, expected);
        assert!(!faults.contains("hunter2"));
    }

    #[test]
    fn development_makes_missing_secrets_once_for_its_user_only() {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("data");
        let start = |key: Option<SecretString>| {
            let settings = Settings { data_dir: data_dir.clone(), creds_encryption_key: key, ..settings(&[]) };
            Config::check(settings).unwrap().secrets
        };
        // A secret that was given is used, not stored.
        let first = start(secret(KEY));
        let file = data_dir.join("secrets.env");
        assert!(!fs::read_to_string(&file).unwrap().contains("CREDS"));
        let (second, third) = (start(None), start(None));
        assert_eq!(first.session_secret.expose_secret(), second.session_secret.expose_secret());
        assert_eq!(second.session_salt.expose_secret(), third.session_salt.expose_secret());
        assert_eq!(second.credentials_key, third.credentials_key);
        assert_ne!(first.credentials_key, second.credentials_key);

        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&data_dir), mode(&file)), (0o700, 0o600));
        assert_eq!(fs::read_dir(&data_dir).unwrap().count(), 1);
    }

    #[test]
    fn made_secrets_would_do_for_production() {
        assert_eq!(faults(production()), [""; 0]);
    }

    #[test]
    fn development_defaults_lead_to_itself() {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings { data_dir: directory.path().into(), ..settings(&["--api-listen=0.0.0.0:9090"]) };
        let urls = Config::check(settings).unwrap().urls;
        assert_eq!(urls.base, "http://127.0.0.1:9090");
        assert_eq!((&urls.frontend, &urls.admin), (&urls.base, &urls.base));
        assert_eq!(urls.relay, "ws://127.0.0.1:8081");
    }

    #[test]
    fn the_previous_key_must_be_another_key_and_empty_means_none() {
        let with_previous = |previous: &str| Settings {
            creds_encryption_key: secret(KEY),
            creds_encryption_key_prev: secret(previous),
            ..production()
        };
        assert!(Config::check(with_previous("")).unwrap().secrets.credentials_key_previous.is_none());
        let hex = "ff".repeat(31) + "0a";
        let previous = Config::check(with_previous(&hex)).unwrap().secrets.credentials_key_previous;
        assert_eq!(previous, Key32::parse(&hex));
        assert_eq!(faults(with_previous(KEY)), ["CREDS_ENCRYPTION_KEY_PREV is equal to CREDS_ENCRYPTION_KEY"]);
        let malformed = "CREDS_ENCRYPTION_KEY_PREV is not 32 bytes as base64 (44 characters) or 64 hex digits";
        assert_eq!(faults(with_previous("AAEC")), [malformed]);
    }

    #[test]
    fn a_database_is_a_sqlite_file_or_a_postgres_url() {
        let database = |url: &str| {
            Config::check(Settings { database_url: secret(url), ..production() }).ok().map(|config| config.database)
        };
        for (url, file) in [("sqlite:a.db", "a.db"), ("sqlite:///var/a.db", "/var/a.db")] {
            assert!(matches!(database(url), Some(Database::Sqlite(path)) if path == Path::new(file)), "{url}");
        }
        for url in ["postgres://u:p@db/name", "postgresql://u@/name?host=/run/postgresql"] {
            assert!(matches!(database(url), Some(Database::Postgres(_))), "{url}");
        }
        for url in ["mysql://db/name", "companion.db", "sqlite:", "sqlite::memory:", "postgres"] {
            assert!(database(url).is_none(), "{url}");
        }
    }

    #[test]
    fn payments_are_on_with_all_five_settings() {
        let complete = Settings {
            payment_secret_key: secret("sk_live_2f8KqPz"),
            payment_webhook_secret: secret("whsec_2f8KqPz"),
            payment_price_scout: Some("price_1".into()),
            payment_price_operator: Some("price_2".into()),
            payment_price_overlord: Some("price_3".into()),
            ..production()
        };
        let account = Config::check(complete.clone()).unwrap().payments.account.unwrap();
        assert_eq!(account.price_overlord, "price_3");
        let placeholder = Settings { payment_secret_key: secret("sk_live_changeme"), ..complete };
        assert_eq!(faults(placeholder), ["PAYMENT_SECRET_KEY is a placeholder"]);
    }

    #[test]
    fn lists_are_separated_by_commas() {
        let settings = Settings {
            admin_platform_ids: Some("76561198000000002, 76561198000000001,".into()),
            trusted_proxies: Some("10.0.0.1,::1".into()),
            ..production()
        };
        let config = Config::check(settings).unwrap();
        let admins: Vec<&str> = config.admins.iter().map(PlatformId::as_str).collect();
        assert_eq!(admins, ["76561198000000001", "76561198000000002"]);
        assert_eq!(config.listen.trusted_proxies.len(), 2);
    }

    #[test]
    fn debug_shows_no_secret() {
        let settings = Settings {
            database_url: secret("postgres://u:Hunter2@db/name"),
            platform_api_key: secret("Hunter2"),
            session_secret: secret("Hunter2-Hunter2-0123456789abcdefghij"),
            creds_encryption_key: secret(KEY),
            ..production()
        };
        let shown = format!("{settings:?}{:?}", Config::check(settings.clone()).unwrap());
        assert!(!shown.contains("Hunter2") && !shown.contains("AAEC"), "{shown}");
        let key_bytes = format!("{:?}", Key32::parse(KEY).unwrap().as_bytes());
        assert!(!shown.contains(&key_bytes));
    }

    #[test]
    fn help_names_every_variable_and_shows_no_secret_value() {
        use clap::CommandFactory as _;
        let mut command = CommandLine::command();
        let variables: Vec<String> = command
            .get_arguments()
            .filter_map(|argument| argument.get_env())
            .map(|variable| variable.to_str().unwrap().to_owned())
            .collect();
        assert_eq!(variables.len(), 35);
        let hidden = command.get_arguments().filter(|argument| argument.is_hide_env_values_set()).count();
        assert_eq!(hidden, 8);
        let help = command.render_long_help().to_string();
        for variable in variables {
            assert!(help.contains(&format!("[env: {variable}")), "{variable}");
        }
    }
}
