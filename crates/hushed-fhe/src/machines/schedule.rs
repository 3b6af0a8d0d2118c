//! List scheduling: each range, once what it reads is there, to the machine that would end it first. A machine computes
//! one range at a time with all its cores, and sends and receives beside that.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

use super::pieces::Pieces;
use super::ranges::WorkRange;

/// A run on some machines.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub seconds: f64,
    /// Seconds that each machine computes.
    pub busy: Vec<f64>,
    /// Bytes that each machine sends and receives.
    pub moved: Vec<u64>,
    /// The machine of each range.
    pub places: Vec<usize>,
    /// When each range begins.
    pub begins: Vec<f64>,
    /// When what each range reads from other machines begins to arrive.
    fetched: Vec<f64>,
}

/// Machines of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cluster {
    pub machines: usize,
    /// Bytes per second, each way.
    pub rate: f64,
    /// Bytes of the request, which every machine but the first has to get.
    pub request: u64,
}

/// How far a range may be ahead of its turn in the order of the run: ahead of all others, values would wait in memory.
const TURN: f64 = 1.5;

/// Places ranges: in the order in which what they read is there and their turn comes, and of those the one first that
/// the longest chain of others waits for.
pub(super) fn schedule(pieces: &Pieces, ranges: &[WorkRange], cluster: &Cluster) -> Outcome {
    let order = Order::new(pieces, ranges);
    let mut left: Vec<usize> = order.before.iter().map(Vec::len).collect();
    let mut known = vec![0.0_f64; ranges.len()];
    let mut sum = 0.0;
    let turns = ranges.iter().map(|range| {
        sum += range.seconds;
        TURN * (sum - range.seconds) / cluster.machines.max(1) as f64
    });
    let turns: Vec<f64> = turns.collect();
    let next = |r: usize, known: f64| Next { at: known.max(turns[r]), chain: order.chain[r], range: r };
    let mut ready: BinaryHeap<Next> = (0..ranges.len()).filter(|&r| left[r] == 0).map(|r| next(r, 0.0)).collect();
    let mut placed = Placing::new(pieces, ranges.len(), cluster);
    while let Some(Next { range: r, .. }) = ready.pop() {
        let end = placed.place(r, &ranges[r], known[r]);
        for &after in &order.after[r] {
            known[after] = known[after].max(end);
            left[after] -= 1;
            if left[after] == 0 {
                ready.push(next(after, known[after]));
            }
        }
    }
    placed.outcome.seconds = placed.free.iter().copied().fold(0.0, f64::max);
    placed.outcome
}

/// What waits for what.
struct Order {
    /// The ranges whose results each range reads, and those that read its own.
    before: Vec<Vec<usize>>,
    after: Vec<Vec<usize>>,
    /// Seconds of the longest chain that begins with it.
    chain: Vec<f64>,
}

impl Order {
    fn new(pieces: &Pieces, ranges: &[WorkRange]) -> Order {
        let mut maker = vec![usize::MAX; pieces.vectors.len()];
        let mut adders: Vec<Vec<usize>> = vec![Vec::new(); pieces.sums.len()];
        let (mut before, mut after) = (Vec::with_capacity(ranges.len()), vec![Vec::new(); ranges.len()]);
        for (r, range) in ranges.iter().enumerate() {
            let made = range.reads.iter().map(|&(v, _)| maker[v as usize]).filter(|&of| of != usize::MAX);
            let added = range.finishes.iter().flat_map(|&(sums, _)| adders[sums as usize].iter().copied());
            let mut of: Vec<usize> = made.chain(added).collect();
            of.sort_unstable();
            of.dedup();
            of.iter().for_each(|&of| after[of].push(r));
            before.push(of);
            range.adds.iter().for_each(|&sums| adders[sums as usize].push(r));
            for piece in &pieces.all[range.pieces.clone()] {
                piece.makes.clone().for_each(|v| maker[v as usize] = r);
            }
        }
        let mut chain = vec![0.0_f64; ranges.len()];
        for (r, range) in ranges.iter().enumerate().rev() {
            chain[r] = range.seconds + after[r].iter().map(|&of| chain[of]).fold(0.0, f64::max);
        }
        Order { before, after, chain }
    }
}

