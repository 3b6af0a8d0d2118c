//! The interface between a model and whatever runs it: in the clear, under encryption, on shares, or as a dry run.
//!
//! A model (see [`crate::bert`]) is a forward pass generic over a [`Backend`]. What it hands over are *layers with shapes*
//! ([`Linear`], [`Norm`], …) whose numbers may be absent: in a two-party run both parties execute the same forward pass, and the
//! client's layers are shapes only.
//!
//! Letters: `m` rows (tokens) of a text, `d` width, `h` heads, `dh` head width. Matrices are row-major; a linear layer computes
//! `Y = X·Wᵀ + b` with `W` of `outputs × inputs`, as in a Hugging Face folder.

use std::sync::Arc;

use crate::error::ModelError;
use crate::matrix::Matrix;
use crate::site::Site;

/// Runs the steps of a model.
///
/// `x` of type [`Acts`](Backend::Acts) is a batch of texts: per text `m` rows of `d` columns, and it carries its rows (how many each
/// text has, which of them are padding). [`Scores`](Backend::Scores) hold, per text and head, `m × m` numbers.
///
/// Each step is told its [`Site`]: calibration, plan, counters, progress and `verify` key on it.
pub trait Backend {
    /// Token ids at whoever knows them; their number at whoever does not.
    type Input;
    /// A batch of texts: rows × width.
    type Acts;
    /// Per text and head: query rows × key rows.
    type Scores;
    /// What can go wrong; a model itself adds [`ModelError`].
    type Error: From<ModelError>;

    // What a model calls. A backend that streams (heads, hidden columns, files) overrides the default bodies.

    /// `E[id_i] + P[i]` for every token: `m × d` a text.
    fn embed(&mut self, at: Site, x: Self::Input, e: &Embedding)
    -> Result<Self::Acts, Self::Error>;

    /// Multi-head attention without its residual sum and norm: `m × d` to `m × d`.
    fn attention(
        &mut self,
        at: Site,
        x: &Self::Acts,
        a: &Attention,
    ) -> Result<Self::Acts, Self::Error> {
        attention_by_steps(self, at, x, a)
    }

    /// `down(activation(up(x)))` without its residual sum and norm: `m × d` to `m × d`.
    fn feed_forward(
        &mut self,
        at: Site,
        x: &Self::Acts,
        f: &FeedForward,
    ) -> Result<Self::Acts, Self::Error> {
        feed_forward_by_steps(self, at, x, f)
    }

    /// Normalises each row: see [`NormKind`].
    fn norm(&mut self, at: Site, x: Self::Acts, n: &Norm) -> Result<Self::Acts, Self::Error>;

    /// `a + b`, of the same rows and width (the residual sum).
    fn add(&mut self, at: Site, a: &Self::Acts, b: &Self::Acts) -> Result<Self::Acts, Self::Error>;

    /// One row a text.
    fn pool(&mut self, at: Site, x: Self::Acts, p: &Pool) -> Result<Self::Acts, Self::Error>;

    /// `classes(activation(dense(row 0)))`: `m × d` to one row of k numbers a text.
    fn classify(
        &mut self,
        at: Site,
        x: Self::Acts,
        c: &Classifier,
    ) -> Result<Self::Acts, Self::Error> {
        classify_by_steps(self, at, x, c)
    }

    // What those are made of.

    /// `X·Wᵀ + b`: `m × inputs` to `m × outputs`.
    fn linear(&mut self, at: Site, x: &Self::Acts, w: &Linear) -> Result<Self::Acts, Self::Error>;

    /// `scale·Q_j·K_jᵀ` for every head j, where `Q_j` are the columns `j·dh .. (j+1)·dh` of Q.
    fn scores(
        &mut self,
        at: Site,
        q: &Self::Acts,
        k: &Self::Acts,
        h: &Heads,
    ) -> Result<Self::Scores, Self::Error>;

    /// Turns scores into weights, row by row, over the keys that `mask` and the padding leave.
    fn weigh(
        &mut self,
        at: Site,
        s: Self::Scores,
        w: Weigh,
        mask: &Mask,
    ) -> Result<Self::Scores, Self::Error>;

    /// `P_j·V_j` for every head, side by side: `m × h·dh`.
    fn attend(
        &mut self,
        at: Site,
        p: &Self::Scores,
        v: &Self::Acts,
        h: &Heads,
    ) -> Result<Self::Acts, Self::Error>;

    /// A function of every element.
    fn activation(
        &mut self,
        at: Site,
        x: Self::Acts,
        f: Activation,
    ) -> Result<Self::Acts, Self::Error>;
}

/// Attention as the paper has it (Vaswani et al. 2017), one step after another; sites `…query`, `…key`, `…value`, `…scores`, `…weigh`,
/// `…attend`, `…output`.
pub fn attention_by_steps<B: Backend + ?Sized>(
    b: &mut B,
    at: Site,
    x: &B::Acts,
    a: &Attention,
) -> Result<B::Acts, B::Error> {
    let q = b.linear(at.then("query"), x, &a.query)?; // m × h·dh
    let k = b.linear(at.then("key"), x, &a.key)?; // m × h·dh
    let v = b.linear(at.then("value"), x, &a.value)?; // m × h·dh
    let s = b.scores(at.then("scores"), &q, &k, &a.heads)?; // h of m × m
    let p = b.weigh(at.then("weigh"), s, a.weigh, &a.mask)?; // h of m × m
    let o = b.attend(at.then("attend"), &p, &v, &a.heads)?; // m × h·dh
    b.linear(at.then("output"), &o, &a.output) // m × d
}

