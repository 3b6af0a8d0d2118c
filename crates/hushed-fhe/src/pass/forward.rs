//! A pass through a program, and what it shows of its steps.

use hushed_model::StepId;

use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::pool::Pooled;
use crate::packing::Spread;
use crate::slots::Slots;

/// A program over vectors of slots, in the layout of its texts.
pub trait ForwardPass<'a, S: Slots> {
    /// Number of layers of the program.
    fn layers(&self) -> usize;

    /// The client's vectors as the first layer reads them: refreshed if they have fewer primes.
    ///
    /// # Errors
    /// Errors of the refresh; fails if the number of vectors is not the layout's.
    fn start(&self, vectors: Vec<S::Value>) -> Result<Acts<S::Value>, FheError>;

    /// The vectors that layer `next` reads, from a checkpoint before it; gains, offsets and bounds come from the model
    /// and the choices. After the last layer `next` is the number of layers.
    ///
    /// # Errors
    /// Fails if the model or the choices lack the layer, or the number of vectors is wrong.
    fn resume(&self, next: usize, vectors: Vec<S::Value>) -> Result<Acts<S::Value>, FheError>;

    /// Layer `i` of the model, from vectors to vectors.
    ///
    /// # Errors
    /// Those of its steps.
    fn layer(&mut self, i: usize, x: Acts<S::Value>) -> Result<Acts<S::Value>, FheError>;

    /// The answer, packed, from the result of the last layer.
    ///
    /// # Errors
    /// Those of its steps.
    fn finish(&mut self, x: Acts<S::Value>) -> Result<Pooled<S::Value>, FheError>;

    /// Runs from the client's vectors to the answer.
    ///
    /// # Errors
    /// Those of the layers.
    fn run(&mut self, vectors: Vec<S::Value>) -> Result<Pooled<S::Value>, FheError> {
        let mut x = self.start(vectors)?;
        for i in 0..self.layers() {
            x = self.layer(i, x)?;
        }
        self.finish(x)
    }

    /// Sets a viewer of its results; packed rows show none.
    fn view(&mut self, _: Viewer<'a, S::Value>) {}

    /// Where the columns lie in packed rows; `None` for a batch.
    fn packed_columns(&self) -> Option<&Spread> {
        None
    }

    /// Where the numbers of an answer lie in packed rows; `None` for a batch.
    fn packed_answers(&self) -> Option<&Spread> {
        self.packed_columns()
    }
}

/// The result of a step, passed to a [`Viewer`].
#[derive(Clone, Copy)]
pub enum Look<'a, V> {
    /// The refreshed result of a norm; in a decoder, that of a sum.
    Columns {
        /// The vectors.
        columns: &'a [V],
        /// The factor of each column.
        gain: &'a [f64],
        /// Added after the factor, in rows of tokens.
        offset: &'a [f64],
    },
    /// The result of a step before a norm: κ·(y − mean of y).
    Centred {
        /// The columns.
        columns: &'a [V],
        /// κ.
        scale: f64,
    },
}

/// Called with the results of attention, feed-forward, sums and norms; an error it returns ends the run.
pub type Viewer<'a, V> = Box<dyn FnMut(StepId, Look<'_, V>) -> Result<(), FheError> + 'a>;
