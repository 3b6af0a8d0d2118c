//! The parts of blocks: *layers with shapes* ([`Linear`], [`Norm`], …) whose numbers may be absent. In a two-party run
//! both parties have the same [program](crate::Program), and the client's layers are shapes only.
//!
//! Letters: `m` rows (tokens) of a text, `d` width, `h` heads, `dh` head width. Matrices are row-major. A linear layer
//! computes `Y = X·Wᵀ + b` with `W` of shape `outputs × inputs`, as in a Hugging Face folder.

use std::ops::Range;
use std::sync::Arc;

use serde::Deserialize;

use crate::folder::Stored;
use crate::matrix::Matrix;

/// `Y = X·Wᵀ + b`.
#[derive(Clone)]
pub struct Linear {
    /// Columns of X.
    pub inputs: usize,
    /// Columns of Y.
    pub outputs: usize,
    /// `outputs × inputs`; `None` if only the shape is known, or if the numbers are `stored`.
    pub weights: Option<Arc<Matrix<f32>>>,
    /// Where the weights are read from each time they are needed, if they are not in memory.
    pub stored: Option<Stored>,
    /// `outputs` numbers; `None` if only the shape is known. A layer without a bias has zeros.
    pub bias: Option<Arc<[f32]>>,
    /// Declared ternary: every weight is −s, 0 or s, with one s > 0 for the layer. How a private run uses it does not
    /// depend on which weight is which.
    pub ternary: bool,
}

/// The table of token vectors, and the position vectors if there are any.
#[derive(Clone)]
pub struct Embedding {
    /// Rows of the token table.
    pub vocabulary: usize,
    /// Length of the longest input; with a position table, its rows.
    pub positions: usize,
    /// Whether there is a position table. If not, `offsets` is `None`, and attention gets positions from [`Rope`].
    pub placed: bool,
    /// Columns of both, `d`.
    pub width: usize,
    /// `vocabulary × width`; `None` if only the shape is known, or if the numbers are `stored`.
    pub tokens: Option<Arc<Matrix<f32>>>,
    /// Where the token vectors are read from each time they are needed, if they are not in memory.
    pub stored: Option<Stored>,
    /// `positions × width`, added to row i of every text; includes BERT's token type 0. `None` as above, or if the
    /// embedding is not `placed`.
    pub offsets: Option<Arc<Matrix<f32>>>,
    /// Whether the second text of a pair has a token type of its own.
    pub typed: bool,
    /// `width` numbers, added to the rows of token type 1: type 1 less type 0. `None` if only the shape is known, or if
    /// the embedding is not `typed`.
    pub second: Option<Arc<[f32]>>,
}

/// The patches of an image as rows: each a linear map of the patch's numbers, preceded by a class token, with a
/// position vector added to every row.
#[derive(Clone)]
pub struct Patches {
    /// Patches per image: one less than the rows.
    pub count: usize,
    /// From the numbers of a patch to `d`.
    pub linear: Linear,
    /// `d` numbers, row 0 without its position; `None` if only the shape is known.
    pub class: Option<Arc<[f32]>>,
    /// `(count + 1) × d`, added to all rows; `None` as above.
    pub offsets: Option<Arc<Matrix<f32>>>,
}

/// Normalisation of a row x of `width` numbers: `gain · (x − μ)/√(σ² + ε) + offset`, or without μ and offset.
#[derive(Clone)]
pub struct Norm {
    /// Which normalisation.
    pub kind: NormKind,
    /// Columns, `d`.
    pub width: usize,
    /// ε, added to the (biased) variance or mean square.
    pub epsilon: f64,
    /// What is declared about its rows; `None`: nothing, and they are like those of most models.
    pub reach: Option<NormReach>,
    /// `width` numbers; `None` if only the shape is known.
    pub gain: Option<Arc<[f32]>>,
    /// `width` numbers (zeros for RMSNorm); `None` as above.
    pub offset: Option<Arc<[f32]>>,
}

/// Public powers of two declared about the rows of a norm, so that a private run has formats for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormReach {
    /// The sum of a row's squares, after subtracting its mean, is below 2^squares.
    pub squares: u32,
    /// Fraction bits beyond the usual ones, for rows whose elements are far below 1.
    pub finer: u32,
}

impl NormReach {
    /// Used if nothing is declared.
    pub const USUAL: NormReach = NormReach { squares: 18, finer: 0 };
    /// No format holds larger sums of squares.
    pub const MOST_SQUARES: u32 = 30;
    /// `squares + 2·finer` is at most this.
    pub const MOST: u32 = 33;

    /// The least reach that holds rows whose sums of squares are at most `largest`, with up to `finer` more fraction
    /// bits as far as there is room; `None` if no format holds them.
    pub fn of(largest: f64, finer: u32) -> Option<NormReach> {
        let squares = (largest.max(f64::MIN_POSITIVE).log2().floor() + 1.0).max(18.0);
        if squares.is_nan() || squares > f64::from(Self::MOST_SQUARES) {
            return None;
        }
        let squares = squares as u32;
        let finer = finer.min((Self::MOST - squares) / 2);
        Some(NormReach { squares, finer })
    }
}

