//! Protocols on shared inputs, compared with the clear.
//!
//! Inputs come from a fixed stream known to both processes, since a measurement has no secrets. They are shared by the
//! real protocol all the same.

use hushed_math::rng::splitmix::SplitMix;
use hushed_net::Party;
use hushed_twopc::func::curve::{GELU_EIGHT, curve_scaled};
use hushed_twopc::func::inverse::{Positive, reciprocal};
use hushed_twopc::func::norm::{NormReach, NormShape, normalise_rows};
use hushed_twopc::func::softmax::{SCORES, exponentials};
use hushed_twopc::func::{Format, rescale};
use hushed_twopc::gadget::{self, Sign, mul_rows};
use hushed_twopc::{BitShare, Ring, Share, TwopcError};
use serde_json::{Value, json};

use super::peer::Peer;
use super::{BenchError, Case};

/// Maps inputs to results, in the clear.
type Clear = Box<dyn Fn(&[Vec<f64>]) -> Vec<f64>>;
type Protocol = Box<dyn Fn(&mut Peer, &[Share]) -> Result<Share, BenchError>>;

/// A protocol from shared numbers to one shared number each, and the same computation in the clear.
pub struct Numbers {
    params: Value,
    inputs: Vec<(Vec<f64>, Format)>,
    protocol: Protocol,
    clear: Clear,
    /// Fraction bits of the result.
    frac: u32,
    shares: Vec<Share>,
    result: Option<Share>,
}

impl Numbers {
    pub fn case(
        params: Value,
        inputs: Vec<(Vec<f64>, Format)>,
        frac: u32,
        clear: impl Fn(&[Vec<f64>]) -> Vec<f64> + 'static,
        protocol: impl Fn(&mut Peer, &[Share]) -> Result<Share, BenchError> + 'static,
    ) -> Box<dyn Case> {
        Box::new(Numbers {
            params,
            inputs,
            protocol: Box::new(protocol),
            clear: Box::new(clear),
            frac,
            shares: Vec::new(),
            result: None,
        })
    }
}

impl Case for Numbers {
    fn params(&self) -> Value {
        self.params.clone()
    }

    fn prepare(&mut self, peer: &mut Peer) -> Result<(), BenchError> {
        for (values, format) in &self.inputs {
            let words = encoded(values, *format);
            let share = peer.ctx.share_input(Party::Client, format.ring, &words, words.len())?;
            self.shares.push(share);
        }
        Ok(())
    }

    fn run(&mut self, peer: &mut Peer) -> Result<(), BenchError> {
        self.result = Some((self.protocol)(peer, &self.shares)?);
        Ok(())
    }

    fn error(&mut self, peer: &mut Peer) -> Result<Option<f64>, BenchError> {
        let Some(result) = self.result.take() else {
            return Ok(None);
        };
        let Some(words) = peer.ctx.open_to(Party::Client, &result)? else {
            return Ok(None);
        };
        let inputs: Vec<Vec<f64>> = self.inputs.drain(..).map(|(values, _)| values).collect();
        let unit = f64::from(self.frac).exp2();
        let errors = words
            .iter()
            .map(|word| result.ring().decode(*word) as f64 / unit)
            .zip((self.clear)(&inputs))
            .map(|(found, exact)| (found - exact).abs());
        Ok(errors.reduce(f64::max))
    }
}

/// Makes correlated OTs and nothing else.
struct Cot {
    count: usize,
}

impl Case for Cot {
    fn params(&self) -> Value {
        json!({ "count": self.count, "sender": "client" })
    }

    fn prepare(&mut self, _: &mut Peer) -> Result<(), BenchError> {
        Ok(())
    }

    fn run(&mut self, peer: &mut Peer) -> Result<(), BenchError> {
        // In portions, as protocols request them, so that nobody holds 64 MiB of blocks at once.
        const PORTION: usize = 1 << 18;
        let ctx = &mut peer.ctx;
        let mut left = self.count;
        while left > 0 {
            let now = left.min(PORTION);
            if ctx.is_client() {
                drop(ctx.ot.send(&mut ctx.session, now)?);
            } else {
                drop(ctx.ot.recv(&mut ctx.session, now)?);
            }
            left -= now;
        }
        Ok(())
    }

    fn error(&mut self, _: &mut Peer) -> Result<Option<f64>, BenchError> {
        Ok(None)
    }
}

pub fn cot() -> Vec<Box<dyn Case>> {
    vec![Box::new(Cot { count: 1 << 24 })]
}

pub fn compare() -> Vec<Box<dyn Case>> {
    [32, 64]
        .map(|bits| {
            let n = 1 << 20;
            let format = Format::new(bits, 12);
            Numbers::case(
                json!({ "count": n, "bits": bits }),
                vec![(spread(n, 1000.0, 7), format)],
                0,
                move |x| {
                    // A set bit in the one-bit ring reads as −1.
                    let sign = |x: &f64| -f64::from(format.signed(*x) < 0);
                    x[0].iter().map(sign).collect()
                },
                |peer, x| {
                    let negative = gadget::msb(&mut peer.ctx, &x[0])?;
                    Ok(as_bits(&negative))
                },
            )
        })
        .into()
}

