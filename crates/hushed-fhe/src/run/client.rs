//! The client of a run under CKKS: texts to ciphertexts, ciphertexts to answers. It has the public part of a model, and
//! the only key.
//!
//! ```text
//! token ids → E + P → first norm (if any) → ÷ bound → columns (Columns, MOAI's packing) → two real columns a ciphertext: (u + i·v)/2
//! packed answer → numbers → pooled rows → the model's last step
//! ```
//!
//! Token vectors, positions and the first norm are public here: the lookup is the client's. Rows of padding are zeros.
//! Half the sum of a pair is at the default scale and within 1, so that the server gets u = z + z̄ and v = i·(z̄ − z),
//! each within 1, by a conjugation ([`crate::Encrypted::split`]): half the bytes of a column a ciphertext.
//!
//! Nothing that follows from what is opened here goes back to the server.

use std::sync::Arc;

use hushed_ckks::{
    Ciphertext, CkksParams, Complex64, Decryptor, Encoder, Encryptor, Opening, SeededCiphertext,
};
use hushed_math::rng::SecretRng;
use hushed_model::{Embedding, Matrix, Norm, Pool, StepId, TokenIds, here, plain, same};

use crate::error::FheError;
use crate::inputs::input_bound;
use crate::ops::decoder::rows;
use crate::ops::mask::{token_rows, token_rows_to_last};
use crate::ops::packed::pool as packed_pool;
use crate::ops::pool;
use crate::packing::{Layout, PackingError, Spread};
use crate::plan::public_plan::{AnswerRows, FhePlan, Lengths};

/// What a batch is computed with: a plan, and the public numbers of its model.
pub struct FheClient {
    plan: FhePlan,
    params: Arc<CkksParams>,
    encoder: Arc<Encoder>,
    layout: Layout,
    /// Where columns and the numbers of an answer are in packed rows; none in a batch.
    packed: Option<(Spread, Spread)>,
    embedding: Embedding,
    norm: Option<Norm>,
    pool: Pool,
}

/// A batch that is packed and not yet encrypted: numbers of the client, so there is no `Debug`.
pub struct Upload<'a> {
    client: &'a FheClient,
    /// Column by column; in packed rows part by part, those of the rows that are tokens behind them. In a batch they
    /// are apart, if the server is not to know.
    columns: Vec<Vec<f64>>,
    mask: Option<Vec<f64>>,
    lengths: Vec<usize>,
}

impl FheClient {
    /// A client of `plan`, with the table, the positions and the first norm, if there is one, that it names by hash.
    ///
    /// # Errors
    /// [`FheError::Plan`] for a plan of other parameters, [`FheError::Model`] for numbers that are missing or of
    /// another width.
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

    /// That no text of this model is beyond the plan's bound: decided by the public numbers alone, before any text is
    /// read, so that a refusal says nothing of one.
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

