//! Ranges of pieces: what one machine does without a message. They end where few values are alive.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use hushed_ckks::{Ciphertext, CkksParams};

use super::pieces::{Piece, Pieces};

/// What a machine gets to do.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkRange {
    pub pieces: Range<usize>,
    pub seconds: f64,
    /// The vectors from outside that it reads, with their bytes.
    pub reads: Vec<(u32, u64)>,
    /// Sums that it finishes, with the bytes that each machine's part of them has.
    pub finishes: Vec<(u32, u64)>,
    /// Sums that it adds to.
    pub adds: Vec<u32>,
    /// The node before which it ends.
    pub end: usize,
}

/// Cuts of a run into ranges.
pub(super) struct Cuts<'a> {
    of: &'a Pieces,
    /// Bytes that are alive before each piece: made before it, and read by it or later.
    alive: Vec<u64>,
    bytes: Vec<u64>,
    /// After each piece, the node before which a range may end.
    end: Vec<Option<usize>>,
}

impl<'a> Cuts<'a> {
    pub fn new(of: &'a Pieces, params: &CkksParams) -> Cuts<'a> {
        let most = of.vectors.iter().chain(of.sums.iter().map(|(_, limbs)| limbs)).copied().max().unwrap_or(0);
        let bytes: Vec<u64> = (0..=most).map(|limbs| Ciphertext::list_bytes(params, limbs, 1) as u64).collect();
        let mut last = vec![0; of.vectors.len()];
        let mut begins = vec![0_usize; of.vectors.len()];
        for (i, piece) in of.all.iter().enumerate() {
            piece.reads.iter().for_each(|&v| last[v as usize] = i + 1);
            piece.makes.clone().for_each(|v| begins[v as usize] = i + 1);
        }
        let mut change = vec![0_i64; of.all.len() + 2];
        for ((begin, end), &limbs) in begins.into_iter().zip(last).zip(&of.vectors) {
            if end > begin {
                let size = bytes[limbs] as i64;
                change[begin] += size;
                change[end] -= size;
            }
        }
        let mut sum = 0;
        let alive = change.into_iter().map(|change| {
            sum += change;
            sum as u64
        });
        Cuts { alive: alive.collect(), end: ends(of), of, bytes }
    }

    /// Bytes of a vector of so many primes on its way to another machine.
    pub fn bytes(&self, limbs: usize) -> u64 {
        self.bytes.get(limbs).copied().unwrap_or(0)
    }

    /// Ranges of about this many seconds: each ends, once it has half of them, where the fewest bytes are alive, and
    /// where a tape ends.
    pub fn ranges(&self, target: f64) -> Vec<WorkRange> {
        let all = &self.of.all;
        let (mut ranges, mut from) = (Vec::new(), 0);
        while from < all.len() {
            let (mut seconds, mut best) = (0.0, None::<(u64, usize)>);
            for (i, piece) in all.iter().enumerate().skip(from) {
                if seconds + piece.seconds > target && best.is_some() {
                    break;
                }
                seconds += piece.seconds;
                let (alive, end) = (self.alive[i + 1], self.end[i]);
                let whole = end.is_some_and(|end| self.of.ends.contains(&end));
                // Of equal cuts the last one.
                let fewest = best.is_none_or(|(least, _)| alive <= least);
                let long = seconds >= target / 2.0 || i + 1 == all.len();
                if end.is_some() && (whole || long) && fewest {
                    best = Some((alive, i + 1));
                }
                if whole {
                    best = best.or(Some((alive, i + 1)));
                    break;
                }
            }
            let next = best.map_or(all.len(), |(_, next)| next);
            let end = self.end[next - 1].unwrap_or_default();
            ranges.push(WorkRange { end, ..self.range(from..next) });
            from = next;
        }
        ranges
    }

    fn range(&self, pieces: Range<usize>) -> WorkRange {
        let all = &self.of.all[pieces.clone()];
        // Made within it: numbers of vectors ascend with the pieces that make them.
        let within = all.iter().map(|piece| &piece.makes).filter(|makes| !makes.is_empty());
        let first = within.clone().map(|makes| makes.start).min().unwrap_or(0);
        let after = within.map(|makes| makes.end).max().unwrap_or(0);
        let mut reads: BTreeMap<u32, u64> = BTreeMap::new();
        let (mut finishes, mut adds): (BTreeMap<u32, u64>, Vec<u32>) = (BTreeMap::new(), Vec::new());
        for piece in all {
            for &v in piece.reads.iter().filter(|&&v| v < first || v >= after) {
                let bytes = self.bytes(piece.limbs.min(self.of.vectors[v as usize]));
                reads.entry(v).and_modify(|most| *most = bytes.max(*most)).or_insert(bytes);
            }
            if let Some((sums, vectors)) = piece.finishes {
                let (_, limbs) = self.of.sums[sums as usize];
                *finishes.entry(sums).or_default() += self.bytes(limbs) * vectors as u64;
            }
            adds.extend(piece.adds);
        }
        adds.dedup();
        WorkRange {
            seconds: all.iter().map(|piece| piece.seconds).sum(),
            reads: reads.into_iter().collect(),
            finishes: finishes.into_iter().collect(),
            adds,
            pieces,
            end: 0,
        }
    }
}

/// After each piece, the node before which a range may end: where neither a node nor sums that stay together are
/// divided. Nodes without pieces belong to the range before them, within their tape.
fn ends(of: &Pieces) -> Vec<Option<usize>> {
    let mut open: BTreeSet<u32> = BTreeSet::new();
    let after = |i: usize| of.all.get(i + 1).map(|piece| piece.node);
    let end = |(i, piece): (usize, &Piece)| {
        open.extend(piece.adds.filter(|sums| of.together.contains(sums)));
        if let Some((sums, _)) = piece.finishes {
            open.remove(&sums);
        }
        let tape = of.ends.iter().copied().find(|&end| end > piece.node);
        let next = after(i).or(tape).unwrap_or(piece.node + 1);
        (next != piece.node && open.is_empty()).then(|| tape.map_or(next, |end| end.min(next)))
    };
    of.all.iter().enumerate().map(end).collect()
}
