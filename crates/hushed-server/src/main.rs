//! `hushed-server DIR` serves a model, `hushed-server run` runs one under encryption, and `hushed-server work` runs the
//! jobs of a server; it can do nothing else. Built without the client's code, for machines that must not have it.

#![forbid(unsafe_code)]

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use clap::{Parser, Subcommand};
use hushed_serve::fhe::{
    self, FheServeArguments, FheServer, FheServerConfig, FheWorker, Lines, RunArguments, WorkArguments,
};
use hushed_serve::{
    ServeArguments, ServeConfig, ServeError, Server, ServerConfig, command_line, core_dumps, logging, signals,
};

/// Serve a model to clients whose texts the server never sees.
///
/// Prints one line with the address, the SHA-256 of its certificate and the hash of its public bundle, then logs to
/// standard error until SIGTERM or SIGINT.
#[derive(Parser)]
#[command(
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  hushed-server DIR
  hushed-server DIR --listen 0.0.0.0:7450 --tokens tokens.txt --cert chain.pem --key key.pem
  hushed-server DIR --protocol fhe --manifest manifest.json --public minilm.public \\
    --store /var/lib/hushed
  hushed-server run DIR --manifest manifest.json --keys evaluation.keys --request request \\
    --out reply --checkpoint checkpoints
  hushed-server work DIR --manifest manifest.json --store /var/lib/hushed"
)]
struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    serve: Option<ServeArguments>,
    // Not nested in the others: an argument group that may be absent cannot contain another group.
    #[command(flatten)]
    fhe: FheServeArguments,
    /// Print one JSON object per line instead of text
    #[arg(long, global = true, env = "HUSHED_JSON")]
    json: bool,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a batch of encrypted texts from files to a file; needs no secret of the client
    Run(RunArguments),
    /// Run the jobs of a server's store, on this machine and any number of others
    Work(WorkArguments),
}

fn main() -> ExitCode {
    let arguments: Arguments = match command_line::read(env::args_os()) {
        Ok(arguments) => arguments,
        Err(code) => return ExitCode::from(code),
    };
    if let Err(error) = core_dumps::switch_off() {
        eprintln!("core dumps cannot be switched off, and would contain secrets: {error}");
    }
    let done = match (&arguments.verb, &arguments.serve) {
        (Some(Verb::Run(run)), _) => run_batch(run, arguments.json),
        (Some(Verb::Work(work)), _) => {
            logging::to_stderr(arguments.json, false);
            run_jobs(work, arguments.json)
        }
        (None, Some(serve)) => {
            logging::to_stderr(arguments.json, serve.debug);
            run_server(serve, &arguments.fhe, arguments.json)
        }
        // The parser requires one of the two.
        (None, None) => return ExitCode::from(2),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = error.category().exit_code();
            command_line::error("hushed-server", arguments.json, error.name(), code, &error.to_string());
            ExitCode::from(code)
        }
    }
}

fn run_batch(arguments: &RunArguments, json: bool) -> Result<(), ServeError> {
    let lines = Lines::default();
    let report = fhe::run(&arguments.options()?, &|event| {
        if let Some(line) = lines.line(&event).filter(|_| !json) {
            eprintln!("{line}");
        }
    })?;
    if json {
        // Digits and numbers: nothing to escape.
        return say(&format!(
            r#"{{"event":"reply","request":"{}","bytes":{},"seconds":{:.3},"done_before":{}}}"#,
            report.request, report.bytes, report.seconds, report.done_before
        ));
    }
    say(&format!("reply to {} in {:.1} s", report.request, report.seconds))
}

fn run_jobs(arguments: &WorkArguments, json: bool) -> Result<(), ServeError> {
    let stop = signals::stop_on_signals().map_err(ServeError::Signals)?;
    let worker = FheWorker::open(&arguments.config()?)?;
    let waiting = worker.waiting();
    say(&match json {
        true => format!(r#"{{"event":"working","waiting":{waiting}}}"#),
        false => format!("working; jobs that wait: {waiting}"),
    })?;
    worker.run(&stop)
}

fn run_server(serve: &ServeArguments, fhe: &FheServeArguments, json: bool) -> Result<(), ServeError> {
    let stop = signals::stop_on_signals().map_err(ServeError::Signals)?;
    let reload = signals::reload_on_hangup().map_err(ServeError::Signals)?;
    match serve.config(fhe, reload)? {
        ServeConfig::TwoParty(config) => run_two_party(&config, &stop, json),
        ServeConfig::Fhe(config) => run_fhe(&config, &stop, json),
    }
}

fn run_fhe(config: &FheServerConfig, stop: &AtomicBool, json: bool) -> Result<(), ServeError> {
    let server = FheServer::bind(config)?;
    let (address, certificate, plan) =
        (server.listener().local_addr(), server.listener().fingerprint(), server.plan_hash());
    say(&match json {
        // The three are an address and digits: nothing to escape.
        true => format!(
            r#"{{"event":"listening","address":"{address}","certificate_sha256":"{certificate}","plan":"{plan}"}}"#
        ),
        false => format!(
            "listening on {address}\ncertificate sha256 {certificate}\nmanifest {plan}\n{}",
            server.declared().lines().join("\n")
        ),
    })?;
    server.run(stop)
}

fn run_two_party(config: &ServerConfig, stop: &AtomicBool, json: bool) -> Result<(), ServeError> {
    let server = Server::bind(config)?;
    let (address, certificate, bundle) =
        (server.listener().local_addr(), server.listener().fingerprint(), server.bundle_hash());
    say(&match json {
        // The three are an address and digits: nothing to escape.
        true => format!(
            r#"{{"event":"listening","address":"{address}","certificate_sha256":"{certificate}","bundle":"{bundle}"}}"#
        ),
        false => format!("listening on {address}\ncertificate sha256 {certificate}\nbundle {bundle}"),
    })?;
    server.run(stop)
}

/// Prints a result, at once.
fn say(line: &str) -> Result<(), ServeError> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|source| ServeError::File {
        operation: "write",
        path: "standard output".into(),
        source,
    })
}
