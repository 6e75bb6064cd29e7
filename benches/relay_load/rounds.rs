//! Phases of the measurement, and the course of one round.

use std::{
    fs,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use tempfile::NamedTempFile;

use crate::{
    clients::{Clients, NEWS, stamp},
    peers::Peer,
    process::{Beside, Processor, Result, proportional, ran},
    service::{ALARMS, SERVER, Service},
    table::{Better, Figures, Metric},
};

const fn metric(name: &'static str, better: Better, digits: usize) -> Metric {
    Metric { name, better, digits }
}

const MEMORY: Metric = metric("resident per idle client, KiB", Better::Lower, 2);
const CONNECTIONS: Metric = metric("connections/s", Better::Higher, 0);
const CPU_PER_CONNECTION: Metric = metric("CPU per connection, µs", Better::Lower, 1);
const LAST_SNAPSHOT: Metric = metric("until the last snapshot, ms", Better::Lower, 0);
const CPU: Metric = metric("CPU per delivery, µs", Better::Lower, 2);
const USER: Metric = metric("  of it in user space", Better::Neither, 2);
const BUSY: Metric = metric("of a core", Better::Neither, 2);
const DELIVERIES: Metric = metric("deliveries/s", Better::Neither, 0);
const IN_FLIGHT: Metric = metric("deliveries/s while in flight", Better::Higher, 0);
const BYTES: Metric = metric("bytes per delivery", Better::Neither, 0);
const P50: Metric = metric("change to client, p50, ms", Better::Lower, 2);
const P99: Metric = metric("change to client, p99, ms", Better::Lower, 2);
const FRAMES: Metric = metric("frames per client and burst", Better::Neither, 1);
const FINAL: Metric = metric("last change to all clients, ms", Better::Lower, 1);
const RAID_P50: Metric = metric("alarm to client, p50, ms", Better::Lower, 2);
const RAID_P99: Metric = metric("alarm to client, p99, ms", Better::Lower, 2);
const ALONE: Metric = metric("change to reader, p99, ms: alone", Better::Neither, 2);
const BESIDE: Metric = metric("  with those that never read", Better::Neither, 2);
const STUCK: Metric = metric("resident per such client, KiB", Better::Neither, 2);
const KERNEL: Metric = metric("of the kernel, both ends, KiB", Better::Neither, 0);
const CLOSED: Metric = metric("closed after, s", Better::Neither, 1);

/// Changes come in fours: this many go to a client at once, one more after each quarter of a second.
const BURST: u64 = 4;
const BURSTS_EVERY: Duration = Duration::from_millis(1_100);
/// Within the four patches a second that a client gets.
const PACE: Duration = Duration::from_millis(300);
/// Far beyond it; and what a client gets of it.
const SATURATION: Duration = Duration::from_millis(50);
const SATURATED: Duration = Duration::from_millis(250);
/// Changes at once: many more are sent as a snapshot only.
const MANY: u64 = 50;
const MANY_EVERY: Duration = Duration::from_secs(2);
/// Handshakes under way at once: a service that runs, and one that all come back to.
const AT_ONCE: usize = 64;
const STORM: usize = 2_000;
/// Bytes of the relay's patch of a name, and of its message of a raid.
const PATCH: usize = 210;
const RAID: usize = 234;
/// Clients that read beside those that do not.
const READERS: usize = 100;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Phase {
    /// Clients that only are there
    Idle,
    /// Handshakes, 64 under way, up to the snapshot
    Connect,
    /// One change in flight
    Strict,
    /// 3.3 changes a second
    Paced,
    /// 20 changes a second, of which a client gets what it may, merged
    Saturated,
    /// 50 changes at once
    Burst,
    /// All clients at once, in a world of 1 000 markers
    Storm,
    /// Alarms among 20 changes a second; the limit sends nothing else meanwhile
    Raid,
    /// Clients that never read, in a world of 10 000 markers, beside 100 that do
    Stuck,
}

impl Phase {
    /// True if this server can do it.
    pub fn concerns(self, contender: &Contender) -> bool {
        match contender {
            Contender::Service { .. } => true,
            Contender::Limit => !matches!(self, Self::Storm | Self::Stuck),
            Contender::Peer(_) => !matches!(self, Self::Storm | Self::Raid | Self::Stuck),
        }
    }

    fn markers(self) -> u64 {
        match self {
            Self::Storm => 1_000,
            Self::Stuck => 10_000,
            _ => 10,
        }
    }
}

/// Contenders for a round.
pub enum Contender {
    /// The first: the others are compared with it.
    Limit,
    Service {
        workers: usize,
        deflate: bool,
    },
    Peer(Peer),
}

impl Contender {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Service { .. } => "companion",
            Self::Peer(peer) => peer.name,
        }
    }
}

