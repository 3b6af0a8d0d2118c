//! What drafts cost, and how often they must be right to pay off.

use std::path::Path;
use std::time::Duration;

use hushed_model::{Model, Task};
use hushed_net::Shape;
use serde::Serialize;

use super::folder::{opened, public_of};
use super::{Before, Plan, PlanError, Request};
use crate::formats::is_long;

/// Networks by name: none, the two of the BumbleBee paper, and a cross-country link.
pub const NETWORKS: [(&str, Shape); 4] = [
    ("loopback", Shape { bits_per_second: 0, one_way: Duration::ZERO }),
    ("LAN", Shape::LAN),
    ("WAN", Shape::WAN),
    ("100 Mbit/s, ping 40 ms", Shape { bits_per_second: 100_000_000, one_way: Duration::from_millis(20) }),
];

/// A pass that verifies drafts next to one that gives a token, both after the same rows.
#[derive(Clone, Debug, Serialize)]
pub struct Drafts {
    /// The pass of one row.
    pub one: Plan,
    /// The pass of one row plus one row per draft.
    pub all: Plan,
    /// Products made ahead of the rows, if any, and for how many.
    #[serde(skip)]
    made: Option<(Plan, usize)>,
}

impl Drafts {
    /// For a folder's model, at the first later token. Reads the folder's public files.
    ///
    /// # Errors
    /// [`PlanError::NotGenerated`] for a model without later passes; otherwise as [`Plan::of_folder`].
    pub fn of_folder(folder: &Path, request: &Request) -> Result<Drafts, PlanError> {
        let public = public_of(folder)?;
        if public.task() != Task::Generate {
            return Err(PlanError::NotGenerated);
        }
        // The prompt and its checks, with as many rows after it as the pass has.
        let longest = Request { max_tokens: request.max_tokens.max(2 + request.draft), ..request.clone() };
        let (rows, prefix) = longest.rows(&public)?;
        let program = Model::shapes_only(&public).program();
        let (terms, answers) = (request.session(), opened(&public, request)?);
        let pass = |drafts: usize| {
            let held = rows.iter().sum::<usize>();
            let long = is_long(held + longest.max_tokens - 1);
            let before = Before { public: prefix, held, drafts: drafts > 0, long };
            let plan = Plan::next_tokens(&program, before, &[1 + drafts], terms, answers);
            plan.map(|plan| request.placed(plan))
        };
        let made = match request.ahead {
            0 => None,
            rows => Some((request.placed(Plan::ahead(&program, rows, terms)?), rows)),
        };
        Ok(Drafts { one: pass(0)?, all: pass(request.draft)?, made })
    }

    /// The drafts of the pass.
    pub fn drafts(&self) -> usize {
        self.all.tokens.iter().sum::<usize>() - 1
    }

    /// The share of right drafts, each equally likely, above which passes with drafts take less time per token than
    /// passes of one row; `None` if they never do. Times are those of one core per party plus the network, one after
    /// the other, and include what is made ahead of the rows.
    ///
    /// With n drafts, each right with probability p, a pass gives 1 + p + p² + … + pⁿ tokens.
    pub fn pays_from(&self, network: &Shape) -> Option<f64> {
        let time = |plan: &Plan, rows: usize| {
            let made = self.made.as_ref();
            let made = made.map_or(0.0, |(made, of)| made.seconds_over(network) / *of as f64);
            plan.seconds_over(network) + rows as f64 * made
        };
        let (drafts, one) = (self.drafts(), time(&self.one, 1));
        share(drafts, time(&self.all, 1 + drafts) / one)
    }
}

/// The p at which 1 + p + … + p^drafts reaches `tokens`.
fn share(drafts: usize, tokens: f64) -> Option<f64> {
    let given = |p: f64| (0..drafts).fold(1.0, |sum, _| sum * p + 1.0);
    if given(1.0) <= tokens {
        return None;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        match given(middle) < tokens {
            true => low = middle,
            false => high = middle,
        }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_from_which_drafts_pay() {
        // 1 + p + p² = 1.75 at p = ½.
        assert!((share(2, 1.75).unwrap() - 0.5).abs() < 1e-9);
        assert!((share(1, 1.2).unwrap() - 0.2).abs() < 1e-9);
        assert_eq!(share(2, 3.0), None);
        assert!(share(2, 0.9).unwrap() < 1e-9);
    }
}
