//! Which process trains in a run folder, told from the lock that it holds.
//!
//! The lock is looked up in the system's list. Trying to take it instead would now and then keep a run from starting.
//!
//! Whether a run is alive is read from `/proc/locks`: the engine locks `events.jsonl`. Trying the lock instead would
//! keep a run from starting now and then. Where the list does not tell, silence for ten seconds and five steps means
//! killed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The process that holds a lock on this file, where the system tells.
pub(crate) fn lock_holder(file: &Path) -> Option<u32> {
    let inode = fs::metadata(file).ok()?.ino();
    holder_in(&fs::read_to_string("/proc/locks").ok()?, inode)
}

/// Finds the lock by the inode alone: on layered file systems the device of a lock is not that of the file.
fn holder_in(locks: &str, inode: u64) -> Option<u32> {
    locks.lines().find_map(|lock| {
        let words: Vec<&str> = lock.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", process, place, ..] = words[..] else { return None };
        let locked: u64 = place.rsplit(':').next()?.parse().ok()?;
        if locked == inode { process.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_found_by_its_inode() {
        let locks = "1: FLOCK  ADVISORY  WRITE 21427 fe:00:10421775 0 EOF\n\
                     2: FLOCK  ADVISORY  READ 5 fe:00:7 0 EOF\n\
                     3: POSIX  ADVISORY  WRITE 6 fe:00:8 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 9 fe:00:9 0 EOF\n";
        assert_eq!(holder_in(locks, 10_421_775), Some(21_427));
        for inode in [7, 8, 9, 10] {
            assert_eq!(holder_in(locks, inode), None);
        }
    }
}