/// The serving side.
enum Target {
    Service(Box<Service>),
    /// Sends what it is given.
    Plain {
        process: Beside,
        address: SocketAddr,
    },
}

impl Target {
    fn start(contender: &Contender, sockets: usize, markers: u64) -> Result<Self> {
        let mut process = match contender {
            Contender::Service { workers, deflate } => {
                return Ok(Self::Service(Box::new(Service::start(sockets, markers, *workers, *deflate)?)));
            }
            Contender::Limit => Beside::start(&["limit"])?,
            Contender::Peer(peer) => peer.start()?,
        };
        let address = process.line()?.parse()?;
        Ok(Self::Plain { process, address })
    }

    fn id(&self) -> u32 {
        match self {
            Self::Service(service) => service.id(),
            Self::Plain { process, .. } => process.id(),
        }
    }

    /// These of its sockets.
    fn clients(&self, which: std::ops::Range<usize>, reading: bool) -> Result<Clients> {
        let list = NamedTempFile::with_prefix("companion-bench-")?;
        let (address, server) = match self {
            Self::Service(service) => {
                let tokens = fs::read_to_string(&service.tokens)?;
                let these: Vec<&str> = tokens.lines().skip(which.start).take(which.len()).collect();
                fs::write(&list, these.join("\n"))?;
                (service.relay, SERVER)
            }
            Self::Plain { address, .. } => {
                fs::write(&list, "none\n".repeat(which.len()))?;
                (*address, "")
            }
        };
        Clients::start(address, server, list.into_temp_path(), reading)
    }

    /// This many changes at once; the number of the last one.
    fn change(&mut self, many: u64) -> Result<u64> {
        let news = stamp();
        match self {
            Self::Service(service) => service.game.rename(news + 1 - many..=news)?,
            // There, only what it comes to is sent.
            Self::Plain { .. } => self.send(PATCH, news)?,
        }
        Ok(news)
    }

    /// A text of this length in bytes.
    fn send(&mut self, bytes: usize, news: u64) -> Result<()> {
        let Self::Plain { process, .. } = self else { return Err("the service sends by itself".into()) };
        let end = format!("{NEWS}{news}\"}}]}}");
        process.say(&format!("{{{:bytes$}{end}", "", bytes = bytes - 1 - end.len()))
    }
}

/// Usage of a process while something went on.
struct Usage {
    process: u32,
    before: Processor,
    ran: f64,
    start: Instant,
}

impl Usage {
    fn of(target: &Target) -> Result<Self> {
        let process = target.id();
        Ok(Self { process, before: Processor::of(process)?, ran: ran(process)?, start: Instant::now() })
    }

    /// Figures of this many deliveries until now.
    fn per_delivery(&self, deliveries: f64) -> Result<Figures> {
        let (ran, elapsed) = (ran(self.process)? - self.ran, self.start.elapsed().as_secs_f64());
        let used = Processor::of(self.process)?.minus(self.before);
        let each = ran * 1e6 / deliveries;
        Ok(vec![
            (CPU, each),
            (USER, each * used.user / used.total().max(0.01)),
            (BUSY, ran / elapsed),
            (DELIVERIES, deliveries / elapsed),
        ])
    }
}

