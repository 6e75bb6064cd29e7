//! The service as a process that is killed and started again, on files that were filled before.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

use companion::{api::context::ApiContext, clock::Clock, config::Database, server::Server};
use diesel::{Connection as _, SqliteConnection, connection::SimpleConnection as _};
use tempfile::TempDir;

#[path = "../spec/harness/binary.rs"]
pub mod binary;

/// The files of a service, removed when dropped, and its flags.
pub struct Installation {
    directory: TempDir,
    flags: Vec<String>,
}

impl Installation {
    /// On free ports of loopback, with the further flags that are made for its directory.
    pub fn new(further: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let directory = TempDir::new().unwrap();
        let mut flags = further(directory.path());
        flags.push(format!("--data-dir={}", directory.path().display()));
        let own = ["--app-env=development", "--api-listen=127.0.0.1:0", "--relay-listen=127.0.0.1:0", "--workers=2"];
        flags.extend(own.map(str::to_owned));
        Self { directory, flags }
    }

    /// With this flag in place of those of the same name.
    #[allow(dead_code, reason = "not every test changes one")]
    pub fn with_flag(mut self, flag: &str) -> Self {
        let name = |flag: &str| flag.split('=').next().map(str::to_owned);
        self.flags.retain(|known| name(known) != name(flag));
        self.flags.push(flag.to_owned());
        self
    }

    #[allow(dead_code, reason = "not every test looks into it")]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    #[allow(dead_code, reason = "not every test reads what is stored")]
    pub fn database(&self) -> Database {
        binary::config(&self.flags).database
    }

    /// Locks the SQLite file against every writer, until dropped.
    #[allow(dead_code, reason = "not every test locks it")]
    pub fn lock_database(&self) -> SqliteConnection {
        let Database::Sqlite(path) = self.database() else { panic!("it is an SQLite file") };
        let mut connection = SqliteConnection::establish(path.to_str().expect("a plain path")).unwrap();
        connection.batch_execute("PRAGMA busy_timeout = 10000; BEGIN IMMEDIATE").unwrap();
        connection
    }

    /// Builds the service in this process, fills its database, and stops it.
    pub fn fill<T: Send>(&self, fill: impl AsyncFnOnce(&ApiContext) -> T + Send) -> T {
        let run = || {
            // A system of its own: what the service starts within it ends with it.
            actix_web::rt::System::new().block_on(async {
                let server = Server::build(binary::config(&self.flags), Clock::system()).unwrap();
                let filled = fill(server.context()).await;
                server.run_until_stopped(std::future::ready(())).await.unwrap();
                filled
            })
        };
        thread::scope(|scope| scope.spawn(run).join().expect("it does not panic"))
    }

    /// Starts the service on free ports that are known before it serves.
    #[allow(dead_code, reason = "not every test has one that waits")]
    pub fn start_waiting(&self) -> Service {
        self.start_waiting_at(free_addresses())
    }

    /// Starts the service there, and does not wait.
    #[allow(dead_code, reason = "not every test has one that waits")]
    pub fn start_waiting_at(&self, addresses: Addresses) -> Service {
        let process = self.command_at(Path::new(binary::PROGRAM), &addresses).stderr(Stdio::null()).spawn().unwrap();
        Service { process, addresses }
    }

    /// Starts the service of this program there, with its log in this file, and does not wait.
    #[allow(dead_code, reason = "not every test reads its log")]
    pub fn start_logging_at(&self, program: &Path, addresses: Addresses, log: File) -> Service {
        let process = self.command_at(program, &addresses).stderr(log).spawn().unwrap();
        Service { process, addresses }
    }

    /// Brings the schema of its database to what this program knows.
    #[allow(dead_code, reason = "not every test has another build")]
    pub fn migrate_with(&self, program: &Path) {
        let mut command = binary::companion_of(program, self.directory.path());
        let migrated = command.arg("migrate").args(&self.flags).output().unwrap();
        assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
    }

    #[allow(dead_code, reason = "not every test has one that waits")]
    fn command_at(&self, program: &Path, addresses: &Addresses) -> Command {
        let mut command = binary::companion_of(program, self.directory.path());
        let own = |flag: &&String| !flag.starts_with("--api-listen=") && !flag.starts_with("--relay-listen=");
        command.arg("serve").args(self.flags.iter().filter(own));
        let api = addresses.api.trim_start_matches("http://");
        command.args([format!("--api-listen={api}"), format!("--relay-listen={}", addresses.relay)]);
        command
    }

    /// Starts the service and waits until it listens.
    #[allow(dead_code, reason = "not every test waits for it")]
    pub fn start(&self) -> Service {
        let mut command = binary::companion(self.directory.path());
        let mut process = command.arg("serve").args(&self.flags).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut listens = |what: &str| {
            let line = lines.find(|line| line.contains(what)).expect("it starts");
            line.rsplit(' ').next().unwrap().to_owned()
        };
        let api = listens("the API listens on");
        let relay = listens("the relay listens on").trim_start_matches("ws://").parse().unwrap();
        // Its log must be read on, or the service waits for room in the pipe.
        thread::spawn(move || {
            lines
                .filter(|line| line.contains("panicked") || line.contains("ERROR"))
                .for_each(|line| println!("{line}"));
        });
        Service { process, addresses: Addresses { api, relay } }
    }
}

/// Where a running service listens.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// `http://address:port`
    pub api: String,
    #[allow(dead_code, reason = "not every test opens a socket")]
    pub relay: SocketAddr,
}

/// Free ports of loopback.
#[allow(dead_code, reason = "not every test has one that waits")]
pub fn free_addresses() -> Addresses {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    Addresses { api: format!("http://{}", free()), relay: free() }
}

/// The service as a process of its own; killed when dropped.
pub struct Service {
    process: Child,
    #[allow(dead_code, reason = "not every test asks it")]
    pub addresses: Addresses,
}

impl Service {
    #[allow(dead_code, reason = "not every test stops it")]
    pub fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(process, signal).unwrap();
    }

    #[allow(dead_code, reason = "not every test names it")]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// True if it has ended by itself.
    #[allow(dead_code, reason = "not every test looks at that")]
    pub fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// Its exit code, once it has ended by itself; none if a signal ended it.
    #[allow(dead_code, reason = "not every test stops it")]
    pub fn ended(&mut self) -> Option<i32> {
        self.process.wait().unwrap().code()
    }

    pub fn kill(&mut self) {
        // SIGKILL: no handler, no flush. It may be dead already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
    }
}

/// SplitMix64.
#[allow(dead_code, reason = "not every test is random")]
pub struct Seeded(pub u64);

#[allow(dead_code, reason = "not every test is random")]
impl Seeded {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % limit as u64) as usize
    }
}
