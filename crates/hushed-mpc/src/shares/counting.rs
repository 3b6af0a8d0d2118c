//! Counting: lengths instead of numbers, adding up what every gadget declares.

use std::sync::Arc;

use hushed_model::{Embedding, StepId};
use hushed_net::Party;
use hushed_rlwe::{RlweError, RlweParams};
use hushed_twopc::func::inverse::{Positive, reciprocal_cost};
use hushed_twopc::func::norm::{NormShape, normalise_rows_cost, unit_rows_cost};
use hushed_twopc::func::sigmoid::sigmoid_cost;
use hushed_twopc::func::softmax::exponentials_cost;
use hushed_twopc::func::{Format, rescale_cost};
use hushed_twopc::gadget::{
    argmax_levels_cost, largest_of_few_cost, max_rows_cost, mul_cost, open_rounded_cost, pick_cost,
};
use hushed_twopc::he::{
    Answer, Kept, Layouts, LinearShape, MatmulShape, OltCost, OltShape, OltSpec, PastShape, RowsCost,
    linear_ahead_cost, scale_rows_cost,
};
use hushed_twopc::share::Ring;
use hushed_twopc::{Cost, Link, TwopcError};
use serde::Serialize;

use super::{Aside, Known, Local, Shares, hidden_spec, known_spec, opened_bits};
use crate::circuit::function::Function;
use crate::circuit::product::Product;
use crate::formats::{ACTIVATION, EMBEDDING, LINEAR, MAIN, RECORD_BITS};
use crate::index::Index;
use crate::lookup::Table;
use crate::{Input, RunError};

/// Single-core nanoseconds per correlated OT, including the work on it, for estimates.
const COT_NANOSECONDS: f64 = 45.0;

/// Single-core nanoseconds per weight of a one-row product, for estimates.
const WEIGHT_NANOSECONDS: f64 = 0.6;

/// The cost of one step of the model.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The step.
    pub site: String,
    /// Payload bytes that the client sends.
    pub bytes_up: u64,
    /// Payload bytes that the server sends.
    pub bytes_down: u64,
    /// Messages in sequence: [`Cost::rounds`](hushed_twopc::Cost::rounds).
    pub rounds: u64,
    /// Correlated OTs, in both directions.
    pub cots: u64,
    /// Key-switched automorphisms, of the party with more.
    pub automorphisms: u64,
    /// Plaintext polynomials multiplied into ciphertexts, of the party with more.
    pub products: u64,
    /// Decrypted coefficients.
    pub opened: u64,
    /// Bits of the words that are opened to the client.
    pub opened_bits: u64,
    /// Bytes of ciphertexts that the answering party holds at once: the encrypted operand, and the sums that make one
    /// response.
    pub held: u64,
    /// The number of weights or table entries that the server multiplies by, in the largest product.
    #[serde(skip)]
    pub weights: u64,
    /// Estimated seconds on one core per party, without the network.
    pub seconds: f64,
}

impl Entry {
    /// The part of [`Entry::seconds`] that oblivious transfers take, with the work on them.
    pub(crate) fn transfer_seconds(&self) -> f64 {
        self.cots as f64 * COT_NANOSECONDS * 1e-9
    }
}

/// The length of a shared vector.
#[derive(Clone)]
pub struct Length {
    ring: Ring,
    elements: usize,
}

/// Called with every product that the circuit asks for, and its rows.
type Visitor<'a> = Box<dyn FnMut(StepId, &Product, usize) -> Result<(), RunError> + 'a>;

/// Adds up what the gadgets of a pass declare.
pub struct Counting<'a> {
    layouts: Layouts,
    visitor: Option<Visitor<'a>>,
    /// Whether products with weights, and lookups, were made ahead.
    ahead: bool,
    steps: Vec<Entry>,
    /// The cost of the current step.
    cost: Cost,
    work: Work,
    /// Correlated OTs sent by the client and by the server.
    cots: [u64; 2],
    /// Bytes of ciphertexts that the server keeps for later passes.
    kept: u64,
}

