//! The steps of a model, each written once over [`Slots`](crate::Slots). A [`Pass`](crate::Pass) composes them.

pub mod activation;
pub mod acts;
pub mod after;
pub mod attention;
pub mod decoder;
pub mod feed_forward;
pub mod folded;
pub mod functions;
pub mod head;
pub mod key_mask;
pub(crate) mod levels;
pub mod mask;
pub mod merged;
pub mod norm;
pub mod packed;
pub mod paired;
pub mod pool;
pub mod softmax;
