//! `demo.json`.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::teams::DemoPlayer;
use crate::{config, domain::ids::ServerId};

/// Facts that scripts need to use a running demo: `demo.json` in its data directory, readable by its owner only.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DemoFile {
    pub api_url: String,
    pub relay_url: String,
    pub sign_in_url: String,
    /// Opens the dashboard signed in, once.
    pub open_url: String,
    /// `rp_sess=…` of the demo user.
    pub cookie: String,
    /// The simulated push service of browsers; its page is a browser.
    pub browser_push_url: String,
    pub servers: Vec<DemoServer>,
    pub teammate: DemoTeammate,
    /// The further users of `--teams`, by team; the demo user is in the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub teams: Vec<Vec<DemoPlayer>>,
    /// The nodes of `--nodes`; the other addresses are those of the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeFacts>,
}

/// A node of the demo, in `demo.json`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeFacts {
    /// Process id.
    pub process: u32,
    pub api_url: String,
    pub relay_url: String,
}

/// A teammate of the demo user, and the game server, for `companion say`.
#[derive(Serialize, Deserialize)]
pub struct DemoTeammate {
    pub host: String,
    pub port: u16,
    /// SteamID64.
    pub player: u64,
    /// The simulated game server knows it.
    pub token: i32,
}

/// A paired server of the demo.
#[derive(Serialize, Deserialize)]
pub struct DemoServer {
    pub id: ServerId,
    pub name: String,
}

impl DemoFile {
    /// Writes it there.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        write_private(path, &serde_json::to_string_pretty(self)?)
    }
}

/// Writes a text with secrets into a file of this user only. An earlier one may be readable by others, so a new one is
/// created.
pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        config::create_private_dir(directory)?;
    }
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)?.write_all(text.as_bytes())
}
