//! Differences between the rungs, step by step.

use hushed_model::{Matrix, StepId};
use serde::Serialize;

use super::rung::Shown;

/// The difference of two rungs at a step, relative to the root mean square of the clear values there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Root mean square.
    pub rms: f64,
    /// −log2 of `rms`.
    pub bits: f64,
    /// The maximum.
    pub max: f64,
    /// The quartiles of the absolute differences.
    pub quartiles: [f64; 3],
}

/// The differences after one step, over all texts that reach it.
#[derive(Clone, Debug, Serialize)]
pub struct Stage {
    /// The step: `layer.0.attention`, `….attention.add`, `….attention.norm`, and likewise for `feed_forward`, whose
    /// norm ends the layer. Before a norm the means of rows are subtracted.
    pub site: StepId,
    /// The layer.
    pub layer: usize,
    /// Whether it is the result of the layer.
    pub output: bool,
    /// Root mean square of the clear values.
    pub clear_rms: f64,
    /// Clear against polynomial: only approximations.
    pub polynomial: Difference,
    /// Clear against predicted: approximations and simulated errors.
    pub predicted: Difference,
    /// Polynomial against predicted: only simulated errors.
    pub predicted_noise: Difference,
    /// Clear against encrypted.
    pub encrypted: Option<Difference>,
    /// Polynomial against encrypted: only the scheme's errors.
    pub encrypted_noise: Option<Difference>,
}

impl Stage {
    /// Whether the layer ends here.
    #[must_use]
    pub fn is_output(&self) -> bool {
        self.output
    }

    /// The step without its layer.
    #[must_use]
    pub fn step(&self) -> StepId {
        self.site.within_layer()
    }
}

/// The rows of a layer to compare.
pub(super) struct Counted {
    /// For each row its index in its text; `None` for rows that are not compared.
    pub rows: Vec<Option<usize>>,
    /// Whether the layer replaces its first row by a constant: between its two norms that row is not compared.
    pub frozen: bool,
}

/// One stage per step, for all rungs but the last.
pub(super) fn stages(clear: &Shown, polynomial: &Shown, predicted: &Shown, counted: &Counted) -> Vec<Stage> {
    let of = clear.len();
    let mut stages = Vec::with_capacity(of);
    let simulated = polynomial.iter().zip(predicted);
    let pairs = clear.iter().zip(simulated).enumerate();
    for (number, ((site, clear), ((_, polynomial), (_, predicted)))) in pairs {
        let rows = counted.at(number);
        let scale = root_mean_square(clear, &rows);
        let apart = |a: &Matrix<f64>, b: &Matrix<f64>| difference(a, b, &rows, scale);
        stages.push(Stage {
            site: *site,
            layer: site.layer().unwrap_or(0),
            output: number + 1 == of,
            clear_rms: scale,
            polynomial: apart(clear, polynomial),
            predicted: apart(clear, predicted),
            predicted_noise: apart(polynomial, predicted),
            encrypted: None,
            encrypted_noise: None,
        });
    }
    stages
}

/// The stages of a layer, to which the last rung adds its steps one by one, so that the rung is never held whole.
pub(super) struct Waiting {
    pub stages: Vec<Stage>,
    pub clear: Shown,
    pub polynomial: Shown,
    pub counted: Counted,
}

impl Waiting {
    /// Adds the result of the last rung at a step.
    pub fn encrypted(&mut self, at: StepId, found: &Matrix<f64>) {
        let simulated = self.clear.iter().zip(&self.polynomial);
        let stages = self.stages.iter_mut().zip(simulated).enumerate();
        for (number, (stage, ((site, clear), (_, polynomial)))) in stages {
            if *site == at {
                let rows = self.counted.at(number);
                let apart = |a: &Matrix<f64>| difference(a, found, &rows, stage.clear_rms);
                (stage.encrypted, stage.encrypted_noise) = (Some(apart(clear)), Some(apart(polynomial)));
            }
        }
    }
}

impl Counted {
    /// The rows to compare at a step.
    fn at(&self, number: usize) -> Vec<usize> {
        // From the first norm to the sum before the second, a row that is replaced by constants has no meaning.
        let inner = (2..5).contains(&number);
        let rows = self.rows.iter().enumerate();
        let means = |row: usize| row > 0 || !(self.frozen && inner);
        let kept = rows.filter(|(_, row)| row.is_some_and(means));
        kept.map(|(i, _)| i).collect()
    }
}

fn root_mean_square(x: &Matrix<f64>, rows: &[usize]) -> f64 {
    let count = (rows.len() * x.cols()).max(1) as f64;
    let sum: f64 = rows.iter().flat_map(|&i| x.row(i)).map(|v| v * v).sum();
    (sum / count).sqrt()
}

fn difference(a: &Matrix<f64>, b: &Matrix<f64>, rows: &[usize], scale: f64) -> Difference {
    let pairs = rows.iter().flat_map(|&i| a.row(i).iter().zip(b.row(i)));
    let unit = scale.max(f64::MIN_POSITIVE);
    let mut sizes: Vec<f64> = pairs.map(|(a, b)| (a - b).abs() / unit).collect();
    sizes.sort_unstable_by(f64::total_cmp);
    let at = |part: usize| sizes.get(sizes.len() * part / 4).copied().unwrap_or(0.0);
    let sum: f64 = sizes.iter().map(|v| v * v).sum();
    let rms = (sum / sizes.len().max(1) as f64).sqrt();
    Difference { rms, bits: -rms.log2(), max: sizes.last().copied().unwrap_or(0.0), quartiles: [at(1), at(2), at(3)] }
}
