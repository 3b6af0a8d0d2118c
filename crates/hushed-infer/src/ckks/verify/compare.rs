//! Differences of the rungs, step by step.

use hushed_model::Matrix;
use serde::Serialize;

use super::Which;
use super::rung::Shown;

/// How far two rungs are apart at a step, relative to the root mean square of the clear values there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Root of the mean square.
    pub rms: f64,
    /// −log2 of it.
    pub bits: f64,
    /// The largest.
    pub max: f64,
    /// A quarter of the differences, a half and three quarters are at most this large.
    pub quartiles: [f64; 3],
}

/// The differences after one step, over all texts that are in it.
#[derive(Clone, Debug, Serialize)]
pub struct Stage {
    /// Which step: `layer.0.attention`, `….attention.add`, `….attention.norm`, and the same of `feed_forward`, whose norm ends the layer. Before
    /// a norm the means of rows are taken off.
    pub site: String,
    /// Which layer.
    pub layer: usize,
    /// Root mean square of the clear values.
    pub clear_rms: f64,
    /// Clear to polynomial: approximations.
    pub polynomial: Difference,
    /// Clear to predicted: approximations and simulated errors.
    pub predicted: Difference,
    /// Polynomial to predicted: simulated errors alone.
    pub predicted_noise: Difference,
    /// Clear to encrypted.
    pub encrypted: Option<Difference>,
    /// Polynomial to encrypted: the scheme's errors alone.
    pub encrypted_noise: Option<Difference>,
}

impl Stage {
    /// Whether the layer ends here.
    #[must_use]
    pub fn is_output(&self) -> bool {
        self.site.ends_with("feed_forward.norm")
    }

    /// The step without its layer.
    #[must_use]
    pub fn step(&self) -> &str {
        self.site.splitn(3, '.').nth(2).unwrap_or(&self.site)
    }
}

/// One stage for each step that all rungs show. `rows`: of each row its index in its text, none of those that are not compared. In a layer that
/// gives its first row (`frozen`), that row is no text's between the two norms.
pub(super) fn stages(
    clear: &Shown,
    rungs: &[(Which, Shown)],
    rows: &[Option<usize>],
    frozen: bool,
) -> Vec<Stage> {
    let steps = clear.iter().enumerate();
    let one = |(k, (site, clear)): (usize, &(hushed_model::Site, Matrix<f64>))| {
        let of = |which: Which| {
            let rung = rungs.iter().find(|(w, _)| *w == which);
            rung.and_then(|(_, shown)| shown.get(k)).map(|(_, x)| x)
        };
        let inner = matches!(
            site.in_layer(),
            "attention.norm" | "feed_forward" | "feed_forward.add"
        );
        let counted: Vec<usize> = (0..rows.len())
            .filter(|&i| rows[i].is_some_and(|row| row > 0 || !(frozen && inner)))
            .collect();
        let scale = root_mean_square(clear, &counted);
        let apart = |a: &Matrix<f64>, b: &Matrix<f64>| difference(a, b, &counted, scale);
        let (polynomial, predicted) = (of(Which::Polynomial)?, of(Which::Predicted)?);
        let encrypted = of(Which::Encrypted);
        Some(Stage {
            site: site.path().to_owned(),
            layer: site.layer_index().unwrap_or(0),
            clear_rms: scale,
            polynomial: apart(clear, polynomial),
            predicted: apart(clear, predicted),
            predicted_noise: apart(polynomial, predicted),
            encrypted: encrypted.map(|x| apart(clear, x)),
            encrypted_noise: encrypted.map(|x| apart(polynomial, x)),
        })
    };
    steps.filter_map(one).collect()
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
    Difference {
        rms,
        bits: -rms.log2(),
        max: sizes.last().copied().unwrap_or(0.0),
        quartiles: [at(1), at(2), at(3)],
    }
}
