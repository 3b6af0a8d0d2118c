//! Byte tiles: their configuration, and the runs of products that [`super::planes`] consists of.
//!
//! The compiler knows nothing about tiles. Each run is one block of instructions that loads what it needs and stores
//! its sums, so that tiles hold nothing between runs; only the configuration stays, as long as a [`Configured`] lives.

use std::arch::asm;

/// Proof that the eight tiles of this thread have 16 rows of 64 bytes.
pub(super) struct Configured(());

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
    /// A `HaveAmx` must exist.
    pub(super) unsafe fn new() -> Configured {
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

    /// One run of a pass over `count` steps, added to its tiles of sums. `shape` is whether streams have their own
    /// sums, `apart` bytes apart, or share those of equal exponents; then the number of streams and of planes.
    ///
    /// # Safety
    /// A `HaveAmx` must exist. `from` are the first tiles of weights and of residues, with the streams or planes of a
    /// step one after the other and steps `steps` bytes apart; `sums` is the tile of the lowest exponent.
    pub(super) unsafe fn run(
        &self,
        shape: (bool, usize, usize),
        from: [*const u64; 2],
        steps: [usize; 2],
        count: usize,
        sums: *mut u64,
        apart: usize,
    ) {
        /// Loads the sums into tiles, loops over the steps with these lines, and stores the sums.
        macro_rules! run {
            ([$($place:literal $tile:literal),*], [$($line:literal),*]) => {
                // SAFETY: by the contract of this function. The tiles used here hold nothing between calls.
                unsafe {
                    asm!(
                        "/* sums at {s} and, of a second block, at {t} */",
                        $(concat!("tileloadd ", $tile, ", [", $place, "]"),)*
                        "2:",
                        $($line,)*
                        "add {w}, {step_w}",
                        "add {x}, {step_x}",
                        "dec {count}",
                        "jnz 2b",
                        $(concat!("tilestored [", $place, "], ", $tile),)*
                        w = inout(reg) from[0] => _,
                        x = inout(reg) from[1] => _,
                        count = inout(reg) count => _,
                        step_w = in(reg) steps[0],
                        step_x = in(reg) steps[1],
                        row = in(reg) 64_usize,
                        s = in(reg) sums,
                        t = in(reg) sums.wrapping_byte_add(apart),
                        options(nostack),
                    )
                }
            };
        }
        match shape {
            // Exponents share sums 0 to 3; streams in tiles 5 to 7, a plane at a time in tile 4.
            (false, 3, 2) => run!(
                ["{s} + {row}" "tmm0", "{s} + {row} + 1024" "tmm1", "{s} + {row} + 2048" "tmm2", "{s} + {row} + 3072" "tmm3"],
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
                ]
            ),
            (false, 3, 1) => run!(
                ["{s} + {row}" "tmm0", "{s} + {row} + 1024" "tmm1", "{s} + {row} + 2048" "tmm2"],
                [
                    "tileloadd tmm4, [{x} + {row}]",
                    "tileloadd tmm5, [{w} + {row}]",
                    "tdpbsud tmm0, tmm5, tmm4",
                    "tileloadd tmm6, [{w} + {row} + 1024]",
                    "tdpbsud tmm1, tmm6, tmm4",
                    "tileloadd tmm7, [{w} + {row} + 2048]",
                    "tdpbsud tmm2, tmm7, tmm4"
                ]
            ),
            // The same with two streams and three planes.
            (false, 2, 3) => run!(
                ["{s} + {row}" "tmm0", "{s} + {row} + 1024" "tmm1", "{s} + {row} + 2048" "tmm2", "{s} + {row} + 3072" "tmm3"],
                [
                    "tileloadd tmm4, [{w} + {row}]",
                    "tileloadd tmm6, [{x} + {row} + 1024]",
                    "tdpbsud tmm1, tmm4, tmm6",
                    "tileloadd tmm7, [{x} + {row} + 2048]",
                    "tdpbsud tmm2, tmm4, tmm7",
                    "tileloadd tmm5, [{x} + {row}]",
                    "tdpbsud tmm0, tmm4, tmm5",
                    "tileloadd tmm4, [{w} + {row} + 1024]",
                    "tdpbsud tmm1, tmm4, tmm5",
                    "tdpbsud tmm2, tmm4, tmm6",
                    "tdpbsud tmm3, tmm4, tmm7"
                ]
            ),
            (false, 2, 2) => run!(
                ["{s} + {row}" "tmm0", "{s} + {row} + 1024" "tmm1", "{s} + {row} + 2048" "tmm2"],
                [
                    "tileloadd tmm4, [{w} + {row}]",
                    "tileloadd tmm6, [{x} + {row} + 1024]",
                    "tdpbsud tmm1, tmm4, tmm6",
                    "tileloadd tmm7, [{x} + {row}]",
                    "tdpbsud tmm0, tmm4, tmm7",
                    "tileloadd tmm5, [{w} + {row} + 1024]",
                    "tdpbsud tmm1, tmm5, tmm7",
                    "tdpbsud tmm2, tmm5, tmm6"
                ]
            ),
            (false, 2, 1) => run!(
                ["{s} + {row}" "tmm0", "{s} + {row} + 1024" "tmm1"],
                [
                    "tileloadd tmm4, [{x} + {row}]",
                    "tileloadd tmm6, [{w} + {row}]",
                    "tdpbsud tmm0, tmm6, tmm4",
                    "tileloadd tmm7, [{w} + {row} + 1024]",
                    "tdpbsud tmm1, tmm7, tmm4"
                ]
            ),
            // Two blocks of rows: sums 0 to 2 and 3 to 5; one stream and one plane at a time.
            (true, 2, 3) => run!(
                ["{s} + {row}" "tmm0", "{s} + {row} + 1024" "tmm1", "{s} + {row} + 2048" "tmm2", "{t} + {row}" "tmm3", "{t} + {row} + 1024" "tmm4", "{t} + {row} + 2048" "tmm5"],
                [
                    "tileloadd tmm6, [{w} + {row}]",
                    "tileloadd tmm7, [{x} + {row}]",
                    "tdpbsud tmm0, tmm6, tmm7",
                    "tileloadd tmm7, [{x} + {row} + 1024]",
                    "tdpbsud tmm1, tmm6, tmm7",
                    "tileloadd tmm7, [{x} + {row} + 2048]",
                    "tdpbsud tmm2, tmm6, tmm7",
                    "tileloadd tmm6, [{w} + {row} + 1024]",
                    "tdpbsud tmm5, tmm6, tmm7",
                    "tileloadd tmm7, [{x} + {row} + 1024]",
                    "tdpbsud tmm4, tmm6, tmm7",
                    "tileloadd tmm7, [{x} + {row}]",
                    "tdpbsud tmm3, tmm6, tmm7"
                ]
            ),
            (true, 2, 2) => run!(
                ["{s} + {row}" "tmm0", "{s} + {row} + 1024" "tmm1", "{t} + {row}" "tmm3", "{t} + {row} + 1024" "tmm4"],
                [
                    "tileloadd tmm6, [{w} + {row}]",
                    "tileloadd tmm7, [{x} + {row}]",
                    "tdpbsud tmm0, tmm6, tmm7",
                    "tileloadd tmm2, [{x} + {row} + 1024]",
                    "tdpbsud tmm1, tmm6, tmm2",
                    "tileloadd tmm6, [{w} + {row} + 1024]",
                    "tdpbsud tmm3, tmm6, tmm7",
                    "tdpbsud tmm4, tmm6, tmm2"
                ]
            ),
            (true, 2, 1) => run!(
                ["{s} + {row}" "tmm0", "{t} + {row}" "tmm3"],
                [
                    "tileloadd tmm6, [{w} + {row}]",
                    "tileloadd tmm7, [{x} + {row}]",
                    "tdpbsud tmm0, tmm6, tmm7",
                    "tileloadd tmm5, [{w} + {row} + 1024]",
                    "tdpbsud tmm3, tmm5, tmm7"
                ]
            ),
            _ => unreachable!("passes of two or three streams and at most three planes"),
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
