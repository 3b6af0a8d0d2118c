//! Look-ups in tables of a few bits by one-of-N OT, N = 2^b ≤ 16, as XOR shares, 64 elements per word.
//!
//! The holder has a table of N places, the chooser a place x. As in [`one_of_n`](super::one_of_n), the chooser knows
//! the pad P_c of a random place c and no other and sends e = x ⊕ c; the holder sends, for j = 1 … N − 1,
//!
//! > m_j = T(j ⊕ e) ⊕ s ⊕ P_j with its share s = T(e) ⊕ P₀,
//!
//! so that the chooser's share is P_c ⊕ m_c (m₀ = 0). The pads of a table are packed into one word, and words of 64
//! elements are transposed into planes; from there on everything is bitwise, and no bit decides a branch or an address.
//!
//! OTs, hashes and pads come before the first message, so both parties make theirs at once. Bits per element: b from
//! the chooser, outputs·(N − 1) from the holder; b OTs. (Look-ups by OT in place of gates: Dessouky et al., NDSS 2017.)
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::one_of_n::{Folded, multiples};
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::share::{SecretWords, wipe};
use hushed_math::bits::{Block, TABLE, transpose_words};
use zeroize::Zeroizing;

/// The most places in a table.
const PLACES: usize = TABLE;
/// The most bits in an entry.
const OUTPUTS: usize = 4;
/// Words of elements whose OTs are drawn at once: a mebibyte of blocks, which fits a second-level cache.
const WORDS_A_DRAW: usize = 1 << 10;

/// The tables of one word of elements: bit o of the entry at place j is `[j][o]`.
pub(crate) type Tables = [[u64; OUTPUTS]; PLACES];

/// Look-ups of one shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Words of 64 elements.
    pub words: usize,
    /// b, the number of choosing bits: 1 to 4.
    pub bits: usize,
    /// Bits of an entry, 1 to 4.
    pub outputs: usize,
}

impl Shape {
    fn places(&self) -> usize {
        1 << self.bits
    }

    /// Words of the chooser's message.
    pub fn choice_words(&self) -> usize {
        self.bits * self.words
    }

    /// Words of the holder's message.
    pub fn entry_words(&self) -> usize {
        (self.places() - 1) * self.outputs * self.words
    }

    /// Number of OTs.
    pub fn cots(&self) -> u64 {
        64 * self.choice_words() as u64
    }
}

/// The chooser's state, in planes of `words` words.
pub(crate) struct Chooser {
    shape: Shape,
    /// c: b planes.
    place: SecretWords,
    /// P_c: `outputs` planes.
    pads: SecretWords,
}

impl Chooser {
    /// Draws its OTs.
    #[expect(clippy::indexing_slicing, reason = "planes have `words` words each, and a square 64")]
    pub fn draw(ctx: &mut Ctx, shape: Shape) -> Result<Chooser, TwopcError> {
        let words = shape.words;
        let mut place = SecretWords::from(vec![0; words * shape.bits]);
        let mut pads = SecretWords::from(vec![0; words * shape.outputs]);
        let mut hashed = Zeroizing::new([Block::ZERO; 64]);
        let mut square = Zeroizing::new([0u64; 64]);
        let mask = (1 << shape.outputs) - 1;
        for at in (0..words).step_by(WORDS_A_DRAW) {
            let now = WORDS_A_DRAW.min(words - at);
            let folded = Folded::recv(ctx, 64 * now, shape.bits as u32, |k, c| {
                place[k as usize * words + at..][..now].copy_from_slice(&c);
            })?;
            for (w, chunk) in folded.blocks.chunks(64).enumerate() {
                let first = folded.first + 64 * w as u64;
                (folded.hash).places(first, shape.places(), chunk, hashed.as_mut());
                for (word, pad) in square.iter_mut().zip(hashed.iter()) {
                    *word = pad.low_u64() & mask;
                }
                transpose_words(&mut square);
                for (o, bits) in square.iter().take(shape.outputs).enumerate() {
                    pads[o * words + at + w] = *bits;
                }
            }
        }
        Ok(Chooser { shape, place, pads })
    }

    /// Appends the message for the place whose bits are the planes `x`.
    pub fn choose(&self, x: &[u64], message: &mut Vec<u64>) {
        debug_assert_eq!(x.len(), self.place.len());
        message.extend(x.iter().zip(self.place.iter()).map(|(x, c)| x ^ c));
    }

    /// Computes its shares, `outputs` planes, from the holder's message of [`Shape::entry_words`].
    #[expect(clippy::indexing_slicing, reason = "tables have as many places as the shape says, at most sixteen")]
    pub fn read(&self, sent: &[u64]) -> SecretWords {
        let Shape { words, outputs, .. } = self.shape;
        let places = self.shape.places();
        let mut shares = self.pads.clone();
        if words == 0 {
            return shares;
        }
        let mut row = Zeroizing::new([0u64; PLACES]);
        for (plane, share) in shares.chunks_exact_mut(words).enumerate() {
            let entries = sent.chunks_exact(words).skip(plane).step_by(outputs);
            let entries: Vec<&[u64]> = entries.collect();
            for (w, share) in share.iter_mut().enumerate() {
                // Place 0 has no entry.
                row[0] = 0;
                for (to, entry) in row[1..].iter_mut().zip(&entries) {
                    *to = entry[w];
                }
                for k in 0..self.shape.bits {
                    let c = self.place[k * words + w];
                    for j in (0..places).step_by(2 << k) {
                        row[j] ^= (row[j] ^ row[j | 1 << k]) & c;
                    }
                }
                *share ^= row[0];
            }
        }
        shares
    }
}

