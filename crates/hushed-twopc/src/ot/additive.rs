//! Additive correlated OT with chosen choices: shares of x·d for one party's value x and the other party's value d, bit
//! by bit.
//!
//! **One bit x.** From a random correlated OT the messenger has two pads p₀, p₁ and the chooser (c, p_c), where a pad
//! is the hash of the OT's block, cut to the message width w. With ω = p₁ − p₀ they hold shares p_c and −p₀ of c·ω mod
//! 2^w. Beaver's trick moves this to the parties' own inputs: the chooser sends e = x ⊕ c, the messenger f = d − ω, and
//!
//! > x·d = e·d + (1 − 2e)·(c·ω + c·f) mod 2^w,
//!
//! of which the chooser holds (1 − 2e)·(p_c + c·f) and the messenger e·d − (1 − 2e)·p₀. The two messages do not depend
//! on each other, so **both directions together are one exchange**: half the latency of the usual order, in which the
//! messenger waits for e. e is uniform because c is; f is uniform to the chooser, who does not know the other pad (the
//! hash is circular-correlation robust under its OT's index as the tweak).
//!
//! **A value of several bits** is Gilboa's sum (CRYPTO 1999): x·d = Σ_j 2^j·x_j·d mod 2^w, where bit j needs messages
//! of only w − j bits. Choices are laid out by bit position, all elements of a position together.
//!
//! **One choice for several values**: two fit into a pad. For more, the pad is the key of a stream, AES at the counters
//! 2^16·index + t for t = 0, 1, …, two values per block; as its input has the index, no two streams help to find a key.
//!
//! Bytes: chooser ⌈count/8⌉ per bit, messenger Σ_j ⌈count·messages·(w − j)/8⌉. One round; large batches of values go in
//! a frame of their own, before the choices that are made after them.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

#[cfg(any(test, feature = "testing"))]
pub(crate) mod read;

use super::{CotRecv, CotSend, SecretBlocks};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_at_least, expect_at_most, expect_len};
use crate::share::{SecretWords, clear_tail, wipe};
use crate::wire;
use hushed_math::bits::{Block, Mask, PrgAes};
use hushed_net::Kind;

const EXCHANGE: Kind = Kind(0x0310);

/// The shape of a batch of products, which both parties know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of choosing values.
    pub count: usize,
    /// Number of values that each of them multiplies, 1 to 2^17.
    pub messages: usize,
    /// Bits of a choosing value, 1 to 64, with one OT each. Bits from `width` on change nothing and take none.
    pub bits: u32,
    /// Bits of the products, 1 to 64.
    pub width: u32,
}

/// The messenger's values d: `count × messages` words, choice by choice; bits above the width are ignored.
#[derive(Clone, Copy)]
pub struct Offer<'a> {
    /// The batch.
    pub shape: Shape,
    /// The values.
    pub values: &'a [u64],
}

/// The chooser's values x as bit planes: ⌈count/64⌉ words per bit position, with that bit of all values. Bits above
/// `count` are ignored.
#[derive(Clone, Copy)]
pub struct Choice<'a> {
    /// The batch.
    pub shape: Shape,
    /// The planes, least significant first.
    pub planes: &'a [u64],
}

/// Shares of all products, `count × messages` words, reduced to the width; empty for a direction without a batch.
#[derive(Default)]
pub struct Products {
    /// This party's shares of the products whose values it offered.
    pub offered: Vec<u64>,
    /// This party's shares of the products for which it chose.
    pub chosen: Vec<u64>,
}

impl Drop for Products {
    fn drop(&mut self) {
        wipe(&mut self.offered);
        wipe(&mut self.chosen);
    }
}

impl Shape {
    /// `count` single bits, each with one value of `width` bits.
    pub fn of_bits(count: usize, width: u32) -> Shape {
        Shape::of_values(count, 1, width)
    }

    /// `count` values of `bits` bits, each with one value of `width` bits.
    pub fn of_values(count: usize, bits: u32, width: u32) -> Shape {
        Shape { count, messages: 1, bits, width }
    }

    fn values(&self) -> usize {
        self.count * self.messages
    }

    /// Words per plane.
    fn words(&self) -> usize {
        self.count.div_ceil(64)
    }

    /// The planes that matter.
    fn planes(&self) -> u32 {
        self.bits.min(self.width)
    }

    fn bytes_of_choice(&self) -> usize {
        self.planes() as usize * self.count.div_ceil(8)
    }

