//! Only the readers of a peer's message: for the fuzz target, over pads and choices that are not secret, and for the
//! checks of secret choices.

use super::{Kept, Offer, Pads, Shape, settle_choice, settle_offer};
use crate::testing::case::Case;

/// Whether the whole message consists of choices of this shape.
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

/// Whether the whole message consists of values of this shape.
pub(crate) fn values(shape: Shape, mut message: &[u8]) -> bool {
    let words = shape.planes() as usize * shape.words();
    let kept = Kept { c: vec![u64::MAX; words], e: vec![0; words] };
    let mut out = vec![0; shape.values()];
    let read = settle_choice(&shape, &kept, &mut message, &mut out);
    read.is_ok() && message.is_empty() && reduced(shape, &out)
}

/// Asserts that the words are reduced: otherwise they would not be a share.
fn reduced(shape: Shape, out: &[u64]) -> bool {
    assert!(out.iter().all(|w| *w <= u64::MAX >> (64 - shape.width)));
    true
}

/// The functions that choose by secret bits, for the checks that they do not branch on them.
pub(crate) fn cases() -> Vec<Case> {
    let shapes = [
        ("additive OT, one value a choice", (2048, 1)),
        ("additive OT, two values a choice", (512, 2)),
        ("additive OT, 384 values a choice", (64, 384)),
    ];
    let chosen = shapes.map(|(name, (count, messages))| {
        let shape = shape(count, messages);
        let message = vec![0x5a; shape.bytes_of_values()];
        let kept = Kept { c: vec![0; shape.words()], e: vec![0x0123_4567_89ab_cdef; shape.words()] };
        Case::new(
            name,
            (kept, vec![0u64; shape.values()]),
            |(kept, _), secret| secret.fill(&mut kept.c),
            move |(kept, out)| {
                let settled = settle_choice(&shape, kept, &mut message.as_slice(), out);
                assert!(settled.is_ok());
            },
        )
    });
    chosen.into_iter().chain([offer_case()]).collect()
}

fn offer_case() -> Case {
    let shape = shape(512, 3);
    let message = vec![0x5a; shape.bytes_of_choice()];
    let pads = Pads { wide: vec![0; shape.values()], narrow: Vec::new() };
    let state = (pads, [vec![0u64; shape.values()], vec![0u64; shape.values()]]);
    Case::new(
        "additive OT, offers",
        state,
        |(pads, [values, _]), secret| {
            secret.fill(&mut pads.wide);
            secret.fill(values);
        },
        move |(pads, [values, out])| {
            let offer = Offer { shape, values };
            let settled = settle_offer(&offer, pads, &mut message.as_slice(), out);
            assert!(settled.is_ok());
        },
    )
}

/// One bit per choice, products of 46 bits.
fn shape(count: usize, messages: usize) -> Shape {
    Shape { count, messages, bits: 1, width: 46 }
}