/// The holder's state.
pub(crate) struct Holder {
    shape: Shape,
    /// Plane j·`outputs` + o has bit o of P_j.
    pads: SecretWords,
}

impl Holder {
    /// Draws its OTs.
    #[expect(
        clippy::indexing_slicing,
        reason = "there are at most sixteen places, and a table's pads have at most 64 bits"
    )]
    pub fn draw(ctx: &mut Ctx, shape: Shape) -> Result<Holder, TwopcError> {
        let (words, places) = (shape.words, shape.places());
        let packed = places * shape.outputs;
        let offsets = Zeroizing::new(multiples(ctx.ot.delta()));
        let mut pads = SecretWords::from(vec![0; words * packed]);
        let mut tables = Zeroizing::new([[Block::ZERO; PLACES]; 64]);
        let mut square = Zeroizing::new([0u64; 64]);
        let mask = (1 << shape.outputs) - 1;
        for at in (0..words).step_by(WORDS_A_DRAW) {
            let now = WORDS_A_DRAW.min(words - at);
            let folded = Folded::send(ctx, 64 * now, shape.bits as u32)?;
            for (w, chunk) in folded.blocks.chunks(64).enumerate() {
                let first = folded.first + 64 * w as u64;
                (folded.hash).tables(first, &offsets[..places], chunk, tables.as_mut());
                for (word, table) in square.iter_mut().zip(tables.iter()) {
                    let pads = table[..places].iter().rev();
                    *word = pads.fold(0, |w, pad| w << shape.outputs | pad.low_u64() & mask);
                }
                transpose_words(&mut square);
                for (k, bits) in square.iter().take(packed).enumerate() {
                    pads[k * words + at + w] = *bits;
                }
            }
        }
        Ok(Holder { shape, pads })
    }

    /// Appends the entries for the chooser's message `choice` of [`Shape::choice_words`] and returns its shares,
    /// `outputs` planes. `table` writes the tables of one word of elements.
    #[expect(
        clippy::indexing_slicing,
        reason = "tables have as many places as the shape says, at most sixteen; the choice is as long as the shape says"
    )]
    pub fn answer(&self, choice: &[u64], message: &mut Vec<u64>, table: impl Fn(usize, &mut Tables)) -> SecretWords {
        let Shape { words, bits, outputs } = self.shape;
        let places = self.shape.places();
        let mut shares = SecretWords::from(vec![0; outputs * words]);
        let start = message.len();
        message.resize(start + self.shape.entry_words(), 0);
        let entries = &mut message[start..];
        let mut row: Tables = [[0; OUTPUTS]; PLACES];
        for w in 0..words {
            table(w, &mut row);
            for k in 0..bits {
                let e = choice[k * words + w];
                for j in (0..places).filter(|j| j & (1 << k) == 0) {
                    let (below, above) = row.split_at_mut(j | 1 << k);
                    let pairs = below[j].iter_mut().zip(&mut above[0]);
                    for (a, b) in pairs.take(outputs) {
                        let t = (*a ^ *b) & e;
                        *a ^= t;
                        *b ^= t;
                    }
                }
            }
            for o in 0..outputs {
                let pad = |j: usize| self.pads[(j * outputs + o) * words + w];
                let share = row[0][o] ^ pad(0);
                shares[o * words + w] = share;
                for j in 1..places {
                    entries[((j - 1) * outputs + o) * words + w] = row[j][o] ^ share ^ pad(j);
                }
            }
        }
        wipe(row.as_flattened_mut());
        shares
    }
}

/// Runs both readers on a peer's words, over zero pads, each if the length matches: for the fuzz target.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn read(words: usize, message: &[u64]) -> [Option<SecretWords>; 2] {
    let shape = Shape { words, bits: 3, outputs: 2 };
    let chooser =
        Chooser { shape, place: vec![1; shape.choice_words()].into(), pads: vec![0; shape.outputs * words].into() };
    let holder = Holder { shape, pads: vec![0; shape.places() * shape.outputs * words].into() };
    let read = (message.len() == shape.entry_words()).then(|| chooser.read(message));
    let answered = (message.len() == shape.choice_words()).then(|| {
        let mut entries = Vec::new();
        let shares = holder.answer(message, &mut entries, |w, row| row.fill([w as u64; OUTPUTS]));
        assert_eq!(entries.len(), shape.entry_words());
        shares
    });
    [read, answered]
}

/// The functions that choose by secret bits, for the checks that they do not branch on them.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn cases() -> [crate::testing::case::Case; 2] {
    use crate::testing::case::Case;
    let shape = Shape { words: 2, bits: 4, outputs: 1 };
    let entries = vec![0x5a; shape.entry_words()];
    let choice = vec![0x5a; shape.choice_words()];
    let chooser = Case::new(
        "bits of one of sixteen, chooser",
        vec![0u64; shape.choice_words()],
        |place, secret| secret.fill(place),
        move |place| {
            let chooser = Chooser { shape, place: place.clone().into(), pads: vec![0; shape.words].into() };
            let mut message = Vec::new();
            chooser.choose(place, &mut message);
            std::hint::black_box((message, chooser.read(&entries)));
        },
    );
    let holder = Case::new(
        "bits of one of sixteen, holder",
        vec![0u64; shape.words],
        |table, secret| secret.fill(table),
        move |table| {
            let holder = Holder { shape, pads: vec![0; shape.places() * shape.words].into() };
            let mut message = Vec::new();
            let own: Vec<u64> = table.clone();
            let row = |w: usize, row: &mut Tables| row.fill([own.get(w).copied().unwrap_or(0); OUTPUTS]);
            std::hint::black_box(holder.answer(&choice, &mut message, row));
        },
    );
    [chooser, holder]
}
