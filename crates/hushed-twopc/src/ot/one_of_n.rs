//! One-of-N OT, N = 2^b ≤ 16, from b correlated OTs, delivering additive shares.
//!
//! The holder of the tables has blocks b₀ … b_{b−1}, the chooser b_k ⊕ c_k·Δ. With X the generator of GF(2^128) they
//! fold them into B = Σ X^k·b_k and M = Σ X^k·(b_k ⊕ c_k·Δ) = B ⊕ c(X)·Δ, where c(X) = Σ c_k·X^k. The pad of place j is
//! P_j = H(i, B ⊕ j(X)·Δ). The chooser knows P_c = H(i, M) and no other: the other inputs are M ⊕ (c ⊕ j)(X)·Δ, and
//! multiplication by a non-zero field element maps the uniform Δ one to one. Where entries are public it knows every
//! P_j, which gives 15 targets for Δ, so H has a key for each sixteen places. (Subspace form of OT extension:
//! Kolesnikov–Kumaresan, CRYPTO 2013; Roy, CRYPTO 2022. XORing four hashed pads instead would leak: the XOR of the pads
//! of places 0, 1, 2, 3 is zero.)
//!
//! The chooser sends e = x ⊕ c. The holder's share is s = T(e) − P₀, so place 0 needs no message; for j = 1 … N − 1 it
//! sends
//!
//! > m_j = T(j ⊕ e) − s − P_j mod 2^ℓ,
//!
//! and the chooser's share is P_c + m_c (with m₀ = 0), which is T(c ⊕ e) − s = T(x) − s. The chooser reads all messages
//! under masks, and the holder finds T(j ⊕ e) by masked swaps: e is public, c is not. A holder with a secret r of its
//! own may offer the table T(j ⊕ r) by swapping by e ⊕ r.
//!
//! Bytes: chooser b·⌈n/8⌉, holder ⌈(N − 1)·n·ℓ/8⌉. Two messages in sequence.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::SecretBlocks;
use super::additive::low_bits;
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::share::{Ring, SecretWords};
#[cfg(any(test, feature = "testing"))]
use crate::testing::case::Case;
use crate::wire;
use hushed_math::bits::{Block, Mask, PadHash, TABLE};
use hushed_net::Kind;
use zeroize::Zeroizing;

const CHOICE: Kind = Kind(0x0330);
const ENTRIES: Kind = Kind(0x0331);
/// The most places in a table.
const PLACES: usize = TABLE;
/// Elements hashed at a time.
const CHUNK: usize = 64;
/// Elements whose entries go in one frame, so that the network carries them while the next are made, and they are read
/// while the next arrive. A multiple of [`CHUNK`].
const PIECE: usize = 1 << 15;
/// Most bytes of entries that are split into frames: what both parties send before either reads has to be well below
/// what a channel holds. More goes in one frame.
const CUT: usize = 32 << 20;

/// Public shape of a batch of transfers.
#[derive(Clone, Copy)]
pub(crate) struct Batch {
    /// Number of transfers.
    pub n: usize,
    /// b, the number of choosing bits: 1 to 4.
    pub bits: u32,
    /// The ring of the entries.
    pub ring: Ring,
}

impl Batch {
    /// N, the places of a table.
    pub fn places(&self) -> usize {
        1 << self.bits
    }

    /// Bytes of the chooser's message.
    pub fn choice_len(&self) -> usize {
        self.bits as usize * self.n.div_ceil(8)
    }

    /// Bytes of the holder's message, over all its frames.
    pub fn entries_len(&self) -> usize {
        self.piece_len(self.n)
    }

    /// Transfers per frame of entries.
    fn piece(&self) -> usize {
        match self.entries_len() {
            ..=CUT => PIECE,
            _ => self.n,
        }
    }

    /// Bytes of the entries of this many transfers.
    fn piece_len(&self, transfers: usize) -> usize {
        wire::packed_len((self.places() - 1) * transfers, self.ring.bits())
    }
}

/// Cost of transfers of 2^`bits` entries, `by_client` chosen by the client and `by_server` by the server, at once.
pub fn cost(bits: u32, by_client: usize, by_server: usize, ring: Ring) -> Cost {
    let [client, server] = [by_client, by_server].map(|n| Batch { n, bits, ring });
    let exchange = |a: usize, b: usize| Cost::exchange(a as u64, b as u64);
    let cots = |n: usize| u64::from(bits) * n as u64;
    let frames = |batch: Batch| batch.n.div_ceil(batch.piece().max(1)) as u64;
    let entries = exchange(server.entries_len(), client.entries_len());
    let entries = Cost { frames_client: frames(server), frames_server: frames(client), ..entries };
    exchange(client.choice_len(), server.choice_len()) + entries.with_cots(cots(by_server), cots(by_client))
}

