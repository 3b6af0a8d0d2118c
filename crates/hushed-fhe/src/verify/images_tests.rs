//! A trained vision transformer, the small model for digits of this repository, on a key.

use std::path::Path;

use hushed_model::{Pixels, cosine};

use super::tests::assert_steps_err_as_predicted;
use super::*;
use crate::calibrate::{Options as Search, Sample, calibrate};
use crate::plan::public_plan::{Lengths, named};

const PARAMETERS: &str = "insecure-test/9/14";
/// With room for more images at a time.
const WIDE: &str = "insecure-test/13/14";

/// The model, its digits that it was not trained on, and their names.
fn digits() -> (Model, Vec<Pixels>, Vec<usize>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/vit-digits");
    let model = Model::load(&folder).unwrap();
    let text = std::fs::read_to_string(folder.join("held-out.txt")).unwrap();
    let (mut images, mut names) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let (name, shades) = line.split_once(' ').unwrap();
        // 0 to 16 as a digit or a letter, in all channels.
        let shade = |c: char| (c.to_digit(17).unwrap() * 255 / 16) as u8;
        let points = shades.chars().flat_map(|c| [shade(c); 3]).collect();
        images.push(model.public.images.as_ref().unwrap().of_points(points).unwrap());
        names.push(name.parse().unwrap());
    }
    (model, images, names)
}

fn label(logits: &[f64]) -> usize {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap()
}

/// Every step of every layer is present and errs as predicted; the label is that of the clear model wherever its
/// largest logit leads by more than twice the error of the logits.
#[test]
fn digits_on_a_key_get_the_labels_of_the_clear_model() {
    let (model, images, names) = digits();
    let sample = Sample { texts: &images[..96], hostile: &[], broad: &[], sha256: "", model_sha256: "" };
    let search = Search { rows: 32, parameters: WIDE.to_owned(), ..Search::default() };
    let choices = calibrate(&model, &sample, &search, &mut |_| ()).unwrap();
    let params = named(PARAMETERS).unwrap();
    let (lengths, encrypted) = (Lengths::Public, Some(OnKey::default()));
    let options = Options { rows: 32, layers: None, lengths, seed: 3, together: None, encrypted };
    let (images, names) = (&images[200..208], &names[200..208]);
    let report = verify(&model, &choices, &params, images, &options, &|_| ()).unwrap();
    assert!(report.out_of_range.is_empty());
    assert_steps_err_as_predicted(&report, 3);
    let (mut sure, mut right) = (0, 0);
    for (answer, &name) in report.answers.iter().zip(names) {
        let found = answer.encrypted.as_ref().unwrap();
        let far = answer.clear.iter().zip(found).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let mut sorted = answer.clear.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        assert!(cosine(&answer.clear, found) > 0.999, "{} {far}", answer.text);
        if sorted[0] - sorted[1] > 2.0 * far {
            assert_eq!(label(found), label(&answer.clear));
            sure += 1;
        }
        right += usize::from(label(found) == name);
    }
    println!("{sure} of {} sure, {right} right", report.answers.len());
    assert_eq!((report.answers.len(), sure), (8, 8));
    assert!(right >= 7);
}
