#![no_main]

use std::sync::LazyLock;

use hushed_fhe::fuzz;

static SEEDS: LazyLock<Vec<serde_json::Value>> = LazyLock::new(fuzz::plans);

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::plan(&SEEDS, data));
