//! Attention's products in packed rows, compared with their definition in f64; all slots are random, including heads
//! that a model would not use. The encrypted run has the same circuit (`run/encrypted/heads_tests.rs`).

use std::sync::Arc;

use hushed_ckks::maps::GridSplit;
use hushed_ckks::poly::Arithmetic;
use hushed_ckks::{CkksParams, Complex64};
use hushed_math::rng::splitmix::SplitMix;

use super::heads::{Heads, Turned};
use super::{Layout, Spread};
use crate::simulate::{Op, Simulator, Vector};
use crate::tape::packed::HIDDEN;
use crate::tape::packed::products::{causal_scores, keys, run_attend, run_scores};
use crate::tape::run::{Inputs, alone};
use crate::tape::{NodeId, Plain};
use crate::{FheError, Slots};

/// Both columns of Q, K and V; weights P follow.
pub(crate) const COLUMNS: usize = 6;

/// A map of pairs that uses fewer than all places.
pub(crate) struct Map {
    pub(crate) rows: Spread,
    pub(crate) columns: Spread,
}

impl Map {
    pub(crate) fn new(layout: Layout) -> Map {
        let places = layout.columns();
        Map {
            // Three vectors and one vector, with unused places in all of them.
            rows: layout.spread(6 * places - 10, 1).unwrap(),
            columns: layout.spread(2 * places - 5, 1).unwrap(),
        }
    }

    pub(crate) fn weight(row: usize, column: usize) -> f64 {
        ((row * 7919 + column * 104_729) % 10_007) as f64 / 5_003.5 - 1.0
    }
}

/// Scores, P·V and a map of pairs; real vectors.
pub(crate) fn circuit<S: Slots>(on: &S, heads: &Heads, x: &[S::Value]) -> Result<Vec<S::Value>, FheError> {
    let scale = on.default_scale();
    let pair = |a: usize| on.pair(x[a].clone(), x[a + 1].clone());
    let k = on.pair_conjugate(x[2].clone(), x[3].clone())?;
    let mut out = run_scores(on, heads, pair(0)?, k)?;
    for product in run_attend(on, heads, x[COLUMNS..].to_vec(), pair(4)?)? {
        out.extend(on.parts(&product)?);
    }
    let map = Map::new(heads.layout());
    let grid = heads.layout().map([&map.rows, &map.columns], Map::weight);
    let grid = grid.map_err(hushed_ckks::CkksError::from)?;
    let split = GridSplit::width(&grid, 8).map_err(hushed_ckks::CkksError::from)?;
    let z = pair(0)?;
    let inputs = [z.clone(), on.conjugate(&z)?];
    for y in on.maps(&grid, &split, &inputs, scale)? {
        out.extend(on.parts(&y)?);
    }
    Ok(out)
}

/// The same by definition.
pub(crate) fn expected(heads: &Heads, pairs: usize, x: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let layout = heads.layout();
    let (rows, slots) = (layout.rows(), layout.slots());
    let mut out = vec![vec![f64::NAN; slots]; heads.vectors() + 2];
    let (found, attended) = out.split_at_mut(heads.vectors());
    attended.fill(vec![0.0; slots]);
    for text in 0..layout.texts() {
        for row in 0..rows {
            for head in 0..layout.columns() / pairs {
                for diagonal in 0..rows {
                    let (vector, slot) = heads.score([text, row], head, diagonal);
                    let mut score = 0.0;
                    for place in head * pairs..(head + 1) * pairs {
                        let here = layout.slot(text, row, place);
                        let there = layout.slot(text, (row + diagonal) % rows, place);
                        score += x[0][here] * x[2][there] + x[1][here] * x[3][there];
                        for (sum, v) in attended.iter_mut().zip(&x[4..COLUMNS]) {
                            sum[here] += x[COLUMNS + vector][slot] * v[there];
                        }
                    }
                    found[vector][slot] = score;
                }
            }
        }
    }
    let map = Map::new(layout);
    for vector in 0..map.rows.vectors() {
        let product = |text: usize, row: usize, r: usize| -> f64 {
            let term = |c: usize| Map::weight(r, c) * x[c % 2][layout.slot(text, row, c / 2)];
            (0..map.columns.width()).map(term).sum()
        };
        let packed = map.rows.pack(layout, vector, product);
        out.push(packed.iter().map(|z| z.re).collect());
        out.push(packed.iter().map(|z| z.im).collect());
    }
    out
}

