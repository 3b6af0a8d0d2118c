//! Encoders of text like BERT: all compute the same, [`Network`], under other names.

pub(crate) mod albert;
pub(crate) mod bert;
pub(crate) mod clip_text;
pub(crate) mod distilbert;
pub(crate) mod electra;
pub(crate) mod modernbert;
pub(crate) mod mpnet;
pub(crate) mod nomic;
pub(crate) mod roberta;

use std::sync::Arc;

use super::common::{self, Positions};
use super::config::NetworkConfig;
use crate::blocks::{Activation, Attention, Classifier, Distances, Embedding, FeedForward, Mask, Pool, Queries, Weigh};
use crate::error::Problem;
use crate::folder::config::labels;
use crate::folder::fields::{
    Entry, OFF,
    Use::{Nothing, Only},
};
use crate::folder::json::Fields;
use crate::layers::{LayerReader, Source};
use crate::matrix::Matrix;
use crate::network::{Layer, Network};
use crate::program::Block;

/// The names of an encoder's parts.
pub(crate) struct Encoder {
    pub tensors: Tensors,
    /// The linear layer from the columns of the tables to those of the layers, where there are fewer.
    pub projection: &'static str,
    /// The table of a bias of the scores by distance, which all layers share, where there is one.
    pub distances: Option<&'static str>,
    /// Whether all layers are one, whose name has no number.
    pub shared: bool,
    pub head: Head,
}

/// Tensors of the layers. Those of a layer are under [`Tensors::layers`] and its number, with `.weight` or `.bias`
/// appended.
pub(crate) struct Tensors {
    pub layers: &'static str,
    pub query: &'static str,
    pub key: &'static str,
    pub value: &'static str,
    pub output: &'static str,
    pub attention_norm: &'static str,
    pub up: &'static str,
    pub down: &'static str,
    pub feed_forward_norm: &'static str,
}

/// The head of a classifier: two linear maps of the first row with an activation in between.
pub(crate) struct Head {
    /// Entries of `architectures` that mean this head.
    pub architectures: &'static [&'static str],
    pub dense: &'static str,
    pub activation: Activation,
    pub classes: &'static str,
}

/// Of every encoder.
pub(super) const ENCODER_FIELDS: &[Entry] = &[
    ("position_embedding_type", Only(&["\"absolute\""], "\"absolute\"")),
    ("is_decoder", Only(OFF, "an encoder (false)")),
    ("eos_token_id", Nothing),
    ("tie_word_embeddings", Nothing),
];

/// The padding id of positions that count on from it, unless `config.json` says otherwise.
const PADDING: u32 = 1;

/// Positions begin at the row of the table after that of the padding id.
fn after_padding(f: &mut Fields<'_>, config: NetworkConfig) -> Option<NetworkConfig> {
    let padding = config.padding_id.unwrap_or(PADDING);
    let first = padding as usize + 1;
    let rows = config.positions;
    if rows < first + 3 {
        f.problem(Problem::OutOfRange {
            file: f.file().to_owned(),
            field: "max_position_embeddings",
            value: rows as f64,
            min: (first + 3) as f64,
            max: Positions::MOST as f64,
        });
        return None;
    }
    Some(NetworkConfig { positions: rows - first, first_position: first, padding_id: Some(padding), ..config })
}

/// The rest of an encoder's configuration; `None` if and only if there is a problem.
fn finish(
    f: &mut Fields<'_>,
    config: Option<NetworkConfig>,
    encoder: &Encoder,
    [width, heads]: [&str; 2],
) -> Option<NetworkConfig> {
    let before = f.problem_count();
    common::heads_divide(f, width, heads);
    let merged = common::merged(f, config.as_ref().map(|c| c.layers));
    let labels = labels::parse(f, encoder.head.architectures);
    let problem = labels.as_ref().map(|_| labels::problem_type(f)).unwrap_or_default();
    let sound = f.problem_count() == before;
    config.filter(|_| sound).map(|config| NetworkConfig { merged, labels, problem, ..config })
}

impl Encoder {
    /// The name of the last linear layer of a feed-forward block.
    pub(super) fn down(&self, i: usize) -> String {
        self.name(i, self.tensors.down)
    }

    fn name(&self, i: usize, part: &str) -> String {
        match self.shared {
            true => format!("{}.{part}", self.tensors.layers),
            false => format!("{}.{i}.{part}", self.tensors.layers),
        }
    }

