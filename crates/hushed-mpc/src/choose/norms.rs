//! The formats of a model's norms: those that hold what was measured, where the usual ones do not.

use std::collections::BTreeMap;

use hushed_model::{Calibration, Model, NormReach, Ranges};

use super::MARGIN;

/// What is to be declared of a model's norms: of each whose rows are beyond the usual formats, in [`MARGIN`] times the
/// largest that were measured or by elements below 2^−5; none where no format holds them, which
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
        let least = first_variance.min.min(variance.min);
        let largest = MARGIN * MARGIN * most * norm.width as f64;
        let reach = NormReach::of(largest, least + norm.epsilon);
        chosen.extend(reach.filter(|r| *r != NormReach::USUAL).map(|r| (site, r)));
    }
    chosen
}
