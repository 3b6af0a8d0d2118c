//! The kernels' text, in one language for CUDA and OpenCL, and its sizes.

use crate::error::DeviceError;

const PARTS: [&str; 6] = [
    include_str!("../kernels/language.h"),
    include_str!("../kernels/arithmetic.h"),
    include_str!("../kernels/transform.cl"),
    include_str!("../kernels/points.cl"),
    include_str!("../kernels/switch.cl"),
    include_str!("../kernels/micro.cl"),
];

/// The most primes that a conversion comes from: `MOST_SOURCES` of `switch.cl`.
pub(crate) const MOST_SOURCES: usize = 14;
/// The most digits of an inner product: what `reduce_wide` of `arithmetic.h` can sum.
pub(crate) const MOST_DIGITS: usize = 31;
/// Words a prime: `CONSTANTS` of `arithmetic.h`.
pub(crate) const CONSTANTS: usize = 16;
/// Threads of a block of `points.cl`: `POINTS`.
const POINTS: usize = 256;
/// Threads of a block of `convert`: `CONVERT_THREADS`.
const CONVERT_THREADS: usize = 128;

/// How kernels multiply modulo primes; both give the same words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// 64-bit integers.
    Integers,
    /// Multiply-adds of doubles: for cards with as many of them as of single precision, or half.
    Doubles,
}

/// The kernels for one ring degree and one arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text {
    log_n: u32,
    arithmetic: Arithmetic,
    columns: usize,
}

impl Text {
    /// The kernels of degree `n`.
    ///
    /// # Errors
    /// [`DeviceError::Degree`] unless n is 2^8, 2^12 or 2^16.
    pub fn new(n: usize, arithmetic: Arithmetic) -> Result<Text, DeviceError> {
        // With eight columns, NVRTC 13.0 takes at most 64 registers a thread in doubles for sm_90, with sixteen 78.
        let columns = match n {
            256 => 4,
            4096 | 65536 => 8,
            _ => return Err(DeviceError::Degree { n }),
        };
        Ok(Text { log_n: n.trailing_zeros(), arithmetic, columns })
    }

    /// The same with blocks of `columns` columns, a power of two up to 16: for measurements.
    ///
    /// # Panics
    /// For another number of columns.
    #[must_use]
    pub fn with_columns(self, columns: usize) -> Text {
        assert!(columns.is_power_of_two() && columns <= 16.min(self.side()), "columns of a block");
        Text { columns, ..self }
    }

    /// The ring degree.
    pub fn n(&self) -> usize {
        1 << self.log_n
    }

    /// Columns of a block.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How the kernels multiply.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// The whole text, for a compiler of either language.
    pub fn source(&self) -> String {
        let arithmetic = match self.arithmetic {
            Arithmetic::Integers => 0,
            Arithmetic::Doubles => 1,
        };
        let sizes =
            format!("#define LOG_N {}\n#define ARITH {arithmetic}\n#define COLUMNS {}u\n", self.log_n, self.columns);
        std::iter::once(sizes.as_str()).chain(PARTS).collect()
    }

    /// Words of a row, and rows.
    pub(crate) fn side(&self) -> usize {
        1 << (self.log_n / 2)
    }

    /// Words that a thread holds: as many as the last layers' factors are a word.
    pub(crate) fn words(&self) -> usize {
        1 << (self.log_n / 4)
    }

    /// Blocks of one limb.
    pub(crate) fn blocks(&self, kernel: Kernel) -> usize {
        match kernel {
            Kernel::ForwardColumns | Kernel::ForwardRows | Kernel::InverseRows | Kernel::InverseColumns => {
                self.side() / self.columns
            }
            _ => self.n() / self.threads(kernel),
        }
    }

    /// Threads of a block.
    pub fn threads(&self, kernel: Kernel) -> usize {
        match kernel {
            Kernel::ForwardColumns | Kernel::ForwardRows | Kernel::InverseRows | Kernel::InverseColumns => {
                self.columns * self.words()
            }
            Kernel::Convert => CONVERT_THREADS,
            _ => POINTS,
        }
    }
}

/// Declares the kernels and their names in the text.
macro_rules! kernels {
    ($($(#[$about:meta])* $kernel:ident $name:literal)*) => {
        /// A kernel of the text.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Kernel {
            $($(#[$about])* $kernel,)*
        }

        impl Kernel {
            /// All of them, in order.
            pub const ALL: &[Kernel] = &[$(Kernel::$kernel),*];

            /// The name in the text.
            pub fn name(self) -> &'static str {
                match self {
                    $(Kernel::$kernel => $name,)*
                }
            }
        }
    };
}

kernels! {
    /// First half of a transform.
    ForwardColumns "forward_columns"
    /// Second half of a transform.
    ForwardRows "forward_rows"
    /// First half of an inverse transform.
    InverseRows "inverse_rows"
    /// Second half of an inverse transform.
    InverseColumns "inverse_columns"
    /// a + b.
    Add "add"
    /// a − b.
    Subtract "subtract"
    /// −a.
    Negate "negate"
    /// a·b.
    Multiply "multiply"
    /// out + a·b.
    MultiplyAdd "multiply_add"
    /// A factor per limb.
    MultiplyScalar "multiply_scalar"
    /// X → X^g on values.
    Automorphism "automorphism"
    /// Conversion between bases.
    Convert "convert"
    /// Inner products of a key switch.
    DotPair "dot_pair"
    /// End of a division.
    Finish "finish"
    /// Throughput of multiply-adds of doubles.
    MicroFma "micro_fma"
    /// Throughput of wide integer multiply-adds.
    MicroMadWide "micro_mad_wide"
    /// Throughput of products modulo a prime in doubles.
    MicroTimes "micro_times"
    /// Memory to memory.
    Copy "copy"
}