/// This party's shares as the chooser, at the places `index` of the other party's tables, and as the holder of its own
/// tables, as [`Holder::answer`] takes them. Both batches run at once; either may be empty.
pub(crate) fn both(
    ctx: &mut Ctx,
    (own, index): (Batch, &[u8]),
    (theirs, rotate): (Batch, Option<&[&[u64]]>),
    table: impl Fn(usize, &mut [u64]),
) -> Result<(Vec<u64>, SecretWords), TwopcError> {
    let (mut holder, mut chooser) = (None, None);
    let first = ctx.sends_first();
    for holds in [first, !first] {
        match holds {
            true if theirs.n > 0 => holder = Some(Holder::draw(ctx, theirs)?),
            false if own.n > 0 => chooser = Some(Chooser::draw(ctx, own, index)?),
            _ => {}
        }
    }
    let (chooser, message) = chooser.unzip();
    let (message, len) = (message.unwrap_or_default(), theirs.choice_len());
    let choice = wire::exchange(&mut ctx.session, CHOICE, message, len)?;
    let session = &mut ctx.session;
    let mut held = SecretWords::default();
    if let Some(holder) = holder {
        let send = |piece| Ok(session.send_vec(ENTRIES, piece)?);
        held = holder.answer(&choice, rotate, table, send)?;
    }
    let mut chosen = Vec::new();
    if let Some(chooser) = chooser {
        chosen = chooser.read(|len| wire::recv_exactly(session, ENTRIES, len))?;
    }
    Ok((chosen, held))
}

/// A chooser that has sent its choice or is about to.
pub(crate) struct Chooser {
    batch: Batch,
    /// c, the place that it can read.
    place: Zeroizing<Vec<u8>>,
    folded: Folded,
}

impl Chooser {
    /// Draws its OTs and returns the message for `index`, which has one place per element.
    #[expect(clippy::indexing_slicing, reason = "choices of n elements have a bit for each")]
    pub fn draw(ctx: &mut Ctx, batch: Batch, index: &[u8]) -> Result<(Chooser, Vec<u8>), TwopcError> {
        let n = batch.n;
        let mut place = Zeroizing::new(vec![0u8; n]);
        let mut message = Vec::with_capacity(batch.choice_len());
        let folded = Folded::recv(ctx, n, batch.bits, |k, c| {
            let mut e = vec![0u64; c.len()];
            for (i, (place, x)) in place.iter_mut().zip(index).enumerate() {
                let bit = (c[i / 64] >> (i % 64)) & 1;
                *place |= (bit as u8) << k;
                e[i / 64] |= (bit ^ u64::from((x >> k) & 1)) << (i % 64);
            }
            wire::bits_into(&e, n, &mut message);
        })?;
        let chooser = Chooser { batch, place, folded };
        Ok((chooser, message))
    }

    /// Computes the shares from the holder's frames; `receive` gets the length of each.
    #[expect(clippy::indexing_slicing, reason = "a piece has at most as many elements as the room for its pads")]
    pub fn read(self, mut receive: impl FnMut(usize) -> Result<Vec<u8>, TwopcError>) -> Result<Vec<u64>, TwopcError> {
        let Batch { n, ring, .. } = self.batch;
        let places = self.batch.places();
        let sent = places - 1;
        let piece = self.batch.piece();
        let mut pads = SecretBlocks::zero(piece.min(n));
        let Folded { hash, first, blocks } = &self.folded;
        let pick = |((entries, place), pad): ((&[u64], &u8), &Block)| {
            // Place 0 has no entry.
            let masks = Mask::one_hot::<PLACES>((*place).into());
            let own = entries.iter().zip(masks.iter().skip(1));
            own.fold(pad.low_u64(), |sum, (m, here)| sum.wrapping_add(*m & *here))
        };
        let mut shares = Vec::with_capacity(n);
        let pieces = blocks.chunks(piece).zip(self.place.chunks(piece));
        for (k, (blocks, place)) in pieces.enumerate() {
            let reply = receive(self.batch.piece_len(blocks.len()))?;
            let entries = wire::unpack(&reply, ring.bits(), sent * blocks.len())?;
            let pads = &mut pads[..blocks.len()];
            hash.places(first + (k * piece) as u64, places, blocks, pads);
            let rows = entries.chunks_exact(sent).zip(place);
            shares.extend(rows.zip(pads.iter()).map(pick));
        }
        Ok(shares)
    }
}

/// A holder waiting for the choice.
pub(crate) struct Holder {
    batch: Batch,
    folded: Folded,
    /// j(X)·Δ for every place j.
    offsets: Zeroizing<[Block; PLACES]>,
}

