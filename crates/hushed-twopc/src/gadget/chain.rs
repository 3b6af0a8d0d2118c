//! Carries of x_c + x_s by a chain of look-ups, for many elements.
//!
//! The places are cut into digits, lowest first. For each digit one party holds a table and the other chooses an entry.
//! Let a be the chooser's bits of the digit, b the holder's, and c ⊕ c′ the shared carry into the digit. At place (a,
//! c) the holder's table has the bits \[a + b + (c ⊕ c′) ≥ 2^w\], so one look-up gives shares of the carry out of the
//! digit and, for digits of wanted bits, of the carries into each place after its first. No digit is compared on its
//! own, only whole prefixes, and nothing is tested for equality.
//!
//! Roles alternate: the holder of a digit's table has its share of the carry before the chooser does, so it chooses in
//! the next digit and sends entries and choice in one message. Each party begins for half of the words, so both send at
//! every step. Rounds: digits + 1. A digit of w bits takes w + 1 OTs per element (w for the lowest digit); a tree over
//! single-bit leaves ([`super::compare`]) takes 3·w, in fewer rounds where there are many places.

use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::ot::bit_table::{Chooser, Holder, Shape, Tables};
use crate::share::{SecretWords, wipe};
use crate::wire;
use hushed_net::{Kind, Party};

const STEP: Kind = Kind(0x0350);

/// The most bits of the lowest digit, which has no carry in, and of the other digits below the wanted bits.
const WIDTHS: [usize; 2] = [4, 3];
/// The most bits of a digit of the result that may be asked for: three take fewer OTs and steps than two, but half as
/// many bytes again.
pub(super) const WANTED: [usize; 2] = [2, 3];

/// Places of which the carries are wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    /// Their number.
    pub(super) all: usize,
    /// The first place into which the carry is wanted, or `all` for the carry out of all places alone.
    pub(super) wanted: usize,
    /// The most bits of a digit from there on, of [`WANTED`].
    pub(super) width: usize,
}

impl Places {
    /// For the carry out of all of them.
    pub(super) fn carry_out(all: usize) -> Self {
        Self { all, wanted: all, width: WANTED[0] }
    }
}

/// A digit of the sum.
#[derive(Clone, Copy, Debug)]
struct Digit {
    /// Its lowest place.
    place: usize,
    width: usize,
    /// Whether it has a carry in.
    carried: bool,
    /// Whether the carries into its places are wanted as well as the carry out.
    all: bool,
}

impl Digit {
    fn shape(&self, words: usize) -> Shape {
        Shape { words, bits: self.width + usize::from(self.carried), outputs: if self.all { self.width } else { 1 } }
    }
}

/// Cuts `places` into digits, lowest first. Digits from the first wanted place on give all their carries.
fn digits(Places { all: places, wanted, width }: Places) -> Vec<Digit> {
    let lowest = wanted.min(WIDTHS[0]);
    let parts = [(0, lowest, WIDTHS[0], false), (lowest, wanted, WIDTHS[1], false), (wanted, places, width, true)];
    let cut = |(from, to, width, all): (usize, usize, usize, bool)| {
        // As even as possible.
        let count = (to - from).div_ceil(width);
        let edge = move |k: usize| from + (k * (to - from)).div_ceil(count.max(1));
        (0..count).map(move |k| Digit { place: edge(k), width: edge(k + 1) - edge(k), carried: edge(k) > 0, all })
    };
    parts.into_iter().flat_map(cut).collect()
}

/// Rounds of a chain over this many places for one carry.
pub(super) fn rounds(places: usize) -> u64 {
    1 + digits(Places::carry_out(places)).len() as u64
}

