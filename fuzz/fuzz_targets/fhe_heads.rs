#![no_main]

use std::sync::LazyLock;

use hushed_fhe::fuzz::{self, Seed};

static SEED: LazyLock<Seed> = LazyLock::new(fuzz::seed);

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::head(&SEED, data));
