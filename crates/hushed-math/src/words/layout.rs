//! Where buffers begin, and how many bytes of them may be idle.

use std::alloc::Layout;

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// Bytes of a large page.
pub(super) const PAGE: usize = 1 << 21;

/// Most bytes kept for reuse: of slabs, and again of other buffers.
pub(super) const IDLE_BYTES: usize = 1 << 30;

pub(super) fn layout(bytes: usize) -> Layout {
    let align = if bytes >= PAGE { PAGE } else { LINE };
    match Layout::from_size_align(bytes, align) {
        Ok(layout) => layout,
        Err(_) => panic!("{bytes} bytes are more than memory has"),
    }
}
