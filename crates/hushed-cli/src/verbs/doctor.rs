//! `hushed doctor`: can this machine run Hushed, and how fast will it be?

use std::thread;
use std::time::Duration;

use hushed_math::cpu::Cpu;
use hushed_model::counted;
use hushed_net::channel::tcp;
use hushed_net::channel::tls::load_or_create_dev_certificate;
use hushed_net::{Expect, Kind, Limits, Listener, NetError, Party, Session};
use hushed_net::{TlsClient, TlsServer, Trust};
use serde_json::json;

use crate::error::CliError;
use crate::machine::Machine;
use crate::output::{Output, gib};

/// A server of the reference model needs about this much.
const ENOUGH_MEMORY: u64 = 2 << 30;

/// Test this machine: processor kernels, cores, memory, a TLS session over loopback
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hushed doctor\n  hushed doctor --json")]
pub struct Args {}

/// One line of the report.
struct Finding {
    name: &'static str,
    good: bool,
    detail: String,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let findings = [kernels(), cores(), memory(), session()];
        for finding in &findings {
            let object = json!({ "check": finding.name, "ok": finding.good, "detail": finding.detail });
            out.result(object, || {
                let mark = if finding.good { "ok  " } else { "FAIL" };
                format!("{mark}  {:<10} {}", finding.name, finding.detail)
            })?;
        }
        match findings.iter().filter(|f| !f.good).count() {
            0 => Ok(()),
            failed => Err(CliError::Doctor { failed, of: findings.len() }),
        }
    }
}

/// Which kernels run. The portable ones are slower, and otherwise the same.
fn kernels() -> Finding {
    let cpu = Cpu::get();
    let aes = match (cpu.vaes(), cpu.aesni()) {
        (Some(_), _) => "vaes",
        (None, Some(_)) => "aes-ni",
        (None, None) => "portable aes",
    };
    let slow = match (cpu.ifma(), cpu.fma()) {
        (Some(_), _) => "",
        (None, Some(_)) => ": slower than AVX-512 IFMA",
        (None, None) => ": several times slower than AVX2 with FMA or AVX-512",
    };
    let detail = format!("{}, {aes}{slow}", cpu.kernel_name());
    Finding { name: "kernels", good: true, detail }
}

fn cores() -> Finding {
    let machine = Machine::read();
    Finding {
        name: "processor",
        good: true,
        detail: format!("{}, {}", machine.processor, counted(machine.cores, "core")),
    }
}

fn memory() -> Finding {
    let Machine { memory, memory_free, .. } = Machine::read();
    let (Some(all), Some(free)) = (memory, memory_free) else {
        return Finding { name: "memory", good: true, detail: "this system does not say".to_owned() };
    };
    let good = free >= ENOUGH_MEMORY;
    let remedy = if good { "" } else { ": a server wants 2 GiB free" };
    let detail = format!("{:.1} GiB, {:.1} GiB free{remedy}", gib(all), gib(free));
    Finding { name: "memory", good, detail }
}

/// Checks that a port can be opened, a certificate made, and a TLS session run over loopback.
fn session() -> Finding {
    let folder = std::env::temp_dir().join(format!("hushed-doctor-{}", std::process::id()));
    let result = echo(&folder);
    // The folder is this process's own; if it stays, the system cleans it up one day.
    let _ = std::fs::remove_dir_all(&folder);
    let (good, detail) = match result {
        Ok(port) => (true, format!("TLS 1.3 over 127.0.0.1:{port}, certificate pinned")),
        Err(problem) => (false, problem),
    };
    Finding { name: "session", good, detail }
}

/// One frame each way between two threads, as `serve` and `embed` do it.
fn echo(folder: &std::path::Path) -> Result<u16, String> {
    const PING: Kind = Kind(0x0701);
    let text = |error: NetError| error.to_string();
    let limits = Limits::before_authentication();
    let identity = load_or_create_dev_certificate(folder).map_err(|e| e.to_string())?;
    let client = TlsClient::new(Trust::Pin(identity.fingerprint()), None).map_err(text)?;
    let server = TlsServer::new(identity, None).map_err(text)?;
    let listener = Listener::bind("127.0.0.1:0").map_err(text)?;
    let address = listener.local_addr();

    let answering = thread::spawn(move || {
        let (socket, _) = listener.accept(|| false)?.ok_or(NetError::Closed)?;
        let mut session = Session::new(Party::Server, Box::new(server.accept(socket, limits)?));
        let ping = session.recv(PING, Expect::AtMost(16))?;
        session.send(PING, &ping)?;
        session.close()
    });
    let asking = || {
        let socket = tcp::connect(&address.to_string(), Duration::from_secs(5))?;
        let channel = client.connect(socket, "127.0.0.1", limits)?;
        let mut session = Session::new(Party::Client, Box::new(channel));
        session.send(PING, b"hushed")?;
        session.recv(PING, Expect::Exactly(6))?;
        session.close()
    };
    asking().map_err(text)?;
    let answered = answering.join().map_err(|_| "the answering thread panicked".to_owned())?;
    answered.map_err(text)?;
    Ok(address.port())
}
