//! Options of the demo, where it keeps things, and the settings of its service.

use std::{
    io, iter,
    path::{self, Path, PathBuf},
};

use clap::{ArgMatches, Args as _, Command, FromArgMatches as _, builder::Resettable};
use secrecy::SecretString;
use tempfile::TempDir;

use crate::config::Settings;

/// Options of the demo.
#[derive(clap::Args)]
pub struct DemoOptions {
    /// Seed of the simulated world: the same seed gives the same events
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
    /// Port of the API; the relay, the game server, the identity provider, the push service, the player-statistics service, the payment provider, the chat platform, the sites of a registration for pushes, the phone and the push service of a browser get the next ten. 0 for free ports
    #[arg(long, default_value_t = 8080, value_parser = clap::value_parser!(u16).range(..=65525))]
    pub port: u16,
    /// URL of a dashboard of your own: its pages may call with cookies, and a sign-in may return there [default: the API]
    #[arg(long)]
    pub frontend_url: Option<String>,
    /// Print requests to try, too
    #[arg(long)]
    pub tour: bool,
    /// Teams on the game server, with three users each; their members talk, leave, join and are kicked [default: the demo user alone]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=20))]
    pub teams: Option<u8>,
    /// Directory from which the dashboard is read at each request, for those who write it [default: as it was built]
    #[arg(long, env)]
    pub web_dir: Option<PathBuf>,
    /// Where to store everything [default: a temporary directory that is removed when the demo ends]
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
    /// Nodes, each a process of its own on one PostgreSQL and one NATS server; each further one has the next two ports [default: one process on SQLite, which needs neither]
    #[arg(long, value_parser = clap::value_parser!(u8).range(2..=9))]
    pub nodes: Option<u8>,
    /// With --nodes, the program of NATS, 2.11 or later, which the demo starts [default: nats-server]
    #[arg(long, env, value_name = "PROGRAM")]
    pub nats_server: Option<PathBuf>,
    /// With --nodes, a PostgreSQL on which the demo makes a database of its own [default: that of this machine, as postgres]
    #[arg(long, env, hide_env_values = true, value_name = "URL")]
    pub database_url: Option<SecretString>,
}

impl DemoOptions {
    /// The variables of a service that follow from them.
    pub fn variables(&self) -> io::Result<Vec<(&'static str, String)>> {
        let web_dir = self.web_dir.as_deref().map(|directory| path_text(&path::absolute(directory)?)).transpose()?;
        let given = [("FRONTEND_URL", self.frontend_url.clone()), ("WEB_DIR", web_dir)];
        Ok(given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
    }
}

/// The directory of a demo.
pub struct DemoHome {
    /// As it was given, if it was.
    pub path: PathBuf,
    /// Removed when dropped.
    temporary: Option<TempDir>,
}

impl DemoHome {
    /// This directory, which is kept and made later, or a temporary one.
    pub fn open(given: Option<PathBuf>) -> io::Result<Self> {
        match given {
            Some(path) => Ok(Self { path, temporary: None }),
            None => {
                let directory = TempDir::with_prefix("companion-demo-")?;
                Ok(Self { path: directory.path().to_owned(), temporary: Some(directory) })
            }
        }
    }

    /// True if it is there after the demo.
    pub fn is_kept(&self) -> bool {
        self.temporary.is_none()
    }
}

/// The path as the value of a variable.
pub fn path_text(path: &Path) -> io::Result<String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not UTF-8", path.display())))
}

/// The default settings, whatever the environment says: a demo must not use the data of a real service.
pub fn default_settings() -> Settings {
    settings_of(&[])
}

/// The default settings but for these variables, each of which is named once.
pub fn settings_of(variables: &[(&'static str, String)]) -> Settings {
    let command = Settings::augment_args(Command::new("demo")).mut_args(|arg| arg.env(Resettable::Reset));
    let flags =
        variables.iter().map(|(name, value)| format!("--{}={value}", name.to_ascii_lowercase().replace('_', "-")));
    let matches: ArgMatches = command.get_matches_from(iter::once("demo".to_owned()).chain(flags));
    Settings::from_arg_matches(&matches).expect("every setting has a default or may be absent")
}
