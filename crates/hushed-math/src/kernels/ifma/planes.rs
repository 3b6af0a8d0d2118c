//! Products of matrices on tiles of bytes: AMX multiplies 16 × 64 by 64 × 16 bytes into 16 × 16 sums of 32 bits, sixteen
//! thousand products in sixteen cycles.
//!
//! A weight is a sum of signed digits, w = Σ_a w_a·256^a with w_a in [−128, 127]; a residue of unsigned ones,
//! x = Σ_b x_b·256^b. Then
//!
//! ```text
//! Σ_i w[o][i]·x[i][c] = Σ_k 256^k·S_k,   S_k = Σ_{a+b=k} Σ_i w_a[o][i]·x_b[i][c]
//! ```
//!
//! and |S_k| ≤ 7·1024·128·255 < 2^28. Three neighbours make T_j = S_3j + 2^8·S_3j+1 + 2^16·S_3j+2, below 2^45 in size, and
//! the result is Σ_j T_j·(2^24j·f mod q). With weights of three digits and residues of five a term costs fifteen products
//! of bytes, a quarter of a cycle for sixteen terms; with 52-bit multiply-adds it costs two cycles.
//!
//! Blocks: 16 rows; 16 words; the columns by 64. For single digits two blocks of rows go together, as streams of one, so
//! that enough sums are independent.

use super::limb::Wide;
use super::{Factor, Limb, shoup52, splat, store};
use crate::cpu::{HaveAmx, HaveIfma};
use crate::kernels::gemm::{Chunk, DEPTH, GemmScratch, Method, TERMS, digits_limit};
use crate::modulus::Modulus;
use crate::words::Words;
use std::arch::asm;
use std::arch::x86_64::*;

/// Words of one tile: 16 rows of 64 bytes.
const TILE: usize = 128;

/// Rows and words of a block.
const SIDE: usize = 16;

/// Added to T_j, so that it is positive: above 2^45, and with it below 2^52.
const LIFT: u64 = 1 << 50;

/// Constants of one modulus; its existence proves that the kernel may run.
pub(crate) struct Planes {
    modulus: Modulus,
    limb: Limb,
    /// Digits of a residue.
    residue_digits: usize,
}

/// A product of `weights` streams of digits with `residues` planes, from these on.
struct Pass {
    stream: usize,
    streams: usize,
    plane: usize,
    planes: usize,
    /// First tile of its sums.
    sums: usize,
}

/// What is done for each block of rows and group of words.
struct Schedule {
    passes: Vec<Pass>,
    /// Tiles of sums.
    tiles: usize,
    /// For each block of 16 rows among the streams, and each k, the tiles of sums that make S_k.
    exponents: Vec<Vec<Vec<usize>>>,
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

    /// The weights as tiles of digits, and the number of these.
    ///
    /// For each block of rows and each 64 columns there is a tile a stream: for digit a, row o and column i byte 64·o + i.
    /// Weights beyond q/2 are centred first.
    pub(crate) fn arrange(
        &self,
        weights: &[i64],
        rows: usize,
        columns: usize,
        limit: u64,
    ) -> (usize, Words) {
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
                let mut rest = if centred {
                    q.centre(q.reduce_signed(w))
                } else {
                    w
                };
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
        let Method::Planes(digits) = chunk.method() else {
            unreachable!("weights in tiles come with their digits")
        };
        assert!(x.len() == chunk.terms && chunk.terms <= TERMS && chunk.start % DEPTH == 0);
        assert!(x.iter().all(|x| at + length <= x.len()));
        assert!(out.iter().all(|out| at + length <= out.len()));
        let schedule = Schedule::new(digits, self.residue_digits);
        let depth = x.len().div_ceil(DEPTH);
        let groups = length.div_ceil(SIDE);
        let group = depth * self.residue_digits * TILE;
        let (planes, sums) = scratch
            .words((groups * group) + schedule.tiles * TILE)
            .split_at_mut(groups * group);
        let constants = Constants::new(
            &self.modulus,
            chunk.factor(),
            digits + self.residue_digits - 1,
        );
        let whole = chunk.columns().div_ceil(DEPTH);
        let streams = streams(digits);
        // SAFETY: the tokens of `new` prove the instruction sets; the assertions bound every slice; blocks of weights have
        // `whole` steps of `streams` tiles, groups of planes `depth` steps of `residue_digits` tiles.
        unsafe {
            self.gather(planes, x, at, length);
            let configured = Configured::new();
            for (block, out) in out.chunks_mut(rows_of(digits)).enumerate() {
                let first = (block * whole + chunk.start / DEPTH) * streams * TILE;
                let weights = &chunk.words()[first..first + depth * streams * TILE];
                for (g, planes) in planes.chunks_exact(group).enumerate() {
                    for pass in &schedule.passes {
                        let weights = weights[pass.stream * TILE..].as_ptr();
                        let planes = planes[pass.plane * TILE..].as_ptr();
                        let steps = [streams, self.residue_digits].map(|tiles| 8 * tiles * TILE);
                        let sums = sums[pass.sums * TILE..].as_mut_ptr();
                        configured.run(pass, weights, planes, steps, depth, sums);
                    }
                    for (half, out) in schedule.exponents.iter().zip(out.chunks_mut(SIDE)) {
                        self.finish(&constants, half, sums, out, at, length, g * SIDE);
                    }
                }
            }
        }
    }

