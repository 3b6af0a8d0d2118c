//! The protocol: a party's side of every gadget, over a session with the other party.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hushed_math::bits::Mask;
use hushed_model::{Embedding, ModelError, StepId, here};
use hushed_net::{Party, Stats};
use hushed_twopc::ctx::beside;
use hushed_twopc::func::inverse::{Positive, reciprocal, reciprocal_cost};
use hushed_twopc::func::norm::{NormShape, normalise_rows, unit_rows};
use hushed_twopc::func::sigmoid::sigmoid;
use hushed_twopc::func::softmax::exponentials;
use hushed_twopc::func::{Format, narrow, rescale, rescale_cost};
use hushed_twopc::gadget::{Sign, argmax_levels, largest_of_few, max_rows, mul, open_rounded, pick};
use hushed_twopc::he::{
    Ahead, HeContext, Kept, LinearShape, MatmulShape, PastShape, PreparedWeights, linear_ahead_client,
    linear_ahead_server, linear_client, linear_server, linear_server_alone, matmul_past, matmul_shared, olt_encrypted,
    olt_multiplying, scale_rows,
};
use hushed_twopc::share::{Ring, Share};
use hushed_twopc::{Ctx, Link};
use zeroize::Zeroizing;

use super::stock::{Of, Stock};
use super::{Aside, Known, Shares, hidden_spec, known_spec, products, rows_times};
use crate::circuit::function::Function;
use crate::circuit::product::{Layer, Product, add_bias};
use crate::formats::{ACTIVATION, EMBEDDING, MAIN, RECORD_BITS};
use crate::index::Index;
use crate::lookup::Table;
use crate::weights::held::Layers;
use crate::weights::next::NextLayer;
use crate::weights::table::PublicTable;
use crate::{Input, RunError};

/// What a step of the model cost this party.
#[derive(Clone, Debug)]
pub struct StepCost {
    /// The step.
    pub step: StepId,
    /// Wall time, including waiting for the peer.
    pub time: Duration,
    /// Bytes and rounds.
    pub stats: Stats,
    /// Bits of the words that were opened to the client.
    pub opened_bits: u64,
}

/// Called with each finished step.
type Observer = Box<dyn FnMut(StepId) + Send>;

/// One of the two parties, over an established session with correlations and keys ready.
pub struct Protocol {
    pub(super) ctx: Ctx,
    pub(super) he: HeContext,
    layers: Arc<Layers>,
    /// The next of the layers that are built in every pass.
    next: NextLayer,
    /// The products made before their rows are known.
    pub(super) stock: Stock,
    /// The public table, for a client that has it.
    table: Option<PublicTable>,
    costs: Vec<StepCost>,
    observer: Option<Observer>,
    /// When set, the pass ends at its next step.
    stop: Option<Arc<AtomicBool>>,
}

impl Protocol {
    /// `layers` may be shared by the sessions of a server.
    pub fn new(ctx: Ctx, he: HeContext, layers: Arc<Layers>) -> Protocol {
        Protocol {
            ctx,
            he,
            layers,
            next: NextLayer::default(),
            stock: Stock::default(),
            table: None,
            costs: Vec::new(),
            observer: None,
            stop: None,
        }
    }

    /// Calls `f` after every step, for progress.
    pub fn observe(&mut self, f: impl FnMut(StepId) + Send + 'static) {
        self.observer = Some(Box::new(f));
    }

    /// Ends a pass at its next step with [`RunError::Stopped`] once `flag` is set. The session is then useless: the
    /// other party waits for a step that does not come, until it notices that this one is gone.
    pub fn stop_when(&mut self, flag: Arc<AtomicBool>) {
        self.stop = Some(flag);
    }

    /// Sets the client's copy of a public table, for passes whose terms use it.
    pub fn set_table(&mut self, table: PublicTable) {
        self.table = Some(table);
    }

    /// Whether a public table is set.
    pub fn has_table(&self) -> bool {
        self.table.is_some()
    }

    /// The cost of each step so far, in order.
    pub fn costs(&self) -> &[StepCost] {
        &self.costs
    }

    /// Forgets the costs, which pile up in a long session.
    pub fn forget_costs(&mut self) {
        self.costs.clear();
    }

    /// Returns the session and correlations.
    pub fn into_ctx(self) -> Ctx {
        self.ctx
    }

    /// The context, for steps outside the model.
    pub fn ctx(&mut self) -> &mut Ctx {
        &mut self.ctx
    }

