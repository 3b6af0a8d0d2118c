//! What a client sees when an answer is revealed: a statistical test over fresh sharings of one value.
//!
//! A view is everything the client has when an answer is opened: its share, every byte it receives, and the opened
//! word. Two values that round to the same word must give identically distributed views. Each bit of the view is
//! counted against the top four bits of the share below the last place (the client's half of the carry, which is what a
//! careless truncation shows), once for each value; a χ² test per bit compares the two tables. An opening that
//! truncates first is put to the same test, which must reject it.

use super::open_rounded;
use crate::ctx::Ctx;
use crate::func::narrow;
use crate::share::{Ring, Share};
use crate::testing::{Heard, run_heard, share};
use hushed_net::Party;

const RING: Ring = Ring::new(48);
const ANSWER: Ring = Ring::new(16);
/// Bits below the last place.
const SHIFT: u32 = 23;
const RUNS: u64 = 1500;
const PLACES: usize = 16;

/// The word that both values below round to, and the values' low bits.
const WORD: u64 = 4711;
const BELOW: [u64; 2] = [0x0c_0000, 0x38_0000];

/// For each bit of the view, how often it was (0, 1) where the share's low bits begin with each of 16 patterns.
type Table = Vec<[[u32; 2]; PLACES]>;

type Open = fn(&mut Ctx, &Share) -> Option<Vec<u64>>;

fn rounded(ctx: &mut Ctx, x: &Share) -> Option<Vec<u64>> {
    open_rounded(ctx, Party::Client, x, SHIFT, ANSWER).unwrap()
}

/// The insecure way: each party drops the low bits of its share.
fn truncated(ctx: &mut Ctx, x: &Share) -> Option<Vec<u64>> {
    let x = narrow(ctx.party(), x, SHIFT, ANSWER);
    ctx.open_to(Party::Client, &x).unwrap()
}

/// The views of openings of `value`, each from a fresh sharing, and the opened words.
fn views(value: u64, seed: u64, open: Open) -> (Table, Vec<u64>) {
    let shares = |run| share(RING, &[value], (seed << 32) | run);
    let client = |ctx: &mut Ctx, heard: &Heard| {
        let mut table = Table::new();
        let mut words = Vec::new();
        for run in 0..RUNS {
            let own = shares(run).0;
            let word = open(ctx, &own).unwrap()[0];
            let low = Ring::new(SHIFT).reduce(own.words()[0]);
            let place = (low >> (SHIFT - 4)) as usize;
            let mut view = heard.take();
            view.extend_from_slice(&own.words()[0].to_le_bytes());
            view.extend_from_slice(&word.to_le_bytes());
            table.resize(8 * view.len(), [[0; 2]; PLACES]);
            for (i, bits) in table.chunks_exact_mut(8).enumerate() {
                for (j, counts) in bits.iter_mut().enumerate() {
                    counts[place][usize::from(view[i] >> j & 1)] += 1;
                }
            }
            words.push(word);
        }
        (table, words)
    };
    let server = |ctx: &mut Ctx| {
        for run in 0..RUNS {
            assert!(open(ctx, &shares(run).1).is_none());
        }
    };
    run_heard(seed, client, server)
}

/// The largest χ² of two tables over the bits of the view, in standard deviations above its mean (Wilson and Hilferty's
/// cube root).
fn difference(a: &Table, b: &Table) -> f64 {
    assert_eq!(a.len(), b.len(), "views of one length");
    let deviations = a.iter().zip(b).map(|(a, b)| {
        let cells = a.as_flattened().iter().zip(b.as_flattened());
        let (mut sum, mut filled) = (0.0, -1.0f64);
        for (x, y) in cells {
            let (x, y) = (f64::from(*x), f64::from(*y));
            if x + y > 0.0 {
                sum += (x - y).powi(2) / (x + y);
                filled += 1.0;
            }
        }
        let spread = 2.0 / (9.0 * filled);
        ((sum / filled).cbrt() - (1.0 - spread)) / spread.sqrt()
    });
    deviations.fold(f64::NEG_INFINITY, f64::max)
}

/// Runs the whole test: how different the views of the two values are.
fn views_differ_by(open: Open) -> f64 {
    let [a, b] = BELOW.map(|below| (WORD << SHIFT) + below);
    let (first, second) = (views(a, 1, open), views(b, 2, open));
    difference(&first.0, &second.0)
}

#[test]
fn f5_opened_values_hide_what_lies_below() {
    // Some 5,500 bits: six standard deviations is one false alarm in 10^5.
    let found = views_differ_by(rounded);
    assert!(found < 6.0, "the views differ by {found} standard deviations");
    // The same test sees a truncation by each party alone, by far.
    let found = views_differ_by(truncated);
    assert!(found > 20.0, "only {found} standard deviations");
}

#[test]
fn f5_the_opened_word_does_not_depend_on_the_shares() {
    for below in BELOW {
        let words = views((WORD << SHIFT) + below, 3, rounded).1;
        assert!(words.iter().all(|w| *w == WORD));
    }
    // After a truncation it does: how often shows the bits below.
    let value = (WORD << SHIFT) + (1 << (SHIFT - 2));
    let words = views(value, 3, truncated).1;
    let up = words.iter().filter(|w| **w == WORD + 1).count() as f64 / RUNS as f64;
    assert!((up - 0.25).abs() < 0.05, "{up}");
}
