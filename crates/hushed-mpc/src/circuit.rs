//! A pass over a program, written once over [`Shares`]: between two parties, counted, or in the clear.
//!
//! Differences from the textbook order of a transformer, and why:
//!
//! * A norm's gain and offset are linear, so they move into the linear layers that read the norm. A residual that also
//!   reads it is one more block of columns of the same product (a diagonal matrix): see [`Product`].
//! * The scale of the scores, log₂e/√dh for a softmax, is folded into the query weights, and an activation's scale into
//!   the weights around it ([`Function`](function::Function)).
//! * Softmax divides after the product with V where a head's dh columns are no more than the keys, before it otherwise.
//!   A sigmoid needs no division, maximum or sum: for a masked score it is exactly 0.
//! * A norm inside a block ignores an activation's scale, and its gain is in the layer that reads it.

pub(crate) mod answer;
pub(crate) mod attention;
mod begin;
pub(crate) mod cache;
mod feed_forward;
pub(crate) mod function;
pub(crate) mod groups;
pub(crate) mod input;
pub(crate) mod pool;
pub(crate) mod prefix;
pub(crate) mod product;
pub(crate) mod scores;
pub(crate) mod search;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod weigh;

use hushed_model::{Attention, Block, Linear, Norm, NormKind, Pool, Program, Queries, Rows, Step, StepId, Values};
use hushed_twopc::func::Format;
use hushed_twopc::func::norm::{MOST_WIDTH, NormReach, NormShape, UNIT_ROW};
use hushed_twopc::share::Share;

use super::formats::{ACTIVATION, INNER, LINEAR, RAW_ANSWER};
use super::shares::{Local, Shares};
use super::{Input, RunError, Terms};
use crate::circuit::attention::{attend, cut_values, scores};
use crate::circuit::cache::{Cache, Past, join};
use crate::circuit::groups::Asking;
use crate::circuit::input::Padding;
use crate::circuit::pool::{maximum, pool};
use crate::circuit::prefix::JOINED;
use crate::circuit::product::Product;
use crate::circuit::scores::Scores;
use crate::circuit::weigh::weigh;

/// The activations of a batch of texts: rows × width.
#[derive(Clone)]
pub struct Acts<S> {
    pub(crate) share: S,
    pub(crate) format: Format,
    pub(crate) rows: Rows,
    pub(crate) width: usize,
    /// A norm whose gain and offset are still to be applied, by the layers that read this.
    pub(crate) norm: Option<Norm>,
}

impl<S: Local> Acts<S> {
    fn new(share: S, format: Format, rows: Rows, width: usize) -> Acts<S> {
        Acts { share, format, rows, width, norm: None }
    }

    /// How the rows map to texts.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The share and its format.
    pub fn share(&self) -> (&S, Format) {
        (&self.share, self.format)
    }

    /// The gain and offset still to be applied, if the numbers are known.
    fn waiting(&self) -> Option<(&[f32], &[f32])> {
        let norm = self.norm.as_ref()?;
        Some((norm.gain.as_deref()?, norm.offset.as_deref()?))
    }
}

impl Acts<Share> {
    /// Decodes the words, with pending gain and offset applied: those of a run in the clear, or of both parties' shares
    /// added together.
    pub fn values(&self) -> Vec<f64> {
        let words = self.share.words().iter();
        let mut values: Vec<f64> = words.map(|&w| self.format.decode(w)).collect();
        if let Some((gain, offset)) = self.waiting() {
            for row in values.chunks_exact_mut(gain.len().max(1)) {
                for ((v, g), o) in row.iter_mut().zip(gain).zip(offset) {
                    *v = *v * f64::from(*g) + f64::from(*o);
                }
            }
        }
        values
    }

    /// Adds both parties' shares of one matrix.
    #[must_use]
    pub fn opened(&self, other: &Acts<Share>) -> Acts<Share> {
        Acts { share: self.share.add(&other.share), ..self.clone() }
    }
}