    fn bytes_of_values(&self) -> usize {
        let plane = |j| wire::packed_len(self.values(), self.width - j);
        (0..self.planes()).map(plane).sum()
    }

    fn check(&self) -> Result<(), TwopcError> {
        let name = "additive OT";
        for bits in [self.bits, self.width] {
            expect_at_least(name, "bits", bits.into(), 1)?;
            expect_at_most(name, "bits", bits.into(), 64)?;
        }
        expect_at_least(name, "messages", self.messages as u64, 1)?;
        expect_at_most(name, "messages", self.messages as u64, 1 << 17)
    }
}

/// Cost of [`additive`] with the batches in which the client and the server choose, once both OT directions run.
pub fn cost(client_chooses: Option<Shape>, server_chooses: Option<Shape>) -> Cost {
    let cots = |s: Option<Shape>| s.map_or(0, |s| u64::from(s.planes()) * s.count as u64);
    let client = sent(server_chooses, client_chooses);
    let server = sent(client_chooses, server_chooses);
    let frames = |(values, choice): (usize, usize)| match APART.contains(&values) {
        true => 1 + u64::from(choice > 0),
        false => u64::from(values + choice > 0),
    };
    let bytes = |(values, choice): (usize, usize)| (values + choice) as u64;
    Cost {
        frames_client: frames(client),
        frames_server: frames(server),
        ..Cost::exchange(bytes(client), bytes(server))
    }
    .with_cots(cots(server_chooses), cots(client_chooses))
}

/// Bytes of the values and of the choices that a party sends if it offers one batch and chooses in another.
fn sent(offered: Option<Shape>, chosen: Option<Shape>) -> (usize, usize) {
    let values = offered.map_or(0, |s| s.bytes_of_values());
    (values, chosen.map_or(0, |s| s.bytes_of_choice()))
}

/// Shares of x·d mod 2^width for all choosing and offered values in both directions, in one exchange. One party's
/// `offer` has the shape of the other's `choice`.
///
/// # Errors
/// [`TwopcError::Misuse`] on a shape out of range or with too few words.
pub fn additive(ctx: &mut Ctx, offer: Option<Offer<'_>>, choice: Option<Choice<'_>>) -> Result<Products, TwopcError> {
    let name = "additive OT";
    if let Some(offer) = &offer {
        offer.shape.check()?;
        expect_len(name, "values", offer.values.len(), offer.shape.values())?;
    }
    if let Some(choice) = &choice {
        choice.shape.check()?;
        let words = choice.shape.planes() as usize * choice.shape.words();
        expect_at_least(name, "choice words", choice.planes.len() as u64, words as u64)?;
    }
    // The peer's message is in the order in which the peer makes its parts.
    let (first, peer_first) = (ctx.sends_first(), ctx.peer_sends_first());
    let [offered, chosen] = [offer.map(|o| o.shape), choice.map(|c| c.shape)];
    let (mine, theirs) = (sent(offered, chosen), sent(chosen, offered));
    // A direction begins with messages that nothing may come between.
    let begun = ctx.ot.has_begun();
    let apart = |values: usize| begun && APART.contains(&values);
    let mut out = Products::default();
    let mut pads = Pads::default();
    let mut kept = Kept::default();
    let mut message = Vec::with_capacity(mine.0 + mine.1 + 8);
    for offering in [first, !first] {
        match (offering, &offer, &choice) {
            (true, Some(offer), _) => pads = make_offer(ctx, offer, &mut message)?,
            (false, _, Some(choice)) => {
                out.chosen = vec![0; choice.shape.values()];
                kept = make_choice(ctx, choice, &mut message, &mut out.chosen)?;
            }
            _ => {}
        }
        let last = offering != first;
        if !message.is_empty() && (last || apart(mine.0)) {
            ctx.session.send_vec(EXCHANGE, std::mem::take(&mut message))?;
        }
    }
    let whole = !apart(theirs.0);
    let reply = match whole {
        true => receive(ctx, theirs.0 + theirs.1)?,
        false => Vec::new(),
    };
    let mut reply = reply.as_slice();
    for offering in [peer_first, !peer_first] {
        let length = if offering { theirs.0 } else { theirs.1 };
        let part = match whole {
            true => None,
            false => Some(receive(ctx, length)?),
        };
        let mut message = match &part {
            Some(part) => part.as_slice(),
            None => wire::take(&mut reply, length)?,
        };
        match (offering, &offer, &choice) {
            (true, _, Some(choice)) => {
                settle_choice(&choice.shape, &kept, &mut message, &mut out.chosen)?;
            }
            (false, Some(offer), _) => {
                out.offered = vec![0; offer.shape.values()];
                settle_offer(offer, &pads, &mut message, &mut out.offered)?;
            }
            _ => {}
        }
    }
    Ok(out)
}

