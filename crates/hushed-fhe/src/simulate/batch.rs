//! A batch of texts in the clear, packed as by a client and run through a simulated pass.

use hushed_ckks::Complex64;
use hushed_ckks::poly::PolyError;
use hushed_model::{Item, Matrix, ModelError, Program, TokenIds, plain};

use super::{Simulator, Vector};
use crate::choices::Choices;
use crate::error::FheError;
use crate::ops::mask::{RowsKnown, token_rows, token_rows_to_last};
use crate::ops::packed::pool::{ends, hidden_rows, unpack as unpack_packed};
use crate::ops::packed::rows::PackedRows;
use crate::ops::pool::{Factor, unpack};
use crate::ops::rows;
use crate::packing::sequences::arranged;
use crate::packing::{Interleave, Layout, PackingError, SequencePacking, Spread};
use crate::pass::{Pass, Texts, Viewer};
use crate::plan::placement::Placement;
use crate::plan::public_plan::{AnswerRows, Lengths};
use crate::slots::Slots;

/// The rows of a text's tokens, embedded and normalised, or of an image, as a client computes them.
pub(crate) fn embedded<T: Clone + Into<Item>>(program: &Program, item: &T) -> Result<Matrix<f64>, ModelError> {
    Ok(plain::start(program, vec![bare(item)])?.values)
}

/// A text without its padding, or an image.
pub(crate) fn bare<T: Clone + Into<Item>>(item: &T) -> Item {
    match item.clone().into() {
        Item::Text(text) => TokenIds::new(text.ids().iter().copied().take(text.rows().real).collect()).into(),
        image => image,
    }
}

/// The slots of each column of texts in their places, divided by `bound`; zeros elsewhere.
pub(crate) fn columns(layout: Interleave, texts: &[Matrix<f64>], width: usize, bound: f64) -> Vec<Vec<f64>> {
    let entry = |column: usize| {
        move |text: usize, row: usize| match texts.get(text) {
            Some(x) if row < x.rows() => x.row(row)[column] / bound,
            _ => 0.0,
        }
    };
    let column = |j: usize| layout.vector(texts.len(), entry(j));
    (0..width).map(column).collect()
}

/// The same for texts that end in row m − 1, as a decoder reads them.
pub(crate) fn columns_to_last(layout: Interleave, texts: &[Matrix<f64>], width: usize, bound: f64) -> Vec<Vec<f64>> {
    let entry = |column: usize| {
        move |text: usize, row: usize| {
            let x = texts.get(text)?;
            let row = row.checked_sub(layout.rows().checked_sub(x.rows())?)?;
            Some(x.row(row)[column] / bound)
        }
    };
    let column = |j: usize| {
        let entry = entry(j);
        layout.vector(texts.len(), |text, row| entry(text, row).unwrap_or(0.0))
    };
    (0..width).map(column).collect()
}

/// A circuit and the settings of its run in the clear.
pub(crate) struct Batch<'a> {
    pub program: &'a Program,
    pub choices: &'a Choices,
    pub placement: &'a Placement,
    /// Whether the server knows which rows are tokens; for a decoder it never does: [`Lengths::Private`].
    pub lengths: Lengths,
    /// The bound by which a client divides its columns.
    pub bound: f64,
}