    /// One product of the client's one-hot rows, encrypted or made ahead, with a table of the server's. The client
    /// knows its indices, so no equality test is needed (BumbleBee, NDSS 2025, §VII-B discusses both). A row of the
    /// second text of a pair has another one in its last place.
    fn rows_at(
        &mut self,
        (places, second): (&Known, Option<&Known>),
        shape: &LinearShape,
        ring: Ring,
        table: Option<&PreparedWeights>,
        ahead: Option<Ahead>,
    ) -> Result<Share, RunError> {
        let rows = shape.shape.m;
        let (ctx, he) = (&mut self.ctx, &self.he);
        let Some(known) = &places.values else {
            let table = here(StepId::outside("lookup"), &table)?;
            return Ok(match ahead {
                Some(ahead) => {
                    let none = Share::zero(ring, places.len * rows);
                    linear_ahead_server(ctx, &none, table, ahead)?
                }
                None => linear_server_alone(ctx, he, ring, places.len, table)?,
            });
        };
        let mut hot = vec![0u64; known.len() * rows];
        let vocabulary = rows - usize::from(second.is_some());
        for (row, &place) in hot.chunks_exact_mut(rows).zip(known.iter()) {
            let place = place as u64;
            if place >= vocabulary as u64 {
                return Err(ModelError::TokenOutOfRange { vocabulary }.into());
            }
            // A store at the place would show it to whoever shares the cache.
            for (i, word) in row.iter_mut().enumerate() {
                *word = 1 & Mask::from_eq(i as u64, place);
            }
        }
        let second = second.and_then(|known| known.values.as_deref()).into_iter().flatten();
        for (row, &second) in hot.chunks_exact_mut(rows).zip(second) {
            if let Some(last) = row.last_mut() {
                *last = second as u64;
            }
        }
        self.client_product(&Share::new(ring, hot), shape, ahead)
    }

    /// The client's part of a product, whether or not it was made ahead.
    fn client_product(&mut self, x: &Share, shape: &LinearShape, ahead: Option<Ahead>) -> Result<Share, RunError> {
        let (ctx, he) = (&mut self.ctx, &self.he);
        Ok(match ahead {
            Some(ahead) => linear_ahead_client(ctx, x, ahead)?,
            None => linear_client(ctx, he, x, shape)?,
        })
    }

    /// A table of the server's. If layers are read in every pass, this starts building the first one.
    pub(super) fn server_table(&mut self, e: &Embedding, table: Table) -> Result<Arc<PreparedWeights>, RunError> {
        if table != Table::Tokens {
            return self.layers.table(e, table);
        }
        // A layer and the table are not held in memory together.
        self.next = NextLayer::default();
        let held = self.layers.table(e, table)?;
        self.next.begin(self.layers.streamed.first());
        Ok(held)
    }

    /// The server's form of a product.
    pub(super) fn layer(&mut self, id: StepId, product: &Product) -> Result<Arc<Layer>, RunError> {
        match self.layers.streamed.as_slice() {
            [] => self.layers.get(id, product),
            order => Ok(Arc::new(self.next.layer(order, id, product)?)),
        }
    }

    /// The client's rows of a public table; the server's share is zero.
    fn public_rows(&self, ids: &Known, second: Option<&Known>, e: &Embedding) -> Result<Share, RunError> {
        let width = e.width;
        let Some(ids) = &ids.values else {
            return Ok(Share::zero(MAIN, ids.len * width));
        };
        let table = here(StepId::outside("embed"), &self.table)?;
        let mut words = Vec::with_capacity(ids.len() * width);
        let last = match e.typed {
            true => table.row(e.vocabulary as u32)?,
            false => &[],
        };
        let seconds = second.and_then(|known| known.values.as_deref()).into_iter().flatten();
        for (&id, second) in ids.iter().zip(seconds.copied().chain(std::iter::repeat(0))) {
            if id as usize >= e.vocabulary {
                return Err(ModelError::TokenOutOfRange { vocabulary: e.vocabulary }.into());
            }
            let last = last.iter().map(|&v| second * i64::from(v)).chain(std::iter::repeat(0));
            let row = table.row(id as u32)?.iter().zip(last);
            words.extend(row.map(|(&v, more)| EMBEDDING.ring.encode(i64::from(v) + more)));
        }
        Ok(Share::new(MAIN, words))
    }
}

impl AsMut<Ctx> for Protocol {
    fn as_mut(&mut self) -> &mut Ctx {
        &mut self.ctx
    }
}

impl Shares for Protocol {
    type Share = Share;

    fn over(&self) -> Link {
        self.ctx.link()
    }

    fn beside<T>(
        &mut self,
        first: impl FnOnce(&mut Self) -> Result<T, RunError>,
        aside: Aside<'_, Share>,
    ) -> Result<(T, Share), RunError> {
        match aside {
            Aside::Rescale { x, shift, to } => {
                let cost = |_: &Link| rescale_cost(x.len(), x.ring(), shift, to);
                beside(self, first, (cost, |ctx: &mut Ctx| rescale(ctx, x, shift, Sign::Bounded, to)))
            }
            Aside::Reciprocal { x, of, scale, to } => {
                let cost = |link: &Link| reciprocal_cost(link, x.len(), of, to.ring);
                let invert = |ctx: &mut Ctx| reciprocal(ctx, x, of, scale, to.frac, to.ring);
                beside(self, first, (cost, invert))
            }
        }
    }

