//! What the server of an encrypted batch learns of the lengths of its texts.

use clap::ValueEnum;
use hushed_fhe::plan::public_plan::Lengths;

use crate::error::CliError;

/// What the server learns of lengths.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Learns {
    /// The tokens of every text
    Public,
    /// Tokens rounded up to a multiple
    Bucket,
    /// Nothing
    Private,
}

impl Learns {
    /// Its name in a manifest.
    pub fn name(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Bucket => "bucket",
            Self::Private => "private",
        }
    }

    /// What a plan declares, with this multiple.
    pub fn declared(self, bucket: Option<usize>) -> Result<Lengths, CliError> {
        match (self, bucket) {
            (Self::Public, _) => Ok(Lengths::Public),
            (Self::Private, _) => Ok(Lengths::Private),
            (Self::Bucket, Some(n)) => Ok(Lengths::Bucket(n)),
            (Self::Bucket, None) => Err(CliError::NoBucket),
        }
    }
}
