//! Other people's WebSocket servers, which send each line that they read to all their clients, as one text frame. They
//! say their address first.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::process::{Beside, Result};

/// One that is installed.
pub struct Peer {
    pub name: &'static str,
    program: PathBuf,
    /// The script that it runs, if it does not bring that itself.
    script: Option<PathBuf>,
}

impl Peer {
    pub fn start(&self) -> Result<Beside> {
        Beside::run(Command::new(&self.program).args(&self.script))
    }
}

/// Installs those that can be, into the target directory, and says which cannot.
pub fn install() -> Vec<Peer> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers");
    let installed = [
        ("Bun", bun(&sources, &target)),
        ("ws (Node)", ws(&sources, &target)),
        ("fastwebsockets", fastwebsockets(&sources, &target)),
    ];
    let said = |(name, peer): (&str, Result<Peer>)| {
        peer.inspect_err(|error| eprintln!("{name} does not take part: {error}")).ok()
    };
    installed.into_iter().filter_map(said).collect()
}

fn bun(sources: &Path, target: &Path) -> Result<Peer> {
    npm(target, "bun", "1.4.5")?;
    let architecture = if cfg!(target_arch = "aarch64") { "aarch64" } else { "x64" };
    let program = target.join(format!("node_modules/@oven/bun-linux-{architecture}/bin/bun"));
    if !program.exists() {
        return Err(format!("there is no {}", program.display()).into());
    }
    Ok(Peer { name: "Bun", program, script: Some(sources.join("bun.js")) })
}

fn ws(sources: &Path, target: &Path) -> Result<Peer> {
    npm(target, "ws", "8.18.3")?;
    // A script finds packages beside itself.
    let script = target.join("ws.cjs");
    fs::copy(sources.join("ws.cjs"), &script)?;
    Ok(Peer { name: "ws (Node)", program: "node".into(), script: Some(script) })
}

fn fastwebsockets(sources: &Path, target: &Path) -> Result<Peer> {
    let directory = target.join("fastwebsockets");
    let manifest = sources.join("fastwebsockets/Cargo.toml");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--release", "--locked"]).arg("--manifest-path").arg(manifest);
    run(cargo.arg("--target-dir").arg(&directory))?;
    Ok(Peer { name: "fastwebsockets", program: directory.join("release/fastwebsockets-peer"), script: None })
}

/// Installs a package, unless that version is there.
fn npm(target: &Path, package: &str, version: &str) -> Result<()> {
    let manifest = target.join("node_modules").join(package).join("package.json");
    if fs::read_to_string(manifest).is_ok_and(|manifest| manifest.contains(&format!("\"version\": \"{version}\""))) {
        return Ok(());
    }
    fs::create_dir_all(target)?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--silent", "--prefix"]);
    run(npm.arg(target).arg(format!("{package}@{version}")))
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", command.get_program().display()).into()) }
}
