//! `companion store-backup`: a copy of a backup in the bucket of images, where only the newest ones are kept, and the time of
//! the backup for the metrics.

use std::{
    fmt,
    fs::{self, File},
    io::Read as _,
    path::PathBuf,
    time::Duration,
};

use chrono::DateTime;
use futures_util::TryStreamExt as _;
use object_store::{MultipartUpload as _, ObjectStore, ObjectStoreExt as _, path::Path};
use tokio::time::timeout;

use super::error::BackupError;
use crate::{
    clients::http,
    clock::Clock,
    config::{ImageStorage, Settings, StoragePlaces},
    db::files::last_backup,
    domain::time::Timestamp,
    net::tls_config,
    uploads,
};

/// Before the names of backups in the bucket.
const PREFIX: &str = "backups";
/// Bytes of a piece; S3 takes 10,000 of them: 50 GB. The client gives each 8 s.
const PIECE: u64 = 5 << 20;
/// The deadline of a piece with its retries.
const DEADLINE: Duration = Duration::from_secs(300);

/// The backup to copy.
#[derive(clap::Args)]
pub struct StoreOptions {
    /// A backup that was verified: of `companion backup`, or a dump of PostgreSQL. Names begin with `companion-` and
    /// sort by time
    file: PathBuf,
    /// Number of backups that are kept in the bucket
    #[arg(long, default_value = "14", value_parser = clap::value_parser!(u16).range(1..))]
    keep: u16,
    #[command(flatten)]
    pub settings: Settings,
}

/// A backup that was noted, and copied where there is a bucket.
#[derive(Debug, PartialEq, Eq)]
pub struct StoredBackup {
    /// The bucket, the object's name in it, and its size.
    copied: Option<(String, String, u64)>,
    deleted: Vec<String>,
}

impl fmt::Display for StoredBackup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.copied {
            Some((bucket, name, bytes)) => write!(f, "copied into the bucket {bucket}: {name}, {bytes} bytes")?,
            None => f.write_str("noted; there is no bucket to copy it into (IMAGES_S3_BUCKET)")?,
        }
        for name in &self.deleted {
            write!(f, "\ndeleted there: {name}")?;
        }
        Ok(())
    }
}

/// Copies the backup into the bucket, if there is one, deletes the oldest ones there, and notes its time.
pub async fn store(options: StoreOptions, clock: &Clock) -> Result<StoredBackup, BackupError> {
    let StoreOptions { file, keep, settings } = options;
    let authority = settings.trust.extra_ca_file.clone();
    let StoragePlaces { data_dir, images, .. } = settings.storage()?;
    let refused = |reason: &str| BackupError::Refused(format!("{}: {reason}", file.display()));
    let name = file.file_name().and_then(|name| name.to_str()).ok_or_else(|| refused("it has no name"))?.to_owned();
    if !name.starts_with("companion-") {
        return Err(refused("its name does not begin with `companion-`"));
    }
    let taken_at = fs::metadata(&file).and_then(|found| found.modified()).map_err(BackupError::io(file.display()))?;
    let mut stored = StoredBackup { copied: None, deleted: Vec::new() };
    if let ImageStorage::S3(bucket) = images {
        let client = tls_config(authority.as_deref().map(std::path::Path::new)).and_then(http::client);
        let client = client.map_err(BackupError::io("outgoing connections"))?;
        let objects = uploads::s3(&bucket, client)?;
        let path = Path::from_iter([PREFIX, &name]);
        let bytes = copy(&objects, &path, &file).await?;
        stored.copied = Some((bucket.name, path.to_string(), bytes));
        stored.deleted = delete_oldest(&objects, keep.into()).await?;
    }
    let taken_at = Timestamp::from(DateTime::from(taken_at)).min(clock.now());
    last_backup::note(&data_dir, taken_at).map_err(BackupError::io(data_dir.display()))?;
    Ok(stored)
}

/// Copies a file piece by piece, and gives its size, which the bucket confirms.
async fn copy(objects: &impl ObjectStore, path: &Path, file: &std::path::Path) -> Result<u64, BackupError> {
    let unread = || BackupError::io(file.display());
    let mut source = File::open(file).map_err(unread())?;
    let mut upload = in_time(objects.put_multipart(path)).await?;
    let mut bytes = 0;
    loop {
        let mut piece = Vec::new();
        let read = (&mut source).take(PIECE).read_to_end(&mut piece).map_err(unread())? as u64;
        if read > 0 {
            bytes += read;
            in_time(upload.put_part(piece.into())).await?;
        }
        if read < PIECE {
            break;
        }
    }
    in_time(upload.complete()).await?;
    let there = in_time(objects.head(path)).await?.size;
    match there == bytes {
        true => Ok(bytes),
        false => Err(BackupError::Refused(format!("{path} has {there} bytes in the bucket, of {bytes}"))),
    }
}

/// Deletes all backups but the newest, and names them.
async fn delete_oldest(objects: &impl ObjectStore, keep: usize) -> Result<Vec<String>, BackupError> {
    let listed = objects.list(Some(&Path::from(PREFIX))).map_ok(|found| found.location).try_collect::<Vec<Path>>();
    let mut backups = in_time(listed).await?;
    backups.retain(|path| path.filename().is_some_and(|name| name.starts_with("companion-")));
    backups.sort();
    backups.truncate(backups.len().saturating_sub(keep));
    for path in &backups {
        in_time(objects.delete(path)).await?;
    }
    Ok(backups.iter().map(Path::to_string).collect())
}

async fn in_time<T>(asked: impl Future<Output = object_store::Result<T>>) -> Result<T, BackupError> {
    match timeout(DEADLINE, asked).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(BackupError::Refused(format!("the bucket did not answer within {} s", DEADLINE.as_secs()))),
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn a_backup_of_any_size_is_copied_and_the_oldest_go() {
        let (directory, objects) = (tempfile::tempdir().unwrap(), InMemory::new());
        for (day, length) in [(1, 0), (2, 9), (3, PIECE as usize), (4, PIECE as usize + 1)] {
            let name = format!("companion-2026-11-0{day}.tar");
            let (file, path) = (directory.path().join(&name), Path::from_iter([PREFIX, &name]));
            let content: Vec<u8> = (0..length).map(|n| n as u8).collect();
            fs::write(&file, &content).unwrap();
            assert_eq!(copy(&objects, &path, &file).await.unwrap(), length as u64);
            assert!(objects.get(&path).await.unwrap().bytes().await.unwrap() == content, "{length} bytes");
        }
        objects.put(&Path::from("backups/of-others.tar"), "theirs".into()).await.unwrap();
        objects.put(&Path::from("images/companion-a.png"), "image".into()).await.unwrap();
        let deleted = delete_oldest(&objects, 2).await.unwrap();
        assert_eq!(deleted, ["backups/companion-2026-11-01.tar", "backups/companion-2026-11-02.tar"]);
        assert!(delete_oldest(&objects, 2).await.unwrap().is_empty());
        assert_eq!(objects.list(None).try_collect::<Vec<_>>().await.unwrap().len(), 4);
    }
}
