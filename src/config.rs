//! Settings: every variable of the process, read once by the command line and checked as a whole. One file per concern
//! holds its variables, what they become, and the checks. What this room gives out needs no further parsing.

mod admin;
mod base_url;
mod channels;
mod chat;
mod check;
mod database;
mod environment;
mod game;
mod identity;
mod images;
mod listen;
mod lone;
mod nats;
mod operation;
mod pairing;
mod payments;
mod player_stats;
mod private_dir;
mod push;
mod registration;
mod secret_files;
mod secrets;
mod sources;
mod trust;
mod urls;

use std::{error, fmt, path::PathBuf};

use chrono::TimeDelta;

use self::check::Check;
pub use self::{
    admin::AdminSettings,
    base_url::BaseUrl,
    channels::{ChannelPolicy, ChannelSettings},
    chat::{ChatPlatform, ChatSettings},
    database::{Database, DatabaseSettings},
    environment::{Environment, EnvironmentSettings},
    game::{Game, GameLinkPolicy, GameSettings},
    identity::{Identity, IdentitySettings, ProfileApi},
    images::{ImageBucket, ImageSettings, ImageStorage},
    listen::{Listen, ListenSettings},
    lone::lone_settings,
    nats::{NatsServers, NatsSettings, OLDEST_NATS, nats_version},
    operation::{Operation, OperationSettings},
    pairing::PairingSettings,
    payments::{PaymentSettings, Payments},
    player_stats::{PlayerStats, PlayerStatsSettings},
    private_dir::{
        LOCK_FILE, LockedFile, create_private_dir, is_data_dir_taken, is_locked, is_writable, lock, take_data_dir,
        take_lock, write_remedy,
    },
    push::{PushAddress, PushSettings},
    registration::{GameApp, Registration, RegistrationSettings},
    secrets::{SECRETS_FILE, SecretSettings, Secrets, fresh_secrets},
    sources::{SourceFindings, read_env_file, with_sources},
    trust::TrustSettings,
    urls::{PublicUrls, UrlSettings, Urls},
};
use crate::domain::ids::PlatformId;

/// The variables as given, each also a flag. An empty value counts as absent, except where a default is named.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// Read variables from this file instead of `.env`; the environment has precedence
    #[arg(long, value_name = "FILE")]
    pub env_file: Option<PathBuf>,
    #[command(flatten)]
    pub environment: EnvironmentSettings,
    #[command(flatten)]
    pub database: DatabaseSettings,
    #[command(flatten)]
    pub listen: ListenSettings,
    #[command(flatten)]
    pub operation: OperationSettings,
    #[command(flatten)]
    pub urls: UrlSettings,
    #[command(flatten)]
    pub admin: AdminSettings,
    #[command(flatten)]
    pub secrets: SecretSettings,
    #[command(flatten)]
    pub identity: IdentitySettings,
    #[command(flatten)]
    pub push: PushSettings,
    #[command(flatten)]
    pub registration: RegistrationSettings,
    #[command(flatten)]
    pub trust: TrustSettings,
    #[command(flatten)]
    pub pairing: PairingSettings,
    #[command(flatten)]
    pub game: GameSettings,
    #[command(flatten)]
    pub player_stats: PlayerStatsSettings,
    #[command(flatten)]
    pub payments: PaymentSettings,
    #[command(flatten)]
    pub chat: ChatSettings,
    #[command(flatten)]
    pub channels: ChannelSettings,
    #[command(flatten)]
    pub images: ImageSettings,
    #[command(flatten)]
    pub nats: NatsSettings,
    /// Findings where they come from.
    #[arg(skip)]
    pub sources: SourceFindings,
}

impl Settings {
    /// The variables of the secrets that the first start in development would make, and the file where it puts them.
    pub fn unmade_secrets(&self) -> (Vec<&'static str>, PathBuf) {
        let Self { environment, database, secrets, .. } = self;
        let development = environment.check(&mut Check::default()) == Some(Environment::Development);
        let file = database.data_dir.join(SECRETS_FILE);
        let file = std::path::absolute(&file).unwrap_or(file);
        (if development { secrets.unmade(&database.data_dir) } else { Vec::new() }, file)
    }

    /// Where everything is kept, by these settings; of what is wrong with them, only what concerns that.
    pub fn storage(self) -> Result<StoragePlaces, InvalidSettings> {
        let mut check = Check::of_sources(self.sources);
        self.environment.check(&mut check);
        let data_dir = self.database.data_dir.clone();
        let database = self.database.check(&mut check);
        let images = self.images.check(&data_dir, &mut check);
        match (database, images) {
            (Some(database), Some(images)) if check.faults.is_empty() => {
                Ok(StoragePlaces { data_dir, database, images })
            }
            _ => Err(check.into()),
        }
    }
}

