//! Checks a backup, and puts what it holds back.

use std::{
    collections::BTreeSet,
    fmt,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use diesel::{QueryableByName, sql_query, sql_types::Text};

use super::{
    archive::{self, BackupManifest, DATABASE, IMAGES},
    error::BackupError,
    stage::{directory_of, private_stage},
};
use crate::{
    clock::Clock,
    config::{Database, ImageStorage, LOCK_FILE, Settings, StoragePlaces, create_private_dir, take_data_dir},
    db::{
        audit::{self, AuditHead},
        engine::{self, Access, error::DbError, pool::Db, prelude::RunQuery as _, schema_steps},
        files::{
            erasure_list::{self, ErasureStep, RepeatedErasures},
            journal::{self, JOURNAL},
        },
        images,
    },
    domain::{ids::UserId, image_name::ImageName, plain_text::escaped},
    uploads,
};

const WERE_IN_S3: &str = "not in it: the images, which were in S3";

/// Options of a restore.
#[derive(clap::Args)]
pub struct RestoreOptions {
    /// A file that `companion backup` wrote
    file: PathBuf,
    /// A list of erasures (`erasures.list`) that is newer than the backup: that of the earlier data directory, or of a
    /// newer backup. The users on it are erased again
    #[arg(long, value_name = "FILE", conflicts_with = "verify")]
    erasures: Option<PathBuf>,
    /// Only check that it is whole and could be restored; changes nothing
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    pub settings: Settings,
}

/// A backup that is whole, or was restored.
#[derive(Debug)]
pub struct Restored {
    /// Where to; `None`: nowhere.
    data_dir: Option<PathBuf>,
    manifest: BackupManifest,
    audit: AuditHead,
    /// Users on the lists of erasures, and those of them who were in the backup; `None`: nothing was restored.
    erasures: Option<(usize, usize)>,
    /// Where the images are, if they are not where the service looks for them, or not in the backup.
    images: Option<String>,
}

impl fmt::Display for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { data_dir, manifest, audit, erasures, images } = self;
        let BackupManifest { version, schema, taken_at, files, secrets_left_out, .. } = manifest;
        let (version, schema, taken_at) = (escaped(version), escaped(schema), escaped(taken_at));
        match data_dir {
            None => write!(f, "The backup is whole: ")?,
            Some(data_dir) => write!(f, "Restored into {}: ", data_dir.display())?,
        }
        write!(f, "taken at {taken_at} by companion {version}, schema {schema}, {} files, ", files.len())?;
        match audit.id {
            0 => write!(f, "no audit entry")?,
            id => write!(f, "{id} audit entries, the last hash is {}", audit.hash)?,
        }
        if let Some((listed, erased)) = erasures {
            write!(
                f,
                "\nerasures: {listed} users on the list, {erased} of them were in the backup and are erased again"
            )?;
        }
        for image in &manifest.missing_images {
            write!(f, "\nmissing since before it was taken: the image {}", escaped(image))?;
        }
        if let Some(images) = images {
            write!(f, "\n{images}")?;
        }
        if !secrets_left_out.is_empty() {
            let secrets = escaped(&secrets_left_out.join(", "));
            write!(f, "\nnot in it: {secrets}; the service needs the same as before")?;
        }
        Ok(())
    }
}

