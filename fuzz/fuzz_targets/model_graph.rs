#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hushed_model::fuzz::graph(data));
