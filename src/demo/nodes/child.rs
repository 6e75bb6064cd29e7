//! A process that the demo starts, and that ends with it.

use std::{
    env,
    ffi::OsStr,
    fs::OpenOptions,
    io,
    os::unix::{fs::OpenOptionsExt as _, process::CommandExt as _},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

/// Variables that a child has of the demo's: none of them is a setting of the service. Those of libpq, `PG…`, are left to it as well.
const KEPT: [&str; 6] = ["HOME", "PATH", "TMPDIR", "LD_LIBRARY_PATH", "RUST_LOG", "RUST_BACKTRACE"];

/// A process; killed when dropped, and, on Linux, also when the demo ends in any other way.
pub struct DemoChild {
    process: Child,
    is_end_known: bool,
}

impl DemoChild {
    /// Starts this program with its output in a file, which begins empty. Call it on the main thread: on Linux a child ends
    /// with the thread that has started it. Ctrl-C reaches the demo alone, which then ends them in order.
    pub fn start(program: &OsStr, arguments: &[String], log: &Path) -> io::Result<Self> {
        let output = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(log)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(env::vars_os().filter(|(name, _)| is_kept(name)))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        end_with_parent(&mut command);
        Ok(Self { process: command.spawn()?, is_end_known: false })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// True until it has ended.
    pub fn runs(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// The way in which it has ended, the first time that this is asked afterwards.
    pub fn end(&mut self) -> Option<ExitStatus> {
        let end = self.process.try_wait().ok().flatten().filter(|_| !self.is_end_known)?;
        self.is_end_known = true;
        Some(end)
    }

    /// Asks it to end, also if it is stopped.
    pub fn terminate(&mut self) {
        if self.runs() {
            let process = Pid::from_child(&self.process);
            for signal in [Signal::TERM, Signal::CONT] {
                // Perhaps it has ended just now.
                let _ = kill_process(process, signal);
            }
        }
    }
}

impl Drop for DemoChild {
    fn drop(&mut self) {
        // Perhaps it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn is_kept(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("PG") || KEPT.contains(&name))
}

/// The kernel kills the process when the thread that has started it ends, however that is.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "there is no safe way to it")]
fn end_with_parent(command: &mut Command) {
    let ask = || rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from);
    // SAFETY: between fork and exec it makes one system call, and neither allocates nor takes a lock.
    unsafe { command.pre_exec(ask) };
}

#[cfg(not(target_os = "linux"))]
fn end_with_parent(_command: &mut Command) {}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_child_is_killed_with_its_value_and_its_end_is_news_once() {
        let directory = TempDir::new().unwrap();
        let log = directory.path().join("log");
        let start = |script: &str| DemoChild::start(OsStr::new("sh"), &["-c".to_owned(), script.to_owned()], &log);
        let mut ends = start("echo out; echo err >&2; exit 3").unwrap();
        ends.process.wait().unwrap();
        assert_eq!((ends.runs(), ends.end().and_then(|end| end.code()), ends.end()), (false, Some(3), None));
        assert_eq!(fs::read_to_string(&log).unwrap(), "out\nerr\n");

        let mut stays = start("exec sleep 600").unwrap();
        assert!(stays.runs() && stays.end().is_none());
        let process = Pid::from_child(&stays.process);
        drop(stays);
        assert!(rustix::process::test_kill_process(process).is_err(), "it is gone");
        assert_eq!(fs::read_to_string(&log).unwrap(), "");
    }

    #[test]
    fn a_child_has_no_setting_of_the_demo() {
        for kept in ["PATH", "PGPASSFILE"] {
            assert!(is_kept(OsStr::new(kept)), "{kept}");
        }
        for setting in ["DATABASE_URL", "SESSION_SECRET", "APP_ENV"] {
            assert!(!is_kept(OsStr::new(setting)), "{setting}");
        }
    }
}