impl Batch<'_> {
    /// The answer of each text as it is in the slots: with public lengths, this is what clients read. All slots of `on`
    /// are used, `rows` per text.
    ///
    /// # Errors
    /// Those of the pass; [`crate::packing::PackingError`] for more texts than fit.
    pub fn run<'a>(
        &'a self,
        on: &'a Simulator,
        rows: usize,
        texts: &[Matrix<f64>],
        viewer: Option<Viewer<'a, Vector>>,
    ) -> Result<Vec<Vec<f64>>, FheError> {
        if self.placement.columns > 1 {
            return self.packed(on, rows, texts, AnswerRows::Last);
        }
        let layout = Interleave::new(on.slots(), rows)?;
        if self.choices.decoder.is_some() {
            return self.decoded(on, layout, texts, AnswerRows::Last);
        }
        let lengths: Vec<usize> = texts.iter().map(Matrix::rows).collect();
        let (upload, most) = (self.placement.upload, self.placement.per_place);
        let arranged = arranged(rows, most, layout.texts(), &lengths)?;
        let packing = SequencePacking::new(rows, most, arranged.lengths)?;
        let columns = match most {
            1 => columns(layout, texts, self.program.width(), self.bound),
            _ => shared_columns(layout, &packing, (texts, &arranged.texts), self.bound),
        };
        let known = match self.lengths.encrypted() {
            true => {
                let mask = on.vector(token_rows(layout, &lengths), upload)?;
                RowsKnown::private(layout, mask)
            }
            false => RowsKnown::shared(layout, packing)?,
        };
        let columns = columns.into_iter().map(|v| on.vector(v, upload));
        let columns = columns.collect::<Result<Vec<_>, FheError>>()?;
        let placement = self.placement.clone();
        let (program, choices, texts) = (self.program, self.choices, Texts::Columns(known));
        let mut pass = Pass::over(on, (program, choices), placement, texts, self.bound)?;
        if let Some(viewer) = viewer {
            pass.view(viewer);
        }
        let answer = pass.run(columns)?;
        let vectors: Vec<Vec<f64>> = answer.vectors.iter().map(|v| v.values().to_vec()).collect();
        // As it is in the slots, where noise is added.
        if most == 1 {
            return Ok(unpack(layout, &lengths, answer.width, Factor::One, &vectors)?);
        }
        // One after another, all texts with the same number in their places at a time.
        let all = vec![rows; layout.texts()];
        let of_each = vectors.chunks(answer.width.div_ceil(rows).max(1));
        let of_each = of_each.map(|vectors| unpack(layout, &all, answer.width, Factor::One, vectors));
        let of_each: Vec<Vec<Vec<f64>>> = of_each.collect::<Result<_, _>>()?;
        let text = |at: &usize| of_each.get(at % most).and_then(|rows| rows.get(at / most)).cloned();
        let found: Option<Vec<Vec<f64>>> = arranged.texts.iter().map(text).collect();
        Ok(found.ok_or(PackingError::Mismatch)?)
    }
}

/// As [`columns`], for texts that share places; `at` says where each text is among all lengths.
fn shared_columns(
    layout: Interleave,
    packing: &SequencePacking,
    (texts, at): (&[Matrix<f64>], &[usize]),
    bound: f64,
) -> Vec<Vec<f64>> {
    let mut of = vec![None; packing.lengths().len()];
    for (text, &at) in texts.iter().zip(at) {
        of[at] = Some(text);
    }
    let entry = |place: usize, row: usize, column: usize| {
        let text = packing.text_of(place, row);
        let x = of[place * packing.most() + text.number].filter(|_| text.has(row));
        x.map_or(0.0, |x| x.row(row - text.first)[column] / bound)
    };
    let width = texts.first().map_or(0, Matrix::cols);
    (0..width).map(|j| layout.vector(packing.places(), |place, row| entry(place, row, j))).collect()
}

