//! The archive of a backup: files, then a manifest of them, then the digest of the manifest.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, BufWriter, Read, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::error::BackupError;
use crate::{
    config::SECRETS_FILE,
    crypto::digest::{DigestingReader, sha256_hex},
    db::files::{
        erasure_list::ERASURES,
        journal::{JOURNAL, REFUSED},
    },
    domain::image_name::ImageName,
};

/// The database in the archive.
pub const DATABASE: &str = "companion.db";
/// Before the names of images in the archive.
pub const IMAGES: &str = "images/";

/// The layout of archives that this program writes and reads.
const FORMAT: u32 = 1;
const MANIFEST: &str = "manifest.json";
/// As `sha256sum` writes and checks it.
const MANIFEST_DIGEST: &str = "manifest.json.sha256";
/// Bytes that a manifest may have.
const LARGEST_MANIFEST: u64 = 32 << 20;
/// Bytes of a file that are in memory at once.
const PIECE: u64 = 1 << 20;
/// Files that an archive may have; the manifest has room for them.
const MOST_FILES: usize = 100_000;

/// Contents of a backup, and what else a service on it needs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupManifest {
    /// Version of the archive's format.
    pub format: u32,
    /// Version of the program that took it.
    pub version: String,
    /// The newest step of the database's schema.
    pub schema: String,
    /// RFC 3339.
    pub taken_at: String,
    /// The variables of the secrets that the service ran with and that are not in the backup.
    pub secrets_left_out: Vec<String>,
    /// Images are in S3, and not in the backup.
    pub images_in_s3: bool,
    /// Images that the database knows and that were not in the directory.
    pub missing_images: Vec<String>,
    pub files: Vec<ArchivedFile>,
}

/// A file of the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedFile {
    pub name: String,
    pub bytes: u64,
    pub sha256: String,
}

/// An archive that is being written.
pub struct ArchiveWriter {
    tar: tar::Builder<BufWriter<File>>,
    /// Seconds since 1970.
    taken_at: u64,
    files: Vec<ArchivedFile>,
}

impl ArchiveWriter {
    /// An archive in this file, of a backup at this Unix time, seconds.
    pub fn new(file: File, taken_at: u64) -> Self {
        Self { tar: tar::Builder::new(BufWriter::new(file)), taken_at, files: Vec::new() }
    }

    /// Adds a file with this number of bytes of this content, which must have them.
    pub fn add(&mut self, name: &str, content: impl Read, bytes: u64) -> io::Result<()> {
        let mut content = DigestingReader::new(content.take(bytes));
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes);
        header.set_mode(0o600);
        header.set_mtime(self.taken_at);
        self.tar.append_data(&mut header, name, &mut content)?;
        let (read, sha256) = content.finish();
        if read != bytes {
            return Err(io::Error::other(format!("{name} became shorter while it was read")));
        }
        self.files.push(ArchivedFile { name: name.to_owned(), bytes, sha256 });
        Ok(())
    }

    /// Closes the archive, whose manifest says this besides, and waits until it is on disk.
    pub fn finish(mut self, manifest: BackupManifest) -> io::Result<BackupManifest> {
        let files = self.files.clone();
        let manifest = BackupManifest { format: FORMAT, files, ..manifest };
        let text = serde_json::to_vec_pretty(&manifest)?;
        if manifest.files.len() > MOST_FILES || text.len() as u64 > LARGEST_MANIFEST {
            return Err(io::Error::other(format!(
                "it would have more than {MOST_FILES} files, and could not be restored"
            )));
        }
        let digest = digest_line(&text);
        self.add(MANIFEST, &text[..], text.len() as u64)?;
        self.add(MANIFEST_DIGEST, digest.as_bytes(), digest.len() as u64)?;
        let mut file = self.tar.into_inner()?;
        file.flush()?;
        file.get_ref().sync_all()?;
        Ok(manifest)
    }
}

fn digest_line(manifest: &[u8]) -> String {
    format!("{}  {MANIFEST}\n", sha256_hex(manifest))
}