/// Checks the backup, and restores it unless only that was asked. Blocks.
pub fn restore(options: RestoreOptions, clock: &Clock) -> Result<Restored, BackupError> {
    let RestoreOptions { file, erasures, verify, settings } = options;
    if verify {
        return verified(&file);
    }
    let StoragePlaces { data_dir, database, images } = settings.storage()?;
    let Database::Sqlite(database) = database else { return Err(BackupError::Postgres(data_dir)) };
    let made = MadePaths::from_here_on(&data_dir, directory_of(&database));
    let in_use = take_data_dir(&data_dir).map_err(BackupError::io(data_dir.display()))?;
    let Some(_in_use) = in_use else {
        made.keep();
        return Err(BackupError::Refused(format!("{}: a companion serves from it", data_dir.display())));
    };
    // Removed while the directory is still ours.
    let made = made;
    refuse_used(&data_dir, &database)?;
    create_private_dir(directory_of(&database)).map_err(BackupError::io(database.display()))?;
    let (stage, database_stage) = (private_stage(&data_dir)?, private_stage(directory_of(&database))?);
    create_private_dir(&stage.path().join(IMAGES)).map_err(BackupError::io(data_dir.display()))?;
    let staged = |name: &str| match name {
        DATABASE => database_stage.path().join(name),
        _ => stage.path().join(name),
    };
    let manifest = archive::read(&file, |name| Some(staged(name)), create)?;
    let audit = check_database(&staged(DATABASE), &manifest)?;

    let erasures = erasures.map_or(Ok(Vec::new()), |path| listed_in(&path))?;
    let of_backup = erasure_list::read(stage.path()).map_err(BackupError::io(file.display()))?;
    let listed: BTreeSet<UserId> = erasures.iter().chain(&of_backup).cloned().collect();
    let erased = erase_again(&staged(DATABASE), &listed, clock)?;
    journal::take_out(stage.path(), &erased.servers).map_err(BackupError::io(JOURNAL))?;

    let (images, advice) = image_place(images, &data_dir, &manifest);
    let put = || -> io::Result<()> {
        for file in manifest.files.iter().filter(|file| file.name != DATABASE) {
            let image = file.name.strip_prefix(IMAGES).and_then(ImageName::parse);
            let place = image.map_or_else(|| data_dir.join(&file.name), |image| uploads::file_in(&images, &image));
            create_private_dir(directory_of(&place))?;
            fs::rename(staged(&file.name), &place)?;
            File::open(directory_of(&place))?.sync_all()?;
        }
        for user in &erasures {
            erasure_list::note(&data_dir, ErasureStep::Done, user, clock.now())?;
        }
        // Last: what has no database was not restored.
        fs::rename(staged(DATABASE), &database)?;
        File::open(directory_of(&database))?.sync_all()
    };
    put().map_err(BackupError::io(data_dir.display()))?;
    made.keep();
    // Nothing has served from here yet: a first start in development makes the secrets that are in no backup.
    fs::remove_file(data_dir.join(LOCK_FILE)).map_err(BackupError::io(data_dir.display()))?;
    let erasures = Some((listed.len(), erased.users));
    Ok(Restored { data_dir: Some(data_dir), manifest, audit, erasures, images: advice })
}

/// Refuses a data directory in which something is, and a database that is there.
fn refuse_used(data_dir: &Path, database: &Path) -> Result<(), BackupError> {
    let is_empty = fs::read_dir(data_dir).and_then(|entries| {
        let names: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.file_name())).collect();
        Ok(names?.iter().all(|name| Path::new(name).extension().is_some_and(|end| end == "lock")))
    });
    if !is_empty.map_err(BackupError::io(data_dir.display()))? {
        let refusal = format!("{} is not empty: restore into another DATA_DIR, or move it away", data_dir.display());
        return Err(BackupError::Refused(refusal));
    }
    if database.exists() {
        return Err(BackupError::Refused(format!("{} exists already", database.display())));
    }
    Ok(())
}

/// The users on a list of erasures.
fn listed_in(path: &Path) -> Result<Vec<UserId>, BackupError> {
    let list = fs::read_to_string(path).map_err(BackupError::io(path.display()))?;
    let ids = erasure_list::checked_ids(&list);
    ids.map_err(|fault| BackupError::Refused(format!("{}: {fault}", path.display())))
}

/// Checks the backup, and restores nothing.
fn verified(file: &Path) -> Result<Restored, BackupError> {
    let stage = private_stage(&std::env::temp_dir())?;
    let database = stage.path().join(DATABASE);
    let manifest = archive::read(file, |name| (name == DATABASE).then(|| database.clone()), create)?;
    let audit = check_database(&database, &manifest)?;
    let images = manifest.images_in_s3.then(|| WERE_IN_S3.to_owned());
    Ok(Restored { data_dir: None, manifest, audit, erasures: None, images })
}

