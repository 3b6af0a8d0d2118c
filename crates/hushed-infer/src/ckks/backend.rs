//! BERT under encryption: a [`Backend`] over [`Slots`], layer by layer, so that a run can stop and resume between them.
//!
//! A layer takes refreshed columns and gives refreshed columns. Which norm follows a block is known by the site, and its κ and centring
//! are in the block's last linear layer. The first norm, after the embedding, is the client's: at the site `embed.norm` nothing is done.
//!
//! | step | result |
//! |---|---|
//! | `embed`, `embed.norm` | the client's columns, as they are |
//! | `attention`, `feed_forward` | κ·(y − mean of y) by columns |
//! | `add` | the same with the residual in it |
//! | `norm` | x̂/bound by columns, refreshed to what the next half of the layer begins with; not after the last layer |
//! | `pool` or `head` | the declared outputs, packed |
//!
//! Where the placement puts vectors on disk, columns between steps are in the backend's keeping ([`Passing::Kept`]), so that a block can let
//! go of them: a step of a model only lends them.
//!
//! Rows of padding are 0 from each norm on. Where a layer's first rows are given (`frozen_row`), both of its norms leave them out, and the
//! second puts the given ones in. Before a classifier's head the last norm gives first rows alone.

use hushed_model::{
    Activation, Attention, Backend, Bert, Classifier, Embedding, FeedForward, Heads, Linear, Mask,
    Norm, Pool, Site, Weigh,
};
use rayon::prelude::*;

use super::activation::Polynomials;
use super::acts::{Acts, StoredActs, here, same};
use super::attention::{attention, attention_stored};
use super::choices::{Choices, ChoicesError, LayerChoice};
use super::error::FheError;
use super::feed_forward::{feed_forward, feed_forward_stored};
use super::head::head;
use super::levels::{LayerLevels, levels};
use super::mask::{RowMasks, RowsKnown};
use super::norm::{Given, NormPlan, norm, residual};
use super::placement::Placement;
use super::pool::{Pooled, pool};
use super::slots::Slots;

/// What goes from step to step of a model.
#[derive(Clone)]
pub enum Passing<V> {
    /// Columns between blocks.
    Columns(Acts<V>),
    /// The same, kept by the backend that gave this: its latest ones, for the next steps of a layer.
    Kept,
    /// Centred columns on their way to a norm.
    Centred(Vec<V>),
    /// The answer.
    Pooled(Pooled<V>),
}

/// What a step of a block gave, for whoever watches a run.
#[derive(Clone, Copy)]
pub enum Look<'a, V> {
    /// Of a norm, refreshed.
    Columns(&'a Acts<V>),
    /// Of what comes before one: κ·(y − mean of y).
    Centred(&'a [V]),
}

/// Who is shown the results of attention, feed-forward, sums and norms; an error of theirs ends the run. The run's own backend tells, not a
/// [`hushed_model::record::Recorded`] around it: that sees nothing of columns which are [kept](Passing::Kept).
pub type Viewer<'a, V> = Box<dyn FnMut(&Site, Look<'_, V>) -> Result<(), FheError> + 'a>;

/// Runs a BERT over vectors of slots.
pub struct CkksBackend<'a, S: Slots> {
    on: &'a S,
    choices: &'a Choices,
    placement: Placement,
    levels: Vec<LayerLevels>,
    rows: RowsKnown<S::Value>,
    masks: RowMasks<S::Value>,
    /// Of the client's columns, public.
    input_bound: f64,
    polynomials: Polynomials,
    kept: Kept<S>,
    viewer: Option<Viewer<'a, S::Value>>,
}

/// What [`Passing::Kept`] stands for.
enum Kept<S: Slots> {
    Nothing,
    Columns(Acts<S::Value>),
    /// As much as the residual sum of the block that read them needs.
    Residual(StoredActs<S>),
}

impl<'a, S: Slots> CkksBackend<'a, S> {
    /// A run over texts of these rows. The client divided its columns by `input_bound`.
    ///
    /// # Errors
    /// [`FheError::Levels`] if the placement has too few levels for the choices.
    pub fn new(
        on: &'a S,
        choices: &'a Choices,
        placement: Placement,
        rows: RowsKnown<S::Value>,
        input_bound: f64,
    ) -> Result<Self, FheError> {
        Ok(CkksBackend {
            levels: levels(on, choices, &placement)?,
            masks: RowMasks::new(on, &rows)?,
            on,
            choices,
            placement,
            rows,
            input_bound,
            polynomials: Polynomials::default(),
            kept: Kept::Nothing,
            viewer: None,
        })
    }

    /// The same, viewed.
    #[must_use]
    pub fn viewed_by(self, viewer: Viewer<'a, S::Value>) -> Self {
        CkksBackend {
            viewer: Some(viewer),
            ..self
        }
    }