/// Reads an archive to its end and compares every byte with its manifest. The file of a name goes to the path that `place`
/// gives, which `create` makes.
pub fn read(
    path: &Path,
    place: impl Fn(&str) -> Option<PathBuf>,
    create: impl Fn(&Path) -> io::Result<File>,
) -> Result<BackupManifest, BackupError> {
    let file = File::open(path).map_err(BackupError::io(path.display()))?;
    let mut archive = tar::Archive::new(BufReader::new(file));
    let broken = |error: io::Error| BackupError::Damaged(format!("it is cut off or no archive: {error}"));
    let (mut found, mut manifest, mut closed) = (BTreeMap::new(), None, false);
    // Raw: what says something of the next entry, such as a long name of a gigabyte, is an entry itself, and refused.
    for entry in archive.entries().map_err(broken)?.raw(true) {
        let mut entry = entry.map_err(broken)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if !entry.header().entry_type().is_file() {
            return Err(BackupError::Damaged(format!("{name} is an entry of a kind that no backup has")));
        }
        if closed || found.len() >= MOST_FILES {
            return Err(BackupError::Damaged(format!("{name} does not belong there")));
        }
        match name.as_str() {
            MANIFEST | MANIFEST_DIGEST => {
                if entry.size() > LARGEST_MANIFEST {
                    let bytes = entry.size();
                    return Err(BackupError::Damaged(format!("{name} has {bytes} bytes, which no backup has there")));
                }
                let mut text = Vec::new();
                entry.read_to_end(&mut text).map_err(broken)?;
                if name == MANIFEST {
                    manifest = Some(text);
                } else {
                    closed = manifest.as_ref().is_some_and(|manifest| digest_line(manifest).as_bytes() == text);
                }
            }
            _ if !is_known(&name) => return Err(BackupError::Damaged(format!("{name} does not belong there"))),
            _ => {
                let place = place(&name);
                let unwritten = |error| BackupError::io(place.as_deref().unwrap_or(path).display())(error);
                let mut target = place.as_deref().map(&create).transpose().map_err(unwritten)?;
                let mut content = DigestingReader::new(&mut entry);
                copy(&name, &mut content, target.as_mut(), unwritten)?;
                let (bytes, sha256) = content.finish();
                found.insert(name.clone(), ArchivedFile { name, bytes, sha256 });
            }
        }
    }
    let manifest = manifest.filter(|_| closed);
    let manifest = manifest.ok_or_else(|| BackupError::Damaged("it is cut off: its manifest is missing".to_owned()))?;
    compared(&manifest, found)
}

/// Copies the content of this file; without a target, it is only read.
fn copy(
    name: &str,
    mut content: impl Read,
    mut target: Option<&mut File>,
    unwritten: impl Fn(io::Error) -> BackupError,
) -> Result<(), BackupError> {
    let mut piece = Vec::new();
    // Not `io::copy`, which does not say which of the two failed.
    loop {
        piece.clear();
        let read = (&mut content).take(PIECE).read_to_end(&mut piece);
        if read.map_err(|error| BackupError::Damaged(format!("{name}: {error}")))? == 0 {
            break;
        }
        if let Some(target) = &mut target {
            target.write_all(&piece).map_err(&unwritten)?;
        }
    }
    target.map_or(Ok(()), |target| target.sync_all().map_err(unwritten))
}

/// The manifest, if it names exactly the files that were found.
fn compared(manifest: &[u8], mut found: BTreeMap<String, ArchivedFile>) -> Result<BackupManifest, BackupError> {
    let manifest: BackupManifest =
        serde_json::from_slice(manifest).map_err(|error| BackupError::Damaged(format!("its manifest: {error}")))?;
    if manifest.format != FORMAT {
        return Err(BackupError::Refused(format!(
            "the backup has format {}, and this program reads {FORMAT}: use companion {}",
            manifest.format, manifest.version
        )));
    }
    for file in &manifest.files {
        if found.remove(&file.name).as_ref() != Some(file) {
            return Err(BackupError::Damaged(format!("{} is not as it was when the backup was taken", file.name)));
        }
    }
    match found.keys().next() {
        Some(name) => Err(BackupError::Damaged(format!("{name} is not in its manifest"))),
        None => Ok(manifest),
    }
}

/// True if a backup may have a file of this name; none of them leads out of its directory.
fn is_known(name: &str) -> bool {
    [DATABASE, JOURNAL, REFUSED, ERASURES, SECRETS_FILE].contains(&name)
        || name.strip_prefix(IMAGES).and_then(ImageName::parse).is_some()
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    #[test]
    fn a_full_disk_is_not_the_fault_of_the_backup() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("it.tar");
        let mut writer = ArchiveWriter::new(File::create(&path).unwrap(), 0);
        writer.add(DATABASE, &b"rows"[..], 4).unwrap();
        writer.finish(BackupManifest::default()).unwrap();
        let open = |path: &Path| OpenOptions::new().write(true).open(path);
        let full = read(&path, |_| Some("/dev/full".into()), open).unwrap_err().to_string();
        assert!(full.starts_with("/dev/full: No space left"), "{full}");
        assert_eq!(read(&path, |_| None, open).unwrap().files.len(), 1);
    }
}
