//! A residual sum and its norm by themselves.

use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_ckks::poly::Arithmetic;
use hushed_model::{Norm, NormKind, StepId};

use crate::choices::{NormChoice, fits};
use crate::ops::acts::Acts;
use crate::packing::Interleave;
use crate::simulate::{Op, Simulator, Vector};
use crate::tape::encoder::COLUMNS;
use crate::tape::layout::{Columns, Hidden, hidden};
use crate::tape::levels::{Heights, Outputs};
use crate::tape::norm::{NormBlock, norm, residual};
use crate::tape::record::Recorder;
use crate::tape::run::{Inputs, computed};
use crate::tape::{Kept, Texts};
use crate::testing::alone;
use crate::{FheError, Slots, token_rows};

const D: usize = 24;
const ROWS: usize = 8;
const SLOTS: usize = 64;
const LENGTHS: [usize; 5] = [8, 3, 1, 5, 7];
const BLOCK: &str = "block";

/// Reproducible numbers in (−1, 1).
fn number(i: usize, j: usize) -> f64 {
    let x = ((i * 7919 + j * 104_729 + 12_345) % 65_521) as f64 / 65_521.0;
    2.0 * x - 1.0
}

fn layout() -> Interleave {
    Interleave::new(SLOTS, ROWS).unwrap()
}

fn shape() -> Norm {
    let gain = (0..D).map(|j| 0.8 + 0.5 * number(j, 1) as f32);
    let offset = (0..D).map(|j| 0.3 * number(j, 2) as f32);
    Norm {
        kind: NormKind::LayerNorm,
        width: D,
        epsilon: 1e-6,
        reach: None,
        gain: Some(gain.collect()),
        offset: Some(offset.collect()),
    }
}

/// For variances up to 3.
fn choice() -> NormChoice {
    NormChoice { scale: (1.0 / (D as f64 * 3.0)).sqrt(), low: 0.05, bound: 4.0, seed: 15, steps: 1 }
}

/// Columns within 1, 0 in padding, and what is added to them; `far` makes first rows leave the range.
struct Case {
    gain: Vec<f64>,
    offset: Vec<f64>,
    columns: Vec<Vec<f64>>,
    block: Vec<Vec<f64>>,
    /// By slots, then columns.
    sum: Vec<Vec<f64>>,
}

impl Case {
    fn new(far: bool) -> Case {
        let real = token_rows(layout(), &LENGTHS);
        let columns: Vec<Vec<f64>> = (0..D).map(|j| (0..SLOTS).map(|s| real[s] * number(s, j + 3)).collect()).collect();
        let gain: Vec<f64> = (0..D).map(|j| 1.0 + number(j, 77)).collect();
        let offset: Vec<f64> = (0..D).map(|j| number(j, 99)).collect();
        // A block's output is not masked in padding.
        let first = |s: usize| far && s < layout().texts();
        let output = |j: usize, s: usize| {
            1.5 * number(s + 1000, j) + if first(s) { number(j, 3) * 2.0 / choice().scale } else { 0.0 }
        };
        let row = |s: usize| (0..D).map(|j| output(j, s)).collect::<Vec<f64>>();
        let mean = |s: usize| row(s).iter().sum::<f64>() / D as f64;
        let centred = |j: usize| (0..SLOTS).map(|s| choice().scale * (output(j, s) - mean(s))).collect();
        let sum = |s: usize| (0..D).map(|j| gain[j] * columns[j][s] + offset[j] + output(j, s)).collect();
        let (block, sum) = ((0..D).map(centred).collect(), (0..SLOTS).map(sum).collect());
        Case { gain, offset, columns, block, sum }
    }

    /// x̂·gain + offset of every slot, by definition.
    fn exact(&self, n: &Norm) -> Vec<Vec<f64>> {
        let (gain, offset) = (n.gain.as_ref().unwrap(), n.offset.as_ref().unwrap());
        let row = |row: &Vec<f64>| {
            let mean = row.iter().sum::<f64>() / D as f64;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / D as f64;
            let unit = |x: &f64| (x - mean) / (variance + n.epsilon).sqrt();
            let numbers = row.iter().zip(gain.iter()).zip(offset.iter());
            numbers.map(|((x, &g), &o)| unit(x) * f64::from(g) + f64::from(o)).collect()
        };
        self.sum.iter().map(row).collect()
    }

