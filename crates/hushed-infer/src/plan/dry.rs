//! The dry run: the forward pass on shapes, which records what each step declares.

use std::cell::Cell;
use std::sync::Arc;

use hushed_model::{
    Activation, Attention, Backend, Classifier, Embedding, FeedForward, Heads, Linear, Mask, Norm,
    NormKind, Pool, Rows, Site, Weigh,
};
use hushed_rlwe::{RlweError, RlweParams};
use hushed_twopc::func::inverse::reciprocal_cost;
use hushed_twopc::func::norm::{NormShape, normalise_rows_cost};
use hushed_twopc::func::softmax::exponentials_cost;
use hushed_twopc::func::{Format, rescale_cost};
use hushed_twopc::he::{
    Layout, LinearShape, MatmulShape, OltShape, OltSpec, RowsCost, scale_rows_cost,
};
use hushed_twopc::share::Ring;
use hushed_twopc::{Cost, TwopcError};

use super::Entry;
use super::work::Work;
use crate::twopc::formats::{
    ACTIVATION, ATTENDED, EMBEDDING, INVERSE, LINEAR, MAIN, PORTION, QUERY, QUOTIENT, SUM_BITS,
    TABLE_BITS, VALUE, WEIGHED, WEIGHT_BITS,
};
use crate::twopc::{
    Function, RunError, SHARE_FRAC, Terms, divides_first, groups, hidden_spec, maximum_cost,
    no_head,
};

/// Nanoseconds of one core that a correlated OT takes with the work on it, for estimates.
const COT_NANOSECONDS: f64 = 45.0;

/// The dry run. Its activations are shapes.
pub struct PlanBackend {
    pub(super) params: Arc<RlweParams>,
    pub(super) terms: Terms,
    pub(super) steps: Vec<Entry>,
    /// Correlated OTs that the client sends and that the server sends.
    pub(super) cots: [u64; 2],
}

/// The shape of a batch of texts.
pub struct Shape {
    pub(super) rows: Rows,
    pub(super) width: usize,
    /// A norm's gain and offset wait to be applied.
    waiting: bool,
    /// The block that read this left it for the residual sum.
    left: Cell<bool>,
    format: Format,
}

impl Shape {
    fn new(rows: Rows, width: usize, format: Format) -> Shape {
        Shape {
            rows,
            width,
            waiting: false,
            left: Cell::new(false),
            format,
        }
    }
}

impl PlanBackend {
    pub(super) fn new(terms: Terms) -> Result<PlanBackend, RunError> {
        let params = RlweParams::olt_full().map_err(|e| TwopcError::from(RlweError::from(e)))?;
        Ok(PlanBackend {
            params,
            terms,
            steps: Vec::new(),
            cots: [0; 2],
        })
    }

    /// Adds a step without products over RLWE.
    pub(super) fn record(&mut self, site: Site, cost: Cost) {
        self.step(site, cost, Work::default());
    }

    fn step(&mut self, site: Site, cost: Cost, work: Work) {
        self.cots[0] += cost.cots_client;
        self.cots[1] += cost.cots_server;
        let cots = cost.cots_client + cost.cots_server;
        self.steps.push(Entry {
            site: site.path().to_owned(),
            bytes_up: cost.bytes_client,
            bytes_down: cost.bytes_server,
            rounds: cost.rounds,
            cots,
            automorphisms: work.automorphisms,
            products: work.products,
            opened: work.opened,
            held: work.held,
            seconds: (work.nanoseconds as f64 + cots as f64 * COT_NANOSECONDS) * 1e-9,
        });
    }

    /// Adds a step with sums over rows.
    pub(super) fn rows(&mut self, site: Site, cost: RowsCost) {
        self.step(site, cost.cost, Work::of_rows(&cost));
    }

    /// X·W with X of `rows` rows.
    fn linear_work(
        &self,
        rows: usize,
        inputs: usize,
        outputs: usize,
        bits: u32,
    ) -> Result<(Cost, Work), RunError> {
        let shape = LinearShape {
            shape: OltShape {
                k: rows,
                m: inputs,
                n: outputs,
            },
            weight_bits: bits,
        };
        self.one_way(&shape.spec(MAIN), rows * outputs)
    }

    /// A product whose encrypted operand is the client's.
    fn one_way(&self, spec: &OltSpec, opened: usize) -> Result<(Cost, Work), RunError> {
        let layout = Layout::new(&self.params, spec)?;
        let plan = layout.plan.cost();
        let cost = Cost {
            bytes_client: plan.bytes_in,
            bytes_server: plan.bytes_out,
            frames_client: plan.inputs,
            frames_server: plan.responses,
            rounds: 2,
            ..Cost::ZERO
        };
        Ok((cost, Work::of(&layout, opened)))
    }

