//! One-of-sixteen OT from four correlated OTs, delivering additive shares.
//!
//! The holder of the tables has blocks b₀ … b₃, the chooser b_k ⊕ c_k·Δ. With X the generator of GF(2^128) they fold them to
//! B = Σ X^k·b_k and M = Σ X^k·(b_k ⊕ c_k·Δ) = B ⊕ c(X)·Δ, where c(X) = Σ c_k·X^k. The pad of place j is P_j = H(i, B ⊕ j(X)·Δ), of
//! which the chooser knows P_c = H(i, M) and no other: the other inputs are M ⊕ (c ⊕ j)(X)·Δ, and multiplication by a
//! non-zero field element maps the uniform Δ one to one. (Subspace form of OT extension: Kolesnikov–Kumaresan, CRYPTO 2013; Roy,
//! CRYPTO 2022. XORing four hashed pads instead would leak: the XOR of the pads of places 0, 1, 2, 3 is zero.)
//!
//! The chooser sends e = x ⊕ c. The holder's share is s = T(e) − P₀, so that place 0 needs no message; for j = 1 … 15 it sends
//!
//! > m_j = T(j ⊕ e) − s − P_j mod 2^ℓ,
//!
//! and the chooser's share is P_c + m_c (with m₀ = 0), which is T(c ⊕ e) − s = T(x) − s. The chooser reads all fifteen messages under
//! masks, the holder finds T(j ⊕ e) by swaps under masks: e is public, c is not.
//!
//! Bytes: chooser 4·⌈n/8⌉, holder ⌈15·n·ℓ/8⌉. Two messages in sequence.

use super::SecretBlocks;
use super::additive::low_bits;
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::share::{Ring, SecretWords, wipe};
use crate::wire;
use hushed_math::bits::{Block, hash_blocks};
use hushed_net::{Kind, Party};
use zeroize::Zeroizing;

const CHOICE: Kind = Kind(0x0330);
const ENTRIES: Kind = Kind(0x0331);
const PLACES: usize = 16;
/// Elements hashed at a time.
const CHUNK: usize = 256;

/// Cost of `n` transfers of entries of `ring`.
pub fn cost(n: usize, chooser: Party, ring: Ring) -> Cost {
    let choice = 4 * n.div_ceil(8) as u64;
    let entries = wire::packed_len(15 * n, ring.bits()) as u64;
    let cots = 4 * n as u64;
    let sent = |client, server| Cost {
        rounds: 2 * u64::from(n > 0),
        ..Cost::exchange(client, server)
    };
    match chooser {
        Party::Client => sent(choice, entries).with_cots(0, cots),
        Party::Server => sent(entries, choice).with_cots(cots, 0),
    }
}

/// The chooser's shares; `index` holds values 0 to 15.
pub(crate) fn choose(ctx: &mut Ctx, index: &[u8], ring: Ring) -> Result<Vec<u64>, TwopcError> {
    let n = index.len();
    if n == 0 {
        return Ok(Vec::new());
    }
    let mut place = Zeroizing::new(vec![0u8; n]);
    let mut folded = SecretBlocks::zero(n);
    let mut message = Vec::with_capacity(4 * n.div_ceil(8));
    let mut first = 0;
    for k in 0..4 {
        let cot = ctx.ot.recv(&mut ctx.session, n)?;
        if k == 0 {
            first = cot.first_index;
        }
        let c = low_bits(&cot.blocks);
        let mut e = vec![0u64; c.len()];
        for (i, (place, x)) in place.iter_mut().zip(index).enumerate() {
            let bit = (c[i / 64] >> (i % 64)) & 1;
            *place |= (bit as u8) << k;
            e[i / 64] |= (bit ^ u64::from((x >> k) & 1)) << (i % 64);
        }
        wire::bits_into(&e, n, &mut message);
        for (f, b) in folded.iter_mut().zip(&cot.blocks) {
            *f ^= times_x(*b, k);
        }
    }
    ctx.session.send_vec(CHOICE, message)?;
    let mut pads = SecretBlocks::zero(n);
    hash_blocks(first, &folded, &mut pads);

    let len = wire::packed_len(15 * n, ring.bits());
    let reply = wire::recv_exactly(&mut ctx.session, ENTRIES, len)?;
    let entries = wire::unpack(&reply, ring.bits(), 15 * n)?;
    let pick = |((entries, place), pad): ((&[u64], &u8), &Block)| {
        let own = entries.iter().zip(1u8..).map(|(m, j)| {
            let differs = u64::from(j ^ place);
            // 0 < differs < 16, or 0 at the place sought: then and only then the subtraction borrows.
            m & ((differs.wrapping_sub(1) >> 63).wrapping_neg())
        });
        own.fold(pad.low_u64(), u64::wrapping_add)
    };
    let rows = entries.chunks_exact(15).zip(place.iter()).zip(pads.iter());
    Ok(rows.map(pick).collect())
}

