//! Matrix products on byte tiles: AMX multiplies 16 × 64 by 64 × 16 bytes into 16 × 16 sums of 32 bits, sixteen
//! thousand products in sixteen cycles.
//!
//! A weight is a sum of signed digits, w = Σ_a w_a·256^a with w_a in [−128, 127]; a residue of unsigned ones,
//! x = Σ_b x_b·256^b. Then
//!
//! ```text
//! Σ_i w[o][i]·x[i][c] = Σ_k 256^k·S_k,   S_k = Σ_{a+b=k} Σ_i w_a[o][i]·x_b[i][c]
//! ```
//!
//! and |S_k| ≤ 7·1024·128·255 < 2^28. The sums begin at 2^28, so that they are positive and below 2^29. Three
//! neighbours give T_j = S_3j + 2^8·S_3j+1 + 2^16·S_3j+2 < 2^46, and the result is Σ_j T_j·(2^24j·f mod q). With
//! weights of three digits and residues of five, a term costs fifteen byte products, so sixteen terms take a quarter of
//! a cycle, where 52-bit multiply-adds take two cycles.
//!
//! Blocks: 16 rows, 16 words of a limb, 64 columns of the matrix. A pass multiplies two or three streams of weight
//! digits by one to three planes of residue digits; [`RUN`] steps of its weights stay in the first-level cache while
//! the groups of words pass by. With single-digit weights, two blocks of rows go together, as streams of one digit
//! each, so that enough sums are independent.

use super::lanes::{Factor, shoup52, splat, store};
use super::limb::{Limb, Wide};
use super::tiles::Configured;
use crate::kernels::gemm::{Chunk, DEPTH, GemmScratch, Method, TERMS, digits_limit};
use crate::machine::cpu::{HaveAmx, HaveIfma};
use crate::modulus::Modulus;
use crate::words::Words;
use std::arch::x86_64::*;

/// Words per tile: 16 rows of 64 bytes.
const TILE: usize = 128;

/// Rows and words of a block.
const SIDE: usize = 16;

/// Initial value of the sums S_k.
const LIFT: u64 = 1 << 28;

/// Steps of 64 columns in one run of a pass: three streams of weights take 18 KiB.
const RUN: usize = 6;

/// Bits of q up to which q plus ten more residues below 2q stays below 2^52: no reductions between the T_j.
const LAZY: u32 = 47;

/// Constants of one modulus; its existence proves that the kernel may run.
pub(crate) struct Planes {
    modulus: Modulus,
    limb: Limb,
    /// Digits per residue.
    residue_digits: usize,
}

/// A product of streams of weight digits with planes of residue digits.
struct Pass {
    stream: usize,
    streams: usize,
    plane: usize,
    planes: usize,
}

impl Planes {
    /// The tokens: every method relies on the instruction sets that they prove.
    pub(crate) fn new(_: HaveAmx, ifma: HaveIfma, modulus: &Modulus) -> Planes {
        Planes {
            modulus: *modulus,
            limb: Limb::new(ifma, modulus),
            residue_digits: modulus.bits().div_ceil(8) as usize,
        }
    }

    /// The weights as tiles of digits, and the number of digits.
    ///
    /// Each block of rows and each 64 columns have one tile per stream: for digit a, row o and column i are byte 64·o +
    /// i. Weights beyond q/2 are centred first.
    pub(crate) fn arrange(&self, weights: &[i64], rows: usize, columns: usize, limit: u64) -> (usize, Words) {
        let q = &self.modulus;
        let centred = limit > q.value() / 2;
        let limit = limit.min(q.value() / 2);
        let digits = (1..).find(|&count| digits_limit(count) >= limit);
        let digits = digits.map_or(8, |count| count as usize);
        let streams = streams(digits);
        let depth = columns.div_ceil(DEPTH);
        let blocks = rows.div_ceil(rows_of(digits));
        let mut tiles = Words::zero(blocks * depth * streams * TILE);
        for (o, row) in weights.chunks_exact(columns.max(1)).enumerate() {
            let (block, o) = (o / rows_of(digits), o % rows_of(digits));
            for (i, &w) in row.iter().enumerate() {
                let mut rest = if centred { q.centre(q.reduce_signed(w)) } else { w };
                let tile = (block * depth + i / DEPTH) * streams + o / SIDE;
                let word = tile * TILE + o % SIDE * 8 + i % DEPTH / 8;
                for a in 0..digits {
                    let digit = rest as i8;
                    rest = (rest - i64::from(digit)) >> 8;
                    tiles[word + a * TILE] |= u64::from(digit as u8) << (8 * (i % 8));
                }
            }
        }
        (digits, tiles)
    }

