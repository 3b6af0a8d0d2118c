//! Time of each gadget without making its correlations: both parties in two threads over ideal correlations, whose own
//! time is measured alone and subtracted. `cargo bench -p hushed-twopc --features testing --bench gadgets [name]`.
//!
//! Times are processor time of the client's thread where the system counts it (Linux), so that other load matters
//! little; elsewhere they are wall time. The last column is one party's nanoseconds per correlated OT that it takes
//! part in.

use hushed_net::Party;
use hushed_twopc::func::{Format, curve, relu};
use hushed_twopc::gadget::{self, Sign};
use hushed_twopc::testing::{run_pair, share};
use hushed_twopc::{BitShare, Cost, Ctx, Link, Ring, Share};
use std::time::{Duration, Instant};

const REPEATS: usize = 5;

fn main() {
    let only = std::env::args().skip(1).find(|a| !a.starts_with('-'));
    println!("{:<24} {:>9} {:>9} {:>7} {:>9} {:>9}", "gadget", "elements", "B/elem", "rounds", "ns/elem", "ns/COT");
    let n = 1 << 16;
    functions(n, only.as_deref());
    for bits in [32, 64] {
        let ring = Ring::new(bits);
        let x = values(n, ring, 1);
        let b = x.words().iter().map(|w| w >> 7);
        let b = BitShare::from_low_bits(b.collect::<Vec<_>>().into_iter());
        let row = |name: &str, cost: Cost, run: &(dyn Fn(&mut Ctx) + Sync)| {
            let name = format!("{name}/{bits}");
            if only.as_ref().is_none_or(|o| name.contains(o.as_str())) {
                report(&name, n, cost, run);
            }
        };
        row("mux", gadget::mux_cost(n, ring), &|ctx| {
            gadget::mux(ctx, &b, &x).map(drop).unwrap();
        });
        row("bit_to_arith", gadget::bit_to_arith_cost(n, ring), &|ctx| {
            gadget::bit_to_arith(ctx, &b, ring).map(drop).unwrap();
        });
        row("truncate", gadget::truncate_cost(n, ring, 12, ring), &|ctx| {
            gadget::truncate(ctx, &x, 12, Sign::Bounded, ring).map(drop).unwrap();
        });
        row("square", gadget::square_cost(n, ring), &|ctx| {
            gadget::square(ctx, &x).map(drop).unwrap();
        });
        row("mul", gadget::mul_cost(n, ring), &|ctx| {
            gadget::mul(ctx, &x, &x).map(drop).unwrap();
        });
        let (rows, cols) = (n / 128, 128);
        let r = x.slice(0..rows);
        row("mul_rows", gadget::mul_rows_cost(rows, cols, ring), &|ctx| {
            gadget::mul_rows(ctx, &x, rows, cols, &r).map(drop).unwrap();
        });
        row("msb", gadget::msb_cost(&Link::LAN, n, bits), &|ctx| {
            gadget::msb(ctx, &x).map(drop).unwrap();
        });
        row("max_rows", gadget::max_rows_cost(&Link::LAN, rows, cols, ring, (8, 16)), &|ctx| {
            gadget::max_rows(ctx, &x, rows, cols, 8, 16).map(drop).unwrap();
        });
        let index: Vec<u8> = x.words().iter().map(|w| (w & 15) as u8).collect();
        let entries = values(16 * n, ring, 2);
        row("tables", gadget::tables_cost(4, n, 0, ring), &|ctx| {
            let (index, entries): (&[u8], &[u64]) = match ctx.party() {
                Party::Client => (&index, &[]),
                Party::Server => (&[], entries.words()),
            };
            gadget::tables(ctx, 4, index, gadget::listed(4, entries), ring).map(drop).unwrap();
        });
    }
}

/// Functions of activations, between the formats of a model's layers.
fn functions(n: usize, only: Option<&str>) {
    let (from, to) = (Format::new(48, 32), Format::new(48, 16));
    // Shares of zeros: the work does not depend on the values.
    let x = values(n, from.ring, 3);
    let row = |name: &str, cost: Cost, run: &(dyn Fn(&mut Ctx) + Sync)| {
        if only.is_none_or(|o| name.contains(o)) {
            report(name, n, cost, run);
        }
    };
    for c in [curve::GELU, curve::GELU_EIGHT, curve::SILU, curve::TANH, curve::ELU] {
        row(c.name(), curve::curve_scaled_cost(&Link::LAN, n, &c, to), &|ctx| {
            curve::curve_scaled(ctx, &c, &x, from.frac, to).map(drop).unwrap();
        });
    }
    row("relu", relu::relu_cost(&Link::LAN, n, from, to), &|ctx| {
        relu::relu(ctx, &x, from, to).map(drop).unwrap();
    });
}

fn values(n: usize, ring: Ring, seed: u64) -> Share {
    share(ring, &vec![0; n], seed).0
}

fn report(name: &str, n: usize, cost: Cost, run: &(dyn Fn(&mut Ctx) + Sync)) {
    let all = best(run);
    // The same correlations, drawn and discarded.
    let alone = best(&|ctx| {
        let client = ctx.party() == Party::Client;
        for from_client in [true, false] {
            let mut left = if from_client { cost.cots_client } else { cost.cots_server } as usize;
            while left > 0 {
                let now = left.min(1 << 16);
                match from_client == client {
                    true => drop(ctx.ot.send(&mut ctx.session, now).unwrap()),
                    false => drop(ctx.ot.recv(&mut ctx.session, now).unwrap()),
                }
                left -= now;
            }
        }
    });
    let nanos = all.saturating_sub(alone).as_nanos() as f64;
    println!(
        "{name:<24} {n:>9} {:>9.1} {:>7} {:>9.1} {:>9.1}",
        cost.bytes() as f64 / n as f64,
        cost.rounds,
        nanos / n as f64,
        nanos / (cost.cots_client + cost.cots_server) as f64
    );
}

fn best(run: &(dyn Fn(&mut Ctx) + Sync)) -> Duration {
    let timed = |ctx: &mut Ctx| {
        let once = || {
            let (start, wall) = (processor_time(), Instant::now());
            run(ctx);
            match (start, processor_time()) {
                (Some(start), Some(end)) => end - start,
                _ => wall.elapsed(),
            }
        };
        std::iter::repeat_with(once).take(REPEATS).min().unwrap()
    };
    run_pair(timed, timed).0
}

/// Processor time of this thread so far: the first field of its schedstat, in nanoseconds.
fn processor_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}