/// Bytes at which values leave on their own, before the choices are made: the network carries them meanwhile. What both
/// parties send before either reads has to be well below what a channel holds; more goes in one frame.
const APART: std::ops::Range<usize> = 1 << 16..32 << 20;

/// The peer's next message, of this length; if the length is 0 there is none.
fn receive(ctx: &mut Ctx, length: usize) -> Result<Vec<u8>, TwopcError> {
    match length {
        0 => Ok(Vec::new()),
        _ => wire::recv_exactly(&mut ctx.session, EXCHANGE, length),
    }
}

/// The most choices handled at a time, so that what is made and packed stays in the first-level caches, and the pads
/// are under one batch of the hash's keys wherever they begin.
const CHUNK: usize = 448;

/// Choices per chunk: a multiple of 64, so that a chunk begins on a word of choices and ends on a byte of packed
/// values.
fn rows_a_chunk(messages: usize) -> usize {
    (2048 / messages / 64 * 64).clamp(64, CHUNK)
}

/// The messenger's pads p₀, kept until e arrives, plane after plane. Planes of more than 32 bits come first; the rest
/// take half the memory. Bits above a plane's width are not used.
#[derive(Default)]
struct Pads {
    wide: Vec<u64>,
    narrow: Vec<u32>,
}

impl Drop for Pads {
    fn drop(&mut self) {
        wipe(&mut self.wide);
        wipe(&mut self.narrow);
    }
}

/// What the chooser keeps until f arrives: random choices c and corrections e = x ⊕ c, in planes.
#[derive(Default)]
struct Kept {
    c: Vec<u64>,
    e: Vec<u64>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        wipe(&mut self.c);
    }
}

/// Appends f to the message and returns the pads p₀.
#[expect(clippy::indexing_slicing, reason = "buffers are cut to a chunk of at most their length")]
fn make_offer(ctx: &mut Ctx, offer: &Offer<'_>, message: &mut Vec<u8>) -> Result<Pads, TwopcError> {
    let Shape { count, messages, width, .. } = offer.shape;
    let mut kept = Pads::default();
    if count == 0 {
        return Ok(kept);
    }
    let wide = offer.shape.planes().min(width.saturating_sub(32));
    let values = offer.shape.values();
    kept.wide.reserve_exact(wide as usize * values);
    kept.narrow.reserve_exact((offer.shape.planes() - wide) as usize * values);
    let rows = rows_a_chunk(messages);
    let mut p0 = vec![0u64; rows * messages];
    let mut f = p0.clone();
    let mut pads = [[Block::ZERO; CHUNK]; 2];
    for j in 0..offer.shape.planes() {
        let cot: CotSend = ctx.ot.send(&mut ctx.session, count)?;
        for (k, values) in offer.values.chunks(rows * messages).enumerate() {
            let (p0, f) = (&mut p0[..values.len()], &mut f[..values.len()]);
            let at = k * rows;
            let [zero, one] = pads.each_mut().map(|p| &mut p[..values.len() / messages]);
            cot.pads(at, zero, one);
            let first = cot.first_index + at as u64;
            stretch(first, zero, messages, p0);
            stretch(first, one, messages, f);
            // f holds p₁; f = d − (p₁ − p₀).
            for ((f, p0), d) in f.iter_mut().zip(p0.iter()).zip(values) {
                *f = d.wrapping_sub(f.wrapping_sub(*p0));
            }
            wire::pack_into(f, width - j, message);
            if j < wide {
                kept.wide.extend_from_slice(p0);
            } else {
                kept.narrow.extend(p0.iter().map(|p| *p as u32));
            }
        }
    }
    wipe(&mut p0);
    wipe(&mut f);
    Block::wipe(pads.as_flattened_mut());
    Ok(kept)
}

