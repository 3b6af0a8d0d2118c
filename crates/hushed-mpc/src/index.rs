//! The documents of a private search: the server holds their vectors and records, the client knows how many there are.

use hushed_twopc::TwopcError;
use hushed_twopc::he::{LinearShape, OltShape, PreparedWeights, largest};

use crate::RunError;
use crate::formats::{COSINE, RECORD, RECORD_BITS, UNIT};

/// The most documents of an index: their numbers fit the ring of a tournament.
pub const MAX_DOCUMENTS: usize = 1 << COSINE.ring.bits();
/// The most bytes of a record.
pub const MAX_RECORD_BYTES: usize = 4096;

/// A vector's numbers are at most 2^17, just above 1.
const VECTOR_BITS: u32 = UNIT.frac + 1;
/// Bytes of a record in one number of the lookup.
const BYTES: usize = RECORD.bits() as usize / 8;

/// The documents, as one party of a search has them.
pub struct Index {
    documents: usize,
    width: usize,
    record_bytes: usize,
    /// At the server.
    vectors: Option<PreparedWeights>,
    /// At the server, where there are records.
    records: Option<PreparedWeights>,
}

/// Text as numbers: three bytes each, the first one lowest, zeros after the end.
pub(crate) struct RecordText;

impl Index {
    /// The client's view: the number of documents, the numbers per vector and the length of every record.
    pub fn shape(documents: usize, width: usize, record_bytes: usize) -> Result<Index, RunError> {
        let fits = (1..=MAX_DOCUMENTS).contains(&documents) && record_bytes <= MAX_RECORD_BYTES;
        match fits && width > 0 {
            true => Ok(Index { documents, width, record_bytes, vectors: None, records: None }),
            false => Err(RunError::Unsupported { site: "the index".to_owned(), what: "an index of this size" }),
        }
    }

    /// The server's view: one vector of length one per document, documents × width, and one record of `record_bytes`
    /// bytes each, padded with zeros (0 bytes: documents are known only by their indices).
    ///
    /// # Errors
    /// [`RunError::Unsupported`] if a size is out of range or does not match the numbers, or a number is beyond ±1.
    pub fn new(
        documents: usize,
        width: usize,
        vectors: &[f32],
        (record_bytes, records): (usize, &[u8]),
    ) -> Result<Index, RunError> {
        let index = Index::shape(documents, width, record_bytes)?;
        let one = f64::from(1u32 << UNIT.frac);
        // NaN fails this too.
        let within = |v: &f32| v.abs() <= 1.001;
        let sizes = documents.checked_mul(width).zip(documents.checked_mul(record_bytes));
        if sizes != Some((vectors.len(), records.len())) || !vectors.iter().all(within) {
            return Err(RunError::Unsupported {
                site: "the index".to_owned(),
                what: "vectors or records that do not fit its sizes",
            });
        }
        let integers = vectors.iter().map(|&v| (f64::from(v) * one).round() as i32);
        let integers: Vec<i32> = integers.collect();
        let largest = largest(&integers);
        let vectors = PreparedWeights::transposed(width, documents, VECTOR_BITS, largest, integers);
        let columns = index.record_columns();
        let records = match columns {
            0 => None,
            _ => {
                let row = |row: &[u8]| row.chunks(BYTES).map(number).collect::<Vec<i32>>();
                let rows = records.chunks_exact(record_bytes).flat_map(row).collect();
                let records = PreparedWeights::new(documents, columns, RECORD_BITS, rows);
                Some(records.map_err(TwopcError::from)?)
            }
        };
        Ok(Index { vectors: Some(vectors.map_err(TwopcError::from)?), records, ..index })
    }

    /// The number of documents.
    pub fn documents(&self) -> usize {
        self.documents
    }

    /// The numbers per vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The bytes of every record; 0 if there are none.
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// The bytes that the server's numbers take.
    pub fn bytes(&self) -> u64 {
        (self.documents * (self.width + self.record_columns()) * size_of::<i32>()) as u64
    }

    /// Whether documents have records.
    pub fn has_records(&self) -> bool {
        self.record_bytes > 0
    }

    /// The numbers per record in the lookup.
    pub(crate) fn record_columns(&self) -> usize {
        self.record_bytes.div_ceil(BYTES)
    }

    /// The shape of the product with its vectors.
    pub(crate) fn vectors_shape(&self) -> LinearShape {
        LinearShape { shape: OltShape { k: 1, m: self.width, n: self.documents }, weight_bits: VECTOR_BITS }
    }

    /// The shape of the product of this many one-hot rows with its records.
    pub(crate) fn records_shape(&self, places: usize) -> LinearShape {
        LinearShape {
            shape: OltShape { k: places, m: self.documents, n: self.record_columns() },
            weight_bits: RECORD_BITS,
        }
    }

    pub(crate) fn vectors(&self) -> &Option<PreparedWeights> {
        &self.vectors
    }

    pub(crate) fn records(&self) -> &Option<PreparedWeights> {
        &self.records
    }
}

/// Packs bytes into a number with its guard bits.
fn number(bytes: &[u8]) -> i32 {
    let number = bytes.iter().rev().fold(0, |n, &b| n << 8 | i32::from(b));
    number << (RECORD_BITS - RECORD.bits())
}

impl RecordText {
    /// The text of a row of opened numbers. Invalid UTF-8 is replaced, as the server made it.
    pub(crate) fn of_words(words: &[u64]) -> String {
        let bytes = words.iter().flat_map(|w| w.to_le_bytes().into_iter().take(BYTES));
        let mut bytes: Vec<u8> = bytes.collect();
        let end = bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
        bytes.truncate(end);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
