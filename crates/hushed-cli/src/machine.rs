//! This machine: processor, cores, memory.

use std::fs;
use std::thread::available_parallelism;

use hushed_serve::fhe;
pub use hushed_serve::fhe::peak_memory;

/// Facts that change how fast a run is or whether it fits.
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    /// Bytes; `None` if the system does not say.
    pub memory: Option<u64>,
    pub memory_free: Option<u64>,
}

impl Machine {
    pub fn read() -> Machine {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = info.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':').map(|(_, n)| n.trim()));
        Machine {
            processor: name.unwrap_or(std::env::consts::ARCH).to_owned(),
            cores: available_parallelism().map_or(1, usize::from),
            memory: fhe::memory(),
            memory_free: fhe::free_memory(),
        }
    }
}
