//! What a private run will cost and show, computed before it: a dry run of the model that adds up what each protocol declares.
//!
//! [`PlanBackend`] runs the same forward pass as [`crate::twopc`], on shapes; each step records the bytes, rounds and correlated OTs that
//! its protocols declare. Bytes and rounds are exact (a test holds them against a run); times are estimates from constants of one core.

use std::cell::Cell;
use std::sync::Arc;

use hushed_model::{
    Activation, Attention, Backend, Bert, Embedding, FeedForward, Heads, Linear, Mask, Norm,
    NormKind, Pool, Rows, Site, Weigh,
};
use hushed_rlwe::noise::failure_log2;
use hushed_rlwe::{RlweError, RlweParams};
use hushed_twopc::func::gelu::gelu_scaled_cost;
use hushed_twopc::func::inverse::reciprocal_cost;
use hushed_twopc::func::norm::{NormShape, normalise_rows_cost, unit_rows_cost};
use hushed_twopc::func::rescale_cost;
use hushed_twopc::func::softmax::exponentials_cost;
use hushed_twopc::he::{
    HeContext, Layout, LinearShape, MatmulShape, OltShape, OltSpec, RowsCost, scale_rows_cost,
};
use hushed_twopc::ot::ferret::FerretParams;
use hushed_twopc::share::Ring;
use hushed_twopc::{Cost, TwopcError};
use serde::Serialize;

use crate::memory::{self, Memory};
use crate::twopc::formats::{
    ACTIVATION, ANSWER, ATTENDED, EMBEDDING, INVERSE, LINEAR, MAIN, PORTION, QUERY, QUOTIENT,
    RAW_ANSWER, SUM_BITS, TABLE_BITS, VALUE, WEIGHED, WEIGHT_BITS,
};
use crate::twopc::{RunError, SHARE_FRAC, Terms, divides_first, groups, hidden_spec, maximum_cost};

/// Nanoseconds of one core that a correlated OT takes with the work on it, for estimates.
const COT_NANOSECONDS: f64 = 45.0;

/// Cost of one step of the model.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The step.
    pub site: String,
    /// Payload bytes that the client sends.
    pub bytes_up: u64,
    /// Payload bytes that the server sends.
    pub bytes_down: u64,
    /// One-way latencies in sequence.
    pub rounds: u64,
    /// Correlated OTs, both directions.
    pub cots: u64,
    /// Key-switched automorphisms, of the party with most.
    pub automorphisms: u64,
    /// Plaintext polynomials multiplied into ciphertexts, of the party with most.
    pub products: u64,
    /// Coefficients that are decrypted.
    pub opened: u64,
    /// Bytes of ciphertexts that whoever answers holds at once: the encrypted operand, and the sums that make one response.
    pub held: u64,
    /// Estimated seconds on one core a party, without the network.
    pub seconds: f64,
}

/// One thing that a party sees.
#[derive(Clone, Debug, Serialize)]
pub struct Exposure {
    /// `client`, `server` or `network`.
    pub who: &'static str,
    /// What it sees.
    pub sees: String,
}

/// The cost of one batch of texts, and of the session around it.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// `2pc`.
    pub protocol: &'static str,
    /// Tokens of each text.
    pub tokens: Vec<usize>,
    /// Steps in order.
    pub steps: Vec<Entry>,
    /// Once a session: keys both ways, in bytes each way.
    pub setup_bytes_each_way: u64,
    /// Traffic of making the correlated OTs of these steps, in all; extensions are made whole, so a run may be one ahead.
    pub ot_bytes: u64,
    /// Sums over the steps, OT traffic not included.
    pub bytes_up: u64,
    /// As above.
    pub bytes_down: u64,
    /// As above.
    pub rounds: u64,
    /// Estimated seconds on one core a party, without the network.
    pub seconds: f64,
    /// What the two processes hold at their peaks, in bytes: a model with measured constants, not a bound.
    pub memory: Memory,
    /// log2 of the probability that any decryption of the batch is off by more than its last unit.
    pub failure_log2: f64,
    /// log2 of the statistical distance that masks leave: none, they are uniform over the whole ring.
    pub hiding: &'static str,
    /// Who sees what.
    pub exposures: Vec<Exposure>,
}

impl Plan {
    /// The plan of one pass over texts of these numbers of rows, padding included. `unit`: the answer is scaled to length one.
    pub fn twopc(
        bert: &Bert,
        tokens: &[usize],
        terms: Terms,
        unit: bool,
    ) -> Result<Plan, RunError> {
        let mut dry = PlanBackend::new(terms)?;
        let pooled = bert.forward(&mut dry, tokens.to_vec())?;
        if unit {
            let layout = |spec: &OltSpec| Layout::new(&dry.params, spec);
            let (rows, width) = (pooled.rows.total(), pooled.width);
            let cost = unit_rows_cost(rows, width, LINEAR, ANSWER, layout)?;
            dry.rows(Site::root("unit"), cost);
        }
        let answer = pooled.rows.total() * pooled.width;
        let ring = if unit { ANSWER.ring } else { RAW_ANSWER.ring };
        let bytes = (answer * ring.bits() as usize).div_ceil(8) as u64;
        let open = Cost {
            bytes_server: bytes,
            frames_server: 1,
            rounds: 1,
            ..Cost::ZERO
        };
        dry.record(Site::root("answer"), open);
        dry.finish(bert, tokens)
    }
}

/// The dry run. Its activations are shapes.
pub struct PlanBackend {
    params: Arc<RlweParams>,
    terms: Terms,
    steps: Vec<Entry>,
    cots: [u64; 2],
}

