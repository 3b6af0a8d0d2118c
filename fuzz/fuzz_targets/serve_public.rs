#![no_main]

use std::sync::LazyLock;

use hushed_model::testing::tiny_folder;
use hushed_serve::{Bundle, fuzz};

static BUNDLE: LazyLock<Bundle> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("hushed-fuzz-{}", std::process::id()));
    tiny_folder(&folder).expect("a writable folder");
    let bundle = Bundle::from_folder(&folder).expect("a sound model");
    let _ = std::fs::remove_dir_all(&folder);
    bundle
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::public(BUNDLE.bytes(), data));