/// The directory for the images of the backup, and advice for the operator if they are needed elsewhere.
fn image_place(images: ImageStorage, data_dir: &Path, manifest: &BackupManifest) -> (PathBuf, Option<String>) {
    match images {
        ImageStorage::Directory(directory) => {
            let place = directory.display().to_string();
            let advice = format!("{WERE_IN_S3}: copy them into {place}, or set IMAGES_S3_BUCKET");
            (directory, manifest.images_in_s3.then_some(advice))
        }
        ImageStorage::S3(bucket) => {
            let (directory, bucket) = (data_dir.join("images"), bucket.name);
            let place = directory.display().to_string();
            let has_images = manifest.files.iter().any(|file| file.name.starts_with(IMAGES));
            let advice = match manifest.images_in_s3 {
                true => Some(format!("{WERE_IN_S3}: the service looks for them in the bucket {bucket}")),
                false => has_images.then(|| {
                    format!("its images are in {place}: upload what is there into the bucket {bucket}, where the service looks for them")
                }),
            };
            (directory, advice)
        }
    }
}

/// Erases who is on the list from a copy, which keeps nothing of them.
fn erase_again(copy: &Path, listed: &BTreeSet<UserId>, clock: &Clock) -> Result<RepeatedErasures, BackupError> {
    let mut db = Db::Sqlite(engine::open_sqlite(copy, Access::Write)?);
    let listed: Vec<UserId> = listed.iter().cloned().collect();
    Ok(erasure_list::apply(&mut db, &listed, clock.now())?)
}

/// Paths that a restore makes before it knows that it goes on: removed when dropped, unless something is in it.
struct MadePaths(Vec<PathBuf>);

impl MadePaths {
    /// The missing parts of the directory with its lock, and of that of the database.
    fn from_here_on(data_dir: &Path, of_database: &Path) -> Self {
        let lock = data_dir.join(LOCK_FILE);
        let all = lock.ancestors().chain(of_database.ancestors()).filter(|path| !path.as_os_str().is_empty());
        let mut made: Vec<PathBuf> = all.filter(|path| !path.exists()).map(Path::to_owned).collect();
        // The inner ones first.
        made.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
        Self(made)
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for MadePaths {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
        }
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[derive(QueryableByName)]
struct FoundText {
    #[diesel(sql_type = Text)]
    found: String,
}

/// Checks that a service can go on with this copy, which is brought up to date on the way.
fn check_database(copy: &Path, manifest: &BackupManifest) -> Result<AuditHead, BackupError> {
    let mut db = Db::Sqlite(engine::open_sqlite(copy, Access::Write)?);
    let check = |db: &mut Db, query: &str| -> Result<Option<String>, BackupError> {
        let rows: Vec<FoundText> = sql_query(query).load(db).map_err(DbError::from)?;
        Ok(rows.into_iter().map(|row| row.found).find(|found| found != "ok"))
    };
    for (query, what) in [
        ("SELECT integrity_check AS found FROM pragma_integrity_check", "its integrity"),
        ("SELECT \"table\" AS found FROM pragma_foreign_key_check LIMIT 1", "a row without the one it belongs to, in"),
    ] {
        if let Some(found) = check(&mut db, query)? {
            return Err(BackupError::Damaged(format!("the database: {what}: {found}")));
        }
    }
    let steps = schema_steps::read(&mut db)?;
    if let Some(step) = steps.unknown.first() {
        return Err(BackupError::Refused(format!(
            "the backup is of a newer companion ({}, schema step {step}): use that",
            manifest.version
        )));
    }
    if steps.newest.as_ref() != Some(&manifest.schema) {
        return Err(BackupError::Damaged("the database has another schema than the manifest says".to_owned()));
    }
    drop(db);
    schema_steps::migrate(&Database::Sqlite(copy.to_owned()))?;
    let mut db = Db::Sqlite(engine::open_sqlite(copy, Access::Write)?);
    let audit = audit::verify(&mut db, |_, _| ())?;
    let audit = audit.map_err(|broken| BackupError::Damaged(format!("the chain of the audit log: {broken}")))?;
    if !manifest.images_in_s3 {
        let names = manifest.files.iter().filter_map(|file| file.name.strip_prefix(IMAGES));
        let accounted: BTreeSet<&str> = names.chain(manifest.missing_images.iter().map(String::as_str)).collect();
        let known = images::kept(&mut db)?;
        if let Some(image) = known.iter().find(|image| !accounted.contains(image.as_str())) {
            return Err(BackupError::Damaged(format!("the image {} is not in it", image.as_str())));
        }
    }
    Ok(audit)
}
