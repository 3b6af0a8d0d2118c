//! Sources of a product's inputs and sinks for its outputs, one strip of a limb at a time.

use std::ops::Range;

use hushed_math::{Eval, RnsPoly};

use super::error::GemmError;
use crate::ciphertext::Ciphertext;
use crate::noise::Noise;
use crate::params::CkksParams;
use crate::scale::Scale;

/// The two parts of a ciphertext.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The masked message.
    B,
    /// The uniform part.
    A,
}

impl Part {
    /// Both parts.
    pub const BOTH: [Self; 2] = [Self::B, Self::A];

    /// This part of a ciphertext.
    pub fn of(self, ct: &Ciphertext) -> &RnsPoly<Eval> {
        match self {
            Self::B => ct.b(),
            Self::A => ct.a(),
        }
    }
}

/// A strip: a range of words in one limb of one part of every ciphertext.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strip {
    /// The part of the ciphertext.
    pub part: Part,
    /// The prime, as its index in the chain.
    pub limb: usize,
    /// The words of the limb.
    pub words: Range<usize>,
}

/// What the ciphertexts of one side have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Number of ciphertexts.
    pub count: usize,
    /// Primes of each.
    pub limbs: usize,
    /// Their scale.
    pub scale: Scale,
    /// Their noise, at least as large as that of each.
    pub noise: Noise,
}

/// Inputs of a product. Threads read different strips concurrently.
pub trait Source: Sync {
    /// Their common shape.
    fn shape(&self) -> Shape;

    /// The words of a strip, input by input: borrowed from memory, or read into `buffer`, which keeps its capacity for
    /// the next call.
    ///
    /// # Errors
    /// If the strip cannot be read, for sources outside memory.
    fn strip<'a>(&'a self, strip: &Strip, buffer: &'a mut Vec<u64>) -> Result<Vec<&'a [u64]>, GemmError>;
}

/// Outputs of a product. Threads deliver different strips concurrently, each once, in any order.
pub trait Sink: Sync {
    /// Announces the common shape of the outputs, before the first strip.
    ///
    /// # Errors
    /// If there is no room for them.
    fn begin(&self, shape: Shape) -> Result<(), GemmError>;

    /// Takes the words of a strip, output by output.
    ///
    /// # Errors
    /// If they cannot be stored.
    fn put(&self, strip: &Strip, words: &[&[u64]]) -> Result<(), GemmError>;
}

/// Ciphertexts in memory.
pub struct MemorySource<'a> {
    ciphertexts: &'a [Ciphertext],
    shape: Shape,
}

impl<'a> MemorySource<'a> {
    /// A source of these inputs, all of the same scale and length.
    ///
    /// # Errors
    /// [`GemmError::Count`] if there are none; [`GemmError::Lengths`] if lengths differ; [`GemmError::Ckks`] if scales
    /// or parameters do not match.
    pub fn new(params: &CkksParams, ciphertexts: &'a [Ciphertext]) -> Result<Self, GemmError> {
        let shape = common(params, ciphertexts)?;
        Ok(Self { ciphertexts, shape })
    }

    /// As [`MemorySource::new`], of their first `limbs` primes only.
    ///
    /// # Errors
    /// As [`MemorySource::new`]; [`GemmError::Lengths`] if they have fewer.
    pub fn at(params: &CkksParams, ciphertexts: &'a [Ciphertext], limbs: usize) -> Result<Self, GemmError> {
        let mut source = Self::new(params, ciphertexts)?;
        if limbs > source.shape.limbs {
            return Err(GemmError::Lengths { expected: limbs, found: source.shape.limbs });
        }
        source.shape.limbs = limbs;
        Ok(source)
    }
}

impl Source for MemorySource<'_> {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn strip<'a>(&'a self, strip: &Strip, _: &'a mut Vec<u64>) -> Result<Vec<&'a [u64]>, GemmError> {
        let words = |ct| &strip.part.of(ct).limb(strip.limb)[strip.words.clone()];
        Ok(self.ciphertexts.iter().map(words).collect())
    }
}

/// The common shape of `ciphertexts`.
pub(super) fn common(params: &CkksParams, ciphertexts: &[Ciphertext]) -> Result<Shape, GemmError> {
    let Some(first) = ciphertexts.first() else {
        return Err(GemmError::Count { what: "ciphertexts", expected: 1, found: 0 });
    };
    let mut noise = first.noise();
    for ct in ciphertexts {
        if !params.same_ring(ct.basis()) {
            return Err(crate::CkksError::OtherParameters { operation: "gemm" }.into());
        }
        if ct.limbs() != first.limbs() {
            return Err(GemmError::Lengths { expected: first.limbs(), found: ct.limbs() });
        }
        first.scale().check(ct.scale(), "gemm")?;
        noise = noise.worse(ct.noise().read_at(ct.scale(), first.scale()));
    }
    Ok(Shape { count: ciphertexts.len(), limbs: first.limbs(), scale: first.scale(), noise })
}