/// Where everything is kept.
#[derive(Debug)]
pub struct StoragePlaces {
    pub data_dir: PathBuf,
    pub database: Database,
    pub images: ImageStorage,
}

/// The checked settings: one part for each concern, to be handed to the part of the service that needs it.
#[derive(Debug)]
pub struct Config {
    pub environment: Environment,
    pub data_dir: PathBuf,
    pub database: Database,
    pub listen: Listen,
    pub operation: Operation,
    pub urls: Urls,
    /// Accounts that may use the admin routes; if there are none, these are off.
    pub admins: Vec<PlatformId>,
    /// Longest age of the sign-in with which an admin pays back or deletes; `None`: any age.
    pub fresh_sign_in: Option<TimeDelta>,
    pub secrets: Secrets,
    pub identity: Identity,
    pub push: PushAddress,
    /// `None`: the service registers nothing itself, and the routes of registrations answer so.
    pub registration: Option<Registration>,
    /// PEM; the process can open it.
    pub extra_ca_file: Option<PathBuf>,
    /// Upper-case letters and digits.
    pub pairing_code_prefix: String,
    pub game: Game,
    /// `None`: there is none, and what needs it is unavailable.
    pub player_stats: Option<PlayerStats>,
    /// `None`: payments are off, and what needs them answers so.
    pub payments: Option<Payments>,
    /// Users are held to what their tier unlocks.
    pub enforce_tiers: bool,
    /// `None`: there is no support bot, and what needs it answers so.
    pub chat: Option<ChatPlatform>,
    pub channels: ChannelPolicy,
    pub images: ImageStorage,
    /// `None`: this process is the only one that serves from the database.
    pub nats: Option<NatsServers>,
    /// With which the service runs, and hardly as it is meant to; one line each.
    pub warnings: Vec<String>,
}

/// Everything that is wrong with the settings, one line each.
#[derive(Debug)]
pub struct InvalidSettings {
    faults: Vec<String>,
    /// Likely causes, or wrong as well.
    pub warnings: Vec<String>,
}

impl From<SourceFindings> for InvalidSettings {
    fn from(SourceFindings { faults, warnings }: SourceFindings) -> Self {
        Self { faults, warnings }
    }
}

impl From<Check> for InvalidSettings {
    fn from(Check { faults, warnings, .. }: Check) -> Self {
        Self { faults, warnings }
    }
}

impl fmt::Display for InvalidSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let warnings = self.warnings.iter().map(|warning| format!("warning: {warning}"));
        f.write_str(&self.faults.iter().cloned().chain(warnings).collect::<Vec<_>>().join("\n"))
    }
}

impl error::Error for InvalidSettings {}

impl InvalidSettings {
    /// The faults without the warnings.
    pub fn faults(&self) -> impl Iterator<Item = &str> {
        self.faults.iter().map(String::as_str)
    }
}

impl Config {
    /// Checks all settings and reports all that is wrong. In development, makes the secrets that are missing and keeps
    /// them in `secrets.env` of the data directory for the next start.
    pub fn check(settings: Settings) -> Result<Config, InvalidSettings> {
        Self::check_by(settings, false)
    }

    /// Like `check`, without writing anything: secrets that development makes now are gone when the process ends.
    pub fn check_only(settings: Settings) -> Result<Config, InvalidSettings> {
        Self::check_by(settings, true)
    }

