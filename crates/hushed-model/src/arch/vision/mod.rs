//! Vision transformers (Dosovitskiy et al. 2021): all compute the same, [`VisionNetwork`], under other names. The map
//! of patches is stored as a convolution with non-overlapping windows: channels × rows × columns of a patch, in the
//! order of [`Pixels`](crate::images::Pixels). The positions follow from the image and patch sizes.

pub(crate) mod clip;
pub(crate) mod dinov2;
pub(crate) mod vit;

use std::sync::Arc;

use serde_json::Value;

use crate::blocks::{Attention, FeedForward, Linear, Mask, Patches, Queries, Weigh};
use crate::decoder::{Layer, NormOrder};
use crate::folder::fields::{
    Entry,
    Use::{Nothing, Only},
};
use crate::folder::json::Fields;
use crate::folder::json::typed::Size;
use crate::images::CHANNELS;
use crate::layers::{LayerReader, Source};
use crate::matrix::Matrix;
use crate::program::Block;
use crate::vit::VisionNetwork;

/// A side in pixels, at most far above published models.
pub(super) type Side = Size<1, { 1 << 10 }>;

/// Of every model of images.
pub(super) const VISION_FIELDS: &[Entry] =
    &[("num_channels", Only(&["3"], "3")), ("is_decoder", Nothing), ("tie_word_embeddings", Nothing)];

/// The names of a model's parts.
pub(crate) struct Vision {
    /// The class token, and its shape less the columns, which are ones.
    pub class: (&'static str, usize),
    /// The table of positions, and its shape less rows and columns.
    pub positions: (&'static str, usize),
    /// The map of patches, and whether it has a bias.
    pub patches: (&'static str, bool),
    /// The norm after the patches, if there is one.
    pub first_norm: Option<&'static str>,
    /// Those of a layer are under this name and its number.
    pub layers: &'static str,
    pub norms: [&'static str; 2],
    /// Query, key and value.
    pub reads: [&'static str; 3],
    pub output: &'static str,
    pub up: &'static str,
    pub down: &'static str,
    /// Factors of the columns of what attention and feed-forward give, if there are any.
    pub scales: Option<[&'static str; 2]>,
    /// The norm after the layers.
    pub norm: &'static str,
    /// The linear layer without a bias after it, where the configuration has columns for it.
    pub projection: &'static str,
    /// The classes, where the configuration has any.
    pub classes: &'static str,
}

/// Patches per image.
pub(super) fn patches(f: &mut Fields<'_>, side: usize, patch: usize) -> Option<usize> {
    let count = (side / patch).pow(2);
    if !side.is_multiple_of(patch) || count < 2 {
        f.unsupported("patch_size", "a divisor of image_size, and at least 4 patches");
        return None;
    }
    Some(count)
}

/// Which of these classes `architectures` names; a problem if it names another or none.
pub(crate) fn named<T: Copy>(f: &mut Fields<'_>, known: &[(&str, T)], supported: &'static str) -> Option<T> {
    let names = f.get("architectures").and_then(Value::as_array);
    let of = |name: &Value| known.iter().find(|(known, _)| name == known).map(|(_, of)| *of);
    let found = names.and_then(|names| names.iter().find_map(of));
    if found.is_none() {
        f.unsupported("architectures", supported);
    }
    found
}

impl Vision {
    fn name(&self, i: usize, part: &str) -> String {
        format!("{}.{i}.{part}", self.layers)
    }

    /// The name of the last linear layer of a feed-forward block.
    pub(crate) fn down(&self, i: usize) -> String {
        self.name(i, self.down)
    }

    /// The layers of a configuration of this architecture.
    pub(crate) fn network<S: Source>(&self, from: &mut LayerReader<'_, S>) -> Result<VisionNetwork, S::Error> {
        let c = from.config;
        let patches = self.patches(from)?;
        let first_norm = self.first_norm.map(|name| from.norm(name)).transpose()?;
        let layers = (0..c.layers).map(|i| self.layer(from, i)).collect::<Result<_, _>>()?;
        let norm = from.norm(self.norm)?;
        let classes = c.labels.as_ref().map(|labels| from.linear(self.classes, c.width, labels.len())).transpose()?;
        let project = |columns| from.linear_if(self.projection, c.width, columns, false);
        let projection = c.form.projected.map(project).transpose()?;
        Ok(VisionNetwork { patches, first_norm, layers, norm, classes, projection })
    }

    fn patches<S: Source>(&self, from: &mut LayerReader<'_, S>) -> Result<Patches, S::Error> {
        let (rows, d, side) = (from.config.positions, from.config.width, from.config.patch_side);
        let inputs = CHANNELS * side * side;
        let shape = |ones: usize, sizes: &[usize]| [&vec![1; ones], sizes].concat();
        let (name, ones) = self.class;
        let class = from.source.tensor(name, &shape(ones, &[d]))?.map(Arc::from);
        let (name, ones) = self.positions;
        let offsets = from.source.tensor(name, &shape(ones, &[rows, d]))?;
        let (name, biased) = self.patches;
        let stored = from.source.tensor(&format!("{name}.weight"), &[d, CHANNELS, side, side])?;
        let weights = stored.and_then(|data| Matrix::new(d, inputs, data)).map(Arc::new);
        let bias = match biased {
            true => from.vector(&format!("{name}.bias"), d)?,
            false => weights.as_ref().map(|_| vec![0.0; d].into()),
        };
        Ok(Patches {
            count: rows - 1,
            linear: Linear { ternary: false, inputs, outputs: d, weights, stored: None, bias },
            class,
            offsets: offsets.and_then(|data| Matrix::new(rows, d, data)).map(Arc::new),
        })
    }

    /// One layer.
    pub(crate) fn layer<S: Source>(&self, from: &mut LayerReader<'_, S>, i: usize) -> Result<Layer, S::Error> {
        let c = from.config;
        let (d, hidden) = (c.width, c.hidden);
        let biased = c.biases.attention;
        let [before, after] = self.norms;
        let [query, key, value] = self.reads;
        let mut into = |part| from.linear_if(&self.name(i, part), d, d, biased);
        let [query, key, value] = [into(query)?, into(key)?, into(value)?];
        let [attended, fed] = match self.scales {
            Some(names) => names.map(Some),
            None => [None, None],
        };
        let mut scaled = |part, inputs, scale: Option<&str>| {
            let name = self.name(i, part);
            match scale {
                Some(scale) => from.scaled_columns(&name, inputs, d, &self.name(i, scale)),
                None => from.linear(&name, inputs, d),
            }
        };
        let output = scaled(self.output, d, attended)?;
        let merged = c.merged.contains(&i);
        // What replaces a block was fitted to all that the block gives.
        let down = match merged {
            true => scaled(self.down, d, None)?,
            false => scaled(self.down, hidden, fed)?,
        };
        Ok(Layer {
            order: NormOrder::Before,
            attention_norm: from.norm(&self.name(i, before))?,
            attention: Attention {
                query_norm: None,
                key_norm: None,
                sub_norm: None,
                query,
                key,
                value,
                output,
                heads: c.split(),
                rope: None,
                distances: None,
                weigh: Weigh::Softmax,
                mask: Mask::Full,
                queries: Queries::All,
            },
            feed_forward_norm: from.norm(&self.name(i, after))?,
            feed_forward: match merged {
                true => Block::Linear(down),
                false => Block::FeedForward(FeedForward {
                    sub_norm: None,
                    up: from.linear(&self.name(i, self.up), d, hidden)?,
                    gate: None,
                    activation: c.activation,
                    tolerance: c.tolerance,
                    down,
                }),
            },
        })
    }
}
