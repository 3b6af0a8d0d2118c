//! Facts about this machine, for every row, and the resources that this process has used.

use std::fs;
use std::thread::available_parallelism;

use hushed_serve::fhe;
pub use hushed_serve::fhe::peak_memory;
use serde_json::{Value, json};

/// Facts that affect how fast a run is or whether it fits. Memory is in bytes, null if the system does not report it.
pub fn describe() -> Value {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':').map(|(_, n)| n.trim()));
    let cores = available_parallelism().map_or(1, usize::from);
    json!({
        "processor": name.unwrap_or(std::env::consts::ARCH), "cores": cores, "memory": fhe::memory(),
    })
}

/// Restarts [`peak_memory`], the most memory that this process has held. On a system without this function the peak is
/// that of the whole process, which is never too low.
pub fn forget_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Processor seconds of this process, including threads that have ended, to a hundredth of a second; 0 if the system
/// does not count them.
pub fn process_seconds() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, which comes first, may contain spaces.
    let (_, fields) = text.rsplit_once(')').unwrap_or_default();
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = times.filter_map(|time| time.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}

/// Processor seconds of the living threads of this process; 0 if the system does not count them.
pub fn processor_seconds() -> f64 {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    let nanoseconds = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    nanoseconds.sum::<u64>() as f64 / 1e9
}