/// Appends e to the message and adds to `out` the chooser's part that needs no answer, Σ_j 2^j·(1 − 2e)·p_c.
#[expect(clippy::indexing_slicing, reason = "buffers are cut to a chunk of at most their length")]
fn make_choice(ctx: &mut Ctx, choice: &Choice<'_>, message: &mut Vec<u8>, out: &mut [u64]) -> Result<Kept, TwopcError> {
    let Shape { count, messages, .. } = choice.shape;
    let mut kept = Kept::default();
    if count == 0 {
        return Ok(kept);
    }
    // Reserved at once: growing would leave choices behind.
    let words = choice.shape.planes() as usize * choice.shape.words();
    kept.c.reserve_exact(words);
    kept.e.reserve_exact(words);
    let rows = rows_a_chunk(messages);
    let mut values = SecretWords::from(vec![0u64; rows * messages]);
    let mut pads = [Block::ZERO; CHUNK];
    let planes = choice.planes.chunks_exact(choice.shape.words());
    for (j, x) in (0..choice.shape.planes()).zip(planes) {
        let cot: CotRecv = ctx.ot.recv(&mut ctx.session, count)?;
        let c = low_bits(&cot.blocks);
        let mut e: Vec<u64> = c.iter().zip(x).map(|(c, x)| c ^ x).collect();
        // The bits above `count` in the last word are the caller's and must not be sent.
        clear_tail(&mut e, count);
        wire::bits_into(&e, count, message);
        let chunks = out.chunks_mut(rows * messages).zip(e.chunks(rows / 64));
        for (k, (out, e)) in chunks.enumerate() {
            let at = k * rows;
            let pads = &mut pads[..out.len() / messages];
            cot.pads(at, pads);
            let values = &mut values[..out.len()];
            stretch(cot.first_index + at as u64, pads, messages, values);
            update(out, values, messages, [Bits::Public(e)], |sum, pad, [e]| sum.wrapping_add(e.negate(pad) << j));
        }
        kept.c.extend_from_slice(&c);
        kept.e.extend_from_slice(&e);
    }
    Block::wipe(&mut pads);
    Ok(kept)
}

/// out = Σ_j 2^j·(e·d − (1 − 2e)·p₀), with e taken from the front of the peer's message.
fn settle_offer(offer: &Offer<'_>, pads: &Pads, message: &mut &[u8], out: &mut [u64]) -> Result<(), TwopcError> {
    let e = wire::take(message, offer.shape.bytes_of_choice())?;
    let Shape { count, messages, width, .. } = offer.shape;
    if count == 0 {
        return Ok(());
    }
    let rows = rows_a_chunk(messages);
    let chunk = rows * messages;
    let mut buffer = vec![0u64; chunk];
    let (mut wide, mut narrow) = (pads.wide.as_slice(), pads.narrow.as_slice());
    for (j, e) in e.chunks(count.div_ceil(8)).enumerate() {
        let e = wire::bits_from(e, count);
        let chunks = out.chunks_mut(chunk).zip(offer.values.chunks(chunk));
        for ((out, values), e) in chunks.zip(e.chunks(rows / 64)) {
            let p0 = buffer.as_mut_slice();
            if width - j as u32 > 32 {
                let (now, later) = wide.split_at(out.len());
                p0.iter_mut().zip(now).for_each(|(p, n)| *p = *n);
                wide = later;
            } else {
                let (now, later) = narrow.split_at(out.len());
                p0.iter_mut().zip(now).for_each(|(p, n)| *p = u64::from(*n));
                narrow = later;
            }
            // First p₀ becomes e·d − (1 − 2e)·p₀, in one pass over both.
            update(p0, values, messages, [Bits::Public(e)], |p0, d, [e]| (d & e).wrapping_sub(e.negate(p0)));
            for (out, term) in out.iter_mut().zip(p0.iter()) {
                *out = out.wrapping_add(term << j);
            }
        }
    }
    reduce(out, width);
    wipe(&mut buffer);
    Ok(())
}

