//! `hushed plan --draft`: a pass that verifies drafts beside one of one row, and when it pays.

use std::path::Path;

use hushed_model::counted;
use hushed_mpc::plan::drafts::{Drafts, NETWORKS};
use hushed_mpc::plan::{Exposure, Plan, Request};
use serde_json::{Map, Value, json};

use super::sum::Sum;
use crate::error::CliError;
use crate::output::Output;

pub fn show(out: &Output, dir: &Path, request: &Request) -> Result<(), CliError> {
    let found = Drafts::of_folder(dir, request)?;
    let shares = NETWORKS.map(|(name, network)| (name, found.pays_from(&network)));
    let rows = 1 + found.drafts();
    let pays_from: Map<_, _> = shares.into_iter().map(|(name, share)| (name.to_owned(), json!(share))).collect();
    let object = json!({ "drafts": {
        "drafts": found.drafts(),
        "one_row": sums(&found.one),
        "all_rows": sums(&found.all),
        "pays_from": pays_from,
        "exposures": seen(&found),
    } });
    out.result(object, || {
        let text = |plan| Sum::of(std::slice::from_ref(plan)).text();
        let mut all = format!(
            "a pass of one row: {}\na pass of {}, {} of them drafts: {}, {:.0} MB a session",
            text(&found.one),
            counted(rows, "row"),
            found.drafts(),
            text(&found.all),
            found.all.memory.session as f64 / 1e6,
        );
        for (name, share) in shares {
            all += &match share {
                Some(share) => {
                    format!("\ndrafts pay ({name}) where more than {:.0} % of them are right", 100.0 * share)
                }
                None => format!("\ndrafts never pay ({name})"),
            };
        }
        for exposure in seen(&found) {
            all += &format!("\nseen by the {}: {}", exposure.who, exposure.sees);
        }
        all
    })
}

fn sums(plan: &Plan) -> Value {
    json!({
        "bytes_up": plan.bytes_up,
        "bytes_down": plan.bytes_down,
        "ot_bytes": plan.ot_bytes,
        "rounds": plan.rounds,
        "seconds": plan.seconds,
        "seconds_in_all": plan.seconds_in_all,
        "memory": plan.memory,
    })
}

/// What is seen beyond what a pass of one row shows.
fn seen(found: &Drafts) -> Vec<&Exposure> {
    let known = |exposure: &&Exposure| {
        let mut usual = found.one.exposures.iter();
        exposure.sees.contains("draft") && !usual.any(|one| one.sees == exposure.sees)
    };
    found.all.exposures.iter().filter(known).collect()
}