    fn step<T>(&mut self, id: StepId, run: impl FnOnce(&mut Self) -> Result<T, RunError>) -> Result<T, RunError> {
        let raised = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        if self.stop.as_ref().is_some_and(raised) {
            return Err(RunError::Stopped);
        }
        let (start, before) = (Instant::now(), self.ctx.session.stats());
        let opened = self.ctx.opened_bits();
        let result = run(self)?;
        let stats = self.ctx.session.stats().since(&before);
        let opened_bits = self.ctx.opened_bits() - opened;
        if let Some(observer) = &mut self.observer {
            observer(id);
        }
        self.costs.push(StepCost { step: id, time: start.elapsed(), stats, opened_bits });
        Ok(result)
    }

    fn takes(&self, input: &Input) -> bool {
        matches!(
            (self.ctx.party(), input),
            (Party::Client, Input::Texts(..) | Input::Images(_)) | (Party::Server, Input::Lengths(..))
        )
    }

    fn knows(&self, owner: Party) -> bool {
        owner == self.ctx.party()
    }

    fn shared(&self, x: &Known, ring: Ring) -> Share {
        match &x.values {
            Some(values) => Share::new(ring, values.iter().map(|&v| v as u64).collect()),
            None => Share::zero(ring, x.len),
        }
    }

    fn lookup(
        &mut self,
        places: &Known,
        second: Option<&Known>,
        e: &Embedding,
        table: Table,
    ) -> Result<Share, RunError> {
        if table == Table::PublicTokens {
            return self.public_rows(places, second, e);
        }
        let held = match places.values {
            Some(_) => None,
            None => Some(self.server_table(e, table)?),
        };
        let ahead = self.stock.take(Of::Table(table), places.len);
        let shape = table.shape(e, places.len);
        self.rows_at((places, second), &shape, MAIN, held.as_deref(), ahead)
    }

    fn cosines(&mut self, x: &Share, index: &Index) -> Result<Share, RunError> {
        let (ctx, he) = (&mut self.ctx, &self.he);
        match ctx.party() {
            Party::Client => Ok(linear_client(ctx, he, x, &index.vectors_shape())?),
            Party::Server => {
                let vectors = here(StepId::outside("documents"), index.vectors())?;
                Ok(linear_server(ctx, he, x, vectors)?)
            }
        }
    }

    fn records(&mut self, places: &Known, index: &Index) -> Result<Share, RunError> {
        let (shape, ring) = (index.records_shape(places.len), Ring::new(RECORD_BITS));
        self.rows_at((places, None), &shape, ring, index.records().as_ref(), None)
    }

    fn product(&mut self, id: StepId, x: &Share, rows: usize, product: &Product) -> Result<Share, RunError> {
        let ahead = self.stock.take(Of::Weights(id), rows);
        if self.ctx.is_client() {
            return self.client_product(x, &product.shape(rows), ahead);
        }
        let layer = self.layer(id, product)?;
        let (weights, bias) = layer.weights(id)?;
        let (ctx, he) = (&mut self.ctx, &self.he);
        let result = match ahead {
            Some(ahead) => linear_ahead_server(ctx, x, weights, ahead)?,
            None => linear_server(ctx, he, x, weights)?,
        };
        let mut words = result.into_words();
        add_bias(&mut words, bias);
        if let (false, Some(layer)) = (self.layers.streamed.is_empty(), Arc::into_inner(layer)) {
            self.next.used(layer);
        }
        Ok(Share::new(MAIN, words))
    }

    fn matmul(&mut self, x: &Share, y: &Share, shape: &MatmulShape) -> Result<Share, RunError> {
        Ok(matmul_shared(&mut self.ctx, &self.he, x, y, shape)?)
    }

    fn matmul_past(&mut self, x: &Share, y: &Share, shape: &PastShape, kept: &mut Kept) -> Result<Share, RunError> {
        Ok(matmul_past(&mut self.ctx, &self.he, x, y, shape, kept)?)
    }

    /// The client multiplies its own share; one oblivious linear transformation with encrypted coefficients multiplies
    /// the server's.
    fn known_times(&mut self, coefficients: &Known, x: &Share, texts: usize, width: usize) -> Result<Share, RunError> {
        let rows = coefficients.len / texts.max(1);
        let spec = hidden_spec(texts, rows, width);
        let (ctx, he) = (&mut self.ctx, &self.he);
        let Some(values) = &coefficients.values else {
            let signed = x.words().iter().map(|&w| MAIN.decode(w));
            let signed = Zeroizing::new(signed.collect::<Vec<i64>>());
            return Ok(olt_multiplying(ctx, he, &spec, &signed)?);
        };
        let chosen = Share::new(MAIN, values.iter().map(|&c| c as u64).collect());
        let cross = olt_encrypted(ctx, he, &spec, chosen.words())?;
        let own = rows_times(chosen.words(), x.words(), rows, width);
        Ok(cross.add(&Share::new(MAIN, own)))
    }

