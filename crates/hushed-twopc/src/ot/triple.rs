//! ANDs of shared bits: GMW over bit triples from random OTs, and the AND of one bit of each party.
//!
//! Everything is in words of 64 bits. **Triples without communication**: as sender a party has the hashed bits h₀, h₁
//! of an OT, and as receiver (c, h_c) of one in the other direction. With a := c and b := h₀ ⊕ h₁ of its own roles,
//! both parties hold XOR shares of random a and b, and the OTs already share the cross products: c·(h₀ ⊕ h₁) = h_c ⊕
//! h₀. Hence ab is shared as a·b ⊕ h_c ⊕ h₀ (own words). A second b′ with the same a takes another bit of the same
//! hashes. Opening x ⊕ a and y ⊕ b costs a party 2 bits per AND, 3 for a pair x∧y, x∧y′.
//!
//! **AND of a client's bit with a server's bit** needs one OT in one direction and one bit each way: the chooser sends
//! e = x ⊕ c and the messenger f = y ⊕ (h₀ ⊕ h₁), at once; the shares are h_c ⊕ x·f and h₀ ⊕ e·(h₀ ⊕ h₁). Each party
//! chooses for half of the words, so that OTs and work are balanced.
//!
//! Goldreich, Micali, Wigderson (STOC 1987); Beaver (CRYPTO 1991). One exchange each.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::additive::low_bits;
use super::{CotRecv, CotSend};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_at_most, expect_len};
use crate::share::SecretWords;
use crate::wire;
use hushed_math::bits::Block;
use hushed_net::{Kind, Party};

const OPEN: Kind = Kind(0x0320);
const PRIVATE: Kind = Kind(0x0321);

/// Words of ANDs per draw of correlations: 2^16 OTs, a mebibyte of blocks, which fits a second-level cache.
const WORDS_A_DRAW: usize = 1 << 10;

/// Blocks hashed at a time: they stay in the first-level cache, and wherever they begin they are under one batch of the
/// hash's keys.
const HASHED: usize = 448;

/// Cost of [`and_words`] for `words` words, `twice` of which have a second product.
pub fn and_words_cost(words: usize, twice: usize) -> Cost {
    let bytes = 8 * (2 * words + twice) as u64;
    let cots = 64 * words as u64;
    Cost::exchange(bytes, bytes).with_cots(cots, cots)
}

/// Cost of [`and_private`] for `words` words.
pub fn and_private_cost(words: usize) -> Cost {
    let client_chooses = words.div_ceil(2);
    let cots = |w: usize| 64 * w as u64;
    Cost::exchange(8 * words as u64, 8 * words as u64).with_cots(cots(words - client_chooses), cots(client_chooses))
}

/// XOR shares of x∧y word by word, and of x∧y′ for the first `second.len()` words of x.
///
/// # Errors
/// [`TwopcError::Misuse`] if the lengths do not match.
pub fn and_words(
    ctx: &mut Ctx,
    x: &[u64],
    y: &[u64],
    second: &[u64],
) -> Result<(SecretWords, SecretWords), TwopcError> {
    expect_len("and", "words", y.len(), x.len())?;
    expect_at_most("and", "second words", second.len() as u64, x.len() as u64)?;
    let mut t = Triples::draw(ctx, x.len(), second.len())?;
    let opening = [(x, &t.a), (y, &t.b), (second, &t.b2)];
    let mine: Vec<u64> = opening.iter().flat_map(|(v, mask)| v.iter().zip(mask.iter()).map(|(v, m)| v ^ m)).collect();
    let reply = swap_words(ctx, OPEN, &mine)?;
    let open: Vec<u64> = mine.iter().zip(&reply).map(|(m, r)| m ^ r).collect();
    let (d, rest) = open.split_at(x.len());
    let (e, e2) = rest.split_at(x.len());
    let both = match ctx.party() {
        Party::Client => u64::MAX,
        Party::Server => 0,
    };
    let finish = |product: &mut [u64], b: &[u64], e: &[u64]| {
        let inputs = b.iter().zip(e).zip(t.a.iter().zip(d));
        for (z, ((b, e), (a, d))) in product.iter_mut().zip(inputs) {
            *z ^= (d & b) ^ (e & a) ^ (d & e & both);
        }
    };
    let (mut z, mut z2) = (std::mem::take(&mut t.ab), std::mem::take(&mut t.ab2));
    finish(&mut z, &t.b, e);
    finish(&mut z2, &t.b2, e2);
    Ok((z, z2))
}

