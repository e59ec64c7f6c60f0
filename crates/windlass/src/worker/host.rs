//! Where a worker runs.

use crate::store::WORKER_TEXT_BYTES_MAX;

/// The name of the machine or container, empty if nobody says it. Nothing depends on it.
pub(super) fn name() -> String {
    // Linux says it to everyone; other systems set one of the variables.
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let variable = |name| std::env::var(name).ok();
    let said = kernel.or_else(|| variable("HOSTNAME")).or_else(|| variable("COMPUTERNAME"));
    let name = said.unwrap_or_default();
    let name = name.trim();
    if name.len() > WORKER_TEXT_BYTES_MAX || name.contains('\0') {
        return String::new();
    }
    name.to_owned()
}
