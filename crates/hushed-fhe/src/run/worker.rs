//! One run on several machines: what each of them holds, and the ranges of nodes that it runs.
//!
//! Every machine reads keys, model and request itself, records the run as one tape in tiles ([`crate::machines`]), and
//! cuts it into the same ranges. A range is a function of the values of other ranges, which arrive as bytes: nothing is
//! computed with a value that is not of this run and of the shape that the schedule states. Whatever decides values has
//! a hash, the run's name, which all machines compare before any work. The answer is the one that a run in one process
//! has, word by word; the driver seals it as that run does.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use hushed_ckks::{Ciphertext, CkksParams, Scale};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::choices::Choices;
use crate::error::FheError;
use crate::files::FileError;
use crate::files::checkpoint::Run;
use crate::files::chunked::Hash;
use crate::hex::hex;
use crate::machines::Division;
use crate::machines::chain::Chain;
use crate::machines::part::{Crossing, Part, parts};
use crate::machines::value::Shape;
use crate::packing::PackingError;
use crate::pass::Pass;
use crate::run::encrypted::Encrypted;
use crate::run::job::{Batch, Engine};
use crate::run::prepared::Prepared;
use crate::simulate::Simulator;
use crate::slots::Slots;
use crate::tape::assign::{hash, released};
use crate::tape::encoder::COLUMNS;
use crate::tape::run::{Executor, Local};
use crate::tape::values::{Held, Rows};
use crate::tape::{NodeId, Op};

/// The ranges of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkList {
    /// The name of program, plan, keys and request, in hexadecimal.
    pub run: String,
    /// The same with the schedule: the name that values carry.
    pub work: String,
    /// In an order in which they can be run.
    pub ranges: Vec<WorkItem>,
}

/// A range of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkItem {
    /// The machine that the simulation gave it to.
    pub machine: usize,
    /// Seconds by the plan's prices.
    pub seconds: f64,
    /// The values that it reads.
    pub reads: Vec<usize>,
    /// The values that it makes for other ranges, or for the reply.
    pub writes: Vec<WrittenValue>,
    /// Whether a layer ends with it, and few values are alive.
    pub ends_layer: bool,
}

/// A value that a range makes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenValue {
    /// Its name: the node of the run.
    pub value: usize,
    /// Its bytes.
    pub bytes: u64,
    /// Rows, and vectors in each.
    pub rows: (usize, usize),
    /// Primes of each vector.
    pub limbs: usize,
    /// The scale of vectors that the reply is made of; unfinished sums have none here.
    pub scale: Option<f64>,
    /// Whether it is of the reply.
    pub answers: bool,
}

/// A machine's part of a run.
pub struct Worker {
    on: Encrypted,
    params: Arc<CkksParams>,
    parts: Vec<Part>,
    /// What the client sent, and what is made of its masks, by the name of the input.
    given: BTreeMap<&'static str, Arc<Rows<Ciphertext>>>,
    work: Hash,
    list: WorkList,
}

impl Worker {
    /// Makes ready to run the ranges of `division`.
    ///
    /// # Errors
    /// [`FheError::File`] for a division of another run; those of a run.
    pub fn new(
        mut engine: Engine,
        model: &Prepared,
        choices: &Choices,
        batch: Batch,
        division: &Division,
    ) -> Result<Worker, FheError> {
        engine.on.keep(Arc::clone(&model.folded));
        let (program, params) = (&model.program, Arc::clone(&engine.params));
        let (placement, bound) = (engine.plan.placement.clone(), engine.plan.input_bound);
        let texts = engine.rows(&batch)?;
        let run = Run { plan: engine.plan.hash(), keys: engine.keys, request: batch.name() }.name();
        let columns = engine.columns(batch.columns)?;
        let simulator = Simulator::new(&params, params.slots())?.keeping(Arc::clone(&model.folded));
        let stand_in = |ct: &Ciphertext| simulator.stand_in(ct.limbs(), ct.scale());
        let (sent, shapes) = (columns.iter().map(stand_in).collect(), texts.map(stand_in));
        let mut given = {
            let pass = Pass::over(&engine.on, (program, choices), placement.clone(), texts, bound)?;
            pass.hidden().clone()
        };
        let recorded = Pass::over(&simulator, (program, choices), placement, shapes, bound)?;
        let Chain { tape, placed, ends } = recorded.chained(sent, |limbs, scale| simulator.stand_in(limbs, scale))?;
        given.insert(COLUMNS, columns);
        let schedule = released(&tape, placed);
        let work: Hash = Sha256::new().chain_update(run).chain_update(hash(&tape, &schedule)).finalize().into();
        let cut: Vec<_> = division.nodes(tape.nodes.len()).ok_or_else(|| unusable("division"))?;
        let parts = parts(&tape, &schedule, &cut);
        let given = given.into_iter().map(|(name, vectors)| (name, Arc::new(vec![vectors]))).collect();
        let list = WorkList { run: hex(&run), work: hex(&work), ranges: Vec::new() };
        let mut worker = Worker { on: engine.on, params, parts, given, work, list };
        let items = worker.parts.iter().zip(&division.ranges).map(|(part, range)| WorkItem {
            machine: range.machine,
            seconds: range.seconds,
            reads: part.imports.iter().filter(|import| import.given.is_none()).map(|import| import.id.0).collect(),
            writes: part.exports.iter().map(|export| worker.written(part, export)).collect(),
            ends_layer: ends.contains(&range.end),
        });
        worker.list.ranges = items.collect();
        Ok(worker)
    }