    fn matmul_work(
        &self,
        batch: usize,
        shape: OltShape,
        ring: Ring,
    ) -> Result<(Cost, Work), RunError> {
        let matmul = MatmulShape { shape, batch };
        let layout = matmul.cheaper(ring, |spec| Layout::new(&self.params, spec))?;
        let plan = layout.plan.cost();
        let bytes = plan.bytes_in + plan.bytes_out;
        let frames = plan.inputs + plan.responses;
        let cost = Cost {
            bytes_client: bytes,
            bytes_server: bytes,
            frames_client: frames,
            frames_server: frames,
            rounds: 2,
            ..Cost::ZERO
        };
        // Both parties open one response each.
        let opened = 2 * batch * shape.k * shape.n;
        Ok((cost, Work::of(&layout, opened)))
    }

    fn product(
        &mut self,
        at: Site,
        rows: usize,
        inputs: usize,
        outputs: usize,
    ) -> Result<(), RunError> {
        let (cost, work) = self.linear_work(rows, inputs, outputs, WEIGHT_BITS)?;
        self.step(at, cost, work);
        Ok(())
    }

    /// Products of all heads: `each` gives their shape, and what else a group of texts of one length costs, by its number of matrices and
    /// their rows.
    fn heads(
        &mut self,
        at: Site,
        rows: &Rows,
        before: Cost,
        heads: Heads,
        each: impl Fn(usize, usize) -> Result<(OltShape, Ring, RowsCost), RunError>,
    ) -> Result<(), RunError> {
        let (mut cost, mut work) = (before, Work::default());
        for group in groups(rows) {
            let batch = group.texts.len() * heads.count;
            let (shape, ring, around) = each(batch, group.rows)?;
            let (c, w) = self.matmul_work(batch, shape, ring)?;
            cost = cost + c + around.cost;
            work.add(w);
            work.add(Work::of_rows(&around));
        }
        self.step(at, cost, work);
        Ok(())
    }

    fn settle(&self, x: &Shape) -> Result<(Cost, Work), RunError> {
        if !x.left.take() && x.waiting {
            return self.linear_work(x.rows.total(), x.width, x.width, WEIGHT_BITS);
        }
        Ok((Cost::ZERO, Work::default()))
    }
}

impl Backend for PlanBackend {
    type Input = Vec<usize>;
    type Acts = Shape;
    type Scores = (Rows, Heads);
    type Error = RunError;

    fn embed(&mut self, at: Site, x: Vec<usize>, e: &Embedding) -> Result<Shape, RunError> {
        let rows = Rows::unpadded(&x);
        let (cost, work) = match self.terms.public_table {
            true => Default::default(),
            false => self.linear_work(rows.total(), e.vocabulary, e.width, TABLE_BITS)?,
        };
        self.step(at, cost, work);
        Ok(Shape::new(rows, e.width, EMBEDDING))
    }

    fn attention(&mut self, at: Site, x: &Shape, a: &Attention) -> Result<Shape, RunError> {
        let width = a.heads.count * a.heads.width;
        let outputs = 3 * width + x.width;
        self.product(at.then("qkv"), x.rows.total(), x.width, outputs)?;
        x.left.set(true);
        let q = Shape::new(x.rows.clone(), width, LINEAR);
        let s = self.scores(at.then("scores"), &q, &q, &a.heads)?;
        let p = self.weigh(at.then("weigh"), s, a.weigh, &a.mask)?;
        let o = self.attend(at.then("attend"), &p, &q, &a.heads)?;
        self.linear(at.then("output"), &o, &a.output)
    }

    fn feed_forward(&mut self, at: Site, x: &Shape, f: &FeedForward) -> Result<Shape, RunError> {
        let rows = x.rows.total();
        self.product(at.then("up"), rows, x.width, f.up.outputs + x.width)?;
        x.left.set(true);
        let cost = Function::of(f).cost(rows * f.up.outputs);
        self.record(at.then("activation"), cost);
        let y = Shape::new(x.rows.clone(), f.up.outputs, ACTIVATION);
        self.linear(at.then("down"), &y, &f.down)
    }

    fn norm(&mut self, at: Site, x: Shape, n: &Norm) -> Result<Shape, RunError> {
        let shape = NormShape {
            rows: x.rows.total(),
            width: x.width,
            centre: n.kind == NormKind::LayerNorm,
            epsilon: n.epsilon,
        };
        let layout = |spec: &OltSpec| Layout::new(&self.params, spec);
        let cost = normalise_rows_cost(shape, x.format, ACTIVATION, layout)?;
        self.rows(at, cost);
        let mut y = Shape::new(x.rows, x.width, ACTIVATION);
        y.waiting = true;
        Ok(y)
    }

    fn add(&mut self, at: Site, a: &Shape, b: &Shape) -> Result<Shape, RunError> {
        let ((cost, mut work), (more, other)) = (self.settle(a)?, self.settle(b)?);
        work.add(other);
        self.step(at, cost + more, work);
        Ok(Shape::new(a.rows.clone(), a.width, LINEAR))
    }

