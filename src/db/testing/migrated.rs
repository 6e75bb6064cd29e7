//! Databases with the newest schema for tests: copies of one that is made once, as all the steps take a second and more.

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use diesel::{Connection as _, PgConnection, connection::SimpleConnection as _};

/// Taken while the template on PostgreSQL is made.
const TEMPLATE_LOCK: i64 = 0x7465_6d70_6c61_7465;
const TEMPLATES: &str = "companion_template_";

/// Makes this database on PostgreSQL. `migrate` migrates it, if it is the first with these steps. A copy stays on the
/// server as the template for all others, also of later runs. Templates of other steps stay: another branch may use them.
pub fn create_on_postgres(server: &str, name: &str, migrate: impl FnOnce()) {
    let mut connection = PgConnection::establish(server).expect("PostgreSQL answers");
    let mut sql = |sql: String| connection.batch_execute(&sql);
    let template = format!("{TEMPLATES}{:016x}", hash_of_steps().expect("the steps are files"));
    let copy = format!("CREATE DATABASE {name} TEMPLATE {template}");
    if sql(copy.clone()).is_ok() {
        return;
    }
    sql(format!("SELECT pg_advisory_lock({TEMPLATE_LOCK})")).expect("it is free in the end");
    // Another test may have made it meanwhile.
    if sql(copy).is_ok() {
        return;
    }
    sql(format!("CREATE DATABASE {name}")).expect("its role may make databases");
    migrate();
    sql(format!("CREATE DATABASE {template} TEMPLATE {name}")).expect("no connection to it is open");
}

fn hash_of_steps() -> io::Result<u64> {
    let steps = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations/postgres"))?;
    let mut files: Vec<PathBuf> = steps.map(|step| Ok(step?.path().join("up.sql"))).collect::<io::Result<_>>()?;
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        fs::read(file)?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// Makes this database on SQLite. `migrate` migrates the file with this path, if it is the first of the process.
pub fn create_on_sqlite(path: &Path, migrate: impl FnOnce(&Path)) {
    static TEMPLATE: OnceLock<Vec<u8>> = OnceLock::new();
    let template = TEMPLATE.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("template.db");
        migrate(&path);
        fs::read(path).expect("it was made")
    });
    fs::write(path, template).expect("its directory is there");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("it is our own");
}