    /// The digits of the words `at .. at + length` of each input: for each group of 16 words and each 64 inputs one tile a
    /// plane. Word c of input i is byte 64·(i/4) + 4·c + i%4.
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
                            _mm512_maskz_loadu_epi64(
                                lanes,
                                x.as_ptr().wrapping_add(at + first).cast(),
                            )
                        },
                        None => _mm512_setzero_si512(),
                    });
                    // Bytes of the four inputs together, one plane after the other, for even and for odd words.
                    let even = [
                        _mm512_unpacklo_epi8(rows[0], rows[1]),
                        _mm512_unpacklo_epi8(rows[2], rows[3]),
                    ];
                    let odd = [
                        _mm512_unpackhi_epi8(rows[0], rows[1]),
                        _mm512_unpackhi_epi8(rows[2], rows[3]),
                    ];
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
    #[expect(clippy::too_many_arguments, reason = "one block of the result")]
    unsafe fn finish(
        &self,
        constants: &Constants,
        exponents: &[Vec<usize>],
        sums: &[u64],
        out: &mut [&mut [u64]],
        at: usize,
        length: usize,
        first: usize,
    ) {
        let wide = Wide::new(&self.limb);
        let lanes_of = &wide.lanes;
        let shifts = [splat(0), splat(8), splat(16)];
        let (lift, base) = (splat(LIFT), splat(constants.base));
        for (r, out) in out.iter_mut().enumerate() {
            for h in 0..2 {
                let from = first + 8 * h;
                let lanes = super::gemm::ends(length, from);
                let to = out.as_mut_ptr().wrapping_add(at + from);
                // SAFETY: the mask keeps to the words of the output.
                let old = unsafe { _mm512_maskz_loadu_epi64(lanes, to.cast()) };
                let mut total = base;
                for (three, factor) in exponents.chunks(3).zip(&constants.powers) {
                    let mut t = lift;
                    for (tiles, &shift) in three.iter().zip(&shifts) {
                        let mut sum = _mm256_setzero_si256();
                        for &tile in tiles {
                            // SAFETY: half h of row r of a tile.
                            let part = unsafe {
                                _mm256_loadu_si256(
                                    sums[tile * TILE + 8 * r + 4 * h..][..4].as_ptr().cast(),
                                )
                            };
                            sum = _mm256_add_epi32(sum, part);
                        }
                        t = _mm512_add_epi64(
                            t,
                            _mm512_sllv_epi64(_mm512_cvtepi32_epi64(sum), shift),
                        );
                    }
                    let [w, shoup] = *factor;
                    let factor = Factor {
                        w: splat(w),
                        shoup: splat(shoup),
                    };
                    // Below 2q each.
                    total = lanes_of.shrink(_mm512_add_epi64(total, lanes_of.mul(t, factor)));
                }
                let total = lanes_of.shrink(_mm512_add_epi64(total, old));
                // SAFETY: the mask keeps to the words of the output.
                unsafe { _mm512_mask_storeu_epi64(to.cast(), lanes, lanes_of.finish(total)) }
            }
        }
    }
}

/// Streams of tiles of weights: the digits, or two blocks of rows of single digits.
fn streams(digits: usize) -> usize {
    digits.max(2)
}

/// Rows of a block of weights.
fn rows_of(digits: usize) -> usize {
    if digits == 1 { 2 * SIDE } else { SIDE }
}

/// 2^24j·f and −LIFT·Σ_j 2^24j·f modulo q.
struct Constants {
    /// With the second words of the products.
    powers: Vec<[u64; 2]>,
    base: u64,
}