    /// Packs `texts` into the first places of the batch, and `canary`, if there is one, into the last.
    ///
    /// # Errors
    /// [`FheError::Packing`] for too many texts or one too long, [`FheError::Model`] for a token that is none,
    /// [`FheError::InputBound`] for a number beyond the plan's bound, of which there is none after
    /// [`FheClient::check_bound`].
    pub fn pack(
        &self,
        texts: &[TokenIds],
        canary: Option<&TokenIds>,
    ) -> Result<Upload<'_>, FheError> {
        let (places, rows) = (self.layout.texts(), self.layout.rows());
        let room = places - usize::from(canary.is_some());
        if texts.len() > room {
            return Err(PackingError::TooMany {
                texts: texts.len(),
                room,
                slots: self.layout.slots(),
                rows,
            }
            .into());
        }
        let mut of: Vec<Option<Matrix<f64>>> = vec![None; places];
        let last = places.saturating_sub(1);
        let all = texts.iter().enumerate().chain(canary.map(|c| (last, c)));
        let mut lengths = vec![0; places];
        for (place, text) in all {
            let found = text.ids().len();
            if found > rows {
                return Err(PackingError::RowCount {
                    text: place,
                    found,
                    rows,
                }
                .into());
            }
            if let (Some(matrix), Some(length)) = (of.get_mut(place), lengths.get_mut(place)) {
                *matrix = Some(self.embedded(text)?);
                *length = found;
            }
        }
        if self.packed.is_some() && self.plan.masks() {
            // A softmax wants keys: an empty place repeats a text, and nobody reads its answer.
            let some = of.iter().flatten().next().cloned();
            of.iter_mut()
                .for_each(|text| *text = text.take().or_else(|| some.clone()));
        }
        // A decoder's texts end in the last row.
        let last = self.plan.answer.is_some();
        let entry = |place: usize, row: usize, column: usize| match of.get(place) {
            Some(Some(matrix)) => {
                let first = if last { rows - matrix.rows() } else { 0 };
                let row = row.checked_sub(first).filter(|&row| row < matrix.rows());
                row.map_or(0.0, |row| matrix.row(row)[column])
            }
            _ => 0.0,
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
                vectors.extend(packed_pool::hidden_rows(
                    self.layout,
                    &rows.collect::<Vec<_>>(),
                ));
            }
            return Ok(Upload {
                client: self,
                columns: vectors,
                mask: None,
                lengths,
            });
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
            mask: self.plan.masks().then(|| real(layout, &lengths)),
            lengths,
        })
    }

    /// The rows of one text as the first layer takes them, divided by the plan's bound.
    fn embedded(&self, text: &TokenIds) -> Result<Matrix<f64>, FheError> {
        let at = StepId::outside("embed");
        // Without padding of its own: rows beyond the text are zeros here.
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

    /// The pooled row, the logits, or a decoder's hidden states (of the last row, or of all, one after another), of
    /// each place that has a text, with the model's own factors, not scaled to unit length (the model's `finish` does
    /// that), made of numbers rounded to [`FhePlan::reply_bits`]. `lengths` as [`Upload::lengths`].
    ///
    /// # Errors
    /// [`FheError::Ckks`] if decryption is refused, [`FheError::Packing`] for another reply than the plan's.
    pub fn open(
        &self,
        decryptor: &Decryptor,
        reply: &[Ciphertext],
        lengths: &[usize],
    ) -> Result<Vec<Option<Vec<f64>>>, FheError> {
        let bits = self.plan.reply_bits(&self.params);
        let of = |rows: Vec<Vec<f64>>| {
            let of = rows.into_iter().zip(lengths);
            of.map(|(row, &m)| (m > 0).then_some(row)).collect()
        };
        // What the ciphertext carries of its error is the plan's word: it can only leave less.
        let open = |ct| Ok(decryptor.open(ct, Opening::Bits(bits))?.values);
        if let Some((_, answers)) = &self.packed {
            let vectors = reply
                .iter()
                .map(open)
                .collect::<Result<Vec<_>, FheError>>()?;
            let texts = match self.plan.answer {
                Some(answer) => packed_pool::ends(self.layout, lengths, answer),
                None => vec![0..1; lengths.len()],
            };
            let rows = packed_pool::unpack(self.layout, answers, &texts, &vectors)?;
            return Ok(of(rows));
        }
        let layout = self.plan.interleave(&self.params)?;
        if self.plan.answer == Some(AnswerRows::Rows) {
            let vectors = reply
                .iter()
                .map(open)
                .collect::<Result<Vec<_>, FheError>>()?;
            return Ok(of(rows::unpack(
                layout,
                lengths,
                self.plan.width,
                &vectors,
            )?));
        }
        let mut vectors = Vec::with_capacity(reply.len());
        for ct in reply {
            vectors.push(open(ct)?.iter().map(|z| z.re).collect());
        }
        let factor = match (self.plan.logits, self.plan.answer) {
            (Some(_), _) | (_, Some(_)) => pool::Factor::One,
            _ => pool::factor(self.pool, !self.plan.masks())?,
        };
        let rows = pool::unpack(layout, lengths, self.plan.outputs(), factor, &vectors)?;
        Ok(of(rows))
    }
}

impl Upload<'_> {
    /// Who packed it.
    pub fn client(&self) -> &FheClient {
        self.client
    }

    /// Ciphertexts: one for two columns, and the rows that are tokens where they are encrypted
    /// ([`FhePlan::request_ciphertexts`]).
    #[must_use]
    pub fn count(&self) -> usize {
        self.columns.len().div_ceil(2) + usize::from(self.mask.is_some())
    }

    /// Rows of the text in each place, 0 where there is none: the client's to keep.
    #[must_use]
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// What the server is told of them.
    #[must_use]
    pub fn declared(&self) -> Vec<usize> {
        let rows = self.client.layout.rows();
        let told = |&length: &usize| match self.client.plan.lengths {
            Lengths::Public => length,
            // A place without a text is like one with a short one.
            Lengths::Bucket(multiple) => {
                let rounded = length.max(1).next_multiple_of(multiple.max(1));
                rounded.min(rows)
            }
            Lengths::Private => 0,
        };
        self.lengths.iter().map(told).collect()
    }

    /// Encrypts ciphertext `index`, under a key that `encryptor` holds.
    ///
    /// # Errors
    /// [`FheError::Packing`] if there is none; [`FheError::Ckks`] for a key of other parameters.
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
