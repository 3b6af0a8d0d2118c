//! One image of a small vision transformer in packed rows, on a key.

use hushed_ckks::Complex64;
use hushed_model::testing::tiny_golden;
use hushed_model::{Item, Model, cosine};

use super::testing::{Keys, seeded};
use crate::calibrate::{Options, Sample, intervals};
use crate::inputs::bound_of_inputs;
use crate::ops::packed::pool::unpack;
use crate::ops::packed::rows::PackedRows;
use crate::packing::Layout;
use crate::pass::Pass;
use crate::plan::public_plan::{Lengths, named};
use crate::plan::tests::options;
use crate::plan::{FheOptions, dry_run, key_specs, packed_placement};
use crate::run::job::bootstrap;
use crate::simulate::embedded;
use crate::testing::images;

const ROWS: usize = 32;

/// Layers that begin with norms, whose stream is refreshed with the pairs of columns that it lies in, and the classes
/// of the first row: the logits of the model, resumed between layers.
#[test]
fn one_image_gets_its_logits() {
    let model = Model::load(&tiny_golden("vit")).unwrap();
    let (program, params) = (model.program_of_all_rows(), named("insecure-test/9/14").unwrap());
    let all = images(&model, 12);
    let sample = Sample { texts: &all, hostile: &[], broad: &[], sha256: "", model_sha256: "" };
    let search = Options { rows: ROWS, ..Options::default() };
    let choices = intervals(&model, &sample, &search, 15, 15).unwrap();
    let options = FheOptions { rows: ROWS, texts: 1, uplink: 1e7, ..options(Lengths::Public) };
    let placement = packed_placement(&program, &choices, &params, &options).unwrap().unwrap();
    let run = dry_run(&program, &choices, &params, &options, &placement).unwrap();
    let (_, keys) = bootstrap(&params).unwrap();
    let specs = key_specs(&run, &params, &keys).unwrap();
    let keys = Keys::new(&params, |_| specs);
    let (layout, bound) =
        (Layout::new(params.slots(), ROWS, placement.columns).unwrap(), bound_of_inputs(&program, ROWS).unwrap());
    let image = Item::from(all[4].clone());
    let x = embedded(&program, &image).unwrap();
    let rows = PackedRows::new(layout, vec![x.rows()]).unwrap();
    let mut pass = Pass::packed(&keys.on, &program, &choices, placement.clone(), rows, bound).unwrap();
    let (columns, answers) = (*pass.packed_columns().unwrap(), *pass.packed_answers().unwrap());
    assert!(columns.vectors() > 1);
    let mut rng = seeded(5);
    let sent = (0..columns.vectors()).map(|v| {
        let entry =
            |_: usize, row: usize, column: usize| if row < x.rows() { x.row(row)[column] / (2.0 * bound) } else { 0.0 };
        let plain = keys.encoder.encode(&columns.pack(layout, v, entry), placement.upload, params.default_scale());
        keys.encryptor.encrypt(&plain.unwrap(), &mut rng).unwrap()
    });
    let sent = sent.collect();
    let mut x = pass.start(sent).unwrap();
    for layer in 0..pass.layers() {
        x = pass.layer(layer, x).unwrap();
        x = pass.resume(layer + 1, x.columns).unwrap();
    }
    let made = pass.finish(x).unwrap();
    let opened: Vec<Vec<Complex64>> = made.vectors.iter().map(|ct| keys.decryptor().decrypt_raw(ct).unwrap()).collect();
    let found = unpack(layout, &answers, &vec![0..1; 1], &opened).unwrap().remove(0);
    let exact = model.embed(vec![image]).unwrap().remove(0);
    println!("{found:.4?} and {exact:.4?}");
    assert!(cosine(&found, &exact) > 0.9999);
    // Nothing but logits leaves.
    let in_answers: usize = opened.iter().flatten().filter(|z| z.norm() > 1e-3).count();
    assert!(in_answers <= exact.len().div_ceil(2), "{in_answers}");
}