    fn pool(&mut self, at: Site, x: Shape, p: &Pool) -> Result<Shape, RunError> {
        let rows = x.rows.pooled();
        if *p == Pool::Max {
            let (cost, work) = self.settle(&x)?;
            self.step(at, cost + maximum_cost(&x.rows, x.width), work);
            return Ok(Shape::new(rows, x.width, LINEAR));
        }
        let (mut cost, mut work) = (Cost::ZERO, Work::default());
        if self.terms.padded && *p != Pool::First {
            for group in groups(&x.rows) {
                let texts = group.texts.len();
                let spec = hidden_spec(texts, group.rows, x.width);
                let (c, w) = self.one_way(&spec, texts * x.width)?;
                cost = cost + c;
                work.add(w);
            }
        }
        if *p == Pool::Mean {
            cost = cost + rescale_cost(rows.total() * x.width, MAIN, SHARE_FRAC, MAIN);
        }
        let mut pooled = Shape::new(rows, x.width, LINEAR);
        pooled.waiting = x.waiting;
        let (c, w) = self.settle(&pooled)?;
        work.add(w);
        self.step(at, cost + c, work);
        pooled.waiting = false;
        Ok(pooled)
    }

    fn classify(&mut self, at: Site, _: Shape, _: &Classifier) -> Result<Shape, RunError> {
        Err(no_head(&at))
    }

    fn linear(&mut self, at: Site, x: &Shape, w: &Linear) -> Result<Shape, RunError> {
        self.product(at, x.rows.total(), w.inputs, w.outputs)?;
        Ok(Shape::new(x.rows.clone(), w.outputs, LINEAR))
    }

    fn scores(
        &mut self,
        at: Site,
        q: &Shape,
        _: &Shape,
        h: &Heads,
    ) -> Result<(Rows, Heads), RunError> {
        let n = q.rows.total() * q.width;
        let cut = rescale_cost(n, LINEAR.ring, LINEAR.frac - QUERY.frac, QUERY.ring);
        let shape = |m| OltShape {
            k: m,
            m: h.width,
            n: m,
        };
        let each = |_, m| Ok((shape(m), QUERY.ring, RowsCost::default()));
        self.heads(at, &q.rows, cut.repeated(2), *h, each)?;
        Ok((q.rows.clone(), *h))
    }

    fn weigh(
        &mut self,
        at: Site,
        s: (Rows, Heads),
        _: Weigh,
        _: &Mask,
    ) -> Result<(Rows, Heads), RunError> {
        let each = groups(&s.0).into_iter().map(|group| {
            let matrices = group.texts.len() * s.1.count;
            exponentials_cost(matrices * group.rows, group.rows, WEIGHED)
        });
        self.record(at, each.sum());
        Ok(s)
    }

    fn attend(
        &mut self,
        at: Site,
        _: &(Rows, Heads),
        v: &Shape,
        h: &Heads,
    ) -> Result<Shape, RunError> {
        let n = v.rows.total() * v.width;
        let cut = rescale_cost(n, LINEAR.ring, LINEAR.frac - VALUE.frac, VALUE.ring);
        let shape = |m| OltShape {
            k: m,
            m,
            n: h.width,
        };
        let params = self.params.clone();
        let layout = |spec: &OltSpec| Layout::new(&params, spec);
        let after = |batch: usize, m: usize| -> Result<RowsCost, TwopcError> {
            let (rows, n) = (batch * m, batch * m * h.width);
            let shift = WEIGHED.frac + VALUE.frac - ATTENDED.frac;
            let last = ATTENDED.frac + INVERSE.frac - ACTIVATION.frac;
            let around = reciprocal_cost(rows, SUM_BITS, INVERSE.ring)
                + rescale_cost(n, VALUE.ring, shift, ATTENDED.ring)
                + rescale_cost(n, ATTENDED.ring, last, MAIN);
            let scaled = scale_rows_cost(rows, h.width, ATTENDED.ring, layout)?;
            Ok(scaled + RowsCost::from(around))
        };
        let before = |batch: usize, m: usize| -> Result<RowsCost, TwopcError> {
            let (rows, n) = (batch * m, batch * m * h.width);
            let shift = WEIGHED.frac + INVERSE.frac - PORTION.frac;
            let last = PORTION.frac + VALUE.frac - ACTIVATION.frac;
            let around = reciprocal_cost(rows, SUM_BITS, QUOTIENT)
                + rescale_cost(rows * m, QUOTIENT, shift, PORTION.ring)
                + rescale_cost(n, PORTION.ring, last, MAIN);
            let scaled = scale_rows_cost(rows, m, QUOTIENT, layout)?;
            Ok(scaled + RowsCost::from(around))
        };
        let each = |batch, m| match divides_first(m, *h) {
            true => Ok((shape(m), PORTION.ring, before(batch, m)?)),
            false => Ok((shape(m), VALUE.ring, after(batch, m)?)),
        };
        self.heads(at, &v.rows, cut, *h, each)?;
        Ok(Shape::new(v.rows.clone(), v.width, ACTIVATION))
    }

    fn activation(&mut self, at: Site, x: Shape, f: Activation) -> Result<Shape, RunError> {
        let n = x.rows.total() * x.width;
        let cost = rescale_cost(n, LINEAR.ring, 12, MAIN) + Function::new(f, None).cost(n);
        self.record(at, cost);
        Ok(Shape::new(x.rows, x.width, LINEAR))
    }
}
