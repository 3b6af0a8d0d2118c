//! The error that a plan declares for its reply.

use hushed_ckks::CkksParams;

/// How many bits the declared error of a reply, relative to its magnitude, lies below the certified precision of a
/// slot. Pooling averages the errors of rows, and a client divides the reply by its text's share of the rows, which
/// enlarges the errors of short texts again: the declared error stays above the first and leaves room for the second.
const SPARE_BITS: i32 = 6;

/// The standard deviation declared for a reply within `magnitude`, in units of the message.
#[must_use]
pub fn reply_deviation(params: &CkksParams, magnitude: f64) -> f64 {
    let bits = params.certified_bits() as i32 + SPARE_BITS;
    magnitude * 2f64.powi(-bits)
}