    /// The norm of the sum in these rows, and constants in first rows.
    fn run(
        &self,
        on: &Simulator,
        private: bool,
        (rows, constants): (Kept, Option<Vec<f64>>),
    ) -> Result<Acts<Vector>, FheError> {
        let at = StepId::outside("layer.0.attention.norm");
        let (n, c, mut t) = (shape(), choice(), Recorder::new());
        let texts = Arc::new(Texts::alone(layout(), LENGTHS.to_vec()).unwrap());
        let columns = Columns::new(&mut t, &texts, private, [1, 1]);
        t.at(at);
        let node = t.input(COLUMNS, D);
        let block = t.input(BLOCK, D);
        let x = Acts { columns: vec![node], gain: self.gain.clone(), offset: self.offset.clone() };
        let centred = residual(&mut t, &columns, &x, node, block, c.scale);
        let frozen = constants.map(|numbers| (numbers, columns.mask(Kept::First(0))));
        let rows = columns.mask(rows);
        let y = norm(
            &mut t,
            on,
            &columns,
            centred,
            NormBlock { at, norm: &n, choice: &c, rows: &rows, read: false, frozen },
        )?;
        t.output(y);
        let mut inputs = Inputs::<Simulator>::new();
        if private {
            let real = on.vector(token_rows(layout(), &LENGTHS), on.top())?;
            let mut t = Recorder::new();
            hidden(&mut t, layout(), false).unwrap();
            let sent = Inputs::<Simulator>::from([(Hidden::Tokens.name(), vec![real])]);
            let place = (Heights::Least, Outputs::AtLeast(on.floor()), Vec::new());
            let made = computed(on, t.finish(), sent, place, &mut |_, _| Ok(()))?;
            inputs.extend(Hidden::ALL.iter().zip(made).map(|(which, v)| (which.name(), vec![v])));
        }
        let vectors = |numbers: &[Vec<f64>], limbs: usize| {
            numbers.iter().map(|v| on.vector(v.clone(), limbs)).collect::<Result<Vec<_>, FheError>>()
        };
        inputs.insert(COLUMNS, vectors(&self.columns, on.top())?);
        inputs.insert(BLOCK, vectors(&self.block, on.floor() + 1)?);
        on.tally().reset();
        Acts::from_norm(at, alone(on, t.finish(), inputs, on.floor())?, &n, &c)
    }
}

fn simulator() -> Simulator {
    Simulator::new(&CkksParams::insecure_test(10, 14).unwrap(), SLOTS).unwrap()
}

/// One statistic is refreshed, nothing is rotated, and padding comes out as 0.
#[test]
fn a_norm_is_the_one_of_the_definition() {
    let (on, case, mask) = (simulator(), Case::new(false), token_rows(layout(), &LENGTHS));
    let expected = case.exact(&shape());
    for private in [false, true] {
        let found = case.run(&on, private, (Kept::All, None)).unwrap();
        for (j, column) in found.columns.iter().enumerate() {
            for (s, v) in column.values().iter().enumerate() {
                let is = found.gain[j] * v + found.offset[j];
                match mask[s] == 0.0 {
                    true => assert!(v.abs() < 1e-6, "{v} in padding"),
                    false => assert!((is - expected[s][j]).abs() < 4e-3, "{is} {}", expected[s][j]),
                }
            }
            assert_eq!(on.limbs(column), on.floor());
            assert!(on.scale(column).matches(on.default_scale()));
        }
        let counts = on.tally().counts();
        assert!(counts.rotations.is_empty(), "a norm rotates");
        // One per column, one for the variance, those of the root, and two for an encrypted mask.
        let root = fits::root(&choice()).unwrap().report().cost.relinearisations;
        assert_eq!(counts.total(Op::Relinearise), (D + 1 + root + 2 * usize::from(private)) as u64);
        assert_eq!(counts.total(Op::Refreshed), 1);
    }
}

/// Rows that constants replace may be far outside the range, and if they are used, they are refused.
#[test]
fn constant_rows_replace_results() {
    let (on, case, mask) = (simulator(), Case::new(true), token_rows(layout(), &LENGTHS));
    let (expected, numbers) = (case.exact(&shape()), (0..D).map(|j| number(j, 5)).collect::<Vec<f64>>());
    for private in [false, true] {
        let found = case.run(&on, private, (Kept::Later, Some(numbers.clone()))).unwrap();
        for (j, column) in found.columns.iter().enumerate() {
            for (s, v) in column.values().iter().enumerate() {
                let is = found.gain[j] * v + found.offset[j];
                match (s < layout().texts(), mask[s] == 1.0) {
                    (true, true) => assert!((v - numbers[j]).abs() < 1e-6),
                    (false, true) => assert!((is - expected[s][j]).abs() < 4e-3),
                    // So do places without a text.
                    (_, false) => assert!(v.abs() < 1e-6),
                }
            }
        }
        let refused = case.run(&on, private, (Kept::All, None)).err().unwrap();
        assert!(matches!(refused, FheError::Range { .. }), "{refused}");
    }
}