impl Holder {
    /// Draws its OTs.
    pub fn draw(ctx: &mut Ctx, batch: Batch) -> Result<Holder, TwopcError> {
        Ok(Holder {
            batch,
            folded: Folded::send(ctx, batch.n, batch.bits)?,
            offsets: Zeroizing::new(multiples(ctx.ot.delta())),
        })
    }

    /// Sends the entries for the chooser's message, frame by frame, and returns this party's shares.
    ///
    /// `table` writes an element's table; `rotate` holds b planes of bits by which each table's places are XORed first.
    #[expect(
        clippy::indexing_slicing,
        reason = "every place is below what the batch says; the message is cut into planes of that length first"
    )]
    pub fn answer(
        self,
        choice: &[u8],
        rotate: Option<&[&[u64]]>,
        table: impl Fn(usize, &mut [u64]),
        mut send: impl FnMut(Vec<u8>) -> Result<(), TwopcError>,
    ) -> Result<SecretWords, TwopcError> {
        let Batch { n, ring, .. } = self.batch;
        let places = self.batch.places();
        let mut choice = choice;
        // e ⊕ r: r is secret, so this is too.
        let mut swaps = Vec::with_capacity(self.batch.bits as usize);
        for k in 0..self.batch.bits as usize {
            let e = wire::bits_from(wire::take(&mut choice, n.div_ceil(8))?, n);
            let r = rotate.and_then(|planes| planes.get(k));
            let plane: SecretWords = match r {
                Some(r) => e.iter().zip(*r).map(|(e, r)| e ^ r).collect(),
                None => e.into(),
            };
            swaps.push(plane);
        }
        let mut shares = SecretWords::with_room(n);
        let whole = (places - 1) * self.batch.piece().min(n);
        let mut masked = Vec::with_capacity(whole);
        let mut pads = Zeroizing::new([[Block::ZERO; PLACES]; CHUNK]);
        let mut row = Zeroizing::new([0u64; PLACES]);
        let Folded { hash, first, blocks } = &self.folded;
        for (k, chunk) in blocks.chunks(CHUNK).enumerate() {
            let start = k * CHUNK;
            let pads = &mut pads[..chunk.len()];
            let offsets = &self.offsets[..places];
            hash.tables(first + start as u64, offsets, chunk, pads);
            let made = masked.len();
            masked.resize(made + (places - 1) * chunk.len(), 0);
            let messages = masked[made..].chunks_exact_mut(places - 1);
            for (i, (out, pads)) in messages.zip(pads.iter()).enumerate() {
                let row = &mut row[..places];
                let at = start + i;
                table(at, row);
                for (bit, plane) in swaps.iter().enumerate() {
                    swap_places(row, bit, (plane[at / 64] >> (at % 64)) & 1);
                }
                let share = row[0].wrapping_sub(pads[0].low_u64());
                shares.push(share);
                let rest = row.iter().zip(pads).skip(1);
                for (m, (entry, pad)) in out.iter_mut().zip(rest) {
                    *m = entry.wrapping_sub(share).wrapping_sub(pad.low_u64());
                }
            }
            // Frames end where chunks do.
            if masked.len() == whole || start + chunk.len() == n {
                send(wire::pack(&masked, ring.bits()))?;
                masked.clear();
            }
        }
        Ok(shares)
    }
}

/// The OTs of a batch: b blocks per transfer, folded into one.
pub(crate) struct Folded {
    /// Σ X^k·b_k of each transfer.
    pub blocks: SecretBlocks,
    /// Index of the first block for hashing.
    pub first: u64,
    /// The hash of this session and direction.
    pub hash: PadHash,
}

impl Folded {
    /// `bits` OTs for each of `n` transfers with this party as sender.
    pub fn send(ctx: &mut Ctx, n: usize, bits: u32) -> Result<Folded, TwopcError> {
        let cot = ctx.ot.send(&mut ctx.session, n)?;
        let mut folded = Folded::first(&cot.blocks, cot.first_index, cot.hash.clone());
        for k in 1..bits {
            folded.add(k, &ctx.ot.send(&mut ctx.session, n)?.blocks);
        }
        Ok(folded)
    }

    /// The same as receiver; `choices` is called with each k and the choice bits c_k of all transfers.
    pub fn recv(
        ctx: &mut Ctx,
        n: usize,
        bits: u32,
        mut choices: impl FnMut(u32, SecretWords),
    ) -> Result<Folded, TwopcError> {
        let cot = ctx.ot.recv(&mut ctx.session, n)?;
        choices(0, low_bits(&cot.blocks));
        let mut folded = Folded::first(&cot.blocks, cot.first_index, cot.hash.clone());
        for k in 1..bits {
            let cot = ctx.ot.recv(&mut ctx.session, n)?;
            choices(k, low_bits(&cot.blocks));
            folded.add(k, &cot.blocks);
        }
        Ok(folded)
    }

