//! NATS, which several nodes on one PostgreSQL share.

use std::net::IpAddr;

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::config::{
    check::{Check, given_secret},
    database::Database,
    images::ImageStorage,
};

/// The oldest version of NATS that serves several nodes; answers of older ones are of another form.
pub const OLDEST_NATS: (u32, u32) = (2, 11);

/// The servers of NATS, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct NatsSettings {
    /// All servers of NATS (2.11 or later, with JetStream) that several nodes share, `tls://HOST:PORT`, with commas between them;
    /// one node needs none
    #[arg(long, env, hide_env_values = true)]
    pub nats_url: Option<SecretString>,
    /// Credentials for NATS: a JWT and the seed of its key, as `nsc` writes them into a file
    #[arg(long, env, hide_env_values = true)]
    pub nats_credentials: Option<SecretString>,
}

/// The servers of NATS.
#[derive(Clone, Debug)]
pub struct NatsServers {
    /// URLs, each perhaps with a password.
    pub urls: Vec<SecretString>,
    /// The text of a credentials file.
    pub credentials: Option<SecretString>,
}

impl NatsSettings {
    /// The servers; `Some(None)`: there is one node. Several need everything that they share elsewhere than on one machine.
    pub fn check(
        self,
        database: Option<&Database>,
        images: Option<&ImageStorage>,
        check: &mut Check,
    ) -> Option<Option<NatsServers>> {
        let credentials = given_secret(self.nats_credentials);
        let Some(url) = given_secret(self.nats_url) else {
            if credentials.is_some() {
                check.fault("NATS_CREDENTIALS", "is set without NATS_URL");
                return None;
            }
            return Some(None);
        };
        let faults = check.faults.len();
        if !cfg!(feature = "cluster") {
            check.fault("NATS_URL", "asks for several nodes, which are not in this build (cargo feature `cluster`)");
        }
        if let Some(Database::Sqlite(_)) = database {
            check.fault(
                "NATS_URL",
                "asks for several nodes, which share one database: DATABASE_URL must name a PostgreSQL, as a SQLite file \
                 is for one process",
            );
        }
        if let Some(ImageStorage::Directory(_)) = images {
            check.fault(
                "NATS_URL",
                "asks for several nodes, which share their images: IMAGES_S3_BUCKET must be set, as a directory is of one \
                 machine",
            );
        }
        let urls = url.expose_secret().split(',').map(str::trim);
        let urls: Vec<SecretString> = urls.filter_map(|url| server(url, check)).collect();
        (check.faults.len() == faults).then_some(Some(NatsServers { urls, credentials }))
    }
}

/// The first two numbers of a version of NATS.
pub fn nats_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim_start_matches('v').split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// One server. Its URL may hold a password, so it is not repeated.
fn server(url: &str, check: &mut Check) -> Option<SecretString> {
    let parsed = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "nats" | "tls") && url.has_host());
    let Some(parsed) = parsed else {
        check.fault("NATS_URL", "is not a list of nats:// or tls:// URLs");
        return None;
    };
    if check.production && parsed.scheme() == "nats" && !is_this_machine(&parsed) {
        check.fault("NATS_URL", "leads to another machine in plain text: production requires tls://");
        return None;
    }
    Some(url.into())
}

fn is_this_machine(url: &Url) -> bool {
    // The hosts of these schemes are no addresses to the `url` crate.
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::config::{ImageBucket, base_url::BaseUrl};

    fn postgres() -> Database {
        Database::Postgres("postgres://db/name".into())
    }

    fn bucket() -> ImageStorage {
        let endpoint: Option<BaseUrl> = None;
        let [name, region, access_key_id] = ["images", "us-east-1", "key"].map(str::to_owned);
        ImageStorage::S3(ImageBucket { name, endpoint, region, access_key_id, secret_access_key: "secret".into() })
    }

    /// Number of servers, and what is wrong.
    fn check_url(url: &str, database: &Database, images: &ImageStorage, production: bool) -> (usize, Vec<String>) {
        let settings = NatsSettings { nats_url: Some(url.into()), nats_credentials: Some("creds".into()) };
        let mut check = Check { production, ..Check::default() };
        let servers = settings.check(Some(database), Some(images), &mut check);
        assert_eq!(servers.is_none(), !check.faults.is_empty(), "{:?}", check.faults);
        let count = servers.flatten().map_or(0, |servers| servers.urls.len());
        // Builds for one node refuse all.
        check.faults.retain(|fault| !fault.contains("`cluster`"));
        (count, check.faults)
    }

    #[test]
    fn one_node_needs_no_nats() {
        for blank in [None, Some(" ".into())] {
            let mut check = Check::default();
            let settings = NatsSettings { nats_url: blank, nats_credentials: None };
            let sqlite = Database::Sqlite("companion.db".into());
            assert!(settings.check(Some(&sqlite), None, &mut check).is_some_and(|servers| servers.is_none()));
            assert_eq!(check.faults, [""; 0]);
        }
        let mut check = Check::default();
        let settings = NatsSettings { nats_url: None, nats_credentials: Some("creds".into()) };
        assert!(settings.check(None, None, &mut check).is_none());
        assert_eq!(check.faults, ["NATS_CREDENTIALS is set without NATS_URL"]);
    }

    #[test]
    fn several_nodes_share_a_postgresql_and_a_bucket() {
        let servers = "nats://a:4222, tls://u:p@b";
        let (count, faults) = check_url(servers, &postgres(), &bucket(), false);
        assert_eq!((count, faults), (if cfg!(feature = "cluster") { 2 } else { 0 }, vec![]));
        let sqlite = Database::Sqlite(PathBuf::from("companion.db"));
        let (_, faults) = check_url(servers, &sqlite, &ImageStorage::Directory("images".into()), false);
        let [database, images] = &faults[..] else { panic!("{faults:?}") };
        assert!(database.contains("DATABASE_URL must name a PostgreSQL, as a SQLite file is for one process"));
        assert!(images.contains("IMAGES_S3_BUCKET must be set"));
    }

    #[test]
    fn servers_are_named_by_urls_and_production_encrypts() {
        for wrong in ["nats.example", "http://nats.example", "nats:", "nats://a, b", "nats://a,"] {
            let (_, faults) = check_url(wrong, &postgres(), &bucket(), false);
            assert_eq!(faults, ["NATS_URL is not a list of nats:// or tls:// URLs"], "{wrong}");
        }
        for here in ["nats://127.0.0.1:4222", "nats://[::1]", "nats://localhost:4222", "tls://nats.example"] {
            assert_eq!(check_url(here, &postgres(), &bucket(), true).1, [""; 0], "{here}");
        }
        for plain in ["nats://nats.example:4222", "nats://10.0.0.7", "nats://localhost.example"] {
            let (_, faults) = check_url(plain, &postgres(), &bucket(), true);
            assert!(faults[0].starts_with("NATS_URL leads to another machine in plain text"), "{plain}");
        }
    }
}
