//! Every token of a model's vocabulary, run in the clear before the server listens. A check that was passed is
//! remembered by what it depends on, so that the next start of the same model does not repeat it.

use std::path::{Path, PathBuf};

use hushed_fhe::calibrate::weights_sha256;
use hushed_model::Model;
use hushed_mpc::{RunError, vocabulary};
use sha2::{Digest as _, Sha256};

use super::ServerConfig;
use crate::digest::Digest;
use crate::error::ServeError;
use crate::files;

/// Changed with what the check does.
const CHECK: &[u8] = b"hushed vocabulary check 1";

/// What a verdict depends on besides the weights and the layers: the hash of the model's public part, with the formats,
/// and the public head that texts begin with.
type Known<'a> = (Digest, &'a [u32]);

/// Refuses a model in which a token of the vocabulary leaves the formats of a run, in its first layers.
pub(super) fn check(config: &ServerConfig, model: &Model, known: Known<'_>, streams: bool) -> Result<(), ServeError> {
    let layers = config.vocabulary_layers;
    if model.public.images.is_some() {
        return Ok(());
    }
    if streams || layers == 0 {
        tracing::warn!("the tokens of the vocabulary are not checked: `hushed check` does so once");
        return Ok(());
    }
    let passed = config.checks.as_deref().and_then(|folder| place(folder, &config.model, known, layers));
    if passed.as_deref().is_some_and(Path::is_file) {
        tracing::info!(layers, "the vocabulary was checked before");
        return Ok(());
    }
    run(model, (known.1, layers))?;
    if let Some(passed) = passed {
        remember(&passed);
    }
    Ok(())
}

fn run(model: &Model, (head, layers): (&[u32], usize)) -> Result<(), ServeError> {
    tracing::info!(layers, "checking the vocabulary");
    match vocabulary(model, (head, layers), &|_, _| ())?.pop() {
        Some(leaves) => Err(RunError::from(leaves).into()),
        None => Ok(()),
    }
}

/// The file that says that the check was passed: by the public part and the formats, the weights and the layers. `None`
/// if the weights cannot be read once more.
fn place(folder: &Path, model: &Path, (bundle, head): Known<'_>, layers: usize) -> Option<PathBuf> {
    let weights = weights_sha256(model).ok()?;
    let hash = Sha256::new().chain_update(CHECK).chain_update(bundle.0).chain_update(weights);
    let hash = hash.chain_update((layers as u64).to_le_bytes());
    let hash = head.iter().fold(hash, |hash, id| hash.chain_update(id.to_le_bytes())).finalize();
    Some(folder.join(format!("vocabulary-{}", Digest(hash.into()))))
}

/// Without this file the check is done again, so a failure is only worth a line.
fn remember(passed: &Path) {
    let folder = passed.parent().map_or(Ok(()), files::make_folder);
    if let Err(error) = folder.and_then(|()| files::write(passed, b"")) {
        tracing::warn!(name = error.name(), %error, "that the vocabulary was checked could not be kept");
    }
}

#[cfg(test)]
mod tests {
    use hushed_model::testing::{firing_on, tiny_folder};

    use super::*;
    use crate::Category;

    #[test]
    fn a_model_whose_format_one_token_leaves_is_refused() {
        for model in firing_on(40) {
            let refused = run(&model, (&[], 2)).err().unwrap();
            assert!(refused.to_string().contains("in a text with the token"), "{refused}");
            assert_eq!(refused.category(), Category::Folder);
            let config = ServerConfig { vocabulary_layers: 0, ..ServerConfig::local("", "") };
            assert!(check(&config, &model, (Digest([0; 32]), &[]), false).is_ok());
        }
    }

    /// A verdict holds for these weights, this public part and these layers, and for nothing else.
    #[test]
    fn a_check_that_was_passed_is_not_repeated() {
        let work = tempfile::tempdir().unwrap();
        let folder = work.path().join("model");
        tiny_folder(&folder).unwrap();
        let checks = work.path().join("cache/checks");
        let config = ServerConfig { checks: Some(checks.clone()), ..ServerConfig::local(&folder, "") };
        let model = Model::load(&folder).unwrap();
        let bundle: Known<'_> = (Digest([1; 32]), &[]);
        check(&config, &model, bundle, false).unwrap();
        let kept = || std::fs::read_dir(&checks).unwrap().count();
        assert_eq!(kept(), 1);
        // What was passed is not run: no model would be refused now.
        let bad = firing_on(40).into_iter().next().unwrap();
        check(&config, &bad, bundle, false).unwrap();
        for (bundle, layers) in [
            ((Digest([2; 32]), &[][..]), config.vocabulary_layers),
            ((bundle.0, &[3]), config.vocabulary_layers),
            (bundle, 1),
        ] {
            let config = ServerConfig { vocabulary_layers: layers, ..config.clone() };
            assert!(place(&checks, &folder, bundle, layers).is_some_and(|passed| !passed.exists()));
            check(&config, &model, bundle, false).unwrap();
        }
        assert_eq!(kept(), 4);
        let weights = folder.join("model.safetensors");
        let mut bytes = std::fs::read(&weights).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&weights, bytes).unwrap();
        assert!(check(&config, &bad, bundle, false).is_err());
        assert_eq!(kept(), 4);
    }
}
