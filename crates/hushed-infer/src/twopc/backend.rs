//! The [`Backend`] of a party.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hushed_model::{
    Activation, Attention, Backend, Classifier, Embedding, FeedForward, Heads, Linear, Mask,
    ModelError, Norm, NormKind, Pool, Site, Weigh,
};
use hushed_net::{Party, Stats};
use hushed_twopc::Ctx;
use hushed_twopc::func::norm::{NormShape, UNIT_ROW, normalise_rows, unit_rows};
use hushed_twopc::func::{Format, rescale};
use hushed_twopc::gadget::Sign;
use hushed_twopc::he::{HeContext, LinearShape, OltShape, linear_client, linear_server};
use hushed_twopc::share::Share;

use super::acts::{Acts, Scores, to_linear};
use super::formats::{
    ACTIVATION, EMBEDDING, LINEAR, MAIN, MAX_TOKENS, QUERY, WEIGHT_BITS, WEIGHT_FRAC,
};
use super::function::Function;
use super::held::{Layer, Layers};
use super::layers::{self, Fused};
use super::pool::{maximum, pool};
use super::table::PublicTable;
use super::{Input, RunError, Terms, attention, embed, no_head};

/// What a step of the model cost this party.
#[derive(Clone, Debug)]
pub struct SiteCost {
    /// The step.
    pub site: Site,
    /// Wall time, waiting for the peer included.
    pub time: Duration,
    /// Bytes and rounds.
    pub stats: Stats,
}

/// Told each step that has ended.
type Observer = Box<dyn FnMut(&Site) + Send>;

/// Runs a model as one of two parties.
pub struct TwopcBackend {
    pub(super) ctx: Ctx,
    pub(super) he: HeContext,
    pub(super) layers: Arc<Layers>,
    /// The public table, at a client that has it.
    pub(super) table: Option<PublicTable>,
    /// Of the pass under way.
    terms: Terms,
    costs: Vec<SiteCost>,
    observer: Option<Observer>,
}

impl TwopcBackend {
    /// A backend over an established session: correlations and keys are ready. `layers` may be shared by the sessions of a server.
    pub fn new(ctx: Ctx, he: HeContext, layers: Arc<Layers>) -> TwopcBackend {
        TwopcBackend {
            ctx,
            he,
            layers,
            table: None,
            terms: Terms::default(),
            costs: Vec::new(),
            observer: None,
        }
    }

    /// Calls `f` after every step, for progress.
    pub fn observe(&mut self, f: impl FnMut(&Site) + Send + 'static) {
        self.observer = Some(Box::new(f));
    }

    /// The client's copy of a public table, for passes whose terms ask for it.
    pub fn set_table(&mut self, table: PublicTable) {
        self.table = Some(table);
    }

    /// Whether there is one.
    pub fn has_table(&self) -> bool {
        self.table.is_some()
    }

    /// What each step has cost so far, in order.
    pub fn costs(&self) -> &[SiteCost] {
        &self.costs
    }

    /// The session and correlations back.
    pub fn into_ctx(self) -> Ctx {
        self.ctx
    }

    /// The context, for steps outside the model.
    pub fn ctx(&mut self) -> &mut Ctx {
        &mut self.ctx
    }

    /// Rows scaled to length one (sentence embeddings), in [`UNIT_ROW`]: what is rounded and then opened to the client.
    pub fn unit(&mut self, at: Site, x: &Acts) -> Result<(Share, Format), RunError> {
        let share = self.measure(at, |this| {
            let rows = x.rows.total();
            Ok(unit_rows(
                &mut this.ctx,
                &this.he,
                &x.share,
                x.format,
                rows,
                x.width,
            )?)
        })?;
        Ok((share, UNIT_ROW))
    }

    fn measure<T>(
        &mut self,
        site: Site,
        step: impl FnOnce(&mut Self) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        let (start, before) = (Instant::now(), self.ctx.session.stats());
        let result = step(self)?;
        let stats = self.ctx.session.stats().since(&before);
        if let Some(observer) = &mut self.observer {
            observer(&site);
        }
        self.costs.push(SiteCost {
            site,
            time: start.elapsed(),
            stats,
        });
        Ok(result)
    }

    /// x·W + bias for `rows` rows of `x` in [`ACTIVATION`]: rows × outputs in [`LINEAR`].
    pub(super) fn product(
        &mut self,
        x: &Share,
        rows: usize,
        layer: &Layer,
    ) -> Result<Share, RunError> {
        let (inputs, outputs) = layer.shape;
        let shape = LinearShape {
            shape: OltShape {
                k: rows,
                m: inputs,
                n: outputs,
            },
            weight_bits: WEIGHT_BITS,
        };
        let y = match (self.ctx.party(), &layer.server) {
            (Party::Client, _) => linear_client(&mut self.ctx, &self.he, x, &shape)?,
            (Party::Server, Some((weights, bias))) => {
                let y = linear_server(&mut self.ctx, &self.he, x, weights)?;
                let mut words = y.into_words();
                for row in words.chunks_exact_mut(outputs) {
                    for (w, &b) in row.iter_mut().zip(bias) {
                        *w = w.wrapping_add(b as u64);
                    }
                }
                Share::new(MAIN, words)
            }
            (Party::Server, None) => return Err(shapes_only("linear").into()),
        };
        Ok(y)
    }

