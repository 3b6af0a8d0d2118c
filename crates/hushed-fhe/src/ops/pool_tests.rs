use hushed_ckks::CkksParams;
use hushed_ckks::poly::Arithmetic;

use super::*;
use crate::ops::levels::below;
use crate::simulate::Vector;
use crate::{RowMasks, RowsKnown, Simulator, token_rows};

const WIDTH: usize = 21;
const LENGTHS: [usize; 7] = [8, 1, 3, 8, 5, 2, 7];

fn layout() -> Interleave {
    Interleave::new(64, 8).unwrap()
}

fn number(i: usize, j: usize) -> f64 {
    let x = ((i * 7919 + j * 104_729 + 999) % 65_521) as f64 / 65_521.0;
    2.0 * x - 1.0
}

fn acts(on: &Simulator) -> Acts<Vector> {
    let mask = token_rows(layout(), &LENGTHS);
    let column = |j: usize| {
        let v = (0..64).map(|s| mask[s] * number(s, j)).collect();
        on.vector(v, on.floor() + 2).unwrap()
    };
    Acts {
        columns: (0..WIDTH).map(column).collect(),
        gain: (0..WIDTH).map(|j| 3.0 * number(j, 1)).collect(),
        offset: (0..WIDTH).map(|j| 2.0 * number(j, 2)).collect(),
    }
}

/// The answer of a text by definition.
fn exact(x: &Acts<Vector>, text: usize, how: Pool) -> Vec<f64> {
    let at = |j: usize, row: usize| x.gain[j] * x.columns[j].values()[layout().slot(text, row)] + x.offset[j];
    let rows = match how {
        Pool::First => 1,
        _ => LENGTHS[text],
    };
    let mean = |j: usize| (0..rows).map(|row| at(j, row)).sum::<f64>() / rows as f64;
    (0..WIDTH).map(mean).collect()
}

#[test]
fn pooled_packed_and_unpacked() {
    let on = Simulator::new(&CkksParams::insecure_test(10, 6).unwrap(), 64).unwrap();
    let x = acts(&on);
    let real = on.vector(token_rows(layout(), &LENGTHS), on.top()).unwrap();
    let known = [RowsKnown::public(layout(), LENGTHS.to_vec()).unwrap(), RowsKnown::private(layout(), real)];
    for rows in &known {
        let masks = RowMasks::new(&on, rows).unwrap();
        for how in [Pool::Mean, Pool::First] {
            on.tally().reset();
            let at = StepId::outside("pool");
            let out = pool(&on, at, &x, how, layout(), &masks.tokens).unwrap();
            assert_eq!(out.vectors.len(), 3);
            for v in &out.vectors {
                let limbs = below(&on, above(&on, on.floor()).unwrap(), 1);
                assert_eq!(on.limbs(v), limbs.unwrap());
            }
            let vectors: Vec<Vec<f64>> = out.vectors.iter().map(|v| v.values().to_vec()).collect();
            let found = unpack(layout(), &LENGTHS, WIDTH, out.factor, &vectors).unwrap();
            for (text, found) in found.iter().enumerate() {
                let expected = exact(&x, text, how);
                for (a, b) in found.iter().zip(&expected) {
                    assert!((a - b).abs() < 1e-5, "{a} {b}");
                }
            }
            // Only declared outputs: a row is a column of this text's answer, or 0.
            for (row, v) in vectors[2].chunks(layout().texts()).enumerate().skip(WIDTH % 8) {
                assert!(v.iter().all(|v| v.abs() < 1e-9), "row {row}");
            }
            // A place without a text is 0: it does not reveal the offsets of the norm, which are weights.
            let empty = LENGTHS.len();
            for v in &vectors {
                for r in 0..8 {
                    let there = v[layout().slot(empty, r)];
                    assert!(there.abs() < 1e-9, "row {r}: {there}");
                }
            }
            let counts = on.tally().counts();
            let asked: std::collections::BTreeSet<usize> = counts.rotations.iter().map(|r| r.by).collect();
            assert_eq!(asked.into_iter().collect::<Vec<_>>(), rotations(layout(), how));
        }
    }
}

#[test]
fn refusals() {
    let on = Simulator::new(&CkksParams::insecure_test(10, 6).unwrap(), 64).unwrap();
    let x = acts(&on);
    let rows = RowsKnown::public(layout(), LENGTHS.to_vec()).unwrap();
    let masks = RowMasks::new(&on, &rows).unwrap();
    let at = StepId::outside("pool");
    for how in [Pool::Last, Pool::Max] {
        let refused = pool(&on, at, &x, how, layout(), &masks.tokens).err();
        assert!(matches!(refused, Some(FheError::Unsupported { .. })));
    }
    let vectors = vec![vec![0.0; 64]; 3];
    assert!(unpack(layout(), &LENGTHS, WIDTH, Factor::One, &vectors[1..]).is_err());
    assert!(unpack(layout(), &[1; 9], WIDTH, Factor::One, &vectors).is_err());
    let short = vec![vec![0.0; 63]; 3];
    assert!(unpack(layout(), &LENGTHS, WIDTH, Factor::One, &short).is_err());
}