/// Runs a pass and passes the value of every step to `see`.
///
/// # Errors
/// Those of the gadgets; [`RunError::WrongInput`] for the other party's input or padding that was not agreed on;
/// [`RunError::Unsupported`], before anything is sent, for a step that has no protocol.
pub fn run<S: Shares>(
    on: &mut S,
    program: &Program,
    input: &Input,
    see: impl FnMut(&Step, &Acts<S::Share>),
) -> Result<Acts<S::Share>, RunError> {
    pass(on, program, None, input, see)
}

/// Runs a pass over the next rows of one text whose earlier rows the cache holds. They attend to those, a public prefix
/// and themselves, as the masks allow. The cache's new contents are valid only if the pass succeeded.
///
/// # Errors
/// As [`run`]; [`RunError::WrongInput`] for several texts, or padding outside a text's first pass.
pub fn run_next<S: Shares>(
    on: &mut S,
    program: &Program,
    cache: &mut Cache<S::Share>,
    input: &Input,
    see: impl FnMut(&Step, &Acts<S::Share>),
) -> Result<Acts<S::Share>, RunError> {
    run_rows(on, program, (cache, Answering::Usual), input, see)
}

/// As [`run_next`], choosing which rows are answered.
pub(crate) fn run_rows<S: Shares>(
    on: &mut S,
    program: &Program,
    (cache, how): (&mut Cache<S::Share>, Answering),
    input: &Input,
    see: impl FnMut(&Step, &Acts<S::Share>),
) -> Result<Acts<S::Share>, RunError> {
    let rows = input.rows();
    let [text] = rows.texts() else {
        return Err(RunError::WrongInput);
    };
    if text.real < text.total && (cache.rows() > 0 || how == Answering::All) {
        return Err(RunError::WrongInput);
    }
    let separate = cache.prefix().rows();
    if cache.rows() == 0 && separate > 0 && on.takes(input) {
        let moved = input.terms().padded && Padding::of(program) == Padding::InFront;
        if moved || separate <= JOINED {
            join(on, program, cache, moved.then_some((text.real, text.total)))?;
        }
    }
    let value = pass(on, program, Some((&mut *cache, how)), input, see)?;
    cache.passed(text.real, text.total, Padding::of(program));
    Ok(value)
}

/// Which of its new rows a pass over a cache answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answering {
    /// Those of the program: for a decoder the last one, which alone goes through the rest of the last layer.
    Usual,
    /// Every row.
    All,
}

fn pass<S: Shares>(
    on: &mut S,
    program: &Program,
    cache: Option<(&mut Cache<S::Share>, Answering)>,
    input: &Input,
    mut see: impl FnMut(&Step, &Acts<S::Share>),
) -> Result<Acts<S::Share>, RunError> {
    if !on.takes(input) || input.breaks_its_terms() || input.is_of_another(program) {
        return Err(RunError::WrongInput);
    }
    supported(program)?;
    let (cache, answering) = cache.unzip();
    let mut pass =
        Pass { on, cache, all: answering == Some(Answering::All), terms: input.terms(), padding: Padding::of(program) };
    program.run(0..program.steps().len(), None, |_, step, values| {
        let value = pass.step(step, values, input)?;
        see(step, &value);
        Ok(value)
    })
}

/// Checks that every block of a program has a protocol.
///
/// # Errors
/// [`RunError::Unsupported`] with the first step that has none.
pub fn supported(program: &Program) -> Result<(), RunError> {
    let without = |step: &Step| {
        let wide = step.norms().any(|(_, norm)| norm.width > MOST_WIDTH);
        wide.then_some("a norm of so many columns: 8192 at most")
    };
    for step in program.steps() {
        if let Some(what) = without(step) {
            let site = step.id.to_string();
            return Err(RunError::Unsupported { site, what });
        }
    }
    Ok(())
}