/// The feed-forward block, one step after another; sites `…up`, `…activation`, `…down`.
pub fn feed_forward_by_steps<B: Backend + ?Sized>(
    b: &mut B,
    at: Site,
    x: &B::Acts,
    f: &FeedForward,
) -> Result<B::Acts, B::Error> {
    let y = b.linear(at.then("up"), x, &f.up)?; // m × hidden
    let y = b.activation(at.then("activation"), y, f.activation)?; // m × hidden
    b.linear(at.then("down"), &y, &f.down) // m × d
}

/// The head of a classifier, one step after another; sites `…first`, `…dense`, `…activation`, `…classes`.
pub fn classify_by_steps<B: Backend + ?Sized>(
    b: &mut B,
    at: Site,
    x: B::Acts,
    c: &Classifier,
) -> Result<B::Acts, B::Error> {
    let x = b.pool(at.then("first"), x, &Pool::First)?; // 1 × d
    let x = b.linear(at.then("dense"), &x, &c.dense)?; // 1 × d
    let x = b.activation(at.then("activation"), x, c.activation)?; // 1 × d
    b.linear(at.then("classes"), &x, &c.classes) // 1 × k
}

/// `Y = X·Wᵀ + b`.
#[derive(Clone)]
pub struct Linear {
    /// Columns of X.
    pub inputs: usize,
    /// Columns of Y.
    pub outputs: usize,
    /// `outputs × inputs`; `None` where only the shape is known.
    pub weights: Option<Arc<Matrix<f32>>>,
    /// `outputs` numbers; `None` where only the shape is known (a layer without a bias has zeros).
    pub bias: Option<Arc<[f32]>>,
}

/// The table of token vectors and what is added at each position.
#[derive(Clone)]
pub struct Embedding {
    /// Rows of the token table.
    pub vocabulary: usize,
    /// Rows of the position table: the longest input.
    pub positions: usize,
    /// Columns of both, `d`.
    pub width: usize,
    /// `vocabulary × width`; `None` where only the shape is known.
    pub tokens: Option<Arc<Matrix<f32>>>,
    /// `positions × width`, added to row i of every text; BERT's token type 0 is already in it. `None` as above.
    pub offsets: Option<Arc<Matrix<f32>>>,
}

/// Normalisation of a row x of `width` numbers: `gain · (x − μ)/√(σ² + ε) + offset`, or without μ and offset.
#[derive(Clone)]
pub struct Norm {
    /// Which one.
    pub kind: NormKind,
    /// Columns, `d`.
    pub width: usize,
    /// ε, added to the (biased) variance or mean square.
    pub epsilon: f64,
    /// `width` numbers; `None` where only the shape is known.
    pub gain: Option<Arc<[f32]>>,
    /// `width` numbers (zeros for RMSNorm); `None` as above.
    pub offset: Option<Arc<[f32]>>,
}

/// How a [`Norm`] measures a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Subtract the mean, divide by the standard deviation.
    LayerNorm,
    /// Divide by the root of the mean square.
    RmsNorm,
}

/// One attention block.
#[derive(Clone)]
pub struct Attention {
    /// `d → h·dh`.
    pub query: Linear,
    /// `d → h·dh`.
    pub key: Linear,
    /// `d → h·dh`.
    pub value: Linear,
    /// `h·dh → d`.
    pub output: Linear,
    /// How Q, K, V split.
    pub heads: Heads,
    /// What turns scores into weights.
    pub weigh: Weigh,
    /// Which keys a row may see.
    pub mask: Mask,
}

/// How the columns of Q, K and V split into heads, and what scales their products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heads {
    /// h.
    pub count: usize,
    /// dh.
    pub width: usize,
    /// Factor of the scores, `1/√dh`.
    pub scale: f64,
}

/// How scores become weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weigh {
    /// `e^{s_i} / Σ_j e^{s_j}` over a row.
    Softmax,
}

/// Which keys a row may see, besides that padding is never seen (the rows in `Acts` and `Scores` say what is padding).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// All of its text.
    Full,
}

/// One feed-forward block.
#[derive(Clone)]
pub struct FeedForward {
    /// `d → hidden`.
    pub up: Linear,
    /// Between the two.
    pub activation: Activation,
    /// How a backend may approximate it; `None`: nothing is declared, and the approximation must do for any model.
    pub tolerance: Option<Tolerance>,
    /// `hidden → d`.
    pub down: Linear,
}

/// The head of a classifier: BERT's pooler and what reads it.
#[derive(Clone)]
pub struct Classifier {
    /// `d → d`, of the first row of a text.
    pub dense: Linear,
    /// Between the two; BERT's is the hyperbolic tangent.
    pub activation: Activation,
    /// `d → k`: a number a class, before any softmax.
    pub classes: Linear,
}

/// What an approximation of an activation has to do for one model. Its owner declares it, and it is public.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Largest magnitude of an argument.
    pub reach: f64,
    /// Greatest difference from the function at any such argument.
    pub error: f64,
}

/// A function of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x·Φ(x)` with the exact Gaussian distribution function (erf).
    Gelu,
    /// `x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))`.
    GeluTanh,
    /// `x/(1 + e^(−1.702·x))`.
    QuickGelu,
    /// `max(x, 0)`.
    Relu,
    /// `x/(1 + e^(−x))`, also called swish.
    Silu,
    /// The hyperbolic tangent.
    Tanh,
    /// `x` for `x ≥ 0` and `e^x − 1` below.
    Elu,
}

/// The factor of the argument in the logistic function of [`Activation::QuickGelu`].
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
    /// The largest of each column over the rows that are not padding.
    Max,
}
