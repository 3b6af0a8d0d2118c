use super::*;
use crate::testing::{tiny_golden, tiny_model, wordy};
use crate::vectors::cosine;

/// The sums over rows of a linear layer's results recover the layer.
#[test]
fn a_linear_layer_is_found() {
    let d = 5;
    let number = |i: usize| ((i * 7919 + 31) % 1009) as f64 / 504.0 - 1.0;
    let (rows, w) = (40, |o: usize, i: usize| number(o * d + i + 1000));
    let mut x = Matrix::zero(rows, d);
    let mut y = Matrix::zero(rows, d);
    for r in 0..rows {
        for i in 0..d {
            x.row_mut(r)[i] = number(r * d + i);
        }
        for o in 0..d {
            let sum: f64 = (0..d).map(|i| w(o, i) * x.row(r)[i]).sum();
            y.row_mut(r)[o] = sum + o as f64;
        }
    }
    let acts = |values| PlainActs { rows: crate::rows::Rows::unpadded(&[rows]), values };
    let mut sums = Sums::new(d);
    sums.add(Some(&acts(x)), &acts(y));
    let (linear, explained) = sums.solve();
    assert!(explained > 1.0 - 1e-8, "{explained}");
    let (weights, bias) = (linear.weights.unwrap(), linear.bias.unwrap());
    for o in 0..d {
        assert!((f64::from(bias[o]) - o as f64).abs() < 1e-3);
        for i in 0..d {
            assert!((f64::from(weights.row(o)[i]) - w(o, i)).abs() < 1e-3);
        }
    }
}

fn sample(model: &Model, rows: usize) -> Vec<Item> {
    wordy(model, rows).into_iter().map(Item::from).collect()
}

/// Copies a folder and its contents.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (from, to) = entry.map(|e| (e.path(), to.join(e.file_name()))).unwrap();
        match from.is_dir() {
            true => copy(&from, &to),
            false => drop(fs::copy(&from, &to).unwrap()),
        }
    }
}

/// A pruned model reads back from its folder as it was written, with the same answers.
#[test]
fn a_pruned_folder_is_read_back() {
    for name in ["roberta", "distilbert", "gpt2"] {
        let folder = tiny_golden(name);
        let whole = Model::load(&folder).unwrap();
        let mut model = whole.clone();
        let items = sample(&model, 2 * model.public.config.width + 10);
        let fits = prune(&mut model, &[1], &items).unwrap();
        assert_eq!((fits.len(), fits[0].layer), (1, 1));
        assert!(fits[0].explained > 0.0 && fits[0].explained < 1.0, "{fits:?}");
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("pruned");
        let from = dir.path().join("declared");
        copy(&folder, &from);
        let declared = r#"{"version": "1", "activation_reach": 16, "activation_error": 1e-3}"#;
        fs::write(from.join(FUNCTIONS), declared).unwrap();
        write(&model, &from, &to).unwrap();
        assert!(!to.join(FUNCTIONS).exists(), "of the model as it was");
        let read = Model::load(&to).unwrap();
        assert_eq!(read.public.config.merged, [1]);
        let [a, b, c] = [&model, &read, &whole].map(|m| m.embed(items.clone()).unwrap());
        assert_eq!(a, b);
        assert!(a != c && cosine(&a[0], &c[0]) > 0.5, "{}", cosine(&a[0], &c[0]));
        assert!(read.public.config.parameters() < whole.public.config.parameters());
        // An existing folder is not overwritten, and a layer is not pruned twice.
        assert!(matches!(write(&model, &folder, &to), Err(PruneError::Write { .. })));
        let again = prune(&mut model, &[1], &items);
        assert!(matches!(again, Err(PruneError::Layer { layer: 1, .. })));
    }
}

#[test]
fn what_cannot_be_pruned_is_refused() {
    let mut model = tiny_model();
    let few = sample(&model, 4);
    let refused = prune(&mut model, &[0], &few);
    assert!(matches!(refused, Err(PruneError::Sample { columns: 32, .. })), "{refused:?}");
    let refused = prune(&mut model, &[0, 9], &few);
    assert!(matches!(refused, Err(PruneError::Layer { layer: 9, .. })));
    // Refused before any fit, for which the sample is too small.
    let refused = prune(&mut model, &[1, 0, 1], &few);
    assert!(matches!(refused, Err(PruneError::Layer { layer: 1, .. })));
    let mut llama = Model::load(&tiny_golden("llama")).unwrap();
    let refused = prune(&mut llama, &[0], &[]);
    assert!(matches!(refused, Err(PruneError::Layer { layer: 0, .. })));
}

/// A number of the block that is not finite does not lead to a model with such numbers.
#[test]
fn a_fit_that_is_not_finite_is_refused() {
    for number in [f32::NAN, f32::INFINITY] {
        let mut model = tiny_model();
        let items = sample(&model, 70);
        let Some(Block::FeedForward(block)) = blocks(&mut model).into_iter().nth(1) else {
            panic!("a block that is not pruned");
        };
        let weights = block.up.weights.as_mut().unwrap();
        Arc::make_mut(weights).row_mut(0)[0] = number;
        let refused = prune(&mut model, &[1], &items);
        assert!(matches!(refused, Err(PruneError::NotFinite { layer: 1 })), "{refused:?}");
    }
}
