//! RMSNorm, whose statistic is refreshed. The norms of an encoder are timed as steps of its layer.

use serde_json::Value;

use crate::ckks::with_threads;
use crate::{BenchError, How};

/// Rows for RMSNorm.
pub fn norms(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    with_threads(how.threads, || super::decoder::rms_norms(how))
}
