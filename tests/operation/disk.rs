//! A real file system that runs full, and a limit of the size of files.

use std::{fs, path::Path, process::Command};

use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;

use super::{User, installation, still_game, until};
use crate::crash::{Installation, Service};

/// A file system of 96 MiB in memory, unmounted when dropped.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// `None` where this user may mount nothing.
    fn mount() -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=96m", "companion-test"]).arg(directory.path());
        mount.output().is_ok_and(|output| output.status.success()).then(|| Self(directory))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).output();
    }
}

#[actix_web::test]
async fn a_full_disk_is_noticed_and_so_is_its_end() {
    let Some(disk) = SmallDisk::mount() else {
        return eprintln!("skipped: only root may mount a file system to fill");
    };
    let data_dir = format!("--data-dir={}", disk.path().join("data").display());
    let installation = Installation::new(|_| vec!["--push-address=127.0.0.1:9".to_owned()]).with_flag(&data_dir);
    let service = installation.start();
    let user = User::new(&service.addresses, "");
    let missing = || async {
        let (status, answer) = user.ask(Method::GET, "/ready", None).await.unwrap();
        let parts = answer["errors"].as_array().into_iter().flatten().map(|part| part["path"].clone());
        (status, parts.collect::<Vec<_>>())
    };
    until("ready", || async { missing().await == (200, vec![]) }).await;

    let filler = disk.path().join("filler");
    fs::write(&filler, vec![1; 60 << 20]).unwrap();
    until("almost full", || async { missing().await == (503, vec![json!("disk")]) }).await;

    // To the last byte.
    let mut rest = 64 << 20;
    while rest > 512 {
        match fs::write(disk.path().join(format!("rest-{rest}")), vec![1; rest]) {
            Ok(()) => {}
            Err(_) => rest /= 2,
        }
    }
    // The database still has what its log was given before; what it then says comes beside.
    let (status, parts) = missing().await;
    assert!(status == 503 && parts.contains(&json!("disk")), "{parts:?}");
    assert_eq!(user.ask(Method::GET, "/health", None).await.unwrap().0, 200);

    for entry in fs::read_dir(disk.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::remove_file(path).unwrap();
        }
    }
    until("ready again", || async { missing().await == (200, vec![]) }).await;
}

/// As `ulimit -f` sets it, in bytes.
#[cfg(target_os = "linux")]
fn limit_files(service: &Service, limit: Option<u64>) {
    use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
    let process = Pid::from_raw(service.id().try_into().unwrap());
    let maximum = getrlimit(Resource::Fsize).maximum;
    prlimit(process, Resource::Fsize, Rlimit { current: limit.or(maximum), maximum }).unwrap();
}

#[cfg(target_os = "linux")]
#[actix_web::test]
async fn a_write_beyond_the_limit_of_the_size_of_files_fails_and_the_process_lives() {
    let (installation, cookies) = installation(1, &[]);
    let service = installation.start();
    let user = User::new(&service.addresses, &cookies[0]);
    let server = user.pair(still_game().await.addr()).await;
    let rename = |locale: &'static str| user.ask(Method::PATCH, "/me", Some(json!({ "locale": locale })));
    assert_eq!(rename("de-CH").await.unwrap().0, 200);

    limit_files(&service, Some(0));
    let refused = rename("fr-CH").await.expect("the process lives");
    assert!(refused.0 >= 500, "{refused:?}");
    // Neither the database nor the journal takes it.
    let drill = format!("/paired-servers/{server}/drill");
    let refused = user.ask(Method::POST, &drill, Some(json!({}))).await.expect("the process lives");
    assert!(refused.0 >= 500, "{refused:?}");
    assert_eq!(user.ask(Method::GET, "/health", None).await.expect("the process lives").0, 200);

    limit_files(&service, None);
    until("writes again", || async { rename("it-CH").await.is_some_and(|(status, _)| status == 200) }).await;
}
