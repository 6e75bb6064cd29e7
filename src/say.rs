//! `companion say`: a teammate of the demo user says something in the simulated game, over a link like every other, and
//! prints what the team's chat then has. The way to try commands.

use std::{
    fs, io,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use secrecy::SecretBox;
use tokio::time::{Instant, sleep_until};

use crate::{
    clock::Clock,
    demo::{DemoFile, DemoTeammate},
    domain::plain_text::plain_text,
    game::{
        decoding::MessageDecoder,
        link::{AskError, Broadcasts, ConnectError, Link, LinkEnded, Player, Route, Way},
        outbound::Outbound,
        wire::{AppEmpty, AppRequest, AppSendMessage},
    },
    net::Network,
};

const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// Characters of a line.
const LONGEST: usize = 256;

/// Options of `say`.
#[derive(clap::Args)]
pub struct SayOptions {
    /// The `demo.json` of a running demo
    demo: PathBuf,
    /// The line, for example '!pop'
    line: String,
    /// For how long to print what the team says then
    #[arg(long, default_value_t = 4, value_name = "SECONDS")]
    listen: u64,
}

/// Reasons for which the line was not said.
#[derive(Debug, thiserror::Error)]
pub enum SayError {
    #[error("{}: {cause} (is the demo running?)", path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error("the game server: {0}")]
    Connect(#[from] ConnectError),
    #[error("the line was not said: {0}")]
    Refused(#[from] AskError),
    #[error("the link ended: {0}")]
    Ended(#[from] LinkEnded),
}

/// Says the line, and prints the team's chat until the time is up.
pub async fn say(SayOptions { demo, line, listen }: SayOptions) -> Result<(), SayError> {
    let (link, mut broadcasts) = connect(teammate(&demo)?).await?;
    let said = async {
        // The game sends its chat to those who have asked for something.
        link.ask(AppRequest { get_info: Some(AppEmpty {}), ..Default::default() }, ANSWER_DEADLINE).await?;
        let message = Some(AppSendMessage { message: line });
        link.ask(AppRequest { send_team_message: message, ..Default::default() }, ANSWER_DEADLINE).await?;
        sleep_until(Instant::now() + Duration::from_secs(listen)).await;
        Ok(())
    };
    let mut said = pin!(said);
    tokio::select! {
        said = &mut said => said,
        ended = print(&mut broadcasts) => Err(ended.into()),
    }
}

fn teammate(path: &Path) -> Result<DemoTeammate, SayError> {
    let file = fs::read_to_string(path).and_then(|text| Ok(serde_json::from_str::<DemoFile>(&text)?));
    Ok(file.map_err(|cause| SayError::File { path: path.to_owned(), cause })?.teammate)
}

async fn connect(teammate: DemoTeammate) -> Result<(Link, Broadcasts), ConnectError> {
    let DemoTeammate { host, port, player, token } = teammate;
    let outbound = Arc::new(Outbound::new(Clock::system(), true));
    let player = Player { id: player, token: SecretBox::new(Box::new(token)) };
    let route = Route { host, port, proxy: None, outbound };
    let network = Network::system();
    let way = Way { peers: route.find(&network).await?, own: None, slot: () };
    Link::connect(&network, &MessageDecoder::on_threads(), &route, way, player).await
}

/// Prints lines of the team's chat until the link ends.
async fn print(broadcasts: &mut Broadcasts) -> LinkEnded {
    loop {
        match broadcasts.next().await {
            Ok((_, broadcast)) => {
                if let Some(said) = broadcast.and_then(|broadcast| broadcast.team_message) {
                    println!("{}: {}", plain_text(&said.message.name, 32), plain_text(&said.message.message, LONGEST));
                }
            }
            Err(ended) => return ended,
        }
    }
}
