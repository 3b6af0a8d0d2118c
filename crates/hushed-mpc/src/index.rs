//! The documents that a private search goes through: at the server their vectors and records, at the client how many
//! there are.

use hushed_twopc::TwopcError;
use hushed_twopc::he::{LinearShape, OltShape, PreparedWeights, largest};

use crate::RunError;
use crate::formats::{COSINE, RECORD, RECORD_BITS, UNIT};

/// Most documents of an index: their numbers fit the ring of a tournament.
pub const MAX_DOCUMENTS: usize = 1 << COSINE.ring.bits();
/// Most bytes of a record.
pub const MAX_RECORD_BYTES: usize = 4096;

/// Numbers of vectors are at most 2^17: just above 1.
const VECTOR_BITS: u32 = UNIT.frac + 1;
/// Bytes of a record in one number of the lookup.
const BYTES: usize = RECORD.bits() as usize / 8;

/// The documents as a party of a search has them.
pub struct Index {
    documents: usize,
    width: usize,
    record_bytes: usize,
    /// At the server.
    vectors: Option<PreparedWeights>,
    /// At the server, where there are records.
    records: Option<PreparedWeights>,
}

/// Text in numbers: three bytes each, the first lowest, zeros behind the end.
pub(crate) struct RecordText;

impl Index {
    /// What a client knows: how many documents there are, of how many numbers, and how long every record is.
    pub fn shape(documents: usize, width: usize, record_bytes: usize) -> Result<Index, RunError> {
        let fits = (1..=MAX_DOCUMENTS).contains(&documents) && record_bytes <= MAX_RECORD_BYTES;
        match fits && width > 0 {
            true => Ok(Index {
                documents,
                width,
                record_bytes,
                vectors: None,
                records: None,
            }),
            false => Err(RunError::Unsupported {
                site: "the index".to_owned(),
                what: "an index of this size",
            }),
        }
    }

    /// What the server has: a vector of length one a document, documents × width, and a record of `record_bytes` bytes
    /// each, filled up with zeros (none: documents are known by their places alone).
    ///
    /// # Errors
    /// [`RunError::Unsupported`] for a size that is out of range or does not fit the numbers, and for numbers beyond
    /// ±1.
    pub fn new(
        documents: usize,
        width: usize,
        vectors: &[f32],
        (record_bytes, records): (usize, &[u8]),
    ) -> Result<Index, RunError> {
        let index = Index::shape(documents, width, record_bytes)?;
        let one = f64::from(1u32 << UNIT.frac);
        // Not a number is not within either.
        let within = |v: &f32| v.abs() <= 1.001;
        let sizes = documents
            .checked_mul(width)
            .zip(documents.checked_mul(record_bytes));
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
        Ok(Index {
            vectors: Some(vectors.map_err(TwopcError::from)?),
            records,
            ..index
        })
    }

    /// How many documents there are.
    pub fn documents(&self) -> usize {
        self.documents
    }

    /// Numbers of a vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Bytes of every record; 0 where there are none.
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// Bytes that the server's numbers take.
    pub fn bytes(&self) -> u64 {
        (self.documents * (self.width + self.record_columns()) * size_of::<i32>()) as u64
    }

    /// Whether documents have records.
    pub fn has_records(&self) -> bool {
        self.record_bytes > 0
    }

    /// Numbers of a record in the lookup.
    pub(crate) fn record_columns(&self) -> usize {
        self.record_bytes.div_ceil(BYTES)
    }

    /// The product with its vectors.
    pub(crate) fn vectors_shape(&self) -> LinearShape {
        LinearShape {
            shape: OltShape {
                k: 1,
                m: self.width,
                n: self.documents,
            },
            weight_bits: VECTOR_BITS,
        }
    }

    /// The product of the one-hot rows of so many places with its records.
    pub(crate) fn records_shape(&self, places: usize) -> LinearShape {
        LinearShape {
            shape: OltShape {
                k: places,
                m: self.documents,
                n: self.record_columns(),
            },
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

/// Bytes as a number with its guard bits.
fn number(bytes: &[u8]) -> i32 {
    let number = bytes.iter().rev().fold(0, |n, &b| n << 8 | i32::from(b));
    number << (RECORD_BITS - RECORD.bits())
}

impl RecordText {
    /// The text of a row of opened numbers. What is no UTF-8 is replaced: the server made it.
    pub(crate) fn of_words(words: &[u64]) -> String {
        let bytes = words
            .iter()
            .flat_map(|w| w.to_le_bytes().into_iter().take(BYTES));
        let mut bytes: Vec<u8> = bytes.collect();
        let end = bytes
            .iter()
            .rposition(|&b| b != 0)
            .map_or(0, |last| last + 1);
        bytes.truncate(end);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
