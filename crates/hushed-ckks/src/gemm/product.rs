//! The matrix product, limb by limb and strip by strip.

use std::sync::Arc;

use hushed_math::cpu::Cpu;
use hushed_math::{GemmScratch, LimbGemm, PackedWeights};
use num_complex::Complex64;
use rayon::prelude::*;

use super::error::{GemmError, check_count};
use super::stream::{MemorySource, Part, Shape, Sink, Source, Strip, common};
use super::weights::GemmWeights;
use crate::ciphertext::Ciphertext;
use crate::counters::Counters;
use crate::encoding::Constant;
use crate::noise::Noise;
use crate::noise::worst::DOUBLES;
use crate::params::CkksParams;
use crate::scale::Scale;

/// Words of a strip: a page of each limb, and few enough that the strip of all outputs (three megabytes for 768 of
/// them) does not go to memory and back between its first and last word. Longer strips took a third longer.
const STRIP: usize = 1 << 9;

/// Fewest strips per limb of a part, for rings so small that one strip would hold it.
const LEAST_STRIPS: usize = 4;

/// Matrix products over the ciphertext primes of one parameter set. Threads may share it. Strips run on the caller's
/// rayon pool, and results do not depend on the number of threads.
pub struct ModularGemm {
    params: Arc<CkksParams>,
    /// One kernel per ciphertext prime.
    kernels: Vec<LimbGemm>,
    counters: Counters,
}

impl ModularGemm {
    /// Uses the best kernel for this machine.
    pub fn new(params: &Arc<CkksParams>) -> Self {
        Self::with_cpu(params, Cpu::get())
    }

    /// Uses the best kernel for `cpu`.
    pub fn with_cpu(params: &Arc<CkksParams>, cpu: Cpu) -> Self {
        let basis = params.rlwe().basis();
        Self {
            params: params.clone(),
            kernels: (0..params.max_limbs()).map(|limb| LimbGemm::with_cpu(*basis.modulus(limb), cpu)).collect(),
            counters: Counters::default(),
        }
    }

    /// The parameter set.
    pub fn params(&self) -> &Arc<CkksParams> {
        &self.params
    }

    /// Products with constants and additions so far; each term counts as one of each.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The weight scale for ciphertexts of `limbs` primes: the prime that the next rescale drops.
    ///
    /// # Panics
    /// If the chain has fewer primes, or `limbs` is 0.
    pub fn weight_scale(&self, limbs: usize) -> Scale {
        Scale::ONE.times_prime(self.params.prime(limbs - 1))
    }

    /// Σ_i `w[o][i]`·ct_i + bias_o for each row o, at the product of the scales, not rescaled. A bias is the same in
    /// every slot.
    ///
    /// The bound on the results ([`Noise::magnitude`]) follows from declared bounds, except for the biases, whose
    /// actual maximum is added. If biases are secret, state your own bound with [`Noise::within`] before anything
    /// visible to others depends on it.
    ///
    /// # Errors
    /// [`GemmError::Count`] unless there is one input per column, and one bias per row or none; [`GemmError::Lengths`]
    /// if inputs differ in length; [`GemmError::Ckks`] if they differ in scale or parameters, or a bias is too large.
    pub fn multiply_all(
        &self,
        weights: &GemmWeights,
        inputs: &[Ciphertext],
        bias: Option<&[f64]>,
    ) -> Result<Vec<Ciphertext>, GemmError> {
        self.product(weights, &MemorySource::new(&self.params, inputs)?, bias)
    }

    /// As [`ModularGemm::multiply_all`], of a source in memory.
    ///
    /// # Errors
    /// As [`ModularGemm::multiply_all`].
    pub fn product(
        &self,
        weights: &GemmWeights,
        source: &MemorySource<'_>,
        bias: Option<&[f64]>,
    ) -> Result<Vec<Ciphertext>, GemmError> {
        let (shape, bias) = self.check(weights, source.shape(), bias)?;
        let mut outputs = Vec::with_capacity(shape.count);
        for o in 0..shape.count {
            let zero = Ciphertext::zero(&self.params, shape.limbs, shape.scale)?;
            let mut ct = zero.with_noise(shape.noise);
            for limb in 0..shape.limbs {
                let residue = bias.residue(&self.params, o, limb);
                ct.b.limb_mut(limb).fill(residue);
            }
            outputs.push(ct);
        }
        self.run(weights, source, &mut outputs)?;
        Ok(outputs)
    }

