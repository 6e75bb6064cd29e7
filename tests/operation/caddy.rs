//! Caddy with `deploy/Caddyfile`, before processes on this machine.

use std::{
    env, fs,
    process::{Child, Command, Stdio},
};

use reqwest::Method;
use tempfile::TempDir;

use super::{Addresses, User, crash::free_addresses, until_some};

/// A running Caddy; killed when dropped.
pub struct Caddy {
    process: Child,
    pub addresses: Addresses,
}

impl Caddy {
    /// Caddy before two processes, one of which serves; `None`, and a line on stderr, where it is not installed.
    pub async fn start(upstreams: [&Addresses; 2]) -> Option<Self> {
        let shipped = fs::read_to_string("deploy/Caddyfile").unwrap();
        // Caddy has one port for its administration on the whole machine, and tests run side by side.
        let own = shipped.replacen("\n{\n", "\n{\n\tadmin off\n", 1);
        assert_ne!(own, shipped);
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("Caddyfile");
        fs::write(&file, own).unwrap();
        let mut command = Command::new("caddy");
        command.args(["run", "--adapter", "caddyfile", "--config"]).arg(file).env_clear().stderr(Stdio::null());
        command.env("PATH", env::var_os("PATH").unwrap_or_default()).env("HOME", directory.path());
        command.env("API_UPSTREAM", upstreams.map(|upstream| upstream.api.trim_start_matches("http://")).join(" "));
        command.env("RELAY_UPSTREAM", upstreams.map(|upstream| upstream.relay.to_string()).join(" "));
        loop {
            let addresses = free_addresses();
            // With the scheme, Caddy asks for no certificate.
            command.env("API_DOMAIN", &addresses.api).env("RELAY_DOMAIN", format!("http://{}", addresses.relay));
            let Ok(process) = command.spawn() else {
                eprintln!("SKIPPED behind Caddy: caddy is not installed (Debian's package caddy has it)");
                return None;
            };
            let mut caddy = Self { process, addresses };
            if caddy.answers().await {
                return Some(caddy);
            }
            // Another program has taken the port meanwhile.
        }
    }

    /// Waits until it answers; false if it has ended.
    async fn answers(&mut self) -> bool {
        let client = &User::new(&self.addresses, "");
        until_some("Caddy", || {
            let has_ended = self.process.try_wait().unwrap().is_some();
            async move {
                let answers = matches!(client.ask(Method::GET, "/health", None).await, Some((200, _)));
                (answers || has_ended).then_some(answers)
            }
        })
        .await
    }
}

impl Drop for Caddy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
