//! A feed-forward block merged into one map ([`crate::ops::merged`]), in packed rows: the residual is in the same map.

use hushed_model::{Linear, StepId};

use super::linear::{Term, linear, residual};
use super::rows::{Kept, PackedRows};
use crate::choices::NormChoice;
use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::levels::scale_of;
use crate::ops::merged::map;
use crate::packing::Spread;
use crate::slots::Slots;

/// κ·(y + x − mean) for y = W·x + b in rows `kept`, in pairs at half of [`Slots::default_scale`], one level below x.
///
/// # Errors
/// Shapes that differ, layers without numbers, too few levels.
pub fn merged<S: Slots>(
    on: &S,
    at: StepId,
    x: &Acts<S::Value>,
    (w, norm): (&Linear, &NormChoice),
    (rows, kept, columns): (&PackedRows<S::Value>, Kept, Spread),
) -> Result<Vec<S::Value>, FheError> {
    on.at(at);
    let map = on.map(at, || Ok(map(on, at, x, w, norm)?.plus(&residual(on, x, norm.scale))))?;
    let term = Term { places: columns, vectors: &x.columns, map: &map };
    let bias = (map.bias.as_deref().unwrap_or_default(), kept);
    let target = scale_of(on.default_scale().value() / 2.0)?;
    linear(on, rows, &columns, &[term], bias, target)
}