/// One round with this many clients, in which changes come for the given number of seconds.
pub fn run(phase: Phase, contender: &Contender, count: usize, seconds: u32) -> Result<Figures> {
    let sockets = if let Phase::Stuck = phase { READERS + count } else { count };
    let mut target = Target::start(contender, sockets, phase.markers())?;
    let long = Duration::from_secs(seconds.into());
    match phase {
        Phase::Idle => idle(&target, count),
        Phase::Connect => connect(&target, count, AT_ONCE),
        Phase::Storm => connect(&target, count, STORM),
        Phase::Strict => strict(&mut target, count, long),
        Phase::Paced => steady(&mut target, count, long, PACE),
        Phase::Saturated => {
            let every = if let Target::Service(_) = target { SATURATION } else { SATURATED };
            steady(&mut target, count, long, every)
        }
        Phase::Burst => burst(&mut target, count, long),
        Phase::Raid => raid(&mut target, count, long),
        Phase::Stuck => stuck(&mut target, count),
    }
}

fn idle(target: &Target, count: usize) -> Result<Figures> {
    let mut clients = target.clients(0..count, true)?;
    let before = proportional(target.id())?;
    clients.connect(AT_ONCE)?;
    thread::sleep(Duration::from_secs(3));
    Ok(vec![(MEMORY, (proportional(target.id())? - before) / count as f64)])
}

fn connect(target: &Target, count: usize, at_once: usize) -> Result<Figures> {
    let mut clients = target.clients(0..count, true)?;
    let before = ran(target.id())?;
    let taken = clients.connect(at_once)?;
    let cpu = ran(target.id())? - before;
    let mut figures = vec![(CONNECTIONS, count as f64 / taken), (CPU_PER_CONNECTION, cpu * 1e6 / count as f64)];
    if at_once == STORM {
        figures.push((LAST_SNAPSHOT, taken * 1e3));
    }
    Ok(figures)
}

/// All clients, once nothing is on its way.
fn connected(target: &Target, count: usize) -> Result<Clients> {
    let mut clients = target.clients(0..count, true)?;
    clients.connect(AT_ONCE)?;
    thread::sleep(Duration::from_millis(500));
    Ok(clients)
}

fn strict(target: &mut Target, count: usize, long: Duration) -> Result<Figures> {
    let mut clients = connected(target, count)?;
    let usage = Usage::of(target)?;
    let mut in_flight = 0;
    while usage.start.elapsed() < long {
        let begin = Instant::now();
        for _ in 0..BURST {
            let news = target.change(1)?;
            in_flight += clients.all_have(news)?.saturating_sub(news);
        }
        thread::sleep(BURSTS_EVERY.saturating_sub(begin.elapsed()));
    }
    let seen = clients.seen(&[])?;
    let mut figures = usage.per_delivery(seen.frames)?;
    figures.retain(|(metric, _)| ![BUSY, DELIVERIES].contains(metric));
    figures.extend([
        (IN_FLIGHT, seen.frames * 1e6 / in_flight as f64),
        (P50, seen.patches.p50),
        (P99, seen.patches.p99),
        (BYTES, seen.bytes),
    ]);
    Ok(figures)
}

fn steady(target: &mut Target, count: usize, long: Duration, every: Duration) -> Result<Figures> {
    let mut clients = connected(target, count)?;
    let usage = Usage::of(target)?;
    let mut last = 0;
    for due in (1..).map(|change| every * change).take_while(|due| *due <= long) {
        thread::sleep(due.saturating_sub(usage.start.elapsed()));
        last = target.change(1)?;
    }
    clients.all_have(last)?;
    let seen = clients.seen(&[])?;
    let mut figures = usage.per_delivery(seen.frames)?;
    figures.extend([(P50, seen.patches.p50), (P99, seen.patches.p99), (BYTES, seen.bytes)]);
    Ok(figures)
}

