//! `companion demo`: the service and its simulated neighbours in one process, with a signed-in user, a paired game
//! server and smart devices, ready to watch. Needs no account, key, network or file. With `--nodes`, the service is several
//! processes ([`nodes`]).

mod cast;
mod error;
mod file;
mod neighbours;
pub mod nodes;
mod options;
mod pairing;
mod phone;
mod ports;
mod steps;
mod teams;
mod tour;
pub mod user;

use std::{io, path::PathBuf, time::Duration};

use actix_web::web;
use tokio::time::{Instant, sleep};

use self::{
    cast::DemoCast,
    neighbours::{DemoNeighbours, raid_those_who_watch},
    options::{DemoHome, path_text, settings_of},
    steps::DemoSteps,
    teams::DemoTeams,
};
pub use self::{
    error::DemoError,
    file::{DemoFile, DemoServer, DemoTeammate},
    options::{DemoOptions, default_settings},
};
use crate::{
    api::context::ApiContext,
    clock::Clock,
    config::Config,
    db::alarms::incidents,
    server::Server,
    terminal::{self, LiveLine},
};

/// Interval at which the line on the terminal is renewed.
const SHOWN_EVERY: Duration = Duration::from_secs(1);

/// A running demo; its neighbours end with it.
pub struct Demo {
    server: Server,
    neighbours: DemoNeighbours,
    cast: DemoCast,
    /// Path of `demo.json`.
    path: PathBuf,
    ready_in: Duration,
    with_tour: bool,
    _home: DemoHome,
}

impl Demo {
    /// Starts everything. Call it inside an actix system.
    pub async fn start(options: DemoOptions) -> Result<Self, DemoError> {
        let began = Instant::now();
        let home = DemoHome::open(options.data_dir.clone()).map_err(DemoError::io("a temporary directory"))?;
        ports::are_free(options.port, 1)?;
        let clock = Clock::system();
        let teams = DemoTeams::new(options.teams.map(usize::from));
        let neighbours = DemoNeighbours::start(&options, &teams, &home.path, &clock).await?;

        let listen = |offset: u16| {
            let port = if options.port == 0 { 0 } else { options.port.saturating_add(offset) };
            format!("127.0.0.1:{port}")
        };
        let mut variables = neighbours.variables();
        variables.extend(options.variables().map_err(DemoError::io("--web-dir"))?);
        variables.push(("DATA_DIR", path_text(&home.path).map_err(DemoError::io("--data-dir"))?));
        variables.push(("API_LISTEN", listen(0)));
        variables.push(("RELAY_LISTEN", listen(1)));
        let server = Server::build(Config::check(settings_of(&variables))?, clock)?;

        let cast = DemoCast::gather(server.context(), server.relay_addr(), &neighbours, &teams).await?;
        let path = home.path.join("demo.json");
        cast.file.write(&path).map_err(DemoError::io(path.display().to_string()))?;
        let (ready_in, with_tour) = (began.elapsed(), options.tour);
        Ok(Self { server, neighbours, cast, path, ready_in, with_tour, _home: home })
    }

    /// Prints where to look, and with `--tour` what else to try.
    pub fn print_steps(&self) -> io::Result<()> {
        let Self { cast, neighbours, path, ready_in, with_tour, .. } = self;
        let (ready_in, with_tour) = (*ready_in, *with_tour);
        DemoSteps { cast, neighbours, nodes: None, path, ready_in, with_tour }.print()
    }

    /// Serves until `shutdown` ends; meanwhile a terminal shows in one line how it is.
    pub async fn run_until_stopped(self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let line = terminal::is_shown().then(|| actix::spawn(show(self.server.context().clone())));
        let (context, game) = (self.server.context().clone(), self.neighbours.game);
        let raids = actix::spawn(async move { raid_those_who_watch(&game, || context.sockets()).await });
        let (context, user, mut browsers) = (self.server.context().clone(), self.cast.user, self.neighbours.browsers);
        let browsers = actix::spawn(async move { phone::add_browsers(&context, &user, &mut browsers).await });
        let shutdown = async {
            shutdown.await;
            if let Some(line) = line {
                line.abort();
            }
        };
        let stopped = self.server.run_until_stopped(shutdown).await;
        // Dropped here, while the runtime is there.
        for task in [raids, browsers] {
            task.abort();
            let _ = task.await;
        }
        stopped
    }
}

/// Shows how the service is, without end.
async fn show(context: web::Data<ApiContext>) {
    let line = LiveLine::new("");
    loop {
        let (links, pushes) = (context.link_counts().await, context.push_counts().await);
        let incidents = context.pool.read(incidents::tally).await;
        let link = links.map_or("no answer".to_owned(), |links| states(&links.by_state));
        let push = pushes.map_or("no answer".to_owned(), |pushes| states(&pushes));
        let raids = incidents.map_or(0, |states| states.iter().map(|(_, count)| count).sum());
        let sockets = context.sockets();
        line.say(format!("link: {link} | push: {push} | sockets: {sockets} | raids: {raids}"));
        sleep(SHOWN_EVERY).await;
    }
}

/// The states that there are, each with its count if that is more than one.
fn states(counts: &[(&'static str, usize)]) -> String {
    let shown = |(state, count): &(&str, usize)| match count {
        0 => None,
        1 => Some((*state).to_owned()),
        many => Some(format!("{many} {state}")),
    };
    let there: Vec<String> = counts.iter().filter_map(shown).collect();
    if there.is_empty() { "none".to_owned() } else { there.join(", ").replace('_', " ") }
}