/// Cost of [`carries`].
pub(super) fn carries_cost(words: usize, places: Places) -> Cost {
    let halves = [words.div_ceil(2), words / 2];
    let digits = digits(places);
    // The client chooses in digit k for half h of the words if h + k is even.
    let by_client = |half: usize, k: usize| (half + k).is_multiple_of(2);
    let mut cost = Cost::ZERO;
    for step in 0..=digits.len() {
        let mut sent = [0u64; 2];
        for (half, words) in halves.into_iter().enumerate() {
            // The chooser in this digit held the table of the one before.
            let sender = usize::from(!by_client(half, step));
            if let Some(k) = step.checked_sub(1) {
                sent[sender] += 8 * digits[k].shape(words).entry_words() as u64;
            }
            if let Some(digit) = digits.get(step) {
                let shape = digit.shape(words);
                sent[sender] += 8 * shape.choice_words() as u64;
                cost = match by_client(half, step) {
                    true => cost.with_cots(cost.cots_client, cost.cots_server + shape.cots()),
                    false => cost.with_cots(cost.cots_client + shape.cots(), cost.cots_server),
                };
            }
        }
        let [client, server] = sent;
        cost = cost + Cost::exchange(client, server);
    }
    cost
}

/// XOR shares of the carries into the places after the first wanted one, up to that out of all places, preceded by the
/// carry into the first wanted place unless that is 0. `own` has this party's planes, `words` words each.
pub(super) fn carries(
    ctx: &mut Ctx,
    own: &[u64],
    words: usize,
    places: Places,
) -> Result<Vec<SecretWords>, TwopcError> {
    let (digits, wanted) = (digits(places), places.wanted);
    let mut halves = [0, 1].map(|number| Half::new(number, words, digits.len()));
    let me = ctx.party();
    let first = ctx.sends_first();
    for choosing in [!first, first] {
        for (k, digit) in digits.iter().enumerate() {
            for half in &mut halves {
                if half.chooses(me, k) == choosing {
                    half.draw(ctx, me, k, digit)?;
                }
            }
        }
    }
    for step in 0..=digits.len() {
        let mut message = Vec::new();
        let mut theirs = 0;
        for half in &mut halves {
            match half.chooses(me, step) {
                true => half.speak(step, &digits, own, words, &mut message),
                false => theirs += half.heard(step, &digits),
            }
        }
        let mut bytes = Vec::with_capacity(8 * message.len());
        wire::bits_into(&message, 64 * message.len(), &mut bytes);
        let reply = wire::exchange(&mut ctx.session, STEP, bytes, 8 * theirs)?;
        let reply = wire::bits_from(&reply, 64 * theirs);
        let mut rest = reply.as_slice();
        for half in halves.iter_mut().filter(|h| !h.chooses(me, step)) {
            let (mine, after) = rest
                .split_at_checked(half.heard(step, &digits))
                .ok_or(TwopcError::PeerMisbehaved { what: "message length" })?;
            half.listen(step, &digits, mine);
            rest = after;
        }
    }
    let [first, second] = halves.map(|h| h.shares);
    let mut out = Vec::new();
    for ((digit, first), second) in digits.iter().zip(&first).zip(&second) {
        let outputs = digit.shape(0).outputs;
        // Carries in the middle of the lower places are not needed.
        if !digit.all && digit.place + digit.width < wanted {
            continue;
        }
        for o in 0..outputs {
            let mut plane = SecretWords::with_room(words);
            for (part, len) in [(first, words.div_ceil(2)), (second, words / 2)] {
                plane.extend_from_slice(&part[o * len..(o + 1) * len]);
            }
            out.push(plane);
        }
    }
    Ok(out)
}

/// The first or second half of the words, as one party sees it.
struct Half {
    number: usize,
    first: usize,
    len: usize,
    /// Per digit one of these two is set, according to the party's role.
    choosers: Vec<Option<Chooser>>,
    holders: Vec<Option<Holder>>,
    /// The peer's last choice.
    choice: Vec<u64>,
    /// This party's shares of each digit's outputs.
    shares: Vec<SecretWords>,
}