impl Batch<'_> {
    /// As [`Batch::run`] for a decoder read at `read`; if at all rows, those of each text are concatenated.
    pub fn read_at(
        &self,
        on: &Simulator,
        rows: usize,
        texts: &[Matrix<f64>],
        read: AnswerRows,
    ) -> Result<Vec<Vec<f64>>, FheError> {
        if self.placement.columns > 1 {
            return self.packed(on, rows, texts, read);
        }
        let layout = Interleave::new(on.slots(), rows)?;
        self.decoded(on, layout, texts, read)
    }

    fn decoded(
        &self,
        on: &Simulator,
        layout: Interleave,
        texts: &[Matrix<f64>],
        read: AnswerRows,
    ) -> Result<Vec<Vec<f64>>, FheError> {
        let upload = self.placement.upload;
        let columns = columns_to_last(layout, texts, self.program.width(), self.bound);
        let columns = columns.into_iter().map(|v| on.vector(v, upload));
        let columns = columns.collect::<Result<Vec<Vector>, _>>()?;
        let (program, choices, placement) = (self.program, self.choices, self.placement.clone());
        let rows: Vec<usize> = texts.iter().map(Matrix::rows).collect();
        let real = self.lengths.masks(program);
        let real = real.then(|| on.vector(token_rows_to_last(layout, &rows), upload));
        let last = Texts::Last(layout, read, real.transpose()?);
        let mut pass = Pass::over(on, (program, choices), placement, last, self.bound)?;
        let answer = pass.run(columns)?;
        if read == AnswerRows::Rows {
            let vectors: Vec<Vec<Complex64>> = answer.vectors.iter().map(Vector::pairs).collect();
            return Ok(rows::unpack(layout, &rows, answer.width, &vectors)?);
        }
        let vectors: Vec<Vec<f64>> = answer.vectors.iter().map(|v| v.values().to_vec()).collect();
        Ok(unpack(layout, &rows, answer.width, answer.factor, &vectors)?)
    }

    /// As [`Batch::run`] in packed rows, with as many texts at a time as fit; a decoder is read at `read`.
    fn packed(
        &self,
        on: &Simulator,
        rows: usize,
        texts: &[Matrix<f64>],
        read: AnswerRows,
    ) -> Result<Vec<Vec<f64>>, FheError> {
        let layout = Layout::new(on.slots(), rows, self.placement.columns)?;
        let (decodes, upload) = (self.choices.decoder.is_some(), self.placement.upload);
        let mut found = Vec::with_capacity(texts.len());
        for chunk in texts.chunks(layout.texts()) {
            let mut texts = chunk.to_vec();
            if let (false, true, Some(first)) = (decodes, self.lengths.encrypted(), chunk.first()) {
                // Empty places are filled as clients fill them.
                texts.resize(layout.texts(), first.clone());
            }
            let lengths: Vec<usize> = texts.iter().map(Matrix::rows).collect();
            let first = vec![0..1; lengths.len()];
            let (known, ends) = match (decodes, self.lengths.encrypted()) {
                (true, _) => (Texts::PackedLast(layout, read), ends(layout, &lengths, read)),
                (false, true) => {
                    let half = |v: Vec<f64>| on.vector(v.iter().map(|x| x / 2.0).collect(), upload);
                    let [tokens, shares] = hidden_rows(layout, &lengths).map(half);
                    let rows = PackedRows::private(layout, on.pair(tokens?, shares?)?);
                    (Texts::Packed(rows), first)
                }
                (false, false) => (Texts::Packed(PackedRows::new(layout, lengths)?), first),
            };
            let placement = self.placement.clone();
            let (program, choices) = (self.program, self.choices);
            let mut pass = Pass::over(on, (program, choices), placement, known, self.bound)?;
            let columns = *pass.packed_columns().ok_or(PackingError::Mismatch)?;
            let vectors = packed(layout, &columns, &texts, (2.0 * self.bound, decodes));
            let vectors = vectors.into_iter().map(|slots| {
                let part = |f: fn(&Complex64) -> f64| on.vector(slots.iter().map(f).collect(), upload);
                on.pair(part(|z| z.re)?, part(|z| z.im)?)
            });
            let answer = pass.run(vectors.collect::<Result<_, FheError>>()?)?;
            let opened: Vec<Vec<Complex64>> = answer.vectors.iter().map(Vector::pairs).collect();
            let answers = pass.packed_answers().unwrap_or(&columns);
            let answers = unpack_packed(layout, answers, &ends, &opened)?;
            found.extend(answers.into_iter().take(chunk.len()));
        }
        Ok(found)
    }
}

/// The vectors of pairs of texts in packed rows, divided by `bound`; zeros elsewhere. `last`: texts end in the last
/// row, as a decoder reads them.
fn packed(layout: Layout, columns: &Spread, texts: &[Matrix<f64>], (bound, last): (f64, bool)) -> Vec<Vec<Complex64>> {
    let entry = |text: usize, row: usize, column: usize| {
        let x = texts.get(text)?;
        let before = if last { layout.rows().checked_sub(x.rows())? } else { 0 };
        let row = row.checked_sub(before).filter(|&row| row < x.rows())?;
        Some(x.row(row)[column] / bound)
    };
    let entry = |text, row, column| entry(text, row, column).unwrap_or(0.0);
    let vectors = 0..columns.vectors();
    vectors.map(|v| columns.pack(layout, v, entry)).collect()
}

/// The result of `run` for each text, `None` for one that leaves an interval: a refused batch is halved to find the
/// text.
///
/// # Errors
/// Those of `run`, except values that are too large for a refresh or wrap around.
pub(crate) fn those_within<T, R>(
    texts: &[T],
    run: &mut impl FnMut(&[T]) -> Result<Vec<R>, FheError>,
) -> Result<Vec<Option<R>>, FheError> {
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    match run(texts) {
        Ok(found) => Ok(found.into_iter().map(Some).collect()),
        Err(FheError::Range { .. } | FheError::Poly(PolyError::Overflow { .. })) => {
            if texts.len() == 1 {
                return Ok(vec![None]);
            }
            let (a, b) = texts.split_at(texts.len() / 2);
            let mut found = those_within(a, run)?;
            found.extend(those_within(b, run)?);
            Ok(found)
        }
        Err(other) => Err(other),
    }
}