    /// out += f·w·x for the words `at .. at + length`.
    pub(crate) fn tile(
        &self,
        chunk: &Chunk,
        x: &[&[u64]],
        out: &mut [&mut [u64]],
        at: usize,
        length: usize,
        scratch: &mut GemmScratch,
    ) {
        let Method::Planes(digits) = chunk.method() else { unreachable!("weights in tiles come with their digits") };
        assert!(x.len() == chunk.terms && chunk.terms <= TERMS);
        assert!(chunk.start.is_multiple_of(DEPTH));
        assert!(x.iter().all(|x| at + length <= x.len()));
        assert!(out.iter().all(|out| at + length <= out.len()));
        let depth = x.len().div_ceil(DEPTH);
        let groups = length.div_ceil(SIDE);
        let group = depth * self.residue_digits * TILE;
        let exponents = digits + self.residue_digits - 1;
        let halves = rows_of(digits) / SIDE;
        // Sums of a group: one tile per k for each block of 16 rows.
        let tiles = halves * exponents * TILE;
        let (planes, sums) = scratch.words(groups * (group + tiles)).split_at_mut(groups * group);
        let constants = Constants::new(&self.modulus, chunk.factor(), exponents);
        let passes = passes(digits, self.residue_digits);
        let whole = chunk.columns().div_ceil(DEPTH);
        let streams = streams(digits);
        let steps = [streams, self.residue_digits].map(|tiles| 8 * tiles * TILE);
        // SAFETY: the tokens of `new` prove the instruction sets; the assertions bound every slice; blocks of weights
        // have `whole` steps of `streams` tiles, groups of planes `depth` steps of `residue_digits` tiles, and sums a
        // tile for each sum of a stream's and a plane's exponent.
        unsafe {
            self.gather(planes, x, at, length);
            let configured = Configured::new();
            for (block, out) in out.chunks_mut(rows_of(digits)).enumerate() {
                sums.fill(LIFT << 32 | LIFT);
                let first = (block * whole + chunk.start / DEPTH) * streams * TILE;
                let weights = &chunk.words()[first..first + depth * streams * TILE];
                for step in (0..depth).step_by(RUN) {
                    let count = RUN.min(depth - step);
                    for pass in &passes {
                        let weights = &weights[(step * streams + pass.stream) * TILE..];
                        let skip = (step * self.residue_digits + pass.plane) * TILE;
                        let to = if halves == 2 { pass.plane } else { pass.stream + pass.plane };
                        let groups = planes.chunks_exact(group).zip(sums.chunks_exact_mut(tiles));
                        for (planes, sums) in groups {
                            configured.run(
                                (halves == 2, pass.streams, pass.planes),
                                [weights.as_ptr(), planes[skip..].as_ptr()],
                                steps,
                                count,
                                sums[to * TILE..].as_mut_ptr(),
                                8 * exponents * TILE,
                            );
                        }
                    }
                }
                for (g, sums) in sums.chunks_exact(tiles).enumerate() {
                    let halves = sums.chunks_exact(exponents * TILE).zip(out.chunks_mut(SIDE));
                    for (sums, out) in halves {
                        self.finish(&constants, sums, out, at, length, g * SIDE);
                    }
                }
            }
        }
    }

    /// Gathers the digits of the words `at .. at + length` of each input: one tile per plane for each group of 16 words
    /// and each 64 inputs. Word c of input i is byte 64·(i/4) + 4·c + i%4.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
    unsafe fn gather(&self, planes: &mut [u64], x: &[&[u64]], at: usize, length: usize) {
        let depth = x.len().div_ceil(DEPTH);
        let digits = self.residue_digits;
        let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
        let odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
        let groups = planes.chunks_exact_mut(depth * digits * TILE);
        for (g, group) in groups.enumerate() {
            for four in 0..depth * SIDE {
                let mut quads = [[_mm512_setzero_si512(); 4]; 2];
                for (h, quads) in quads.iter_mut().enumerate() {
                    let first = g * SIDE + 8 * h;
                    let lanes = super::gemm::ends(length, first);
                    let rows: [__m512i; 4] = std::array::from_fn(|r| match x.get(4 * four + r) {
                        // SAFETY: the mask keeps to the words of the input.
                        Some(x) => unsafe {
                            _mm512_maskz_loadu_epi64(lanes, x.as_ptr().wrapping_add(at + first).cast())
                        },
                        None => _mm512_setzero_si512(),
                    });
                    // Bytes of the four inputs together, one plane after the other, for even and for odd words.
                    let even = [_mm512_unpacklo_epi8(rows[0], rows[1]), _mm512_unpacklo_epi8(rows[2], rows[3])];
                    let odd = [_mm512_unpackhi_epi8(rows[0], rows[1]), _mm512_unpackhi_epi8(rows[2], rows[3])];
                    let low = [even, odd].map(|[a, b]| _mm512_unpacklo_epi16(a, b));
                    let high = [even, odd].map(|[a, b]| _mm512_unpackhi_epi16(a, b));
                    // Pairs of words: two planes in each 128 bits.
                    *quads = [
                        _mm512_unpacklo_epi32(low[0], low[1]),
                        _mm512_unpackhi_epi32(low[0], low[1]),
                        _mm512_unpacklo_epi32(high[0], high[1]),
                        _mm512_unpackhi_epi32(high[0], high[1]),
                    ];
                }
                for b in 0..digits {
                    let order = if b % 2 == 0 { even } else { odd };
                    let plane = _mm512_permutex2var_epi64(quads[0][b / 2], order, quads[1][b / 2]);
                    let tile = (four / SIDE * digits + b) * TILE;
                    // SAFETY: row four % 16 of a tile of this group.
                    unsafe { store(group[tile + four % SIDE * 8..].as_mut_ptr(), plane) }
                }
            }
        }
    }

