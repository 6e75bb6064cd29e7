//! `companion backup` and `companion restore`: all that a service on SQLite keeps, in one file, taken while it runs;
//! and `companion store-backup`: a copy of a backup, of either engine, off site.
//!
//! The file is a tar archive: the database as of one moment; the journal of alarms as of just before it, because an
//! alarm that is in both is stored once; the images that this database knows; and a manifest with the SHA-256 of each
//! file, itself followed by its SHA-256. So whatever is cut off or changed shows.

mod archive;
mod error;
mod restore;
mod stage;
mod store;

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use diesel::{sql_query, sql_types::Text};

use self::{
    archive::{ArchiveWriter, BackupManifest, DATABASE, IMAGES},
    stage::{directory_of, private_stage},
};
pub use self::{
    error::BackupError,
    restore::{RestoreOptions, Restored, restore},
    store::{StoreOptions, StoredBackup, store},
};
use crate::{
    clock::Clock,
    config::{Database, ImageStorage, SECRETS_FILE, Settings, StoragePlaces, fresh_secrets},
    db::{
        engine::{self, Access, database_file, error::DbError, pool::Db, prelude::RunQuery as _, schema_steps},
        files::{
            erasure_list::ERASURES,
            journal::{JOURNAL, REFUSED},
        },
        images,
    },
    domain::image_name::ImageName,
    uploads,
};

/// Options of a backup.
#[derive(clap::Args)]
pub struct BackupOptions {
    /// The file to write, a tar archive; it must not exist yet
    file: PathBuf,
    /// Put the secrets that development made (`secrets.env`) into the backup, too
    #[arg(long)]
    with_secrets: bool,
    #[command(flatten)]
    pub settings: Settings,
}

/// A backup that was taken.
#[derive(Debug)]
pub struct TakenBackup {
    file: PathBuf,
    bytes: u64,
    manifest: BackupManifest,
}

impl fmt::Display for TakenBackup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, bytes, manifest } = self;
        let (file, files, schema) = (file.display(), manifest.files.len(), &manifest.schema);
        writeln!(f, "{file}: {bytes} bytes, {files} files, schema {schema}")?;
        for image in &manifest.missing_images {
            writeln!(f, "missing: the image {image} is not in the directory of images")?;
        }
        if manifest.images_in_s3 {
            writeln!(f, "not in it: the images, which are in S3 (IMAGES_S3_BUCKET)")?;
        }
        if !manifest.secrets_left_out.is_empty() {
            let secrets = manifest.secrets_left_out.join(", ");
            writeln!(f, "not in it: {secrets}; keep them elsewhere. Without CREDS_ENCRYPTION_KEY no credential opens")?;
        }
        write!(f, "To check it: companion restore --verify {file}")
    }
}

