//! `hushed serve`: answer private texts with the weights of a model folder.

use std::path::PathBuf;

use hushed_serve::{ClientAccess, Server, ServerConfig, ServerIdentity, logging, signals};
use serde_json::json;

use crate::error::CliError;
use crate::folders;
use crate::output::Output;

/// Serve a model: clients embed private texts with it
#[derive(clap::Args)]
#[command(
    after_help = "Without --cert a development certificate is made on first use; clients pin the SHA-256 that is printed.
On an address that other machines can reach, clients have to show a token or a certificate.
SIGTERM lets texts under way come to their end; a second one does not wait.

Examples:
  hushed serve models/all-MiniLM-L6-v2 --listen 127.0.0.1:7450
  hushed serve models/all-MiniLM-L6-v2 --listen 0.0.0.0:7450 --cert chain.pem --key key.pem --tokens tokens.txt --metrics 127.0.0.1:9750"
)]
pub struct Args {
    /// The model folder (config.json, model.safetensors, tokenizer.json, …)
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Where to listen, HOST:PORT; port 0 takes any free one
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:0",
        env = "HUSHED_LISTEN"
    )]
    listen: String,

    /// The server's certificate chain (PEM)
    #[arg(long, value_name = "FILE", requires = "key", env = "HUSHED_CERT")]
    cert: Option<PathBuf>,

    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert", env = "HUSHED_KEY")]
    key: Option<PathBuf>,

    /// Where the development certificate is kept [default: the user's state folder]
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with = "cert",
        env = "HUSHED_CERT_DIR"
    )]
    cert_dir: Option<PathBuf>,

    /// Let in clients with a token of this file: one a line, or sha256: and its digest
    #[arg(long, value_name = "FILE", env = "HUSHED_TOKENS_FILE")]
    tokens: Option<PathBuf>,

    /// Let in clients with a certificate that an authority of this PEM file has signed
    #[arg(long, value_name = "FILE", env = "HUSHED_CLIENT_CA")]
    client_ca: Option<PathBuf>,

    /// Sessions at once; more are refused
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        env = "HUSHED_MAX_SESSIONS"
    )]
    max_sessions: usize,

    /// Most tokens of a text, below the model's own limit
    #[arg(long, value_name = "N", env = "HUSHED_MAX_TOKENS")]
    max_tokens: Option<usize>,

    /// Most tokens of all texts of one pass together (`embed --batch`); a single text is bounded by --max-tokens alone
    #[arg(
        long,
        value_name = "N",
        default_value_t = 256,
        env = "HUSHED_MAX_PASS_TOKENS"
    )]
    max_pass_tokens: usize,

    /// Most texts of a session
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1000,
        env = "HUSHED_MAX_TEXTS"
    )]
    max_texts: usize,

    /// Where /healthz, /readyz and /metrics are served over plain HTTP; never on a public address
    #[arg(long, value_name = "ADDR", env = "HUSHED_METRICS")]
    metrics: Option<String>,

    /// Also log one line a text (its number of tokens and its time, never what it says)
    #[arg(long, env = "HUSHED_DEBUG", value_parser = clap::builder::FalseyValueParser::new())]
    debug: bool,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let stop = signals::stop_on_signals().map_err(CliError::Signals)?;
        if !out.is_quiet() {
            logging::to_stderr(out.is_json(), self.debug);
        }
        let server = Server::bind(&self.config()?)?;
        let (address, pin) = (server.local_addr(), server.fingerprint().to_string());
        let bundle = server.bundle_hash().to_string();
        let object = json!({
            "event": "listening",
            "address": address.to_string(),
            "certificate_sha256": pin,
            "bundle": bundle,
            "max_tokens": server.max_tokens(),
            "metrics": server.metrics_addr().map(|a| a.to_string()),
        });
        out.result(object, || {
            let metrics = server
                .metrics_addr()
                .map_or_else(String::new, |a| format!("\nmetrics on http://{a}/metrics"));
            format!(
                "listening on {address}\ncertificate sha256 {pin}\nbundle {bundle}{metrics}\n\n\
                 try:  hushed embed --server {address} --pin {pin} \"a private text\""
            )
        })?;
        server.run(&stop)?;
        Ok(())
    }

    fn config(&self) -> Result<ServerConfig, CliError> {
        let identity = match self.cert.clone().zip(self.key.clone()) {
            Some((chain, key)) => ServerIdentity::Files { chain, key },
            None => {
                let dir = self
                    .cert_dir
                    .clone()
                    .or_else(|| folders::state("certificate"));
                ServerIdentity::Development(dir.ok_or(CliError::NoStateFolder)?)
            }
        };
        let mut config = ServerConfig::local(&self.dir, "");
        config.identity = identity;
        config.listen.clone_from(&self.listen);
        config.access = ClientAccess::new(self.tokens.clone(), self.client_ca.clone());
        config.max_sessions = self.max_sessions;
        config.max_tokens = self.max_tokens;
        config.max_pass_tokens = self.max_pass_tokens;
        config.max_texts = self.max_texts;
        config.metrics_listen.clone_from(&self.metrics);
        Ok(config)
    }
}