/// A party's work for a step, for estimates of time and memory.
#[derive(Clone, Copy, Default)]
struct Work {
    automorphisms: u64,
    products: u64,
    opened: u64,
    opened_bits: u64,
    held: u64,
    weights: u64,
    nanoseconds: u64,
}

impl<'a> Counting<'a> {
    /// A count of zero, for a session over [`Link::LAN`].
    ///
    /// # Errors
    /// If the security table rejects the parameters.
    pub fn new() -> Result<Counting<'a>, RunError> {
        Counting::over(Link::LAN)
    }

    /// A count of zero, for a session over this link.
    ///
    /// # Errors
    /// As [`Counting::new`].
    pub fn over(link: Link) -> Result<Counting<'a>, RunError> {
        let params = RlweParams::olt_full().map_err(|e| TwopcError::from(RlweError::from(e)))?;
        Ok(Counting {
            layouts: Layouts::over(link, params),
            visitor: None,
            ahead: false,
            steps: Vec::new(),
            cost: Cost::ZERO,
            work: Work::default(),
            cots: [0; 2],
            kept: 0,
        })
    }

    /// Also reports every product to `visitor`.
    #[must_use]
    pub fn telling(self, visitor: impl FnMut(StepId, &Product, usize) -> Result<(), RunError> + 'a) -> Counting<'a> {
        Counting { visitor: Some(Box::new(visitor)), ..self }
    }

    /// Assumes that products have been made ahead, or not.
    #[must_use]
    pub(crate) fn spending(self, ahead: bool) -> Counting<'a> {
        Counting { ahead, ..self }
    }

    /// The parameters of the RLWE products.
    pub fn params(&self) -> &Arc<RlweParams> {
        self.layouts.params()
    }

    /// The link.
    pub fn link(&self) -> &Link {
        self.layouts.link()
    }

    /// The bits that all steps have opened.
    pub(crate) fn opened_bits(&self) -> u64 {
        self.steps.iter().map(|step| step.opened_bits).sum()
    }

    /// Bytes of ciphertexts that the server keeps for later passes.
    pub(crate) fn kept(&self) -> u64 {
        self.kept
    }

    /// The steps in order, and the correlated OTs sent by the client and by the server.
    pub fn into_steps(self) -> (Vec<Entry>, [u64; 2]) {
        (self.steps, self.cots)
    }

    fn add(&mut self, cost: Cost) {
        self.cost = self.cost + cost;
    }

    fn rows(&mut self, rows: RowsCost) {
        self.add(rows.cost);
        // Held are a few ciphertexts of factors, and one response at a time.
        self.work.add(Work::of_cost(&rows.tiling));
    }

    /// A product whose encrypted operand is the client's.
    fn one_way(&mut self, spec: &OltSpec) -> Result<(), RunError> {
        self.answered(&[Answer::alone(self.layouts.of(spec)?)]);
        Ok(())
    }

    /// Products of which the client sends all ciphertexts before it opens the first response.
    fn answered(&mut self, answers: &[Answer]) {
        let cost = answers.iter().map(Answer::cost).fold(OltCost::default(), |sum, cost| sum + cost);
        self.add(cost.traffic());
        for answer in answers {
            self.work.add(Work::of(answer));
        }
    }

    /// Rows times the server's weights or table, which may have been made ahead.
    fn times_weights(&mut self, shape: &LinearShape) -> Result<(), RunError> {
        let OltShape { k, m, n } = shape.shape;
        let weights = (m * n) as u64;
        self.work.weights = self.work.weights.max(weights);
        if !self.ahead {
            return self.linear(shape, MAIN);
        }
        let mut cost = linear_ahead_cost(k * m, MAIN);
        if self.cost.frames_client > 0 && self.cost.frames_server == 0 {
            // The client has not waited since its last message.
            cost.rounds = 0;
        }
        self.add(cost);
        self.work.nanoseconds += (k as f64 * weights as f64 * WEIGHT_NANOSECONDS) as u64;
        Ok(())
    }

    /// Counts a product that is made ahead, as a step.
    pub(crate) fn make(&mut self, id: StepId, shape: &LinearShape) -> Result<(), RunError> {
        self.step(id, |on| on.times_weights(shape))
    }

    fn linear(&mut self, shape: &LinearShape, ring: Ring) -> Result<(), RunError> {
        self.answered(&[self.layouts.of_rows(&shape.spec(ring))?.as_ref().clone()]);
        Ok(())
    }
}

