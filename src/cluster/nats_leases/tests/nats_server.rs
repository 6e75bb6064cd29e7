//! A server of NATS, for tests and benches.

#![allow(dead_code, reason = "not every test uses all of it")]

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Once,
    thread,
};

use tempfile::TempDir;

/// A program of NATS that is new enough.
const PROGRAM: &str = "TEST_NATS_SERVER";

/// A server on loopback, at ports that were free; killed when dropped.
pub struct NatsServer {
    program: OsString,
    directory: TempDir,
    process: Child,
    /// `nats://address:port`
    pub url: String,
    /// `http://address:port`, for questions about its figures.
    pub monitor: String,
}

impl NatsServer {
    /// Starts it and waits until it listens. `None`, and a line on stderr, where the program is not named.
    pub fn start() -> Option<Self> {
        let Some(program) = env::var_os(PROGRAM) else {
            static ONCE: Once = Once::new();
            // Past the test harness, which hides what a passing test prints.
            ONCE.call_once(|| {
                let _ = writeln!(io::stderr(), "tests of NATS are SKIPPED: {PROGRAM} is not set (2.11 or later)");
            });
            return None;
        };
        let directory = TempDir::new().expect("a temporary directory can be made");
        let (process, url, monitor) = spawn(&program, "-1", directory.path());
        Some(Self { program, directory, process, url, monitor })
    }

    /// Kills it, and starts it at the same address: what it had in memory is lost.
    pub fn restart(&mut self) {
        self.kill();
        let port = self.url.rsplit(':').next().expect("it has a port");
        (self.process, self.url, self.monitor) = spawn(&self.program, port, self.directory.path());
    }

    /// The id of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    fn kill(&mut self) {
        // The process may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The process and its two URLs.
fn spawn(program: &OsStr, port: &str, directory: &Path) -> (Child, String, String) {
    let mut command = Command::new(program);
    command.args(["-a", "127.0.0.1", "-p", port, "-m", "-1", "-js", "-sd"]).arg(directory);
    let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program runs");
    let log = BufReader::new(process.stderr.take().expect("it is piped"));
    let mut lines = log.lines().map(Result::unwrap);
    let mut listens = |what: &str| {
        let line = lines.find(|line| line.contains(what)).expect("NATS starts");
        line.rsplit(' ').next().expect("an address").to_owned()
    };
    let monitor = format!("http://{}", listens("Starting http monitor on"));
    let url = format!("nats://{}", listens("Listening for client connections on"));
    // Its log must be read on, or the server waits for room in the pipe.
    thread::spawn(move || lines.for_each(drop));
    (process, url, monitor)
}
