//! Random correlated OTs per second, and their traffic, for each parameter set: both parties in this process over an
//! in-memory channel, one direction. Extensions run on the thread pool of all cores; `RAYON_NUM_THREADS` limits it (2
//! gives each party one core).
//!
//! Run: `cargo bench -p hushed-twopc --bench cot [-- 2^17]` for all sets or one.

use hushed_math::rng::SecretRng;
use hushed_net::{Session, Stats, memory_pair};
use hushed_twopc::ot::Correlations;
use hushed_twopc::ot::ferret::{FerretOt, FerretParams};
use std::time::{Duration, Instant};

/// OTs per call, as many as a layer asks for.
const CALL: usize = 1 << 18;

struct Run {
    set_up: Duration,
    set_up_stats: Stats,
    steady: Duration,
    steady_stats: Stats,
}

fn run(mut s: Session, params: FerretParams, ots: usize, sender: bool) -> Run {
    let mut rng = SecretRng::from_os("bench");
    let start = Instant::now();
    let mut ot = FerretOt::with_params(&mut s, &mut rng, params).expect("session");
    let call = |ot: &mut FerretOt, s: &mut Session, n: usize| match sender {
        true => drop(ot.send(s, n).expect("send")),
        false => drop(ot.recv(s, n).expect("recv")),
    };
    call(&mut ot, &mut s, 1);
    let (set_up, set_up_stats) = (start.elapsed(), s.stats());
    // Go past the first extension and one later one, so that buffers have been touched.
    let first = FerretParams::K16;
    call(&mut ot, &mut s, first.outputs() - params.inputs() - 1);
    call(&mut ot, &mut s, params.outputs() - params.inputs());
    let before = s.stats();
    let start = Instant::now();
    let mut left = ots;
    while left > 0 {
        let n = left.min(CALL);
        call(&mut ot, &mut s, n);
        left -= n;
    }
    Run { set_up, set_up_stats, steady: start.elapsed(), steady_stats: s.stats() - before }
}

fn main() {
    println!("threads {}", rayon::current_num_threads());
    println!("set   set-up ms  set-up bytes  M OT/s  bits/OT");
    let sets = [
        ("2^16", FerretParams::K16),
        ("2^17", FerretParams::K17),
        ("2^18", FerretParams::K18),
        ("2^19", FerretParams::K19),
    ];
    let wanted = std::env::args().skip(1).find(|a| !a.starts_with('-'));
    for (name, params) in sets {
        if wanted.as_deref().is_some_and(|w| w != name) {
            continue;
        }
        // Whole extensions, at least three: the stock is empty before and after.
        let net = params.outputs() - params.inputs();
        let ots = net * 3usize.max((1 << 24) / net);
        let (client, server) = memory_pair();
        let (send, recv) = std::thread::scope(|scope| {
            let recv = scope.spawn(move || run(server, params, ots, false));
            (run(client, params, ots, true), recv.join().expect("receiver"))
        });
        let ots = ots as f64;
        let seconds = send.steady.max(recv.steady).as_secs_f64();
        let bytes = send.steady_stats.bytes_sent + recv.steady_stats.bytes_sent;
        println!(
            "{name}  {:9.1}  {:12}  {:6.1}  {:7.3}",
            send.set_up.max(recv.set_up).as_secs_f64() * 1e3,
            send.set_up_stats.bytes_sent + recv.set_up_stats.bytes_sent,
            ots / seconds / 1e6,
            bytes as f64 * 8.0 / ots,
        );
    }
}
