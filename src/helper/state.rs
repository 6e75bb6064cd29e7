//! The helper's file: everything that its steps gave, for one service, readable by its user only and always whole.

use std::{
    env,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use secrecy::SecretString;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tempfile::NamedTempFile;

use super::error::HelperError;
use crate::{
    clients::registration::RegisteredDevice,
    config::{LockedFile, create_private_dir, take_lock},
    domain::time::Timestamp,
};

/// Content of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HelperState {
    /// Token of this device at the service; `None`: not paired.
    #[serde(serialize_with = "write_secret", deserialize_with = "read_secret")]
    pub device_token: Option<SecretString>,
    pub device: RegisteredDevice,
    pub uploaded_at: Option<Timestamp>,
    /// A sentence, without secrets.
    pub last_error: Option<String>,
}

impl HelperState {
    /// A helper that has done nothing; `device_id` is a UUID that was never used.
    pub fn new(device_id: String) -> Self {
        Self { device_token: None, device: RegisteredDevice::new(device_id), uploaded_at: None, last_error: None }
    }
}

fn write_secret<S: Serializer>(secret: &Option<SecretString>, serializer: S) -> Result<S::Ok, S::Error> {
    use secrecy::ExposeSecret as _;
    secret.as_ref().map(|secret| secret.expose_secret()).serialize(serializer)
}

fn read_secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    Option::deserialize(deserializer)
}

/// The file of one service.
pub struct StateFile {
    directory: PathBuf,
    path: PathBuf,
}

/// No other helper runs for the service until this is dropped.
pub struct OneHelper(#[allow(dead_code, reason = "held")] LockedFile);

impl StateFile {
    /// The file for the service of this name (host and port), in this directory or the user's own for data.
    pub fn of(directory: Option<PathBuf>, service: &str) -> Result<Self, HelperError> {
        let directory = directory.or_else(own_directory).ok_or_else(|| {
            HelperError::Settings("neither HOME nor XDG_DATA_HOME is set: `--data-dir` names a directory".to_owned())
        })?;
        let name: String =
            service.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' }).collect();
        let path = directory.join(format!("{name}.json"));
        Ok(Self { directory, path })
    }

    /// Makes sure that no other helper runs for this service.
    pub fn lock(&self) -> Result<OneHelper, HelperError> {
        let locked = create_private_dir(&self.directory).and_then(|()| take_lock(&self.path.with_extension("lock")));
        match locked.map_err(HelperError::io(self.path.display()))? {
            Some(file) => Ok(OneHelper(file)),
            None => Err(HelperError::Running),
        }
    }

    /// The content; `None` when there is no file.
    pub fn read(&self) -> Result<Option<HelperState>, HelperError> {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(HelperError::io(self.path.display())(error)),
        };
        // An error of the reader quotes the content, which is secret.
        let unreadable = |_| io::Error::other("it is damaged; delete it and begin again");
        serde_json::from_slice(&text).map(Some).map_err(unreadable).map_err(HelperError::io(self.path.display()))
    }

    /// Replaces the file, whole and on the disk.
    pub fn write(&self, state: &HelperState) -> Result<(), HelperError> {
        let write = || {
            let mut file = NamedTempFile::new_in(&self.directory)?;
            file.write_all(&serde_json::to_vec(state)?)?;
            file.as_file().sync_all()?;
            file.persist(&self.path)?;
            File::open(&self.directory)?.sync_all()
        };
        write().map_err(HelperError::io(self.path.display()))
    }

    /// Deletes everything of this service.
    pub fn delete(&self, running: OneHelper) -> Result<(), HelperError> {
        let delete = |path: &Path| match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        delete(&self.path)
            .and_then(|()| delete(&self.path.with_extension("lock")))
            .map_err(HelperError::io("deleting"))?;
        drop(running);
        Ok(())
    }
}

/// The user's own directory for data, by the platform's rule.
fn own_directory() -> Option<PathBuf> {
    let path = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = match path("XDG_DATA_HOME") {
        Some(base) => base,
        None if cfg!(target_os = "macos") => path("HOME")?.join("Library/Application Support"),
        None => path("HOME")?.join(".local/share"),
    };
    Some(base.join("companion-helper"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_file_is_whole_and_its_users_own() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::of(Some(directory.path().join("deep")), "my.host:8080").ok().unwrap();
        assert!(matches!(file.lock().map(drop), Ok(())));
        let lock = file.lock().ok().unwrap();
        assert!(matches!(file.lock(), Err(HelperError::Running)));
        assert!(file.read().unwrap().is_none());
        let mut state = HelperState::new("device".to_owned());
        for error in [None, Some("a failure".to_owned())] {
            state.last_error = error.clone();
            state.device_token = Some("Hunter2".into());
            file.write(&state).unwrap();
            assert_eq!(file.read().unwrap().unwrap().last_error, error);
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file.path), mode(&file.directory)), (0o600, 0o700));
        fs::write(&file.path, "{\"deviceToken\":\"Hunter2\"").unwrap();
        let error = file.read().map(drop).unwrap_err().to_string();
        assert!(!error.contains("Hunter2"), "{error}");
        file.delete(lock).unwrap();
        assert_eq!(fs::read_dir(&file.directory).unwrap().count(), 0);
    }
}
