//! One party of a measurement, in its own process.

use std::time::{Duration, Instant};

use hushed_math::cpu::Cpu;
use hushed_net::channel::tcp::{self, Listener};
use hushed_net::{Limits, NetError, Party, Session, Shape};
use serde_json::{Value, json};

use super::{BenchError, Case, How, Kind, Suite, median};
use crate::machine;
use crate::peer::Peer;

/// Runs every wanted case of a suite as one party, and passes one object per case to `say`. The server first announces
/// its address with `say`.
pub fn run_party(
    suite: &Suite,
    address: Option<&str>,
    how: How<'_>,
    mut say: impl FnMut(Value) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let mut wholes = match suite.kind {
        Kind::Model(cases) => cases(),
        Kind::Local(_) | Kind::Pair(_) => Vec::new(),
    };
    wholes.retain(|case| case.wanted(how));
    if address.is_none() {
        // Done before the two meet, so that neither waits a minute for the other.
        wholes.iter_mut().try_for_each(|case| case.prepare())?;
    }
    let session = meet_peer(address, how.between.shape(), &mut say)?;
    let session = match suite.kind {
        Kind::Local(_) => session,
        Kind::Pair(cases) => {
            let mut peer = Peer::new(session, how.between.forms())?;
            for mut case in cases() {
                if how.wants(&case.params()) {
                    machine::forget_peak();
                    say(measure(suite.name, case.as_mut(), &mut peer, how.runs)?)?;
                }
            }
            peer.ctx.session
        }
        Kind::Model(_) => {
            let mut session = session;
            for case in &wholes {
                machine::forget_peak();
                let row;
                (session, row) = case.measure(session, how.runs, how.between)?;
                say(row)?;
            }
            session
        }
    };
    session.close()?;
    Ok(())
}

/// The client connects to `address`. The server has none; it listens and announces its own.
fn meet_peer(
    address: Option<&str>,
    shape: Option<Shape>,
    say: &mut impl FnMut(Value) -> Result<(), BenchError>,
) -> Result<Session, BenchError> {
    let (party, socket) = match address {
        Some(address) => (Party::Client, tcp::connect(address, Duration::from_secs(10))?),
        None => {
            let listener = Listener::bind("127.0.0.1:0")?;
            say(json!({ "listening": listener.local_addr().to_string() }))?;
            let accepted = listener.accept(|| false)?;
            let (socket, _) = accepted.ok_or(BenchError::Net(NetError::Closed))?;
            (Party::Server, socket)
        }
    };
    let channel = tcp::channel(socket, Limits::session())?;
    let mut session = Session::new(party, Box::new(channel));
    session.shape(shape);
    Ok(session)
}

fn measure(name: &str, case: &mut dyn Case, peer: &mut Peer, runs: usize) -> Result<Value, BenchError> {
    case.prepare(peer)?;
    let mut seconds = Vec::with_capacity(runs);
    let mut cpu = Vec::with_capacity(runs);
    let mut sum = (0, 0, 0);
    // The first run warms up memory and caches, and is discarded.
    for run in 0..=runs {
        peer.meet()?;
        let before = peer.ctx.session.stats();
        let (start, used) = (Instant::now(), machine::processor_seconds());
        case.run(peer)?;
        peer.ctx.session.flush()?;
        let busy = machine::processor_seconds() - used;
        let spent = peer.ctx.session.stats().since(&before);
        peer.meet()?; // both are done: the slower one counts
        if run > 0 {
            seconds.push(start.elapsed().as_secs_f64());
            cpu.push(busy);
            sum.0 += spent.bytes_sent;
            sum.1 += spent.bytes_received;
            sum.2 += spent.rounds;
        }
    }
    let error = case.error(peer)?;
    if !peer.is_client() {
        return Ok(json!({ "cpu_seconds": median(cpu), "peak_rss": machine::peak_memory() }));
    }
    // Correlated OTs are made in large batches, so one run may pay for several: bytes are the mean over the runs.
    let mean = |total: u64| total / runs.max(1) as u64;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(json!({
        "name": name,
        "params": case.params(),
        "threads": threads,
        "seconds": median(seconds),
        "runs": runs,
        "setup_seconds": peer.setup.as_secs_f64(),
        "setup_bytes": peer.setup_stats.bytes_sent + peer.setup_stats.bytes_received,
        "bytes_up": mean(sum.0),
        "bytes_down": mean(sum.1),
        "rounds": mean(sum.2),
        "cpu_seconds": median(cpu),
        "peak_rss": machine::peak_memory(),
        "error": error,
        "precision": error.filter(|e| *e > 0.0).map(|e| -e.log2()),
        "kernel": Cpu::get().kernel_name(),
    }))
}
