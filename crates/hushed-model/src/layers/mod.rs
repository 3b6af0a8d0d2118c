//! The names and shapes of a model's tensors, for every source of numbers; one file per architecture.

mod encoder;
mod gpt2;
mod llama;
mod random;
mod source;
mod vit;
mod written;

use crate::arch::Architecture;
use crate::blocks::Pool;
use crate::body::Body;
use crate::folder::config::NetworkConfig;

pub(crate) use encoder::encoder;
pub(crate) use gpt2::gpt2;
pub(crate) use llama::llama;
pub(crate) use random::Random;
pub(crate) use source::{Checking, Leaving, ShapesOnly, Source, merged_name};
pub(crate) use vit::vit;
pub(crate) use written::write_llama;

/// The layers of this configuration, with numbers from the source.
pub(crate) fn body<S: Source>(config: &NetworkConfig, pool: Pool, source: &mut S) -> Result<Body, S::Error> {
    Ok(match config.architecture {
        Architecture::Bert | Architecture::Roberta | Architecture::DistilBert => {
            Body::Encoder(encoder(config, pool, source)?)
        }
        Architecture::Gpt2 => Body::Decoder(gpt2(config, source)?),
        Architecture::Llama | Architecture::BitNet => Body::Decoder(llama(config, source)?),
        Architecture::Vit => Body::Vision(vit(config, source)?),
    })
}
