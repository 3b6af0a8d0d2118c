use hushed_ckks::CkksParams;

use super::*;
use crate::RowsKnown;
use crate::packing::Interleave;
use crate::simulate::{Op, Simulator, Vector};

const ROWS: usize = 16;
const SLOTS: usize = 64;

fn simulator() -> Simulator {
    Simulator::new(&CkksParams::insecure_test(8, 14).unwrap(), SLOTS).unwrap()
}

/// Scores like those of a trained head: most are far below, one per row is between −0.5 and 8.
fn score(text: usize, row: usize, key: usize) -> f64 {
    let i = ((text * ROWS + row) * ROWS + key) as u64 + 1;
    let x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (i << 40);
    let unit = (x.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11) as f64 / (1u64 << 53) as f64;
    if key == (row * 5 + text) % ROWS { -0.4 + 8.3 * unit } else { -21.9 + 20.0 * unit }
}

fn diagonals(on: &Simulator, f: impl Fn(f64) -> f64) -> Vec<Vector> {
    let layout = Interleave::new(SLOTS, ROWS).unwrap();
    let diagonal = |j| {
        let entry = |text, row| f(score(text, row, (row + j) % ROWS));
        let slots = layout.vector(layout.texts(), entry);
        on.vector(slots, on.top() - 2).unwrap()
    };
    (0..ROWS).map(diagonal).collect()
}

/// The largest difference from the exact softmax.
fn error(found: &[Vector]) -> f64 {
    let layout = Interleave::new(SLOTS, ROWS).unwrap();
    let mut worst = 0.0_f64;
    for text in 0..layout.texts() {
        for row in 0..ROWS {
            let all: f64 = (0..ROWS).map(|key| score(text, row, key).exp()).sum();
            for (j, found) in found.iter().enumerate() {
                let want = score(text, row, (row + j) % ROWS).exp() / all;
                worst = worst.max((found.values()[layout.slot(text, row)] - want).abs());
            }
        }
    }
    worst
}

fn choice() -> AttentionChoice {
    AttentionChoice {
        degree: 15,
        first_steps: 8,
        second_steps: 5,
        heads: vec![HeadChoice::Softmax {
            scores: Interval { low: -22.0, high: 8.0 },
            least_maximum: -0.5,
            // e^{−4.3}; two large ones and many small.
            first: Interval { low: 0.013, high: 2.0 },
            second: Interval { low: 0.05, high: 1.05 },
        }],
    }
}

#[test]
fn normalising_before_squaring_is_a_softmax_and_rotates_nothing() {
    for on in [simulator(), simulator().with_errors(11)] {
        let choice = choice();
        let head = Softmax::new(&on, &choice.heads[0], &choice).unwrap();
        let (factor, offset) = head.argument();
        let t = diagonals(&on, |s| factor * s + offset);
        let p: Vec<Vector> = t.iter().map(|t| head.exponential(&on, 0, t).unwrap()).collect();
        let layout = Interleave::new(SLOTS, ROWS).unwrap();
        let rows = RowsKnown::public(layout, vec![ROWS; layout.texts()]).unwrap();
        let keys = KeyMask::new(&on, &rows).unwrap();
        let at = StepId::outside("weigh");
        let heads = vec![(&head, p.clone()), (&head, p)];
        let both = weights(&on, at, heads, &keys, on.top()).unwrap();
        assert_eq!(on.tally().counts().total(Op::Bootstrap), 2);
        for weights in both {
            let found = weights.whole(&on, &head).unwrap();
            let error = error(&found);
            assert!(error < 2e-3, "{error}");
        }
        // Two sums per head are refreshed, and their imaginary errors removed.
        let counts = on.tally().counts();
        assert_eq!(counts.total(Op::Rotate), 0);
        assert_eq!((counts.total(Op::Hoist), counts.total(Op::Conjugate)), (4, 4));
    }
}