impl Work {
    fn of(answer: &Answer) -> Work {
        let cost = answer.cost();
        Work { held: answer.terms().iter().map(|term| term.layout().held_bytes() as u64).sum(), ..Work::of_cost(&cost) }
    }

    fn of_cost(cost: &OltCost) -> Work {
        Work {
            automorphisms: cost.automorphisms,
            products: cost.products,
            opened: cost.opened,
            nanoseconds: cost.nanoseconds,
            ..Work::default()
        }
    }

    fn add(&mut self, w: Work) {
        self.automorphisms += w.automorphisms;
        self.products += w.products;
        self.opened += w.opened;
        self.opened_bits += w.opened_bits;
        self.held = self.held.max(w.held);
        self.weights = self.weights.max(w.weights);
        self.nanoseconds += w.nanoseconds;
    }
}

impl Length {
    fn new(ring: Ring, elements: usize) -> Length {
        Length { ring, elements }
    }
}

impl Local for Length {
    fn ring(&self) -> Ring {
        self.ring
    }

    fn elements(&self) -> usize {
        self.elements
    }

    fn add_assign(&mut self, _: &Length) {}

    fn times(&self, _: i64) -> Length {
        self.clone()
    }

    fn times_each(&self, _: impl FnOnce() -> Vec<i64>) -> Length {
        self.clone()
    }

    fn shift_left(&self, _: u32) -> Length {
        self.clone()
    }

    fn reduce_to(&self, to: Ring) -> Length {
        Length::new(to, self.elements)
    }

    fn lift(self, to: Ring) -> Length {
        Length::new(to, self.elements)
    }

    fn gather(&self, count: usize, _: impl FnOnce() -> Vec<usize>) -> Length {
        Length::new(self.ring, count)
    }

    fn concat(ring: Ring, parts: &[Length]) -> Length {
        Length::new(ring, parts.iter().map(|part| part.elements).sum())
    }

    fn sum_rows(&self, rows: usize, _: usize) -> Length {
        Length::new(self.ring, rows)
    }
}

