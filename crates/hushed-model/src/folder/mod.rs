//! Model folders in the Hugging Face layout: their public part, and whether they can be used.

pub(crate) mod chat;
pub(crate) mod config;
pub mod declared;
pub(crate) mod faults;
pub(crate) mod fields;
pub(crate) mod json;
pub(crate) mod pooling;
pub mod public;
pub mod report;
pub(crate) mod shards;
pub(crate) mod small;
pub(crate) mod stored;
pub(crate) mod ternary;
pub(crate) mod vision;
pub(crate) mod weights;

pub use config::labels::ProblemType;
pub use config::scores::ScoreFn;
pub use declared::{Declared, FUNCTIONS};
pub use faults::{counted, json_fault, json_words};
pub use json::without_mark;
pub use pooling::{Matryoshka, Similarity};
pub use public::{Public, PublicFiles};
pub use report::{Report, Summary, Warning, check};
pub use stored::Stored;
pub use weights::weight_files;
