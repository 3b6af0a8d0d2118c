//! `preprocessor_config.json`: how an image becomes the numbers of the patches.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use serde_json::{Map, Value};

use crate::error::Problem;
use crate::folder::fields;
use crate::folder::json::{self, Fields};
use crate::images::{CHANNELS, Preprocess, Resample};

/// The file's name in a model folder.
pub(crate) const PREPROCESSOR: &str = "preprocessor_config.json";
/// Bound on the magnitude of a patch's numbers, for any image.
const MOST: f64 = 16.0;
const PROCESSORS: &[(&str, ())] =
    &[("ViTImageProcessor", ()), ("ViTImageProcessorFast", ()), ("ViTFeatureExtractor", ())];

/// Parses the `preprocessor_config.json` of a model with these image and patch sides, which are given if its
/// configuration is sound. `None` only if it is not, or if a problem was added.
pub(crate) fn preprocess(
    bytes: &[u8],
    sides: Option<(usize, usize)>,
    problems: &mut Vec<Problem>,
) -> Option<Preprocess> {
    let before = problems.len();
    let object = json::object(PREPROCESSOR, bytes, problems)?;
    let mut f = Fields::new(PREPROCESSOR, &object, problems);
    fields::refuse(&mut f, &[fields::PREPROCESSOR.into()]);
    for named in ["image_processor_type", "feature_extractor_type"] {
        if f.get(named).is_some() {
            f.choice(named, PROCESSORS, None, "ViTImageProcessor");
        }
    }
    f.must_be_off("do_center_crop", "the whole image (false)");
    if !f.flag_or("do_rescale", true) {
        f.unsupported("do_rescale", "true");
    }
    let resample = resample(&mut f);
    let rescale = f.real_or("rescale_factor", 1.0 / 255.0, 1e-6, 1.0);
    let normalised = f.flag_or("do_normalize", true);
    let mut of = |field, default: f32| match normalised {
        true => channels(&mut f, field),
        false => Some([default; CHANNELS]),
    };
    let (mean, deviation) = (of("image_mean", 0.0), of("image_std", 1.0));
    if let (Some(mean), Some(deviation)) = (mean, deviation) {
        let beyond = |(m, d): (f32, f32)| {
            let ends = [0.0, 255.0 * rescale].map(|v| (v - f64::from(m)) / f64::from(d));
            !ends.into_iter().all(|v| v.abs() <= MOST)
        };
        if mean.into_iter().zip(deviation).any(beyond) {
            f.unsupported("image_std", "numbers of at most 16 in magnitude for every image");
        }
    }
    let sides = sides.filter(|(expected, _)| side_is(&mut f, *expected));
    if problems.len() > before {
        return None;
    }
    let (side, patch) = sides?;
    Some(Preprocess { side, patch, resample, rescale, mean: mean?, deviation: deviation? })
}

fn resample(f: &mut Fields<'_>) -> Option<Resample> {
    if !f.flag_or("do_resize", true) {
        return None;
    }
    match f.get("resample").map(Value::as_u64) {
        None | Some(Some(2)) => Some(Resample::Bilinear),
        Some(Some(3)) => Some(Resample::Bicubic),
        Some(_) => {
            f.unsupported("resample", "2 (bilinear) or 3 (bicubic)");
            None
        }
    }
}

/// Checks that width and height are those of the model.
fn side_is(f: &mut Fields<'_>, expected: usize) -> bool {
    let is = |size: &Value| size.as_u64() == Some(expected as u64);
    let both = |size: &Map<String, Value>| {
        let sides = ["height", "width"].map(|side| size.get(side).is_some_and(is));
        size.len() == 2 && sides == [true; 2]
    };
    let same = match f.get("size") {
        None => expected == 224,
        Some(Value::Object(size)) => both(size),
        Some(size) => is(size),
    };
    if !same {
        f.unsupported("size", "the height and width that config.json says (image_size)");
    }
    same
}

/// One number per channel; by default 0.5 each, as in the processor.
fn channels(f: &mut Fields<'_>, field: &'static str) -> Option<[f32; CHANNELS]> {
    let Some(given) = f.get(field) else {
        return Some([0.5; CHANNELS]);
    };
    let numbers = given.as_array().map(|numbers| {
        let numbers = numbers.iter().filter_map(Value::as_f64);
        numbers.map(|n| n as f32).collect::<Vec<_>>()
    });
    let numbers = numbers.and_then(|numbers| <[f32; CHANNELS]>::try_from(numbers).ok());
    let sound = |n: &f32| n.is_finite() && (field != "image_std" || *n > 0.0);
    let numbers = numbers.filter(|numbers| numbers.iter().all(sound));
    if numbers.is_none() {
        f.unsupported(field, "three numbers, one per channel; deviations above 0");
    }
    numbers
}
