//! Compiles the protobuf messages of the game and of its pushes, lists the files of the bundled pages, watches the
//! migrations, and notes the commit.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    println!("cargo:rustc-env=COMPANION_COMMIT={}", commit().unwrap_or_else(|| "unknown".to_owned()));
    // Embedded by a macro of diesel_migrations, which the compiler does not watch.
    println!("cargo:rerun-if-changed=migrations");
    list_web_files();
    for (proto, directory) in [("src/game/companion.proto", "src/game"), ("src/push/mcs.proto", "src/push")] {
        println!("cargo:rerun-if-changed={proto}");
        let messages = protox::compile([proto], [directory]).unwrap_or_else(|error| panic!("{proto}: {error}"));
        prost_build::Config::new()
            .bytes(["."])
            .skip_debug([".mcs.LoginRequest", ".mcs.AppData"]) // they hold secrets
            .compile_fds(messages)
            .expect("the output directory is writable");
    }
}

/// Below this, each file is embedded, except what only developers read.
const WEB_FILES: &str = "src/web/files";

/// Writes the table of the bundled pages' files: paths and bytes.
fn list_web_files() {
    println!("cargo:rerun-if-changed={WEB_FILES}");
    let root = Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join(WEB_FILES);
    let mut paths = Vec::new();
    collect(&root, &mut paths);
    paths.sort();
    let lines = paths.iter().filter(|path| path.extension().is_none_or(|ending| ending != "ts" && ending != "md")).map(
        |path| {
            let name = path.strip_prefix(&root).expect("it was found there").to_string_lossy().replace('\\', "/");
            format!("    ({name:?}, include_bytes!({path:?})),\n")
        },
    );
    let table =
        format!("/// Paths and bytes.\npub static FILES: &[(&str, &[u8])] = &[\n{}];\n", lines.collect::<String>());
    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("web_files.rs"), table).expect("the output directory is writable");
}

fn collect(directory: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display())) {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() { collect(&path, paths) } else { paths.push(path) }
    }
}

/// `git archive` puts the commit in here; in a clone it is a placeholder.
const ARCHIVED: &str = "src/build/commit";

/// The commit of this source: `COMPANION_COMMIT` where it is built without its history, or what an archive or git says.
fn commit() -> Option<String> {
    println!("cargo:rerun-if-env-changed=COMPANION_COMMIT");
    let is_commit = |text: &String| text.len() >= 7 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if let Some(given) = env::var("COMPANION_COMMIT").ok().filter(is_commit) {
        return Some(given);
    }
    println!("cargo:rerun-if-changed={ARCHIVED}");
    let archived = fs::read_to_string(ARCHIVED).map(|text| text.trim().to_owned());
    if let Some(archived) = archived.ok().filter(is_commit) {
        return Some(archived[..12.min(archived.len())].to_owned());
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    // Another repository around this directory says nothing of it.
    let top = fs::canonicalize(git(&["rev-parse", "--show-toplevel"])?).ok()?;
    if top != fs::canonicalize(env::var_os("CARGO_MANIFEST_DIR")?).ok()? {
        return None;
    }
    // A debug build keeps the commit of when it was last built whole: each commit would compile everything again.
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
        for name in ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
            let path = git(&["rev-parse", "--git-path", name])?;
            // One that is missing would count as changed each time.
            if Path::new(&path).exists() {
                println!("cargo:rerun-if-changed={path}");
            }
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"]).filter(is_commit)
}
