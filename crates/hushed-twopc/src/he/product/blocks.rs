//! Leaves by blocks of the ciphertexts ([`BlockTables`]).
//!
//! A multiplier polynomial has D = mw·nw leading coefficients. It is evaluated at L points, L ≥ 2·D, and the same
//! values serve every block of every ciphertext, so for each prime and point the leaves are a matrix product, γ by β
//! times β by (part, block).
//!
//! The ciphertexts' blocks are transformed once, as they arrive ([`BlockInputs`]). Multipliers are transformed a few
//! columns γ at a time, and all leaves of these columns are made at once. Leaves remain in coefficients, with which
//! packing them into a response begins.

use super::leaf::{Leaf, Multiplier, erase};
use crate::he::encode::right_prefix;
use crate::he::layout::MULTIPLIER_WORDS;
use crate::he::window::OltTiling;
use hushed_math::{BlockTables, FactorRoom, PartSums, PointMatrix, RnsPoly};
use hushed_rlwe::{Ciphertext, RlweParams};
use rayon::prelude::*;
use std::mem;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use zeroize::Zeroizing;

/// The ciphertexts of an encrypted operand, or of some of its inner blocks, cut into transformed blocks.
pub(crate) struct BlockInputs {
    /// One per prime.
    tables: Vec<Arc<BlockTables>>,
    /// The inner blocks β.
    betas: Range<usize>,
    /// For every row block of ciphertexts (in the order of [`OltTiling::inputs_of`]) and every prime, β by (part,
    /// block).
    rows: Vec<Vec<PointMatrix>>,
    /// Number of ciphertexts so far.
    arrived: usize,
    /// Buffers for multiplier coefficients, reused while the leaves are made.
    rooms: Mutex<Vec<Integers>>,
}

/// The block tables of `tiling`'s products, one for each of the first `limbs` primes.
pub(crate) fn block_tables(
    params: &RlweParams,
    tiling: &OltTiling,
    limbs: usize,
    points: usize,
) -> Vec<Arc<BlockTables>> {
    let (prefix, mw) = (right_prefix(tiling.window()), tiling.window().mw);
    (0..limbs).map(|limb| params.basis().blocks(limb, prefix, points, mw)).collect()
}

impl BlockInputs {
    /// Takes the ciphertexts of `tiling` over the first `limbs` primes, by blocks of `points`, for inner blocks `betas`
    /// only.
    pub(crate) fn new(
        params: &RlweParams,
        tiling: &OltTiling,
        limbs: usize,
        points: usize,
        betas: Range<usize>,
    ) -> Self {
        Self {
            tables: block_tables(params, tiling, limbs, points),
            betas,
            rows: Vec::new(),
            arrived: 0,
            rooms: Mutex::default(),
        }
    }

    /// A buffer of at least `count` coefficients, with arbitrary contents.
    fn room(&self, count: usize) -> Integers {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = rooms.iter().position(|room| room.0.len() >= count);
        let Some(place) = fits else {
            return Integers(vec![0; count]);
        };
        rooms.swap_remove(place)
    }

    fn give_back(&self, room: Integers) {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.push(room);
    }

    /// Takes the next ciphertext.
    pub(crate) fn push(&mut self, ct: Ciphertext) {
        let mb = self.betas.len();
        let (row, beta) = (self.arrived / mb, self.arrived % mb);
        self.arrived += 1;
        if beta == 0 {
            let room = self.tables.iter().map(|tiling| tiling.polynomials(2, mb));
            self.rows.push(room.collect());
        }
        let (b, a) = (ct.b.into_coeff(), ct.a.into_coeff());
        let limbs = self.tables.iter().zip(&mut self.rows[row]).enumerate();
        for (limb, (tiling, blocks)) in limbs {
            tiling.put_polynomials(blocks, beta, &[b.limb(limb), a.limb(limb)]);
        }
    }
}

