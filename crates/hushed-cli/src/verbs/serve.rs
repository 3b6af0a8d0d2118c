//! `hushed serve`: answer private texts with the weights of a model folder.

use hushed_serve::{ServeArguments, Server, logging, signals};
use serde_json::json;

use crate::error::CliError;
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
    #[command(flatten)]
    serve: ServeArguments,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let stop = signals::stop_on_signals().map_err(CliError::Signals)?;
        if !out.is_quiet() {
            logging::to_stderr(out.is_json(), self.serve.debug);
        }
        let server = Server::bind(&self.serve.config()?)?;
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
}