    /// The encoder of a configuration.
    pub(crate) fn network<S: Source>(&self, from: &mut LayerReader<'_, S>, pool: Pool) -> Result<Network, S::Error> {
        let c = from.config;
        let embedding = from.embedding()?;
        let embedding_norm = from.norm_of("embeddings.LayerNorm", embedding.width)?;
        let projection = match c.form.table_width {
            Some(columns) => Some(Box::new(from.linear(self.projection, columns, c.width)?)),
            None => None,
        };
        let distances = match self.distances {
            Some(name) => {
                let table = from.matrix(&format!("{name}.weight"), Distances::BUCKETS, c.heads)?;
                Some(Distances { table: table.map(Arc::new) })
            }
            None => None,
        };
        let distances = distances.as_ref();
        let layers = match self.shared {
            true => vec![self.layer(from, 0, distances)?; c.layers],
            false => (0..c.layers).map(|i| self.layer(from, i, distances)).collect::<Result<_, _>>()?,
        };
        Ok(Network { embedding, embedding_norm, projection, layers, pool, classifier: self.classifier(from)? })
    }

    fn layer<S: Source>(
        &self,
        from: &mut LayerReader<'_, S>,
        i: usize,
        distances: Option<&Distances>,
    ) -> Result<Layer, S::Error> {
        let c = from.config;
        let (d, hidden) = (c.width, c.hidden);
        let t = &self.tensors;
        let name = |part: &str| self.name(i, part);
        Ok(Layer {
            attention: Attention {
                query: from.linear(&name(t.query), d, d)?,
                key: from.linear(&name(t.key), d, d)?,
                value: from.linear(&name(t.value), d, d)?,
                query_norm: None,
                key_norm: None,
                sub_norm: None,
                output: from.linear(&name(t.output), d, d)?,
                heads: c.split(),
                rope: None,
                distances: distances.cloned(),
                weigh: Weigh::Softmax,
                mask: Mask::Full,
                queries: Queries::All,
            },
            attention_norm: from.norm(&name(t.attention_norm))?,
            feed_forward: match c.merged.contains(&i) {
                true => Block::Linear(from.linear(&self.down(i), d, d)?),
                false => Block::FeedForward(FeedForward {
                    up: from.linear(&name(t.up), d, hidden)?,
                    gate: None,
                    activation: c.activation,
                    tolerance: c.tolerance,
                    sub_norm: None,
                    down: from.linear(&name(t.down), hidden, d)?,
                }),
            },
            feed_forward_norm: from.norm(&name(t.feed_forward_norm))?,
        })
    }

    fn classifier<S: Source>(&self, from: &mut LayerReader<'_, S>) -> Result<Option<Classifier>, S::Error> {
        let c = from.config;
        let Some(labels) = &c.labels else {
            return Ok(None);
        };
        let (d, classes) = (c.width, labels.len());
        let head = &self.head;
        Ok(Some(Classifier {
            dense: from.linear(head.dense, d, d)?,
            activation: head.activation,
            classes: from.linear(head.classes, d, classes)?,
        }))
    }
}

impl<S: Source> LayerReader<'_, S> {
    fn embedding(&mut self) -> Result<Embedding, S::Error> {
        let c = self.config;
        let (vocabulary, positions, width) = (c.vocabulary, c.positions, c.form.table_width.unwrap_or(c.width));
        let (tokens, stored) = self.numbers("embeddings.word_embeddings.weight", vocabulary, width)?;
        let types = match self.config.token_types {
            0 => None,
            rows => self.matrix("embeddings.token_type_embeddings.weight", rows, width)?,
        };
        let name = "embeddings.position_embeddings.weight";
        let unused = self.config.first_position;
        let data = self.source.tensor(name, &[unused + positions, width])?;
        let mut offsets = data.and_then(|mut data| {
            data.drain(..unused * width);
            Matrix::new(positions, width, data)
        });
        if let (Some(offsets), Some(types)) = (&mut offsets, &types) {
            // All tokens of a single text have type 0, and so has the first text of a pair. The sum is rounded to f32,
            // as in torch.
            for i in 0..positions {
                offsets.row_mut(i).iter_mut().zip(types.row(0)).for_each(|(p, t)| *p += t);
            }
        }
        let typed = c.typed();
        let second = types.filter(|_| typed).map(|types| {
            let pairs = types.row(1).iter().zip(types.row(0));
            pairs.map(|(one, zero)| one - zero).collect()
        });
        let offsets = offsets.map(Arc::new);
        Ok(Embedding { vocabulary, positions, placed: true, width, tokens, stored, offsets, typed, second })
    }
}
