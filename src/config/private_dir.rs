//! Directories that hold secrets.

use std::{fs, io, os::unix::fs::DirBuilderExt as _, path::Path};

/// Makes the directory and its parents where missing, for this user only.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