/// Makes the leaves of `range`, in order, over the first `limbs` primes.
///
/// Goes prime by prime, and if there are many blocks, by one part of the points after another. This way the
/// ciphertexts, and the multipliers that reuse one buffer, stay in the last-level cache while all columns pass.
pub(crate) fn leaves(
    params: &RlweParams,
    tiling: &OltTiling,
    inputs: &BlockInputs,
    multiplier: &impl Multiplier,
    range: Range<usize>,
) -> Vec<Leaf> {
    let ((kb, _, nb), mb) = (tiling.blocks(), inputs.betas.len());
    let points = inputs.tables.first().map_or(1, |tiling| tiling.points());
    let panel = BlockTables::PANEL;
    // Columns (product, γ), numbered consecutively.
    let columns = range.start / kb..range.end.div_ceil(kb);
    let most = (MULTIPLIER_WORDS / (mb * points * panel)).max(1) * panel;
    let share = columns.len().div_ceil(rayon::current_num_threads());
    let share = share.next_multiple_of(panel).min(most);
    let work = Work { params, tiling, multiplier };
    let mut jobs = Vec::new();
    for p in columns.start / nb..columns.end.div_ceil(nb) {
        let first = columns.start.max(p * nb) - p * nb;
        let end = columns.end.min((p + 1) * nb) - p * nb;
        // Whole panels, as in multipliers that are held.
        for gamma in (first / panel * panel..end).step_by(share) {
            let gammas = gamma..nb.min(gamma + share);
            jobs.push(work.job(inputs.tables.len(), &range, p, gammas));
        }
    }
    let together = jobs.len().div_ceil(rayon::current_num_threads()).max(1);
    let small = multiplier.bits() <= 30 && multiplier.points(0).is_none();
    let parts = match inputs.rows.first() {
        Some(row) if small => inputs.tables[0].parts(&row[0]),
        _ => 1,
    };
    if parts > 1 {
        let read = |job: &mut Job| job.read(&work, inputs);
        jobs.par_iter_mut().for_each(read);
    }
    for limb in 0..inputs.tables.len() {
        for part in 0..parts {
            jobs.par_chunks_mut(together).for_each(|jobs| {
                let mut scratch = Scratch::default();
                let place = (limb, part, parts);
                for job in jobs {
                    job.multiply(&work, inputs, place, &mut scratch);
                }
            });
        }
    }
    for job in &mut jobs {
        if parts > 1 {
            inputs.give_back(mem::take(&mut job.integers));
        }
    }
    let leaves = jobs.into_iter().flat_map(|job| job.numbered(tiling));
    let mut leaves: Vec<_> = leaves.filter(|(number, _)| range.contains(number)).collect();
    leaves.sort_unstable_by_key(|(number, _)| *number);
    leaves.into_iter().map(|(_, leaf)| leaf).collect()
}

/// The inputs of leaves, besides the ciphertexts.
struct Work<'a, M> {
    params: &'a RlweParams,
    tiling: &'a OltTiling,
    multiplier: &'a M,
}

/// Columns γ of product `p` whose leaves are made together, and these leaves.
struct Job {
    p: usize,
    /// Starts at a panel.
    gammas: Range<usize>,
    /// Row blocks α with a wanted leaf.
    rows: Vec<Row>,
    /// If every part of the points makes the multipliers anew, their coefficients: by panel of columns, then by β, then
    /// by line.
    integers: Integers,
}

/// Coefficients, erased when dropped.
#[derive(Default)]
struct Integers(Vec<i32>);

impl Drop for Integers {
    fn drop(&mut self) {
        erase(&mut self.0);
    }
}

/// The leaves of a row block in all columns of a job.
struct Row {
    alpha: usize,
    leaves: Vec<Leaf>,
    /// Present while the parts of the points of one prime pass.
    sums: Option<PartSums>,
}

