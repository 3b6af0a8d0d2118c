//! The client of a run under CKKS: from texts to ciphertexts, and from ciphertexts to answers. It has the public part
//! of a model, and the only key.
//!
//! ```text
//! token ids → E + P → first norm (if any) → ÷ bound → columns (Columns, MOAI's packing) → two real columns a ciphertext: (u + i·v)/2
//! packed answer → numbers → pooled rows → the model's last step
//! ```
//!
//! Token vectors, positions and the first norm are public here, and the client does the lookup. Padding rows are zeros.
//! Half the sum of a pair is at the default scale and within 1, so that the server obtains u = z + z̄ and v = i·(z̄ −
//! z), each within 1, by one conjugation ([`crate::Encrypted::split`]): half the bytes of one ciphertext per column.
//!
//! Nothing derived from the decrypted reply goes back to the server.

mod arranged;
mod shape;

use std::sync::Arc;

use hushed_ckks::{Ciphertext, CkksParams, Complex64, Decryptor, Encoder, Encryptor, Opening, SeededCiphertext};
use hushed_math::rng::SecretRng;
use hushed_model::{Embedding, Matrix, Norm, Pool, StepId, TokenIds, here, plain, same};

use crate::error::FheError;
use crate::inputs::input_bound;
use crate::ops::mask::{token_rows, token_rows_to_last};
use crate::ops::packed::pool as packed_pool;
use crate::ops::pool;
use crate::ops::rows;
use crate::packing::{Layout, PackingError, SequencePacking, Spread};
use crate::plan::public_plan::{AnswerRows, FhePlan, Lengths};

pub use arranged::Arranged;
pub(crate) use shape::REACH;

/// The client's view of a batch: a plan and the public numbers of its model.
pub struct FheClient {
    plan: FhePlan,
    params: Arc<CkksParams>,
    encoder: Arc<Encoder>,
    layout: Layout,
    /// Where columns and the numbers of an answer lie in packed rows; `None` for a batch.
    packed: Option<(Spread, Spread)>,
    embedding: Embedding,
    norm: Option<Norm>,
    pool: Pool,
}

/// A batch that is packed but not yet encrypted: it has the client's numbers, so there is no `Debug`.
pub struct Upload<'a> {
    client: &'a FheClient,
    /// Column by column; in packed rows part by part, followed by the mask of real rows. In a batch the mask is
    /// separate, if lengths are hidden from the server.
    columns: Vec<Vec<f64>>,
    mask: Option<Vec<f64>>,
    arranged: Arranged,
}

impl FheClient {
    /// A client of `plan`, with the token table, positions and first norm (if any) that the plan identifies by hash.
    ///
    /// # Errors
    /// [`FheError::Plan`] for a plan of other parameters, [`FheError::Model`] for numbers missing or of another width.
    pub fn new(
        plan: FhePlan,
        params: &Arc<CkksParams>,
        embedding: Embedding,
        norm: Option<Norm>,
        pool: Pool,
    ) -> Result<FheClient, FheError> {
        let (layout, packed) = (plan.layout(params)?, plan.packed(params)?);
        let packed = packed.map(|(_, columns)| columns);
        let at = StepId::outside("embed");
        same(at, "columns", embedding.width, plan.width)?;
        if let Some(norm) = &norm {
            same(at.part("norm"), "columns", norm.width, plan.width)?;
        }
        here(at, &embedding.tokens)?;
        Ok(FheClient {
            encoder: Arc::new(Encoder::new(params)),
            params: Arc::clone(params),
            layout,
            packed: packed.zip(plan.packed_answers(params)?),
            plan,
            embedding,
            norm,
            pool,
        })
    }

    /// The plan.
    pub fn plan(&self) -> &FhePlan {
        &self.plan
    }

    /// The parameters of the plan.
    pub fn params(&self) -> &Arc<CkksParams> {
        &self.params
    }

    /// Checks that no text of this model exceeds the plan's bound. The check uses only public numbers, before any text
    /// is read, so that a refusal reveals nothing about a text.
    ///
    /// # Errors
    /// [`FheError::InputBound`].
    pub fn check_bound(&self) -> Result<(), FheError> {
        let greatest = input_bound(&self.embedding, self.norm.as_ref(), self.plan.rows)?;
        match greatest <= self.plan.input_bound {
            true => Ok(()),
            false => Err(FheError::InputBound),
        }
    }

    /// The encoder, for a [`Decryptor`].
    pub fn encoder(&self) -> &Arc<Encoder> {
        &self.encoder
    }

