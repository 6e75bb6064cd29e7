//! A limit of the size of files (`ulimit -f`, `LimitFSIZE=`): a write beyond it ends a process that does not handle
//! the signal, and fails as on a full disk in one that does.

use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// From now on such a write fails. Call it where tokio runs.
pub fn survive_limit() -> io::Result<()> {
    // Its handler stays when it is dropped.
    signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map(drop)
}

#[cfg(test)]
mod tests {
    use std::{env, io::Write as _, process::Command};

    use rustix::process::{Resource, Rlimit, setrlimit};

    use super::*;

    const LIMITED: &str = "COMPANION_TEST_FILE_SIZE";

    #[tokio::test]
    async fn a_write_beyond_the_limit_fails_and_the_process_goes_on() {
        if env::var_os(LIMITED).is_none() {
            let name = "db::engine::file_size::tests::a_write_beyond_the_limit_fails_and_the_process_goes_on";
            let child = Command::new(env::current_exe().unwrap()).args(["--exact", name]).env(LIMITED, "1").output();
            let child = child.unwrap();
            assert!(child.status.success(), "{}: {}", child.status, String::from_utf8_lossy(&child.stdout));
            return;
        }
        survive_limit().unwrap();
        setrlimit(Resource::Fsize, Rlimit { current: Some(4_096), maximum: None }).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        let failed = file.write_all(&[0; 8_192]).expect_err("it is too large");
        assert_eq!(failed.kind(), io::ErrorKind::FileTooLarge);
    }
}