    fn check_by(settings: Settings, read_only: bool) -> Result<Config, InvalidSettings> {
        let mut check = Check { read_only, ..Check::of_sources(settings.sources) };
        let environment = settings.environment.check(&mut check);
        let data_dir = settings.database.data_dir.clone();
        if let Err(reason) = is_writable(&data_dir) {
            check.fault("DATA_DIR", reason);
        }
        let database = settings.database.check(&mut check);
        let listen = settings.listen.check(&mut check);
        let operation = settings.operation.check(&mut check);
        let urls = settings.urls.check(&mut check);
        let (admins, fresh_sign_in) = settings.admin.check(&mut check);
        let secrets = settings.secrets.check(&data_dir, &mut check);
        let identity = settings.identity.check(&mut check);
        let push = settings.push.check(&mut check);
        let registration = settings.registration.check(&mut check);
        let extra_ca_file = settings.trust.check(&mut check);
        let pairing_code_prefix = settings.pairing.check(&mut check);
        let game = settings.game.check(&mut check);
        let player_stats = settings.player_stats.check(&mut check);
        let payments = settings.payments.check(&mut check);
        let chat = settings.chat.check(&mut check);
        let channels = settings.channels.check(&mut check, urls.as_ref().and_then(|urls| urls.base.as_ref()));
        let images = settings.images.check(&data_dir, &mut check);
        let nats = settings.nats.check(database.as_ref(), images.as_ref(), &mut check);
        let config = (|| {
            let (payments, enforce_tiers) = payments?;
            Some(Config {
                environment: environment?,
                data_dir,
                database: database?,
                listen: listen?,
                operation: operation?,
                urls: urls?,
                admins,
                fresh_sign_in,
                secrets: secrets?,
                identity: identity?,
                push: push?,
                registration: registration?,
                extra_ca_file,
                pairing_code_prefix: pairing_code_prefix?,
                game: game?,
                player_stats: player_stats?,
                payments,
                enforce_tiers,
                chat: chat?,
                channels: channels?,
                images: images?,
                nats: nats?,
                warnings: check.warnings.clone(),
            })
        })();
        config.filter(|_| check.faults.is_empty()).ok_or(check.into())
    }
}

#[cfg(test)]
mod tests {
    use std::{any::TypeId, path::Path};

    use clap::Parser as _;
    use secrecy::SecretString;

    use super::*;

    #[derive(clap::Parser)]
    struct CommandLine {
        #[command(flatten)]
        settings: Settings,
    }

    fn settings(flags: &[&str]) -> Settings {
        CommandLine::try_parse_from(["companion"].iter().chain(flags)).expect("the flags parse").settings
    }

    fn production(flags: &[&str]) -> Settings {
        let [secret, salt, key] = fresh_secrets().map(|(_, value)| value);
        let made = [
            format!("--session-secret={secret}"),
            format!("--session-salt={salt}"),
            format!("--creds-encryption-key={key}"),
        ];
        let mut all = vec!["--app-env=production", "--base-url=https://api.example.org/"];
        all.push("--frontend-url=https://app.example.org");
        all.extend(made.iter().map(String::as_str));
        all.extend(flags);
        settings(&all)
    }

    fn faults(settings: Settings) -> Vec<String> {
        Config::check(settings).err().map(|invalid| invalid.faults).unwrap_or_default()
    }

    #[test]
    fn a_production_that_names_its_secrets_and_urls_starts() {
        let config = Config::check(production(&[])).unwrap();
        let urls = config.urls.listening_at(config.listen.api, config.listen.relay);
        assert_eq!(urls.base.to_string(), "https://api.example.org");
        assert_eq!(urls.admin.to_string(), "https://app.example.org");
        assert!(config.identity.profiles.is_none());
        let provider = config.identity.provider;
        assert_eq!(provider.endpoint, "https://steamcommunity.com/openid/login");
        assert_eq!(provider.claimed_id_prefix, "https://steamcommunity.com/openid/id/");
        assert!(matches!(config.database, Database::Sqlite(path) if path == Path::new("data/companion.db")));
        let missing = ["METRICS_TOKEN", "ADMIN_PLATFORM_IDS", "TRUSTED_PROXIES"];
        let warned = |warnings: &[String]| missing.map(|name| warnings.iter().any(|warning| warning.starts_with(name)));
        assert_eq!(warned(&config.warnings), [true; 3]);
        let all = production(&[
            "--metrics-token=0123456789abcdef0123456789abcdef",
            "--admin-platform-ids=76561198000000001",
            "--trusted-proxies=127.0.0.1",
        ]);
        assert_eq!(warned(&Config::check(all).unwrap().warnings), [false; 3]);
        assert_eq!(warned(&Config::check(settings(&[])).unwrap().warnings), [false; 3]);
    }

    #[test]
    fn production_refuses_to_invent_anything() {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("data");
        let mut bare = settings(&["--app-env=production"]);
        bare.database.data_dir = data_dir.clone();
        assert_eq!(
            faults(bare),
            [
                "BASE_URL is missing",
                "SESSION_SECRET is missing",
                "SESSION_SALT is missing",
                "CREDS_ENCRYPTION_KEY is missing",
            ]
        );
        assert!(!data_dir.exists());
    }

