//! Where the clusters of tests are made.

use std::path::{Path, PathBuf};

/// The file system in memory of Linux. `initdb` and copying a database make hundreds of files,
/// which takes a disk twice to ten times as much work.
pub(crate) const MEMORY: &str = "/dev/shm";

/// How much must be free there: the clusters, their WAL and the databases of the tests under
/// way take less than half of it.
const MEMORY_BYTES_MIN: u64 = 2 << 30;

/// The directory for clusters: in memory if there is room.
pub(crate) fn places() -> PathBuf {
    let room = rustix::fs::statvfs(MEMORY).map(|it| it.f_bavail.saturating_mul(it.f_frsize));
    let is_memory = cfg!(target_os = "linux")
        && room.is_ok_and(|room| room >= MEMORY_BYTES_MIN)
        && rustix::fs::access(MEMORY, rustix::fs::Access::WRITE_OK).is_ok();
    if is_memory { Path::new(MEMORY).to_owned() } else { std::env::temp_dir() }
}