/// out += Σ_j 2^j·(1 − 2e)·c·f, with f taken from the front of the peer's message.
fn settle_choice(shape: &Shape, kept: &Kept, message: &mut &[u8], out: &mut [u64]) -> Result<(), TwopcError> {
    let mut f = wire::take(message, shape.bytes_of_values())?;
    let Shape { count, messages, width, .. } = *shape;
    if count == 0 {
        return Ok(());
    }
    let rows = rows_a_chunk(messages);
    let planes = kept.c.chunks(shape.words()).zip(kept.e.chunks(shape.words()));
    for (j, (c, e)) in (0u32..).zip(planes) {
        let masks = c.chunks(rows / 64).zip(e.chunks(rows / 64));
        for (out, (c, e)) in out.chunks_mut(rows * messages).zip(masks) {
            let bytes = wire::packed_len(out.len(), width - j);
            let f = wire::unpack(wire::take(&mut f, bytes)?, width - j, out.len())?;
            let bits = [Bits::Secret(c), Bits::Public(e)];
            update(out, &f, messages, bits, |sum, f, [c, e]| sum.wrapping_add(e.negate(f & c) << j));
        }
    }
    reduce(out, width);
    Ok(())
}

/// Writes `messages` words of each pad to `out`, pad by pad; the pads' OTs have the indices from `first` on.
#[expect(clippy::indexing_slicing, reason = "a block of the stream has two words, and a row half as many blocks")]
pub(crate) fn stretch(first: u64, pads: &[Block], messages: usize, out: &mut [u64]) {
    if messages <= 2 {
        for (row, pad) in out.chunks_mut(messages).zip(pads) {
            row[0] = pad.low_u64();
            if let Some(second) = row.get_mut(1) {
                *second = pad.high_u64();
            }
        }
        return;
    }
    let mut stream = SecretBlocks::zero(messages.div_ceil(2));
    for ((row, pad), index) in out.chunks_mut(messages).zip(pads).zip(first..) {
        PrgAes::at(*pad, u128::from(index) << 16).fill(&mut stream);
        for (words, block) in row.chunks_mut(2).zip(stream.iter()) {
            words[0] = block.low_u64();
            if let Some(second) = words.get_mut(1) {
                *second = block.high_u64();
            }
        }
    }
}

/// The bits of choices: of c, which only its owner knows, or of e, which was sent.
#[derive(Clone, Copy)]
enum Bits<'a> {
    Secret(&'a [u64]),
    Public(&'a [u64]),
}

impl Bits<'_> {
    #[inline(always)]
    fn word(self, k: usize) -> u64 {
        let (Bits::Secret(words) | Bits::Public(words)) = self;
        words.get(k).copied().unwrap_or(0)
    }

    #[inline(always)]
    fn masks(self, k: usize) -> [Mask; 64] {
        match self {
            Bits::Secret(_) => Mask::from_word(self.word(k)),
            Bits::Public(_) => Mask::from_public_word(self.word(k)),
        }
    }

    #[inline(always)]
    fn mask(self, k: usize, i: usize) -> Mask {
        match self {
            Bits::Secret(_) => Mask::from_bit(self.word(k) >> i),
            Bits::Public(_) => Mask::from_public_bit(self.word(k) >> i),
        }
    }
}

