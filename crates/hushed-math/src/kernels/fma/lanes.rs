//! Four or eight doubles, or words of 64 bits, in a register.

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "aarch64")]
pub(super) use neon::Four;
#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Eight, Four};

/// A register width, or two registers taken as one. Every function needs its instruction set.
///
/// # Safety
/// Of every function: the processor has the instruction set, and pointers are to [`Lanes::LANES`] words.
pub(super) trait Lanes: Copy {
    type F: Copy;
    type I: Copy;
    const LANES: usize;
    /// log2 of the lanes.
    const LOG: u32 = Self::LANES.trailing_zeros();

    unsafe fn splat(x: f64) -> Self::F;
    unsafe fn splat_word(x: u64) -> Self::I;
    unsafe fn load(from: *const u64) -> Self::I;
    unsafe fn store(to: *mut u64, x: Self::I);
    unsafe fn as_words(x: Self::F) -> Self::I;
    unsafe fn as_numbers(x: Self::I) -> Self::F;

    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// a·b + c.
    unsafe fn mul_add(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// a·b − c.
    unsafe fn mul_sub(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// c − a·b.
    unsafe fn minus_mul_add(a: Self::F, b: Self::F, c: Self::F) -> Self::F;

    unsafe fn add_words(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn sub_words(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn and(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I;
    /// All ones where the word, with its sign, is negative.
    unsafe fn negative(a: Self::I) -> Self::I;
    /// a shifted right by 26 bits.
    unsafe fn shift_26(a: Self::I) -> Self::I;
    /// a shifted right by 51 bits.
    unsafe fn shift_51(a: Self::I) -> Self::I;

    /// Lane j of register i becomes lane i of register j; the first [`Lanes::LANES`] registers.
    unsafe fn transpose(rows: &mut [Self::F; 8]);
}

/// The functions that take one instruction.
macro_rules! instructions {
    ($($name:ident($($argument:ident: $type:ident),*) -> $result:ident = $value:expr;)*) => {
        $(
            #[inline(always)]
            unsafe fn $name($($argument: Self::$type),*) -> Self::$result {
                // SAFETY: guaranteed by the caller.
                unsafe { $value }
            }
        )*
    };
}
use instructions;
