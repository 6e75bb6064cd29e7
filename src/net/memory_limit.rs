//! The memory that the process may have, where its control group limits it. Linux only: elsewhere there is no such limit.

use std::{fs, path::Path};

/// With less the kernel ends the process before it serves many users.
pub const LEAST: u64 = 256 << 20;

/// Bytes that the control group of this process may have, or one above it; none without a limit. Blocks.
pub fn limit() -> Option<u64> {
    limit_in(Path::new("/sys/fs/cgroup"), &fs::read_to_string("/proc/self/cgroup").ok()?)
}

/// The least limit on the way from the root of the hierarchy (cgroup v2) to the group of the process.
fn limit_in(root: &Path, membership: &str) -> Option<u64> {
    let group = membership.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let group = root.join(group);
    let groups = group.ancestors().take_while(|path| path.starts_with(root));
    groups.filter_map(|group| fs::read_to_string(group.join("memory.max")).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_above_the_process_counts() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("system.slice/companion.service");
        fs::create_dir_all(&group).unwrap();
        let limit = |membership: &str| limit_in(root.path(), membership);
        let own = "1:name=x:/y\n0::/system.slice/companion.service\n";
        fs::write(group.join("memory.max"), "max\n").unwrap();
        assert_eq!([limit(own), limit("1:memory:/y\n"), limit("")], [None; 3]);
        fs::write(root.path().join("system.slice/memory.max"), "536870912\n").unwrap();
        assert_eq!(limit(own), Some(512 << 20));
        fs::write(group.join("memory.max"), "134217728\n").unwrap();
        assert_eq!(limit(own), Some(128 << 20));
        fs::write(root.path().join("memory.max"), "67108864\n").unwrap();
        assert_eq!(limit("0::/\n"), Some(64 << 20));
    }
}