    /// The ledger, layer by layer.
    pub fn levels(&self) -> &[LayerLevels] {
        &self.levels
    }

    /// The columns that the client sent, as the first layer takes them: those with fewer primes than it reads are refreshed.
    ///
    /// # Errors
    /// Those of a refresh.
    pub fn start(&self, columns: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let mut x = Acts::from_client(columns, self.input_bound);
        let limbs = self.placement.attention;
        if x.columns.first().is_some_and(|v| self.on.limbs(v) < limbs) {
            let site = "input.refresh";
            self.on.at(site);
            x.columns = self.on.refresh(site, x.columns, limbs)?;
        }
        Ok(x)
    }

    /// The columns that layer `next` reads, from a checkpoint taken before it: gains and offsets are the model's. `next` is the number of
    /// layers for columns that are to be pooled.
    ///
    /// # Errors
    /// A layer that the model or the choices do not have, another number of columns.
    pub fn resume(
        &self,
        bert: &Bert,
        next: usize,
        columns: Vec<S::Value>,
    ) -> Result<Acts<S::Value>, FheError> {
        let Some(i) = next.checked_sub(1) else {
            return self.start(columns);
        };
        let at = Site::layer(i).then("feed_forward").then("norm");
        let layer = bert.layers.get(i).ok_or_else(|| absent(&at))?;
        let choice = &self.choice(&at)?.feed_forward_norm;
        Acts::from_norm(&at, columns, &layer.feed_forward_norm, choice)
    }

    /// Layer `i` of the model, from columns to columns.
    ///
    /// # Errors
    /// Those of its steps.
    pub fn run_layer(
        &mut self,
        bert: &Bert,
        i: usize,
        x: Acts<S::Value>,
    ) -> Result<Acts<S::Value>, FheError> {
        let x = self.cut(i, x)?;
        let x = self.pass(x, self.placement.spill_attention);
        let x = bert.layer(self, i, x)?;
        self.columns(&Site::layer(i), x)
    }

    /// What leaves the server.
    ///
    /// # Errors
    /// Those of [`pool`].
    pub fn finish(&mut self, bert: &Bert, x: Acts<S::Value>) -> Result<Pooled<S::Value>, FheError> {
        match bert.finish(self, Passing::Columns(x))? {
            Passing::Pooled(x) => Ok(x),
            _ => Err(order(&Site::root("pool"))),
        }
    }

    /// Columns that come in above what the ledger has: a client's.
    fn cut(&self, i: usize, mut x: Acts<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let Some(ledger) = self.levels.get(i) else {
            return Ok(x);
        };
        let high = |v: &S::Value| self.on.limbs(v) > ledger.attention;
        if x.columns.first().is_some_and(high) {
            let columns = x.columns.into_par_iter();
            let cut = columns.map(|v| self.on.drop_to(&v, ledger.attention));
            x.columns = cut.collect::<Result<_, _>>()?;
        }
        Ok(x)
    }

    /// Columns for the next block; in the backend's keeping if that puts vectors on disk.
    fn pass(&mut self, x: Acts<S::Value>, keep: bool) -> Passing<S::Value> {
        if keep {
            self.kept = Kept::Columns(x);
            return Passing::Kept;
        }
        Passing::Columns(x)
    }

    fn show(&mut self, at: &Site, look: Look<'_, S::Value>) -> Result<(), FheError> {
        match &mut self.viewer {
            Some(viewer) => viewer(at, look),
            None => Ok(()),
        }
    }

    /// Centred columns, shown.
    fn centred(
        &mut self,
        at: &Site,
        columns: Vec<S::Value>,
    ) -> Result<Passing<S::Value>, FheError> {
        self.show(at, Look::Centred(&columns))?;
        Ok(Passing::Centred(columns))
    }

    /// The columns that are passed.
    fn columns(&mut self, at: &Site, x: Passing<S::Value>) -> Result<Acts<S::Value>, FheError> {
        match (x, std::mem::replace(&mut self.kept, Kept::Nothing)) {
            (Passing::Columns(x), _) | (Passing::Kept, Kept::Columns(x)) => Ok(x),
            _ => Err(order(at)),
        }
    }

