//! What client and server of any run under CKKS agree on, whatever is computed: the same for a model and for a network.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use hushed_ckks::CkksParams;
use hushed_ckks::keys::KeySpecs;

use super::keys::key_specs;
use super::{FhePlan, Lengths, PlanFileError, PlannedKey, ReplyForm};
use crate::files::chunked::Hash;
use crate::packing::sequences;

/// The public plan of a run.
pub trait Manifest {
    /// Its identity, which every artefact of a run carries.
    fn hash(&self) -> Hash;

    /// The name of the parameter set.
    fn parameters(&self) -> &str;

    /// Primes of the ciphertexts of a request.
    fn upload(&self) -> usize;

    /// Ciphertexts of a request.
    fn request_ciphertexts(&self) -> usize;

    /// Lengths that a request declares.
    ///
    /// # Errors
    /// [`PlanFileError::Unusable`].
    fn declared_lengths(&self, params: &CkksParams) -> Result<usize, PlanFileError>;

    /// Whether a request may declare these lengths.
    fn may_declare(&self, lengths: &[usize]) -> bool;

    /// The form of the reply.
    fn reply(&self) -> &ReplyForm;

    /// The evaluation keys, in order.
    fn keys(&self) -> &[PlannedKey];

    /// The evaluation keys, checked.
    ///
    /// # Errors
    /// [`PlanFileError::Unusable`] for keys that are out of order, too many, or not of the parameter set.
    fn key_specs(&self, params: &CkksParams) -> Result<KeySpecs, PlanFileError> {
        key_specs(self.keys(), params)
    }
}

impl Manifest for FhePlan {
    fn hash(&self) -> Hash {
        FhePlan::hash(self)
    }

    fn parameters(&self) -> &str {
        &self.parameters
    }

    fn upload(&self) -> usize {
        self.placement.upload
    }

    fn request_ciphertexts(&self) -> usize {
        FhePlan::request_ciphertexts(self)
    }

    fn declared_lengths(&self, params: &CkksParams) -> Result<usize, PlanFileError> {
        FhePlan::declared_lengths(self, params)
    }

    fn may_declare(&self, lengths: &[usize]) -> bool {
        match self.lengths {
            Lengths::Public => sequences::check(self.rows, self.placement.per_place, lengths).is_ok(),
            Lengths::Bucket(multiple) => {
                let good = |&length: &usize| length <= self.rows && (length % multiple == 0 || length == self.rows);
                lengths.iter().all(good)
            }
            Lengths::Private => lengths.iter().all(|&length| length == 0),
        }
    }

    fn reply(&self) -> &ReplyForm {
        &self.reply
    }

    fn keys(&self) -> &[PlannedKey] {
        &self.keys
    }
}
