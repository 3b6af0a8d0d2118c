//! Products: element-wise, matrix by weights, matrix by matrix.

use hushed_twopc::func::Format;
use hushed_twopc::he::{
    Encrypted, LinearShape, MatmulShape, OltShape, OltSpec, Packing, PreparedWeights, linear_client, linear_server,
    matmul_shared, olt_encrypted, olt_multiplying,
};
use hushed_twopc::{Ring, gadget};
use serde_json::json;

use crate::baselines::bole;

use super::cases::{Numbers, encoded, spread};
use super::{BenchError, Case};

/// Products x·y with one factor at each party (`private`), and of two shared numbers (`shared`).
pub fn products() -> Vec<Box<dyn Case>> {
    let private = [1 << 15, 1 << 20].map(private_product);
    let shared = [(1 << 20, 32), (1 << 20, 64)].map(|(n, bits)| shared_product(n, bits));
    private.into_iter().chain(shared).collect()
}

fn private_product(n: usize) -> Box<dyn Case> {
    let format = Format::new(64, 18);
    let inputs = [1, 2].map(|seed| (spread(n, 1000.0, seed), format));
    let words = inputs.clone().map(|(x, format)| encoded(&x, format));
    Numbers::case(
        json!({ "count": n, "bits": 64, "method": "bole", "factors": "private" }),
        inputs.into(),
        2 * format.frac,
        move |x| rounded_products(x, format),
        move |peer, _| {
            let client = peer.is_client();
            let (ctx, ole) = peer.with_ole()?;
            if client {
                bole::send_encrypted(ctx, ole, Ring::Z64, &words[0])?;
                return Ok(bole::open_products(ctx, ole, Ring::Z64, n)?);
            }
            let sent = bole::receive_encrypted(ctx, ole, Ring::Z64, n)?;
            Ok(bole::answer_products(ctx, ole, &sent, &words[1])?)
        },
    )
}

/// By OT up to 32 bits, by RLWE above: whichever sends less.
fn shared_product(n: usize, bits: u32) -> Box<dyn Case> {
    let small = bits <= 32;
    let format = Format::new(bits, if small { 12 } else { 18 });
    let scale = if small { 8.0 } else { 1000.0 };
    let method = if small { "gilboa" } else { "bole" };
    Numbers::case(
        json!({ "count": n, "bits": bits, "method": method, "factors": "shared" }),
        [1, 2].map(|seed| (spread(n, scale, seed), format)).into(),
        2 * format.frac,
        move |x| rounded_products(x, format),
        move |peer, x| {
            if small {
                return Ok(gadget::mul(&mut peer.ctx, &x[0], &x[1])?);
            }
            let (ctx, ole) = peer.with_ole()?;
            Ok(bole::shares::product(ctx, ole, &x[0], &x[1])?)
        },
    )
}

fn rounded_products(x: &[Vec<f64>], format: Format) -> Vec<f64> {
    let rounded = |x: f64| format.signed(x) as f64 / f64::from(format.frac).exp2();
    let pairs = x[0].iter().zip(&x[1]);
    pairs.map(|(a, b)| rounded(*a) * rounded(*b)).collect()
}

/// The paper's Table VII: ways to turn the sparse products into responses.
pub fn packing() -> Vec<Box<dyn Case>> {
    let sizes = [
        (16, 768, 768, Packing::InterLeave, "interleave"),
        (256, 768, 768, Packing::InterLeave, "interleave"),
        (128, 768, 3072, Packing::InterLeave, "interleave"),
        (16, 768, 768, Packing::Krdy, "krdy"),
        (128, 768, 768, Packing::Krdy, "krdy"),
        (16, 768, 768, Packing::PackLwes, "pack-lwes"),
    ];
    sizes.map(|(k, m, n, packing, name)| packed(OltShape { k, m, n }, packing, name)).into()
}