impl Half {
    fn new(number: usize, words: usize, digits: usize) -> Half {
        let half = words.div_ceil(2);
        let (first, len) = match number {
            0 => (0, half),
            _ => (half, words - half),
        };
        Half {
            number,
            first,
            len,
            choosers: (0..digits).map(|_| None).collect(),
            holders: (0..digits).map(|_| None).collect(),
            choice: Vec::new(),
            shares: Vec::new(),
        }
    }

    /// Whether `party` chooses in digit `k`, having held the table of the digit before.
    fn chooses(&self, party: Party, k: usize) -> bool {
        (self.number + k).is_multiple_of(2) == (party == Party::Client)
    }

    fn draw(&mut self, ctx: &mut Ctx, me: Party, k: usize, digit: &Digit) -> Result<(), TwopcError> {
        let shape = digit.shape(self.len);
        match self.chooses(me, k) {
            true => self.choosers[k] = Some(Chooser::draw(ctx, shape)?),
            false => self.holders[k] = Some(Holder::draw(ctx, shape)?),
        }
        Ok(())
    }

    /// This party's bits of the digit, for this half's words.
    fn bits(&self, digit: &Digit, own: &[u64], words: usize) -> SecretWords {
        let mut bits = SecretWords::with_room(digit.width * self.len);
        for place in digit.place..digit.place + digit.width {
            bits.extend_from_slice(&own[place * words + self.first..][..self.len]);
        }
        bits
    }

    /// The last output of the previous digit: the share of the carry into digit `k`.
    fn carry_in(&self, k: usize) -> &[u64] {
        let before = k.checked_sub(1).and_then(|k| self.shares.get(k));
        before.map_or(&[], |shares| &shares[shares.len() - self.len..])
    }

    /// Appends the entries of the previous digit, then the choice in this one.
    fn speak(&mut self, step: usize, digits: &[Digit], own: &[u64], words: usize, message: &mut Vec<u64>) {
        if let Some(k) = step.checked_sub(1)
            && let Some(holder) = &self.holders[k]
        {
            let digit = &digits[k];
            let bits = self.bits(digit, own, words);
            let (carry, len) = (self.carry_in(k), self.len);
            let table = |w: usize, row: &mut Tables| {
                let b = std::array::from_fn(|i| match i < digit.width {
                    true => bits[i * len + w],
                    false => 0,
                });
                let carry = digit.carried.then(|| carry[w]);
                fill(digit, b, carry, row);
            };
            let shares = holder.answer(&self.choice, message, table);
            self.shares.push(shares);
        }
        if let Some(Some(chooser)) = self.choosers.get(step) {
            let digit = &digits[step];
            let mut place = self.bits(digit, own, words);
            if digit.carried {
                // Not `extend`: the bits have no spare capacity, and growing would leave a copy behind.
                let bits = std::mem::replace(&mut place, SecretWords::with_room(0));
                place = SecretWords::with_room(bits.len() + self.len);
                place.extend_from_slice(&bits);
                place.extend_from_slice(self.carry_in(step));
            }
            chooser.choose(&place, message);
        }
    }

    /// Number of words that the peer sends for this half.
    fn heard(&self, step: usize, digits: &[Digit]) -> usize {
        let entries = step.checked_sub(1).map(|k| &digits[k]);
        entries.map_or(0, |d| d.shape(self.len).entry_words())
            + digits.get(step).map_or(0, |d| d.shape(self.len).choice_words())
    }

    /// Reads what the peer's [`Half::speak`] sent.
    fn listen(&mut self, step: usize, digits: &[Digit], message: &[u64]) {
        let mut choice = message;
        if let Some(k) = step.checked_sub(1)
            && let Some(chooser) = &self.choosers[k]
        {
            let (entries, rest) = message.split_at(digits[k].shape(self.len).entry_words());
            self.shares.push(chooser.read(entries));
            choice = rest;
        }
        self.choice = choice.to_vec();
    }
}

