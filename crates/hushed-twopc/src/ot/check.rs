//! The check against a sender that cheats in extensions (Yang, Weng, Lan, Zhang, Wang, CCS 2020, Fig. 7), before every
//! opening, for all OTs made since the last one.
//!
//! Each step of an extension leaves a sum at both parties: V = Σ χ_j·v_j over the leaves of its trees at the sender,
//! and W = Σ χ_j·w_j with φ = Σ χ_α over the noise positions at the receiver, where χ comes from a hash of the step's
//! message. Honest leaves have W = V ⊕ φ·Δ. The check takes 128 OTs (y_i; x_i, z_i): the receiver sends φ' = φ ⊕ Σ
//! x_i·x^i, whose mask is uniform, and the sender answers with a hash of V ⊕ Σ y_i·x^i ⊕ φ'·Δ, which must be that of W
//! ⊕ Σ z_i·x^i.
//!
//! A sender that bends a correction makes some leaves wrong, which ones depends on the secret noise positions. It
//! passes if it guessed a set of positions that contains the right one, and so with probability 2^-c for c bits
//! learned; two sets of errors that differ have equal sums for at most 2^13 + 2^5 of 2^128 challenges. Until then
//! nothing that it made can have told it anything: choice bits do not depend on corrections, and words that do leave
//! only under masks.
//!
//! Both directions go side by side, in two rounds and 48 bytes each way.

use super::unchecked::{MASKING, NOISE_BYTES, SUM_BYTES};
use super::{CHEATED, Correlations, CotRecv};
use crate::error::TwopcError;
use hushed_math::bits::{Block, multiply};
use hushed_math::taint;
use hushed_net::{Expect, Kind, Party, Session};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

const NOISE: Kind = Kind(0x0345);
const SUMS: Kind = Kind(0x0346);

/// Checks both directions of a source, whose session has this `id`.
///
/// # Errors
/// [`CHEATED`] if the other party's sums are not those of honest OTs.
pub(super) fn run(ot: &mut (impl Correlations + ?Sized), s: &mut Session, id: &[u8; 32]) -> Result<(), TwopcError> {
    let (send, recv) = if s.party() == Party::Client || ot.has_begun() {
        let send = ot.send(s, MASKING)?;
        (send, ot.recv(s, MASKING)?)
    } else {
        let recv = ot.recv(s, MASKING)?;
        (ot.send(s, MASKING)?, recv)
    };
    // After the draws, which may have made more OTs.
    let [mut sent, mut received] = ot.take_unchecked();

    let noise = received.noise ^ choices(&recv);
    let theirs = s.exchange(NOISE, &noise.to_bytes(), Expect::Exactly(NOISE_BYTES))?;
    let theirs = theirs.first_chunk().ok_or(CHEATED)?;
    let theirs = Block::from_bytes(*theirs);

    let sender = s.party();
    let own = sent.leaves ^ combined(&send.blocks) ^ multiply(send.delta, theirs);
    let own = digest(id, sender, send.first_index, own);
    let expected = received.leaves ^ combined(&recv.blocks);
    let expected = digest(id, sender.other(), recv.first_index, expected);
    sent.wipe();
    received.wipe();
    let found = s.exchange(SUMS, &own, Expect::Exactly(SUM_BYTES))?;
    match bool::from(taint::opened(expected.ct_eq(&found))) {
        true => Ok(()),
        false => Err(CHEATED),
    }
}

/// Σ b_i·x^i.
fn combined(blocks: &[Block]) -> Block {
    const X: Block = Block(2);
    let horner = |sum, b: &Block| multiply(sum, X) ^ *b;
    blocks.iter().rev().fold(Block::ZERO, horner)
}

/// Σ x_i·x^i for the choice bits.
fn choices(recv: &CotRecv) -> Block {
    let bits = recv.blocks.iter().enumerate();
    Block(bits.fold(0, |word, (i, b)| word | (b.0 & 1) << i))
}

/// Hides the sum from a receiver that sends a wrong φ', and could else read delta off it. The index of the masking OTs
/// is used once in a direction of a session: work against one session is of no use against another.
fn digest(id: &[u8; 32], sender: Party, index: u64, sum: Block) -> [u8; SUM_BYTES] {
    Sha256::new()
        .chain_update(b"hushed OT check")
        .chain_update(id)
        .chain_update([u8::from(sender == Party::Client)])
        .chain_update(index.to_le_bytes())
        .chain_update(sum.to_bytes())
        .finalize()
        .into()
}