    fn layer(&self, at: &Site, make: impl FnOnce() -> Fused) -> Result<Arc<Layer>, RunError> {
        self.layers.get(at, make)
    }

    /// γ∘y + β of a normalised matrix, in [`LINEAR`], if a norm is waiting; the matrix itself otherwise.
    fn settled(&mut self, at: &Site, x: &Acts) -> Result<Share, RunError> {
        let waiting = x.residual.borrow_mut().take();
        if let Some(share) = waiting {
            return Ok(share);
        }
        match &x.norm {
            Some(norm) => {
                let layer = self.layer(&at.then("affine"), || layers::affine(norm))?;
                self.product(&x.share, x.rows.total(), &layer)
            }
            None => Ok(to_linear(x)),
        }
    }
}

fn shapes_only(site: &str) -> ModelError {
    ModelError::ShapesOnly {
        site: site.to_owned(),
    }
}

impl Backend for TwopcBackend {
    type Input = Input;
    type Acts = Acts;
    type Scores = Scores;
    type Error = RunError;

    fn embed(&mut self, at: Site, x: Input, e: &Embedding) -> Result<Acts, RunError> {
        if x.breaks_its_terms() {
            return Err(RunError::WrongInput);
        }
        self.terms = x.terms();
        let (lengths, rows) = (x.lengths(), x.rows());
        if lengths
            .iter()
            .any(|&m| m == 0 || m > MAX_TOKENS.min(e.positions))
        {
            return Err(RunError::Unsupported {
                site: at.path().to_owned(),
                what: "texts of this length",
            });
        }
        self.measure(at, |this| {
            let share = embed::lookup(this, x, e, &lengths)?;
            Ok(Acts::new(share, EMBEDDING, rows, e.width))
        })
    }

    fn attention(&mut self, at: Site, x: &Acts, a: &Attention) -> Result<Acts, RunError> {
        let (d, width) = (x.width, a.heads.count * a.heads.width);
        let rows = x.rows.clone();
        let wide = self.measure(at.then("qkv"), |this| {
            let layer = this.layer(&at.then("qkv"), || {
                layers::attention_input(x.norm.as_ref(), a)
            })?;
            this.product(&x.share, x.rows.total(), &layer)
        })?;
        let total = 3 * width + d;
        let part = |first, count| Acts::columns(&wide, total, first, count);
        *x.residual.borrow_mut() = Some(part(3 * width, d));

        let s = self.measure(at.then("scores"), |this| {
            let (q, k) = (part(0, width), part(width, width));
            Ok(attention::scores(
                &mut this.ctx,
                &this.he,
                &q,
                &k,
                &rows,
                a.heads,
            )?)
        })?;
        let s = Scores {
            groups: s,
            rows: rows.clone(),
            heads: a.heads,
        };
        let p = self.weigh(at.then("weigh"), s, a.weigh, &a.mask)?;
        let v = Acts::new(part(2 * width, width), LINEAR, rows, width);
        let o = self.attend(at.then("attend"), &p, &v, &a.heads)?;
        self.linear(at.then("output"), &o, &a.output)
    }

    fn feed_forward(&mut self, at: Site, x: &Acts, f: &FeedForward) -> Result<Acts, RunError> {
        let (d, hidden) = (x.width, f.up.outputs);
        let wide = self.measure(at.then("up"), |this| {
            let layer = this.layer(&at.then("up"), || {
                layers::feed_forward_up(x.norm.as_ref(), f)
            })?;
            this.product(&x.share, x.rows.total(), &layer)
        })?;
        *x.residual.borrow_mut() = Some(Acts::columns(&wide, hidden + d, hidden, d));
        let up = Acts::columns(&wide, hidden + d, 0, hidden);
        let y = self.measure(at.then("activation"), |this| {
            Ok(Function::of(f).run(&mut this.ctx, &up)?)
        })?;
        self.measure(at.then("down"), |this| {
            let layer = this.layer(&at.then("down"), || layers::feed_forward_down(f))?;
            let y = this.product(&y, x.rows.total(), &layer)?;
            Ok(Acts::new(y, LINEAR, x.rows.clone(), d))
        })
    }

    fn norm(&mut self, at: Site, x: Acts, n: &Norm) -> Result<Acts, RunError> {
        self.measure(at, |this| {
            let shape = NormShape {
                rows: x.rows.total(),
                width: x.width,
                centre: n.kind == NormKind::LayerNorm,
                epsilon: n.epsilon,
            };
            let (ctx, he) = (&mut this.ctx, &this.he);
            let y = normalise_rows(ctx, he, &x.share, x.format, shape, ACTIVATION)?;
            let mut y = Acts::new(y, ACTIVATION, x.rows, x.width);
            y.norm = Some(n.clone());
            Ok(y)
        })
    }

