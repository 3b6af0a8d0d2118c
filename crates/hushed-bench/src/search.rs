//! A private search among random unit vectors, without the embedding of the query.

use std::sync::Arc;

use hushed_math::cpu::Cpu;
use hushed_math::rng::{PublicSeed, PublicStream};
use hushed_model::{NetworkConfig, Pool, Program, TokenIds, network_shapes, plain, random_network};
use hushed_mpc::{Hit, Index, Input, Layers, Protocol, StepCost, Terms, Wanted, search};
use hushed_net::{Party, Session};
use serde_json::{Value, json};

use super::{BenchError, Between, How, Whole, median};
use crate::machine;
use crate::model::{operations, total};

/// MiniLM's width.
const WIDTH: usize = 384;
const TOP: usize = 5;
/// Rows of the query; its embedding is not measured.
const TOKENS: usize = 4;

/// A search over this many documents.
pub struct SearchCase {
    documents: usize,
    record_bytes: usize,
}

pub fn cases() -> Vec<Box<dyn Whole>> {
    let case = |(documents, record_bytes)| {
        let case: Box<dyn Whole> = Box::new(SearchCase { documents, record_bytes });
        case
    };
    let sizes = [(1_000, 512), (10_000, 0), (10_000, 512), (100_000, 0), (100_000, 512)];
    sizes.map(case).into()
}

impl SearchCase {
    /// The same for both parties.
    fn config() -> NetworkConfig {
        NetworkConfig { layers: 1, width: WIDTH, heads: 12, hidden: 64, vocabulary: 256, ..NetworkConfig::large() }
    }

    /// Random unit vectors: a measurement has no secrets.
    fn vectors(&self) -> Vec<f32> {
        let mut rng = PublicStream::new(&PublicSeed([3; 16]), 0);
        let mut all = Vec::with_capacity(self.documents * WIDTH);
        for _ in 0..self.documents {
            let row: Vec<f64> = (0..WIDTH).map(|_| rng.next_u64() as i64 as f64).collect();
            let length = row.iter().map(|v| v * v).sum::<f64>().sqrt();
            all.extend(row.iter().map(|v| (v / length) as f32));
        }
        all
    }

    /// The largest difference between the cosine of the hit at a rank and the cosine that belongs there.
    fn error(&self, program: &Program, hits: &[Hit]) -> Result<f64, BenchError> {
        let pooled = plain::run(program, vec![text()], |_, _| ())?;
        let query = pooled.values.data();
        let length = query.iter().map(|v| v * v).sum::<f64>().sqrt();
        let cosine = |row: &[f32]| {
            let products = row.iter().zip(query).map(|(a, b)| f64::from(*a) * b);
            products.sum::<f64>() / length
        };
        let cosines: Vec<f64> = self.vectors().chunks_exact(WIDTH).map(cosine).collect();
        let mut sorted = cosines.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let differences = hits.iter().zip(&sorted).map(|(hit, best)| {
            let found = cosines.get(hit.place as usize);
            found.map_or(f64::INFINITY, |c| (best - c).abs())
        });
        Ok(differences.fold(0.0, f64::max))
    }
}

fn text() -> TokenIds {
    TokenIds::new((0..TOKENS as u32).map(|i| 7 * i + 1).collect())
}

impl Whole for SearchCase {
    fn params(&self) -> Value {
        json!({
            "documents": self.documents, "width": WIDTH, "top": TOP, "record_bytes": self.record_bytes,
            "vectors": "random",
        })
    }

    fn wanted(&self, how: How<'_>) -> bool {
        how.wants(&self.params())
    }

    fn measure(&self, session: Session, runs: usize, between: Between) -> Result<(Session, Value), BenchError> {
        let client = session.party() == Party::Client;
        let random = random_network(&Self::config(), Pool::Mean, 1).program();
        let (program, index) = match client {
            true => (
                network_shapes(&Self::config(), Pool::Mean).program(),
                Index::shape(self.documents, WIDTH, self.record_bytes)?,
            ),
            false => {
                let records = vec![b'x'; self.documents * self.record_bytes];
                let records = (self.record_bytes, records.as_slice());
                let index = Index::new(self.documents, WIDTH, &self.vectors(), records)?;
                (random.clone(), index)
            }
        };
        let wanted = Wanted { top: TOP, records: self.record_bytes > 0, scores: false };
        let mut backend = Protocol::establish(session, Arc::new(Layers::default()), between.forms())?;
        let (mut all_runs, mut busy): (Vec<Vec<StepCost>>, Vec<f64>) = (Vec::new(), Vec::new());
        let mut hits = None;
        for run in 0..=runs {
            backend.ctx().session.shape(between.shape().filter(|_| run > 0));
            let (seen, used) = (backend.costs().len(), machine::processor_seconds());
            let input = match client {
                true => Input::Texts(vec![text()], Terms::default()),
                false => Input::Lengths(vec![TOKENS], Terms::default()),
            };
            hits = search(&mut backend, &program, &index, &input, wanted)?;
            // The first run prepares the layouts.
            if run > 0 {
                let steps = backend.costs().iter().skip(seen);
                let after = steps.filter(|c| c.step.kind() == hushed_model::Kind::Outside);
                all_runs.push(after.cloned().collect());
                busy.push(machine::processor_seconds() - used);
            }
        }
        let Some(hits) = hits else {
            let row = json!({ "cpu_seconds": median(busy), "peak_rss": machine::peak_memory() });
            return Ok((backend.into_ctx().session, row));
        };
        let seconds = |costs: &Vec<StepCost>| total(costs).0.as_secs_f64();
        let mean = |sum: u64| sum / runs.max(1) as u64;
        let every = || all_runs.iter().flatten().map(|c| &c.stats);
        let row = json!({
            "name": "search",
            "params": self.params(),
            "threads": std::thread::available_parallelism().map_or(1, usize::from),
            "seconds": median(all_runs.iter().map(seconds).collect()),
            "runs": runs,
            "bytes_up": mean(every().map(|s| s.bytes_sent).sum()),
            "bytes_down": mean(every().map(|s| s.bytes_received).sum()),
            "rounds": mean(every().map(|s| s.rounds).sum()),
            "cpu_seconds": median(busy),
            "peak_rss": machine::peak_memory(),
            "error": self.error(&random, &hits)?,
            "kernel": Cpu::get().kernel_name(),
            "ops": all_runs.last().map(|costs| operations(costs)),
        });
        Ok((backend.into_ctx().session, row))
    }
}
