//! What this machine is: named in `doctor` and in every row of a benchmark.

use std::fs;
use std::thread::available_parallelism;

/// Facts that change how fast a run is or whether it fits.
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    /// Bytes; `None` where the system does not say.
    pub memory: Option<u64>,
    pub memory_free: Option<u64>,
}

impl Machine {
    pub fn read() -> Machine {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = info.lines().find_map(|l| {
            l.strip_prefix("model name")?
                .split_once(':')
                .map(|(_, n)| n.trim())
        });
        Machine {
            processor: name.unwrap_or(std::env::consts::ARCH).to_owned(),
            cores: available_parallelism().map_or(1, usize::from),
            memory: kibibytes("/proc/meminfo", "MemTotal:"),
            memory_free: kibibytes("/proc/meminfo", "MemAvailable:"),
        }
    }
}

/// The value of `key` in a file of `key  value kB` lines, in bytes.
fn kibibytes(path: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    value
        .split_whitespace()
        .next()?
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}