impl Constants {
    fn new(q: &Modulus, factor: u64, exponents: usize) -> Constants {
        let mut power = factor;
        let mut total = 0;
        let powers = (0..exponents.div_ceil(3))
            .map(|_| {
                let this = power;
                total = q.add(total, this);
                power = q.mul(power, q.reduce(1 << 24));
                [this, shoup52(this, q.value())]
            })
            .collect();
        Constants {
            powers,
            base: q.neg(q.mul(total, q.reduce(LIFT))),
        }
    }
}

impl Schedule {
    fn new(weight_digits: usize, residue_digits: usize) -> Schedule {
        let single = weight_digits == 1;
        let streams = streams(weight_digits);
        let mut schedule = Schedule {
            passes: Vec::new(),
            tiles: 0,
            exponents: vec![
                vec![Vec::new(); weight_digits + residue_digits - 1];
                if single { 2 } else { 1 }
            ],
        };
        let mut stream = 0;
        while stream < streams {
            // Threes and twos, never one alone.
            let count = match streams - stream {
                2 | 4 => 2,
                _ => 3,
            };
            let mut plane = 0;
            while plane < residue_digits {
                let planes = match (count, residue_digits - plane) {
                    (3, left) => left.min(2),
                    (_, 4) => 2,
                    (_, left) => left.min(3),
                };
                schedule.push(
                    Pass {
                        stream,
                        streams: count,
                        plane,
                        planes,
                        sums: schedule.tiles,
                    },
                    single,
                );
                plane += planes;
            }
            stream += count;
        }
        schedule
    }

    fn push(&mut self, pass: Pass, single: bool) {
        for b in 0..pass.planes {
            for a in 0..pass.streams {
                let (half, digit) = if single { (a, 0) } else { (0, pass.stream + a) };
                let tile = pass.sums + pass.tile(a, b);
                let list = &mut self.exponents[half][digit + pass.plane + b];
                if !list.contains(&tile) {
                    list.push(tile);
                }
                self.tiles = self.tiles.max(tile + 1);
            }
        }
        self.passes.push(pass);
    }
}

impl Pass {
    /// The tile of sums of stream a and plane b: one a pair, but one a + b for three streams, for want of tiles.
    fn tile(&self, a: usize, b: usize) -> usize {
        if self.streams == 3 { a + b } else { 2 * b + a }
    }
}

/// A thread whose eight tiles have 16 rows of 64 bytes.
struct Configured(());

