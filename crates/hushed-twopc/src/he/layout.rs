//! Everything that both parties derive from public figures before a product: tiling, moduli, scale and response format.
//!
//! The multiplication modulus is the shortest prefix of the primes that holds the product's noise; leaves are then
//! brought to the shortest prefix in which they can be interleaved. With 50-bit primes:
//!   weights of 20 bits, ℓ = 64: two primes throughout (log q = 100);
//!   64-bit multipliers, ℓ = 64: three primes for the product (log q = 150), two for interleaving and response;
//!   32-bit multipliers, ℓ = 32: two primes for the product, one afterwards.
//!
//! Noise: a fresh error times a multiplier of at most m·nw non-zero coefficients per leaf, the modulus switch, and the
//! key switching of the interleaving tree; the response format adds its own and keeps the error of the shares within
//! one.
//!
//! Inputs are sent without the lowest bits, as far as the noise leaves room ([`SeededFormat`]): as many are dropped as
//! minimise the bytes of inputs and responses together. Products by a model's weights send some 80 bits of 100.

pub mod answer;
pub mod known;

use super::error::HeError;
use super::price::{block_points, bytes_out};
use super::window::{Encrypted, OltShape, OltTiling, Packing, Window};
use super::wire::Wire;
use crate::error::TwopcError;
use crate::link::Link;
use hushed_rlwe::{NoiseBound, ResponseFormat, RingScale, RlweError, RlweParams, SeededFormat};
use std::sync::Arc;

/// Leaves made at once. By blocks this is a minimum, used if a response takes fewer, because one pass over the blocks
/// of all ciphertexts serves all of them; by values it is a maximum.
pub(super) const LEAVES_TOGETHER: usize = 64;

/// Words of one prime's multipliers that are made at once by blocks, 8 MiB; at least those of one panel.
pub(super) const MULTIPLIER_WORDS: usize = 1 << 20;

/// Ciphertexts that are multiplied together where sums are made on arrival.
pub(super) const ARRIVING_TOGETHER: usize = 128;

/// The public description of a batch of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OltSpec {
    /// Shape of each product.
    pub shape: OltShape,
    /// Number of products.
    pub batch: usize,
    /// Bits ℓ of the ring of the result; entries of the encrypted operand are reduced to it.
    pub ring_bits: u32,
    /// Bound on the multiplier: |v| ≤ 2^multiplier_bits.
    pub multiplier_bits: u32,
    /// Which operand travels encrypted.
    pub encrypted: Encrypted,
    /// How leaves become responses.
    pub packing: Packing,
    /// Windows fixed by the caller; `None` for the cheapest.
    pub window: Option<Window>,
    /// Bits by which the noise of a response stays below what the modulus holds: room for that of another product.
    pub spare_bits: u32,
}

/// Tiling, moduli and formats of a product.
#[derive(Clone)]
pub struct Layout {
    /// Windows and counts.
    pub tiling: OltTiling,
    /// Primes of the input ciphertexts and of the products.
    pub product_limbs: usize,
    /// Primes over which leaves are interleaved.
    pub packing_limbs: usize,
    /// The scale from shares to ciphertext messages.
    pub scale: RingScale,
    /// The input format.
    pub input: SeededFormat,
    /// The response format.
    pub format: ResponseFormat,
    /// The noise of a leaf over the packing primes.
    pub noise: NoiseBound,
}

impl Layout {
    /// The layout of `spec` under `params`, for a session over `link`.
    ///
    /// # Errors
    /// [`HeError`] for impossible shapes and windows; [`RlweError::NoRoomForResponse`] if the noise does not fit even
    /// the full modulus; [`RlweError::RingBits`].
    pub fn new(params: &Arc<RlweParams>, link: &Link, spec: &OltSpec) -> Result<Self, TwopcError> {
        let mut refused = RlweError::RingBits { ell: spec.ring_bits };
        for product_limbs in 1..=params.q_len() {
            for packing_limbs in 1..=product_limbs.min(packing_limbs(params)) {
                match Self::with_limbs(params, link, spec, (product_limbs, packing_limbs)) {
                    Err(TwopcError::Rlwe(why @ RlweError::NoRoomForResponse { .. })) => refused = why,
                    done => return done,
                }
            }
        }
        Err(refused.into())
    }

