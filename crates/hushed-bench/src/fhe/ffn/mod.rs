//! The feed-forward block of GPT-2 on one vector, as in Table II of the Orion kernels paper (arXiv 2512.11135): with
//! GELU as a polynomial, without it, and with both maps merged into one. There is no bootstrap: the input is fresh,
//! with as many primes as the block uses up, and the result has one.
//!
//! | layout | maps | vectors at once |
//! |---|---|---|
//! | [`Split`] | [`hushed_ckks::lintrans`], all slots for one vector | one; two without an activation |
//! | [`Packed`] | [`hushed_ckks::maps`] on the packed rows of one text, each text of one row | slots over places |

mod block;
mod packed;
mod shape;
mod split;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use hushed_ckks::counters::Counts;
use hushed_ckks::keys::KeySpecs;
use hushed_ckks::poly::{Arithmetic, Ladder, Polynomial, evaluate};
use hushed_ckks::{Ciphertext, CkksError, CkksParams, Encoder, Evaluator, Scale};
use hushed_fhe::LinearMap;
use serde_json::{Value, json};

use super::bed::Normal;
use crate::ckks::{Bench, measure, with_threads};
use crate::machine::{forget_peak, peak_memory};
use crate::{BenchError, How, counters};

use block::{Block, Form, Gelu};
use packed::Packed;
use shape::{Map, Shape};
use split::Split;

const WIDTH: usize = 768;
const HIDDEN: usize = 3072;
/// Places per packed row. Of 512, 384 hold all pairs of columns of the width, and three vectors of 512 the hidden
/// pairs; 2048 hold all hidden pairs in one vector.
const PLACES: [usize; 2] = [512, 2048];
/// The paper's degree, and the one that Hushed uses for each column.
const FORMS: [Form; 4] = [Form::Gelu { degree: 127 }, Form::Gelu { degree: 28 }, Form::Linear, Form::Merged];

/// A form of the block, prepared in one layout.
struct Chain {
    maps: Vec<Box<dyn Map>>,
    polynomial: Option<Polynomial>,
    in_pairs: bool,
    scale: Scale,
    /// Primes of the input; the result has one.
    limbs: usize,
}

impl Chain {
    fn new(
        encoder: &Encoder,
        shape: &dyn Shape,
        layers: &[LinearMap],
        gelu: Option<&Gelu>,
    ) -> Result<Self, BenchError> {
        let params = encoder.params();
        let scale = params.default_scale();
        let polynomial = gelu.map(|gelu| gelu.polynomial.clone());
        let depth = polynomial.as_ref().map_or(0, Polynomial::depth);
        let limbs = 1 + layers.len() + depth;
        let mut left = limbs;
        let mut maps = Vec::with_capacity(layers.len());
        for (number, layer) in layers.iter().enumerate() {
            let mut to = scale;
            if polynomial.is_some() && number == 0 {
                // The scale for Chebyshev polynomials; the parts of a pair have twice the pair's.
                let on = Evaluator::without_keys(params);
                let ladder = Ladder::new(&on, left - 1, 1).map_err(CkksError::from)?;
                let argument = 2.0 * ladder.divisor(0);
                to = Scale::new(argument / if shape.in_pairs() { 2.0 } else { 1.0 })?;
            }
            maps.push(shape.map(encoder, (number, layer), left, [scale, to])?);
            left -= 1;
            if number == 0 {
                left -= depth;
            }
        }
        Ok(Self { maps, polynomial, in_pairs: shape.in_pairs(), scale, limbs })
    }

    fn keys(&self, params: &CkksParams) -> Result<KeySpecs, CkksError> {
        let mut specs = KeySpecs::new();
        for map in &self.maps {
            map.add_keys(params, &mut specs)?;
        }
        if let Some(polynomial) = &self.polynomial {
            let argument = self.limbs - 1;
            // Each level needs a key of its length.
            for spent in 0..polynomial.depth() {
                specs.merge(&params.key_specs(argument - spent, true, &[], false)?);
            }
            if self.in_pairs {
                specs.merge(&params.key_specs(argument, false, &[], true)?);
            }
        }
        Ok(specs)
    }