/// Numbers within 1.
pub(crate) fn inputs(heads: &Heads) -> Vec<Vec<f64>> {
    let mut rng = SplitMix(11);
    let slots = heads.layout().slots();
    let mut one = || (rng.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
    let vector = |_| (0..slots).map(|_| one()).collect();
    (0..COLUMNS + heads.vectors()).map(vector).collect()
}

fn simulated(on: &Simulator, heads: &Heads, pairs: usize) -> f64 {
    let x = inputs(heads);
    let vectors: Vec<Vector> = x.iter().map(|x| on.vector(x.clone(), on.top()).unwrap()).collect();
    on.tally().reset();
    let found = circuit(on, heads, &vectors).unwrap();
    let expected = expected(heads, pairs, &x);
    assert_eq!(found.len(), expected.len());
    let mut most = 0.0_f64;
    for (found, expected) in found.iter().zip(&expected) {
        for (a, b) in found.values().iter().zip(expected) {
            // NaN marks a slot without a score.
            let error = (a - b).abs();
            most = if error <= most { most } else { error };
        }
    }
    most
}

/// MiniLM's heads, twelve where sixteen fit: one text of 128 rows, two of 64, eight of 16; and BERT-base's, of twice
/// the width, where eight fit.
#[test]
fn products_of_all_heads_are_exact_in_the_clear() {
    let params = CkksParams::n16_boot().unwrap();
    let on = Simulator::new(&params, params.slots()).unwrap();
    for (rows, pairs, baby) in [(128, 16, 8), (64, 16, 8), (16, 16, 4), (128, 32, 8)] {
        let layout = Layout::new(params.slots(), rows, 256).unwrap();
        assert_eq!(layout.texts(), 128 / rows);
        let heads = Heads::new(layout, pairs, 4, baby).unwrap();
        let error = simulated(&on, &heads, pairs);
        // Sums of 512 or 1,024 products of numbers within 1.
        assert!(error < 1e-12, "{rows} rows: {error}");
    }
}

/// Causal scores of turned queries and keys, and P·V, against their definition: all slots are random and every head is
/// used. Scores of keys after their query are exactly 0.
#[test]
fn causal_products_are_exact_in_the_clear() {
    let params = CkksParams::insecure_test(11, 6).unwrap();
    let on = Simulator::new(&params, 1 << 10).unwrap();
    let turn = |row: usize, pair: usize| Complex64::cis(0.3 * row as f64 / (1.0 + pair as f64));
    for (rows, pairs, copies, baby) in [(32, 8, 4, 4), (32, 8, 4, 2), (16, 4, 4, 4), (64, 2, 1, 8)] {
        let layout = Layout::new(1 << 10, rows, 16).unwrap();
        let heads = Heads::new(layout, pairs, copies, baby).unwrap().causal();
        let x = inputs(&heads);
        let vector = |i: usize| on.vector(x[i].clone(), on.top()).unwrap();
        let q = on.pair(vector(0), vector(1)).unwrap();
        let k = on.pair_conjugate(vector(2), vector(3)).unwrap();
        let v = on.pair(vector(4), vector(5)).unwrap();
        let turned = move |which: Turned| {
            let slot = move |slot: usize| {
                let (row, place) = (slot / layout.texts() / 16, slot % 16);
                let source = heads.source(which, row, place);
                let turn = source.map_or(Complex64::ZERO, |(row, pair)| turn(row, pair));
                match which {
                    Turned::Query { .. } => turn,
                    Turned::Key { .. } => turn.conj(),
                }
            };
            Plain::Pairs(Arc::new(move || (0..1 << 10).map(slot).collect()))
        };
        let operands = Inputs::<Simulator>::from([("queries", vec![q]), ("keys", vec![k])]);
        let found = alone(&on, operands, |t| {
            let [q, k]: [NodeId; 2] = ["queries", "keys"].map(|name| t.input(name, 1));
            causal_scores(t, &heads, (q, k), turned)
        });
        let found = found.unwrap();
        assert_eq!(on.limbs(&found[0]), on.top() - 4);
        let weights = (0..heads.vectors()).map(|i| vector(COLUMNS + i)).collect();
        let [re, im] = on.parts(&run_attend(&on, &heads, weights, v).unwrap()[0]).unwrap();
        let mut seen = 0;
        for (text, head) in (0..layout.texts()).flat_map(|t| (0..16 / pairs).map(move |h| (t, h))) {
            for row in 0..rows {
                let mut sums = vec![Complex64::ZERO; pairs];
                for diagonal in 0..rows {
                    let (number, slot) = heads.score([text, row], head, diagonal);
                    let (frame, place) = (slot / layout.texts() / 16, slot % 16);
                    let key = (row + rows - diagonal) % rows;
                    assert_eq!(heads.sees(number, frame, place), key <= row);
                    let (mut score, weight) = (0.0, x[COLUMNS + number][slot]);
                    for (pair, sum) in sums.iter_mut().enumerate() {
                        let at = |row| layout.slot(text, row, head * pairs + pair);
                        let z = |i: usize, s: usize| Complex64::new(x[i][s], x[i + 1][s]);
                        let turned = turn(row, pair) * turn(key, pair).conj();
                        score += (z(0, at(row)) * z(2, at(key)).conj() * turned).re;
                        *sum += weight * z(4, at(key));
                    }
                    let given = found[number].values()[slot];
                    match key <= row {
                        true => assert!((given - score).abs() < 1e-12, "{given} {score}"),
                        false => assert_eq!(given, 0.0),
                    }
                    seen += usize::from(key <= row);
                }
                for (pair, sum) in sums.iter().enumerate() {
                    let slot = layout.slot(text, row, head * pairs + pair);
                    let given = Complex64::new(re.values()[slot], im.values()[slot]);
                    assert!((given - sum).norm() < 1e-12, "{given} {sum}");
                }
            }
        }
        assert_eq!(seen, layout.texts() * (16 / pairs) * rows * (rows + 1) / 2);
    }
}

/// The counts of docs/one-text.md, for heads of 16 and of 32 pairs and 128 rows.
#[test]
fn key_switches_are_as_documented() {
    let params = CkksParams::n16_boot().unwrap();
    let on = Simulator::new(&params, params.slots()).unwrap().counting();
    let layout = Layout::new(params.slots(), 128, 256).unwrap();
    let vector = || on.vector(Vec::new(), on.top()).unwrap();
    let pair = || on.pair(vector(), vector()).unwrap();
    let counted = |work: &dyn Fn()| {
        on.tally().reset();
        work();
        let counts = on.tally().counts();
        let ops = [Op::MapBaby, Op::Rotate, Op::MapGiant, Op::Conjugate, Op::Relinearise];
        ops.map(|op| counts.total(op))
    };
    for (pairs, vectors, summed, expanded) in [(16, 8, [96, 6], 54), (32, 4, [224, 3], 59)] {
        let heads = Heads::new(layout, pairs, 4, 8).unwrap();
        let found = counted(&|| {
            let scores = run_scores(&on, &heads, pair(), pair()).unwrap();
            assert_eq!(scores.len(), vectors);
        });
        let [summed, turned] = summed;
        let conjugates = vectors as u64;
        assert_eq!(found, [6 + 15 + summed, 28 + 12, turned, conjugates, 32]);
        let weights = || (0..vectors).map(|_| vector()).collect();
        let found = counted(&|| {
            let out = run_attend(&on, &heads, weights(), pair()).unwrap();
            // Three levels.
            assert_eq!((out.len(), on.limbs(&out[0])), (1, on.top() - 3));
        });
        assert_eq!(found, [15 + expanded + 12, 28 + 12, 0, 0, 16]);
    }
}

#[test]
fn heads_that_do_not_fit_are_refused() {
    let layout = Layout::new(1 << 10, 16, 32).unwrap();
    for (pairs, copies, baby) in [(64, 4, 4), (8, 3, 4), (8, 2, 16), (8, 2, 2), (0, 1, 1)] {
        assert!(Heads::new(layout, pairs, copies, baby).is_err());
    }
    let params = CkksParams::insecure_test(11, 4).unwrap();
    let on = Simulator::new(&params, 1 << 10).unwrap();
    let heads = Heads::new(layout, 8, 2, 4).unwrap();
    let vector = || on.vector(vec![0.0; 1 << 10], on.top()).unwrap();
    let none = run_attend(&on, &heads, Vec::new(), vector());
    assert!(none.is_err());
    // A different number of slots.
    let on = Simulator::new(&params, 1 << 9).unwrap();
    let vector = || on.vector(vec![0.0; 1 << 9], on.top()).unwrap();
    assert!(run_scores(&on, &heads, vector(), vector()).is_err());
}

/// A vector with one number per row, in all its places, becomes the number of the key for each vector of scores.
#[test]
fn keys_of_scores_are_the_rows_that_they_are_of() {
    let params = CkksParams::insecure_test(12, 6).unwrap();
    let on = Simulator::new(&params, 1 << 11).unwrap();
    for (rows, pairs, copies, baby) in [(32, 8, 4, 4), (32, 8, 4, 2), (16, 4, 4, 4), (64, 2, 1, 8)] {
        let layout = Layout::new(1 << 11, rows, 16).unwrap();
        let heads = Heads::new(layout, pairs, copies, baby).unwrap();
        let number = |text: usize, row: usize| ((text * 31 + row * 17) % 23) as f64 / 23.0;
        let mut of_rows = vec![0.0; layout.slots()];
        for (text, row) in (0..layout.texts()).flat_map(|t| (0..rows).map(move |r| (t, r))) {
            let first = layout.slot(text, row, 0);
            of_rows[first..first + layout.columns()].fill(number(text, row));
        }
        let vector = on.vector(of_rows, on.top()).unwrap();
        let tokens = Inputs::<Simulator>::from([(HIDDEN[0], vec![vector])]);
        let keys = alone(&on, tokens, |t| keys(t, &heads)).unwrap();
        assert_eq!(keys.len(), heads.vectors());
        assert_eq!(on.limbs(&keys[0]), on.top() - 1);
        for (text, row) in (0..layout.texts()).flat_map(|t| (0..rows).map(move |r| (t, r))) {
            for (head, diagonal) in (0..16 / pairs).flat_map(|h| (0..rows).map(move |d| (h, d))) {
                let (vector, slot) = heads.score([text, row], head, diagonal);
                let expected = number(text, (row + diagonal) % rows);
                assert!((keys[vector].values()[slot] - expected).abs() < 1e-12);
            }
        }
    }
}