/// XOR shares of the client's words ANDed with the server's; each party passes its own.
pub fn and_private(ctx: &mut Ctx, mine: &[u64]) -> Result<SecretWords, TwopcError> {
    let client_chooses = mine.len().div_ceil(2);
    let (first, second) = mine.split_at(client_chooses);
    let [chosen, offered] = ctx.by_role(first, second);
    let (send, recv) = draw(ctx, [offered.len(), chosen.len()], 0)?;
    let e: Vec<u64> = chosen.iter().zip(recv.c.iter()).map(|(x, c)| x ^ c).collect();
    let f: Vec<u64> = offered.iter().zip(send.b.iter()).map(|(y, w)| y ^ w).collect();
    let message = ctx.by_role(e, f).concat();
    let reply = swap_words(ctx, PRIVATE, &message)?;
    let (first, second) = reply.split_at(client_chooses);
    // The peer's f for what this party chose, and its e for what this party offered.
    let [f, e] = ctx.by_role(first, second);
    let as_chooser = recv.h.iter().zip(chosen.iter().zip(f));
    let as_chooser = as_chooser.map(|(h, (x, f))| h ^ (x & f));
    let as_messenger = send.h0.iter().zip(send.b.iter().zip(e));
    let as_messenger = as_messenger.map(|(h0, (w, e))| h0 ^ (e & w));
    Ok(if ctx.is_client() {
        as_chooser.chain(as_messenger).collect()
    } else {
        as_messenger.chain(as_chooser).collect()
    })
}

fn swap_words(ctx: &mut Ctx, kind: Kind, mine: &[u64]) -> Result<Vec<u64>, TwopcError> {
    let mut message = Vec::new();
    wire::bits_into(mine, 64 * mine.len(), &mut message);
    let reply = wire::exchange(&mut ctx.session, kind, message, 8 * mine.len())?;
    Ok(wire::bits_from(&reply, 64 * mine.len()))
}

/// The hashed bits for this many words sent and received; in each direction the first `twice` have a second bit.
fn draw(ctx: &mut Ctx, [sent, received]: [usize; 2], twice: usize) -> Result<(HashedSend, HashedRecv), TwopcError> {
    let mut send = HashedSend::default();
    let mut recv = HashedRecv::default();
    let first = ctx.sends_first();
    for sending in [first, !first] {
        if sending {
            send = HashedSend::draw(ctx, sent, twice)?;
        } else {
            recv = HashedRecv::draw(ctx, received, twice)?;
        }
    }
    Ok((send, recv))
}

/// Shares of random a, b, ab and, for the first words, b′ and ab′.
struct Triples {
    a: SecretWords,
    b: SecretWords,
    b2: SecretWords,
    ab: SecretWords,
    ab2: SecretWords,
}

impl Triples {
    fn draw(ctx: &mut Ctx, words: usize, twice: usize) -> Result<Triples, TwopcError> {
        let (mut send, mut recv) = draw(ctx, [words; 2], twice)?;
        let product = |b: &[u64], h0: &[u64], hc: &[u64]| {
            let own = recv.c.iter().zip(b);
            let cross = h0.iter().zip(hc);
            let all = own.zip(cross);
            all.map(|((a, b), (h0, hc))| (a & b) ^ h0 ^ hc).collect::<SecretWords>()
        };
        let ab = product(&send.b, &send.h0, &recv.h);
        let ab2 = product(&send.b2, &send.h0_2, &recv.h_2);
        Ok(Triples {
            ab,
            ab2,
            a: std::mem::take(&mut recv.c),
            b: std::mem::take(&mut send.b),
            b2: std::mem::take(&mut send.b2),
        })
    }
}

/// Hashed bits of OTs with this party as sender: h₀ and b = h₀ ⊕ h₁; for the first words also of the second hash bit.
#[derive(Default)]
struct HashedSend {
    h0: SecretWords,
    b: SecretWords,
    h0_2: SecretWords,
    b2: SecretWords,
}

/// Hashed bits of OTs with this party as receiver: the choices c and h_c.
#[derive(Default)]
struct HashedRecv {
    c: SecretWords,
    h: SecretWords,
    h_2: SecretWords,
}

impl HashedSend {
    fn draw(ctx: &mut Ctx, words: usize, twice: usize) -> Result<HashedSend, TwopcError> {
        let mut out = HashedSend {
            h0: SecretWords::with_room(words),
            b: SecretWords::with_room(words),
            h0_2: SecretWords::with_room(twice),
            b2: SecretWords::with_room(twice),
        };
        let mut left = words;
        while left > 0 {
            let now = left.min(WORDS_A_DRAW);
            let cot = ctx.ot.send(&mut ctx.session, 64 * now)?;
            out.absorb(&cot, twice);
            left -= now;
        }
        Ok(out)
    }

    #[expect(clippy::indexing_slicing, reason = "buffers are cut to a chunk of at most their length")]
    fn absorb(&mut self, cot: &CotSend, twice: usize) {
        let mut hashed = [[Block::ZERO; HASHED]; 2];
        for at in (0..cot.len()).step_by(HASHED) {
            let len = HASHED.min(cot.len() - at);
            let [zero, one] = &mut hashed;
            let (zero, one) = (&mut zero[..len], &mut one[..len]);
            cot.pads(at, zero, one);
            for (zero, one) in zero.chunks(64).zip(one.chunks(64)) {
                let ((h0, h0_2), (h1, h1_2)) = (two_bits(zero), two_bits(one));
                self.h0.push(h0);
                self.b.push(h0 ^ h1);
                if self.b2.len() < twice {
                    self.h0_2.push(h0_2);
                    self.b2.push(h0_2 ^ h1_2);
                }
            }
        }
        hashed.iter_mut().for_each(|h| Block::wipe(h));
    }
}

