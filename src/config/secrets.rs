//! Secrets that only this service knows. Development makes its own; production requires them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use secrecy::{ExposeSecret as _, SecretString};

use crate::{
    config::{
        check::{Check, given_secret},
        private_dir::{LOCK_FILE, create_private_dir},
    },
    crypto::{
        keys::{Key32, KeyDerivation},
        random::Random,
        sealer::Sealer,
    },
};

/// Secrets that only this service knows, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct SecretSettings {
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
    /// The key of stored credentials is lost for good: start all the same, and let users replace what does not open
    #[arg(long, env, default_value = "false")]
    pub creds_encryption_key_lost: String,
}

/// Secrets that only this service knows. Start-up derives its keys from them and keeps nothing else.
#[derive(Debug)]
pub struct Secrets {
    pub session_secret: SecretString,
    pub session_salt: SecretString,
    pub credentials_key: Key32,
    pub credentials_key_previous: Option<Key32>,
    /// The key of secrets that these two do not open is lost for good.
    pub credentials_key_lost: bool,
}

impl Secrets {
    /// The derivation of the keys for single purposes.
    pub fn keys(&self) -> KeyDerivation {
        KeyDerivation::new(self.session_secret.expose_secret(), self.session_salt.expose_secret())
    }

    /// The keys that open stored credentials, by fingerprint.
    pub fn key_fingerprints(&self) -> Vec<String> {
        let keys = [Some(&self.credentials_key), self.credentials_key_previous.as_ref()];
        keys.into_iter().flatten().map(Key32::fingerprint).collect()
    }

    /// Opens stored credentials, and seals them as the key of this number.
    pub fn sealer(&self, key_version: i32, random: Random) -> Sealer {
        Sealer::new(&self.credentials_key, self.credentials_key_previous.as_ref(), key_version, random)
    }
}

/// The file in the data directory with the secrets that development made.
pub const SECRETS_FILE: &str = "secrets.env";

/// A fresh value for each secret that the service makes for itself, as (variable, value).
pub fn fresh_secrets() -> [(&'static str, String); 3] {
    let random = Random::system();
    [
        ("SESSION_SECRET", random.base64url::<32>()),
        ("SESSION_SALT", random.base64url::<16>()),
        ("CREDS_ENCRYPTION_KEY", Key32::random(&random).to_base64()),
    ]
}

impl SecretSettings {
    /// The variables of those that development would have to make: they are neither given nor in the data directory.
    pub(super) fn unmade(&self, data_dir: &Path) -> Vec<&'static str> {
        let given = [&self.session_secret, &self.session_salt, &self.creds_encryption_key];
        let stored = stored_secrets(&data_dir.join(SECRETS_FILE)).unwrap_or_default();
        let variables = fresh_secrets().map(|(variable, _)| variable);
        let secrets = variables.into_iter().zip(given);
        let unmade = secrets
            .filter(|(variable, secret)| given_secret((*secret).clone()).is_none() && !stored.contains_key(*variable));
        unmade.map(|(variable, _)| variable).collect()
    }

    pub(super) fn check(self, data_dir: &Path, check: &mut Check) -> Option<Secrets> {
        let credentials_key_lost = check.flag("CREDS_ENCRYPTION_KEY_LOST", &self.creds_encryption_key_lost);
        if credentials_key_lost == Some(true) {
            check.warning(
                "CREDS_ENCRYPTION_KEY_LOST",
                "is set: no start refuses a wrong CREDS_ENCRYPTION_KEY meanwhile; take it out once `companion keys status` \
                 names nothing that cannot be opened",
            );
        }
        // In the order of `fresh_secrets`.
        let given = [self.session_secret, self.session_salt, self.creds_encryption_key];
        let mut given = given.map(given_secret);
        if !check.production && given[2].is_none() && credentials_key_lost == Some(false) && is_key_gone(data_dir) {
            let data_dir = std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned());
            check.fault(
                "CREDS_ENCRYPTION_KEY",
                format!(
                    "is neither set nor in {}, and a companion has served from this DATA_DIR, which sealed what it stored: \
                     put that file back, or set the key. If it is lost for good, CREDS_ENCRYPTION_KEY_LOST=true makes new \
                     secrets: everybody signs in, pairs and uploads again",
                    data_dir.join(SECRETS_FILE).display()
                ),
            );
            return None;
        }
        if !check.production
            && given.iter().any(Option::is_none)
            && let Err(error) = fill_from_data_dir(&mut given, data_dir, check.read_only)
        {
            // A directory that cannot be written is a fault already.
            if !check.faults.iter().any(|fault| fault.starts_with("DATA_DIR ")) {
                check.fault("DATA_DIR", format!("cannot hold the development secrets: {error}"));
            }
            return None;
        }
        check_given(&given, check);
        let [session_secret, session_salt, key] = given;
        let current = key.and_then(|key| read_key("CREDS_ENCRYPTION_KEY", &key, check));
        let previous = given_secret(self.creds_encryption_key_prev);
        let previous = previous.and_then(|key| read_key("CREDS_ENCRYPTION_KEY_PREV", &key, check));
        if previous.is_some() && previous == current {
            check.fault("CREDS_ENCRYPTION_KEY_PREV", "is equal to CREDS_ENCRYPTION_KEY");
        }
        Some(Secrets {
            session_secret: session_secret?,
            session_salt: session_salt?,
            credentials_key: current?,
            credentials_key_previous: previous,
            credentials_key_lost: credentials_key_lost?,
        })
    }
}

