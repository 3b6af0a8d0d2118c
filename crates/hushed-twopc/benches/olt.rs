//! Oblivious linear transformation: processor seconds of each party on one core, bytes, and the plan.
//! `cargo bench -p hushed-twopc --features testing --bench olt [name]`.
//!
//! Seconds are those that the scheduler gave to the party's thread, so that other load on the machine matters little.
//! Keys are exchanged beforehand.

use hushed_twopc::he::{
    Encrypted, HeContext, LinearShape, MatmulShape, OltShape, OltSpec, Packing, PreparedWeights,
    linear_client, linear_server, linear_server_alone, matmul_shared, olt_encrypted,
    olt_multiplying,
};
use hushed_twopc::testing::{run_pair, share};
use hushed_twopc::{Ctx, Ring, Share};

const REPEATS: usize = 3;

fn main() {
    let only = std::env::args().skip(1).find(|a| !a.starts_with('-'));
    let wanted = |name: &str| only.as_ref().is_none_or(|o| name.contains(o.as_str()));
    println!(
        "{:<28} {:>8} {:>8} {:>9} {:>9}  windows",
        "product", "client s", "server s", "up B", "down B"
    );
    for (k, m, n, bits) in [
        (16, 384, 1152, 20),
        (16, 384, 1536, 20),
        (16, 1536, 384, 20),
        (128, 384, 1152, 20),
        (128, 1536, 384, 20),
        (128, 768, 768, 20),
        (128, 768, 3072, 20),
        (1, 50257, 768, 18),
        (8, 4096, 4096, 20),
    ] {
        let name = format!("linear {k}x{m}x{n}");
        if wanted(&name) {
            linear(&name, OltShape { k, m, n }, bits);
        }
    }
    for rows in [16, 128] {
        let name = format!("lookup {rows} of 30522x384");
        if wanted(&name) {
            lookup(
                &name,
                OltShape {
                    k: rows,
                    m: 30522,
                    n: 384,
                },
            );
        }
    }
    for packing in [Packing::InterLeave, Packing::Krdy, Packing::PackLwes] {
        let name = format!("{packing:?} 16x768x768");
        if wanted(&name) {
            packed(&name, packing);
        }
    }
    for (k, m, n, batch) in [
        (16, 32, 16, 12),
        (16, 16, 32, 12),
        (128, 32, 128, 12),
        (128, 128, 32, 12),
        (128, 64, 128, 12),
        (128, 128, 64, 12),
    ] {
        let name = format!("matmul {batch}*{k}x{m}x{n}");
        if wanted(&name) {
            matmul(
                &name,
                MatmulShape {
                    shape: OltShape { k, m, n },
                    batch,
                },
            );
        }
    }
}

fn linear(name: &str, shape: OltShape, bits: u32) {
    let weights: Vec<i32> = words(shape.m * shape.n)
        .iter()
        .map(|&w| (w as i32) >> (31 - bits))
        .collect();
    let weights = PreparedWeights::new(shape.m, shape.n, bits, weights).unwrap();
    let (xc, xs) = share(Ring::Z64, &words(shape.k * shape.m), 1);
    let public = LinearShape {
        shape,
        weight_bits: bits,
    };
    report(
        name,
        |he| {
            he.layout(&public.spec(Ring::Z64))
                .map(|l| format!("{:?}", l.plan.window()))
                .unwrap()
        },
        |ctx, he| linear_client(ctx, he, &xc, &public).map(drop).unwrap(),
        |ctx, he| linear_server(ctx, he, &xs, &weights).map(drop).unwrap(),
    );
}

fn lookup(name: &str, shape: OltShape) {
    let table: Vec<i32> = words(shape.m * shape.n)
        .iter()
        .map(|&w| (w as i32) >> 11)
        .collect();
    let table = PreparedWeights::new(shape.m, shape.n, 20, table).unwrap();
    let public = table.shape(shape.k);
    let mut hot = vec![0u64; shape.k * shape.m];
    hot.chunks_mut(shape.m)
        .enumerate()
        .for_each(|(i, row)| row[97 * i] = 1);
    let hot = Share::new(Ring::Z64, hot);
    report(
        name,
        |he| {
            he.layout(&public.spec(Ring::Z64))
                .map(|l| format!("{:?}", l.plan.window()))
                .unwrap()
        },
        |ctx, he| linear_client(ctx, he, &hot, &public).map(drop).unwrap(),
        |ctx, he| {
            linear_server_alone(ctx, he, Ring::Z64, shape.k, &table)
                .map(drop)
                .unwrap()
        },
    );
}

fn packed(name: &str, packing: Packing) {
    let (k, m, n) = (16, 768, 768);
    let spec = OltSpec {
        shape: OltShape { k, m, n },
        batch: 1,
        ring_bits: 64,
        multiplier_bits: 20,
        encrypted: Encrypted::Left,
        packing,
        window: None,
    };
    let x = words(k * m);
    let v: Vec<i64> = words(m * n).iter().map(|&w| (w as i64) >> 43).collect();
    report(
        name,
        |he| {
            he.layout(&spec)
                .map(|l| format!("{:?}", l.plan.window()))
                .unwrap()
        },
        |ctx, he| olt_encrypted(ctx, he, &spec, &x).map(drop).unwrap(),
        |ctx, he| olt_multiplying(ctx, he, &spec, &v).map(drop).unwrap(),
    );
}

fn matmul(name: &str, shape: MatmulShape) {
    let OltShape { k, m, n } = shape.shape;
    let (xc, xs) = share(Ring::Z64, &words(shape.batch * k * m), 1);
    let (yc, ys) = share(Ring::Z64, &words(shape.batch * m * n), 2);
    report(
        name,
        |_| String::new(),
        |ctx, he| matmul_shared(ctx, he, &xc, &yc, &shape).map(drop).unwrap(),
        |ctx, he| matmul_shared(ctx, he, &xs, &ys, &shape).map(drop).unwrap(),
    );
}

fn report(
    name: &str,
    windows: impl Fn(&HeContext) -> String + Sync,
    client: impl Fn(&mut Ctx, &HeContext) + Sync,
    server: impl Fn(&mut Ctx, &HeContext) + Sync,
) {
    let timed = |ctx: &mut Ctx, step: &(dyn Fn(&mut Ctx, &HeContext) + Sync)| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(1)
            .build()
            .unwrap();
        pool.install(|| {
            let he = HeContext::exchange(&mut ctx.session, &mut ctx.rng).unwrap();
            let before = ctx.session.stats();
            let seconds = (0..REPEATS).map(|_| {
                let start = on_cpu();
                step(ctx, &he);
                on_cpu() - start
            });
            let seconds = seconds.fold(f64::INFINITY, f64::min);
            (seconds, ctx.session.stats().since(&before), windows(&he))
        })
    };
    let ((client, stats, windows), (server, _, _)) =
        run_pair(|ctx| timed(ctx, &client), |ctx| timed(ctx, &server));
    let repeats = REPEATS as u64;
    println!(
        "{name:<28} {client:>8.3} {server:>8.3} {:>9} {:>9}  {windows}",
        stats.bytes_sent / repeats,
        stats.bytes_received / repeats
    );
}

/// Seconds that this thread has run.
fn on_cpu() -> f64 {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = line
        .split_whitespace()
        .next()
        .and_then(|n| n.parse::<f64>().ok());
    nanoseconds.unwrap_or(f64::NAN) / 1e9
}

fn words(count: usize) -> Vec<u64> {
    (0..count as u64)
        .map(|i| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17))
        .collect()
}