/// Bits as numbers modulo 2, where the XOR of two bits is their sum.
fn as_bits(bits: &BitShare) -> Share {
    let words = (0..bits.len()).map(|i| bits.bit(i)).collect();
    Share::new(Ring::new(1), words)
}

pub fn truncate() -> Vec<Box<dyn Case>> {
    let (n, from) = (1 << 20, Format::new(64, 36));
    vec![Numbers::case(
        json!({ "count": n, "bits": 64, "shift": 18 }),
        vec![(spread(n, 1000.0, 8), from)],
        18,
        |x| x[0].clone(),
        |peer, x| Ok(gadget::truncate(&mut peer.ctx, &x[0], 18, Sign::Bounded, Ring::Z64)?),
    )]
}

pub fn gelu() -> Vec<Box<dyn Case>> {
    [17, 20]
        .map(|log_count| {
            let (n, to) = (1 << log_count, Format::new(64, 18));
            let from = Format::new(64, 36);
            // Argument and result carry the factor κ, which is absorbed by the linear layers around.
            let kappa = GELU_EIGHT.kappa();
            let scaled = spread(n, 6.0 * kappa, 9);
            Numbers::case(
                json!({ "count": n, "function": "quadratics on 8 segments", "bits": 64 }),
                vec![(scaled, from)],
                18,
                move |x| x[0].iter().map(|x| kappa * clear_gelu(x / kappa)).collect(),
                move |peer, x| Ok(curve_scaled(&mut peer.ctx, &GELU_EIGHT, &x[0], 36, to)?),
            )
        })
        .into()
}

pub fn softmax() -> Vec<Box<dyn Case>> {
    [(960, 180), (1536, 128)]
        .map(|(rows, cols)| {
            Numbers::case(
                json!({ "rows": rows, "columns": cols, "division": true }),
                // In units of log 2, as in attention.
                vec![(spread(rows * cols, 8.0 * std::f64::consts::LOG2_E, 10), SCORES)],
                OUT_FRAC,
                move |x| clear_softmax(&x[0], cols),
                move |peer, x| Ok(full_softmax(peer, &x[0], rows, cols)?),
            )
        })
        .into()
}

const OUT_FRAC: u32 = 12;

/// Exponentials, their sums, one reciprocal per row, one product per element.
fn full_softmax(peer: &mut Peer, scores: &Share, rows: usize, cols: usize) -> Result<Share, TwopcError> {
    const EXPONENTIAL: Format = Format::new(32, 13);
    const INVERSE: Format = Format::new(32, 14);
    /// Up to 256 exponentials of at most 1.092.
    const SUM_BITS: u32 = EXPONENTIAL.frac + 9;
    let ctx = &mut peer.ctx;
    let e = exponentials(ctx, scores, &vec![cols; rows], EXPONENTIAL)?;
    let sums = e.sum_rows(rows, cols);
    let unit = f64::from(1u32 << EXPONENTIAL.frac);
    let inverse = reciprocal(ctx, &sums, Positive::below(SUM_BITS), unit, INVERSE.frac, INVERSE.ring)?;
    let y = mul_rows(ctx, &e, rows, cols, &inverse)?;
    let shift = EXPONENTIAL.frac + INVERSE.frac - OUT_FRAC;
    rescale(ctx, &y, shift, Sign::NonNegative, Ring::new(32))
}

pub fn norm() -> Vec<Box<dyn Case>> {
    let (rows, width) = (128, 768);
    let (from, to) = (Format::new(64, 36), Format::new(64, 18));
    let shape = NormShape { rows, width, centre: true, epsilon: 1e-12, reach: NormReach::USUAL };
    vec![Numbers::case(
        json!({ "rows": rows, "columns": width }),
        vec![(spread(rows * width, 4.0, 11), from)],
        to.frac,
        move |x| x[0].chunks(width).flat_map(clear_norm).collect(),
        move |peer, x| Ok(normalise_rows(&mut peer.ctx, &peer.he, &x[0], from, shape, to)?),
    )]
}

/// Numbers between −scale and scale, the same for the same seed (SplitMix64).
pub fn spread(count: usize, scale: f64, seed: u64) -> Vec<f64> {
    let mut random = SplitMix(seed);
    let mut next = || random.next_u64() as i64 as f64 / i64::MAX as f64 * scale;
    (0..count).map(|_| next()).collect()
}

fn clear_gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2))
}

fn clear_softmax(scores: &[f64], cols: usize) -> Vec<f64> {
    let row = |row: &[f64]| {
        let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let e: Vec<f64> = row.iter().map(|s| (s - top).exp2()).collect();
        let sum: f64 = e.iter().sum();
        e.into_iter().map(move |e| e / sum)
    };
    scores.chunks(cols).flat_map(row).collect()
}

fn clear_norm(row: &[f64]) -> Vec<f64> {
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    row.iter().map(|x| (x - mean) / variance.sqrt()).collect()
}

/// The values as words of the format's ring.
pub fn encoded(values: &[f64], format: Format) -> Vec<u64> {
    values.iter().map(|x| format.encode(*x)).collect()
}
