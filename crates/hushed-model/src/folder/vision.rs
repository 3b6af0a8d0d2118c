//! `preprocessor_config.json`: how an image becomes the numbers of the patches.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use serde_json::Value;

use crate::error::Problem;
use crate::folder::fields;
use crate::folder::json::{self, Fields};
use crate::images::{CHANNELS, Preprocess, Resample, ResizeTo};

/// The file's name in a model folder.
pub(crate) const PREPROCESSOR: &str = "preprocessor_config.json";
/// Bound on the magnitude of a patch's numbers, for any image.
const MOST: f64 = 16.0;
/// The largest side that an image is resized to.
const LARGEST: u64 = 1 << 11;

/// What a processor does where its file does not say.
#[derive(Clone, Copy)]
struct Processor {
    /// Whether one number as the size means width and height, or the shorter side.
    square: bool,
    /// Whether the middle of a resized image is taken.
    crops: bool,
    resample: Resample,
    mean: [f32; CHANNELS],
    deviation: [f32; CHANNELS],
}

const VIT: Processor = Processor {
    square: true,
    crops: false,
    resample: Resample::Bilinear,
    mean: [0.5; CHANNELS],
    deviation: [0.5; CHANNELS],
};
/// The numbers of CLIP's training.
const CLIP: Processor = Processor {
    square: false,
    crops: true,
    resample: Resample::Bicubic,
    mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
    deviation: [0.268_629_54, 0.261_302_6, 0.275_777_1],
};
/// The side of an image if neither `size` nor `crop_size` is there.
const SIDE: u64 = 224;

const PROCESSORS: &[(&str, Processor)] = &[
    ("ViTImageProcessor", VIT),
    ("ViTImageProcessorFast", VIT),
    ("ViTFeatureExtractor", VIT),
    ("CLIPImageProcessor", CLIP),
    ("CLIPImageProcessorFast", CLIP),
    ("CLIPFeatureExtractor", CLIP),
    ("BitImageProcessor", CLIP),
    ("BitImageProcessorFast", CLIP),
];

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
    let mut processor = VIT;
    for named in ["feature_extractor_type", "image_processor_type"] {
        if f.get(named).is_some() {
            let names = "ViTImageProcessor, CLIPImageProcessor or BitImageProcessor";
            processor = f.choice(named, PROCESSORS, None, names).unwrap_or(processor);
        }
    }
    if !f.flag_or("do_rescale", true) {
        f.unsupported("do_rescale", "true");
    }
    let resample = resample(&mut f, processor.resample);
    let rescale = f.real_or("rescale_factor", 1.0 / 255.0, 1e-6, 1.0);
    let normalised = f.flag_or("do_normalize", true);
    let mut of = |field, usual, without: f32| match normalised {
        true => channels(&mut f, field, usual),
        false => Some([without; CHANNELS]),
    };
    let mean = of("image_mean", processor.mean, 0.0);
    let deviation = of("image_std", processor.deviation, 1.0);
    if let (Some(mean), Some(deviation)) = (mean, deviation) {
        let beyond = |(m, d): (f32, f32)| {
            let ends = [0.0, 255.0 * rescale].map(|v| (v - f64::from(m)) / f64::from(d));
            !ends.into_iter().all(|v| v.abs() <= MOST)
        };
        if mean.into_iter().zip(deviation).any(beyond) {
            f.unsupported("image_std", "numbers of at most 16 in magnitude for every image");
        }
    }
    let resize_to = resize_to(&mut f, processor, sides.map(|(side, _)| side), resample.is_some());
    if problems.len() > before {
        return None;
    }
    let (side, patch) = sides?;
    Some(Preprocess { side, patch, resample, resize_to: resize_to?, rescale, mean: mean?, deviation: deviation? })
}

fn resample(f: &mut Fields<'_>, usual: Resample) -> Option<Resample> {
    if !f.flag_or("do_resize", true) {
        return None;
    }
    match f.get("resample").map(Value::as_u64) {
        None => Some(usual),
        Some(Some(2)) => Some(Resample::Bilinear),
        Some(Some(3)) => Some(Resample::Bicubic),
        Some(_) => {
            f.unsupported("resample", "2 (bilinear) or 3 (bicubic)");
            None
        }
    }
}

/// The size that images are resized to, where what is then taken of them has the side of the model. `None` if and only
/// if it is unknown what side the model has, or a problem was added.
fn resize_to(f: &mut Fields<'_>, processor: Processor, side: Option<usize>, resizes: bool) -> Option<ResizeTo> {
    let square = f.flag_or("default_to_square", processor.square);
    let crops = f.flag_or("do_center_crop", processor.crops);
    let size = match f.get("size") {
        None => number(SIDE, square),
        Some(size) => size_of(size, square),
    };
    let taken = match (f.get("crop_size"), crops) {
        (_, false) => None,
        (None, true) => number(SIDE, true),
        (Some(size), true) => size_of(size, true),
    };
    let side = side?;
    let (size, taken) = match (size, taken) {
        _ if !resizes && crops => {
            f.unsupported("do_center_crop", "the whole image (false) where it is not resized");
            return None;
        }
        (Some(size), None) if !crops => (size, size),
        (Some(size), Some(taken)) => (size, taken),
        (None, _) => {
            f.unsupported("size", "a height and width, or shortest_edge, up to 2048");
            return None;
        }
        (_, None) => {
            f.unsupported("crop_size", "the height and width that config.json says (image_size)");
            return None;
        }
    };
    let (ResizeTo::Square(least) | ResizeTo::Shortest(least)) = size;
    let field = if crops { "crop_size" } else { "size" };
    if taken != ResizeTo::Square(side) {
        f.unsupported(field, "the height and width that config.json says (image_size)");
        return None;
    }
    if least < side {
        f.unsupported("size", "no less than crop_size");
        return None;
    }
    Some(size)
}

/// A size as the files have it: one number, both sides, or the shortest.
fn size_of(size: &Value, square: bool) -> Option<ResizeTo> {
    let Some(sides) = size.as_object() else { return number(size.as_u64()?, square) };
    let of = |name| sides.get(name).and_then(Value::as_u64);
    match (of("height"), of("width"), of("shortest_edge"), sides.len()) {
        (Some(height), Some(width), None, 2) if height == width => number(height, true),
        (None, None, Some(shortest), 1) => number(shortest, false),
        _ => None,
    }
}

fn number(side: u64, square: bool) -> Option<ResizeTo> {
    let side = usize::try_from(side).ok().filter(|_| (1..=LARGEST).contains(&side))?;
    Some(if square { ResizeTo::Square(side) } else { ResizeTo::Shortest(side) })
}

/// One number per channel.
fn channels(f: &mut Fields<'_>, field: &'static str, usual: [f32; CHANNELS]) -> Option<[f32; CHANNELS]> {
    let Some(given) = f.get(field) else {
        return Some(usual);
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