/// out = f(out, value, masks) for each value, where the masks are the bits of its choice in each of the given words.
#[expect(clippy::indexing_slicing, reason = "64 masks a word, and chunks of 64 values")]
#[inline(always)]
fn update<const K: usize>(
    out: &mut [u64],
    values: &[u64],
    messages: usize,
    bits: [Bits<'_>; K],
    f: impl Fn(u64, u64, [Mask; K]) -> u64,
) {
    let chunks = out.chunks_mut(64 * messages);
    for (k, (out, values)) in chunks.zip(values.chunks(64 * messages)).enumerate() {
        if messages == 1 {
            let masks = bits.map(|b| b.masks(k));
            for (i, (out, value)) in out.iter_mut().zip(values).enumerate() {
                let masks = core::array::from_fn(|k| masks[k][i]);
                *out = f(*out, *value, masks);
            }
            continue;
        }
        let rows = out.chunks_mut(messages).zip(values.chunks(messages));
        for (i, (out, values)) in rows.enumerate() {
            let masks = bits.map(|b| b.mask(k, i));
            for (out, value) in out.iter_mut().zip(values) {
                *out = f(*out, *value, masks);
            }
        }
    }
}

/// The lsb of each block, packed.
pub(crate) fn low_bits(blocks: &[Block]) -> SecretWords {
    let pack = |chunk: &[Block]| {
        let bits = chunk.iter().enumerate();
        bits.fold(0u64, |w, (i, b)| w | ((b.low_u64() & 1) << i))
    };
    blocks.chunks(64).map(pack).collect()
}

fn reduce(words: &mut [u64], width: u32) {
    let mask = u64::MAX >> (64 - width);
    words.iter_mut().for_each(|w| *w &= mask);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, run_counted, words};

    fn shape((count, messages, bits, width): (usize, usize, u32, u32)) -> Shape {
        Shape { count, messages, bits, width }
    }

    /// The products in the clear.
    fn expected(shape: Shape, planes: &[u64], values: &[u64]) -> Vec<u64> {
        let mask = u64::MAX >> (64 - shape.width);
        let x = |k: usize| {
            let bit = |j: usize| (planes[j * shape.words() + k / 64] >> (k % 64)) & 1;
            (0..shape.planes() as usize).fold(0, |x, j| x | bit(j) << j)
        };
        let product = |(i, d): (usize, &u64)| x(i / shape.messages).wrapping_mul(*d) & mask;
        values.iter().enumerate().map(product).collect()
    }

    /// Both directions at once, over edge shapes: one choice, about a word's worth, about a chunk's worth, several
    /// values per choice, pads of both sizes.
    #[test]
    fn products_in_both_directions() {
        let shapes = [
            (1, 1, 1, 1),
            (63, 1, 1, 64),
            (64, 1, 5, 17),
            (1100, 1, 3, 33),
            (513, 1, 40, 40),
            (65, 2, 9, 9),
            (5, 7, 2, 64),
            (130, 33, 4, 12),
            (9, 700, 2, 34),
            (0, 1, 8, 8),
            (10, 1, 64, 16),
            // Values in a frame of their own.
            (12_000, 1, 3, 46),
        ];
        for (i, at) in shapes.iter().enumerate() {
            let (a, b) = (shape(*at), shape(shapes[(i + 3) % shapes.len()]));
            let [va, vb] = [a, b].map(|s| words(s.values(), 1));
            let [xa, xb] = [a, b].map(|s| words(s.planes() as usize * s.words(), 2));
            let offer = |shape, values| Some(Offer { shape, values });
            let choice = |shape, planes| Some(Choice { shape, planes });
            let (client, server, stats) = run_counted(
                |ctx| additive(ctx, offer(a, &va), choice(b, &xb)).unwrap(),
                |ctx| additive(ctx, offer(b, &vb), choice(a, &xa)).unwrap(),
            );
            assert_cost(&stats, cost(Some(b), Some(a)));
            for (s, mine, theirs, x, v) in
                [(a, &client.offered, &server.chosen, &xa, &va), (b, &client.chosen, &server.offered, &xb, &vb)]
            {
                let mask = u64::MAX >> (64 - s.width);
                assert!(mine.iter().chain(theirs).all(|w| w & !mask == 0), "{s:?}");
                let sum = mine.iter().zip(theirs);
                let sum: Vec<u64> = sum.map(|(m, t)| m.wrapping_add(*t) & mask).collect();
                assert_eq!(sum, expected(s, x, v), "{s:?}");
            }
        }
    }

    #[test]
    fn one_direction_alone() {
        let s = shape((70, 1, 6, 20));
        let (values, planes) = (words(70, 3), words(12, 4));
        let offer = Offer { shape: s, values: &values };
        let choice = Choice { shape: s, planes: &planes };
        let (client, server, stats) = run_counted(
            |ctx| additive(ctx, None, Some(choice)).unwrap(),
            |ctx| additive(ctx, Some(offer), None).unwrap(),
        );
        assert_cost(&stats, cost(Some(s), None));
        let sum = client.chosen.iter().zip(&server.offered);
        let sum: Vec<u64> = sum.map(|(m, t)| m.wrapping_add(*t) & 0xf_ffff).collect();
        assert_eq!(sum, expected(s, &planes, &values));
        assert!(client.offered.is_empty() && server.chosen.is_empty());
    }

    #[test]
    fn shapes_are_checked() {
        run_counted(
            |ctx| {
                let s = Shape::of_bits(65, 8);
                let offer = |shape, values| Some(Offer { shape, values });
                let choice = |shape, planes| Some(Choice { shape, planes });
                assert!(additive(ctx, offer(s, &[0; 64]), None).is_err());
                assert!(additive(ctx, None, choice(s, &[0])).is_err());
                for bad in [(0, 1, 1, 65), (0, 1, 1, 0), (0, 1, 0, 8), (0, 0, 1, 8)] {
                    assert!(additive(ctx, offer(shape(bad), &[]), None).is_err());
                }
            },
            |_| (),
        );
    }
}