fn burst(target: &mut Target, count: usize, long: Duration) -> Result<Figures> {
    let mut clients = connected(target, count)?;
    let usage = Usage::of(target)?;
    let mut latest = Vec::new();
    while usage.start.elapsed() < long {
        let begin = Instant::now();
        let news = target.change(MANY)?;
        latest.push(clients.all_have(news)?.saturating_sub(news) as f64 / 1e3);
        thread::sleep(MANY_EVERY.saturating_sub(begin.elapsed()));
    }
    let seen = clients.seen(&[])?;
    let mut figures = usage.per_delivery(seen.frames)?;
    figures.retain(|(metric, _)| ![BUSY, DELIVERIES].contains(metric));
    latest.sort_by(f64::total_cmp);
    figures.extend([
        (FRAMES, seen.frames / count as f64 / latest.len() as f64),
        (FINAL, latest[latest.len() / 2]),
        (BYTES, seen.bytes),
    ]);
    Ok(figures)
}

/// An alarm each second, right behind a change, when every socket is busy.
fn raid(target: &mut Target, count: usize, long: Duration) -> Result<Figures> {
    let mut clients = connected(target, count)?;
    let (start, mut fired) = (Instant::now(), Vec::new());
    let each = (Duration::from_secs(1).as_millis() / SATURATION.as_millis()) as u32;
    for change in (1..).take_while(|change| SATURATION * *change <= long) {
        thread::sleep((SATURATION * change).saturating_sub(start.elapsed()));
        let alarm = u64::from(change / each);
        let goes_off = change % each == 0 && alarm <= ALARMS;
        if goes_off {
            fired.push((alarm, stamp()));
        }
        match target {
            Target::Service(service) => {
                let news = stamp();
                service.game.rename(news..=news)?;
                if goes_off {
                    service.game.fire(alarm)?;
                }
            }
            Target::Plain { .. } if goes_off => target.send(RAID, stamp())?,
            Target::Plain { .. } => {}
        }
    }
    thread::sleep(Duration::from_secs(1));
    let seen = clients.seen(&fired)?;
    let ages = if let Target::Service(_) = target { seen.raids } else { seen.patches };
    Ok(vec![(RAID_P50, ages.p50), (RAID_P99, ages.p99)])
}

fn stuck(target: &mut Target, count: usize) -> Result<Figures> {
    let mut readers = connected(target, READERS)?;
    let mut latency = |target: &mut Target| -> Result<f64> {
        readers.seen(&[])?;
        let start = Instant::now();
        let mut last = 0;
        while start.elapsed() < Duration::from_secs(8) {
            last = target.change(1)?;
            thread::sleep(PACE);
        }
        readers.all_have(last)?;
        Ok(readers.seen(&[])?.patches.p99)
    };
    let alone = latency(target)?;
    let (before, kernel) = (proportional(target.id())?, kernel_memory()?);
    let mut clients = target.clients(READERS..READERS + count, false)?;
    clients.connect(AT_ONCE)?;
    let opened = Instant::now();
    let beside = latency(target)?;
    let each = |now: f64, before: f64| (now - before) / count as f64;
    let (resident, of_kernel) = (each(proportional(target.id())?, before), each(kernel_memory()?, kernel));
    let Target::Service(service) = target else { return Err("no one else closes them".into()) };
    while service.sockets()? > READERS {
        thread::sleep(Duration::from_millis(100));
    }
    let closed = opened.elapsed().as_secs_f64();
    Ok(vec![(ALONE, alone), (BESIDE, beside), (STUCK, resident), (KERNEL, of_kernel), (CLOSED, closed)])
}

/// Memory that the kernel holds in TCP buffers, KiB.
fn kernel_memory() -> Result<f64> {
    let statistics = fs::read_to_string("/proc/net/sockstat")?;
    let line = statistics.lines().find(|line| line.starts_with("TCP:")).ok_or("no TCP")?;
    let pages = line.rsplit(' ').next().ok_or("no pages")?;
    Ok(pages.parse::<f64>()? * 4.0)
}
