//! `hushed doctor`: can this machine run Hushed, and how fast will it be?

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::error::CliError;
use crate::machine::Machine;
use crate::output::Output;

const GIB: f64 = (1u64 << 30) as f64;
/// A server of the reference model needs about this much.
const ENOUGH_MEMORY: u64 = 2 << 30;

/// Test this machine: processor kernels, cores, memory, loopback network
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
        let findings = [kernels(), cores(), memory(), loopback()];
        for finding in &findings {
            let object =
                json!({ "check": finding.name, "ok": finding.good, "detail": finding.detail });
            out.result(object, || {
                let mark = if finding.good { "ok  " } else { "FAIL" };
                format!("{mark}  {:<10} {}", finding.name, finding.detail)
            })?;
        }
        match findings.iter().filter(|f| !f.good).count() {
            0 => Ok(()),
            failed => Err(CliError::Doctor {
                failed,
                of: findings.len(),
            }),
        }
    }
}

/// Which instruction sets are here. Their absence costs time and nothing else.
fn kernels() -> Finding {
    #[cfg(target_arch = "x86_64")]
    let (fast, missing) = {
        let wanted = [
            ("avx512f", is_x86_feature_detected!("avx512f")),
            ("avx512ifma", is_x86_feature_detected!("avx512ifma")),
            ("avx512vbmi", is_x86_feature_detected!("avx512vbmi")),
            ("vaes", is_x86_feature_detected!("vaes")),
        ];
        let missing: Vec<&str> = wanted
            .iter()
            .filter(|(_, here)| !here)
            .map(|(name, _)| *name)
            .collect();
        (missing.is_empty(), missing.join(", "))
    };
    #[cfg(not(target_arch = "x86_64"))]
    let (fast, missing) = (false, "AVX-512");
    let detail = match fast {
        true => "AVX-512 IFMA and VAES: the fast kernels run".to_owned(),
        false => format!("without {missing}: the portable kernels run, several times slower"),
    };
    Finding {
        name: "kernels",
        good: true,
        detail,
    }
}

fn cores() -> Finding {
    let machine = Machine::read();
    Finding {
        name: "processor",
        good: true,
        detail: format!("{}, {} cores", machine.processor, machine.cores),
    }
}

fn memory() -> Finding {
    let Machine {
        memory,
        memory_free,
        ..
    } = Machine::read();
    let (Some(all), Some(free)) = (memory, memory_free) else {
        return Finding {
            name: "memory",
            good: true,
            detail: "this system does not say".to_owned(),
        };
    };
    let good = free >= ENOUGH_MEMORY;
    let remedy = if good {
        ""
    } else {
        ": a server wants 2 GiB free"
    };
    let detail = format!(
        "{:.1} GiB, {:.1} GiB free{remedy}",
        all as f64 / GIB,
        free as f64 / GIB
    );
    Finding {
        name: "memory",
        good,
        detail,
    }
}

/// A port can be opened, and bytes go both ways.
fn loopback() -> Finding {
    let (good, detail) = match echo() {
        Ok(port) => (true, format!("127.0.0.1:{port} answers")),
        Err(error) => (false, format!("no connection over 127.0.0.1: {error}")),
    };
    Finding {
        name: "loopback",
        good,
        detail,
    }
}

fn echo() -> std::io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        stream.write_all(&byte)
    });
    let wait = Duration::from_secs(5);
    let mut stream = TcpStream::connect_timeout(&address, wait)?;
    stream.set_read_timeout(Some(wait))?;
    stream.write_all(&[42])?;
    stream.read_exact(&mut [0])?;
    server
        .join()
        .map_err(|_| std::io::Error::other("the answering thread panicked"))??;
    Ok(address.port())
}
