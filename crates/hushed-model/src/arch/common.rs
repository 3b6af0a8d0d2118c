//! What the configurations of several architectures have in common.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::error::Problem;
use crate::folder::fields::{Entry, Use::Nothing};
use crate::folder::json::Fields;
use crate::folder::json::typed::{Size, real};

// Bounds that keep a hostile folder from requesting absurd amounts of memory; far above every published model.
pub(crate) const MAX_LAYERS: usize = 256;
const MAX_WIDTH: usize = 1 << 14;
const MAX_VOCABULARY: usize = 1 << 20;
const MAX_POSITIONS: usize = 1 << 16;
pub(crate) type Layers = Size<1, MAX_LAYERS>;
pub(crate) type Width = Size<1, MAX_WIDTH>;
pub(crate) type Hidden = Size<1, { 1 << 16 }>;
pub(crate) type Vocabulary = Size<1, MAX_VOCABULARY>;
/// Rows of a table of positions.
pub(crate) type Positions = Size<3, MAX_POSITIONS>;
pub(crate) type Types = Size<1, 1024>;
pub(crate) type TokenId = Size<0, MAX_VOCABULARY>;

/// Layers whose feed-forward block is one linear layer; written by `hushed prune`.
pub(crate) const MERGED: &str = "merged_feed_forward";

/// Of encoders of texts and images.
pub(crate) const BLOCK_FIELDS: &[Entry] =
    &[("hidden_dropout_prob", Nothing), ("attention_probs_dropout_prob", Nothing), ("classifier_dropout", Nothing)];

/// ε of norms.
#[derive(Clone, Copy)]
pub(crate) struct Epsilon(pub f64);

impl<'de> Deserialize<'de> for Epsilon {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        real(from, 0.0, 1.0).map(Epsilon)
    }
}

/// A factor above 0.
#[derive(Clone, Copy)]
pub(crate) struct Factor(pub f64);

impl<'de> Deserialize<'de> for Factor {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        real(from, 1e-6, 1e6).map(Factor)
    }
}

/// Checks that the width in one field is a multiple of the heads in another, whatever else is wrong.
pub(crate) fn heads_divide(f: &mut Fields<'_>, width: &str, heads: &str) {
    let number = |field| usize::try_from(f.get(field)?.as_u64()?).ok();
    if let (Some(width), Some(heads)) = (number(width), number(heads).filter(|&heads| heads > 0))
        && !width.is_multiple_of(heads)
    {
        f.problem(Problem::HeadsDoNotDivide { width, heads });
    }
}

/// The layers whose feed-forward block was pruned.
pub(crate) fn merged(f: &mut Fields<'_>, layers: Option<usize>) -> Vec<usize> {
    f.places(MERGED, layers.unwrap_or(MAX_LAYERS))
}

/// The number of tokens, whatever else is wrong.
pub(crate) fn vocabulary(f: &Fields<'_>) -> Option<usize> {
    usize::try_from(f.get("vocab_size")?.as_u64()?).ok()
}

/// Refuses classes in `architectures` other than these, of which the first is named.
pub(crate) fn models(f: &mut Fields<'_>, known: &[&'static str]) {
    let is_known = |name: &Value| name.as_str().is_some_and(|name| known.contains(&name));
    let sound = match f.get("architectures") {
        None => true,
        Some(names) => names.as_array().is_some_and(|names| names.iter().all(is_known)),
    };
    if !sound {
        f.unsupported("architectures", known.first().copied().unwrap_or_default());
    }
}