impl HashedRecv {
    fn draw(ctx: &mut Ctx, words: usize, twice: usize) -> Result<HashedRecv, TwopcError> {
        let mut out = HashedRecv {
            c: SecretWords::with_room(words),
            h: SecretWords::with_room(words),
            h_2: SecretWords::with_room(twice),
        };
        let mut left = words;
        while left > 0 {
            let now = left.min(WORDS_A_DRAW);
            let cot = ctx.ot.recv(&mut ctx.session, 64 * now)?;
            out.absorb(&cot, twice);
            left -= now;
        }
        Ok(out)
    }

    #[expect(clippy::indexing_slicing, reason = "buffers are cut to a chunk of at most their length")]
    fn absorb(&mut self, cot: &CotRecv, twice: usize) {
        let mut hashed = [Block::ZERO; HASHED];
        self.c.extend_from_slice(&low_bits(&cot.blocks));
        for at in (0..cot.len()).step_by(HASHED) {
            let hashed = &mut hashed[..HASHED.min(cot.len() - at)];
            cot.pads(at, hashed);
            for hashed in hashed.chunks(64) {
                let (h, h_2) = two_bits(hashed);
                self.h.push(h);
                if self.h_2.len() < twice {
                    self.h_2.push(h_2);
                }
            }
        }
        Block::wipe(&mut hashed);
    }
}

/// Bits 0 and 1 of up to 64 hashes as two words.
fn two_bits(hashed: &[Block]) -> (u64, u64) {
    let (mut low, mut high) = (0u64, 0u64);
    for (i, h) in hashed.iter().enumerate() {
        low |= (h.low_u64() & 1) << i;
        high |= ((h.low_u64() >> 1) & 1) << i;
    }
    (low, high)
}

/// The function that turns blocks into choices and bits, for the checks that it does not branch on them.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn cases() -> [crate::testing::case::Case; 1] {
    let bits = crate::testing::case::Case::new(
        "bits of triples",
        vec![Block::ZERO; 512],
        |blocks, secret| secret.fill_blocks(blocks),
        |blocks| {
            for blocks in blocks.chunks(64) {
                std::hint::black_box(two_bits(blocks));
            }
            std::hint::black_box(low_bits(blocks));
        },
    );
    [bits]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, run_counted, words};

    fn xor(a: &[u64], b: &[u64]) -> Vec<u64> {
        a.iter().zip(b).map(|(x, y)| x ^ y).collect()
    }

    #[test]
    fn and_with_and_without_a_second_product() {
        // The last size spans two draws of correlations.
        for (n, twice) in [(0, 0), (1, 0), (1, 1), (5, 3), (WORDS_A_DRAW + 2, WORDS_A_DRAW + 1)] {
            let [x0, x1, y0, y1] = [1, 2, 3, 4].map(|s| words(n, s));
            let [s0, s1] = [5, 6].map(|s| words(twice, s));
            let ((z0, w0), (z1, w1), stats) =
                run_counted(|ctx| and_words(ctx, &x0, &y0, &s0).unwrap(), |ctx| and_words(ctx, &x1, &y1, &s1).unwrap());
            assert_cost(&stats, and_words_cost(n, twice));
            let (x, y, s) = (xor(&x0, &x1), xor(&y0, &y1), xor(&s0, &s1));
            for (i, z) in xor(&z0, &z1).into_iter().enumerate() {
                assert_eq!(z, x[i] & y[i], "{n} {i}");
            }
            for (i, w) in xor(&w0, &w1).into_iter().enumerate() {
                assert_eq!(w, x[i] & s[i], "{n} {i}");
            }
        }
    }

    #[test]
    fn and_of_private_words() {
        for n in [0, 1, 2, 7] {
            let (x, y) = (words(n, 7), words(n, 8));
            let (z0, z1, stats) = run_counted(|ctx| and_private(ctx, &x).unwrap(), |ctx| and_private(ctx, &y).unwrap());
            assert_cost(&stats, and_private_cost(n));
            for (i, z) in xor(&z0, &z1).into_iter().enumerate() {
                assert_eq!(z, x[i] & y[i], "{n} {i}");
            }
        }
    }

    #[test]
    fn lengths_are_checked() {
        run_counted(
            |ctx| {
                assert!(and_words(ctx, &[0], &[], &[]).is_err());
                assert!(and_words(ctx, &[0], &[0], &[0, 0]).is_err());
            },
            |_| (),
        );
    }
}