    fn choice(&self, at: &Site) -> Result<&'a LayerChoice, FheError> {
        let layer = at.layer_index().and_then(|i| self.choices.layers.get(i));
        layer.ok_or_else(|| absent(at))
    }

    /// Which norm a site is, how its layer is chosen, and where its results go.
    fn normalise(
        &mut self,
        at: &Site,
        centred: Vec<S::Value>,
        n: &Norm,
    ) -> Result<Acts<S::Value>, FheError> {
        let layer = self.choice(at)?;
        let i = at.layer_index().unwrap_or(0);
        let (on, ledger) = (self.on, self.levels.get(i).ok_or_else(|| absent(at))?);
        let (choice, refresh, given) = match at.in_layer() {
            "attention.norm" => (&layer.attention_norm, Some(ledger.feed_forward), None),
            "feed_forward.norm" => {
                let next = (i + 1 < self.levels.len()).then_some(ledger.out);
                (&layer.feed_forward_norm, next, layer.frozen_row.as_deref())
            }
            _ => return Err(absent(at)),
        };
        let given = given
            .map(|row| frozen(at, row, n, choice.bound))
            .transpose()?;
        let last = at.in_layer() == "feed_forward.norm" && i + 1 == self.levels.len();
        let plan = NormPlan {
            rows: match layer.frozen_row {
                // A classifier reads first rows: no other is to be in the way when they are packed.
                _ if last && self.choices.classifier.is_some() => &self.masks.first,
                Some(_) => &self.masks.later,
                None => &self.masks.tokens,
            },
            statistics: Some(self.placement.statistics),
            given: given.as_deref().map(|numbers| Given {
                numbers,
                rows: &self.masks.first,
            }),
        };
        on.at(at.path());
        let mut x = norm(on, at, centred, n, choice, &plan)?;
        if let Some(limbs) = refresh {
            let site = at.then("refresh");
            on.at(site.path());
            x.columns = on.refresh(site.path(), x.columns, limbs)?;
        }
        Ok(x)
    }
}

/// (row − offset)/(gain·bound): what the given row is in the columns of a norm.
fn frozen(at: &Site, row: &[f64], n: &Norm, bound: f64) -> Result<Vec<f64>, FheError> {
    same(at, "columns of the given row", row.len(), n.width)?;
    let (gain, offset) = (here(at, &n.gain)?, here(at, &n.offset)?);
    let numbers = row.iter().zip(gain.iter()).zip(offset.iter());
    let inside = |((x, &g), &o): ((&f64, &f32), &f32)| {
        // A column without gain is its offset, whatever is in the vector.
        let v = (x - f64::from(o)) / (f64::from(g) * bound);
        if v.is_finite() { v } else { 0.0 }
    };
    let row: Vec<f64> = numbers.map(inside).collect();
    match row.iter().find(|v| v.abs() > 1.0) {
        Some(v) => Err(ChoicesError::Unusable {
            what: format!("at {at}, a given row reaches {v:.3} times its norm's bound"),
        }
        .into()),
        None => Ok(row),
    }
}

fn absent(at: &Site) -> FheError {
    let what = format!("the calibration says nothing of {at}: it was made for another model");
    ChoicesError::Unusable { what }.into()
}

fn order(at: &Site) -> FheError {
    FheError::Unsupported {
        what: format!("{at}: a sum or norm where this one"),
        remedy: "encoders with a sum and a norm after each block can be run",
    }
}

fn alone(at: &Site) -> FheError {
    FheError::Unsupported {
        what: format!("{at}: a step of a block alone"),
        remedy: "blocks run as a whole, because their steps share levels",
    }
}