/// Rounds the answer of a pass to its last place and reveals it to the client: one row per text, with its words'
/// format. For vectors of length one, in the format `unit`, the division happens first, on shares, so that the length
/// stays hidden.
///
/// A run reveals only these words. Their rounding is exact, so that one answer shows nothing of x below its last place.
/// x itself depends on the shares through the run's own rounding: the mean of many answers to one text is finer than
/// one answer.
///
/// # Errors
/// Those of the gadgets.
pub fn open<S: Shares>(
    on: &mut S,
    x: &Acts<S::Share>,
    unit: Option<Format>,
) -> Result<(Option<Vec<u64>>, Format), RunError> {
    let rows = x.rows.total();
    let (x, from, to) = match unit {
        Some(format) => {
            let id = StepId::outside("unit");
            let y = on.step(id, |on| on.unit_rows(&x.share, x.format, rows, x.width))?;
            (y, UNIT_ROW, format)
        }
        None => (x.share.clone(), x.format, RAW_ANSWER),
    };
    let words = round_and_open(on, &x, from, to)?;
    Ok((words, to))
}

pub(crate) fn round_and_open<S: Shares>(
    on: &mut S,
    x: &S::Share,
    from: Format,
    to: Format,
) -> Result<Option<Vec<u64>>, RunError> {
    let id = StepId::outside("answer");
    on.step(id, |on| on.open(x, from.frac - to.frac, to.ring))
}

/// The values of steps that later steps read.
type Held<S> = Values<Acts<<S as Shares>::Share>>;

struct Pass<'a, S: Shares> {
    on: &'a mut S,
    cache: Option<&'a mut Cache<S::Share>>,
    /// Every row is answered: nothing is pooled.
    all: bool,
    terms: Terms,
    padding: Padding,
}

