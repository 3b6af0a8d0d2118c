//! Bodies of fuzz targets: plain functions that panic on a broken promise. A test replays them over mutations.

use crate::frame::{Header, MAX_PAYLOAD, read_header, read_payload};

/// Reads frames from `data` until it ends or is rejected.
///
/// # Panics
/// If a decoded header does not encode to the bytes it came from, or memory outgrows the bytes that arrived.
pub fn frame(data: &[u8]) {
    let mut rest = data;
    loop {
        let before = rest;
        let Ok(header) = read_header(&mut rest) else {
            return;
        };
        assert!(before.starts_with(&header.encode()), "a header has two encodings");
        let Header::Step { length, .. } = header else {
            continue;
        };
        assert!(length <= MAX_PAYLOAD, "a length beyond the maximum was let through");
        let Ok(payload) = read_payload(&mut rest, length) else {
            return;
        };
        assert_eq!(payload.len() as u64, length);
        assert!(payload.capacity() <= (1 << 20) + 2 * payload.len(), "memory outgrew the bytes that arrived");
    }
}