    fn apply(&self, on: &Evaluator, x: &[Ciphertext]) -> Result<Vec<Ciphertext>, CkksError> {
        let mut x = x.to_vec();
        for (number, map) in self.maps.iter().enumerate() {
            x = map.apply(on, &x)?;
            if let (0, Some(polynomial)) = (number, &self.polynomial) {
                let activated = |ct| self.activated(on, ct, polynomial);
                x = x.into_iter().map(activated).collect::<Result<_, _>>()?;
            }
        }
        Ok(x)
    }

    fn activated(&self, on: &Evaluator, x: Ciphertext, polynomial: &Polynomial) -> Result<Ciphertext, CkksError> {
        let f = |t: Ciphertext| evaluate(on, &on.within(t, 1.0), polynomial, self.scale);
        if !self.in_pairs {
            return f(x);
        }
        // z + z̄ and i·(z̄ − z).
        let mut other = on.conjugate(&x)?;
        let real = on.add(&x, &other)?;
        on.sub_assign(&mut other, &x)?;
        on.mul_i_assign(&mut other)?;
        let (mut pair, mut imaginary) = (f(real.read_as(0.5)?)?, f(other.read_as(0.5)?)?);
        on.mul_i_assign(&mut imaginary)?;
        on.add_assign(&mut pair, &imaginary)?;
        Ok(pair)
    }
}

/// Everything that a row reports and a test checks.
struct Run {
    bench: Bench,
    chain: Chain,
    inputs: Vec<Ciphertext>,
    counts: Counts,
    /// Bits of precision of all numbers, compared with the same computation in f64: worst and mean.
    bits: (f64, f64),
    /// The largest error against the block with exact GELU, and the largest argument of GELU.
    error: f64,
    largest: f64,
    limbs_left: usize,
    key_bytes: usize,
    encode_seconds: f64,
}

impl Run {
    /// Encrypts vectors for all of a layout, applies a form of the block once, and compares.
    fn new(
        params: &Arc<CkksParams>,
        block: &Block,
        (form, gelu): (Form, Option<&Gelu>),
        shape: &dyn Shape,
        random: &mut Normal,
    ) -> Result<Self, BenchError> {
        let layers = block.maps(form, gelu.map_or(1.0, |gelu| gelu.half));
        let (Some(first), Some(last)) = (layers.first(), layers.last()) else {
            return Err(BenchError::BadWeights);
        };
        let start = Instant::now();
        let chain = Chain::new(&Encoder::new(params), shape, &layers, gelu)?;
        let encode_seconds = start.elapsed().as_secs_f64();
        let specs = chain.keys(params)?;
        let key_bytes = specs.memory_bytes(params.rlwe()).map_err(CkksError::from)?;
        let mut bench = Bench::new(params, &specs)?;
        let mut vector = || (0..first.columns).map(|_| random.next()).collect();
        let x: Vec<Vec<f64>> = (0..shape.vectors()).map(|_| vector()).collect();
        let slots = shape.pack(first, &x, random)?;
        let inputs = slots.iter().map(|slots| bench.encrypt(slots, chain.limbs));
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let before = bench.evaluator.counters().snapshot();
        let out = chain.apply(&bench.evaluator, &inputs)?;
        let counts = bench.evaluator.counters().snapshot().since(&before);
        let opened = out.iter().map(|ct| bench.decryptor.decrypt_raw(ct));
        let opened = opened.collect::<Result<Vec<_>, _>>()?;
        let found = shape.unpack(last, &opened)?;
        let (mut bits, mut error, mut largest) = (Vec::new(), 0.0_f64, 0.0_f64);
        for (x, found) in x.iter().zip(&found) {
            let (exact, expected, argument) = block.answers(gelu, x);
            largest = largest.max(argument);
            for ((y, exact), expected) in found.iter().zip(&exact).zip(&expected) {
                error = error.max((y - exact).abs());
                bits.push(-(y - expected).abs().max(1e-30).log2());
            }
        }
        if gelu.is_some_and(|gelu| largest > gelu.reach) || found.len() != x.len() {
            return Err(BenchError::BadWeights);
        }
        let worst = bits.iter().copied().fold(f64::INFINITY, f64::min);
        Ok(Self {
            counts,
            bits: (worst, bits.iter().sum::<f64>() / bits.len().max(1) as f64),
            error,
            largest,
            limbs_left: out.first().map_or(0, Ciphertext::limbs),
            bench,
            chain,
            inputs,
            key_bytes,
            encode_seconds,
        })
    }