    /// Packs `texts` into the places of the batch, and `canary`, if there is one, into the last
    /// ([`FhePlan::arranged`]).
    ///
    /// # Errors
    /// [`FheError::Packing`] for texts that do not fit or a text that is too long, [`FheError::Model`] for an invalid
    /// token,
    /// [`FheError::InputBound`] for a number beyond the plan's bound, which cannot happen after
    /// [`FheClient::check_bound`].
    pub fn pack(&self, texts: &[TokenIds], canary: Option<&TokenIds>) -> Result<Upload<'_>, FheError> {
        let (places, rows) = (self.layout.texts(), self.layout.rows());
        let tokens: Vec<usize> = texts.iter().map(|text| text.ids().len()).collect();
        let arranged = self.plan.arranged(&self.params, &tokens, canary.map(|canary| canary.ids().len()))?;
        let per_place = self.plan.placement.per_place;
        let packing = SequencePacking::new(rows, per_place, arranged.lengths.clone())?;
        let mut of: Vec<Option<Matrix<f64>>> = vec![None; arranged.lengths.len()];
        let all = arranged.texts.iter().zip(texts).chain(arranged.canary.as_ref().zip(canary));
        for (&at, text) in all {
            if let Some(matrix) = of.get_mut(at) {
                *matrix = Some(self.embedded(text)?);
            }
        }
        if self.packed.is_some() && self.plan.masks() {
            // A softmax needs keys: an empty place repeats a text, and its answer is not read.
            let some = of.iter().flatten().next().cloned();
            of.iter_mut().for_each(|text| *text = text.take().or_else(|| some.clone()));
        }
        // A decoder's texts end in the last row.
        let last = self.plan.answer.is_some();
        let entry = |place: usize, row: usize, column: usize| {
            let text = packing.text_of(place, row);
            let Some(Some(matrix)) = of.get(place * per_place + text.number) else {
                return 0.0;
            };
            let first = if last { rows - matrix.rows() } else { text.first };
            let row = row.checked_sub(first).filter(|&row| row < matrix.rows());
            row.map_or(0.0, |row| matrix.row(row)[column])
        };
        if let Some((columns, _)) = &self.packed {
            // A vector of pairs is two vectors of numbers.
            let vectors = (0..columns.vectors()).flat_map(|v| {
                let pairs = columns.pack(self.layout, v, entry);
                let part = |f: fn(&Complex64) -> f64| pairs.iter().map(f).collect();
                [part(|z| z.re), part(|z| z.im)]
            });
            let mut vectors: Vec<Vec<f64>> = vectors.collect();
            if self.plan.masks() {
                let rows = of.iter().map(|text| text.as_ref().map_or(0, Matrix::rows));
                vectors.extend(packed_pool::hidden_rows(self.layout, &rows.collect::<Vec<_>>()));
            }
            return Ok(Upload { client: self, columns: vectors, mask: None, arranged });
        }
        let layout = self.plan.interleave(&self.params)?;
        let column = |c| layout.vector(places, |place, row| entry(place, row, c));
        let real = match last {
            true => token_rows_to_last,
            false => token_rows,
        };
        Ok(Upload {
            client: self,
            columns: (0..self.plan.width).map(column).collect(),
            mask: self.plan.masks().then(|| real(layout, &arranged.lengths)),
            arranged,
        })
    }

    /// The rows of one text as the first layer reads them, divided by the plan's bound.
    fn embedded(&self, text: &TokenIds) -> Result<Matrix<f64>, FheError> {
        let at = StepId::outside("embed");
        // Embedded alone, without padding: rows beyond the text are zeros here.
        let alone = vec![TokenIds::new(text.ids().to_vec())];
        let x = plain::embed(at, alone, &self.embedding)?;
        let mut x = match &self.norm {
            Some(norm) => plain::norm(at.part("norm"), x, norm)?.values,
            None => x.values,
        };
        let bound = self.plan.input_bound;
        for row in 0..x.rows() {
            for value in x.row_mut(row) {
                if value.is_nan() || value.abs() > bound {
                    return Err(FheError::InputBound);
                }
                *value /= bound;
            }
        }
        Ok(x)
    }

    /// For each text of each place: the pooled row, the logits, or a decoder's hidden states (of the last row, or of
    /// all in turn), with the model's own factors, not scaled to unit length (the model's `finish` does that), computed
    /// from numbers rounded to [`FhePlan::reply_bits`]. `lengths` as [`Upload::lengths`].
    ///
    /// # Errors
    /// [`FheError::Ckks`] if decryption is refused, [`FheError::Packing`] if the reply is not as in the plan,
    /// [`FheError::ReplyShape`] if a number is not where or not as small as in an honest reply: then nothing of it, and
    /// not that it was refused, may reach the server.
    pub fn open(
        &self,
        decryptor: &Decryptor,
        reply: &[Ciphertext],
        lengths: &[usize],
    ) -> Result<Vec<Option<Vec<f64>>>, FheError> {
        let bits = self.plan.reply_bits(&self.params);
        let open = |ct| Ok(decryptor.open(ct, Opening::Bits(bits))?.values);
        let vectors = reply.iter().map(open);
        let vectors = vectors.collect::<Result<Vec<_>, FheError>>()?;
        let rows = self.unpack(&vectors, lengths)?;
        self.check_shape(&vectors, lengths)?;
        let of = rows.into_iter().zip(lengths);
        Ok(of.map(|(row, &m)| (m > 0).then_some(row)).collect())
    }

    fn check_shape(&self, vectors: &[Vec<Complex64>], lengths: &[usize]) -> Result<(), FheError> {
        let places = shape::Places {
            plan: &self.plan,
            layout: self.layout,
            answers: self.packed.as_ref().map(|(_, answers)| answers),
            lengths,
        };
        shape::check(&places, &self.params, vectors)
    }

    fn unpack(&self, vectors: &[Vec<Complex64>], lengths: &[usize]) -> Result<Vec<Vec<f64>>, FheError> {
        if let Some((_, answers)) = &self.packed {
            let texts = match self.plan.answer {
                Some(answer) => packed_pool::ends(self.layout, lengths, answer),
                None => vec![0..1; lengths.len()],
            };
            return Ok(packed_pool::unpack(self.layout, answers, &texts, vectors)?);
        }
        let layout = self.plan.interleave(&self.params)?;
        if self.plan.answer == Some(AnswerRows::Rows) {
            return Ok(rows::unpack(layout, lengths, self.plan.width, vectors)?);
        }
        let real = |v: &Vec<Complex64>| v.iter().map(|z| z.re).collect();
        let vectors: Vec<Vec<f64>> = vectors.iter().map(real).collect();
        let factor = match (self.plan.logits, self.plan.answer) {
            (Some(_), _) | (_, Some(_)) => pool::Factor::One,
            _ => pool::factor(self.pool, !self.plan.masks())?,
        };
        let (outputs, per_place) = (self.plan.outputs(), self.plan.placement.per_place);
        let of_each = outputs.div_ceil(self.plan.rows.max(1));
        if vectors.len() != per_place * of_each || !lengths.len().is_multiple_of(per_place.max(1)) {
            return Err(PackingError::Mismatch.into());
        }
        // The vectors of the first texts of all places come first.
        let mut rows = vec![Vec::new(); lengths.len()];
        for (number, vectors) in vectors.chunks_exact(of_each.max(1)).enumerate() {
            let lengths: Vec<usize> = lengths.iter().copied().skip(number).step_by(per_place).collect();
            let found = pool::unpack(layout, &lengths, outputs, factor, vectors)?;
            rows.iter_mut().skip(number).step_by(per_place).zip(found).for_each(|(row, found)| *row = found);
        }
        Ok(rows)
    }
}

