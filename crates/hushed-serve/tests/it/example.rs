//! The example of the documentation, run.

#[path = "../../examples/embed.rs"]
#[allow(dead_code, reason = "its main reads arguments")]
mod embed;

use hushed_model::Model;
use hushed_model::testing::tiny_folder;
use hushed_serve::TooLong;

#[test]
fn the_example_gives_the_clear_answer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    tiny_folder(&path).unwrap();
    let private = embed::embed(&path, folder.path(), "hello private world").unwrap();
    let model = Model::load(&path).unwrap();
    let ids = model.tokens("hello private world", TooLong::Refuse).unwrap();
    let clear = model.embed(vec![ids]).unwrap().remove(0);
    let furthest = private.values.iter().zip(&clear).map(|(a, b)| (a - b).abs());
    assert!(furthest.fold(0.0, f64::max) < 0.02);
}

#[test]
fn the_example_has_at_most_sixty_lines() {
    assert!(include_str!("../../examples/embed.rs").lines().count() <= 60);
}
