//! A residue number system: one ring degree, several coprime moduli and their precomputed tables.

use crate::automorphism::Automorphism;
use crate::blocks::BlockTables;
use crate::error::MathError;
use crate::modulus::Modulus;
use crate::ntt::{EveryCoefficient, NttTables};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, PoisonError, RwLock};

/// The ring `Z[X]/(X^n + 1)` modulo a product of distinct primes. A polynomial over it names the primes it uses by
/// their index here.
pub struct RnsBasis {
    n: usize,
    tables: Vec<Arc<NttTables>>,
    automorphisms: Arc<Automorphisms>,
    blocks: Arc<BlockTableCache>,
    sparse: Arc<SparseTableCache>,
}

/// Per Galois element, filled on first use.
type Automorphisms = RwLock<HashMap<usize, Arc<Automorphism>>>;

/// Per modulus, number of coefficients of the short factor, block length and step; filled on first use.
type BlockTableCache = RwLock<HashMap<(u64, [usize; 3]), Arc<BlockTables>>>;

/// Per modulus and step, filled on first use.
type SparseTableCache = RwLock<HashMap<(u64, usize), Arc<EveryCoefficient>>>;

impl RnsBasis {
    /// Largest number of moduli.
    pub const MAX_LIMBS: usize = 128;

    /// Prepares the transforms of degree `n` for each of `moduli`.
    ///
    /// # Errors
    /// [`MathError::InvalidBasis`] if a modulus repeats, or if none or too many are given; otherwise as
    /// [`Modulus::new`] and [`NttTables::new`].
    pub fn new(n: usize, moduli: &[u64]) -> Result<Arc<RnsBasis>, MathError> {
        let repeats = moduli.iter().enumerate().any(|(i, q)| moduli[..i].contains(q));
        if moduli.is_empty() || moduli.len() > RnsBasis::MAX_LIMBS || repeats {
            return Err(MathError::InvalidBasis { max: RnsBasis::MAX_LIMBS });
        }
        let tables = moduli
            .iter()
            .map(|&q| Ok(Arc::new(NttTables::new(n, Modulus::new(q)?)?)))
            .collect::<Result<_, MathError>>()?;
        Ok(Arc::new(RnsBasis {
            n,
            tables,
            automorphisms: Arc::default(),
            blocks: Arc::default(),
            sparse: Arc::default(),
        }))
    }

    /// The basis of some of these moduli, in the order of `ids`. It shares everything prepared for them.
    ///
    /// # Errors
    /// [`MathError::InvalidBasis`] if `ids` is empty, repeats an index or contains one that does not exist.
    pub fn subset(&self, ids: &[usize]) -> Result<Arc<RnsBasis>, MathError> {
        let invalid = MathError::InvalidBasis { max: RnsBasis::MAX_LIMBS };
        let repeats = ids.iter().enumerate().any(|(i, id)| ids[..i].contains(id));
        if ids.is_empty() || repeats {
            return Err(invalid);
        }
        let tables = ids.iter().map(|&id| self.tables.get(id).cloned());
        Ok(Arc::new(RnsBasis {
            n: self.n,
            tables: tables.collect::<Option<_>>().ok_or(invalid)?,
            automorphisms: Arc::clone(&self.automorphisms),
            blocks: Arc::clone(&self.blocks),
            sparse: Arc::clone(&self.sparse),
        }))
    }

    /// The ring degree n.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Number of moduli.
    #[expect(clippy::len_without_is_empty, reason = "a basis has at least one modulus")]
    pub fn len(&self) -> usize {
        self.tables.len()
    }

    /// Modulus `i`.
    ///
    /// # Panics
    /// If there is none.
    pub fn modulus(&self, i: usize) -> &Modulus {
        self.tables[i].modulus()
    }

    /// Transform and limb arithmetic of modulus `i`.
    ///
    /// # Panics
    /// If there is none.
    pub fn ntt(&self, i: usize) -> &NttTables {
        &self.tables[i]
    }

    /// The permutation of values under X → X^g (g odd, taken modulo 2n), the same for every modulus; made on first use
    /// and kept.
    ///
    /// # Panics
    /// If g is even.
    pub fn automorphism(&self, g: usize) -> Arc<Automorphism> {
        let g = g % (2 * self.n);
        kept(&self.automorphisms, g, || Automorphism::new(self.n, g))
    }

    /// [`BlockTables::new`] for modulus `i`; made on first use and kept.
    ///
    /// # Panics
    /// If there is no such modulus, or as [`BlockTables::new`].
    pub fn blocks(&self, i: usize, prefix: usize, length: usize, step: usize) -> Arc<BlockTables> {
        let key = (self.modulus(i).value(), [prefix, length, step]);
        let make = || BlockTables::new(self.ntt(i), prefix, length, step);
        kept(&self.blocks, key, make)
    }

    /// [`EveryCoefficient::new`] for modulus `i`; made on first use and kept.
    ///
    /// # Panics
    /// If there is no such modulus, or as [`EveryCoefficient::new`].
    pub fn every(&self, i: usize, step: usize) -> Arc<EveryCoefficient> {
        let key = (self.modulus(i).value(), step);
        kept(&self.sparse, key, || EveryCoefficient::new(self.ntt(i), step))
    }
}

/// Returns the entry of `all` for `key`, making it if there is none.
fn kept<K: Eq + Hash, V>(all: &RwLock<HashMap<K, Arc<V>>>, key: K, make: impl FnOnce() -> V) -> Arc<V> {
    let known = all.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(value) = known.get(&key) {
        return Arc::clone(value);
    }
    drop(known);
    let made = Arc::new(make());
    let mut known = all.write().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(known.entry(key).or_insert(made))
}