    /// Relinearised products of two ciphertexts; a sum of products counts once.
    fn relinearisations(&self) -> u64 {
        self.counts.key_switch - self.counts.rotation
    }
}

/// Measures all forms in all layouts.
pub fn blocks(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    with_threads(how.threads, || {
        let params = CkksParams::n16_boot()?;
        let mut random = Normal::new(7);
        let block = Block::random(WIDTH, HIDDEN, &mut random);
        let mut out = Vec::new();
        for form in FORMS {
            let gelu = match form {
                Form::Gelu { degree } => Some(Gelu::new(degree)?),
                Form::Linear | Form::Merged => None,
            };
            let split = Split { slots: params.slots(), vectors: if gelu.is_some() { 1 } else { 2 } };
            let mut shapes: Vec<Box<dyn Shape>> = vec![Box::new(split)];
            for places in PLACES {
                shapes.push(Box::new(Packed::new(&params, places)?));
            }
            for shape in &shapes {
                let about = json!({
                    "set": params.literal().name,
                    "width": WIDTH,
                    "hidden": HIDDEN,
                    "form": form.name(),
                    "degree": form.degree(),
                    "layout": shape.name(),
                    "vectors": shape.vectors(),
                });
                if how.wants(&about) {
                    forget_peak();
                    let of = (form, gelu.as_ref());
                    let run = Run::new(&params, &block, of, &**shape, &mut random)?;
                    out.push(row(&run, of, about, how)?);
                }
            }
        }
        Ok(out)
    })
}

fn row(run: &Run, (_, gelu): (Form, Option<&Gelu>), about: Value, how: How<'_>) -> Result<Value, BenchError> {
    let (on, chain) = (&run.bench.evaluator, &run.chain);
    let (seconds, runs) = measure(how.runs, || chain.apply(on, &run.inputs).map(drop))?;
    let vectors = about["vectors"].as_f64().unwrap_or(1.0);
    let diagonals = chain.maps.iter().map(|map| map.diagonals());
    let (diagonals, plaintext_bytes) = diagonals.fold((0, 0), |(n, bytes), (count, more)| (n + count, bytes + more));
    Ok(json!({
        "name": "ffn",
        "params": about,
        "level": chain.limbs - 1,
        "level_left": run.limbs_left - 1,
        "threads": how.threads,
        "seconds": seconds,
        "seconds_per_vector": seconds / vectors,
        "runs": runs,
        "rotations": run.counts.rotation,
        "key_switches": run.counts.key_switch,
        "relinearisations": run.relinearisations(),
        "rescales": run.counts.rescale,
        "diagonals": diagonals,
        "counts": counters(&run.counts),
        "error": run.error,
        "largest_argument": gelu.map(|_| run.largest),
        "polynomial_error": gelu.map(|gelu| gelu.error),
        "polynomial_interval": gelu.map(|gelu| [-gelu.reach, gelu.reach]),
        "precision_bits_min": run.bits.0,
        "precision_bits_mean": run.bits.1,
        "key_bytes": run.key_bytes,
        "plaintext_bytes": plaintext_bytes,
        "encode_seconds": run.encode_seconds,
        "peak_rss": peak_memory(),
    }))
}