/// How a [`Norm`] measures a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Subtracts the mean and divides by the standard deviation.
    LayerNorm,
    /// Divides by the root of the mean square.
    RmsNorm,
}

/// One attention block.
#[derive(Clone)]
pub struct Attention {
    /// `d → h·dh`.
    pub query: Linear,
    /// `d → g·dh`.
    pub key: Linear,
    /// `d → g·dh`.
    pub value: Linear,
    /// Norm of the queries before their rotation: of each head's columns, or of all, as its width says. Most models
    /// have none.
    pub query_norm: Option<Box<Norm>>,
    /// The same of the keys.
    pub key_norm: Option<Box<Norm>>,
    /// Norm of the concatenated heads, `h·dh` columns, before `output`; most models have none.
    pub sub_norm: Option<Norm>,
    /// `h·dh → d`.
    pub output: Linear,
    /// How Q, K and V split into heads.
    pub heads: Heads,
    /// How positions rotate Q and K.
    pub rope: Option<Rope>,
    /// What is added to the scores by distance; most models have none.
    pub distances: Option<Distances>,
    /// The function from scores to weights.
    pub weigh: Weigh,
    /// Which keys a row may see.
    pub mask: Mask,
    /// Which rows make queries.
    pub queries: Queries,
}

/// The rows of a text that make queries; keys and values come from all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queries {
    /// All.
    All,
    /// Row 0 alone, which sees all keys: the block gives one row per text. Only with [`Mask::Full`].
    First,
    /// Only the last row that is not padding, which sees all keys: the block gives one row per text.
    Last,
}

impl Queries {
    /// The pooling that selects these rows; `None` for all of them.
    pub fn pool(self) -> Option<Pool> {
        match self {
            Queries::All => None,
            Queries::First => Some(Pool::First),
            Queries::Last => Some(Pool::Last),
        }
    }
}

/// How the columns of Q, K and V split into heads, and the scale of the scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heads {
    /// h, the heads of Q.
    pub count: usize,
    /// g, the heads of K and V: a divisor of h. Head j of Q reads head ⌊j·g/h⌋ of K and V.
    pub keys: usize,
    /// dh.
    pub width: usize,
    /// Factor of the scores, `1/√dh`.
    pub scale: f64,
}

impl Heads {
    /// Columns of Q, h·dh.
    pub const fn query_columns(&self) -> usize {
        self.count * self.width
    }

    /// Columns of K and of V, g·dh.
    pub const fn key_columns(&self) -> usize {
        self.keys * self.width
    }

    /// Heads of Q that share one head of K, h/g.
    pub fn shared(&self) -> usize {
        self.count / self.keys.max(1)
    }
}

/// Rotary positions (Su et al. 2021): in every head of Q and K, column pair i of the row at position p is rotated by
/// the angle `p·θ^(−2i/dh)`, so that scores depend only on the distance between two positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// θ.
    pub theta: f64,
    /// Which columns form pair i.
    pub pairs: Pairs,
    /// How the angles of the formula are changed, for longer texts than those of the first training.
    pub scaling: RopeScaling,
    /// The first columns of a head, which alone are rotated; `None`: all.
    pub columns: Option<usize>,
}

/// What becomes of the angles of rotary positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Nothing.
    None,
    /// All are divided by this factor.
    Linear(f64),
    /// Slow ones are divided, as in LLaMA 3.1: those that turn less than `low` times in `trained` positions by
    /// `factor`, those that turn more than `high` times not at all, and those between by a number between.
    Llama3 {
        /// Divisor of the slowest.
        factor: f64,
        /// Turns.
        low: f64,
        /// Turns, more than `low`.
        high: f64,
        /// Positions of the first training.
        trained: usize,
    },
}

impl RopeScaling {
    /// The angle in place of this one per position.
    fn of(self, turn: f64) -> f64 {
        match self {
            RopeScaling::None => turn,
            RopeScaling::Linear(factor) => turn / factor,
            RopeScaling::Llama3 { factor, low, high, trained } => {
                let turns = trained as f64 * turn / std::f64::consts::TAU;
                let fast = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                (1.0 - fast) * turn / factor + fast * turn
            }
        }
    }
}

/// The two layouts of rotary positions. One is the other after a permutation of the columns of Q and K, which changes
/// no score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// Columns i and i + dh/2 of a head, as in Hugging Face folders.
    Halves,
    /// Columns 2i and 2i + 1, as in the paper and in LLaMA's own files.
    Adjacent,
}

impl Rope {
    /// The angle of every pair at position `place`, for heads of `width` columns: `width/2` numbers.
    pub fn angles(&self, place: usize, width: usize) -> impl Iterator<Item = f64> + use<> {
        let rope = *self;
        (0..width / 2).map(move |i| place as f64 * rope.turn(i, width))
    }

    /// The angle of pair i per position; 0 if it is not rotated.
    pub fn turn(&self, i: usize, width: usize) -> f64 {
        let rotated = self.columns.unwrap_or(width);
        match 2 * i < rotated {
            true => self.scaling.of(self.theta.powf(-2.0 * i as f64 / rotated as f64)),
            false => 0.0,
        }
    }