/// Each of the secrets that the service makes for itself, in the order of [`fresh_secrets`], is there and no guess.
fn check_given(given: &[Option<SecretString>; 3], check: &mut Check) {
    for (secret, (variable, _)) in given.iter().zip(fresh_secrets()) {
        match secret {
            None => check.fault(variable, "is missing"),
            Some(secret) if check.production && is_placeholder(secret.expose_secret()) => {
                check.fault(variable, "is a placeholder; `companion gen-secrets` makes a value");
            }
            Some(_) => {}
        }
    }
    let [session_secret, session_salt, _] = given;
    for (variable, secret, least) in [("SESSION_SECRET", session_secret, 32), ("SESSION_SALT", session_salt, 16)] {
        if check.production && secret.as_ref().is_some_and(|secret| secret.expose_secret().len() < least) {
            check.fault(variable, format!("is shorter than {least} bytes"));
        }
    }
}

fn read_key(variable: &str, text: &SecretString, check: &mut Check) -> Option<Key32> {
    let key = Key32::parse(text.expose_secret());
    if key.is_none() {
        check.fault(variable, "is not 32 bytes as base64 (44 characters) or 64 hex digits");
    }
    key
}

/// Words of example files, and values with hardly any different characters.
fn is_placeholder(secret: &str) -> bool {
    const WORDS: [&str; 8] =
        ["changeme", "change-me", "change_me", "placeholder", "replace", "example", "your-", "your_"];
    let lower = secret.to_ascii_lowercase();
    WORDS.iter().any(|word| lower.contains(word)) || lower.bytes().collect::<BTreeSet<u8>>().len() < 6
}

/// True if a process has taken this data directory before, and its key is not in the file where development keeps it.
fn is_key_gone(data_dir: &Path) -> bool {
    let keeps_key = |stored: BTreeMap<String, String>| stored.contains_key("CREDS_ENCRYPTION_KEY");
    // A file that cannot be read is a fault of its own.
    data_dir.join(LOCK_FILE).exists()
        && stored_secrets(&data_dir.join(SECRETS_FILE)).is_ok_and(|stored| !keeps_key(stored))
}

