//! Three servers of NATS, which are one cluster. Each keeps its ports and its directory.

use std::{
    cell::RefCell,
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::time::sleep;

use crate::{ports::free_port, until};

const SERVERS: usize = 3;
/// Deadline of a question to a server.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);

/// The cluster; its servers are killed when it is dropped.
pub struct NatsCluster {
    program: PathBuf,
    servers: Vec<NatsServer>,
    http: reqwest::Client,
}

struct NatsServer {
    port: u16,
    /// Port of the answers to operators.
    monitor: u16,
    config: PathBuf,
    log: PathBuf,
    process: RefCell<Option<Child>>,
}

impl NatsCluster {
    /// Starts this program three times, with files in this directory and logs in that one, and waits until they are one cluster.
    pub async fn start(program: PathBuf, directory: &Path, logs: &Path, http: reqwest::Client) -> Self {
        let routes: Vec<u16> = (0..SERVERS).map(|_| free_port()).collect();
        let urls: Vec<String> = routes.iter().map(|port| format!("\"nats-route://127.0.0.1:{port}\"")).collect();
        let urls = urls.join(", ");
        let server = |(number, route): (usize, &u16)| {
            let (port, monitor) = (free_port(), free_port());
            let store = directory.join(format!("nats-{number}"));
            // Clients would hear of the servers' own addresses, and go past the ways of the test.
            let config = format!(
                "server_name: nats-{number}\n\
                 listen: \"127.0.0.1:{port}\"\n\
                 http: \"127.0.0.1:{monitor}\"\n\
                 jetstream {{ store_dir: \"{}\", max_memory_store: 64MB, max_file_store: 64MB }}\n\
                 cluster {{ name: chaos, listen: \"127.0.0.1:{route}\", no_advertise: true, routes: [{urls}] }}\n",
                store.display()
            );
            let path = directory.join(format!("nats-{number}.conf"));
            fs::write(&path, config).expect("the directory takes files");
            let log = logs.join(format!("nats-{number}.log"));
            NatsServer { port, monitor, config: path, log, process: RefCell::new(None) }
        };
        let servers = routes.iter().enumerate().map(server).collect();
        let cluster = Self { program, servers, http };
        cluster.servers.iter().for_each(|server| server.start(&cluster.program));
        for server in &cluster.servers {
            cluster.until_healthy(server).await;
        }
        cluster
    }

    /// The addresses for clients.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|server| (Ipv4Addr::LOCALHOST, server.port).into()).collect()
    }

    /// Kills each server, starts it after this pause, and waits until it has everything that the others have.
    pub async fn restart_one_by_one(&self, pause: Duration) {
        for server in &self.servers {
            server.kill();
            sleep(pause).await;
            server.start(&self.program);
            self.until_healthy(server).await;
        }
    }

    async fn until_healthy(&self, server: &NatsServer) {
        let url = format!("http://127.0.0.1:{}/healthz", server.monitor);
        until("healthy server of NATS", async || {
            // Another program may have had its port for a moment.
            if server.has_ended() {
                server.start(&self.program);
            }
            let answer = self.http.get(&url).timeout(ANSWERED_WITHIN).send().await;
            answer.is_ok_and(|answer| answer.status() == 200)
        })
        .await;
    }
}

impl NatsServer {
    fn start(&self, program: &Path) {
        let log = File::options().create(true).append(true).open(&self.log).expect("the directory takes files");
        let mut command = Command::new(program);
        command.arg("--config").arg(&self.config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        *self.process.borrow_mut() = Some(command.spawn().expect("TEST_NATS_SERVER runs"));
    }

    fn has_ended(&self) -> bool {
        let mut process = self.process.borrow_mut();
        process.as_mut().is_none_or(|process| process.try_wait().expect("its state").is_some())
    }

    fn kill(&self) {
        if let Some(mut process) = self.process.take() {
            // One that has ended already cannot be killed.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}
