//! The text that the demo prints once it runs: where to look, and what to try.

use std::{
    io::{self, Write as _},
    path::Path,
    time::Duration,
};

use super::{
    cast::DemoCast,
    neighbours::DemoNeighbours,
    tour::{self, TourFacts},
};
use crate::simulator;

/// Parts of it that differ from demo to demo.
pub struct DemoSteps<'a> {
    pub cast: &'a DemoCast,
    pub neighbours: &'a DemoNeighbours,
    /// The number of nodes, and text about them, if there are several. None of them takes browsers as channels.
    pub nodes: Option<(usize, String)>,
    /// Path of `demo.json`.
    pub path: &'a Path,
    /// From the start of the command.
    pub ready_in: Duration,
    /// Requests to try as well.
    pub with_tour: bool,
}

impl DemoSteps<'_> {
    /// Prints it.
    pub fn print(&self) -> io::Result<()> {
        let Self { cast, neighbours, nodes, .. } = self;
        let (demo, program) = (self.path.display(), simulator::program_as_started());
        let (file, seconds) = (&cast.file, self.ready_in.as_secs_f64());
        let name = &file.servers[0].name;
        let mut out = io::stdout().lock();
        let until = cast.registered_until.format("%Y-%m-%d");
        let on = nodes.as_ref().map_or(String::new(), |(count, _)| format!(" on {count} nodes"));
        writeln!(
            out,
            "\nThe demo is running{on}, ready in {seconds:.2} s. The game server \"{name}\" is paired: the user is registered for \
             the game's pushes until {until}, which the service renews.\n"
        )?;
        writeln!(out, "  Dashboard   {}   (opens signed in, once)", file.open_url)?;
        writeln!(out, "  Terminal    {program} watch {demo}")?;
        writeln!(out, "  Team chat   {program} say {demo} '!help'")?;
        writeln!(out, "  Phone       {}   (what wakes the player, until they acknowledge)", neighbours.phone.url())?;
        if nodes.is_none() {
            let browser = neighbours.browsers.url();
            writeln!(out, "  Browser     {browser}   (takes encrypted pushes, decrypts and shows them)")?;
        }
        writeln!(out, "  API         {}/docs   (demo --tour prints requests to try)\n", file.api_url)?;
        for (number, team) in (1..).zip(&file.teams) {
            let names: Vec<&str> = team.iter().map(|player| player.name.as_str()).collect();
            writeln!(out, "  Team {number:<6} {}   (sign in at {})", names.join(", "), file.sign_in_url)?;
        }
        if !file.teams.is_empty() {
            writeln!(out)?;
        }
        if let Some((_, text)) = nodes {
            writeln!(out, "{text}")?;
        }
        writeln!(out, "A raid begins ten seconds after one of them watches. Ctrl-C ends the demo.\n")?;
        if self.with_tour {
            let facts = TourFacts {
                api_url: &file.api_url,
                sign_in_url: &file.sign_in_url,
                cookie: &file.cookie,
                server: file.servers[0].id.as_str(),
                switch: cast.switch.as_deref(),
                checkout_url: cast.checkout_url.as_deref(),
                chat_url: neighbours.chat.url(),
                phone_url: neighbours.phone.url(),
                path: demo.to_string(),
            };
            tour::print(&mut out, &facts)?;
        }
        out.flush()
    }
}