    fn add(&mut self, at: Site, a: &Acts, b: &Acts) -> Result<Acts, RunError> {
        self.measure(at.clone(), |this| {
            let mut sum = this.settled(&at, a)?;
            sum.add_assign(&this.settled(&at, b)?);
            Ok(Acts::new(sum, LINEAR, a.rows.clone(), a.width))
        })
    }

    fn pool(&mut self, at: Site, x: Acts, p: &Pool) -> Result<Acts, RunError> {
        self.measure(at.clone(), |this| {
            let padded = this.terms.padded;
            if *p == Pool::Max {
                // A gain may be negative: the maximum is taken after it.
                let y = this.settled(&at, &x)?;
                let y = maximum(&mut this.ctx, &y, &x.rows, x.width, padded)?;
                return Ok(Acts::new(y, LINEAR, x.rows.pooled(), x.width));
            }
            // Before the norm's gain and offset: γ∘mean(y) + β is the mean of γ∘y + β.
            let y = pool(
                &mut this.ctx,
                &this.he,
                &x.share,
                &x.rows,
                x.width,
                *p,
                padded,
            )?;
            let mut pooled = Acts::new(y, x.format, x.rows.pooled(), x.width);
            pooled.norm = x.norm;
            let y = this.settled(&at, &pooled)?;
            Ok(Acts::new(y, LINEAR, pooled.rows, pooled.width))
        })
    }

    fn classify(&mut self, at: Site, _: Acts, _: &Classifier) -> Result<Acts, RunError> {
        Err(no_head(&at))
    }

    fn linear(&mut self, at: Site, x: &Acts, w: &Linear) -> Result<Acts, RunError> {
        self.measure(at.clone(), |this| {
            let layer = this.layer(&at, || layers::alone(x.norm.as_ref(), w))?;
            let x_in = match x.format == ACTIVATION {
                true => x.share.clone(),
                false => {
                    let shift = x.format.frac - ACTIVATION.frac;
                    rescale(&mut this.ctx, &x.share, shift, Sign::Bounded, MAIN)?
                }
            };
            let y = this.product(&x_in, x.rows.total(), &layer)?;
            Ok(Acts::new(y, LINEAR, x.rows.clone(), w.outputs))
        })
    }

    fn scores(&mut self, at: Site, q: &Acts, k: &Acts, h: &Heads) -> Result<Scores, RunError> {
        self.measure(at, |this| {
            // The factor of the scores, as a public constant of 16 bits.
            let factor = h.scale * std::f64::consts::LOG2_E * f64::from(1u32 << 16);
            let shift = LINEAR.frac - QUERY.frac;
            let small = rescale(&mut this.ctx, &q.share, shift, Sign::Bounded, MAIN)?;
            let scaled = small.mul_public(factor.round() as i64);
            let scaled = scaled.shift_left(shift - 16);
            let s = attention::scores(&mut this.ctx, &this.he, &scaled, &k.share, &q.rows, *h)?;
            Ok(Scores {
                groups: s,
                rows: q.rows.clone(),
                heads: *h,
            })
        })
    }

    fn weigh(&mut self, at: Site, s: Scores, w: Weigh, mask: &Mask) -> Result<Scores, RunError> {
        let (Weigh::Softmax, Mask::Full) = (w, *mask);
        self.measure(at, |this| {
            let groups = attention::weigh(
                &mut this.ctx,
                &s.groups,
                &s.rows,
                s.heads.count,
                this.terms.padded,
            )?;
            Ok(Scores { groups, ..s })
        })
    }

    fn attend(&mut self, at: Site, p: &Scores, v: &Acts, h: &Heads) -> Result<Acts, RunError> {
        self.measure(at, |this| {
            let o = attention::attend(&mut this.ctx, &this.he, &p.groups, &v.share, &v.rows, *h)?;
            Ok(Acts::new(o, ACTIVATION, v.rows.clone(), v.width))
        })
    }

    fn activation(&mut self, at: Site, x: Acts, f: Activation) -> Result<Acts, RunError> {
        let function = Function::new(f, None);
        self.measure(at, |this| {
            // The protocol's scale by public constants, on both sides of it.
            let scaled = |x: f64| (x * f64::from(1u32 << 12)).round() as i64;
            let y = rescale(&mut this.ctx, &x.share, 12, Sign::Bounded, MAIN)?;
            let y = y.mul_public(scaled(function.scale()));
            let y = function.run(&mut this.ctx, &y)?;
            let y = y
                .mul_public(scaled(1.0 / function.scale()))
                .shift_left(LINEAR.frac - ACTIVATION.frac - 12);
            Ok(Acts::new(y, LINEAR, x.rows, x.width))
        })
    }
}

/// Fraction bits of the products that layers' weights make, for readers of [`WEIGHT_FRAC`].
const _: () = assert!(LINEAR.frac == ACTIVATION.frac + WEIGHT_FRAC);
