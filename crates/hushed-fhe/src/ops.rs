//! The steps of a model over [`Slots`](crate::Slots), each written once; of a batch of an encoder, which is recorded,
//! the maps and functions alone.

pub mod activation;
pub mod acts;
pub mod attention;
pub mod folded;
pub mod functions;
pub mod head;
pub mod key_mask;
pub(crate) mod levels;
pub mod mask;
pub mod norm;
pub mod packed;
pub mod pool;
pub mod rope;
pub mod rows;
pub mod sigmoid;
pub mod softmax;
