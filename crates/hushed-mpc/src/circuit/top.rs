//! Opens the indices of the largest numbers of shared rows to the client, one after another.
//!
//! The largest is found by a tournament ([`Shares::tournament`]) and its index opened to the client. The second is
//! among those that lost to the largest: one per level, at places that follow from its index, so only the client knows
//! them ([`Shares::pick`]). The third is among these and those that lost to the second earlier, and so on. Each further
//! index costs a pick and a comparison of few numbers instead of another tournament. The client always picks the same
//! number, and lowers its share of what must not win: numbers already found, and picks made where there was nothing to
//! pick. The server sees the same messages whichever won.

use hushed_model::StepId;
use hushed_net::Party;
use hushed_twopc::share::Ring;

use crate::RunError;
use crate::shares::{Local, Shares};

/// The numbers found in shared rows, largest first.
pub(crate) struct Top<T> {
    /// The indices for each row, at the client.
    pub places: Option<Vec<Vec<u32>>>,
    /// The numbers there, still shared: for each rank, one per row.
    pub values: Vec<T>,
    /// An opened index that no column has, or that cannot come next; 0 stands for it. The run goes on to its last
    /// message and then ends with this error, so that its timing tells less to a server that provoked it.
    pub fault: Option<RunError>,
}

/// The index of the largest number of each row, as from [`open_top`] with `top` 1, in fewer messages and slightly more
/// bytes: the last numbers are compared all at once, and nothing is kept for a second.
pub(crate) fn open_largest_alone<S: Shares>(
    on: &mut S,
    x: &S::Share,
    (rows, columns): (usize, usize),
    site: &'static str,
) -> Result<Option<Vec<u32>>, RunError> {
    let ring = ring_of_places(columns);
    let opened = on.step(StepId::outside(site), |on| {
        let numbers = || (0..rows * columns).map(|i| (i % columns) as i64).collect();
        let numbers = on.known(Party::Server, rows * columns, numbers);
        let with = on.add_known(&x.times(0), &numbers);
        let [_, places] = on.largest_of_few(x, &with, rows, columns)?;
        on.open(&places.reduce_to(ring), 0, ring)
    })?;
    let column = |&word: &u64| column(word, columns).ok_or_else(|| no_such(word, columns));
    opened.map(|words| words.iter().map(column).collect()).transpose()
}

/// The opened column, if it exists.
fn column(place: u64, columns: usize) -> Option<u32> {
    let column = u32::try_from(place).ok();
    column.filter(|&column| (column as usize) < columns)
}

fn no_such(place: u64, places: usize) -> RunError {
    RunError::NoSuchPlace { place, places }
}

/// The ring in which indices of this many columns are opened.
fn ring_of_places(columns: usize) -> Ring {
    Ring::new((usize::BITS - columns.saturating_sub(1).leading_zeros()).max(1))
}

/// Finds the `top` largest numbers of each row and opens their indices to the client; ties come in any order. `top` is
/// at most `columns`, and numbers of a row differ by less than 2^(ℓ−1) − 1. `site` names each step in costs.
pub(crate) fn open_top<S: Shares>(
    on: &mut S,
    x: &S::Share,
    (rows, columns): (usize, usize),
    top: usize,
    site: &'static str,
) -> Result<Top<S::Share>, RunError> {
    let ring = ring_of_places(columns);
    let (mut found, mut values) = (Some(vec![Vec::with_capacity(top); rows]), Vec::new());
    let mut trees = Trees::new(x.ring(), rows, columns);
    let mut pool = None;
    let mut fault = None;
    for _ in 0..top {
        let words = on.step(StepId::outside(site), |on| {
            let now = match pool.take() {
                None => Pool::first(on, x, rows, columns)?,
                Some(last) => Pool::next(on, last, &trees)?,
            };
            let now = pool.insert(now);
            let [best, places] = on.largest_of_few(&now.values, &now.columns, rows, now.width)?;
            values.push(best);
            on.open(&places.reduce_to(ring), 0, ring)
        })?;
        found = found.zip(words).map(|(mut found, words)| {
            for (r, (row, place)) in found.iter_mut().zip(words).enumerate() {
                let place = trees.known_place(r, place).unwrap_or_else(|wrong| {
                    fault.get_or_insert(wrong);
                    0
                });
                row.push(place);
            }
            found
        });
    }
    Ok(Top { places: found, values, fault })
}

/// The candidates for the next largest of each row, rows × `width`, with their columns.
struct Pool<T> {
    values: T,
    columns: T,
    width: usize,
    /// What can be picked: the values of every level but the last, then the columns of every level but the first and
    /// the last. Each level has one vector per row, with lengths in `lengths`.
    levels: T,
    lengths: Vec<usize>,
}

