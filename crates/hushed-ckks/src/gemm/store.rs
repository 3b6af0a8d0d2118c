//! Ciphertexts outside memory (a file that the caller opened), limb after limb, so that a product reads or writes only
//! the strips that it works on.
//!
//! The working space of one process, not an artefact: words in little-endian order, in the order limb, part,
//! ciphertext. What is read is checked against the primes.

use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::{Mutex, PoisonError};

use super::error::GemmError;
use super::stream::{Part, Shape, Sink, Source, Strip};
use crate::ciphertext::Ciphertext;
use crate::noise::Noise;
use crate::params::CkksParams;
use crate::scale::Scale;

/// Ciphertexts of one scale and length in `F`. As a [`Sink`] it takes the outputs of one product and is then a
/// [`Source`].
pub struct CiphertextStore<'a, F> {
    params: &'a CkksParams,
    state: Mutex<State<F>>,
}

struct State<F> {
    file: F,
    shape: Shape,
}

impl<'a, F: Read + Write + Seek> CiphertextStore<'a, F> {
    /// No ciphertexts yet; what `file` holds will be overwritten.
    pub fn new(params: &'a CkksParams, file: F) -> Self {
        let shape = Shape {
            count: 0,
            limbs: 0,
            scale: Scale::ONE,
            noise: Noise::UNKNOWN,
        };
        Self {
            params,
            state: Mutex::new(State { file, shape }),
        }
    }

    /// Announces the ciphertexts to be written one by one with [`CiphertextStore::write`].
    pub fn reserve(&self, shape: Shape) {
        self.lock().shape = shape;
    }

    /// The file of the ciphertexts.
    pub fn into_inner(self) -> F {
        let state = self.state.into_inner();
        state.unwrap_or_else(PoisonError::into_inner).file
    }

    /// Stores ciphertext `index`.
    ///
    /// # Errors
    /// [`GemmError::Count`] if there is no such place, [`GemmError::Lengths`], [`GemmError::Ckks`] if scale or
    /// parameters are not those of the file, [`GemmError::Store`].
    pub fn write(&self, index: usize, ct: &Ciphertext) -> Result<(), GemmError> {
        let shape = super::stream::common(self.params, std::slice::from_ref(ct))?;
        let mut state = self.lock();
        state.check(index)?;
        if shape.limbs != state.shape.limbs {
            return Err(GemmError::Lengths {
                expected: state.shape.limbs,
                found: shape.limbs,
            });
        }
        state.shape.scale.check(shape.scale, "gemm")?;
        let noise = shape.noise.read_at(shape.scale, state.shape.scale);
        state.shape.noise = state.shape.noise.worse(noise);
        let n = self.params.n();
        let mut bytes = Vec::with_capacity(8 * n);
        for part in Part::BOTH {
            for limb in 0..shape.limbs {
                let strip = Strip {
                    part,
                    limb,
                    words: 0..n,
                };
                state.store(n, &strip, index, part.of(ct).limb(limb), &mut bytes)?;
            }
        }
        Ok(())
    }

    /// Ciphertext `index`.
    ///
    /// # Errors
    /// [`GemmError::Count`], [`GemmError::Store`], [`GemmError::Residue`].
    pub fn read(&self, index: usize) -> Result<Ciphertext, GemmError> {
        let n = self.params.n();
        let mut state = self.lock();
        state.check(index)?;
        let shape = state.shape;
        let mut ct =
            Ciphertext::zero(self.params, shape.limbs, shape.scale)?.with_noise(shape.noise);
        let mut bytes = Vec::new();
        for part in Part::BOTH {
            let (b, a) = (&mut ct.b, &mut ct.a);
            let poly = if part == Part::B { b } else { a };
            for limb in 0..shape.limbs {
                let strip = Strip {
                    part,
                    limb,
                    words: 0..n,
                };
                state.load(self.params, &strip, index, poly.limb_mut(limb), &mut bytes)?;
            }
        }
        Ok(ct)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State<F>> {
        // Each access seeks first: a panic in between leaves no position that matters.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Read + Write + Seek> State<F> {
    fn check(&self, index: usize) -> Result<(), GemmError> {
        if index < self.shape.count {
            return Ok(());
        }
        Err(GemmError::Count {
            what: "ciphertexts",
            expected: index + 1,
            found: self.shape.count,
        })
    }

    fn seek(&mut self, n: usize, strip: &Strip, index: usize) -> Result<(), GemmError> {
        let part = usize::from(strip.part == Part::A);
        let limb = (2 * strip.limb + part) * self.shape.count + index;
        let word = limb * n + strip.words.start;
        self.file.seek(SeekFrom::Start(8 * word as u64))?;
        Ok(())
    }

    fn store(
        &mut self,
        n: usize,
        strip: &Strip,
        index: usize,
        words: &[u64],
        bytes: &mut Vec<u8>,
    ) -> Result<(), GemmError> {
        bytes.clear();
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self.seek(n, strip, index)?;
        self.file.write_all(bytes)?;
        Ok(())
    }

    fn load(
        &mut self,
        params: &CkksParams,
        strip: &Strip,
        index: usize,
        words: &mut [u64],
        bytes: &mut Vec<u8>,
    ) -> Result<(), GemmError> {
        bytes.resize(8 * words.len(), 0);
        self.seek(params.n(), strip, index)?;
        self.file.read_exact(bytes)?;
        let q = params.prime(strip.limb);
        let mut beyond = false;
        let (chunks, _) = bytes.as_chunks();
        for (word, chunk) in words.iter_mut().zip(chunks) {
            *word = u64::from_le_bytes(*chunk);
            beyond |= *word >= q;
        }
        if beyond {
            return Err(GemmError::Residue {
                index,
                limb: strip.limb,
            });
        }
        Ok(())
    }
}

impl<F: Read + Write + Seek + Send> Source for CiphertextStore<'_, F> {
    fn shape(&self) -> Shape {
        self.lock().shape
    }

    fn strip<'a>(
        &'a self,
        strip: &Strip,
        buffer: &'a mut Vec<u64>,
    ) -> Result<Vec<&'a [u64]>, GemmError> {
        let mut state = self.lock();
        let width = strip.words.len();
        buffer.resize(state.shape.count * width, 0);
        let mut bytes = Vec::new();
        for (index, words) in buffer.chunks_exact_mut(width).enumerate() {
            state.load(self.params, strip, index, words, &mut bytes)?;
        }
        Ok(buffer.chunks_exact(width).collect())
    }
}

impl<F: Read + Write + Seek + Send> Sink for CiphertextStore<'_, F> {
    fn begin(&self, shape: Shape) -> Result<(), GemmError> {
        self.reserve(shape);
        Ok(())
    }

    fn put(&self, strip: &Strip, words: &[&[u64]]) -> Result<(), GemmError> {
        let mut state = self.lock();
        let mut bytes = Vec::new();
        for (index, words) in words.iter().enumerate() {
            state.store(self.params.n(), strip, index, words, &mut bytes)?;
        }
        Ok(())
    }
}