    /// out_o ← out_o + Σ_i `w[o][i]`·ct_i: for inputs that arrive in blocks, with the matching columns of the weights.
    ///
    /// # Errors
    /// As [`ModularGemm::multiply_all`]; [`GemmError::Ckks`] if the outputs have another scale than the product.
    pub fn add_product(
        &self,
        weights: &GemmWeights,
        source: &MemorySource<'_>,
        outputs: &mut [Ciphertext],
    ) -> Result<(), GemmError> {
        let (shape, _) = self.check(weights, source.shape(), None)?;
        let before = common(&self.params, outputs)?;
        check_count("outputs", shape.count, before.count)?;
        if before.limbs != shape.limbs {
            return Err(GemmError::Lengths { expected: shape.limbs, found: before.limbs });
        }
        before.scale.check(shape.scale, "gemm")?;
        self.run(weights, source, outputs)?;
        for ct in outputs {
            ct.noise = ct.noise.sum(shape.noise.read_at(shape.scale, ct.scale));
        }
        Ok(())
    }

    /// As [`ModularGemm::multiply_all`], from a source to a sink. Only one strip of all inputs and one of all outputs
    /// per thread are in memory, whatever the size of the ciphertexts.
    ///
    /// # Errors
    /// As [`ModularGemm::multiply_all`], and the errors of source and sink.
    pub fn multiply(
        &self,
        weights: &GemmWeights,
        source: &dyn Source,
        sink: &dyn Sink,
        bias: Option<&[f64]>,
    ) -> Result<(), GemmError> {
        let (shape, bias) = self.check(weights, source.shape(), bias)?;
        sink.begin(shape)?;
        for limb in 0..shape.limbs {
            let packed = self.pack(weights, limb);
            let biases: Vec<u64> = (0..shape.count).map(|o| bias.residue(&self.params, o, limb)).collect();
            self.strips(limb).into_par_iter().try_for_each_init(Buffers::default, |buffers, strip| {
                let width = strip.words.len();
                let x = source.strip(&strip, &mut buffers.inputs)?;
                buffers.outputs.resize(shape.count * width, 0);
                let outputs = buffers.outputs.chunks_exact_mut(width);
                let mut out: Vec<&mut [u64]> = outputs.collect();
                for (out, &bias) in out.iter_mut().zip(&biases) {
                    out.fill(if strip.part == Part::B { bias } else { 0 });
                }
                self.kernels[limb].multiply_add(&packed, &x, &mut out, &mut buffers.scratch);
                let done: Vec<&[u64]> = out.iter().map(|out| &**out).collect();
                sink.put(&strip, &done)
            })?;
        }
        self.count(weights, shape.limbs);
        Ok(())
    }

    /// Adds the product to `outputs`, in place.
    fn run(&self, weights: &GemmWeights, source: &MemorySource, outputs: &mut [Ciphertext]) -> Result<(), GemmError> {
        for limb in 0..source.shape().limbs {
            let packed = self.pack(weights, limb);
            let strips = self.strips(limb);
            // Strips of all outputs, in the order of `strips`: part by part.
            let mut targets: Vec<Vec<&mut [u64]>> = strips.iter().map(|_| Vec::new()).collect();
            let width = strips.first().map_or(1, |strip| strip.words.len());
            for ct in outputs.iter_mut() {
                let (b, a) = (&mut ct.b, &mut ct.a);
                let words = b.limb_mut(limb).chunks_mut(width);
                let words = words.chain(a.limb_mut(limb).chunks_mut(width));
                for (target, words) in targets.iter_mut().zip(words) {
                    target.push(words);
                }
            }
            strips.par_iter().zip(targets).try_for_each_init(Buffers::default, |buffers, (strip, mut out)| {
                let x = source.strip(strip, &mut buffers.inputs)?;
                self.kernels[limb].multiply_add(&packed, &x, &mut out, &mut buffers.scratch);
                Ok::<_, GemmError>(())
            })?;
        }
        self.count(weights, source.shape().limbs);
        Ok(())
    }

