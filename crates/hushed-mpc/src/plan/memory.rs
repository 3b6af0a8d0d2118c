//! How much memory the two parties of a run take.
//!
//! Not a bound, but an estimate from the allocations that matter, with measured constants (peak resident memory).

use hushed_model::{Block, Embedding, Mask, Program};
use hushed_twopc::he::{LinearShape, OltShape};
use serde::Serialize;

use crate::Entry;

// Fitted to the peaks of MiniLM's two processes at 3, 16, 64 and 128 tokens: there the client is within 9 %, the server
// within 16 %. At 16 tokens the server takes more than at 64, which this estimate does not reproduce.

/// The client's program, tokenizer, both sides' keys and state of the OT extensions.
const CLIENT: u64 = 52_000_000;
/// The server's program, tokenizer and allocator.
const SERVER: u64 = 36_000_000;
/// A session's keys of both sides, state of the OT extensions, and buffers kept for reuse.
const SESSION: u64 = 60_000_000;
/// Bytes alive at once per correlated OT of the largest step.
const CLIENT_COT: f64 = 5.7;
/// The same, with the tables that the server offers.
const SERVER_COT: f64 = 12.0;

/// The peak memory of a run's parties, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// The client's process.
    pub client: u64,
    /// The server's process without sessions: weights as read and as integers.
    pub weights: u64,
    /// Each session at the server.
    pub session: u64,
    /// The matrices in `weights`: a server that reads them from disk in every pass does not hold them.
    pub matrices: u64,
    /// What each of its sessions takes instead.
    pub stream: u64,
    /// The part of `session` that is held by products made ahead.
    pub stock: u64,
    /// The part of `session` that a text takes between passes: its keys and values, and the client's ciphertexts of
    /// them.
    pub text: u64,
}

impl Memory {
    /// The server's process with this many sessions in their largest steps at once.
    pub fn server(&self, sessions: usize) -> u64 {
        self.weights + sessions as u64 * self.session
    }

    /// The same if weights are read from disk in every pass.
    pub fn streaming(&self, sessions: usize) -> u64 {
        self.weights - self.matrices + sessions as u64 * (self.session + self.stream)
    }

    /// The most of each part.
    pub(super) fn most(&self, other: &Memory) -> Memory {
        Memory {
            client: self.client.max(other.client),
            weights: self.weights.max(other.weights),
            session: self.session.max(other.session),
            matrices: self.matrices.max(other.matrices),
            stream: self.stream.max(other.stream),
            stock: self.stock.max(other.stock),
            text: self.text.max(other.text),
        }
    }

    /// Whether a server limited to `limit` bytes reads its weights from disk in every pass: it cannot hold them, and
    /// reading them takes less memory.
    pub fn streams(&self, sessions: usize, limit: u64) -> bool {
        let held = self.server(sessions);
        held > limit && self.streaming(sessions) < held
    }
}

/// Bytes of all the server's matrices: the numbers as read (f32) and as run (i32, including norms and residual
/// columns), with token vectors.
fn matrices(program: &Program) -> u64 {
    let table = |e: &Embedding| 2 * e.table_rows() * e.width;
    let mut numbers = program.embedding().map_or(0, table);
    for linear in program.linears() {
        numbers += 2 * linear.inputs * linear.outputs;
    }
    // The diagonal of the residual, next to the first layer of every block.
    let blocks = program.steps().iter();
    let reads = |block: &Block| matches!(block, Block::Attention(_) | Block::FeedForward(_) | Block::Linear(_));
    let blocks = blocks.filter(|step| reads(&step.block));
    numbers += blocks.count() * program.width().pow(2);
    4 * numbers as u64
}

/// Bytes of the position vectors, as read.
fn positions(program: &Program) -> u64 {
    let placed = program.embedding().filter(|e| e.placed);
    4 * placed.map_or(0, |e| e.positions * e.width) as u64
}

/// Bytes of what a pass reads at a time: one product in use as integers, plus the next one as read and as integers, or
/// the table before and after it is transposed.
fn stream(steps: &[Entry]) -> u64 {
    let mut sizes: Vec<u64> = steps.iter().map(|step| step.weights).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let most = sizes.first().copied().unwrap_or(0);
    4 * (2 * most + sizes.get(1).copied().unwrap_or(0))
}

