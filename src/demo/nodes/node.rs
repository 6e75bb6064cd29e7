//! A node of the demo: `companion serve` as a process of its own.

use std::{
    env, fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use reqwest::Client;
use serde_json::Value;

use super::child::DemoChild;
use crate::demo::{
    file::{NodeFacts, write_private},
    options::path_text,
};

/// Time for the answer to a look at a node.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// Lines of the log of a process that has ended which say why.
const LAST_LINES: usize = 8;

/// A node.
pub struct DemoNode {
    /// From 1.
    pub number: usize,
    api: SocketAddr,
    relay: SocketAddr,
    /// Its variables; with them it can be started by hand, too.
    pub env_file: PathBuf,
    pub log: PathBuf,
    pub process: DemoChild,
}

/// The findings of a look at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeSight {
    Serves {
        /// Nodes that live, by what this one knows.
        live: usize,
        game_servers: usize,
        /// Open sockets.
        sockets: usize,
    },
    WithoutLease,
    Silent,
}

impl DemoNode {
    /// Starts it with these variables, and the text of further ones. Call it on the main thread, as [`DemoChild::start`].
    pub fn start(
        number: usize,
        ports: [u16; 2],
        directory: &Path,
        variables: &[(&'static str, String)],
        further: &str,
    ) -> io::Result<Self> {
        let own = own_variables(number, ports, directory)?;
        let env_file = directory.join(format!("node-{number}.env"));
        write_private(&env_file, &format!("{}{}{further}", env_text(&own), env_text(variables)))?;
        let log = directory.join(format!("node-{number}.log"));
        let arguments = ["serve".to_owned(), format!("--env-file={}", path_text(&env_file)?)];
        let process = DemoChild::start(env::current_exe()?.as_os_str(), &arguments, &log)?;
        let [api, relay] = ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        Ok(Self { number, api, relay, env_file, log, process })
    }

    /// Facts for scripts, and for people.
    pub fn facts(&self) -> NodeFacts {
        let Self { api, relay, process, .. } = self;
        NodeFacts { process: process.id(), api_url: format!("http://{api}"), relay_url: format!("ws://{relay}") }
    }

    /// Asks how it is.
    pub async fn look(&self, http: &Client) -> NodeSight {
        let asked = async {
            let answer = http.get(format!("http://{}/status", self.api)).timeout(ANSWERS_WITHIN).send().await?;
            answer.json::<Value>().await
        };
        asked.await.map_or(NodeSight::Silent, |status| NodeSight::of(&status))
    }
}

impl NodeSight {
    /// By the answer of `GET /status`.
    fn of(status: &Value) -> Self {
        let count = |value: &Value| value.as_u64().map(|count| count as usize);
        let node = &status["node"];
        match (count(&node["live"]), count(&node["gameServers"]), count(&status["sockets"])) {
            (Some(0), ..) => Self::WithoutLease,
            (Some(live), Some(game_servers), Some(sockets)) => Self::Serves { live, game_servers, sockets },
            _ => Self::Silent,
        }
    }
}

/// The line about who has how many game servers, by what was found of each node.
pub fn shares(sights: &[NodeSight]) -> String {
    let share = |(number, sight): (usize, &NodeSight)| match sight {
        NodeSight::Serves { game_servers, .. } => format!("node {number} has {game_servers}"),
        NodeSight::WithoutLease => format!("node {number} has no lease, and none"),
        NodeSight::Silent => format!("node {number} does not answer"),
    };
    format!("Game servers: {}.", (1..).zip(sights).map(share).collect::<Vec<_>>().join(", "))
}

/// The directory of this node.
pub fn data_dir(number: usize, directory: &Path) -> PathBuf {
    directory.join(format!("node-{number}"))
}

/// The variables that no other node has.
pub fn own_variables(
    number: usize,
    [api, relay]: [u16; 2],
    directory: &Path,
) -> io::Result<Vec<(&'static str, String)>> {
    Ok(vec![
        ("DATA_DIR", path_text(&data_dir(number, directory))?),
        ("API_LISTEN", format!("127.0.0.1:{api}")),
        ("RELAY_LISTEN", format!("127.0.0.1:{relay}")),
    ])
}

/// The last lines of a log.
pub fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// The variables as lines of a file, from which they are read as they are.
fn env_text(variables: &[(&'static str, String)]) -> String {
    let line = |(name, value): &(&str, String)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$");
        format!("{name}=\"{value}\"\n")
    };
    variables.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_variable_is_read_from_its_file_as_it_was() {
        let variables = [
            ("DATABASE_URL", r#"postgres://u:p'"$HOME`\@[::1]/d?a=b#c"#.to_owned()),
            ("DATA_DIR", "/tmp/it is \\ here #1".to_owned()),
            ("EMPTY", String::new()),
        ];
        let read: Vec<_> = dotenvy::from_read_iter(env_text(&variables).as_bytes()).map(Result::unwrap).collect();
        assert_eq!(read, variables.map(|(name, value)| (name.to_owned(), value)));
    }

    #[test]
    fn who_has_how_much_is_said_of_every_node() {
        let serves =
            NodeSight::of(&json!({ "node": { "live": 3, "gameServers": 1, "pushSessions": 2 }, "sockets": 4 }));
        assert_eq!(serves, NodeSight::Serves { live: 3, game_servers: 1, sockets: 4 });
        let suspended = NodeSight::of(&json!({ "node": { "live": 0, "gameServers": 0 }, "sockets": 0 }));
        let silent = NodeSight::of(&json!({ "code": "not_ready" }));
        assert_eq!(
            shares(&[serves, suspended, silent]),
            "Game servers: node 1 has 1, node 2 has no lease, and none, node 3 does not answer."
        );
    }

    #[test]
    fn the_end_of_a_log_says_why_its_process_ended() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        assert_eq!(last_lines(&log), "");
        fs::write(&log, (1..=20).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        assert_eq!(last_lines(&log), "13\n14\n15\n16\n17\n18\n19\n20");
    }
}
