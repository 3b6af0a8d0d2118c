#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hushed_serve::fuzz::table(data));
