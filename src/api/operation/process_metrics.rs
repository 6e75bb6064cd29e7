//! Resources that the process itself uses, under the names of Prometheus' own client libraries. Linux only: elsewhere
//! there is no `/proc`, and nothing is reported. Read here and not by a crate: it is a few lines of text, and the
//! warnings of the health check want one number of them alone.

use std::fs;

use metrics::{counter, gauge};

use crate::{domain::time::Timestamp, net::descriptors};

/// Ticks of a second in `/proc/self/stat`: the kernel's value for programs, on every architecture.
const TICKS: f64 = 100.0;

/// Reads `/proc` and sets the gauges. Blocks, for as long as it takes to list the open files.
pub fn report(started_at: Timestamp) {
    gauge!("process_start_time_seconds").set(started_at.timestamp_millis() as f64 / 1_000.0);
    let seconds = fs::read_to_string("/proc/self/stat").ok().and_then(|stat| cpu_seconds(&stat));
    if let Some(seconds) = seconds {
        counter!("process_cpu_seconds_total").absolute(seconds as u64);
    }
    if let Some(bytes) = resident_bytes() {
        gauge!("process_resident_memory_bytes").set(bytes as f64);
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        gauge!("process_open_fds").set(files.count() as f64);
        gauge!("process_max_fds").set(descriptors::limit() as f64);
    }
}

/// Seconds of user and system (proc_pid_stat(5): fields 14 and 15). The second field may hold any character.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS)
}

/// Bytes of memory that the process has now. Blocks.
pub fn resident_bytes() -> Option<u64> {
    fs::read_to_string("/proc/self/status").ok().and_then(|status| resident_in(&status))
}

fn resident_in(status: &str) -> Option<u64> {
    bytes_in(status, "VmRSS:")
}

fn bytes_in(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1_024)
}

/// Memory and processor of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessUse {
    /// Bytes of memory that it has now, and the most that it has had.
    pub resident: u64,
    pub most_resident: u64,
    /// Cores that it has used on average since its start; none where the age of the machine is not shown.
    pub cores: Option<f64>,
}

/// Looks at the process of this id; none if it is not there. Blocks.
pub fn used_by(id: u32) -> Option<ProcessUse> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{file}")).ok();
    let (status, stat) = (read(&format!("{id}/status"))?, read(&format!("{id}/stat"))?);
    process_use(&status, &stat, read("uptime").as_deref())
}

fn process_use(status: &str, stat: &str, uptime: Option<&str>) -> Option<ProcessUse> {
    let alive = || {
        let started_at = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse::<f64>().ok()? / TICKS;
        let now = uptime?.split_whitespace().next()?.parse::<f64>().ok()?;
        Some(now - started_at).filter(|seconds| *seconds > 0.0)
    };
    Some(ProcessUse {
        resident: resident_in(status)?,
        most_resident: bytes_in(status, "VmHWM:")?,
        cores: cpu_seconds(stat).zip(alive()).map(|(used, alive)| used / alive),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_read() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 9 0 1000 1 2 3";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(resident_in("Name:\ta\nVmRSS:\t    2048 kB\nVmData: 1 kB\n"), Some(2_097_152));
        assert_eq!((cpu_seconds("7 (a) S"), resident_in("")), (None, None));
        let status = "VmHWM:\t    4096 kB\nVmRSS:\t    2048 kB\n";
        let used = process_use(status, stat, Some("16.00 30.00\n"));
        // The machine was started ten seconds before it.
        assert_eq!(used, Some(ProcessUse { resident: 2_097_152, most_resident: 4_194_304, cores: Some(0.5) }));
        assert_eq!(process_use(status, stat, None).and_then(|used| used.cores), None);
    }
}
