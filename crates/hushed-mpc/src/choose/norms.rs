//! Chooses the formats of a model's norms that hold the measured values where the usual ones do not.

use std::collections::BTreeMap;

use hushed_model::{Calibration, Model, NormReach, Ranges};
use hushed_twopc::func::norm;

use super::MARGIN;

/// The formats to declare for a model's norms: one for each norm whose rows exceed the usual formats at [`MARGIN`]
/// times the largest measured values, or are too small for them. A norm that no format holds gets none;
/// [`fits`](super::fits::fits) then reports it.
pub fn choose_norms(model: &Model, calibration: &Calibration) -> BTreeMap<String, NormReach> {
    let program = model.program();
    let mut chosen = BTreeMap::new();
    for (id, norm) in program.norms() {
        let site = id.to_string();
        let Some(Ranges::Norm { first_variance, variance, .. }) = calibration.sites.get(&site) else {
            continue;
        };
        let most = first_variance.max.max(variance.max);
        let least = first_variance.min.min(variance.min) + norm.epsilon;
        let largest = MARGIN * MARGIN * most * norm.width as f64;
        // One more fraction bit allows a quarter of the mean square.
        let usual = norm::NormReach::USUAL.least_mean_square(norm.width);
        let finer = (usual / least.max(1e-12)).log2() / 2.0;
        let reach = NormReach::of(largest, finer.ceil().max(0.0) as u32);
        chosen.extend(reach.filter(|r| *r != NormReach::USUAL).map(|r| (site, r)));
    }
    chosen
}