/// Buffers that successive jobs reuse, for multipliers as integers, as residues, and by their values; erased at the
/// end.
#[derive(Default)]
struct Scratch {
    integers: Zeroizing<Vec<i64>>,
    residues: Zeroizing<Vec<u64>>,
    room: FactorRoom,
    factors: Option<PointMatrix>,
}

impl<M: Multiplier> Work<'_, M> {
    /// A job for columns `gammas` of product `p`, over `limbs` primes, with room for the leaves in `range`.
    fn job(&self, limbs: usize, range: &Range<usize>, p: usize, gammas: Range<usize>) -> Job {
        let ids = self.params.ciphertext_ids(limbs);
        let wanted = self.tiling.degree() / self.tiling.window().mw;
        let room = || Leaf { b: vec![vec![0; wanted]; ids.len()], a: RnsPoly::scratch(self.params.basis(), &ids) };
        let rows = (0..self.tiling.blocks().0).filter(|&alpha| {
            let mut numbers = gammas.clone().map(|gamma| number(self.tiling, p, alpha, gamma));
            numbers.any(|number| range.contains(&number))
        });
        let rows = rows.map(|alpha| Row { alpha, leaves: gammas.clone().map(|_| room()).collect(), sums: None });
        Job { p, rows: rows.collect(), gammas, integers: Integers::default() }
    }
}

impl Job {
    /// Reads the coefficients of all multipliers, as they lie in memory.
    fn read(&mut self, work: &Work<'_, impl Multiplier>, inputs: &BlockInputs) {
        let betas = &inputs.betas;
        let prefix = right_prefix(work.tiling.window());
        let size = BlockTables::PANEL * prefix;
        let panels = self.gammas.len().div_ceil(BlockTables::PANEL);
        self.integers = inputs.room(panels * betas.len() * size);
        let panels = self.integers.0.chunks_exact_mut(betas.len() * size);
        for (first, out) in self.gammas.clone().step_by(BlockTables::PANEL).zip(panels) {
            let gammas = first..self.gammas.end.min(first + BlockTables::PANEL);
            if gammas.len() < BlockTables::PANEL {
                // Lines with no column.
                out.fill(0);
            }
            for (line, gamma) in gammas.enumerate() {
                let out = &mut out[line * prefix..];
                work.multiplier.blocks(self.p, betas.clone(), gamma, (prefix, size), out);
            }
        }
    }

    /// Computes the sums of all leaves modulo prime `limb`, as far as this part of the points goes.
    fn multiply(
        &mut self,
        work: &Work<'_, impl Multiplier>,
        inputs: &BlockInputs,
        (limb, part, parts): (usize, usize, usize),
        scratch: &mut Scratch,
    ) {
        let blocks = &inputs.tables[limb];
        let panels = self.gammas.start / BlockTables::PANEL..self.gammas.end.div_ceil(BlockTables::PANEL);
        let (_, mb, _) = work.tiling.blocks();
        // Held multipliers are for all inner blocks.
        let held = work.multiplier.points(limb).filter(|_| inputs.betas.len() == mb);
        let (factors, panels) = match held {
            Some(held) => (held, panels),
            None => {
                let place = (self.p, inputs.betas.clone(), self.gammas.clone());
                let read = &self.integers.0;
                let of = (limb, part, parts);
                let made = scratch.factors(work, blocks, of, place, read);
                (made, 0..panels.len())
            }
        };
        for row in &mut self.rows {
            let input = work.tiling.inputs_of(self.p, row.alpha).start / mb;
            let input = &inputs.rows[input][limb];
            let pairs = row.leaves.iter_mut();
            let pairs = pairs.map(|leaf| [&mut leaf.b[limb][..], leaf.a.limb_mut(limb)]);
            if parts == 1 {
                let mut out: Vec<&mut [u64]> = pairs.flatten().collect();
                blocks.multiply(factors, panels.clone(), input, &mut out);
                continue;
            }
            let mut sums = row.sums.take().unwrap_or_else(|| blocks.sums(factors.lines()));
            blocks.multiply_part(factors, part, input, &mut sums);
            if part + 1 < parts {
                row.sums = Some(sums);
            } else {
                let (mut b, mut a): (Vec<_>, Vec<_>) = pairs.map(|[b, a]| (b, a)).unzip();
                blocks.finish(sums, &mut b, &mut a);
            }
        }
    }

