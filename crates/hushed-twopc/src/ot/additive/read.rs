//! The readers of a peer's message alone, for the fuzz target: over pads and choices that are no secrets.

use super::{Kept, Offer, Pads, Shape, settle_choice, settle_offer};

/// Whether the whole message is choices of this shape.
pub(crate) fn choices(shape: Shape, values: &[u64], mut message: &[u8]) -> bool {
    let planes = shape.planes();
    let wide = planes.min(shape.width.saturating_sub(32));
    let pads = Pads {
        wide: vec![0; wide as usize * shape.values()],
        narrow: vec![0; (planes - wide) as usize * shape.values()],
    };
    let mut out = vec![0; shape.values()];
    let read = settle_offer(&Offer { shape, values }, &pads, &mut message, &mut out);
    read.is_ok() && message.is_empty() && reduced(shape, &out)
}

/// Whether the whole message is values of this shape.
pub(crate) fn values(shape: Shape, mut message: &[u8]) -> bool {
    let words = shape.planes() as usize * shape.words();
    let kept = Kept {
        c: vec![u64::MAX; words],
        e: vec![0; words],
    };
    let mut out = vec![0; shape.values()];
    let read = settle_choice(&shape, &kept, &mut message, &mut out);
    read.is_ok() && message.is_empty() && reduced(shape, &out)
}

/// A share that is not would not be one.
fn reduced(shape: Shape, out: &[u64]) -> bool {
    assert!(out.iter().all(|w| *w <= u64::MAX >> (64 - shape.width)));
    true
}