    fn first(blocks: &[Block], first: u64, hash: PadHash) -> Folded {
        let blocks = SecretBlocks(blocks.to_vec());
        Folded { blocks, first, hash }
    }

    fn add(&mut self, k: u32, blocks: &[Block]) {
        for (f, b) in self.blocks.iter_mut().zip(blocks) {
            *f ^= times_x(*b, k);
        }
    }

    /// Zero blocks in place of OTs.
    #[cfg(any(test, feature = "testing"))]
    pub fn zero(n: usize) -> Folded {
        Folded::first(&vec![Block::ZERO; n], 0, PadHash::new([0; 16]))
    }
}

/// row\[j\] ↔ row\[j ⊕ 2^bit\] if `swap` is 1.
#[expect(clippy::indexing_slicing, reason = "the row's length is a power of two above 2^bit")]
fn swap_places(row: &mut [u64], bit: usize, swap: u64) {
    let (step, mask) = (1 << bit, Mask::from_bit(swap));
    for j in (0..row.len()).filter(|j| j & step == 0) {
        let t = (row[j] ^ row[j | step]) & mask;
        row[j] ^= t;
        row[j | step] ^= t;
    }
}

/// X^k·b in GF(2^128) modulo X^128 + X^7 + X^2 + X + 1.
fn times_x(b: Block, k: u32) -> Block {
    (0..k).fold(b, |b, _| {
        let carry = Mask::from_bit(b.high_u64() >> 63);
        Block(b.0 << 1) ^ (Block(0x87) & carry)
    })
}

/// j(X)·delta for every place j.
pub(crate) fn multiples(delta: Block) -> [Block; PLACES] {
    std::array::from_fn(|j| {
        let taken = (0..4).filter(|k| (j >> k) & 1 == 1);
        taken.fold(Block::ZERO, |sum, k| sum ^ times_x(delta, k))
    })
}

/// Runs both readers on a peer's bytes, over zero blocks: the shares of each for which the message is well-formed.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn read(batch: Batch, message: &[u8]) -> [Option<Vec<u64>>; 2] {
    let chooser = Chooser { batch, place: Zeroizing::new(vec![1; batch.n]), folded: Folded::zero(batch.n) };
    let holder = Holder { batch, folded: Folded::zero(batch.n), offsets: Zeroizing::new(multiples(Block(1))) };
    let mut sent = 0;
    let send = |piece: Vec<u8>| {
        sent += piece.len();
        Ok(())
    };
    let answered = holder.answer(message, None, |i, row| row.fill(i as u64), send);
    assert!(answered.is_err() || sent == batch.entries_len());
    let read = chooser.read(|_| Ok(message.to_vec()));
    [read.ok(), answered.ok().map(SecretWords::into_words)]
}

/// The functions that choose by secret bits, for the checks that they do not branch on them.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn cases() -> [Case; 2] {
    let batch = Batch { n: 128, bits: 4, ring: Ring::new(40) };
    let entries = vec![0x5a; batch.entries_len()];
    let choice = vec![0x5a; batch.choice_len()];
    let chooser = Case::new(
        "one of sixteen, chooser",
        vec![0u8; batch.n],
        |place, secret| secret.fill_bytes(place, 15),
        move |place| {
            let chooser = Chooser { batch, place: Zeroizing::new(place.clone()), folded: Folded::zero(batch.n) };
            assert!(chooser.read(|_| Ok(entries.clone())).is_ok());
        },
    );
    let holder = Case::new(
        "one of sixteen, holder",
        (vec![0u64; batch.n / 64], vec![0u64; PLACES]),
        |(rotate, table), secret| {
            secret.fill(rotate);
            secret.fill(table);
        },
        move |(rotate, table)| {
            let holder = Holder { batch, folded: Folded::zero(batch.n), offsets: Zeroizing::new(multiples(Block(1))) };
            let planes = [rotate.as_slice(); 4];
            let row = |_: usize, row: &mut [u64]| row.copy_from_slice(table);
            let answered = holder.answer(&choice, Some(&planes), row, |_| Ok(()));
            assert!(answered.is_ok());
        },
    );
    [chooser, holder]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiplication_by_x_reduces() {
        assert!(times_x(Block(1), 3) == Block(8));
        assert!(times_x(Block(1 << 127), 1) == Block(0x87));
        assert!(times_x(Block(3 << 126), 2) == Block((0x87 << 1) ^ 0x87));
    }

    #[test]
    fn all_multiples_differ() {
        let all = multiples(Block(0x1234_5678_9abc_def1));
        for i in 0..PLACES {
            for j in 0..i {
                assert!(all[i] != all[j], "{i} {j}");
            }
        }
    }
}
