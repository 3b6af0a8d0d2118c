//! `hushed verify --protocol fhe` as a user runs it: a small model that is calibrated first, four rungs on an insecure
//! ring, and a plot.
#![forbid(unsafe_code)]

use std::fs;

use crate::common::{error, hushed, json_lines};
use hushed_model::testing::tiny_folder;

const TEXTS: &str = "a b c d\nc a\nb b b a c d a\nd\na c a c a c\nd d a b\nb a d c c\nc d b\n";

#[test]
fn a_small_model_is_verified_up_to_ciphertexts() {
    let folder = tempfile::tempdir().expect("a folder");
    tiny_folder(folder.path()).expect("a model");
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (dir, sample, queries, picture) = (at(""), at("sample.txt"), at("queries.txt"), at("v.svg"));
    fs::write(&sample, TEXTS).expect("a sample");
    fs::write(&queries, "a b d c\nd d\n").expect("queries");

    let verify = |more: &[&str]| {
        let mut args = vec!["verify", &dir, "--protocol", "fhe", "--json"];
        args.extend(more);
        hushed(&args)
    };
    let missing = verify(&["--input", &sample]);
    assert_eq!(missing.status.code(), Some(3));
    assert_eq!(error(&missing)["name"], "input-unreadable");

    let calibrated =
        hushed(&["calibrate", &dir, "--protocol", "fhe", "--input", &sample, "--rows", "16", "--cosine", "0.999"]);
    assert_eq!(calibrated.status.code(), Some(0));

    let output = verify(&[
        "--input",
        &sample,
        "--queries",
        &queries,
        "--layers",
        "1",
        "--encrypted",
        "--parameters",
        "insecure-test/9/14",
        "--steps",
        "--plot",
        &picture,
    ]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let rows = json_lines(&output.stdout);
    assert_eq!(rows[0]["insecure"], true, "said before anything else");
    let of = |name: &str| rows.iter().filter(|r| !r[name].is_null()).count();
    assert_eq!((of("layer"), of("step"), of("text_index")), (1, 5, 10));
    let layer = rows.iter().find_map(|r| r["layer"].as_object()).expect("a layer");
    let rms = |name: &str| layer[name]["rms"].as_f64().expect("a number");
    assert!(rms("polynomial") > 0.0 && rms("polynomial") < 0.05);
    assert!(rms("encrypted_noise") > 0.0);
    assert!(rms("encrypted_noise") < 4.0 * rms("predicted_noise"));
    let end = rows.last().expect("a summary");
    for of in ["polynomial", "noise", "encrypted", "measured_noise"] {
        assert_eq!(end["worst_layer"][of], "layer.0");
    }
    for rung in ["polynomial", "predicted", "encrypted"] {
        assert!(end[rung]["cosine_min"].as_f64().expect("a number") > 0.999, "{end}");
        assert_eq!(end[rung]["retrieval"]["queries"], 2);
        assert_eq!(end[rung]["nearest"]["queries"], 10);
    }
    let picture = fs::read_to_string(picture).expect("a picture");
    assert!(picture.starts_with("<svg") && picture.matches("<circle").count() == 18);

    // Without --json the warning comes first too, and labels are ranked.
    let labels = at("labels.tsv");
    fs::write(&labels, "a b\ta b c\t5\nc d\td d d\t1\nb a\tc\t2\n").expect("labels");
    let output =
        hushed(&["verify", &dir, "--protocol", "fhe", "--labels", &labels, "--parameters", "insecure-test/9/14"]);
    let (shown, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(shown.starts_with("INSECURE"), "{shown}{said}");
    assert!(shown.contains("layer.1.feed_forward.norm"), "{shown}");
    assert!(said.contains("rank correlation with the labels"), "{said}");
}

#[test]
fn what_cannot_be_verified_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    tiny_folder(folder.path()).expect("a model");
    let dir = folder.path().to_string_lossy().into_owned();
    let sample = folder.path().join("sample.txt");
    fs::write(&sample, TEXTS).expect("a sample");
    let sample = sample.to_string_lossy().into_owned();
    let unknown = hushed(&["verify", &dir, "--protocol", "fhe", "--input", &sample, "--parameters", "n20", "--json"]);
    assert_eq!(unknown.status.code(), Some(2));
    // There is nobody to verify with.
    let server = hushed(&["verify", &dir, "--input", &sample, "--server", "localhost:7000"]);
    assert_eq!(server.status.code(), Some(2));
}