impl<T: Local> Pool<T> {
    /// The winners of the tournament.
    fn first<S: Shares<Share = T>>(on: &mut S, x: &T, rows: usize, columns: usize) -> Result<Pool<T>, RunError> {
        let mut levels = on.tournament(x, rows, columns)?;
        let Some([values, columns]) = levels.pop() else {
            return Err(RunError::WrongInput);
        };
        let (mut parts, mut of_places) = (Vec::new(), Vec::new());
        for [values, columns] in levels {
            parts.push(values);
            of_places.push(columns);
        }
        // In the first level a number's column is its position.
        parts.extend(of_places.into_iter().skip(1));
        let lengths = |part: &T| std::iter::repeat_n(part.elements() / rows.max(1), rows);
        Ok(Pool {
            values,
            columns,
            width: 1,
            lengths: parts.iter().flat_map(lengths).collect(),
            levels: T::concat(x.ring(), &parts),
        })
    }

    /// Adds the numbers that lost to the last ones found.
    fn next<S: Shares<Share = T>>(on: &mut S, last: Pool<T>, trees: &Trees) -> Result<Pool<T>, RunError> {
        let (ring, rows, depth) = (last.values.ring(), trees.rows, trees.depth());
        let (new, width) = (rows * depth, last.width + depth);
        let places = on.known(Party::Client, last.lengths.len(), || trees.picked());
        let picked = on.pick(&last.levels, &last.lengths, &places)?;
        let values = picked.gather(new, || (0..new).collect());
        let columns = picked.gather(new - rows, || (new..2 * new - rows).collect());
        let first = on.known(Party::Client, rows, || trees.of_level(0));
        let first = on.shared(&first, ring);
        let joined = |parts: &[T]| {
            let old = last.width;
            let row = move |r: usize| {
                let of_levels = (0..depth).map(move |level| rows * (old + level) + r);
                (r * old..(r + 1) * old).chain(of_levels)
            };
            T::concat(ring, parts).gather(rows * width, || (0..rows).flat_map(row).collect())
        };
        let values = joined(&[last.values.clone(), values]);
        let columns = joined(&[last.columns.clone(), first, columns]);
        let lowered = on.known(Party::Client, rows * width, || trees.lowered.concat());
        Ok(Pool { values: on.add_known(&values, &lowered), columns, width, ..last })
    }
}

/// What the client knows of each row's tournament. A party that knows nothing keeps the initial state.
struct Trees {
    rows: usize,
    /// The widths of the levels, from all columns down to 1.
    widths: Vec<usize>,
    /// Added to a number that must not win: as it is at most the largest, this takes it below all others, by as much as
    /// the ring can still tell from a number above.
    below: i64,
    /// For each row, the node (level and number) of each number of its pool, below which nothing has been found; `None`
    /// for a number that must not win.
    nodes: Vec<Vec<Option<(usize, usize)>>>,
    /// For each row, what is added to its next pool.
    lowered: Vec<Vec<i64>>,
    /// For each row, the nodes that are picked next, one per level.
    next: Vec<Vec<usize>>,
}

impl Trees {
    fn new(ring: Ring, rows: usize, columns: usize) -> Trees {
        let next = |width: &usize| (*width > 1).then(|| width.div_ceil(2));
        let widths: Vec<usize> = std::iter::successors(Some(columns), next).collect();
        Trees {
            rows,
            nodes: vec![vec![Some((widths.len() - 1, 0))]; rows],
            widths,
            below: -(1i64 << (ring.bits() - 1)) + 1,
            lowered: vec![Vec::new(); rows],
            next: vec![Vec::new(); rows],
        }
    }

    /// The number of levels with matches.
    fn depth(&self) -> usize {
        self.widths.len() - 1
    }

    /// Records an opened index of a row, if it can come next, and prepares to pick the numbers that lost to it.
    fn known_place(&mut self, row: usize, place: u64) -> Result<u32, RunError> {
        let columns = self.widths.first().copied().unwrap_or(0);
        let known = column(place, columns);
        // This column's node in every level.
        let mut node = known.unwrap_or(0) as usize;
        let mut path = Vec::with_capacity(self.widths.len());
        for width in &self.widths {
            path.push(node);
            node = if node < width / 2 { node } else { node - width / 2 };
        }
        let nodes = &mut self.nodes[row];
        let on_path = |node: &Option<(usize, usize)>| node.is_some_and(|(l, n)| path[l] == n);
        let won = nodes.iter().position(on_path);
        let mut lowered = vec![0; nodes.len()];
        let top = won.and_then(|at| {
            lowered[at] = self.below;
            nodes[at].take().map(|(level, _)| level)
        });
        self.next[row].clear();
        for (level, &width) in self.widths[..self.widths.len() - 1].iter().enumerate() {
            let met = match path[level] {
                _ if top.is_none_or(|top| level >= top) => None,
                n if n < width / 2 => Some(n + width / 2),
                n if n < width / 2 * 2 => Some(n - width / 2),
                _ => None,
            };
            // If it met nobody, or a larger number: its own node, which is not below any that is left.
            self.next[row].push(met.unwrap_or(path[level]));
            lowered.push(met.map_or(self.below, |_| 0));
            nodes.push(met.map(|n| (level, n)));
        }
        self.lowered[row] = lowered;
        match (known, top) {
            (Some(column), Some(_)) => Ok(column),
            _ => Err(no_such(place, columns)),
        }
    }

    /// The nodes of a level that are picked next, one per row.
    fn of_level(&self, level: usize) -> Vec<i64> {
        self.next.iter().map(|nodes| nodes[level] as i64).collect()
    }

