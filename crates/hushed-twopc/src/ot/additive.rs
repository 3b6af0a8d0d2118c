//! Additive correlated OT with chosen choices: shares of x·d for a bit x of one party and a value d of the other.
//!
//! From a random correlated OT the messenger has two pads p₀, p₁ and the chooser (c, p_c), where a pad is the hash of
//! the OT's block, cut to the message width w. With ω = p₁ − p₀ they hold shares p_c and −p₀ of c·ω mod 2^w. Beaver's
//! trick moves this to the parties' own inputs: the chooser sends e = x ⊕ c, the messenger f = d − ω, and
//!
//! > x·d = e·d + (1 − 2e)·(c·ω + c·f) mod 2^w,
//!
//! of which the chooser holds (1 − 2e)·(p_c + c·f) and the messenger e·d − (1 − 2e)·p₀. The two messages do not depend on
//! each other, so that **everything in both directions is one exchange**: half the latency of the usual order,
//! in which the messenger waits for e. e is uniform because c is; f is uniform to the chooser, who does not
//! know the other pad (the hash is circular-correlation robust under the tweak of its OT's index).
//!
//! Choices are grouped in segments of one width, laid out by bit position (Gilboa's product takes one segment a bit, with messages of
//! ring.bits − j bits). A segment can give each choice `messages` values: one OT whose pad is stretched by hashing under
//! the tweaks (t ≪ 48) | index for t = 0, 1, …, two values a block if there is more than one.
//!
//! Bytes: chooser ⌈count/8⌉, messenger ⌈count·messages·width/8⌉, a segment. One round.

use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_at_least, expect_at_most, expect_len};
use crate::ot::{CotRecv, CotSend};
use crate::share::wipe;
use crate::wire;
use hushed_math::bits::{Block, hash_blocks};
use hushed_net::{Kind, Party};

const EXCHANGE: Kind = Kind(0x0310);

/// The shape of a segment, which both parties know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The number of choices, one OT each.
    pub count: usize,
    /// Values that one choice selects; 1 to 2^17.
    pub messages: usize,
    /// Bits of a value, 1 to 64.
    pub width: u32,
}

/// Values d of a segment: `count × messages` words, choice by choice; bits above the width are ignored.
#[derive(Clone, Copy)]
pub struct Deltas<'a> {
    /// The segment's shape.
    pub shape: Segment,
    /// The values.
    pub values: &'a [u64],
}

/// Choices x of a segment, packed 64 a word; bits above `count` are ignored.
#[derive(Clone, Copy)]
pub struct Choices<'a> {
    /// The segment's shape.
    pub shape: Segment,
    /// The choice bits.
    pub bits: &'a [u64],
}

/// Shares of all products: segment after segment, `count × messages` words each, reduced to the width.
pub struct Products {
    /// This party's shares of the products whose values it knows.
    pub as_messenger: Vec<u64>,
    /// This party's shares of the products whose choices it knows.
    pub as_chooser: Vec<u64>,
}

impl Drop for Products {
    fn drop(&mut self) {
        wipe(&mut self.as_messenger);
        wipe(&mut self.as_chooser);
    }
}

impl Segment {
    /// `count` choices of one value of `width` bits.
    pub fn single(count: usize, width: u32) -> Segment {
        Segment {
            count,
            messages: 1,
            width,
        }
    }

    fn values(&self) -> usize {
        self.count * self.messages
    }

    fn words(&self) -> usize {
        self.count.div_ceil(64)
    }

    fn bytes_choices(&self) -> usize {
        self.count.div_ceil(8)
    }

    fn bytes_values(&self) -> usize {
        wire::packed_len(self.values(), self.width)
    }

    fn check(&self) -> Result<(), TwopcError> {
        expect_at_least("additive OT", "width", self.width.into(), 1)?;
        expect_at_most("additive OT", "width", self.width.into(), 64)?;
        expect_at_least("additive OT", "messages", self.messages as u64, 1)?;
        expect_at_most("additive OT", "messages", self.messages as u64, 1 << 17)
    }
}

/// Cost of [`additive`] over the segments in which the client and the server choose.
pub fn cost(client_chooses: &[Segment], server_chooses: &[Segment]) -> Cost {
    let choices = |s: &[Segment]| s.iter().map(|s| s.bytes_choices() as u64).sum::<u64>();
    let values = |s: &[Segment]| s.iter().map(|s| s.bytes_values() as u64).sum::<u64>();
    let cots = |s: &[Segment]| s.iter().map(|s| s.count as u64).sum::<u64>();
    Cost::exchange(
        choices(client_chooses) + values(server_chooses),
        choices(server_chooses) + values(client_chooses),
    )
    .with_cots(cots(server_chooses), cots(client_chooses))
}

