#![no_main]

use std::sync::{Arc, LazyLock};

use hushed_rlwe::flooded::FloodedFormat;
use hushed_rlwe::{RlweParams, fuzz};

static MADE: LazyLock<(Arc<RlweParams>, FloodedFormat)> = LazyLock::new(fuzz::flooded_format);

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::flooded(&MADE, data));
