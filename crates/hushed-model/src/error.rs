//! What can be wrong with a model folder, a text or a forward pass.

/// Errors of this crate. Each says what to do where there is something to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A forward pass was asked for a layer that the model does not have.
    #[error("the model has {layers} layers, and layer {asked} was asked for")]
    NoSuchLayer {
        /// The layer asked for, from 0.
        asked: usize,
        /// How many there are.
        layers: usize,
    },
}
