//! Which of a model's ternary layers a circuit computes with weights −1, 0 and 1, and why not the others.

use std::collections::BTreeMap;

use hushed_model::{Block, Program, StepId};
use serde::Serialize;

use super::placement::Placement;
pub use crate::tape::causal::sums::Form;

/// The ternary layers that are computed in one way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TernaryMaps {
    /// How, and why.
    pub form: Form,
    /// Number of layers, of all blocks.
    pub count: usize,
    /// Their names within a block, such as `attention.output`.
    pub maps: Vec<StepId>,
}

/// All ternary layers of a decoder; none for other models.
#[must_use]
pub fn ternary_maps(program: &Program, placement: &Placement) -> Vec<TernaryMaps> {
    let mut found: BTreeMap<Form, TernaryMaps> = BTreeMap::new();
    for step in program.steps() {
        let forms = match &step.block {
            Block::Attention(a) => Form::of_attention(a).to_vec(),
            Block::FeedForward(f) => Form::of_feed_forward(f).to_vec(),
            _ => continue,
        };
        for (part, form) in forms {
            let Some(form) = form else { continue };
            let form = match placement.columns {
                1 => form,
                _ => Form::PackedRows,
            };
            let maps = found.entry(form).or_insert_with(|| TernaryMaps { form, count: 0, maps: Vec::new() });
            maps.count += 1;
            let name = step.id.part(part).within_layer();
            if !maps.maps.contains(&name) {
                maps.maps.push(name);
            }
        }
    }
    found.into_values().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hushed_ckks::CkksParams;
    use hushed_ckks::keys::KeySpecs;
    use hushed_model::testing::{ternary_config, ternary_network};
    use hushed_model::{DecoderNetwork, Norm};

    use super::*;
    use crate::plan::public_plan::Lengths;
    use crate::plan::tests::{options, shallow};
    use crate::plan::{FheOptions, FhePlanReport, dry_run, packed_placement};
    use crate::simulate::Op;

    const LAST: [&str; 2] = ["attention.output", "feed_forward.down"];

    fn options_of(texts: usize) -> FheOptions {
        FheOptions { texts, ..options(Lengths::Private) }
    }

    /// The form of some maps, their number and their names.
    type Told = (Form, usize, Vec<String>);

    /// The plan's account of a decoder, after a comparison with what its circuit does: scalar maps rescale their
    /// results, ternary ones do not.
    fn planned(network: &DecoderNetwork, options: FheOptions) -> Vec<Told> {
        let (params, program) = (CkksParams::n16_boot().unwrap(), network.program_of_all_rows());
        let choices = shallow(&program, options.rows);
        let keys = KeySpecs::new();
        let plan = FhePlanReport::new(&program, &choices, true, &params, &keys, &options).unwrap();
        let run = dry_run(&program, &choices, &params, &options, &plan.placement).unwrap();
        if plan.placement.columns == 1 {
            for name in LAST {
                let operations = run.counts.operations.iter();
                let here = operations.filter(|c| c.site.within_layer().to_string() == name);
                let rescales = here.filter(|c| c.op == Op::Rescale).map(|c| c.times);
                let ternary = plan.ternary.iter().find(|t| t.form == Form::Ternary);
                let ternary = ternary.is_some_and(|t| t.maps.iter().any(|m| m.to_string() == name));
                assert_eq!(rescales.sum::<u64>() == 0, ternary, "{name}");
            }
        }
        let told = |t: &TernaryMaps| (t.form, t.count, t.maps.iter().map(StepId::to_string).collect());
        plan.ternary.iter().map(told).collect()
    }

    fn maps(form: Form, count: usize, maps: &[&str]) -> Told {
        (form, count, maps.iter().map(|&m| m.to_owned()).collect())
    }

    #[test]
    fn a_plan_says_which_maps_are_ternary_as_the_circuit_runs_them() {
        let first = ["query", "key", "value"].map(|part| format!("attention.{part}"));
        let gate = ["gate", "up"].map(|part| format!("feed_forward.{part}"));
        let first: Vec<&str> = first.iter().chain(&gate).map(String::as_str).collect();
        let before = maps(Form::NormBefore, 10, &first);
        let config = ternary_config(2, 2);
        let mut network = ternary_network(&config, 1);
        let batch = || options_of(usize::MAX);
        let both = maps(Form::Ternary, 4, &LAST);
        assert_eq!(planned(&network, batch()), [both.clone(), before.clone()]);

        // Norms inside the blocks: gains of 1, then others in one layer's attention.
        let config = hushed_model::NetworkConfig { sub_norms: true, ..config };
        let normed = ternary_network(&config, 1);
        let one = |norm: &mut Option<Norm>| {
            let norm = norm.as_mut().unwrap();
            norm.gain = Some(Arc::from(vec![1.0; norm.width]));
        };
        let mut ones = normed.clone();
        for layer in &mut ones.layers {
            one(&mut layer.attention.sub_norm);
            one(&mut layer.feed_forward.feed_forward_mut().unwrap().sub_norm);
        }
        assert_eq!(planned(&ones, batch()), [both, before.clone()]);
        assert_eq!(planned(&normed, batch()), [before.clone(), maps(Form::SubNorm, 4, &LAST)]);
        for layer in &mut ones.layers {
            let other = &normed.layers[0].attention.sub_norm;
            layer.attention.sub_norm.clone_from(other);
        }
        let [attention, down] = LAST;
        assert_eq!(
            planned(&ones, batch()),
            [maps(Form::Ternary, 2, &[down]), before, maps(Form::SubNorm, 2, &[attention])]
        );

        // Packed rows.
        let (params, program) = (CkksParams::n16_boot().unwrap(), network.program_of_all_rows());
        let mut few = options_of(1);
        let choices = shallow(&program, few.rows);
        few.placement = packed_placement(&program, &choices, &params, &few).unwrap();
        let all = planned(&network, few);
        assert_eq!((all.len(), all[0].0, all[0].1), (1, Form::PackedRows, 14));

        // A model without ternary layers.
        for layer in &mut network.layers {
            let attention = &mut layer.attention;
            for w in [&mut attention.query, &mut attention.key, &mut attention.value] {
                w.ternary = false;
            }
            attention.output.ternary = false;
            let block = layer.feed_forward.feed_forward_mut().unwrap();
            for w in block.gate.iter_mut().chain([&mut block.up, &mut block.down]) {
                w.ternary = false;
            }
        }
        assert_eq!(planned(&network, batch()), []);
    }
}