    /// The ranges, the same on all machines of a run.
    #[must_use]
    pub fn list(&self) -> &WorkList {
        &self.list
    }

    /// Runs a range with the values that it reads, by name. Returns those that it makes, in the order of the list.
    ///
    /// # Errors
    /// [`FheError::File`] for a range that there is not, a value that is missing, damaged, of another run or of another
    /// shape; those of the operations.
    pub fn run(&self, range: usize, values: &BTreeMap<usize, &[u8]>) -> Result<Vec<Vec<u8>>, FheError> {
        let part = self.parts.get(range).ok_or_else(|| unusable("range"))?;
        let read = |import: &Crossing| -> Result<(NodeId, Held<Encrypted>), FheError> {
            let held = match import.given {
                Some(name) => Held::Block(Arc::clone(self.given.get(name).ok_or_else(|| unusable("input"))?)),
                None => {
                    let bytes = values.get(&import.id.0).ok_or_else(|| unusable("values that are read"))?;
                    let shape = self.shape(part, import);
                    shape.held(shape.read(&self.params, &self.work, bytes)?)
                }
            };
            Ok((import.here, held))
        };
        let mut held = part.imports.par_iter().map(read).collect::<Result<BTreeMap<_, _>, _>>()?;
        let nodes = 0..part.tape.nodes.len();
        Local(&self.on).run(&part.tape, &part.schedule, nodes, &mut held, &mut |_, _| Ok(()))?;
        let made: Vec<_> = part.exports.iter().map(|export| (export, held.remove(&export.here))).collect();
        let write = |(export, held): (&Crossing, Option<Held<Encrypted>>)| {
            let vectors = match held {
                Some(Held::Block(rows)) => {
                    let low = |ct: &Ciphertext| self.on.drop_to(ct, export.limbs.min(ct.limbs()));
                    rows.iter().flatten().map(low).collect::<Result<Vec<_>, _>>()?
                }
                Some(Held::Sums(partial)) => partial.0,
                _ => return Err(PackingError::Mismatch.into()),
            };
            Ok(self.shape(part, export).write(&self.params, &self.work, &vectors)?)
        };
        made.into_par_iter().map(write).collect()
    }

    fn shape(&self, part: &Part, crossing: &Crossing) -> Shape {
        let (node, placed) = (&part.tape.nodes[crossing.here.0], &part.schedule.nodes[crossing.here.0]);
        let (sums, limbs) = (crossing.sums, crossing.limbs);
        Shape { node: crossing.id.0, rows: node.shape, limbs, scale: placed.scale.filter(|_| !sums), sums }
    }

    fn written(&self, part: &Part, export: &Crossing) -> WrittenValue {
        let shape = self.shape(part, export);
        WrittenValue {
            value: shape.node,
            bytes: shape.bytes(&self.params),
            rows: shape.rows,
            limbs: shape.limbs,
            scale: shape.scale.map(Scale::value),
            answers: part.tape.nodes[export.here.0].op == Op::Output,
        }
    }
}

impl WorkList {
    /// The answer of a run in this name, before it is sealed, from the values of the reply.
    ///
    /// # Errors
    /// [`FheError::File`] for a list of another run, and for values as in [`Worker::run`].
    pub fn answer(
        &self,
        params: &CkksParams,
        run: &Run,
        values: &BTreeMap<usize, &[u8]>,
    ) -> Result<Vec<Ciphertext>, FheError> {
        if self.run != hex(&run.name()) {
            return Err(unusable("run"));
        }
        let work = crate::hex::parse(&self.work).ok_or_else(|| unusable("name"))?;
        let mut answer = Vec::new();
        for of in self.ranges.iter().flat_map(|range| &range.writes).filter(|of| of.answers) {
            let bytes = values.get(&of.value).ok_or_else(|| unusable("values of the reply"))?;
            let scale = of.scale.map(Scale::new).transpose().map_err(|_| unusable("scale"))?;
            let shape = Shape { node: of.value, rows: of.rows, limbs: of.limbs, scale, sums: false };
            answer.extend(shape.read(params, &work, bytes)?);
        }
        Ok(answer)
    }
}

/// The error of what does not belong to the run.
fn unusable(what: &'static str) -> FheError {
    FileError::Unusable { path: Path::new("<run>").to_owned(), what }.into()
}
