//! `hushed-server DIR`: serves a model, and can do nothing else. Built without the client's code, for machines that must not have it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use hushed_serve::{ServeArguments, ServeError, Server, logging, signals};

/// Serves a model to clients whose texts it never sees.
///
/// Prints one line with the address, the SHA-256 of its certificate and the hash of its public bundle, then logs to standard error
/// until SIGTERM or SIGINT.
#[derive(Parser)]
#[command(
    version,
    after_help = "Examples:\n  hushed-server models/minilm\n  hushed-server models/minilm --listen 0.0.0.0:7450 --tokens tokens.txt --cert chain.pem --key key.pem"
)]
struct Arguments {
    #[command(flatten)]
    serve: ServeArguments,
    /// One JSON object a line instead of text
    #[arg(long, env = "HUSHED_JSON", value_parser = clap::builder::FalseyValueParser::new())]
    json: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    logging::to_stderr(arguments.json, arguments.serve.debug);
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hushed-server: {error}");
            ExitCode::from(error.category().exit_code())
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), ServeError> {
    let json = arguments.json;
    let stop = signals::stop_on_signals().map_err(ServeError::Signals)?;
    let server = Server::bind(&arguments.serve.config()?)?;
    let (address, certificate, bundle) = (
        server.local_addr(),
        server.fingerprint(),
        server.bundle_hash(),
    );
    if json {
        // The three are an address and digits: nothing to escape.
        println!(
            r#"{{"event":"listening","address":"{address}","certificate_sha256":"{certificate}","bundle":"{bundle}"}}"#
        );
    } else {
        println!("listening on {address}\ncertificate sha256 {certificate}\nbundle {bundle}");
    }
    server.run(&stop)
}