impl Upload<'_> {
    /// The client that packed it.
    pub fn client(&self) -> &FheClient {
        self.client
    }

    /// Number of ciphertexts: one per two columns, and the mask of real rows if it is encrypted
    /// ([`FhePlan::request_ciphertexts`]).
    #[must_use]
    pub fn count(&self) -> usize {
        self.columns.len().div_ceil(2) + usize::from(self.mask.is_some())
    }

    /// Rows of the texts of each place, 0 where there is none: known to the client only.
    #[must_use]
    pub fn lengths(&self) -> &[usize] {
        &self.arranged.lengths
    }

    /// Where the texts are.
    #[must_use]
    pub fn arranged(&self) -> &Arranged {
        &self.arranged
    }

    /// The lengths that the server is told.
    #[must_use]
    pub fn declared(&self) -> Vec<usize> {
        let rows = self.client.layout.rows();
        let told = |&length: &usize| match self.client.plan.lengths {
            Lengths::Public => length,
            // A place without a text looks like one with a short text.
            Lengths::Bucket(multiple) => {
                let rounded = length.max(1).next_multiple_of(multiple.max(1));
                rounded.min(rows)
            }
            Lengths::Private => 0,
        };
        self.arranged.lengths.iter().map(told).collect()
    }

    /// Encrypts ciphertext `index` under the key of `encryptor`.
    ///
    /// # Errors
    /// [`FheError::Packing`] if there is no such ciphertext; [`FheError::Ckks`] for a key of other parameters.
    pub fn encrypt(
        &self,
        index: usize,
        encryptor: &Encryptor,
        rng: &mut SecretRng,
    ) -> Result<SeededCiphertext, FheError> {
        let pairs = self.columns.len().div_ceil(2);
        let halves = |re: f64, im: f64| Complex64::new(re / 2.0, im / 2.0);
        let message: Vec<Complex64> = match (self.columns.get(2 * index), &self.mask) {
            (Some(u), _) => match self.columns.get(2 * index + 1) {
                Some(v) => u.iter().zip(v).map(|(&u, &v)| halves(u, v)).collect(),
                None => u.iter().map(|&u| halves(u, 0.0)).collect(),
            },
            (None, Some(mask)) if index == pairs => mask.iter().map(|&x| x.into()).collect(),
            _ => return Err(PackingError::Mismatch.into()),
        };
        let client = self.client;
        let (limbs, scale) = (client.plan.placement.upload, client.params.default_scale());
        let plain = client.encoder.encode(&message, limbs, scale)?;
        Ok(encryptor.encrypt_seeded(&plain, rng)?)
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