/// The operand of LDTILECFG.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Configured {
    /// # Safety
    /// A [`HaveAmx`] must exist.
    unsafe fn new() -> Configured {
        let eight = |i: usize| i < 8;
        let configuration = Configuration {
            palette: 1,
            start: 0,
            reserved: [0; 14],
            row_bytes: std::array::from_fn(|i| if eight(i) { 64 } else { 0 }),
            rows: std::array::from_fn(|i| if eight(i) { 16 } else { 0 }),
        };
        // SAFETY: by the contract of this function; the operand is 64 bytes, and nothing else uses tiles.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const configuration, options(nostack)) }
        Configured(())
    }

    /// One pass over `depth` steps: sums of all its pairs of streams and planes, each to a tile of `sums`.
    ///
    /// # Safety
    /// A [`HaveAmx`] must exist. `weights` and `planes` must have the tiles of the pass, one after the other, at each of
    /// `depth` steps of `steps` bytes, and `sums` as many as the pass has.
    unsafe fn run(
        &self,
        pass: &Pass,
        weights: *const u64,
        planes: *const u64,
        steps: [usize; 2],
        depth: usize,
        sums: *mut u64,
    ) {
        /// The loop over the steps with these lines, then the stores.
        macro_rules! pass {
            ([$($line:literal),*], [$($end:literal),*]) => {
                // SAFETY: by the contract of this function. The tiles used here hold nothing between calls.
                unsafe {
                    asm!(
                        "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", "tilezero tmm4",
                        "tilezero tmm5",
                        "2:",
                        $($line,)*
                        "add {w}, {step_w}",
                        "add {x}, {step_x}",
                        "dec {depth}",
                        "jnz 2b",
                        $($end,)*
                        w = inout(reg) weights => _,
                        x = inout(reg) planes => _,
                        depth = inout(reg) depth => _,
                        step_w = in(reg) steps[0],
                        step_x = in(reg) steps[1],
                        row = in(reg) 64_usize,
                        s = in(reg) sums,
                        options(nostack),
                    )
                }
            };
        }
        match (pass.streams, pass.planes) {
            // Six products: sums 0 to 3, streams in tiles 5 to 7, one plane in tile 4 at a time.
            (3, 2) => {
                pass!(
                    [
                        "tileloadd tmm4, [{x} + {row}]",
                        "tileloadd tmm6, [{w} + {row} + 1024]",
                        "tdpbsud tmm1, tmm6, tmm4",
                        "tileloadd tmm7, [{w} + {row} + 2048]",
                        "tdpbsud tmm2, tmm7, tmm4",
                        "tileloadd tmm5, [{w} + {row}]",
                        "tdpbsud tmm0, tmm5, tmm4",
                        "tileloadd tmm4, [{x} + {row} + 1024]",
                        "tdpbsud tmm1, tmm5, tmm4",
                        "tdpbsud tmm2, tmm6, tmm4",
                        "tdpbsud tmm3, tmm7, tmm4"
                    ],
                    [
                        "tilestored [{s} + {row}], tmm0",
                        "tilestored [{s} + {row} + 1024], tmm1",
                        "tilestored [{s} + {row} + 2048], tmm2",
                        "tilestored [{s} + {row} + 3072], tmm3"
                    ]
                )
            }
            (3, 1) => pass!(
                [
                    "tileloadd tmm4, [{x} + {row}]",
                    "tileloadd tmm5, [{w} + {row}]",
                    "tdpbsud tmm0, tmm5, tmm4",
                    "tileloadd tmm6, [{w} + {row} + 1024]",
                    "tdpbsud tmm1, tmm6, tmm4",
                    "tileloadd tmm7, [{w} + {row} + 2048]",
                    "tdpbsud tmm2, tmm7, tmm4"
                ],
                [
                    "tilestored [{s} + {row}], tmm0",
                    "tilestored [{s} + {row} + 1024], tmm1",
                    "tilestored [{s} + {row} + 2048], tmm2"
                ]
            ),
            // Six products: sums 0 to 5, one stream and one plane at a time.
            (2, 3) => pass!(
                [
                    "tileloadd tmm6, [{w} + {row}]",
                    "tileloadd tmm7, [{x} + {row}]",
                    "tdpbsud tmm0, tmm6, tmm7",
                    "tileloadd tmm7, [{x} + {row} + 1024]",
                    "tdpbsud tmm2, tmm6, tmm7",
                    "tileloadd tmm7, [{x} + {row} + 2048]",
                    "tdpbsud tmm4, tmm6, tmm7",
                    "tileloadd tmm6, [{w} + {row} + 1024]",
                    "tdpbsud tmm5, tmm6, tmm7",
                    "tileloadd tmm7, [{x} + {row} + 1024]",
                    "tdpbsud tmm3, tmm6, tmm7",
                    "tileloadd tmm7, [{x} + {row}]",
                    "tdpbsud tmm1, tmm6, tmm7"
                ],
                [
                    "tilestored [{s} + {row}], tmm0",
                    "tilestored [{s} + {row} + 1024], tmm1",
                    "tilestored [{s} + {row} + 2048], tmm2",
                    "tilestored [{s} + {row} + 3072], tmm3",
                    "tilestored [{s} + {row} + 4096], tmm4",
                    "tilestored [{s} + {row} + 5120], tmm5"
                ]
            ),
            (2, 2) => pass!(
                [
                    "tileloadd tmm4, [{w} + {row}]",
                    "tileloadd tmm6, [{x} + {row}]",
                    "tdpbsud tmm0, tmm4, tmm6",
                    "tileloadd tmm5, [{w} + {row} + 1024]",
                    "tdpbsud tmm1, tmm5, tmm6",
                    "tileloadd tmm7, [{x} + {row} + 1024]",
                    "tdpbsud tmm2, tmm4, tmm7",
                    "tdpbsud tmm3, tmm5, tmm7"
                ],
                [
                    "tilestored [{s} + {row}], tmm0",
                    "tilestored [{s} + {row} + 1024], tmm1",
                    "tilestored [{s} + {row} + 2048], tmm2",
                    "tilestored [{s} + {row} + 3072], tmm3"
                ]
            ),
            (2, 1) => pass!(
                [
                    "tileloadd tmm4, [{w} + {row}]",
                    "tileloadd tmm6, [{x} + {row}]",
                    "tdpbsud tmm0, tmm4, tmm6",
                    "tileloadd tmm5, [{w} + {row} + 1024]",
                    "tdpbsud tmm1, tmm5, tmm6"
                ],
                [
                    "tilestored [{s} + {row}], tmm0",
                    "tilestored [{s} + {row} + 1024], tmm1"
                ]
            ),
            _ => unreachable!("passes of two or three streams"),
        }
    }
}

impl Drop for Configured {
    /// Clears the tiles, and with them the digits of weights.
    fn drop(&mut self) {
        // SAFETY: a value of this type exists, so tiles do.
        unsafe { asm!("tilerelease", options(nomem, nostack)) }
    }
}
