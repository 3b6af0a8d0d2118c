//! Choices of decoders made from folders, and ones that texts leave.

use hushed_model::testing::{ternary_config, tiny_golden};
use hushed_model::{Body, Model, NetworkConfig, TokenIds};

use super::{ROWS, SLOTS, Subject, test_params};
use crate::calibrate::{Options, Sample, calibrate};
use crate::choices::{Choices, ScoresChoice};
use crate::simulate::Simulator;
use crate::{DecoderChoice, FheError};

/// From a folder and texts to choices, written and read again, for committed golden folders, through the library alone.
#[test]
fn a_folder_is_calibrated() {
    for (folder, softmax) in [("bitnet-sigmoid", false), ("llama", true)] {
        let model = Model::load(&tiny_golden(folder)).unwrap();
        assert!(matches!(model.body, Body::Decoder(_)));
        let texts = of_folder();
        let sample = sample(&texts);
        let options = Options { rows: ROWS, wanted: 0.999, ..Options::default() };
        let mut told = Vec::new();
        let choices = calibrate(&model, &sample, &options, &mut |line| told.push(line.to_owned())).unwrap();
        println!("{}", told.join("\n"));
        let chosen = choices.report.candidates.last().unwrap();
        assert!(chosen.chosen && chosen.cosine_min_with_errors.unwrap() >= 0.999);
        let decoder = choices.decoder.as_ref().unwrap();
        assert_eq!((decoder.layers.len(), choices.layers.len()), (2, 0));
        let json = choices.to_json().unwrap();
        assert_eq!(Choices::from_json(&json).unwrap(), choices);
        // In the format that sigmoid calibrations have always had.
        let written: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let scores = &written["decoder"]["layers"][0]["scores"];
        assert_eq!(scores["heads"][0].is_array(), !softmax);
        assert_eq!(scores["first_steps"].is_u64(), softmax);
        let program = model.program_of_all_rows();
        choices.check(&program).unwrap();
        let mut broken = choices.clone();
        broken.decoder.as_mut().unwrap().layers[1].attention_bound = 0.0;
        assert!(broken.to_json().is_err());
        // Choices for the other function of scores.
        let mut broken = choices.clone();
        let scores = &mut broken.decoder.as_mut().unwrap().layers[1].scores;
        *scores = match scores {
            ScoresChoice::Softmax(softmax) => ScoresChoice::Sigmoid(crate::SigmoidChoice {
                degree: 15,
                heads: vec![[-1.0, 1.0].into(); softmax.heads.len()],
            }),
            ScoresChoice::Sigmoid(sigmoid) => ScoresChoice::Softmax(crate::AttentionChoice {
                degree: 15,
                first_steps: 3,
                second_steps: 3,
                heads: vec![crate::HeadChoice::Previous; sigmoid.heads.len()],
            }),
        };
        let refused = broken.check(&program).err().unwrap();
        assert!(refused.to_string().contains("another function"), "{refused}");
        assert_eq!(broken.to_json().is_err(), !softmax);
    }
    // A decoder that the circuit does not support is refused by name.
    let other = Model::load(&tiny_golden("llama-tied")).unwrap();
    let texts = of_folder();
    let refused = calibrate(&other, &sample(&texts), &Options::default(), &mut |_| ());
    let refused = refused.err().unwrap();
    assert!(matches!(refused, FheError::Unsupported { .. }), "{refused}");
}

fn of_folder() -> Vec<TokenIds> {
    let text = |t: usize| {
        let id = |i: usize| ((i * 37 + t * 11 + i * t) % 300) as u32;
        TokenIds::new((0..3 + t % 13).map(id).collect())
    };
    (0..24).map(text).collect()
}

fn sample(texts: &[TokenIds]) -> Sample<'_> {
    Sample { texts, hostile: &[], broad: &[], sha256: "", model_sha256: "" }
}

/// A number outside its calibrated range is refused by layer and name: the mean square of each norm, which is the first
/// number that depends on its scale, and the residual stream after each half.
#[test]
fn what_leaves_its_range_is_named() {
    let config = NetworkConfig { sub_norms: true, ..ternary_config(2, 2) };
    let subject = Subject::new(&config, SLOTS, (15, 15));
    let on = Simulator::new(&test_params(), SLOTS).unwrap();
    subject.simulated(&on).unwrap();
    type Spoil = fn(&mut DecoderChoice);
    let spoils: [(Spoil, &str); 7] = [
        (|c| c.layers[1].attention_norm.scale *= 3.0, "layer.1.attention.norm"),
        (|c| c.layers[0].feed_forward_norm.scale *= 3.0, "layer.0.feed_forward.norm"),
        (|c| c.layers[1].attention_sub_norm.as_mut().unwrap().scale *= 3.0, "layer.1.attention.sub_norm"),
        (|c| c.layers[0].feed_forward_sub_norm.as_mut().unwrap().scale *= 3.0, "layer.0.feed_forward.sub_norm"),
        (|c| c.norm.scale *= 3.0, "norm"),
        (|c| c.layers[1].attention_bound /= 3.0, "layer.1.attention.add.refresh"),
        (|c| c.layers[0].feed_forward_bound /= 3.0, "layer.0.feed_forward.add.refresh"),
    ];
    for (spoil, place) in spoils {
        let mut subject = subject.clone();
        spoil(subject.choices.decoder.as_mut().unwrap());
        let refused = subject.simulated(&on).err().unwrap();
        let FheError::Range { site, value, bound } = &refused else {
            panic!("{place}: {refused}");
        };
        assert_eq!(site, place);
        assert!(value.abs() > *bound, "{refused}");
        assert!(refused.to_string().contains(place), "{refused}");
    }
}
