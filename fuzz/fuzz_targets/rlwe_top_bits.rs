#![no_main]

use std::sync::{Arc, LazyLock};

use hushed_rlwe::{RlweParams, fuzz};

static PARAMS: LazyLock<Arc<RlweParams>> = LazyLock::new(fuzz::params);

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::top_bits(&PARAMS, data));