    /// The nodes that are picked next, level by level, then again those of all levels but the first, for their columns.
    fn picked(&self) -> Vec<i64> {
        let levels = (0..self.depth()).chain(1..self.depth());
        levels.flat_map(|level| self.of_level(level)).collect()
    }
}

#[cfg(test)]
mod tests {
    use hushed_math::rng::SecretRng;
    use hushed_twopc::share::Share;
    use hushed_twopc::testing::{reveal_signed, share_signed};

    use super::*;
    use crate::formats::{COSINE, LOGIT};
    use crate::testing::run_pair;

    /// All indices by descending numbers, as far apart as the rings allow, some of them equal: each comes once.
    #[test]
    fn places_come_in_the_order_of_their_numbers() {
        let mut rng = SecretRng::insecure_from_seed(11);
        for ring in [LOGIT.ring, COSINE.ring] {
            let (rows, columns, largest) = (3, 9, (1i64 << (ring.bits() - 2)) - 1);
            let random = |rng: &mut SecretRng| {
                let word = (rng.next_u64() >> 1) as i64;
                word % (2 * largest + 1) - largest
            };
            let mut x: Vec<i64> = (0..rows * columns).map(|_| random(&mut rng)).collect();
            x[..columns].fill(7);
            (x[columns], x[columns + 1], x[columns + 2]) = (-largest, largest, largest);
            let (x0, x1) = share_signed(ring, &x, 5);
            let top = |party: &mut crate::Protocol, x| open_top(party, x, (rows, columns), columns, "nearest").unwrap();
            let (client, server) = run_pair(|party| top(party, &x0), |party| top(party, &x1));
            assert!(server.places.is_none());
            // The values are those at the indices.
            let values = client.values.iter().zip(&server.values);
            let values: Vec<Vec<i64>> = values.map(|(a, b)| reveal_signed(a, b)).collect();
            for (r, (row, places)) in x.chunks(columns).zip(client.places.unwrap()).enumerate() {
                let there = values.iter().map(|of_rank| of_rank[r]);
                assert!(there.eq(places.iter().map(|&p| row[p as usize])));
                let mut expected = row.to_vec();
                expected.sort_by(|a, b| b.cmp(a));
                let found: Vec<i64> = places.iter().map(|&p| row[p as usize]).collect();
                assert_eq!(found, expected);
                let mut all = places;
                all.sort_unstable();
                assert!(all.into_iter().eq(0..columns as u32));
            }
        }
    }

    /// A server that adds to the places it opens, so that they are impossible: the client sends as many messages and
    /// bytes as to any other, to the last, and then has an error.
    #[test]
    fn a_client_sends_the_same_to_a_server_that_opens_impossible_places() {
        let (columns, top) = (9, 3);
        let x: Vec<i64> = (0..columns as i64).map(|i| 100 - i).collect();
        let (x0, x1) = share_signed(LOGIT.ring, &x, 5);
        let bent = |party: &mut crate::Protocol, by: i64| {
            let (trees, ring) = (Trees::new(x1.ring(), 1, columns), ring_of_places(columns));
            let mut pool = None;
            for _ in 0..top {
                let now = match pool.take() {
                    None => Pool::first(party, &x1, 1, columns).unwrap(),
                    Some(last) => Pool::next(party, last, &trees).unwrap(),
                };
                let now = pool.insert(now);
                let few = party.largest_of_few(&now.values, &now.columns, 1, now.width);
                let [_, places] = few.unwrap();
                let added = Share::public(Party::Client, ring, &[by]).into_words();
                let places = places.reduce_to(ring).add(&Share::new(ring, added));
                party.open(&places, 0, ring).unwrap();
            }
        };
        let shape = (1, columns);
        let run = |by| {
            let client = |party: &mut crate::Protocol| {
                let found = open_top(party, &x0, shape, top, "nearest").unwrap();
                (found.fault, party.ctx().session.stats())
            };
            let ((fault, stats), ()) = run_pair(client, |party| bent(party, by));
            (fault, stats.frames_sent, stats.bytes_sent)
        };
        let (honest, frames, bytes) = run(0);
        assert!(honest.is_none());
        // The largest is in column 0.
        let (fault, sent, of) = run(columns as i64);
        assert!(matches!(fault, Some(RunError::NoSuchPlace { place: 9, places: 9 })));
        assert_eq!((sent, of), (frames, bytes));
    }

    #[test]
    fn a_place_that_cannot_come_next_is_an_error() {
        let mut trees = Trees::new(Ring::new(20), 1, 9);
        let wrong = |trees: &mut Trees, place| {
            let error = trees.known_place(0, place).err();
            matches!(error, Some(RunError::NoSuchPlace { places: 9, .. }))
        };
        assert_eq!(trees.known_place(0, 8).unwrap(), 8);
        for place in [8, 9, u64::MAX] {
            assert!(wrong(&mut trees, place), "{place}");
        }
        assert_eq!(trees.known_place(0, 3).unwrap(), 3);
        assert!(wrong(&mut trees, 3) && wrong(&mut trees, 8));
    }
}