    /// The same windows and formats, for products of `shape` with the same encrypted operand.
    ///
    /// # Errors
    /// As [`OltTiling::with_window`].
    pub(crate) fn with_shape(&self, params: &RlweParams, shape: OltShape) -> Result<Self, HeError> {
        let (limbs, tiling) = ((self.product_limbs, self.packing_limbs), &self.tiling);
        let wire = wire(params, limbs, &self.input, &self.format);
        let (encrypted, packing) = (tiling.encrypted(), tiling.packing());
        let tiling = OltTiling::with_window(shape, tiling.batch(), encrypted, packing, tiling.window(), &wire)?;
        Ok(Self { tiling, ..self.clone() })
    }

    /// Whether the inputs are multiplied by the inverse of the largest tree, rather than the more numerous leaves. Not
    /// if the modulus shrinks in between: the rounding of the switch would come after the inverse, and the tree would
    /// multiply it by 2^levels.
    pub(super) fn scales_inputs(&self) -> bool {
        self.packing_limbs == self.product_limbs
    }

    /// Points of the blocks by which products are made, or `None` if making them by values of the whole degree is less
    /// work. The other party sees nothing of this choice.
    pub fn block_points(&self) -> Option<usize> {
        block_points(&self.tiling, self.product_limbs)
    }

    /// Whether leaves are summed while ciphertexts arrive: for one product of one row block, if there are fewer leaves
    /// than ciphertexts and several times [`ARRIVING_TOGETHER`] of these. The other party does not see this choice.
    pub(super) fn sums_on_arrival(&self) -> bool {
        let (inputs, leaves) = (self.tiling.inputs(), self.tiling.leaves());
        let one = inputs == self.tiling.blocks().1 && self.tiling.batch() == 1;
        one && self.block_points().is_some() && leaves < inputs && inputs >= 3 * ARRIVING_TOGETHER
    }

    /// The most bytes held by the multiplying party: the operand's ciphertexts, the leaves of a response, and the
    /// multipliers of a few columns.
    pub fn held_bytes(&self) -> usize {
        let (tiling, limbs) = (&self.tiling, self.product_limbs);
        let (degree, Window { mw, nw, .. }) = (tiling.degree(), tiling.window());
        let leaves = tiling.response_leaves(0).len();
        let words = match self.block_points() {
            None => {
                let sums = leaves.min(LEAVES_TOGETHER.next_multiple_of(tiling.blocks().0));
                2 * (tiling.inputs() + sums) * degree + leaves * (degree + degree / mw)
            }
            Some(points) => {
                let ciphertext = 2 * degree.div_ceil(points - mw * nw) * points;
                let (inputs, leaves) = match self.sums_on_arrival() {
                    // All sums, and some of the products to be added.
                    true => (ARRIVING_TOGETHER, tiling.leaves() + LEAVES_TOGETHER),
                    false => (tiling.inputs(), leaves.max(LEAVES_TOGETHER).min(tiling.leaves())),
                };
                inputs * ciphertext + leaves * (degree + degree / mw) + MULTIPLIER_WORDS
            }
        };
        words * limbs * size_of::<u64>()
    }

    fn with_limbs(
        params: &Arc<RlweParams>,
        link: &Link,
        spec: &OltSpec,
        limbs: (usize, usize),
    ) -> Result<Self, TwopcError> {
        let (product_limbs, packing_limbs) = limbs;
        let scale = RingScale::new(params, product_limbs, spec.ring_bits)?;
        // What is sent depends on the tiling through its noise, and the tiling depends on what is sent through its
        // bytes. A first tiling with whole inputs and the responses of noiseless ciphertexts gives the sizes for
        // choosing windows.
        let whole = SeededFormat::new(params, product_limbs, 0)?;
        let ideal = ResponseFormat::for_ring_at(params, packing_limbs, spec.ring_bits, 0)?;
        let tiling = Self::tiling(link, spec, &wire(params, limbs, &whole, &ideal))?;
        let Formats { input, response, .. } = formats(params, spec, &tiling, limbs)?;
        let tiling = Self::tiling(link, spec, &wire(params, limbs, &input, &response))?;
        let Formats { input, response: format, noise } = formats(params, spec, &tiling, limbs)?;
        let settled = OltSpec { window: Some(tiling.window()), ..*spec };
        let tiling = Self::tiling(link, &settled, &wire(params, limbs, &input, &format))?;
        Ok(Self { tiling, product_limbs, packing_limbs, scale, input, format, noise })
    }