/// Reads what is missing from [`SECRETS_FILE`] in the data directory, and first makes there what is missing there too;
/// where nothing may be written, what is made is forgotten.
fn fill_from_data_dir(secrets: &mut [Option<SecretString>; 3], data_dir: &Path, read_only: bool) -> io::Result<()> {
    // Another command that starts in a fresh directory waits, and reads what this one has made.
    let _alone = if read_only {
        None
    } else {
        create_private_dir(data_dir)?;
        let directory = fs::File::open(data_dir)?;
        directory.lock()?;
        Some(directory)
    };
    let path = data_dir.join(SECRETS_FILE);
    let mut stored = stored_secrets(&path)?;
    let before = stored.len();
    for (secret, (variable, fresh)) in secrets.iter_mut().zip(fresh_secrets()) {
        if secret.is_none() {
            let value = stored.entry(variable.to_owned()).or_insert(fresh);
            *secret = Some(SecretString::from(value.as_str()));
        }
    }
    if stored.len() == before || read_only {
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

/// The variables of a file of secrets, which may not be there.
fn stored_secrets(path: &Path) -> io::Result<BTreeMap<String, String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(variable, value)| (variable.trim().to_owned(), value.trim().to_owned()))
            .collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt as _, thread};

    use super::*;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn secret(text: &str) -> Option<SecretString> {
        Some(SecretString::from(text))
    }

    fn absent() -> SecretSettings {
        SecretSettings {
            session_secret: None,
            session_salt: None,
            creds_encryption_key: None,
            creds_encryption_key_prev: None,
            creds_encryption_key_lost: "false".into(),
        }
    }

    /// Fit for production.
    fn made() -> SecretSettings {
        let [session_secret, session_salt, creds_encryption_key] = fresh_secrets().map(|(_, value)| secret(&value));
        SecretSettings { session_secret, session_salt, creds_encryption_key, ..absent() }
    }

    fn production(settings: SecretSettings) -> Result<Secrets, Vec<String>> {
        let mut check = Check { production: true, ..Check::default() };
        let secrets = settings.check(Path::new("/nonexistent"), &mut check);
        secrets.filter(|_| check.faults.is_empty()).ok_or(check.faults)
    }

    #[test]
    fn production_accepts_made_secrets_and_refuses_weak_ones() {
        assert!(production(made()).is_ok());
        let weak = SecretSettings {
            session_secret: secret("please-change-me-please-change-me-now"),
            session_salt: secret("short salt 1234"),
            creds_encryption_key: secret(&"0".repeat(64)),
            ..made()
        };
        assert_eq!(
            production(weak).unwrap_err(),
            [
                "SESSION_SECRET is a placeholder; `companion gen-secrets` makes a value",
                "CREDS_ENCRYPTION_KEY is a placeholder; `companion gen-secrets` makes a value",
                "SESSION_SALT is shorter than 16 bytes",
            ]
        );
        let short = SecretSettings { session_secret: secret("0123456789abcdef0123456789abcde"), ..made() };
        assert_eq!(production(short).unwrap_err(), ["SESSION_SECRET is shorter than 32 bytes"]);
        let blank = SecretSettings { session_secret: secret(" "), ..made() };
        assert_eq!(production(blank).unwrap_err(), ["SESSION_SECRET is missing"]);
    }

    #[test]
    fn development_makes_missing_secrets_once_for_its_user_only() {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("data");
        let start = |key: Option<SecretString>| {
            let settings = SecretSettings { creds_encryption_key: key, ..absent() };
            settings.check(&data_dir, &mut Check::default()).unwrap()
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
        let mut check = Check { read_only: true, ..Check::default() };
        let read = absent().check(&data_dir, &mut check).unwrap();
        assert_eq!(read.session_salt.expose_secret(), third.session_salt.expose_secret());
        let elsewhere = directory.path().join("elsewhere");
        let unmade = [absent().unmade(&elsewhere), absent().unmade(&data_dir), made().unmade(&elsewhere)];
        assert_eq!(unmade.map(|unmade| unmade.len()), [3, 0, 0]);
        assert!(absent().check(&elsewhere, &mut check).is_some() && !elsewhere.exists());
    }

    #[test]
    fn commands_that_start_at_once_in_a_fresh_directory_have_the_same_secrets() {
        for _ in 0..20 {
            let directory = tempfile::tempdir().unwrap();
            let start = || absent().check(&directory.path().join("data"), &mut Check::default());
            let made: Vec<_> = thread::scope(|scope| {
                let started: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
                started.into_iter().map(|started| started.join().unwrap().unwrap().credentials_key).collect()
            });
            assert!(made.iter().all(|key| *key == made[0]));
        }
    }

    #[test]
    fn secrets_that_are_lost_are_not_replaced_where_a_process_has_served() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(SECRETS_FILE);
        let start = |settings: SecretSettings| {
            let mut check = Check::default();
            let secrets = settings.check(directory.path(), &mut check);
            secrets.ok_or(check.faults)
        };
        let first = start(absent()).unwrap();
        fs::write(directory.path().join(LOCK_FILE), "").unwrap();
        let kept = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        let faults = start(absent()).unwrap_err();
        assert!(faults[0].starts_with("CREDS_ENCRYPTION_KEY is neither set nor in /"), "{faults:?}");
        assert!(faults.len() == 1 && !file.exists(), "{faults:?}");
        fs::write(&file, kept).unwrap();
        assert_eq!(start(absent()).unwrap().credentials_key, first.credentials_key);
        fs::remove_file(&file).unwrap();
        let lost = SecretSettings { creds_encryption_key_lost: "true".into(), ..absent() };
        assert_ne!(start(lost).unwrap().credentials_key, first.credentials_key);
    }

    #[test]
    fn a_key_that_is_said_to_be_lost_is_a_warning_while_it_is_said() {
        for (lost, warnings) in [("true", 1), ("false", 0)] {
            let mut check = Check { production: true, ..Check::default() };
            let settings = SecretSettings { creds_encryption_key_lost: lost.into(), ..made() };
            assert!(settings.check(Path::new("/nonexistent"), &mut check).is_some(), "{:?}", check.faults);
            assert_eq!(check.warnings.len(), warnings, "{:?}", check.warnings);
        }
    }

    #[test]
    fn the_previous_key_must_be_another_key_and_empty_means_none() {
        let with_previous = |previous: &str| {
            production(SecretSettings {
                creds_encryption_key: secret(KEY),
                creds_encryption_key_prev: secret(previous),
                ..made()
            })
        };
        assert!(with_previous("").unwrap().credentials_key_previous.is_none());
        let hex = "ff".repeat(31) + "0a";
        assert_eq!(with_previous(&hex).unwrap().credentials_key_previous, Key32::parse(&hex));
        assert_eq!(with_previous(KEY).unwrap_err(), ["CREDS_ENCRYPTION_KEY_PREV is equal to CREDS_ENCRYPTION_KEY"]);
        let malformed = "CREDS_ENCRYPTION_KEY_PREV is not 32 bytes as base64 (44 characters) or 64 hex digits";
        assert_eq!(with_previous("AAEC").unwrap_err(), [malformed]);
    }
}
