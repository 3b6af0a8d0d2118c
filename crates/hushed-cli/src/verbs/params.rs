//! `hushed params`: the parameter sets of the engine, and how secure they are.

use hushed_ckks::bootstrap::{BootstrapLiteral, Bootstrapper};
use hushed_ckks::params::ParamsReport;
use hushed_ckks::{CkksParams, PRESETS};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::output::Output;

/// Show the parameter sets of encrypted inference: chain, levels, precision, security, failure, key sizes
#[derive(clap::Args)]
#[command(after_help = "Examples:
  hushed params
  hushed params n16-boot-14x40 --keys
  hushed params --json")]
pub struct Args {
    /// One parameter set; all of them by default
    preset: Option<String>,

    /// Add the sizes of the keys of a bootstrap; takes some seconds, because its matrices are encoded
    #[arg(long)]
    keys: bool,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let names: Vec<&str> = match &self.preset {
            Some(name) => vec![name],
            None => PRESETS.to_vec(),
        };
        for name in names {
            let params =
                CkksParams::preset(name).map_err(|source| CliError::Preset { name: name.to_owned(), source })?;
            let mut report = params.report();
            if self.keys && params.can_bootstrap() {
                let specs = Bootstrapper::new(&params, BootstrapLiteral::default())?.key_specs();
                report = report.with_keys(params.key_sizes(&specs)?);
            }
            let text = report.to_string();
            out.result(object(&report), || text.trim_end().to_owned())?;
        }
        Ok(())
    }
}

fn object(report: &ParamsReport) -> Value {
    let chain: Vec<Value> = report
        .chain
        .iter()
        .map(|(name, group)| json!({ "group": name, "primes": group.count, "bits": group.bits }))
        .collect();
    let keys: Vec<Value> = report
        .keys
        .iter()
        .map(|k| json!({ "use": k.name, "count": k.count, "memory_bytes": k.memory_bytes, "disk_bytes": k.disk_bytes }))
        .collect();
    json!({
        "name": report.name,
        "log_n": report.log_n,
        "slots": report.slots,
        "chain": chain,
        "log_scale": report.log_scale,
        "levels": report.levels,
        "certified_bits": report.certified_bits,
        "bootstrap_bits_min": report.bootstrap_bits.map(|[worst, _]| worst),
        "bootstrap_bits_mean": report.bootstrap_bits.map(|[_, mean]| mean),
        "log2_qp": report.log2_qp,
        "special_whole_chain": report.special[0],
        "security_limit": report.security_limit,
        "security_bits": report.security_bits,
        "ephemeral_log2": report.ephemeral_log2,
        "log2_failure": report.log2_failure,
        "keys": keys,
    })
}