impl<S: Shares> Pass<'_, S> {
    fn step(&mut self, step: &Step, values: &mut Held<S>, input: &Input) -> Result<Acts<S::Share>, RunError> {
        match &step.block {
            Block::Embed(e) => self.embed(step, input, e),
            Block::Patches(p) => self.patches(step, input, p),
            Block::Norm(n) => self.norm(step, values, n),
            Block::Attention(a) => self.attention(step, values, a),
            Block::FeedForward(f) => self.feed_forward(step, values, f),
            Block::Linear(w) => self.merged(step, values, w),
            Block::Add => self.add(step, values),
            Block::Pool(p) => self.pool(step, values, *p),
            Block::Vocabulary(head) | Block::Classes(head) => self.vocabulary(step, values, head),
            Block::Head(c) => self.head(step, values, c),
        }
    }

    fn norm(&mut self, step: &Step, values: &mut Held<S>, n: &Norm) -> Result<Acts<S::Share>, RunError> {
        let mut x = Self::last_or_copy(step, values)?;
        if x.norm.is_some() {
            // A norm of what another one gives, which later sums may read too.
            let settled = self.on.step(step.id.part("operand"), |on| settled(on, step.id.part("operand"), &x))?;
            x = Acts::new(settled, LINEAR, x.rows, x.width);
            if step.operands.first().is_some_and(|edge| !edge.last) {
                values.put_back(step, 0, x.clone())?;
            }
        }
        let mut y = self.normalised(step.id, x, n, 1.0)?;
        y.norm = Some(n.clone());
        Ok(y)
    }

    /// Applies the norm inside a block, if there is one, to rows that have been multiplied by `scale`. Its gain is left
    /// to the layer that reads the rows.
    fn sub_norm(&mut self, step: &Step, x: Acts<S::Share>, scale: f64) -> Result<Acts<S::Share>, RunError> {
        match step.sub_norm() {
            Some((id, norm)) => self.normalised(id, x, norm, scale),
            None => Ok(x),
        }
    }

    /// Normalises rows that have been multiplied by `scale`, which only affects ε; without gain and offset.
    fn normalised(&mut self, id: StepId, x: Acts<S::Share>, n: &Norm, scale: f64) -> Result<Acts<S::Share>, RunError> {
        let shape = NormShape {
            rows: x.rows.total(),
            width: x.width,
            centre: n.kind == NormKind::LayerNorm,
            epsilon: scale.powi(2) * n.epsilon,
            reach: reach_of(n),
        };
        let normalise = |on: &mut S| on.normalise(&x.share, x.format, shape);
        let y = self.on.step(id, normalise)?;
        Ok(Acts::new(y, ACTIVATION, x.rows, x.width))
    }

    /// The norm of queries or keys, if there is one, with its gain times a factor: of as many columns at a time as it
    /// has, each its own row. The gain is multiplied in here, as the rotation that follows mixes columns.
    fn head_norm(&mut self, norm: Option<(StepId, &Norm)>, x: S::Share, factor: f64) -> Result<S::Share, RunError> {
        let Some((id, norm)) = norm else { return Ok(x) };
        let rows = x.elements() / norm.width.max(1);
        let y = self.normalised(id, Acts::new(x, LINEAR, Rows::unpadded(&[rows]), norm.width), norm, 1.0)?;
        let id = id.part("affine");
        self.on.step(id, |on| on.product(id, &y.share, rows, &Product::affine(norm, factor)))
    }

    fn attention(&mut self, step: &Step, values: &mut Held<S>, a: &Attention) -> Result<Acts<S::Share>, RunError> {
        let (x, residual) = Self::operand(step, values)?;
        let asking = Asking { rows: &x.rows, queries: if self.all { Queries::All } else { a.queries } };
        let [q, k, v] = match a.queries.pool() {
            None => self.queries_of_all(step, &x, a, values, residual)?,
            Some(how) => self.queries_of_one(step, &x, a, values, (how, residual))?,
        };
        let [query_norm, key_norm] = step.head_norms();
        let q = self.head_norm(query_norm, q, Scores::of_queries(a))?;
        let k = self.head_norm(key_norm, k, 1.0)?;
        let (width, rows) = (a.heads.query_columns(), &asking);
        let padding = self.terms.padded.then_some(self.padding);
        let on = &mut *self.on;
        let mut past = match &mut self.cache {
            Some(cache) => cache.take(step.id),
            None => Past::none(rows.rows.longest()),
        };
        // Elsewhere than on a LAN the values are ready when they are needed.
        let values = (!on.over().is_lan()).then(|| cut_values(&v, &past, a));
        let (s, v) = on.step(step.id.part("scores"), |on| {
            let mut scores = |on: &mut S| scores(on, [&q, &k], &mut past, rows, (a, step.id));
            match values {
                Some(values) => on.beside(scores, values),
                None => Ok((scores(on)?, v.clone())),
            }
        })?;
        let p = on.step(step.id.part("weigh"), |on| weigh(on, &s, &past, rows, a, padding))?;
        let to = match a.sub_norm {
            Some(_) => INNER,
            None => ACTIVATION,
        };
        let o = on.step(step.id.part("attend"), |on| attend(on, &p, &v, &mut past, rows, (a, step.id, to)))?;
        if let Some(cache) = &mut self.cache {
            cache.put(step.id, past);
        }
        let o = Acts::new(o, to, asking.asking(), width);
        let o = self.sub_norm(step, o, 1.0)?;
        let product = Product::reading(a.sub_norm.as_ref(), &a.output);
        let y = self.wide(step, "output", &o, &product)?;
        Ok(Acts::new(y, LINEAR, o.rows, a.output.outputs))
    }

    /// Q, K and V of all rows from one product, which also gives the residual that later sums read.
    fn queries_of_all(
        &mut self,
        step: &Step,
        x: &Acts<S::Share>,
        a: &Attention,
        values: &mut Held<S>,
        residual: bool,
    ) -> Result<[S::Share; 3], RunError> {
        let product = Product::attention_input(x.norm.as_ref(), a, residual);
        let wide = self.wide(step, "qkv", x, &product)?;
        let (q, keys) = (a.heads.query_columns(), a.heads.key_columns());
        let part = |columns| wide.columns(x.rows.total(), columns);
        if residual {
            Self::leave(step, values, x, (&wide, &product))?;
        }
        Ok([part(0..q), part(q..q + keys), part(q + keys..q + 2 * keys)])
    }

    /// Q of one row per text, or of every row if all are answered, from a product which also gives the residual that
    /// later sums read of these rows; K and V of all rows.
    fn queries_of_one(
        &mut self,
        step: &Step,
        x: &Acts<S::Share>,
        a: &Attention,
        values: &mut Held<S>,
        (how, residual): (Pool, bool),
    ) -> Result<[S::Share; 3], RunError> {
        let product = Product::keys_and_values(x.norm.as_ref(), a);
        let wide = self.wide(step, "kv", x, &product)?;
        let keys = a.heads.key_columns();
        let part = |first: usize| wide.columns(x.rows.total(), first..first + keys);
        let [k, v] = [part(0), part(keys)];
        let mut asking = x.clone();
        if !self.all {
            let (rows, padded) = self.rows_for(step, &x.rows, how)?;
            asking.share = self.on.step(step.id.part("row"), |on| pool(on, &x.share, &rows, x.width, how, padded))?;
            asking.rows = rows.pooled();
        }
        let query = Product::query(x.norm.as_ref(), a, residual);
        let wide = self.wide(step, "query", &asking, &query)?;
        if residual {
            Self::leave(step, values, &asking, (&wide, &query))?;
        }
        Ok([wide.columns(asking.rows.total(), 0..a.heads.query_columns()), k, v])
    }

    /// The rows to pool over, and whether only the client knows which of them are tokens.
    fn rows_for(&self, step: &Step, rows: &Rows, how: Pool) -> Result<(Rows, bool), RunError> {
        // Only the first rows of a text have padding.
        let padded = self.terms.padded && self.cache.as_ref().is_none_or(|c| c.rows() == 0);
        if !padded || self.padding == Padding::Behind {
            return Ok((rows.clone(), padded));
        }
        if how != Pool::Last {
            return Err(RunError::Unsupported {
                site: step.id.to_string(),
                what: "this pooling of rows behind padding",
            });
        }
        // The last row of a text is its last token.
        let lengths: Vec<usize> = rows.texts().iter().map(|t| t.total).collect();
        Ok((Rows::unpadded(&lengths), false))
    }

    fn add(&mut self, step: &Step, values: &mut Held<S>) -> Result<Acts<S::Share>, RunError> {
        let (a, b) = (values.take(step, 0)?, values.take(step, 1)?);
        self.on.step(step.id, |on| {
            let mut sum = settled(on, step.id, &a)?;
            sum.add_assign(&settled(on, step.id, &b)?);
            Ok(Acts::new(sum, LINEAR, a.rows, a.width))
        })
    }

    fn pool(&mut self, step: &Step, values: &mut Held<S>, how: Pool) -> Result<Acts<S::Share>, RunError> {
        let mut x = Self::last_or_copy(step, values)?;
        if self.all || x.rows.texts().iter().all(|text| text.total == 1) {
            let y = self.on.step(step.id, |on| settled(on, step.id, &x))?;
            return Ok(Acts::new(y, LINEAR, x.rows, x.width));
        }
        let padded;
        (x.rows, padded) = self.rows_for(step, &x.rows, how)?;
        self.on.step(step.id, |on| {
            let rows = x.rows.pooled();
            if how == Pool::Max {
                // A gain may be negative, so the maximum is taken after it.
                let y = settled(on, step.id, &x)?;
                let y = maximum(on, &y, &x.rows, x.width, padded)?;
                return Ok(Acts::new(y, LINEAR, rows, x.width));
            }
            if how == Pool::Mean && x.norm.is_none() {
                let what = "the mean of rows that no norm has made";
                return Err(RunError::Unsupported { site: step.id.to_string(), what });
            }
            // Before the norm's gain and offset: γ∘mean(y) + β is the mean of γ∘y + β.
            let y = pool(on, &x.share, &x.rows, x.width, how, padded)?;
            let mut pooled = Acts::new(y, x.format, rows, x.width);
            pooled.norm = x.norm;
            let y = settled(on, step.id, &pooled)?;
            Ok(Acts::new(y, LINEAR, pooled.rows, pooled.width))
        })
    }

    /// One number per token of the vocabulary, or per class, for every row.
    fn vocabulary(&mut self, step: &Step, values: &mut Held<S>, head: &Linear) -> Result<Acts<S::Share>, RunError> {
        let x = values.take(step, 0)?;
        let product = Product::reading(x.norm.as_ref(), head);
        let rows = x.rows.total();
        let y = self.on.step(step.id, |on| on.product(step.id, &x.share, rows, &product))?;
        Ok(Acts::new(y, LINEAR, x.rows, head.outputs))
    }

    /// Returns the first operand, leaving it in place if a later step reads it.
    fn last_or_copy(step: &Step, values: &mut Held<S>) -> Result<Acts<S::Share>, RunError> {
        let read_again = step.operands.first().is_some_and(|edge| !edge.last);
        Ok(match read_again {
            true => values.get(step, 0)?.clone(),
            false => values.take(step, 0)?,
        })
    }

    /// Returns the operand of a block, and whether the block's product has to provide it to later sums: with gain and
    /// offset, if a norm is waiting. Otherwise later sums read it as it is.
    fn operand(step: &Step, values: &mut Held<S>) -> Result<(Acts<S::Share>, bool), RunError> {
        let x = values.take(step, 0)?;
        let read_again = step.operands.first().is_some_and(|edge| !edge.last);
        let residual = read_again && x.norm.is_some();
        if read_again && !residual {
            values.put_back(step, 0, x.clone())?;
        }
        Ok((x, residual))
    }

    /// Stores the operand of a block for later sums, as the block's product gives it in its last columns.
    fn leave(
        step: &Step,
        values: &mut Held<S>,
        x: &Acts<S::Share>,
        (wide, product): (&S::Share, &Product),
    ) -> Result<(), RunError> {
        let all = product.outputs;
        let left = wide.columns(x.rows.total(), all - x.width..all);
        let left = Acts::new(left, LINEAR, x.rows.clone(), x.width);
        Ok(values.put_back(step, 0, left)?)
    }

    /// A product with all rows, in [`LINEAR`]. Rows that no norm has made are cut to [`ACTIVATION`] first.
    fn wide(
        &mut self,
        step: &Step,
        part: &'static str,
        x: &Acts<S::Share>,
        product: &Product,
    ) -> Result<S::Share, RunError> {
        let id = step.id.part(part);
        let rows = x.rows.total();
        self.on.step(id, |on| match x.format {
            ACTIVATION => on.product(id, &x.share, rows, product),
            finer => {
                let cut = on.rescale(&x.share, finer.frac - ACTIVATION.frac, ACTIVATION.ring)?;
                on.product(id, &cut, rows, product)
            }
        })
    }
}

/// The formats that the model declares for a norm.
pub(crate) fn reach_of(norm: &Norm) -> NormReach {
    norm.reach.map_or(NormReach::USUAL, |reach| NormReach { squares: reach.squares, finer: reach.finer })
}

/// γ∘y + β of a normalised matrix, in [`LINEAR`], if a norm is waiting; otherwise the matrix itself.
fn settled<S: Shares>(on: &mut S, id: StepId, x: &Acts<S::Share>) -> Result<S::Share, RunError> {
    match &x.norm {
        Some(norm) => {
            let product = Product::affine(norm, 1.0);
            on.product(id.part("affine"), &x.share, x.rows.total(), &product)
        }
        None => Ok(x.share.shift_left(LINEAR.frac - x.format.frac)),
    }
}