    /// The leaves with their numbers.
    fn numbered(self, tiling: &OltTiling) -> impl Iterator<Item = (usize, Leaf)> {
        let Job { p, gammas, rows, .. } = self;
        rows.into_iter().flat_map(move |row| {
            let numbers = gammas.clone().map(move |gamma| number(tiling, p, row.alpha, gamma));
            numbers.zip(row.leaves)
        })
    }
}

fn number(tiling: &OltTiling, p: usize, alpha: usize, gamma: usize) -> usize {
    let (kb, _, nb) = tiling.blocks();
    (p * nb + gamma) * kb + alpha
}

impl Scratch {
    /// The multipliers of product `p`, inner blocks `betas` and columns `gammas` by their values modulo prime `limb` at
    /// part `part` of the points, from the coefficients in `read` if there are any: γ by β.
    fn factors(
        &mut self,
        work: &Work<'_, impl Multiplier>,
        blocks: &BlockTables,
        (limb, part, parts): (usize, usize, usize),
        (p, betas, gammas): (usize, Range<usize>, Range<usize>),
        read: &[i32],
    ) -> &PointMatrix {
        let fits = |made: &PointMatrix| (made.lines(), made.terms()) == (gammas.len(), betas.len());
        let made = match self.factors.take().filter(fits) {
            Some(made) => self.factors.insert(made),
            None => {
                let made = blocks.factors(gammas.len(), betas.len(), parts);
                self.factors.insert(made)
            }
        };
        let prefix = right_prefix(work.tiling.window());
        let size = BlockTables::PANEL * prefix;
        let together = blocks.terms_together().min(betas.len());
        self.residues.resize(together * size, 0);
        if read.is_empty() {
            self.integers.resize(together * size, 0);
        }
        let pointwise = work.params.basis().ntt(limb).pointwise();
        for (panel, first) in gammas.clone().step_by(BlockTables::PANEL).enumerate() {
            for term in (0..betas.len()).step_by(together) {
                let terms = term..betas.len().min(term + together);
                let residues = &mut self.residues[..terms.len() * size];
                if read.is_empty() {
                    let integers = &mut self.integers[..residues.len()];
                    for (term, integers) in terms.zip(integers.chunks_exact_mut(size)) {
                        let lines = integers.chunks_exact_mut(prefix);
                        for (gamma, integers) in (first..gammas.end).zip(lines) {
                            work.multiplier.block(p, betas.start + term, gamma, integers);
                        }
                    }
                    work.multiplier.residues(pointwise, residues, integers);
                } else {
                    let at = (panel * betas.len() + term) * size;
                    pointwise.lift_small(residues, &read[at..][..residues.len()]);
                }
                blocks.put_factors(made, &mut self.room, part, panel, term, residues);
            }
        }
        made
    }
}

/// The multipliers of all blocks of product 0, by their values modulo the prime of each of `tables`: γ by β.
pub(crate) fn factors(
    params: &RlweParams,
    tiling: &OltTiling,
    tables: &[Arc<BlockTables>],
    multiplier: &impl Multiplier,
) -> Vec<PointMatrix> {
    let (_, mb, nb) = tiling.blocks();
    let work = Work { params, tiling, multiplier };
    let mut scratch = Scratch::default();
    let made = tables.iter().enumerate().map(|(limb, blocks)| {
        let place = (0, 0..mb, 0..nb);
        scratch.factors(&work, blocks, (limb, 0, 1), place, &[]);
        scratch.factors.take()
    });
    made.flatten().collect()
}

#[cfg(test)]
mod tests;