    fn tiling(link: &Link, spec: &OltSpec, wire: &Wire) -> Result<OltTiling, HeError> {
        let OltSpec { shape, batch, encrypted, packing, .. } = *spec;
        match spec.window {
            Some(window) => OltTiling::with_window(shape, batch, encrypted, packing, window, wire),
            None => OltTiling::choose(shape, batch, encrypted, packing, wire, link),
        }
    }
}

struct Formats {
    input: SeededFormat,
    response: ResponseFormat,
    /// The noise of a leaf over the packing primes.
    noise: NoiseBound,
}

/// The formats of inputs and responses with the fewest bytes in total. Only those numbers of dropped input bits are
/// tried at which one more would raise the noise bound to a higher power of two.
fn formats(
    params: &Arc<RlweParams>,
    spec: &OltSpec,
    tiling: &OltTiling,
    limbs: (usize, usize),
) -> Result<Formats, TwopcError> {
    let (product_limbs, packing_limbs) = limbs;
    let levels = tiling.largest_tree().ilog2();
    let leaf = |drop| noise(params, spec, tiling, limbs, drop);
    let packed = |drop| leaf(drop).interleave(params, self::packing_limbs(params), packing_limbs, levels);
    let noise = |drop| packed(drop).bits() + spec.spare_bits;
    let wanted = tiling.wanted_by_response();
    let with = |drop| -> Result<_, TwopcError> {
        let input = SeededFormat::new(params, product_limbs, drop)?;
        let ell = spec.ring_bits;
        let response = ResponseFormat::for_ring_at(params, packing_limbs, ell, noise(drop))?;
        let wire = wire(params, limbs, &input, &response);
        let bytes = tiling.inputs() as u64 * wire.input_bytes + bytes_out(&wanted, &wire);
        Ok((bytes, Formats { input, response, noise: leaf(drop) }))
    };
    // Ends when no room or no bits are left. With more primes than a truncation supports, no bits can be dropped.
    let shows = |drop: &u32| noise(drop + 1) > noise(*drop);
    let others = (1..).filter(shows).map_while(|drop| with(drop).ok());
    let fewest = others.fold(with(0)?, |best, found| match found.0 < best.0 {
        true => found,
        false => best,
    });
    Ok(fewest.1)
}

/// Noise of the leaves over the packing primes, for inputs without their lowest `drop` bits.
fn noise(
    params: &RlweParams,
    spec: &OltSpec,
    tiling: &OltTiling,
    (product_limbs, packing_limbs): (usize, usize),
    drop: u32,
) -> NoiseBound {
    let terms = tiling.inner_shape().m * tiling.window().nw;
    let magnitude = (0..spec.multiplier_bits).fold(1.0, |x, _| x * 2.0);
    let product = NoiseBound::fresh_top_bits(drop).plain_product(magnitude, terms);
    product.modulus_switch(params, product_limbs, packing_limbs)
}

fn wire(
    params: &RlweParams,
    (product_limbs, packing_limbs): (usize, usize),
    input: &SeededFormat,
    format: &ResponseFormat,
) -> Wire {
    Wire {
        degree: params.n(),
        input_bytes: input.bytes() as u64,
        response_bytes: format.bytes(0) as u64,
        response_bits: u64::from(format.coefficient_bits().1),
        product_limbs: product_limbs as u64,
        packing_limbs: packing_limbs as u64,
    }
}

/// The most primes over which ciphertexts are interleaved: a longer product drops the others first, so the Galois keys
/// are for these alone, and the third prime serves as one of their special primes.
pub(crate) fn packing_limbs(params: &RlweParams) -> usize {
    params.q_len().min(2)
}
