//! This process, measured, and the one beside it that a bench speaks with: the clients or neighbours whose costs are not
//! the service's.

#![allow(dead_code, reason = "not every bench uses all of it")]

use std::{
    env, error, fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

pub type Result<T> = std::result::Result<T, Box<dyn error::Error + Send + Sync>>;

/// Resident memory of this process, KiB.
pub fn resident() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// Processor time of this process, seconds.
#[derive(Clone, Copy)]
pub struct Processor {
    pub user: f64,
    pub system: f64,
}

impl Processor {
    /// Since its start.
    pub fn so_far() -> Result<Self> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        let (_, fields) = stat.rsplit_once(") ").ok_or("no fields")?;
        let ticks = |field: usize| fields.split(' ').nth(field).and_then(|ticks| ticks.parse::<f64>().ok());
        let (user, system) = ticks(11).zip(ticks(12)).ok_or("no ticks")?;
        Ok(Self { user: user / 100.0, system: system / 100.0 })
    }

    /// Since then.
    pub fn since(before: Self) -> Result<Self> {
        let now = Self::so_far()?;
        Ok(Self { user: now.user - before.user, system: now.system - before.system })
    }

    /// In so much time from now.
    pub fn over(span: Duration) -> Result<Self> {
        let before = Self::so_far()?;
        thread::sleep(span);
        Self::since(before)
    }

    pub fn total(self) -> f64 {
        self.user + self.system
    }
}

/// The same program with other arguments, which takes commands and answers them, each in a line. It ends with this.
pub struct Beside {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Beside {
    pub fn start(arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        let mut process = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("the process beside has no pipes".into());
        };
        Ok(Self { process, input, output: BufReader::new(output) })
    }

    pub fn say(&mut self, command: &str) -> Result<()> {
        Ok(writeln!(self.input, "{command}")?)
    }

    /// The next line that it says.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.is_empty() { Err("the process beside has ended".into()) } else { Ok(line.trim().to_owned()) }
    }

    pub fn ask(&mut self, command: &str) -> Result<String> {
        self.say(command)?;
        self.line()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