impl Shares for Counting<'_> {
    type Share = Length;

    fn over(&self) -> Link {
        *self.link()
    }

    fn beside<T>(
        &mut self,
        first: impl FnOnce(&mut Self) -> Result<T, RunError>,
        aside: Aside<'_, Length>,
    ) -> Result<(T, Length), RunError> {
        let before = std::mem::replace(&mut self.cost, Cost::ZERO);
        let result = first(self)?;
        let first = std::mem::replace(&mut self.cost, before);
        let (both, ring, elements) = match aside {
            Aside::Rescale { x, shift, to } => {
                let rescaled = |_: &Link| rescale_cost(x.elements, x.ring, shift, to);
                (self.link().both(|_| first, rescaled), to, x.elements)
            }
            Aside::Reciprocal { x, of, to, .. } => {
                let inverted = |link: &Link| reciprocal_cost(link, x.elements, of, to.ring);
                (self.link().both(|_| first, inverted), to.ring, x.elements)
            }
        };
        self.add(both);
        Ok((result, Length::new(ring, elements)))
    }

    fn step<T>(&mut self, id: StepId, run: impl FnOnce(&mut Self) -> Result<T, RunError>) -> Result<T, RunError> {
        let result = run(self)?;
        let (cost, work) = (self.cost, self.work);
        (self.cost, self.work) = (Cost::ZERO, Work::default());
        self.cots[0] += cost.cots_client;
        self.cots[1] += cost.cots_server;
        let cots = cost.cots_client + cost.cots_server;
        self.steps.push(Entry {
            site: id.to_string(),
            bytes_up: cost.bytes_client,
            bytes_down: cost.bytes_server,
            rounds: cost.rounds,
            cots,
            automorphisms: work.automorphisms,
            products: work.products,
            opened: work.opened,
            opened_bits: work.opened_bits,
            held: work.held,
            weights: work.weights,
            seconds: (work.nanoseconds as f64 + cots as f64 * COT_NANOSECONDS) * 1e-9,
        });
        Ok(result)
    }

    fn takes(&self, input: &Input) -> bool {
        matches!(input, Input::Lengths(..))
    }

    fn knows(&self, _: Party) -> bool {
        false
    }

    fn shared(&self, x: &Known, ring: Ring) -> Length {
        Length::new(ring, x.len)
    }

    fn lookup(&mut self, places: &Known, _: Option<&Known>, e: &Embedding, table: Table) -> Result<Length, RunError> {
        if table != Table::PublicTokens {
            self.times_weights(&table.shape(e, places.len))?;
        }
        Ok(Length::new(EMBEDDING.ring, places.len * e.width))
    }

    fn product(&mut self, id: StepId, _: &Length, rows: usize, product: &Product) -> Result<Length, RunError> {
        if let Some(visitor) = &mut self.visitor {
            visitor(id, product, rows)?;
        }
        self.times_weights(&product.shape(rows))?;
        Ok(Length::new(LINEAR.ring, rows * product.outputs))
    }

    fn cosines(&mut self, x: &Length, index: &Index) -> Result<Length, RunError> {
        self.linear(&index.vectors_shape(), x.ring)?;
        Ok(Length::new(x.ring, index.documents()))
    }

    fn records(&mut self, places: &Known, index: &Index) -> Result<Length, RunError> {
        let (shape, ring) = (index.records_shape(places.len), Ring::new(RECORD_BITS));
        self.linear(&shape, ring)?;
        Ok(Length::new(ring, shape.shape.k * shape.shape.n))
    }

    fn matmul(&mut self, x: &Length, _: &Length, matmul: &MatmulShape) -> Result<Length, RunError> {
        let elements = matmul.batch * matmul.shape.k * matmul.shape.n;
        let answers = self.layouts.of_sum(matmul.mixed(x.ring))?;
        self.answered(&answers);
        Ok(Length::new(x.ring, elements))
    }

    fn matmul_past(&mut self, x: &Length, _: &Length, past: &PastShape, _: &mut Kept) -> Result<Length, RunError> {
        let cost = past.cost(x.ring, &self.layouts)?;
        self.add(cost.traffic());
        let held = past.held_bytes(x.ring, &self.layouts)? as u64;
        self.work.add(Work { held, ..Work::of_cost(&cost) });
        self.kept += past.kept_bytes(x.ring, &self.layouts)? as u64;
        let MatmulShape { shape, batch } = past.product;
        Ok(Length::new(x.ring, batch * shape.k * shape.n))
    }

    fn known_times(
        &mut self,
        coefficients: &Known,
        _: &Length,
        texts: usize,
        width: usize,
    ) -> Result<Length, RunError> {
        let spec = hidden_spec(texts, coefficients.len / texts.max(1), width);
        self.one_way(&spec)?;
        Ok(Length::new(MAIN, texts * width))
    }

    fn times_known(&mut self, x: &Length, _: &Known, shape: &MatmulShape, bits: u32) -> Result<Length, RunError> {
        let elements = shape.batch * shape.shape.k * shape.shape.n;
        let spec = known_spec(shape, x.ring, bits);
        self.one_way(&spec)?;
        Ok(Length::new(x.ring, elements))
    }

    fn add_known(&self, x: &Length, _: &Known) -> Length {
        x.clone()
    }

    fn narrow(&self, x: &Length, _: u32, to: Ring) -> Length {
        x.reduce_to(to)
    }

    fn rescale(&mut self, x: &Length, shift: u32, to: Ring) -> Result<Length, RunError> {
        self.add(rescale_cost(x.elements, x.ring, shift, to));
        Ok(x.reduce_to(to))
    }

    fn exponentials(&mut self, x: &Length, widths: &[usize], to: Format) -> Result<Length, RunError> {
        self.add(exponentials_cost(self.link(), widths, to));
        Ok(x.reduce_to(to.ring))
    }

    fn sigmoids(&mut self, x: &Length, to: Format) -> Result<Length, RunError> {
        self.add(sigmoid_cost(self.link(), x.elements, to));
        Ok(x.reduce_to(to.ring))
    }

    fn reciprocal(&mut self, x: &Length, of: Positive, _: f64, to: Format) -> Result<Length, RunError> {
        self.add(reciprocal_cost(self.link(), x.elements, of, to.ring));
        Ok(x.reduce_to(to.ring))
    }

    fn scale_rows(&mut self, x: &Length, rows: usize, columns: usize, _: &Length) -> Result<Length, RunError> {
        let cost = scale_rows_cost(rows, columns, x.ring, &self.layouts)?;
        self.rows(cost);
        Ok(x.clone())
    }

    fn multiply(&mut self, x: &Length, _: &Length) -> Result<Length, RunError> {
        self.add(mul_cost(x.elements, x.ring));
        Ok(x.clone())
    }

    fn maxima(&mut self, x: &Length, rows: usize, columns: usize) -> Result<Length, RunError> {
        let bits = x.ring.bits();
        self.add(max_rows_cost(self.link(), rows, columns, x.ring, (0, bits)));
        Ok(Length::new(x.ring, rows))
    }

    fn tournament(&mut self, x: &Length, rows: usize, columns: usize) -> Result<Vec<[Length; 2]>, RunError> {
        self.add(argmax_levels_cost(self.link(), rows, columns, x.ring));
        let next = |width: &usize| (*width > 1).then(|| width.div_ceil(2));
        let widths = std::iter::successors(Some(columns), next);
        let level = |width: usize| Length::new(x.ring, rows * width);
        Ok(widths.map(|w| [level(w), level(w)]).collect())
    }

    fn largest_of_few(&mut self, x: &Length, _: &Length, rows: usize, columns: usize) -> Result<[Length; 2], RunError> {
        self.add(largest_of_few_cost(self.link(), rows, columns, x.ring));
        let one = Length::new(x.ring, rows);
        Ok([one.clone(), one])
    }

    fn pick(&mut self, x: &Length, lengths: &[usize], _: &Known) -> Result<Length, RunError> {
        self.add(pick_cost(lengths, x.ring));
        Ok(Length::new(x.ring, lengths.len()))
    }

    fn apply(&mut self, f: &Function, x: &Length) -> Result<Length, RunError> {
        self.add(f.cost(self.link(), x.elements));
        Ok(x.reduce_to(ACTIVATION.ring))
    }

    fn normalise(&mut self, x: &Length, from: Format, shape: NormShape) -> Result<Length, RunError> {
        let cost = normalise_rows_cost(shape, from, ACTIVATION, &self.layouts)?;
        self.rows(cost);
        Ok(x.reduce_to(ACTIVATION.ring))
    }

    fn unit_rows(&mut self, x: &Length, from: Format, rows: usize, width: usize) -> Result<Length, RunError> {
        let cost = unit_rows_cost(rows, width, from, &self.layouts)?;
        self.rows(cost);
        Ok(x.clone())
    }

    fn open(&mut self, x: &Length, shift: u32, to: Ring) -> Result<Option<Vec<u64>>, RunError> {
        self.add(open_rounded_cost(self.link(), x.elements, shift, to));
        self.work.opened_bits += opened_bits(x.elements, to);
        Ok(None)
    }
}
