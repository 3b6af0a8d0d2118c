//! The costs of all passes of a generated text.

use hushed_model::counted;
use hushed_mpc::plan::Plan;
use serde_json::{Value, json};

/// All passes of a generated text.
#[derive(Default)]
pub(super) struct Sum {
    pub(super) bytes_up: u64,
    pub(super) bytes_down: u64,
    pub(super) ot_bytes: u64,
    pub(super) rounds: u64,
    pub(super) seconds: f64,
    pub(super) seconds_in_all: f64,
}

impl Sum {
    pub(super) fn of(plans: &[Plan]) -> Sum {
        plans.iter().fold(Sum::default(), |sum, plan| Sum {
            bytes_up: sum.bytes_up + plan.bytes_up,
            bytes_down: sum.bytes_down + plan.bytes_down,
            ot_bytes: sum.ot_bytes + plan.ot_bytes,
            rounds: sum.rounds + plan.rounds,
            seconds: sum.seconds + plan.seconds,
            seconds_in_all: sum.seconds_in_all + plan.seconds_in_all,
        })
    }

    pub(super) fn json(&self, tokens: usize) -> Value {
        json!({ "all": {
            "tokens": tokens,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "ot_bytes": self.ot_bytes,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "seconds_in_all": self.seconds_in_all,
        } })
    }

    pub(super) fn text(&self) -> String {
        format!(
            "{:.2} MB up, {:.2} MB down, {:.2} MB of OTs, {}, {:.2} s, {:.2} s with the network",
            self.bytes_up as f64 / 1e6,
            self.bytes_down as f64 / 1e6,
            self.ot_bytes as f64 / 1e6,
            counted(self.rounds, "round"),
            self.seconds,
            self.seconds_in_all
        )
    }
}