/// Bytes of the keys and values that a party holds for a text of this many rows, if the next pass reads them.
pub(crate) fn cached(program: &Program, rows: usize) -> u64 {
    let blocks = program.steps().iter().map(|step| match &step.block {
        Block::Attention(a) if a.mask == Mask::Causal => a.key.outputs + a.value.outputs,
        _ => 0,
    });
    8 * (rows * blocks.sum::<usize>()) as u64
}

/// Bytes that client and server hold for products of these shapes made ahead: the results, and at the client the masks
/// of the rows.
pub(crate) fn stock(products: &[LinearShape]) -> (u64, u64) {
    let words = |of: fn(OltShape) -> usize| products.iter().map(|p| of(p.shape)).sum::<usize>();
    let (masks, results) = (words(|s| s.k * s.m), words(|s| s.k * s.n));
    (8 * (masks + results) as u64, 8 * results as u64)
}

/// Memory from a plan's steps and sizes: rows that earlier passes have run, and new ones; and the bytes of ciphertexts
/// that the server keeps for later passes.
///
/// Besides the constant parts, three things matter. At the server, the ciphertexts of one product: those of the
/// operand, the sums that make one response, and their multipliers ([`Entry::held`]); the lookup has the most. At the
/// client, its one-hot rows, or the public table as bytes and as numbers, or the numbers of its images. At both, the
/// correlated OTs of the largest step, a part of which is alive at a time.
pub(crate) fn estimate(
    program: &Program,
    (earlier, rows): (usize, usize),
    public_table: bool,
    (steps, kept): (&[Entry], u64),
) -> Memory {
    let most = |f: fn(&Entry) -> u64| steps.iter().map(f).max().unwrap_or(0);
    let (cots, held) = (most(|s| s.cots) as f64, most(|s| s.held));
    let numbers = |e: &Embedding| match public_table {
        false => rows * e.table_rows(),
        true => e.table_rows() * e.width,
    };
    let points = program.patches().map_or(0, |p| rows * p.linear.inputs);
    let looked_up = 8 * program.embedding().map_or(points, numbers);
    let cached = cached(program, earlier + rows);
    Memory {
        client: CLIENT + looked_up as u64 + (cots * CLIENT_COT) as u64 + cached,
        weights: SERVER + positions(program) + matrices(program),
        matrices: matrices(program),
        stream: stream(steps),
        stock: 0,
        text: cached + kept,
        session: SESSION + held + (cots * SERVER_COT) as u64 + cached + kept,
    }
}

#[cfg(test)]
mod tests {
    use hushed_model::testing::large_generator;
    use hushed_model::{NetworkConfig, Pool, network_shapes};

    use super::*;
    use crate::plan::Plan;
    use crate::{Answers, Terms};

    /// The peaks of freshly started `hushed embed` and `hushed serve`, in MB: client, server with one session. Medians
    /// of three; the server took 281 MB before the session.
    const MEASURED: [(usize, f64, f64); 4] =
        [(3, 55.0, 367.0), (16, 71.0, 459.0), (64, 103.0, 407.0), (128, 149.0, 572.0)];

    #[test]
    fn the_model_is_near_what_was_measured() {
        let minilm = NetworkConfig { layers: 6, width: 384, heads: 12, hidden: 1536, ..NetworkConfig::large() };
        let program = network_shapes(&minilm, Pool::Mean).program();
        for (tokens, client, server) in MEASURED {
            let plan = Plan::twopc(&program, &[tokens], Terms::default(), true, Answers::Label);
            let found = plan.unwrap().memory;
            let off = |found: u64, measured: f64| (found as f64 / 1e6 / measured - 1.0).abs();
            assert!(off(found.client, client) < 0.1, "{tokens}: {found:?}");
            assert!(off(found.server(1), server) < 0.17, "{tokens}: {found:?}");
        }
        // Two texts in a pass need more than one, and less than two separate ones.
        let one = Memory::largest(&program, (0, 64), 64).unwrap();
        let two = Memory::largest(&program, (0, 64), 128).unwrap();
        assert!(two.client > one.client && two.client < 2 * one.client);
        // A public prefix takes memory at the server once, and every session holds scores against it.
        let program = hushed_model::testing::published_generator();
        let of = |public| Memory::largest(&program, (public, 64), 64).unwrap();
        assert_eq!(of(512).weights - of(0).weights, 512 * 12 * 2 * 768 * 8);
        assert!(of(512).session > of(0).session);
    }