/// The holder's shares; `entries` holds sixteen words an element.
pub(crate) fn offer(ctx: &mut Ctx, entries: &[u64], ring: Ring) -> Result<Vec<u64>, TwopcError> {
    let n = entries.len() / PLACES;
    if n == 0 {
        return Ok(Vec::new());
    }
    let mut folded = SecretBlocks::zero(n);
    let mut first = 0;
    for k in 0..4 {
        let cot = ctx.ot.send(&mut ctx.session, n)?;
        if k == 0 {
            first = cot.first_index;
        }
        for (f, b) in folded.iter_mut().zip(&cot.blocks) {
            *f ^= times_x(*b, k);
        }
    }
    let offsets = Zeroizing::new(multiples(ctx.ot.delta()));
    let choice = wire::recv_exactly(&mut ctx.session, CHOICE, 4 * n.div_ceil(8))?;
    let mut choice = choice.as_slice();
    let mut e = Vec::with_capacity(4);
    for _ in 0..4 {
        e.push(wire::bits_from(wire::take(&mut choice, n.div_ceil(8))?, n));
    }

    let mut shares = SecretWords::with_room(n);
    let mut masked = vec![0u64; 15 * n];
    let mut inputs = [Block::ZERO; CHUNK];
    let mut pads = vec![[Block::ZERO; CHUNK]; PLACES];
    for (k, chunk) in folded.chunks(CHUNK).enumerate() {
        let start = k * CHUNK;
        for (pads, offset) in pads.iter_mut().zip(offsets.iter()) {
            for (x, b) in inputs.iter_mut().zip(chunk) {
                *x = *b ^ *offset;
            }
            let (inputs, pads) = (&inputs[..chunk.len()], &mut pads[..chunk.len()]);
            hash_blocks(first + start as u64, inputs, pads);
        }
        let tables = entries[PLACES * start..].chunks_exact(PLACES);
        let messages = masked[15 * start..].chunks_exact_mut(15);
        for (i, (table, out)) in tables.zip(messages).take(chunk.len()).enumerate() {
            let mut row = [0u64; PLACES];
            row.copy_from_slice(table);
            let at = start + i;
            for (bit, plane) in e.iter().enumerate() {
                swap_places(&mut row, bit, (plane[at / 64] >> (at % 64)) & 1);
            }
            let share = row[0].wrapping_sub(pads[0][i].low_u64());
            shares.push(share);
            let places = row.iter().zip(&pads).skip(1);
            for (m, (entry, pads)) in out.iter_mut().zip(places) {
                *m = entry.wrapping_sub(share).wrapping_sub(pads[i].low_u64());
            }
            wipe(&mut row);
        }
    }
    let message = wire::pack(&masked, ring.bits());
    // The pads first: sending may fail.
    Block::wipe(&mut inputs);
    pads.iter_mut().for_each(|p| Block::wipe(p));
    ctx.session.send_vec(ENTRIES, message)?;
    Ok(shares.into_words())
}

/// row\[j\] ↔ row\[j ⊕ 2^bit\] if `swap` is 1.
fn swap_places(row: &mut [u64; PLACES], bit: usize, swap: u64) {
    let (step, mask) = (1 << bit, swap.wrapping_neg());
    for j in (0..PLACES).filter(|j| j & step == 0) {
        let t = (row[j] ^ row[j | step]) & mask;
        row[j] ^= t;
        row[j | step] ^= t;
    }
}

/// X^k·b in GF(2^128) modulo X^128 + X^7 + X^2 + X + 1.
fn times_x(b: Block, k: usize) -> Block {
    (0..k).fold(b, |b, _| {
        let carry = (b.0 >> 127).wrapping_neg();
        Block((b.0 << 1) ^ (carry & 0x87))
    })
}

/// j(X)·delta for all places j.
fn multiples(delta: Block) -> [Block; PLACES] {
    std::array::from_fn(|j| {
        let taken = (0..4).filter(|k| j >> k & 1 == 1);
        taken.fold(Block::ZERO, |sum, k| sum ^ times_x(delta, k))
    })
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
