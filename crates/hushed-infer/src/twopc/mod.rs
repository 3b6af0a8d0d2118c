//! The `twopc` backend: activations are additive shares, every step of the model is a protocol between client and server.
//!
//! Both parties run the same forward pass in the same order, so the order of messages is the order of the model. The client's layers are
//! shapes; the server's hold the numbers. What differs from the textbook order of a transformer, and why:
//!
//! * A norm's gain and offset are linear, so they move into the linear layers that read the norm, and the residual that also reads it is
//!   one more block of columns of the same product (a diagonal matrix): see [`layers`].
//! * The factor log₂e/√dh of the scores is in the query weights, an activation's scale in the weights around it ([`Function`]).
//! * Softmax divides after the product with V, where a row has dh columns instead of m.
//!
//! Formats are in [`formats`].

mod acts;
mod answer;
mod attention;
mod backend;
mod choose;
mod embed;
mod establish;
mod fits;
pub mod formats;
mod function;
mod groups;
mod held;
mod input;
pub mod layers;
mod pool;
mod prepare;
mod ranges;
mod table;

pub use acts::{Acts, Scores};
pub use answer::embeddings;
pub(crate) use attention::divides_first;
pub use backend::{SiteCost, TwopcBackend};
pub use choose::{LEAST_COSINE, MARGIN, Trial, choose};
pub use establish::agreement;
pub use fits::{Fit, fits};
pub use function::Function;
pub(crate) use groups::groups;
pub use held::{Layers, Ready};
pub use input::{Input, Terms};
pub(crate) use pool::{SHARE_FRAC, hidden_spec, maximum_cost};
pub use ranges::{OutOfRange, out_of_range};
pub use table::{PublicTable, rows_in_chunk};

use hushed_model::{Bert, ModelError, Site};
use hushed_net::NetError;
use hushed_twopc::TwopcError;

/// What can stop a private run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The model does not fit its use.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A protocol stopped: the peer is gone, misbehaves or does not fit.
    #[error(transparent)]
    Protocol(#[from] TwopcError),
    /// The two-party backend has no protocol for a step of this model.
    #[error("{site}: the two-party backend does not support {what}")]
    Unsupported {
        /// The step.
        site: String,
        /// What it asks for.
        what: &'static str,
    },
    /// Numbers of the model that the formats do not hold.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// A public table of another size than the model's, or with values that no table has.
    #[error("the public table does not fit the model")]
    WrongTable,
    /// The input is not the one that this party gives: the client gives ids, the server numbers of tokens; or it has padding that was
    /// not agreed on.
    #[error(
        "the client gives token ids and the server their numbers, padded only where that was agreed on; this party was given another input"
    )]
    WrongInput,
}

/// What has no protocol here: the head of a classifier, found before anything is sent.
pub(crate) fn refuse_classifier(bert: &Bert) -> Result<(), RunError> {
    match bert.classifier {
        None => Ok(()),
        Some(_) => Err(no_head(&Site::root("head"))),
    }
}

pub(crate) fn no_head(at: &Site) -> RunError {
    RunError::Unsupported {
        site: at.path().to_owned(),
        what: "classifiers; protocol fhe does",
    }
}

impl RunError {
    /// The connection's failure, where it is one.
    pub fn net(&self) -> Option<&NetError> {
        match self {
            Self::Protocol(TwopcError::Net(error)) => Some(error),
            _ => None,
        }
    }
}
