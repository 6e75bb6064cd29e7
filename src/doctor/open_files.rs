//! Files that a process has open, also those that were removed meanwhile, as `/proc` shows. Linux only: elsewhere nothing is found.

use std::{fs, path::Path};

/// The end of the name of an open file that was removed.
const REMOVED: &str = " (deleted)";

/// The id of a process, of those that this user may look at, that has this removed file open. Blocks.
pub(super) fn holder_of_removed(path: &Path) -> Option<u32> {
    holder_shown(&format!("{}{REMOVED}", path.display()))
}

/// The id of a process, of those that this user may look at, that has this file open. Blocks.
pub(super) fn holder(path: &Path) -> Option<u32> {
    holder_shown(&path.canonicalize().ok()?.display().to_string())
}

fn holder_shown(shown: &str) -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut ids = processes.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
    ids.find(|id| {
        let files = fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|target| target.to_str() == Some(shown))
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_removed_file_that_is_open_is_found_with_its_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("open.db");
        let open = fs::File::create(&path).unwrap();
        assert_eq!((holder_of_removed(&path), holder(&path)), (None, Some(std::process::id())), "it is there");
        fs::remove_file(&path).unwrap();
        assert_eq!(holder_of_removed(&path), Some(std::process::id()));
        drop(open);
        assert_eq!(holder_of_removed(&path), None);
    }
}