fn packed(shape: OltShape, packing: Packing, name: &str) -> Box<dyn Case> {
    const FRAC: u32 = 18;
    let OltShape { k, m, n } = shape;
    let spec = OltSpec {
        shape,
        batch: 1,
        ring_bits: 64,
        multiplier_bits: 20,
        encrypted: Encrypted::Left,
        packing,
        window: None,
        spare_bits: 0,
    };
    let format = Format::new(64, FRAC);
    let inputs = [(spread(k * m, 4.0, 12), format), (spread(m * n, 0.1, 13), format)];
    let words = encoded(&inputs[0].0, format);
    let values: Vec<i64> = inputs[1].0.iter().map(|w| format.signed(*w)).collect();
    Numbers::case(
        json!({ "packing": name, "k": k, "m": m, "n": n, "bits": 64 }),
        inputs.into(),
        2 * FRAC,
        move |x| rounded_product(&x[0], &x[1], shape, format),
        move |peer, _| {
            Ok(if peer.is_client() {
                olt_encrypted(&mut peer.ctx, &peer.he, &spec, &words)?
            } else {
                olt_multiplying(&mut peer.ctx, &peer.he, &spec, &values)?
            })
        },
    )
}

/// A·B with both rounded to the fixed-point format.
fn rounded_product(a: &[f64], b: &[f64], shape: OltShape, format: Format) -> Vec<f64> {
    let OltShape { k, m, n } = shape;
    let rounded = |x: &f64| format.signed(*x) as f64 / f64::from(format.frac).exp2();
    let mut y = vec![0.0; k * n];
    for (row, out) in a.chunks(m).zip(y.chunks_mut(n)) {
        for (a, b) in row.iter().zip(b.chunks(n)) {
            let a = rounded(a);
            let sums = out.iter_mut().zip(b);
            sums.for_each(|(y, b)| *y += a * rounded(b));
        }
    }
    y
}

pub fn linear() -> Vec<Box<dyn Case>> {
    let weights = [
        (128, 768, 768),
        (128, 768, 3072),
        (128, 3072, 768),
        (1, 50257, 768),
        (128, 384, 1536),
        // Gate and up projections of LLaMA-7B, for a prompt of eight tokens.
        (8, 4096, 2 * 11008),
    ];
    let shared = [(12, 128, 64, 128), (12, 128, 128, 64)];
    let weights = weights.map(|(k, m, n)| by_weights(OltShape { k, m, n }));
    let shared = shared.map(|(batch, k, m, n)| {
        let shape = OltShape { k, m, n };
        by_shares(MatmulShape { shape, batch })
    });
    weights.into_iter().chain(shared).collect()
}

fn by_weights(shape: OltShape) -> Box<dyn Case> {
    // With 18 fraction bits, |w| ≤ 2: holds MiniLM's token table (1.05) and its matrices, except the down projections
    // of four layers (up to 7.9, which a run's own 48-bit ring holds at the same size).
    const BITS: u32 = 19;
    let format = Format::new(64, 18);
    let OltShape { k, m, n } = shape;
    // |w| < 0.1: the range of a trained layer.
    let numbers = spread(m * n, 0.1, 3);
    let integers = numbers.iter().map(|w| format.signed(*w) as i32).collect();
    let weights = PreparedWeights::new(m, n, BITS, integers);
    let public = LinearShape { shape, weight_bits: BITS };
    Numbers::case(
        json!({ "k": k, "m": m, "n": n, "bits": 64, "weights": "server" }),
        vec![(spread(k * m, 4.0, 4), format)],
        2 * format.frac,
        move |x| rounded_product(&x[0], &numbers, shape, format),
        move |peer, x| {
            if peer.is_client() {
                return Ok(linear_client(&mut peer.ctx, &peer.he, &x[0], &public)?);
            }
            let weights = weights.as_ref().map_err(|_| BenchError::BadWeights)?;
            Ok(linear_server(&mut peer.ctx, &peer.he, &x[0], weights)?)
        },
    )
}

fn by_shares(shape: MatmulShape) -> Box<dyn Case> {
    const FRAC: u32 = 18;
    let OltShape { k, m, n } = shape.shape;
    let format = Format::new(64, FRAC);
    Numbers::case(
        json!({ "batch": shape.batch, "k": k, "m": m, "n": n, "bits": 64 }),
        vec![(spread(shape.batch * k * m, 4.0, 5), format), (spread(shape.batch * m * n, 4.0, 6), format)],
        2 * FRAC,
        move |x| {
            let operands = x[0].chunks(k * m).zip(x[1].chunks(m * n));
            let products = operands.map(|(a, b)| rounded_product(a, b, shape.shape, format));
            products.flatten().collect()
        },
        move |peer, x| Ok(matmul_shared(&mut peer.ctx, &peer.he, &x[0], &x[1], &shape)?),
    )
}
