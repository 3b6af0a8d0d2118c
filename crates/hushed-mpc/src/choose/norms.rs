//! The formats of a model's norms: those that hold what was measured, where the usual ones do not.

use std::collections::BTreeMap;

use hushed_model::{Calibration, Model, NormReach, Ranges};
use hushed_twopc::func::norm;

use super::MARGIN;

/// What is to be declared of a model's norms: of each whose rows are beyond the usual formats, in [`MARGIN`] times the
/// largest that were measured or by rows too small for them; none where no format holds them, which
/// [`fits`](super::fits::fits) then says.
pub fn choose_norms(model: &Model, calibration: &Calibration) -> BTreeMap<String, NormReach> {
    let program = model.program();
    let mut chosen = BTreeMap::new();
    for (id, norm) in program.norms() {
        let site = id.to_string();
        let Some(Ranges::Norm {
            first_variance,
            variance,
            ..
        }) = calibration.sites.get(&site)
        else {
            continue;
        };
        let most = first_variance.max.max(variance.max);
        let least = first_variance.min.min(variance.min) + norm.epsilon;
        let largest = MARGIN * MARGIN * most * norm.width as f64;
        // A fraction bit more takes a quarter of the mean square.
        let usual = norm::NormReach::USUAL.least_mean_square(norm.width);
        let finer = (usual / least.max(1e-12)).log2() / 2.0;
        let reach = NormReach::of(largest, finer.ceil().max(0.0) as u32);
        chosen.extend(reach.filter(|r| *r != NormReach::USUAL).map(|r| (site, r)));
    }
    chosen
}