    /// Adds Σ_k 256^k·S_k·f to the words `first .. first + 16` of the strip, for up to 16 rows.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
    unsafe fn finish(
        &self,
        constants: &Constants,
        sums: &[u64],
        out: &mut [&mut [u64]],
        at: usize,
        length: usize,
        first: usize,
    ) {
        macro_rules! by_exponents {
            ($($count:literal)*) => {
                match sums.len() / TILE {
                    // SAFETY: by the contract of this function.
                    $($count => unsafe {
                        self.finish_of::<$count>(constants, sums, out, at, length, first)
                    })*
                    _ => unreachable!("at most seven digits on each side"),
                }
            };
        }
        by_exponents!(1 2 3 4 5 6 7 8 9 10 11 12 13)
    }

    /// As `finish`, for `K` tiles of sums.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
    unsafe fn finish_of<const K: usize>(
        &self,
        constants: &Constants,
        sums: &[u64],
        out: &mut [&mut [u64]],
        at: usize,
        length: usize,
        first: usize,
    ) {
        assert!(sums.len() == K * TILE && out.len() <= SIDE);
        let wide = Wide::new(&self.limb);
        let l = &wide.lanes;
        let shifts = [splat(1), splat(1 << 8), splat(1 << 16)];
        let base = splat(constants.base);
        let lazy = self.modulus.bits() <= LAZY;
        let mut powers = [Factor { w: base, shoup: base }; 5];
        for (power, &[w, shoup]) in powers.iter_mut().zip(&constants.powers) {
            *power = Factor { w: splat(w), shoup: splat(shoup) };
        }
        for (r, out) in out.iter_mut().enumerate() {
            for h in 0..2 {
                let from = first + 8 * h;
                let lanes = super::gemm::ends(length, from);
                let to = out.as_mut_ptr().wrapping_add(at + from);
                // SAFETY: the mask keeps to the words of the output.
                let old = unsafe { _mm512_maskz_loadu_epi64(lanes, to.cast()) };
                let mut total = _mm512_add_epi64(base, old);
                for (j, &power) in powers.iter().enumerate().take(K.div_ceil(3)) {
                    let mut t = _mm512_setzero_si512();
                    for (d, &shift) in shifts.iter().enumerate().take(K - 3 * j) {
                        let place = (3 * j + d) * TILE + 8 * r + 4 * h;
                        // SAFETY: half h of row r of tile 3j + d, of K.
                        let sum = unsafe { _mm256_loadu_si256(sums.as_ptr().add(place).cast()) };
                        t = _mm512_madd52lo_epu64(t, _mm512_cvtepu32_epi64(sum), shift);
                    }
                    // Below 2q each.
                    total = _mm512_add_epi64(total, l.mul(t, power));
                    if !lazy {
                        total = l.shrink(total);
                    }
                }
                let total = l.finish(l.shrink(total));
                // SAFETY: the mask keeps to the words of the output.
                unsafe { _mm512_mask_storeu_epi64(to.cast(), lanes, total) }
            }
        }
    }
}

/// Streams of weight tiles: the digits, or two blocks of rows for single digits.
fn streams(digits: usize) -> usize {
    digits.max(2)
}

/// Rows per block of weights.
fn rows_of(digits: usize) -> usize {
    if digits == 1 { 2 * SIDE } else { SIDE }
}

/// 2^24j·f and −LIFT·Σ_k 2^8k·f modulo q.
struct Constants {
    /// Each with its Shoup word.
    powers: Vec<[u64; 2]>,
    base: u64,
}

impl Constants {
    fn new(q: &Modulus, factor: u64, exponents: usize) -> Constants {
        let powers: Vec<u64> = (0..exponents)
            .scan(factor, |power, _| {
                let this = *power;
                *power = q.mul(this, q.reduce(1 << 8));
                Some(this)
            })
            .collect();
        let total = powers.iter().fold(0, |total, &power| q.add(total, power));
        Constants {
            base: q.neg(q.mul(total, q.reduce(LIFT))),
            powers: powers.iter().step_by(3).map(|&power| [power, shoup52(power, q.value())]).collect(),
        }
    }
}

/// The passes that multiply all weight digits by all residue digits.
fn passes(weight_digits: usize, residue_digits: usize) -> Vec<Pass> {
    let all = streams(weight_digits);
    let mut passes = Vec::new();
    let mut stream = 0;
    while stream < all {
        // Threes and twos, never one alone.
        let streams = match all - stream {
            2 | 4 => 2,
            _ => 3,
        };
        let mut plane = 0;
        while plane < residue_digits {
            let planes = match (streams, residue_digits - plane) {
                (3, left) => left.min(2),
                (_, 4) => 2,
                (_, left) => left.min(3),
            };
            passes.push(Pass { stream, streams, plane, planes });
            plane += planes;
        }
        stream += streams;
    }
    passes
}