/// A range that can be placed; the greatest is placed next.
struct Next {
    at: f64,
    chain: f64,
    range: usize,
}

impl Ord for Next {
    fn cmp(&self, other: &Self) -> Ordering {
        let soon = other.at.total_cmp(&self.at);
        soon.then_with(|| self.chain.total_cmp(&other.chain)).then(other.range.cmp(&self.range))
    }
}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Next {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Next {}

/// A schedule that is being made.
struct Placing<'a> {
    pieces: &'a Pieces,
    rate: f64,
    /// Words of a set of machines.
    words: usize,
    /// The machines that have each vector.
    on: Vec<u64>,
    /// By sums: the machines that have added to them.
    parts: Vec<BTreeSet<usize>>,
    /// When each machine has computed, received and sent what it got so far.
    free: Vec<f64>,
    inward: Vec<f64>,
    outward: Vec<f64>,
    local: Vec<u64>,
    outcome: Outcome,
}

impl<'a> Placing<'a> {
    fn new(pieces: &'a Pieces, ranges: usize, cluster: &Cluster) -> Placing<'a> {
        let machines = cluster.machines.max(1);
        let words = machines.div_ceil(64);
        let mut on = vec![0_u64; pieces.vectors.len() * words];
        for &v in &pieces.given {
            on[v as usize * words..(v as usize + 1) * words].fill(u64::MAX);
        }
        let request = |machine: usize| if machine == 0 { 0 } else { cluster.request };
        let begin: Vec<f64> =
            (0..machines).map(|machine| request(machine) as f64 / cluster.rate + pieces.before).collect();
        Placing {
            pieces,
            rate: cluster.rate,
            words,
            on,
            parts: vec![BTreeSet::new(); pieces.sums.len()],
            free: begin.clone(),
            inward: begin.clone(),
            outward: begin,
            local: vec![0; machines],
            outcome: Outcome {
                busy: vec![pieces.before; machines],
                moved: (0..machines).map(request).collect(),
                places: vec![0; ranges],
                begins: vec![0.0; ranges],
                fetched: vec![0.0; ranges],
                ..Outcome::default()
            },
        }
    }

    fn holders(&self, v: u32) -> &[u64] {
        &self.on[v as usize * self.words..(v as usize + 1) * self.words]
    }

    /// Places a range whose operands are known from `known` on. Returns when it ends.
    fn place(&mut self, r: usize, range: &WorkRange, known: f64) -> f64 {
        let (machines, rate) = (self.free.len(), self.rate);
        let mut local = std::mem::take(&mut self.local);
        local.fill(0);
        let mut all = 0;
        for &(v, bytes) in &range.reads {
            all += bytes;
            for (word, &mask) in self.holders(v).iter().enumerate() {
                let mut mask = mask;
                while mask != 0 {
                    if let Some(local) = local.get_mut(word * 64 + mask.trailing_zeros() as usize) {
                        *local += bytes;
                    }
                    mask &= mask - 1;
                }
            }
        }
        for &(sums, bytes) in &range.finishes {
            for &machine in &self.parts[sums as usize] {
                all += bytes;
                local[machine] += bytes;
            }
        }
        // When a machine could begin; what has to be sent counts twice, as it keeps others waiting.
        let cost = |machine: usize| match (all - local[machine]) as f64 / rate {
            0.0 => self.free[machine].max(known),
            far => self.free[machine].max(self.inward[machine].max(known) + far) + far,
        };
        let order = |&a: &usize, &b: &usize| cost(a).total_cmp(&cost(b)).then(a.cmp(&b));
        let place = (0..machines).min_by(order).unwrap_or(0);
        self.local = local;
        let from = self.fetched(range, place);
        let mut begin = self.free[place].max(known);
        self.outcome.fetched[r] = begin;
        if !from.is_empty() {
            let far: u64 = from.values().sum();
            self.outcome.fetched[r] = known.max(self.inward[place]);
            self.outcome.moved[place] += far;
            let mut arrived = self.outcome.fetched[r] + far as f64 / rate;
            self.inward[place] = arrived;
            for (source, bytes) in from {
                self.outward[source] = self.outward[source].max(known) + bytes as f64 / rate;
                self.outcome.moved[source] += bytes;
                arrived = arrived.max(self.outward[source]);
            }
            begin = begin.max(arrived);
        }
        let end = begin + range.seconds;
        self.free[place] = end;
        self.outcome.busy[place] += range.seconds;
        self.outcome.places[r] = place;
        self.outcome.begins[r] = begin;
        for piece in &self.pieces.all[range.pieces.clone()] {
            for v in piece.makes.clone() {
                self.on[v as usize * self.words + place / 64] |= 1 << (place % 64);
            }
        }
        for &sums in &range.adds {
            self.parts[sums as usize].insert(place);
        }
        end
    }

    /// The bytes that come from each machine to this one, which has them afterwards.
    fn fetched(&mut self, range: &WorkRange, place: usize) -> BTreeMap<usize, u64> {
        let mut from = BTreeMap::new();
        for &(v, bytes) in &range.reads {
            let holders = self.holders(v);
            let holds = |machine: usize| holders[machine / 64] >> (machine % 64) & 1 == 1;
            if holds(place) {
                continue;
            }
            // The holder that has the least to send.
            let source = (0..self.free.len()).filter(|&machine| holds(machine));
            let source = source.min_by(|&a, &b| self.outward[a].total_cmp(&self.outward[b]));
            *from.entry(source.unwrap_or(0)).or_default() += bytes;
            self.on[v as usize * self.words + place / 64] |= 1 << (place % 64);
        }
        for &(sums, bytes) in &range.finishes {
            for &machine in self.parts[sums as usize].iter().filter(|&&machine| machine != place) {
                *from.entry(machine).or_default() += bytes;
            }
        }
        from
    }
}

/// The most primes of vectors that a machine holds at a time.
pub(super) fn peak(pieces: &Pieces, ranges: &[WorkRange], outcome: &Outcome) -> usize {
    // From when to when a machine holds a vector: until its last reader there, or until it was sent.
    let mut held: HashMap<(usize, u32), (f64, f64)> = HashMap::new();
    let mut hold = |machine: usize, v: u32, from: f64, to: f64| {
        let span = held.entry((machine, v)).or_insert((from, to));
        *span = (span.0.min(from), span.1.max(to));
    };
    let mut made: HashMap<u32, usize> = HashMap::new();
    for (r, range) in ranges.iter().enumerate() {
        let (place, begin, fetch) = (outcome.places[r], outcome.begins[r], outcome.fetched[r]);
        for (v, _) in &range.reads {
            hold(place, *v, if made.get(v) == Some(&place) { begin } else { fetch.min(begin) }, begin);
            if let Some(&source) = made.get(v).filter(|&&source| source != place) {
                hold(source, *v, begin, begin);
            }
        }
        let mut now = begin;
        for piece in &pieces.all[range.pieces.clone()] {
            let end = now + piece.seconds;
            piece.reads.iter().for_each(|&v| hold(place, v, now, end));
            for v in piece.makes.clone() {
                made.insert(v, place);
                hold(place, v, now, end);
            }
            now = end;
        }
    }
    let mut changes: BTreeMap<usize, Vec<(f64, i64)>> = BTreeMap::new();
    for ((machine, v), (from, to)) in held {
        let limbs = pieces.vectors[v as usize] as i64;
        changes.entry(machine).or_default().extend([(from, limbs), (to, -limbs)]);
    }
    let most = changes.into_values().map(|mut changes| {
        changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut now = 0;
        changes
            .into_iter()
            .map(|(_, change)| {
                now += change;
                now
            })
            .max()
            .unwrap_or(0)
    });
    usize::try_from(most.max().unwrap_or(0)).unwrap_or(0)
}
