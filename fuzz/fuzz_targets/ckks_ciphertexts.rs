#![no_main]

use std::sync::{Arc, LazyLock};

use hushed_ckks::{CkksParams, fuzz};

static PARAMS: LazyLock<Arc<CkksParams>> = LazyLock::new(fuzz::params);

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::ciphertexts(&PARAMS, data));