    /// The table of docs/operations.md that says how many users one machine carries is made of plans.
    #[test]
    fn the_documented_capacity_is_planned() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");
        let page = std::fs::read_to_string(path).unwrap();
        let minilm = NetworkConfig { layers: 6, width: 384, heads: 12, hidden: 1536, ..NetworkConfig::large() };
        let program = network_shapes(&minilm, Pool::Mean).program();
        let cores = |cores: f64| if cores < 9.95 { format!("{cores:.1}") } else { format!("{cores:.0}") };
        let rows = [16, 128, 256].map(|tokens| {
            let plan = Plan::twopc(&program, &[tokens], Terms::default(), true, Answers::Label).unwrap();
            let [up, down, session] = [plan.bytes_up, plan.bytes_down, plan.memory.session].map(|b| b as f64 / 1e6);
            let users = [200.0, 1000.0, 5000.0].map(|texts| {
                let gigabytes = texts * (up + down) / 1000.0;
                format!("{} cores, {gigabytes:.0} GB", cores(texts * plan.seconds / 3600.0))
            });
            format!("| {tokens} | {:.1}, {up:.0}, {down:.0} | {session:.0} | {} |", plan.seconds, users.join(" | "))
        });
        for row in &rows {
            assert!(page.contains(row.as_str()), "docs/operations.md should have these rows:\n{}", rows.join("\n"));
        }
        let weights = Plan::twopc(&program, &[16], Terms::default(), true, Answers::Label).unwrap().memory.weights;
        let without = format!("({:.0} MB without sessions)", weights as f64 / 1e6);
        assert!(page.contains(&without), "{without}");
    }

    /// What sessions hold of products, and a pass in which every row gives a token.
    #[test]
    fn products_ahead_and_drafts_take_memory() {
        let program = hushed_model::testing::published_generator();
        let rows = (0, 16);
        let alone = Memory::largest(&program, rows, 16).unwrap();
        let with = |ahead, drafts| {
            let memory = Memory::largest(&program, rows, 16).unwrap();
            memory.with_later(&program, rows, 16, (ahead, drafts)).unwrap()
        };
        assert_eq!(with(0, 0), alone);
        let ahead = with(64, 0);
        assert!(ahead.stock > 0 && ahead.session >= alone.session + ahead.stock);
        // In a prompt of as many rows only the last one gives a token.
        let drafts = [with(0, 3), with(0, 15)].map(|memory| memory.session);
        assert!(alone.session <= drafts[0] && alone.session < drafts[1], "{alone:?} {drafts:?}");
        let both = with(64, 15);
        assert_eq!(both.session, (drafts[1] + ahead.stock).max(ahead.session));
        assert_eq!((both.weights, both.stock), (alone.weights, ahead.stock));
    }

    /// Each row is stored with its result, and at the client with its mask.
    #[test]
    fn masks_and_results_wait() {
        let shape = |k, m, n| LinearShape { shape: OltShape { k, m, n }, weight_bits: 20 };
        let products = [shape(2, 100, 7), shape(2, 5, 30)];
        let (masks, results) = (2 * 105, 2 * 37);
        assert_eq!(stock(&products), (8 * (masks + results), 8 * results));
    }

    /// Holding 7 · 10^9 numbers twice takes 54 GB; a session that reads them, little more than the table thrice.
    #[test]
    fn a_large_model_streams_where_it_does_not_fit() {
        let program = large_generator();
        let memory = Memory::largest(&program, (0, 64), 64).unwrap();
        assert!(memory.server(1) > 53_000_000_000, "{memory:?}");
        assert_eq!(memory.stream, 3 * 4 * 32_000 * 4096);
        assert!(memory.streaming(1) < 8_000_000_000, "{memory:?}");
        assert!(memory.streams(1, 8_000_000_000) && !memory.streams(1, 60_000_000_000));
        // Many sessions that stream a small model take more than its weights.
        let program = network_shapes(&NetworkConfig::large(), Pool::Mean).program();
        let memory = Memory::largest(&program, (0, 16), 16).unwrap();
        assert!(memory.streams(1, 0) && !memory.streams(1000, 0));
    }
}
