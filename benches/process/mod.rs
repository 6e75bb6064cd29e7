//! Processes, measured, and those beside this one that a bench speaks with: the clients or neighbours whose costs are not
//! the service's.

#![allow(dead_code, reason = "not every bench uses all of it")]

use std::{
    env, error, fs,
    io::{BufRead as _, BufReader, Write as _},
    net::Ipv4Addr,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

use tokio::net::{TcpListener, TcpSocket};

pub type Result<T> = std::result::Result<T, Box<dyn error::Error + Send + Sync>>;

/// Resident memory of this process, KiB.
pub fn resident() -> Result<f64> {
    kilobytes("/proc/self/status", "VmRSS:")
}

/// Resident memory of a process, KiB; what it shares with others is divided between them.
pub fn proportional(process: u32) -> Result<f64> {
    kilobytes(&format!("/proc/{process}/smaps_rollup"), "Pss:")
}

fn kilobytes(path: &str, name: &str) -> Result<f64> {
    let figures = fs::read_to_string(path)?;
    let figure = figures.lines().find_map(|line| line.strip_prefix(name)).ok_or_else(|| format!("no {name}"))?;
    Ok(figure.trim().trim_end_matches(" kB").parse()?)
}

/// Time that the threads of a process ran, seconds. More exact than its [`Processor`] time, where the kernel says it.
pub fn ran(process: u32) -> Result<f64> {
    let mut ran = 0.0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let figures = fs::read_to_string(thread?.path().join("sched")).unwrap_or_default();
        let figure = figures.lines().find(|line| line.starts_with("se.sum_exec_runtime"));
        match figure.and_then(|line| line.split_once(':')) {
            Some((_, milliseconds)) => ran += milliseconds.trim().parse::<f64>()? / 1e3,
            None => return Ok(Processor::of(process)?.total()),
        }
    }
    Ok(ran)
}

/// Processor time of a process, seconds; the kernel counts in hundredths.
#[derive(Clone, Copy)]
pub struct Processor {
    pub user: f64,
    pub system: f64,
}

impl Processor {
    /// Figures of this process, since its start.
    pub fn so_far() -> Result<Self> {
        Self::in_stat("/proc/self/stat")
    }

    /// Figures of this process, since then.
    pub fn since(before: Self) -> Result<Self> {
        Ok(Self::so_far()?.minus(before))
    }

    /// Figures of another process, since its start.
    pub fn of(process: u32) -> Result<Self> {
        Self::in_stat(&format!("/proc/{process}/stat"))
    }

    /// Figures of the threads of this process that have this name, since their start.
    pub fn of_threads(name: &str) -> Result<Self> {
        let mut sum = Self { user: 0.0, system: 0.0 };
        for thread in fs::read_dir("/proc/self/task")? {
            let thread = thread?.path();
            // One that has ended since has no name.
            if fs::read_to_string(thread.join("comm")).is_ok_and(|known| known.trim() == name) {
                let Self { user, system } = Self::in_stat(&thread.join("stat").to_string_lossy())?;
                (sum.user, sum.system) = (sum.user + user, sum.system + system);
            }
        }
        Ok(sum)
    }

    fn in_stat(path: &str) -> Result<Self> {
        let stat = fs::read_to_string(path)?;
        let (_, fields) = stat.rsplit_once(") ").ok_or("no fields")?;
        let ticks = |field: usize| fields.split(' ').nth(field).and_then(|ticks| ticks.parse::<f64>().ok());
        let (user, system) = ticks(11).zip(ticks(12)).ok_or("no ticks")?;
        Ok(Self { user: user / 100.0, system: system / 100.0 })
    }

    pub fn minus(self, before: Self) -> Self {
        Self { user: self.user - before.user, system: self.system - before.system }
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

/// Listens at a port of this address that is free, for many who come at once. Within a runtime.
pub fn listener(address: Ipv4Addr) -> Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((address, 0).into())?;
    Ok(socket.listen(4_096)?)
}

/// A program that takes commands and answers them, each in a line. It ends with this.
pub struct Beside {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Beside {
    /// This very program, with other arguments.
    pub fn start(arguments: &[&str]) -> Result<Self> {
        Self::run(Command::new(env::current_exe()?).args(arguments))
    }

    pub fn run(command: &mut Command) -> Result<Self> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("the process beside has no pipes".into());
        };
        Ok(Self { process, input, output: BufReader::new(output) })
    }

    pub fn id(&self) -> u32 {
        self.process.id()
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
        // The process may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