    #[test]
    fn production_refuses_plain_urls_except_to_this_machine() {
        let mut plain = production(&[
            "--admin-origin=http://admin.localhost:3000",
            "--identity-login-url=http://id.example.org/login",
            "--platform-api-url=http://127.0.0.1:9000",
        ]);
        plain.urls.frontend_url = Some("http://app.example.org".into());
        assert_eq!(
            faults(plain),
            [
                "FRONTEND_URL is not https, which production requires",
                "IDENTITY_LOGIN_URL is not https, which production requires",
            ]
        );
    }

    #[test]
    fn all_faults_are_reported_at_once_one_per_line() {
        let wrong = settings(&[
            "--app-env=staging",
            "--api-listen=localhost",
            "--base-url=ftp://example.org",
            "--admin-origin=https://user@example.org",
            "--admin-platform-ids=me",
            "--fresh-sign-in-minutes=0",
            "--database-url=postgress://user:hunter2@db/companion",
            "--session-secret=a",
            "--session-salt=b",
            "--creds-encryption-key=c",
            "--trusted-proxies=10.0.0.1/8",
            "--connections-per-address=0",
            "--metrics-token=short",
            "--drain-seconds=soon",
            "--workers=0",
            "--platform-api-url=api.example.org",
            "--push-address=mtalk.google.com",
            "--registration-expo-url=exp.host",
            "--extra-ca-file=/nonexistent/ca.pem",
            "--pairing-code-prefix=LI NK",
            "--game-proxy-url=https://proxy.example.org",
            "--game-link-policy=never",
            "--allow-private-game-servers=maybe",
            "--enforce-tiers=maybe",
            "--payment-api-url=api.stripe.com",
            "--chat-api-url=discord.com",
        ]);
        let faults = Config::check(wrong).unwrap_err().to_string();
        let expected = [
            "APP_ENV",
            "DATABASE_URL",
            "API_LISTEN",
            "WORKERS",
            "TRUSTED_PROXIES",
            "CONNECTIONS_PER_ADDRESS",
            "METRICS_TOKEN",
            "DRAIN_SECONDS",
            "BASE_URL",
            "ADMIN_ORIGIN",
            "ADMIN_PLATFORM_IDS",
            "FRESH_SIGN_IN_MINUTES",
            "CREDS_ENCRYPTION_KEY",
            "PLATFORM_API_URL",
            "PUSH_ADDRESS",
            "REGISTRATION_EXPO_URL",
            "EXTRA_CA_FILE",
            "PAIRING_CODE_PREFIX",
            "GAME_PROXY_URL",
            "GAME_LINK_POLICY",
            "ALLOW_PRIVATE_GAME_SERVERS",
            "ENFORCE_TIERS",
            "PAYMENT_API_URL",
            "CHAT_API_URL",
        ];
        let named: Vec<&str> = faults.lines().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(named, expected);
        assert!(!faults.contains("hunter2"));
    }

    #[test]
    fn debug_shows_no_secret() {
        const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        let mut settings = production(&[
            "--database-url=postgres://u:Hunter2@localhost/name",
            "--platform-api-key=Hunter2",
            "--metrics-token=Hunter2-Hunter2-Hunter2",
            "--player-stats-url=https://stats.example.org",
            "--player-stats-token=Hunter2",
            "--payment-secret-key=sk_live_Hunter2",
            "--payment-webhook-secret=whsec_Hunter2",
            "--payment-price-scout=price_1",
            "--payment-price-operator=price_2",
            "--payment-price-overlord=price_3",
            "--chat-bot-token=Hunter2",
            "--registration-api-key=Hunter2",
            "--chat-application-id=1",
            &format!("--chat-public-key={}", "ab".repeat(32)),
            "--images-s3-bucket=icons",
            "--images-s3-access-key-id=key",
            "--images-s3-secret-access-key=Hunter2",
        ]);
        settings.secrets.session_secret = Some("Hunter2-Hunter2-0123456789abcdefghij".into());
        settings.secrets.creds_encryption_key = Some(KEY.into());
        let shown = format!("{settings:?}{:?}", Config::check(settings.clone()).unwrap());
        assert!(!shown.contains("Hunter2") && !shown.contains("AAEC"), "{shown}");
        let key_bytes = format!("{:?}", crate::crypto::keys::Key32::parse(KEY).unwrap().as_bytes());
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
        for argument in command.get_arguments() {
            let is_secret = argument.get_value_parser().type_id() == TypeId::of::<SecretString>();
            assert_eq!(argument.is_hide_env_values_set(), is_secret, "{}", argument.get_id());
        }
        let help = command.render_long_help().to_string();
        for variable in variables {
            assert!(help.contains(&format!("[env: {variable}")), "{variable}");
        }
    }
}