/// The holder's tables for one word of elements, from its bits `b` of the digit and its share of the carry.
fn fill(digit: &Digit, b: [u64; 4], carry: Option<u64>, row: &mut Tables) {
    let from = if digit.all { 1 } else { digit.width };
    for width in from..=digit.width {
        let output = width - from;
        let top = (1 << width) - 1;
        // [b = v] for every v.
        let mut is = [0u64; 16];
        is[0] = u64::MAX;
        for (k, bit) in b.iter().take(width).enumerate() {
            for v in 0..1 << k {
                is[v | 1 << k] = is[v] & bit;
                is[v] &= !bit;
            }
        }
        // [b ≥ 2^w − a], for a from 0 up.
        let mut reached = 0;
        for a in 0..=top {
            if a > 0 {
                reached |= is[top + 1 - a];
            }
            let passes = is[top - a];
            for place in (a..1 << digit.width).step_by(top + 1) {
                match carry {
                    None => row[place][output] = reached,
                    Some(own) => {
                        row[place][output] = reached | (passes & own);
                        row[place | 1 << digit.width][output] = reached | (passes & !own);
                    }
                }
            }
        }
        wipe(&mut is);
    }
}

#[cfg(test)]
mod tests {
    use super::super::planes::bit_planes;
    use super::*;
    use crate::testing::{assert_cost, run_counted};
    use hushed_math::rng::SecretRng;

    #[test]
    fn digits_cover_all_places() {
        for places in 1..=63 {
            for (wanted, width) in (0..=places).flat_map(|wanted| WANTED.map(|width| (wanted, width))) {
                let digits = digits(Places { all: places, wanted, width });
                let mut next = 0;
                for d in &digits {
                    assert_eq!((d.place, d.all), (next, next >= wanted));
                    assert_eq!(d.carried, next > 0);
                    let shape = d.shape(1);
                    assert!(shape.bits >= 1 && shape.bits <= 4 && d.width >= 1);
                    assert!(shape.outputs << shape.bits <= 64);
                    next += d.width;
                }
                assert_eq!(next, places);
            }
        }
    }

    #[test]
    fn all_carries_of_random_and_extreme_shares() {
        let mut rng = SecretRng::insecure_from_seed(4);
        for places in [1usize, 2, 4, 5, 9, 16, 31, 63] {
            let mask = (1u64 << places) - 1;
            let edges = [0, mask, mask >> 1, 1, 0];
            let pairs: Vec<(u64, u64)> = (edges.iter())
                .flat_map(|a| edges.iter().map(|b| (*a, *b)))
                .chain((0..140).map(|_| (rng.next_u64() & mask, rng.next_u64() & mask)))
                .collect();
            let (a, b): (Vec<u64>, Vec<u64>) = pairs.iter().copied().unzip();
            let words = a.len().div_ceil(64);
            let firsts = [0, places / 2, places.saturating_sub(1), places];
            for (wanted, width) in firsts.into_iter().flat_map(|wanted| WANTED.map(|width| (wanted, width))) {
                let cut = Places { all: places, wanted, width };
                let own = |v: &[u64]| bit_planes(v, places as u32);
                let (x, y, stats) = run_counted(
                    |ctx| carries(ctx, &own(&a), words, cut).unwrap(),
                    |ctx| carries(ctx, &own(&b), words, cut).unwrap(),
                );
                let cost = carries_cost(words, cut);
                assert_cost(&stats, cost);
                if wanted == places {
                    assert_eq!(cost.rounds, rounds(places));
                }
                let first = wanted.max(1);
                assert_eq!(x.len(), places + 1 - first);
                for (into, (x, y)) in (first..).zip(x.iter().zip(&y)) {
                    let low = (1u128 << into) - 1;
                    for (i, (a, b)) in pairs.iter().enumerate() {
                        let sum = (u128::from(*a) & low) + (u128::from(*b) & low);
                        let bit = ((x[i / 64] ^ y[i / 64]) >> (i % 64)) & 1;
                        assert_eq!(u128::from(bit), sum >> into, "{places} {wanted} {into} {i}");
                    }
                }
            }
        }
    }
}
