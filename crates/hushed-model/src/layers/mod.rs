//! Where the numbers of layers come from.

mod random;
mod reader;

pub(crate) use random::Random;
pub(crate) use reader::{Checking, LayerReader, Leaving, ShapesOnly, Source};