/// Takes a backup, of a service that may run meanwhile. Blocks.
pub fn back_up(options: BackupOptions, clock: &Clock) -> Result<TakenBackup, BackupError> {
    let BackupOptions { file, with_secrets, settings } = options;
    let StoragePlaces { data_dir, database, images } = settings.storage()?;
    let Database::Sqlite(database) = database else { return Err(BackupError::Postgres(data_dir)) };
    if !database.exists() {
        let path = std::path::absolute(&database).unwrap_or(database);
        return Err(BackupError::Refused(format!("{} does not exist; is DATA_DIR right?", path.display())));
    }
    if file.exists() {
        return Err(BackupError::Refused(format!("{} exists already", file.display())));
    }
    let directory = directory_of(&file);
    let stage = private_stage(directory)?;
    let now = clock.now();

    let small = small_files(&data_dir, with_secrets)?;
    let copy = stage.path().join(DATABASE);
    let (schema, known_images) = copy_database(&database, &copy)?;

    let unfinished = stage.path().join("unfinished.tar");
    let archive = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished);
    let archive = archive.map_err(BackupError::io(unfinished.display()))?;
    let mut archive = ArchiveWriter::new(archive, now.timestamp().unsigned_abs());
    let written = BackupError::io(file.display());
    let write = || -> io::Result<_> {
        add_file(&mut archive, DATABASE, File::open(&copy)?)?;
        // Its room is for the images.
        fs::remove_file(&copy)?;
        for (name, content) in &small {
            archive.add(name, &content[..], content.len() as u64)?;
        }
        let missing_images = match &images {
            ImageStorage::Directory(directory) => add_images(&mut archive, directory, &known_images)?,
            ImageStorage::S3(_) => Vec::new(),
        };
        let contained = small.iter().find(|(name, _)| *name == SECRETS_FILE).map(|(_, content)| content);
        let contained = String::from_utf8_lossy(contained.map_or(&[][..], Vec::as_slice)).into_owned();
        let secrets = fresh_secrets().map(|(variable, _)| variable.to_owned()).into_iter();
        let is_contained = |variable: &String| contained.lines().any(|line| line.starts_with(&format!("{variable}=")));
        let manifest = archive.finish(BackupManifest {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema,
            taken_at: now.to_wire(),
            secrets_left_out: secrets.filter(|variable| !is_contained(variable)).collect(),
            images_in_s3: matches!(images, ImageStorage::S3(_)),
            missing_images,
            ..BackupManifest::default()
        })?;
        let bytes = unfinished.metadata()?.len();
        fs::rename(&unfinished, &file)?;
        File::open(directory)?.sync_all()?;
        Ok((manifest, bytes))
    };
    let (manifest, bytes) = write().map_err(written)?;
    Ok(TakenBackup { file, bytes, manifest })
}

/// The small files of the data directory that have something in them, by name.
fn small_files(data_dir: &Path, with_secrets: bool) -> Result<Vec<(&'static str, Vec<u8>)>, BackupError> {
    let mut small = Vec::new();
    for name in [JOURNAL, REFUSED, ERASURES] {
        let mut lines = read_if_there(&data_dir.join(name))?;
        // The last line may be half written.
        lines.truncate(lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        small.push((name, lines));
    }
    if with_secrets {
        small.push((SECRETS_FILE, read_if_there(&data_dir.join(SECRETS_FILE))?));
    }
    small.retain(|(_, content)| !content.is_empty());
    Ok(small)
}

/// Writes the database as it is now to another file: its newest step and the images that it knows. No writer waits for
/// this.
fn copy_database(database: &Path, copy: &Path) -> Result<(String, Vec<ImageName>), BackupError> {
    let to = copy.to_str().ok_or_else(|| BackupError::Refused(format!("{} is not UTF-8", copy.display())))?;
    database_file::refuse_unsafe(database)?;
    let mut connection = engine::open_sqlite(database, Access::Write)?;
    sql_query("VACUUM INTO ?").bind::<Text, _>(to).execute(&mut connection).map_err(DbError::from)?;
    drop(connection);
    // The log may have been removed just before the file was opened.
    database_file::refuse_unsafe(database)?;
    let mut copied = Db::Sqlite(engine::open_sqlite(copy, Access::Read)?);
    let steps = schema_steps::read(&mut copied)?;
    let schema = steps.newest.ok_or_else(|| BackupError::Refused("the database is empty".to_owned()))?;
    Ok((schema, images::kept(&mut copied)?))
}

/// Adds these images, and returns those that are not there.
fn add_images(archive: &mut ArchiveWriter, directory: &Path, images: &[ImageName]) -> io::Result<Vec<String>> {
    let mut missing = Vec::new();
    for image in images {
        match File::open(uploads::file_in(directory, image)) {
            Ok(content) => add_file(archive, &format!("{IMAGES}{}", image.as_str()), content)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(image.as_str().to_owned()),
            Err(error) => return Err(error),
        }
    }
    Ok(missing)
}

fn add_file(archive: &mut ArchiveWriter, name: &str, content: File) -> io::Result<()> {
    let bytes = content.metadata()?.len();
    archive.add(name, content, bytes)
}

fn read_if_there(path: &Path) -> Result<Vec<u8>, BackupError> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(BackupError::io(path.display())),
    }
}
