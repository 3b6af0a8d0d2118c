//! What this machine is, for every row, and what this process has used of it.

use std::fs;
use std::thread::available_parallelism;

use hushed_serve::fhe;
pub use hushed_serve::fhe::peak_memory;
use serde_json::{Value, json};

/// Facts that change how fast a run is or whether it fits. Memory is in bytes, null where the system does not say.
pub fn describe() -> Value {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|l| {
        l.strip_prefix("model name")?
            .split_once(':')
            .map(|(_, n)| n.trim())
    });
    let cores = available_parallelism().map_or(1, usize::from);
    json!({
        "processor": name.unwrap_or(std::env::consts::ARCH), "cores": cores, "memory": fhe::memory(),
    })
}

/// Starts the count of [`peak_memory`], the most that this process has held, again. Where the system has no such thing
/// the peak is that of the whole process, which is never too low.
pub fn forget_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Seconds that this process has computed, in threads that have ended too, to a hundredth of one; 0 where the system
/// does not count.
pub fn process_seconds() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, which is before, may have spaces.
    let (_, fields) = text.rsplit_once(')').unwrap_or_default();
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = times.filter_map(|time| time.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}

/// Seconds that the living threads of this process have computed; 0 where the system does not count.
pub fn processor_seconds() -> f64 {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    let nanoseconds = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    nanoseconds.sum::<u64>() as f64 / 1e9
}
