//! Directories for what is not finished.

use std::{fs::Permissions, os::unix::fs::PermissionsExt as _, path::Path};

use super::error::BackupError;

/// The directory in which a file is.
pub fn directory_of(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A directory for what is not finished, for this user only; removed when dropped.
pub fn private_stage(directory: &Path) -> Result<tempfile::TempDir, BackupError> {
    let for_this_user = Permissions::from_mode(0o700);
    let stage = tempfile::Builder::new().prefix(".companion-").permissions(for_this_user).tempdir_in(directory);
    stage.map_err(BackupError::io(directory.display()))
}