    /// The strips of both parts of a limb, all of the same width.
    fn strips(&self, limb: usize) -> Vec<Strip> {
        let n = self.params.n();
        let width = STRIP.min(n.div_ceil(LEAST_STRIPS));
        let of =
            |part| (0..n).step_by(width).map(move |start| Strip { part, limb, words: start..(start + width).min(n) });
        Part::BOTH.into_iter().flat_map(of).collect()
    }

    fn pack(&self, weights: &GemmWeights, limb: usize) -> PackedWeights {
        let kernel = &self.kernels[limb];
        kernel.pack(
            weights.values(),
            weights.rows(),
            weights.columns(),
            weights.limit(),
            kernel.modulus().reduce(weights.factor()),
        )
    }

    /// The shape of the outputs and the bias at their scale.
    fn check(&self, weights: &GemmWeights, inputs: Shape, bias: Option<&[f64]>) -> Result<(Shape, Bias), GemmError> {
        check_count("inputs", weights.columns(), inputs.count)?;
        crate::ciphertext::check_limbs(&self.params, "gemm", inputs.limbs)?;
        let scale = inputs.scale.times(weights.scale());
        let mut magnitude = 0.0_f64;
        let constants = match bias {
            None => Vec::new(),
            Some(bias) => {
                check_count("biases", weights.rows(), bias.len())?;
                magnitude = bias.iter().fold(0.0, |most, b| b.abs().max(most));
                bias.iter().map(|&b| Constant::new(Complex64::new(b, 0.0), scale)).collect::<Result<_, _>>()?
            }
        };
        let shape = Shape {
            count: weights.rows(),
            limbs: inputs.limbs,
            scale,
            noise: noise(weights, inputs.noise).plus_rounded(magnitude, scale),
        };
        Ok((shape, Bias(constants)))
    }

    fn count(&self, weights: &GemmWeights, limbs: usize) {
        let terms = weights.rows() * weights.columns();
        self.counters.scalar_mul.many(terms);
        self.counters.add.many(terms);
        self.counters.products.many(2 * limbs * terms);
    }
}

/// The noise of Σ_i w_i·ct_i for any weights within the bound. The estimate assumes independent errors; both it and the
/// bound include the rounding of the weights.
fn noise(weights: &GemmWeights, input: Noise) -> Noise {
    if !input.is_known() {
        return Noise::UNKNOWN;
    }
    let terms = weights.columns() as f64;
    let (bound, rounding) = (weights.bound(), weights.rounding());
    // Rounding may take weights beyond the bound; scale times weight is computed in doubles.
    let off = match rounding {
        0.0 => 0.0,
        _ => rounding + DOUBLES * bound,
    };
    Noise::new(terms * bound * input.magnitude(), terms.sqrt() * bound * input.deviation())
        .with_norm(terms * (bound + off) * input.norm())
        .plus(terms.sqrt() * rounding * input.magnitude(), terms * off * input.magnitude())
}

/// The biases as integers at the scale of the outputs; empty without a bias.
struct Bias(Vec<Constant>);

impl Bias {
    /// The initial value of limb `limb` of output `o`.
    fn residue(&self, params: &CkksParams, o: usize, limb: usize) -> u64 {
        let real = |constant: &Constant| constant.residue(params, limb).first;
        self.0.get(o).map_or(0, real)
    }
}

/// Working memory of one thread.
#[derive(Default)]
struct Buffers {
    inputs: Vec<u64>,
    outputs: Vec<u64>,
    scratch: GemmScratch,
}
