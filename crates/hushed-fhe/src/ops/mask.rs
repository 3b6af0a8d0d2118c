//! Which rows of a batch are tokens, and whether the server knows.
//!
//! With public lengths the masks are plaintext vectors. With private lengths the client sends one more vector, 1 in
//! token rows and 0 in padding rows; all other masks are computed from it.

use hushed_model::StepId;

use crate::error::FheError;
use crate::packing::{Interleave, PackingError};
use crate::slots::{OwnedMask, Slots};

/// The rows of the texts of a batch.
#[derive(Clone)]
pub enum RowsKnown<V> {
    /// Known to the server.
    Public {
        /// The packing.
        layout: Interleave,
        /// The number of tokens of each text; 0 for places without a text.
        lengths: Vec<usize>,
    },
    /// The server knows only m.
    Private {
        /// The packing.
        layout: Interleave,
        /// 1 in token rows, 0 elsewhere, encrypted.
        real: V,
    },
}

impl<V> RowsKnown<V> {
    /// Rows of texts with these numbers of tokens.
    ///
    /// # Errors
    /// [`PackingError`] for too many texts, or a text longer than m.
    pub fn public(layout: Interleave, lengths: Vec<usize>) -> Result<Self, PackingError> {
        if lengths.len() > layout.texts() {
            return Err(PackingError::TooMany {
                texts: lengths.len(),
                room: layout.texts(),
                slots: layout.slots(),
                rows: layout.rows(),
            });
        }
        match lengths.iter().position(|&l| l > layout.rows()) {
            Some(text) => Err(PackingError::RowCount { text, found: lengths[text], rows: layout.rows() }),
            None => Ok(Self::Public { layout, lengths }),
        }
    }

    /// Rows given by an encrypted vector, 1 in token rows.
    pub fn private(layout: Interleave, real: V) -> Self {
        Self::Private { layout, real }
    }

    /// The same, with encrypted rows refreshed if they have fewer than `limbs` primes.
    pub(crate) fn lifted<S: Slots<Value = V>>(self, on: &S, limbs: usize) -> Result<Self, FheError> {
        Ok(match self {
            Self::Private { layout, real } => Self::private(layout, lifted(on, real, limbs)?),
            public @ Self::Public { .. } => public,
        })
    }

    /// The packing.
    pub fn layout(&self) -> Interleave {
        match self {
            Self::Public { layout, .. } | Self::Private { layout, .. } => *layout,
        }
    }
}

/// The step that refreshes encrypted token rows, before the columns of an upload are split.
pub(crate) const REAL_ROWS: &str = "input.rows";

/// Refreshes encrypted token rows if they have fewer than `limbs` primes.
pub(crate) fn lifted<S: Slots>(on: &S, real: S::Value, limbs: usize) -> Result<S::Value, FheError> {
    if on.limbs(&real) >= limbs {
        return Ok(real);
    }
    let id = StepId::outside(REAL_ROWS);
    on.at(id);
    let mut refreshed = on.refresh(id, vec![real], limbs)?;
    Ok(refreshed.pop().ok_or(PackingError::Mismatch)?)
}

/// The vector that a client encrypts with private lengths, in the clear: 1 in token rows, 0 elsewhere.
pub fn token_rows(layout: Interleave, lengths: &[usize]) -> Vec<f64> {
    layout.vector(lengths.len().min(layout.texts()), |text, row| f64::from(u8::from(row < lengths[text])))
}

/// The same for texts that end in row m − 1, as in a decoder.
pub(crate) fn token_rows_to_last(layout: Interleave, lengths: &[usize]) -> Vec<f64> {
    layout.vector(lengths.len().min(layout.texts()), |text, row| {
        f64::from(u8::from(row + lengths[text] >= layout.rows()))
    })
}

/// The masks that norms and poolings use.
#[derive(Clone)]
pub struct RowMasks<V> {
    /// Token rows.
    pub tokens: OwnedMask<V>,
    /// The same without the first row of each text, whose result some layers replace by a constant.
    pub later: OwnedMask<V>,
    /// The first row of each text; nothing in places without a text.
    pub first: OwnedMask<V>,
}

impl<V> RowMasks<V> {
    /// Computes the masks; with private lengths, by two products with plaintext vectors.
    ///
    /// # Errors
    /// If the encrypted vector has no level.
    pub fn new<S: Slots<Value = V>>(on: &S, rows: &RowsKnown<V>) -> Result<Self, FheError>
    where
        V: Clone,
    {
        let layout = rows.layout();
        let top = on.plain(|| {
            let mut top = vec![0.0; layout.slots()];
            top[..layout.texts()].fill(1.0);
            top
        });
        let rest: Vec<f64> = top.iter().map(|t| 1.0 - t).collect();
        Ok(match rows {
            RowsKnown::Public { lengths, .. } => {
                let tokens = on.plain(|| token_rows(layout, lengths));
                let only = |part: &[f64]| tokens.iter().zip(part).map(|(t, p)| t * p).collect();
                RowMasks {
                    later: OwnedMask::Public(only(&rest)),
                    first: OwnedMask::Public(only(&top)),
                    tokens: OwnedMask::Public(tokens),
                }
            }
            RowsKnown::Private { real, .. } => {
                let only = |part: &[f64]| on.mul_vector(real, part, on.default_scale());
                RowMasks {
                    later: OwnedMask::Private(only(&rest)?),
                    first: OwnedMask::Private(only(&top)?),
                    tokens: OwnedMask::Private(real.clone()),
                }
            }
        })
    }
}
