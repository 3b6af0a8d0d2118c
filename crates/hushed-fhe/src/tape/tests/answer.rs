//! Pooling by itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_ckks::poly::Arithmetic;
use hushed_model::{Pool, StepId};

use crate::ops::acts::Acts;
use crate::ops::pool::{Factor, rotations, unpack};
use crate::packing::Interleave;
use crate::simulate::Simulator;
use crate::tape::Texts;
use crate::tape::answer::pool;
use crate::tape::encoder::COLUMNS;
use crate::tape::layout::{Columns, Hidden};
use crate::tape::record::Recorder;
use crate::tape::run::Inputs;
use crate::testing::alone;
use crate::{Slots, token_rows};

const WIDTH: usize = 21;
const LENGTHS: [usize; 7] = [8, 1, 3, 8, 5, 2, 7];

fn layout() -> Interleave {
    Interleave::new(64, 8).unwrap()
}

fn number(i: usize, j: usize) -> f64 {
    let x = ((i * 7919 + j * 104_729 + 999) % 65_521) as f64 / 65_521.0;
    2.0 * x - 1.0
}

#[test]
fn pooled_packed_and_unpacked() {
    let on = Simulator::new(&CkksParams::insecure_test(10, 6).unwrap(), 64).unwrap();
    let (at, mask) = (StepId::outside("pool"), token_rows(layout(), &LENGTHS));
    let columns: Vec<Vec<f64>> = (0..WIDTH).map(|j| (0..64).map(|s| mask[s] * number(s, j)).collect()).collect();
    let gain: Vec<f64> = (0..WIDTH).map(|j| 3.0 * number(j, 1)).collect();
    let offset: Vec<f64> = (0..WIDTH).map(|j| 2.0 * number(j, 2)).collect();
    // The answer of a text by definition.
    let exact = |text: usize, how: Pool| -> Vec<f64> {
        let at = |j: usize, row: usize| gain[j] * columns[j][layout().slot(text, row)] + offset[j];
        let rows = if how == Pool::First { 1 } else { LENGTHS[text] };
        (0..WIDTH).map(|j| (0..rows).map(|row| at(j, row)).sum::<f64>() / rows as f64).collect()
    };
    for (how, private) in [(Pool::Mean, false), (Pool::Mean, true), (Pool::First, false), (Pool::First, true)] {
        let (texts, mut t) = (Texts::alone(layout(), LENGTHS.to_vec()).unwrap(), Recorder::new());
        let lengths = Columns::new(&mut t, &Arc::new(texts), private, [1, 1]);
        let node = t.input(COLUMNS, WIDTH);
        let x = Acts { columns: vec![node], gain: gain.clone(), offset: offset.clone() };
        for v in pool(&mut t, &lengths, at, &x, node, how) {
            t.output(v);
        }
        // Of what is hidden, pooling reads the mask of tokens alone.
        let real = || on.vector(mask.clone(), on.top()).unwrap();
        let mut inputs: Inputs<Simulator> = Hidden::ALL.iter().map(|which| (which.name(), vec![real()])).collect();
        let vectors = columns.iter().map(|v| on.vector(v.clone(), on.floor() + 2).unwrap());
        inputs.insert(COLUMNS, vectors.collect());
        on.tally().reset();
        let out = alone(&on, t.finish(), inputs, on.floor()).unwrap();
        assert!(out.len() == 3 && out.iter().all(|v| on.limbs(v) == on.floor()));
        let vectors: Vec<Vec<f64>> = out.iter().map(|v| v.values().to_vec()).collect();
        let factor = if private && how == Pool::Mean { Factor::Rows } else { Factor::One };
        let found = unpack(layout(), &LENGTHS, WIDTH, factor, &vectors).unwrap();
        for (text, found) in found.iter().enumerate() {
            for (a, b) in found.iter().zip(&exact(text, how)) {
                assert!((a - b).abs() < 1e-5, "{a} {b}");
            }
        }
        // Only declared outputs: a row is a column of this text's answer, or 0.
        for (row, v) in vectors[2].chunks(layout().texts()).enumerate().skip(WIDTH % 8) {
            assert!(v.iter().all(|v| v.abs() < 1e-9), "row {row}");
        }
        // A place without a text is 0: it does not reveal the offsets of the norm, which are weights.
        let empty = LENGTHS.len();
        for (v, r) in vectors.iter().flat_map(|v| (0..8).map(move |r| (v, r))) {
            let there = v[layout().slot(empty, r)];
            assert!(there.abs() < 1e-9, "row {r}: {there}");
        }
        let counts = on.tally().counts();
        let asked: BTreeSet<usize> = counts.rotations.iter().map(|r| r.by).collect();
        assert_eq!(asked.into_iter().collect::<Vec<_>>(), rotations(layout(), how));
    }
}
