//! A vision transformer: preprocessed images and logits as `transformers` computes them (scripts/tiny_vit.py), and
//! images, configurations and processors that are refused.

use std::fs;
use std::path::PathBuf;

use hushed_model::testing::tiny_golden;
use hushed_model::{
    ImageError, Matrix, Model, ModelError, NetworkConfig, Pixels, Problem, Resample, TextError, TokenIds, TooLong,
    calibrate, check, plain, random_vit, vit_shapes,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::decoders::{edit, expected, problems};

const EMBEDDERS: [&str; 4] = ["vit-rows", "dinov2", "clip-vision", "clip-vision-projection"];

fn model() -> Model {
    Model::load(&tiny_golden("vit")).unwrap()
}

fn file(name: &str) -> PathBuf {
    tiny_golden("vit").join("images").join(name)
}

fn bytes(name: &str) -> Vec<u8> {
    fs::read(file(name)).unwrap()
}

/// Channels × rows × columns of an image, as processors output it.
fn whole(image: &Pixels, side: usize, patch: usize) -> Vec<f32> {
    let across = side / patch;
    let mut all = vec![0.0; 3 * side * side];
    for (place, number) in all.iter_mut().enumerate() {
        let (channel, y, x) = (place / (side * side), place / side % side, place % side);
        let row = image.patches().row(y / patch * across + x / patch);
        *number = row[(channel * patch + y % patch) * patch + x % patch];
    }
    all
}

fn fnv1a(numbers: &[f32]) -> String {
    let bytes = numbers.iter().flat_map(|n| n.to_le_bytes());
    let step = |state: u64, byte| (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", bytes.fold(0xcbf2_9ce4_8422_2325, step))
}

/// For PNG files every number equals the reference bit for bit. JPEGs are decoded by another decoder than the
/// reference's: single pixels differ by single levels, in a channel where one level is 1/(255·0.22).
#[test]
fn numbers_and_logits_equal_the_reference() {
    let (model, expected) = (model(), expected("vit"));
    let stride = expected["stride"].as_u64().unwrap() as usize;
    let mut processors =
        [("bilinear", Resample::Bilinear), ("bicubic", Resample::Bicubic)].map(|(name, how)| (name, Some(how)));
    let images = model.public.images.clone().unwrap();
    assert_eq!(images.resample, processors[0].1.take());
    processors[0].1 = images.resample;
    for case in expected["images"].as_array().unwrap() {
        let name = case["image"].as_str().unwrap();
        let jpeg = name.ends_with(".jpg");
        for (how, resample) in processors {
            let mut images = images.clone();
            images.resample = resample;
            let found = images.read(&bytes(name)).unwrap();
            let found = whole(&found, images.side, images.patch);
            let numbers: Vec<f32> = serde_json::from_value(case[how]["numbers"].clone()).unwrap();
            let level = 1.0 / (255.0 * 0.22);
            let most = if jpeg { 4.0 * level } else { 1e-6 };
            let mut sum = 0.0;
            for (found, number) in found.iter().step_by(stride).zip(&numbers) {
                assert!((found - number).abs() < most, "{name} {how}: {found} {number}");
                sum += f64::from((found - number).abs());
            }
            assert!(sum / (numbers.len() as f64) < f64::from(level), "{name}: {sum}");
            if !jpeg {
                assert_eq!(fnv1a(&found), case[how]["fnv1a"], "{name} {how}");
            }
        }
        let image = model.public.image(&bytes(name)).unwrap();
        let logits: Vec<f64> = serde_json::from_value(case["logits"].clone()).unwrap();
        let found = model.embed(vec![image]).unwrap().remove(0);
        assert_eq!(found.len(), logits.len());
        let worst = found.iter().zip(&logits).map(|(a, b)| (a - b).abs());
        let worst = worst.fold(0.0, f64::max);
        assert!(worst < if jpeg { 0.1 } else { 1e-6 }, "{name}: {worst}");
    }
}

#[derive(Deserialize)]
struct Vector {
    image: String,
    fnv1a: String,
    answer: Vec<f64>,
}

/// Models whose answer is a vector, and processors that take the middle of an image: the numbers bit for bit, and the
/// vectors.
#[test]
fn vectors_equal_the_reference() {
    for name in EMBEDDERS {
        let folder = tiny_golden(name);
        let report = check(&folder);
        assert!(report.supported(), "{name}: {:#?}", report.problems);
        assert_eq!(report.warnings, [], "{name}");
        let summary = report.summary.unwrap();
        assert_eq!((summary.task, summary.pooling), ("embed", "first"), "{name}");
        // Matrices that stay in the files give the same answers.
        let models = [Model::load(&folder).unwrap(), Model::open(&folder).unwrap()];
        let cases: Vec<Vector> = serde_json::from_value(expected(name)).unwrap();
        assert_eq!(cases.len(), 7);
        for case in &cases {
            for model in &models {
                let image = model.public.image(&bytes(&case.image)).unwrap();
                assert_eq!(fnv1a(&whole(&image, 32, 8)), case.fnv1a, "{name} {}", case.image);
                let found = model.embed(vec![image]).unwrap().remove(0);
                assert_eq!(found.len(), case.answer.len(), "{name}");
                for (found, expected) in found.iter().zip(&case.answer) {
                    assert!((found - expected).abs() < 1e-5, "{name} {}: {found}, expected {expected}", case.image);
                }
            }
        }
    }
}

/// Of their own heads, and of processors.
#[test]
fn heads_that_are_not_read_are_refused_by_name() {
    for (folder, class) in [
        ("vit-rows", json!(["ViTForMaskedImageModeling"])),
        ("dinov2", json!(["Dinov2ForImageClassification"])),
        ("clip-vision", json!(["CLIPForImageClassification"])),
    ] {
        let found = problems(&tiny_golden(folder), |d| edit(d, "config.json", |c| c["architectures"] = class));
        assert!(matches!(&found[..], [Problem::UnsupportedValue { field: "architectures", .. }]), "{found:?}");
    }
    for (field, value, named) in [
        ("size", json!({"shortest_edge": 31}), "size"),
        ("size", json!({"shortest_edge": 1 << 20}), "size"),
        ("size", json!({"longest_edge": 64}), "size"),
        ("crop_size", json!(31), "crop_size"),
        ("crop_size", json!({"height": 32, "width": 31}), "crop_size"),
        ("do_center_crop", json!(false), "size"),
        ("do_resize", json!(false), "do_center_crop"),
        ("image_processor_type", json!("SiglipImageProcessor"), "image_processor_type"),
    ] {
        let found = problems(&tiny_golden("clip-vision"), |d| {
            edit(d, "preprocessor_config.json", |c| c[field] = value.clone());
        });
        let is = |problem: &Problem| matches!(problem, Problem::UnsupportedValue { field, .. } if *field == named);
        assert!(found.iter().any(is), "{field} {value}: {found:?}");
    }
}

/// Two images in a pass equal two passes; a text is refused; the calibration uses the names of the steps.
#[test]
fn images_and_nothing_else() {
    let model = model();
    let images = ["wide.png", "gray.png"].map(|name| model.public.image(&bytes(name)).unwrap());
    let both = model.embed(images.to_vec()).unwrap();
    for (image, answer) in images.iter().zip(&both) {
        assert_eq!(&model.embed(vec![image.clone()]).unwrap()[0], answer);
    }
    let text = vec![TokenIds::new(vec![1, 2])];
    assert!(matches!(model.embed(text), Err(ModelError::Text(TextError::NoText))));
    assert!(matches!(model.tokens("a", TooLong::Refuse), Err(ModelError::Text(TextError::NoText))));
    let smaller = Pixels::new(Matrix::zero(4, 3 * 64));
    assert!(matches!(model.embed(vec![smaller]), Err(ModelError::Mismatch { .. })));
    let calibration = calibrate(&model, &images, "").unwrap();
    assert_eq!((calibration.texts, calibration.tokens), (2, 2 * 17));
    for site in ["patches", "layer.1.attention.norm", "layer.1.attention.row", "norm", "head"] {
        assert!(calibration.at(site).is_ok(), "{site}");
    }
    let summary = check(&tiny_golden("vit")).summary.unwrap();
    assert_eq!((summary.max_tokens, summary.image_side), (17, Some(32)));
    assert_eq!((summary.task, summary.pooling), ("classify", "first"));
    let of_text = hushed_model::testing::tiny_model();
    assert!(matches!(of_text.public.image(&bytes("same.png")), Err(ImageError::NoImages)));
    let image = images[0].clone();
    assert!(matches!(
        plain::run(&of_text.program(), vec![image], |_, _| ()),
        Err(ModelError::Image(ImageError::NoImages))
    ));
}

/// Pixels of the right size need no file.
#[test]
fn points_are_what_a_file_of_that_size_gives() {
    let model = model();
    let images = model.public.images.as_ref().unwrap();
    let points = |at: usize| (at * 31 % 251) as u8;
    let bytes: Vec<u8> = (0..32 * 32 * 3).map(points).collect();
    let found = images.of_points(bytes.clone()).unwrap();
    let all = whole(&found, 32, 8);
    // Channel 1 of the pixel in row 5 and column 9.
    let number = f32::from(bytes[(5 * 32 + 9) * 3 + 1]) / 255.0;
    assert!((all[1024 + 5 * 32 + 9] - (number - 0.45) / 0.22).abs() < 1e-5);
    assert!(matches!(images.of_points(bytes[3..].to_vec()), Err(ImageError::OtherSize { points: 1023, side: 32 })));
}

fn refused(file: &[u8]) -> ImageError {
    model().public.image(file).err().unwrap()
}

/// The PNG with another width and height in its header.
fn resized(mut png: Vec<u8>, width: u32, height: u32) -> Vec<u8> {
    png[16..20].copy_from_slice(&width.to_be_bytes());
    png[20..24].copy_from_slice(&height.to_be_bytes());
    let mut crc = u32::MAX;
    for byte in &png[12..29] {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    png[29..33].copy_from_slice(&(!crc).to_be_bytes());
    png
}

#[test]
fn bombs_and_truncated_files_are_refused() {
    assert!(matches!(refused(b""), ImageError::OtherFormat));
    assert!(matches!(refused(b"GIF89a\x01\0\x01\0"), ImageError::OtherFormat));
    assert!(matches!(refused(&vec![0; (32 << 20) + 1]), ImageError::TooManyBytes { .. }));
    let png = bytes("wide.png");
    for (width, height) in [(60_000, 60_000), (40_000, 1), (1, 40_000), (8_000, 8_000)] {
        let error = refused(&resized(png.clone(), width, height));
        assert!(matches!(error, ImageError::TooManyPoints { .. }), "{error}");
    }
    // No pixels, more pixels than there are, a broken checksum.
    let mut broken = png.clone();
    broken[40] ^= 1;
    for file in [resized(png.clone(), 0, 5), resized(png.clone(), 16_000, 3_000), broken] {
        assert!(matches!(refused(&file), ImageError::Broken { .. }));
    }
    for name in ["wide.png", "palette.png", "alpha.png"] {
        let png = bytes(name);
        for kept in [9, 30, 50, png.len() / 2, png.len() * 3 / 4] {
            let error = refused(&png[..kept]);
            assert!(matches!(error, ImageError::Broken { .. }), "{name} {kept}: {error}");
        }
    }
    for name in ["full.jpg", "half.jpg"] {
        let jpeg = bytes(name);
        for kept in [4, 50, 200, jpeg.len() / 2, jpeg.len() - 1] {
            let error = refused(&jpeg[..kept]);
            assert!(matches!(error, ImageError::Truncated), "{name} {kept}: {error}");
        }
        // Data after the end does not matter.
        let mut behind = jpeg.clone();
        behind.extend_from_slice(b"behind the end");
        assert!(model().public.image(&behind).is_ok());
    }
}

/// No bytes cause a panic.
#[test]
fn mutated_files_are_read_or_refused() {
    let corpus = ["small.png", "palette.png", "gray.png", "half.jpg", "full.jpg"].map(bytes);
    let model = model();
    hushed_model::testing::mutations(&corpus, 1500, 11, |file| {
        if let Ok(image) = model.public.image(file) {
            assert!(image.patches().data().iter().all(|v| v.abs() <= 16.0));
        }
    });
}

#[test]
fn folders_that_are_refused() {
    let from = tiny_golden("vit");
    assert_eq!(problems(&from, |_| ()).len(), 0);
    let config = |field: &str, value: Value| problems(&from, |d| edit(d, "config.json", |c| c[field] = value));
    let processor = |field: &str, value: Value| {
        problems(&from, |d| {
            edit(d, "preprocessor_config.json", |c| c[field] = value);
        })
    };
    for (field, value) in [
        ("patch_size", json!(5)),
        ("patch_size", json!(32)),
        ("num_channels", json!(1)),
        ("architectures", json!(["ViTForMaskedImageModeling"])),
        ("hidden_act", json!("mish")),
        ("image_size", json!("32")),
    ] {
        let found = config(field, value.clone());
        assert!(!found.is_empty(), "{field} {value}");
    }
    for (field, value) in [
        ("do_rescale", json!(false)),
        ("do_center_crop", json!(true)),
        ("resample", json!(1)),
        ("size", json!({"height": 33, "width": 32})),
        ("size", json!({"shortest_edge": 32})),
        ("size", json!(224)),
        ("image_mean", json!([0.5, 0.5])),
        ("image_mean", json!(0.5)),
        ("image_std", json!([0.5, 0.0, 0.5])),
        ("image_std", json!([0.5, 0.01, 0.5])),
        ("image_std", json!([0.5, -0.5, 0.5])),
        ("rescale_factor", json!(2)),
        ("image_processor_type", json!("CLIPImageProcessor")),
    ] {
        let found = processor(field, value.clone());
        assert_eq!(found.len(), 1, "{field} {value}: {found:?}");
    }
    let missing = problems(&from, |d| {
        fs::remove_file(d.join("preprocessor_config.json")).unwrap();
    });
    assert!(matches!(&missing[..], [Problem::MissingFile { file, .. }] if file == "preprocessor_config.json"));
    // Omitting the processor's defaults changes nothing.
    let fewer = problems(&from, |d| {
        edit(d, "preprocessor_config.json", |c| {
            *c = json!({"size": 32, "do_resize": false});
        });
    });
    assert_eq!(fewer.len(), 0, "{fewer:?}");
}

/// A processor that does not resize accepts only the model's size.
#[test]
fn without_resizing_other_sizes_are_refused() {
    let mut images = model().public.images.unwrap();
    images.resample = None;
    assert!(images.read(&bytes("same.png")).is_ok());
    assert!(matches!(images.read(&bytes("wide.png")), Err(ImageError::OtherSize { points: 1850, side: 32 })));
}

/// ViT-base/16 as published: 86,567,656 parameters.
#[test]
fn the_published_size() {
    let config = NetworkConfig::vit_base();
    assert_eq!(config.parameters(), 86_567_656);
    let program = vit_shapes(&config).program();
    let weights: usize = program.linears().map(|l| l.inputs * l.outputs).sum();
    assert_eq!(weights, 768 * 768 + 12 * (4 * 768 * 768 + 2 * 768 * 3072) + 768 * 1000);
    let small = NetworkConfig { layers: 1, width: 16, heads: 2, hidden: 24, positions: 5, patch_side: 2, ..config };
    let random = random_vit(&small, 3).program();
    let image = Pixels::new(Matrix::new(4, 12, vec![0.5; 48]).unwrap());
    let logits = plain::run(&random, vec![image], |_, _| ()).unwrap();
    assert!(logits.values.data().iter().all(|v| v.is_finite()));
    assert_eq!(logits.values.cols(), 1000);
}