    /// The columns of pair i in a head of `width` columns.
    pub const fn pair(&self, i: usize, width: usize) -> (usize, usize) {
        let half = match self.columns {
            Some(rotated) => rotated / 2,
            None => width / 2,
        };
        match self.pairs {
            Pairs::Halves if i < half => (i, i + half),
            // Columns that are not rotated form pairs among themselves.
            Pairs::Halves => (i + half, i + width / 2),
            Pairs::Adjacent => (2 * i, 2 * i + 1),
        }
    }
}

/// A bias of the scores by the distance from a row to a key, in T5's buckets (Raffel et al. 2020): up to 7 rows each
/// distance has its own, then every half octave, and from 91 on there is one. Keys after the row have other buckets
/// than those before it.
#[derive(Clone)]
pub struct Distances {
    /// Buckets × heads, added to the scaled scores; `None` if only the shape is known.
    pub table: Option<Arc<Matrix<f32>>>,
}

impl Distances {
    /// Rows of the table.
    pub const BUCKETS: usize = 32;

    /// The row of the table for the score of this key in this row.
    pub fn bucket(row: usize, key: usize) -> usize {
        const FINE: usize = 8;
        let (distance, side) = (row.abs_diff(key), usize::from(key > row) * Self::BUCKETS / 2);
        let octaves = |halves: &usize| distance * distance >= (FINE * FINE) << (halves + 1);
        side + match distance < FINE {
            true => distance,
            false => FINE + (0..7).take_while(octaves).count(),
        }
    }
}

/// How scores become weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weigh {
    /// `e^{s_i} / Σ_j e^{s_j}` over a row.
    Softmax,
    /// `1/(1 + e^{−(s_i + bias)})`, element by element; keys that a row does not see have weight 0. The bias is about
    /// −log of the rows of a text (Ramapuram et al. 2024).
    Sigmoid {
        /// Added to every score.
        bias: f64,
    },
}

/// Which keys a row may see; padding is never seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// All of its text.
    Full,
    /// Row i of a text sees its rows 0 to i.
    Causal,
    /// Row i of a text sees its rows from i − reach to i + reach.
    Window {
        /// Rows to either side.
        reach: usize,
    },
}

impl Mask {
    /// The keys that row i of a text of `real` tokens sees. Only a row of padding sees none.
    pub fn keys(self, i: usize, real: usize) -> Range<usize> {
        match self {
            Mask::Full => 0..real,
            Mask::Causal => 0..real.min(i + 1),
            Mask::Window { reach } => i.saturating_sub(reach).min(real)..real.min(i + reach + 1),
        }
    }
}

/// One feed-forward block: `down(f(up(x)))`, or with a gate `down(f(gate(x)) ∘ up(x))`.
#[derive(Clone)]
pub struct FeedForward {
    /// `d → hidden`.
    pub up: Linear,
    /// `d → hidden`; if present, the activation applies to it and is multiplied by the result of `up` (Shazeer 2020).
    pub gate: Option<Linear>,
    /// Between the two layers.
    pub activation: Activation,
    /// How a private run may approximate it; `None`: nothing is declared, and the approximation must suit any model.
    pub tolerance: Option<Tolerance>,
    /// Norm of the hidden columns, before `down`; most models have none.
    pub sub_norm: Option<Norm>,
    /// `hidden → d`.
    pub down: Linear,
}

/// The head of a classifier: BERT's pooler and the classes.
#[derive(Clone)]
pub struct Classifier {
    /// `d → d`, applied to the first row of a text.
    pub dense: Linear,
    /// Between the two layers; BERT's is the hyperbolic tangent.
    pub activation: Activation,
    /// `d → k`: one number per class, before any softmax.
    pub classes: Linear,
}

/// Requirements on the approximation of a model's activation. The owner declares them, and they are public.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Largest magnitude of an argument.
    pub reach: f64,
    /// Largest difference from the function at any such argument.
    pub error: f64,
}

/// A function of one number, by its names in published configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `x·Φ(x)` with the exact Gaussian distribution function (erf).
    #[serde(alias = "gelu_python")]
    Gelu,
    /// `x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))`.
    #[serde(rename = "gelu_new", alias = "gelu_fast", alias = "gelu_pytorch_tanh")]
    GeluTanh,
    /// `x/(1 + e^(−1.702·x))`.
    QuickGelu,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)²`.
    Relu2,
    /// `x/(1 + e^(−x))`, also called swish.
    #[serde(alias = "swish")]
    Silu,
    /// The hyperbolic tangent.
    Tanh,
    /// `x` for `x ≥ 0` and `e^x − 1` below.
    Elu,
}

/// The factor inside the logistic function of [`Activation::QuickGelu`].
pub const QUICK_GELU: f64 = 1.702;

/// How the rows of a text become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// Row 0.
    First,
    /// The mean of the rows that are not padding.
    Mean,
    /// The last row that is not padding.
    Last,
    /// The maximum of each column over the rows that are not padding.
    Max,
}