/// The shape of a batch of texts.
pub struct Shape {
    rows: Rows,
    width: usize,
    /// A norm's gain and offset wait to be applied.
    waiting: bool,
    /// The block that read this left it for the residual sum.
    left: Cell<bool>,
    format: hushed_twopc::func::Format,
}

impl Shape {
    fn new(rows: Rows, width: usize, format: hushed_twopc::func::Format) -> Shape {
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
    fn new(terms: Terms) -> Result<PlanBackend, RunError> {
        let params = RlweParams::olt_full().map_err(|e| TwopcError::from(RlweError::from(e)))?;
        Ok(PlanBackend {
            params,
            terms,
            steps: Vec::new(),
            cots: [0; 2],
        })
    }

    /// Adds a step without products over RLWE.
    fn record(&mut self, site: Site, cost: Cost) {
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
    fn rows(&mut self, site: Site, cost: RowsCost) {
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

    fn finish(self, bert: &Bert, tokens: &[usize]) -> Result<Plan, RunError> {
        let sum = |f: fn(&Entry) -> u64| self.steps.iter().map(f).sum::<u64>();
        let opened = sum(|e| e.opened) as f64;
        let set = FerretParams::K17;
        let per_ot = set.message_bytes() as f64 / (set.outputs() - set.inputs()) as f64;
        let cots = (self.cots[0] + self.cots[1]) as f64;
        let keys = HeContext::exchange_bytes(&self.params, HeContext::ALL_LEVELS);
        let public_table = self.terms.public_table;
        let rows = tokens.iter().sum();
        let memory = memory::estimate(bert, rows, public_table, &self.steps);
        Ok(Plan {
            memory,
            protocol: "2pc",
            tokens: tokens.to_vec(),
            setup_bytes_each_way: keys as u64,
            ot_bytes: (cots * per_ot).ceil() as u64,
            bytes_up: sum(|e| e.bytes_up),
            bytes_down: sum(|e| e.bytes_down),
            rounds: sum(|e| e.rounds),
            seconds: self.steps.iter().map(|e| e.seconds).sum(),
            failure_log2: opened.max(1.0).log2() + failure_log2(),
            hiding: "perfect: every opened polynomial is masked uniformly; keys, ciphertexts and OTs hide computationally (128 bits)",
            exposures: exposures(tokens, self.terms),
            steps: self.steps,
        })
    }
}

#[derive(Clone, Copy, Default)]
struct Work {
    automorphisms: u64,
    products: u64,
    opened: u64,
    held: u64,
    nanoseconds: u64,
}

impl Work {
    fn of(layout: &Layout, opened: usize) -> Work {
        let cost = layout.plan.cost();
        let ciphertexts = layout.plan.inputs() + layout.plan.response_leaves(0).len();
        let words = 2 * layout.product_limbs * layout.plan.degree();
        Work {
            held: (ciphertexts * words * size_of::<u64>()) as u64,
            automorphisms: cost.automorphisms,
            products: cost.products,
            opened: opened as u64,
            nanoseconds: cost.nanoseconds,
        }
    }

    fn of_rows(cost: &RowsCost) -> Work {
        Work {
            automorphisms: cost.plan.automorphisms,
            products: cost.plan.products,
            opened: cost.opened,
            nanoseconds: cost.plan.nanoseconds,
            // A few ciphertexts of factors, and one response at a time.
            held: 0,
        }
    }

    fn add(&mut self, w: Work) {
        self.automorphisms += w.automorphisms;
        self.products += w.products;
        self.opened += w.opened;
        self.held = self.held.max(w.held);
        self.nanoseconds += w.nanoseconds;
    }
}

fn exposures(tokens: &[usize], terms: Terms) -> Vec<Exposure> {
    let list = |who, sees: &[&str]| {
        let sees: Vec<String> = sees.iter().map(|s| (*s).to_owned()).collect();
        sees.into_iter().map(move |sees| Exposure { who, sees })
    };
    let texts = tokens.len();
    let count = match terms.padded {
        false => format!("the number of texts ({texts}) and of tokens in each ({tokens:?})"),
        true => format!(
            "the number of texts ({texts}) and the padded length of each ({tokens:?}); not how many of these are tokens"
        ),
    };
    let mut all = vec![Exposure {
        who: "server",
        sees: count,
    }];
    all.extend(list(
        "server",
        &["when a text is asked about and how long the client takes; nothing of the text, its token ids or its embedding"],
    ));
    all.extend(list(
        "client",
        &[
            "its embedding",
            match terms.public_table {
                false => "the model's public part: sizes, tokenizer, pooling, the approximations of this version; no weights",
                true => "the model's public part: sizes, tokenizer, pooling, the approximations of this version; and its table of token vectors, \
                         whole, which the operator has made public with --public-table: no other weights",
            },
        ],
    ));
    all.extend(list(
        "network",
        &["sizes and times of the messages, from which the number of tokens (padded where the server sees it padded) follows; all else is inside TLS"],
    ));
    all
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
        let up = Shape::new(x.rows.clone(), f.up.outputs, LINEAR);
        let y = self.activation(at.then("activation"), up, f.activation)?;
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
        if f == Activation::Relu {
            return Err(RunError::Unsupported {
                site: at.path().to_owned(),
                what: "ReLU",
            });
        }
        self.record(at, gelu_scaled_cost(x.rows.total() * x.width, ACTIVATION));
        Ok(Shape::new(x.rows, x.width, ACTIVATION))
    }
}
