//! `hushed plan --protocol fhe --machines`: one run on several machines, simulated.

use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_fhe::plan::{FheOptions, FhePlanReport};
use hushed_fhe::{Choices, OnMachines, on_machines};
use hushed_model::{Program, counted};
use hushed_mpc::Link;
use serde_json::json;

use crate::error::CliError;
use crate::output::{Output, gib};

/// Arguments of the simulation.
#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    /// fhe: simulate one run on these numbers of machines, with --threads (or --cores) of each and the bandwidth of
    /// --net, as in --net 10gbit: seconds, bytes moved, memory, keys; `hushed run --ray` runs on several
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u16).range(1..=1024),
        env = "HUSHED_MACHINES",
        help_heading = "With --protocol fhe"
    )]
    machines: Vec<u16>,

    /// fhe: what a core costs for an hour, in any currency, for --machines
    #[arg(
        long,
        value_name = "MONEY",
        requires = "machines",
        env = "HUSHED_CORE_HOUR",
        help_heading = "With --protocol fhe"
    )]
    core_hour: Option<f64>,
}

impl Args {
    /// Prints a line for each number of machines.
    pub fn show(
        &self,
        model: (&Program, &Choices),
        params: &Arc<CkksParams>,
        options: &FheOptions,
        plan: &FhePlanReport,
        (link, out): (Link, &Output),
    ) -> Result<(), CliError> {
        if self.machines.is_empty() {
            return Ok(());
        }
        let rate = f64::from(link.kilobits()) * 1000.0 / 8.0;
        let machines: Vec<usize> = self.machines.iter().map(|&n| n.into()).collect();
        for (i, of) in on_machines(model, params, options, plan, (&machines, rate))?.iter().enumerate() {
            let money = self.core_hour.map(|price| price * of.core_hours);
            let object = json!({ "on_machines": of, "kilobits": link.kilobits(), "money": money, "simulated": true });
            out.result(object, || {
                if i == 0 { format!("{}\n{}", head(of, link), line(of, money)) } else { line(of, money) }
            })?;
        }
        Ok(())
    }
}

fn head(of: &OnMachines, link: Link) -> String {
    format!(
        "one run on several machines of {}, simulated at {} Gbit/s between them (`hushed run --ray`):",
        counted(of.cores, "core"),
        f64::from(link.kilobits()) / 1e6
    )
}

fn line(of: &OnMachines, money: Option<f64>) -> String {
    let used = if of.used == of.machines { String::new() } else { format!(" ({} used)", of.used) };
    let money = money.map(|money| format!(", {money:.2} for them")).unwrap_or_default();
    format!(
        "{:>4} {:<8} {:>8.0} s  {:>5.1} times as fast, busy {:>3.0} %  moved {:>6.1} GiB a machine, {:>7.1} in all  \
         memory {:>5.1} GiB a machine  keys {:>6.1} GiB to distribute  {:.2} core-hours{money}{used}",
        of.machines,
        if of.machines == 1 { "machine" } else { "machines" },
        of.seconds,
        of.speed_up,
        100.0 * of.busy,
        gib(of.moved),
        gib(of.moved_in_all),
        gib(of.memory),
        gib(of.keys),
        of.core_hours,
    )
}
