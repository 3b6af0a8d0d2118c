//! Writes the random classifier of the tests to a folder:
//! `cargo run -p hushed-model --features testing --example tiny_classifier DIR`.

use std::path::Path;

use hushed_model::testing::{TINY_LABELS, tiny_classifier_folder};

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1);
    let missing = || std::io::Error::other("give a folder to write to");
    tiny_classifier_folder(Path::new(&folder.ok_or_else(missing)?), &TINY_LABELS)
}