impl<S: Slots> Backend for CkksBackend<'_, S> {
    type Input = Vec<S::Value>;
    type Acts = Passing<S::Value>;
    type Scores = ();
    type Error = FheError;

    fn embed(
        &mut self,
        at: Site,
        x: Vec<S::Value>,
        e: &Embedding,
    ) -> Result<Passing<S::Value>, FheError> {
        same(&at, "columns", x.len(), e.width)?;
        let x = self.start(x)?;
        Ok(self.pass(x, self.placement.spill_attention))
    }

    fn attention(
        &mut self,
        at: Site,
        x: &Passing<S::Value>,
        a: &Attention,
    ) -> Result<Passing<S::Value>, FheError> {
        let layer = self.choice(&at)?;
        let columns = match x {
            Passing::Columns(x) => attention(
                self.on,
                &at,
                x,
                a,
                &layer.attention,
                &layer.attention_norm,
                &self.rows,
                &self.placement,
            )?,
            Passing::Kept => {
                let x = self.columns(&at, Passing::Kept)?;
                let (columns, residual) = attention_stored(
                    self.on,
                    &at,
                    x,
                    a,
                    &layer.attention,
                    &layer.attention_norm,
                    &self.rows,
                    &self.placement,
                )?;
                self.kept = Kept::Residual(residual);
                columns
            }
            _ => return Err(order(&at)),
        };
        self.centred(&at, columns)
    }

    fn feed_forward(
        &mut self,
        at: Site,
        x: &Passing<S::Value>,
        f: &FeedForward,
    ) -> Result<Passing<S::Value>, FheError> {
        let layer = self.choice(&at)?;
        let kept = match x {
            Passing::Kept => Some(self.columns(&at, Passing::Kept)?),
            _ => None,
        };
        let columns = match (x, kept) {
            (Passing::Columns(x), _) => feed_forward(
                self.on,
                &at,
                x,
                f,
                &layer.activation,
                &layer.feed_forward_norm,
                self.placement.hidden_block,
                &self.polynomials,
            )?,
            (_, Some(x)) => {
                let (columns, residual) = feed_forward_stored(
                    self.on,
                    &at,
                    x,
                    f,
                    &layer.activation,
                    &layer.feed_forward_norm,
                    self.placement.hidden_block,
                    &self.polynomials,
                )?;
                self.kept = Kept::Residual(residual);
                columns
            }
            _ => return Err(order(&at)),
        };
        self.centred(&at, columns)
    }

    fn norm(
        &mut self,
        at: Site,
        x: Passing<S::Value>,
        n: &Norm,
    ) -> Result<Passing<S::Value>, FheError> {
        match x {
            // The client's own, after the embedding: done already.
            x @ (Passing::Columns(_) | Passing::Kept) if at.path() == "embed.norm" => Ok(x),
            Passing::Centred(columns) => {
                let x = self.normalise(&at, columns, n)?;
                self.show(&at, Look::Columns(&x))?;
                // What reads them next.
                let keep = match at.in_layer() {
                    "attention.norm" => self.placement.spill_feed_forward,
                    _ => self.placement.spill_attention,
                };
                Ok(self.pass(x, keep))
            }
            _ => Err(order(&at)),
        }
    }

    fn add(
        &mut self,
        at: Site,
        a: &Passing<S::Value>,
        b: &Passing<S::Value>,
    ) -> Result<Passing<S::Value>, FheError> {
        let Passing::Centred(block) = b else {
            return Err(order(&at));
        };
        let layer = self.choice(&at)?;
        let kappa = match at.in_layer() {
            "attention.add" => layer.attention_norm.scale,
            "feed_forward.add" => layer.feed_forward_norm.scale,
            _ => return Err(absent(&at)),
        };
        self.on.at(at.path());
        let stored;
        let x = match (a, std::mem::replace(&mut self.kept, Kept::Nothing)) {
            (Passing::Columns(x), _) => x,
            (Passing::Kept, Kept::Residual(residual)) => {
                stored = residual.load(self.on)?;
                &stored
            }
            _ => return Err(order(&at)),
        };
        let columns = residual(self.on, &at, x, block, kappa)?;
        self.centred(&at, columns)
    }

    fn pool(
        &mut self,
        at: Site,
        x: Passing<S::Value>,
        p: &Pool,
    ) -> Result<Passing<S::Value>, FheError> {
        let x = self.columns(&at, x)?;
        let (layout, tokens) = (self.rows.layout(), &self.masks.tokens);
        let pooled = pool(self.on, &at, &x, *p, layout, tokens)?;
        Ok(Passing::Pooled(pooled))
    }

    fn classify(
        &mut self,
        at: Site,
        x: Passing<S::Value>,
        c: &Classifier,
    ) -> Result<Passing<S::Value>, FheError> {
        let x = self.columns(&at, x)?;
        let choice = self.choices.classifier.as_ref();
        let choice = choice.ok_or_else(|| absent(&at))?;
        let (layout, first) = (self.rows.layout(), &self.masks.first);
        let answer = head(self.on, &at, &x, c, choice, layout, first)?;
        Ok(Passing::Pooled(answer))
    }

    fn linear(
        &mut self,
        at: Site,
        _: &Passing<S::Value>,
        _: &Linear,
    ) -> Result<Passing<S::Value>, FheError> {
        Err(alone(&at))
    }

    fn scores(
        &mut self,
        at: Site,
        _: &Passing<S::Value>,
        _: &Passing<S::Value>,
        _: &Heads,
    ) -> Result<(), FheError> {
        Err(alone(&at))
    }

    fn weigh(&mut self, at: Site, (): (), _: Weigh, _: &Mask) -> Result<(), FheError> {
        Err(alone(&at))
    }

    fn attend(
        &mut self,
        at: Site,
        (): &(),
        _: &Passing<S::Value>,
        _: &Heads,
    ) -> Result<Passing<S::Value>, FheError> {
        Err(alone(&at))
    }

    fn activation(
        &mut self,
        at: Site,
        _: Passing<S::Value>,
        _: Activation,
    ) -> Result<Passing<S::Value>, FheError> {
        Err(alone(&at))
    }
}

#[cfg(test)]
#[path = "backend_tests.rs"]
mod tests;
