//! `hushed serve`: answer private texts with the weights of a model folder.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::AtomicBool;

use hushed_model::Task;
use hushed_serve::fhe::{FheServeArguments, FheServer, FheServerConfig};
use hushed_serve::{ClientAccess, ServeArguments, ServeConfig, Server, ServerConfig, logging, signals};
use serde_json::json;

use crate::error::CliError;
use crate::output::Output;

/// Serve a model: clients embed, classify or continue private texts with it
#[derive(clap::Args)]
#[command(
    after_help = "Without --cert a development certificate is made on first use; clients pin the SHA-256 that is printed. On an \
address that other machines can reach, clients need a token or a certificate. SIGTERM lets texts in progress \
finish; a second one ends the server at once.

With --protocol fhe clients send keys and encrypted batches, and return for the answers. Batches run one after \
another. --store survives any exit: restarted, the server continues after the last complete layer, and the reply \
has the same bytes. Each client gets the public model, token vectors included; the server prints who sees what \
when it starts. Clients are distinguished by their tokens. Without --tokens anyone with the id of a job, 256 \
bits, can fetch its reply, which only the owner of its keys can decrypt.

Examples:
  hushed serve DIR --listen 127.0.0.1:7450
  hushed serve DIR --listen 0.0.0.0:7450 --cert chain.pem --key key.pem --tokens tokens.txt \\
    --metrics 127.0.0.1:9750
  hushed serve DIR --protocol fhe --manifest manifest.json --public minilm.public --store store \\
    --listen 127.0.0.1:7450 --max-memory 22GiB"
)]
pub struct Args {
    #[command(flatten)]
    serve: ServeArguments,

    #[command(flatten)]
    fhe: FheServeArguments,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let stop = signals::stop_on_signals().map_err(CliError::Signals)?;
        if !out.is_quiet() {
            logging::to_stderr(out.is_json(), self.serve.debug);
        }
        let reload = signals::reload_on_hangup().map_err(CliError::Signals)?;
        match self.serve.config(&self.fhe, reload)? {
            ServeConfig::TwoParty(config) => two_party(&config, &stop, out),
            ServeConfig::Fhe(config) => fhe(&config, &stop, out),
        }
    }
}

/// The options by which a client on this machine reaches a server.
fn reached(address: SocketAddr, pin: &str, access: &ClientAccess) -> String {
    // An address that stands for all of them is none to connect to.
    let address = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), address.port()),
        _ => address,
    };
    let (token, certificate) = (" --token-file FILE", " --cert FILE --key FILE");
    let shown = match access {
        ClientAccess::Anyone => String::new(),
        ClientAccess::Tokens(_) => token.to_owned(),
        ClientAccess::Certificates(_) => certificate.to_owned(),
        ClientAccess::TokensAndCertificates { .. } => format!("{token}{certificate}"),
    };
    format!("--server {address} --pin {pin}{shown}")
}

fn fhe(config: &FheServerConfig, stop: &AtomicBool, out: &Output) -> Result<(), CliError> {
    let server = FheServer::bind(config)?;
    let (address, pin) = (server.listener().local_addr(), server.listener().fingerprint().to_string());
    let plan = server.plan_hash().to_string();
    let declared = server.declared();
    let object = json!({
        "event": "listening",
        "protocol": "fhe",
        "address": address.to_string(),
        "certificate_sha256": pin,
        "plan": plan,
        "public_bytes": declared.public_bytes,
        "exposures": declared.exposures,
        "metrics": server.listener().metrics_addr().map(|a| a.to_string()),
    });
    out.result(object, || {
        format!(
            "listening on {address}\ncertificate sha256 {pin}\nmanifest {plan}\n{}\n\n\
             try:  hushed embed --protocol fhe {} --keys keys --make-keys \"a private text\"",
            declared.lines().join("\n"),
            reached(address, &pin, &config.entrance.access)
        )
    })?;
    server.run(stop)?;
    Ok(())
}

fn two_party(config: &ServerConfig, stop: &AtomicBool, out: &Output) -> Result<(), CliError> {
    let server = Server::bind(config)?;
    let (address, pin) = (server.listener().local_addr(), server.listener().fingerprint().to_string());
    let bundle = server.bundle_hash().to_string();
    let verb = match server.task() {
        Task::Embed => "embed",
        Task::Classify => "classify",
        Task::Generate => "generate",
    };
    let (tried, given) = match config.index {
        Some(_) => ("search", "\"a private text\""),
        None if server.scores_pairs() => ("rerank", "--query-file FILE --input FILE"),
        None if server.reads_images() => (verb, "--image FILE"),
        None => (verb, "\"a private text\""),
    };
    let object = json!({
        "event": "listening",
        "verb": verb,
        "address": address.to_string(),
        "certificate_sha256": pin,
        "bundle": bundle,
        "max_tokens": server.max_tokens(),
        "prefix_tokens": server.prefix_tokens(),
        "metrics": server.listener().metrics_addr().map(|a| a.to_string()),
    });
    out.result(object, || {
        let metrics =
            server.listener().metrics_addr().map_or_else(String::new, |a| format!("\nmetrics on http://{a}/metrics"));
        format!(
            "listening on {address}\ncertificate sha256 {pin}\nbundle {bundle}{metrics}\n\n\
             try:  hushed {tried} {} {given}",
            reached(address, &pin, &config.entrance.access)
        )
    })?;
    server.run(stop)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_reaches_the_server() {
        let reached = |address: &str, access: &ClientAccess| reached(address.parse().unwrap(), "9f", access);
        let file = || Some("file".into());
        let to = |tokens, authorities| reached("127.0.0.1:7", &ClientAccess::new(tokens, authorities));
        assert_eq!(to(None, None), "--server 127.0.0.1:7 --pin 9f");
        assert_eq!(to(file(), None), "--server 127.0.0.1:7 --pin 9f --token-file FILE");
        assert_eq!(to(None, file()), "--server 127.0.0.1:7 --pin 9f --cert FILE --key FILE");
        assert_eq!(to(file(), file()), "--server 127.0.0.1:7 --pin 9f --token-file FILE --cert FILE --key FILE");
        for (bound, named) in [("0.0.0.0:7", "127.0.0.1:7"), ("[::]:7", "[::1]:7"), ("192.0.2.1:7", "192.0.2.1:7")] {
            assert_eq!(reached(bound, &ClientAccess::Anyone), format!("--server {named} --pin 9f"));
        }
    }
}