/// Shares of x·d for all choices and values of both directions, in one exchange. What one party
/// passes as `deltas` meets, shape by shape, what the other passes as `choices`.
///
/// # Errors
/// [`TwopcError::Misuse`] on a shape that does not fit its words.
pub fn additive(
    ctx: &mut Ctx,
    deltas: &[Deltas<'_>],
    choices: &[Choices<'_>],
) -> Result<Products, TwopcError> {
    for d in deltas {
        d.shape.check()?;
        expect_len("additive OT", "values", d.values.len(), d.shape.values())?;
    }
    for c in choices {
        c.shape.check()?;
        expect_len("additive OT", "choice words", c.bits.len(), c.shape.words())?;
    }
    let client = ctx.party() == Party::Client;
    let mut message = Vec::new();
    let mut out = Products {
        as_messenger: Vec::with_capacity(deltas.iter().map(|d| d.shape.values()).sum()),
        as_chooser: Vec::with_capacity(choices.iter().map(|c| c.shape.values()).sum()),
    };
    // What a chooser must remember until the other's message is here: c and e.
    let mut chosen = Vec::with_capacity(choices.len());
    // At both ends, and in both messages, the direction in which the client is messenger comes first. Correlations
    // are drawn segment by segment, so that their blocks are hashed while they are in the cache.
    for messenger in [client, !client] {
        if messenger {
            for d in deltas.iter().filter(|d| d.shape.count > 0) {
                let cot = ctx.ot.send(&mut ctx.session, d.shape.count)?;
                offer(d, &cot, &mut message, &mut out.as_messenger);
            }
        } else {
            for c in choices.iter().filter(|c| c.shape.count > 0) {
                let cot = ctx.ot.recv(&mut ctx.session, c.shape.count)?;
                chosen.push(choose(c, &cot, &mut message, &mut out.as_chooser));
            }
        }
    }

    let theirs = deltas
        .iter()
        .map(|d| d.shape.bytes_choices())
        .sum::<usize>()
        + choices
            .iter()
            .map(|c| c.shape.bytes_values())
            .sum::<usize>();
    let reply = wire::exchange(&mut ctx.session, EXCHANGE, message, theirs)?;
    let mut reply = reply.as_slice();
    for messenger in [client, !client] {
        if messenger {
            let mut shares = out.as_messenger.as_mut_slice();
            for d in deltas {
                let e = wire::take(&mut reply, d.shape.bytes_choices())?;
                let e = wire::bits_from(e, d.shape.count);
                let (own, rest) = shares.split_at_mut(d.shape.values());
                settle_messenger(d, &e, own);
                shares = rest;
            }
        } else {
            let mut shares = out.as_chooser.as_mut_slice();
            let present = choices.iter().filter(|c| c.shape.count > 0);
            for (c, chosen) in present.zip(&mut chosen) {
                let f = wire::take(&mut reply, c.shape.bytes_values())?;
                let (own, rest) = shares.split_at_mut(c.shape.values());
                settle_chooser(&c.shape, chosen, f, own)?;
                wipe(&mut chosen.c);
                shares = rest;
            }
        }
    }
    Ok(out)
}

/// Random choices c and corrections e = x ⊕ c of one segment.
struct Chosen {
    c: Vec<u64>,
    e: Vec<u64>,
}

/// Most choices handled at a time, so that what is made and packed stays in the first-level caches.
const CHUNK: usize = 512;

/// Choices of a chunk: a multiple of 8, so that a chunk's packed values end on a byte, and enough to keep the
/// hash's pipeline full.
fn rows_a_chunk(messages: usize) -> usize {
    (2048 / messages / 8 * 8).clamp(32, CHUNK)
}

/// Appends e to the message and the pads p_c to `out`.
fn choose(
    choices: &Choices<'_>,
    cot: &CotRecv,
    message: &mut Vec<u8>,
    out: &mut Vec<u64>,
) -> Chosen {
    let shape = choices.shape;
    let c = low_bits(&cot.blocks);
    let e: Vec<u64> = c.iter().zip(choices.bits).map(|(c, x)| c ^ x).collect();
    // The bits above `count` of the last word are the caller's: they must not travel.
    let e = mask_tail(e, shape.count);
    wire::bits_into(&e, shape.count, message);
    let start = out.len();
    out.resize(start + shape.values(), 0);
    let mut pads = [Block::ZERO; CHUNK];
    let mut first = cot.first_index;
    let rows = rows_a_chunk(shape.messages);
    let chunks = out[start..].chunks_mut(rows * shape.messages);
    for (blocks, out) in cot.blocks.chunks(rows).zip(chunks) {
        stretch(blocks, first, &mut pads, shape.messages, out);
        first += rows as u64;
    }
    Block::wipe(&mut pads);
    Chosen { c, e }
}

/// Appends f to the message and the pads p₀ to `out`.
fn offer(deltas: &Deltas<'_>, cot: &CotSend, message: &mut Vec<u8>, out: &mut Vec<u64>) {
    let Segment {
        messages, width, ..
    } = deltas.shape;
    let start = out.len();
    out.resize(start + deltas.shape.values(), 0);
    let rows = rows_a_chunk(messages);
    let mut f = vec![0u64; rows * messages];
    let mut pads = [Block::ZERO; CHUNK];
    let mut flipped = [Block::ZERO; CHUNK];
    let mut first = cot.first_index;
    let chunks = out[start..].chunks_mut(rows * messages);
    let chunks = chunks.zip(deltas.values.chunks(rows * messages));
    for (blocks, (p0, values)) in cot.blocks.chunks(rows).zip(chunks) {
        let flipped = &mut flipped[..blocks.len()];
        for (x, b) in flipped.iter_mut().zip(blocks) {
            *x = *b ^ cot.delta;
        }
        let f = &mut f[..values.len()];
        stretch(blocks, first, &mut pads, messages, p0);
        stretch(flipped, first, &mut pads, messages, f);
        // f holds p₁; f = d − (p₁ − p₀).
        for ((f, p0), d) in f.iter_mut().zip(p0.iter()).zip(values) {
            *f = d.wrapping_sub(f.wrapping_sub(*p0));
        }
        wire::pack_into(f, width, message);
        first += rows as u64;
    }
    Block::wipe(&mut flipped);
    Block::wipe(&mut pads);
}

/// `messages` pads of each block, block by block, into `out`.
fn stretch(blocks: &[Block], first: u64, pads: &mut [Block], messages: usize, out: &mut [u64]) {
    let pads = &mut pads[..blocks.len()];
    if messages == 1 {
        hash_blocks(first, blocks, pads);
        for (o, p) in out.iter_mut().zip(pads.iter()) {
            *o = p.low_u64();
        }
        return;
    }
    for t in 0..messages.div_ceil(2) {
        hash_blocks(((t as u64) << 48) | first, blocks, pads);
        for (row, p) in out.chunks_mut(messages).zip(pads.iter()) {
            row[2 * t] = p.low_u64();
            if let Some(second) = row.get_mut(2 * t + 1) {
                *second = p.high_u64();
            }
        }
    }
}

/// own: p₀ → e·d − (1 − 2e)·p₀.
fn settle_messenger(deltas: &Deltas<'_>, e: &[u64], own: &mut [u64]) {
    let Segment {
        messages, width, ..
    } = deltas.shape;
    let mask = u64::MAX >> (64 - width);
    let settle = |own: &mut u64, d: u64, e: u64| {
        // e is 0 or all ones: p₀ − 2·e·p₀ by complement, with no branch.
        let signed = (*own ^ e).wrapping_sub(e);
        *own = (d & e).wrapping_sub(signed) & mask;
    };
    if messages == 1 {
        for ((own, d), &e) in own.chunks_mut(64).zip(deltas.values.chunks(64)).zip(e) {
            for (i, (own, &d)) in own.iter_mut().zip(d).enumerate() {
                settle(own, d, spread(e, i));
            }
        }
        return;
    }
    let rows = own.chunks_mut(messages).zip(deltas.values.chunks(messages));
    for (i, (own, d)) in rows.enumerate() {
        let e = spread(e[i / 64], i % 64);
        for (own, &d) in own.iter_mut().zip(d) {
            settle(own, d, e);
        }
    }
}

/// own: p_c → (1 − 2e)·(p_c + c·f), with f from the bytes of the peer's message.
fn settle_chooser(
    shape: &Segment,
    chosen: &Chosen,
    f: &[u8],
    own: &mut [u64],
) -> Result<(), TwopcError> {
    let Segment {
        messages, width, ..
    } = *shape;
    let mask = u64::MAX >> (64 - width);
    let settle = |own: &mut u64, f: u64, c: u64, e: u64| {
        let sum = own.wrapping_add(f & c);
        *own = (sum ^ e).wrapping_sub(e) & mask;
    };
    let rows = rows_a_chunk(messages);
    let bytes = wire::packed_len(rows * messages, width);
    let chunks = f.chunks(bytes).zip(own.chunks_mut(rows * messages));
    for (k, (f, own)) in chunks.enumerate() {
        let f = wire::unpack(f, width, own.len())?;
        if messages == 1 {
            // `rows` is CHUNK here, a multiple of 64.
            let bits = chosen.c[k * rows / 64..]
                .iter()
                .zip(&chosen.e[k * rows / 64..]);
            for ((own, f), (&c, &e)) in own.chunks_mut(64).zip(f.chunks(64)).zip(bits) {
                for (i, (own, &f)) in own.iter_mut().zip(f).enumerate() {
                    settle(own, f, spread(c, i), spread(e, i));
                }
            }
            continue;
        }
        let rows_of_values = own.chunks_mut(messages).zip(f.chunks(messages));
        for (i, (own, f)) in (k * rows..).zip(rows_of_values) {
            let (c, e) = (chosen.c[i / 64], chosen.e[i / 64]);
            let (c, e) = (spread(c, i % 64), spread(e, i % 64));
            for (own, &f) in own.iter_mut().zip(f) {
                settle(own, f, c, e);
            }
        }
    }
    Ok(())
}

/// Bit i of a word as all zeros or all ones.
#[inline(always)]
fn spread(word: u64, i: usize) -> u64 {
    ((word >> i) & 1).wrapping_neg()
}

/// The lsb of each block, packed.
pub(super) fn low_bits(blocks: &[Block]) -> Vec<u64> {
    let pack = |chunk: &[Block]| {
        let bits = chunk.iter().enumerate();
        bits.fold(0u64, |w, (i, b)| w | ((b.low_u64() & 1) << i))
    };
    blocks.chunks(64).map(pack).collect()
}

fn mask_tail(mut words: Vec<u64>, len: usize) -> Vec<u64> {
    if let (Some(last), used @ 1..) = (words.last_mut(), len % 64) {
        *last &= (1u64 << used) - 1;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, run_pair};
    use hushed_math::rng::SecretRng;

    /// Both directions at once, over shapes with edges: one choice, a word's worth and around, several values a choice.
    #[test]
    fn products_in_both_directions() {
        let shapes = [
            (1, 1, 1),
            (63, 1, 64),
            (64, 1, 17),
            (700, 1, 33),
            (65, 2, 9),
            (9, 700, 3),
            (5, 7, 64),
            (1030, 3, 12),
        ];
        let shapes = shapes.map(|(count, messages, width)| Segment {
            count,
            messages,
            width,
        });
        let half = shapes.len() / 2;
        let mut rng = SecretRng::insecure_from_seed(1);
        let mut words = |n: usize| (0..n).map(|_| rng.next_u64()).collect::<Vec<_>>();
        let values: Vec<_> = shapes.iter().map(|s| words(s.values())).collect();
        let bits: Vec<_> = shapes.iter().map(|s| words(s.words())).collect();
        let deltas = |from: usize, to: usize| {
            let one = |i: usize| Deltas {
                shape: shapes[i],
                values: &values[i],
            };
            (from..to).map(one).collect::<Vec<_>>()
        };
        let choices = |from: usize, to: usize| {
            let one = |i: usize| Choices {
                shape: shapes[i],
                bits: &bits[i],
            };
            (from..to).map(one).collect::<Vec<_>>()
        };
        let all = shapes.len();
        let (client, server) = run_pair(
            |ctx| {
                let out = additive(ctx, &deltas(0, half), &choices(half, all)).unwrap();
                (out, ctx.session.stats())
            },
            |ctx| additive(ctx, &deltas(half, all), &choices(0, half)).unwrap(),
        );
        let (client, stats) = client;
        assert_cost(&stats, cost(&shapes[half..], &shapes[..half]));
        let mut mine = client.as_messenger.iter().chain(&client.as_chooser);
        let mut theirs = server.as_chooser.iter().chain(&server.as_messenger);
        for (s, (values, bits)) in shapes.iter().zip(values.iter().zip(&bits)) {
            let mask = u64::MAX >> (64 - s.width);
            for (i, value) in values.iter().enumerate() {
                let k = i / s.messages;
                let x = (bits[k / 64] >> (k % 64)) & 1;
                let sum = mine.next().unwrap().wrapping_add(*theirs.next().unwrap());
                assert_eq!(sum & mask, x.wrapping_mul(*value) & mask, "{s:?} {i}");
            }
        }
        assert!(mine.next().is_none() && theirs.next().is_none());
    }

    #[test]
    fn shapes_are_checked() {
        run_pair(
            |ctx| {
                let shape = Segment::single(65, 8);
                let short = Deltas {
                    shape,
                    values: &[0; 64],
                };
                assert!(additive(ctx, &[short], &[]).is_err());
                let short = Choices { shape, bits: &[0] };
                assert!(additive(ctx, &[], &[short]).is_err());
                let wide = Deltas {
                    shape: Segment::single(0, 65),
                    values: &[],
                };
                assert!(additive(ctx, &[wide], &[]).is_err());
            },
            |_| (),
        );
    }
}