    /// The server multiplies its own share; one oblivious linear transformation multiplies the client's.
    fn times_known(&mut self, x: &Share, y: &Known, shape: &MatmulShape, bits: u32) -> Result<Share, RunError> {
        let (ctx, he) = (&mut self.ctx, &self.he);
        let spec = known_spec(shape, x.ring(), bits);
        let Some(numbers) = &y.values else {
            return Ok(olt_encrypted(ctx, he, &spec, x.words())?);
        };
        if numbers.len() != y.len {
            return Err(RunError::WrongInput);
        }
        let cross = olt_multiplying(ctx, he, &spec, numbers)?;
        let words: Zeroizing<Vec<u64>> = Zeroizing::new(numbers.iter().map(|&v| v as u64).collect());
        Ok(cross.add(&Share::new(x.ring(), products(x.words(), &words, shape))))
    }

    fn add_known(&self, x: &Share, y: &Known) -> Share {
        match &y.values {
            Some(values) => x.add(&Share::public(Party::Client, x.ring(), values)),
            None => x.clone(),
        }
    }

    fn narrow(&self, x: &Share, shift: u32, to: Ring) -> Share {
        narrow(self.ctx.party(), x, shift, to)
    }

    fn rescale(&mut self, x: &Share, shift: u32, to: Ring) -> Result<Share, RunError> {
        Ok(rescale(&mut self.ctx, x, shift, Sign::Bounded, to)?)
    }

    fn exponentials(&mut self, x: &Share, widths: &[usize], to: Format) -> Result<Share, RunError> {
        Ok(exponentials(&mut self.ctx, x, widths, to)?)
    }

    fn sigmoids(&mut self, x: &Share, to: Format) -> Result<Share, RunError> {
        Ok(sigmoid(&mut self.ctx, x, to)?)
    }

    fn reciprocal(&mut self, x: &Share, of: Positive, scale: f64, to: Format) -> Result<Share, RunError> {
        Ok(reciprocal(&mut self.ctx, x, of, scale, to.frac, to.ring)?)
    }

    fn scale_rows(&mut self, x: &Share, rows: usize, columns: usize, factors: &Share) -> Result<Share, RunError> {
        Ok(scale_rows(&mut self.ctx, &self.he, x, rows, columns, factors)?)
    }

    fn multiply(&mut self, x: &Share, y: &Share) -> Result<Share, RunError> {
        Ok(mul(&mut self.ctx, x, y)?)
    }

    fn maxima(&mut self, x: &Share, rows: usize, columns: usize) -> Result<Share, RunError> {
        let bits = x.ring().bits();
        Ok(max_rows(&mut self.ctx, x, rows, columns, 0, bits)?)
    }

    fn tournament(&mut self, x: &Share, rows: usize, columns: usize) -> Result<Vec<[Share; 2]>, RunError> {
        Ok(argmax_levels(&mut self.ctx, x, rows, columns)?)
    }

    fn largest_of_few(&mut self, x: &Share, with: &Share, rows: usize, columns: usize) -> Result<[Share; 2], RunError> {
        Ok(largest_of_few(&mut self.ctx, x, with, rows, columns)?)
    }

    fn pick(&mut self, x: &Share, lengths: &[usize], places: &Known) -> Result<Share, RunError> {
        let places = places.values.iter().flat_map(|p| p.iter());
        let places: Zeroizing<Vec<u64>> = Zeroizing::new(places.map(|p| *p as u64).collect());
        Ok(pick(&mut self.ctx, x, lengths, &places)?)
    }

    fn apply(&mut self, f: &Function, x: &Share) -> Result<Share, RunError> {
        Ok(f.run(&mut self.ctx, x)?)
    }

    fn normalise(&mut self, x: &Share, from: Format, shape: NormShape) -> Result<Share, RunError> {
        let (ctx, he) = (&mut self.ctx, &self.he);
        Ok(normalise_rows(ctx, he, x, from, shape, ACTIVATION)?)
    }

    fn unit_rows(&mut self, x: &Share, from: Format, rows: usize, width: usize) -> Result<Share, RunError> {
        Ok(unit_rows(&mut self.ctx, &self.he, x, from, rows, width)?)
    }

    fn open(&mut self, x: &Share, shift: u32, to: Ring) -> Result<Option<Vec<u64>>, RunError> {
        Ok(open_rounded(&mut self.ctx, Party::Client, x, shift, to)?)
    }
}
