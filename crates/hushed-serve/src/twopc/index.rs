//! An index of documents as a file: made by an operator in the clear, served for private searches.
//!
//! A safetensors file with `vectors` (documents × width, f32, of length one), `records` (documents × bytes, u8, the
//! text that a search returns, padded with zeros) and `probe` (the embedding of [`PROBE`]), from which a server sees
//! whether an index was made with its model.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod fault;
mod record;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::path::Path;

use hushed_model::{Model, Task, TooLong};
use hushed_mpc::Index;
use hushed_mpc::index::{MAX_DOCUMENTS, MAX_RECORD_BYTES};
use rayon::prelude::*;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};

use crate::error::ServeError;
use crate::files;
pub use fault::IndexFault;
use fault::MAX_INDEX_BYTES;
pub use record::{Document, Record};

/// The text whose embedding tells one model from another.
const PROBE: &str = "hushed index 1";
/// The least cosine between two probes of one model, which may have been computed on different machines.
const SAME_MODEL: f64 = 1.0 - 1e-6;
const VECTORS: &str = "vectors";
const RECORDS: &str = "records";
const PROBE_NAME: &str = "probe";

/// An index in memory, as its file holds it.
#[derive(Clone)]
pub struct IndexFile {
    width: usize,
    record_bytes: usize,
    /// One row of length one per document.
    vectors: Vec<f32>,
    /// One row per document.
    records: Vec<u8>,
    probe: Vec<f32>,
}

impl IndexFile {
    /// An index without documents, with records of this many bytes; 0 keeps no records.
    ///
    /// # Errors
    /// [`IndexFault`]; the model's own errors.
    pub fn empty(model: &Model, record_bytes: usize) -> Result<IndexFile, ServeError> {
        if model.public.task() != Task::Embed {
            return Err(IndexFault::NoVectors.into());
        }
        if record_bytes > MAX_RECORD_BYTES {
            return Err(IndexFault::RecordBytes.into());
        }
        Ok(IndexFile {
            width: model.public.config.width,
            record_bytes,
            vectors: Vec::new(),
            records: Vec::new(),
            probe: vector(model, 0, PROBE)?,
        })
    }

    /// Adds documents, or texts alone: their vectors in the clear, and records with their ids, their metadata and as
    /// much of each text as fits. A text longer than the model accepts is embedded by its beginning. `each` is called
    /// after every document.
    ///
    /// # Errors
    /// [`IndexFault`]; the index is then as it was.
    pub fn add<D: Clone + Into<Document> + Sync>(
        &mut self,
        model: &Model,
        documents: &[D],
        each: impl Fn() + Sync,
    ) -> Result<(), ServeError> {
        let (documents, records) = self.written(model, documents)?;
        let first = self.documents();
        let one = |(i, document): (usize, &Document)| {
            let row = vector(model, first + i, &document.text);
            each();
            row
        };
        let rows: Result<Vec<_>, ServeError> = documents.par_iter().enumerate().map(one).collect();
        self.push(rows?, &records);
        Ok(())
    }

    /// Like [`IndexFile::add`], with embeddings that the same model computed elsewhere: a safetensors file whose tensor
    /// `vectors` (f32) has one row per document, of any length but zero. Nothing checks that they are this model's.
    ///
    /// # Errors
    /// [`ServeError::File`]; [`IndexFault`]; the index is then as it was.
    pub fn add_ready<D: Clone + Into<Document>>(
        &mut self,
        model: &Model,
        documents: &[D],
        path: &Path,
    ) -> Result<(), ServeError> {
        let (_, records) = self.written(model, documents)?;
        let bytes = files::read(path, MAX_INDEX_BYTES)?;
        let file = SafeTensors::deserialize(&bytes);
        let tensor = file.and_then(|file| file.tensor(VECTORS));
        let wanted = [documents.len(), self.width];
        let ready = tensor.ok().filter(|t| t.dtype() == Dtype::F32 && t.shape() == wanted);
        let ready = ready.ok_or_else(|| IndexFault::NotVectors {
            path: path.to_owned(),
            documents: documents.len(),
            width: self.width,
        })?;
        let (first, ready) = (self.documents(), numbers(&ready));
        let rows = ready.chunks_exact(self.width).enumerate().map(|(i, row)| {
            let row: Vec<f64> = row.iter().map(|v| f64::from(*v)).collect();
            unit(&row, f64::MIN_POSITIVE..f64::MAX).ok_or(IndexFault::Length(first + i))
        });
        let rows: Result<Vec<_>, IndexFault> = rows.collect();
        self.push(rows?, &records);
        Ok(())
    }

    /// The documents and their records, checked before any is embedded.
    fn written<D: Clone + Into<Document>>(
        &self,
        model: &Model,
        documents: &[D],
    ) -> Result<(Vec<Document>, Vec<String>), ServeError> {
        self.is_of(model)?;
        let all = self.documents() + documents.len();
        if all > MAX_DOCUMENTS {
            return Err(IndexFault::Documents(all).into());
        }
        let documents: Vec<Document> = documents.iter().cloned().map(D::into).collect();
        let mut ids: BTreeSet<String> = self.ids().flatten().collect();
        let mut records = Vec::with_capacity(documents.len());
        for (document, place) in documents.iter().zip(self.documents()..) {
            records.push(document.record(place, self.record_bytes)?);
            if let Some(id) = document.name()?
                && !ids.insert(id.clone())
            {
                return Err(IndexFault::SameId(id).into());
            }
        }
        Ok((documents, records))
    }

    fn push(&mut self, rows: Vec<Vec<f32>>, records: &[String]) {
        for (row, record) in rows.into_iter().zip(records) {
            self.vectors.extend(row);
            let end = self.records.len() + self.record_bytes;
            self.records.extend_from_slice(record.as_bytes());
            self.records.resize(end, 0);
        }
    }

    /// The id of every document that has one, in their order.
    fn ids(&self) -> impl Iterator<Item = Option<String>> {
        let records = self.records.chunks_exact(self.record_bytes.max(1)).map(String::from_utf8_lossy);
        records.map(|record| Record::parse(record.trim_end_matches('\0')).id)
    }

    /// The places of the documents with these ids.
    ///
    /// # Errors
    /// [`IndexFault::NoSuchId`].
    pub fn places(&self, ids: &[String]) -> Result<Vec<usize>, IndexFault> {
        let known: HashMap<String, usize> =
            self.ids().enumerate().filter_map(|(place, id)| Some((id?, place))).collect();
        let place = |id: &String| known.get(id).copied().ok_or_else(|| IndexFault::NoSuchId(id.clone()));
        ids.iter().map(place).collect()
    }

    /// Removes documents by their places; later ones move up.
    ///
    /// # Errors
    /// [`IndexFault::NoSuchPlace`]; the index is then as it was.
    pub fn remove(&mut self, places: &[usize]) -> Result<(), IndexFault> {
        let places: HashSet<usize> = places.iter().copied().collect();
        let documents = self.documents();
        if let Some(&place) = places.iter().find(|&&place| place >= documents) {
            return Err(IndexFault::NoSuchPlace { place, documents });
        }
        let kept = |place: &usize| !places.contains(place);
        let rows = |n: usize, width: usize| {
            let row = move |place| place * width..(place + 1) * width;
            (0..n).filter(kept).flat_map(row)
        };
        let (n, width, bytes) = (self.documents(), self.width, self.record_bytes);
        self.vectors = rows(n, width).filter_map(|i| self.vectors.get(i).copied()).collect();
        self.records = rows(n, bytes).filter_map(|i| self.records.get(i).copied()).collect();
        Ok(())
    }

    /// How many documents there are.
    #[must_use]
    pub fn documents(&self) -> usize {
        self.vectors.len() / self.width.max(1)
    }

    /// Size of each record in bytes; 0 if there are none.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// Reads an index.
    ///
    /// # Errors
    /// [`ServeError::File`]; [`IndexFault::NotAnIndex`].
    pub fn read(path: &Path) -> Result<IndexFile, ServeError> {
        Ok(Self::decode(&files::read(path, MAX_INDEX_BYTES)?)?)
    }

    fn decode(bytes: &[u8]) -> Result<IndexFile, IndexFault> {
        let broken = IndexFault::NotAnIndex;
        let tensors = SafeTensors::deserialize(bytes).map_err(|_| broken("its header or its length is wrong"))?;
        let tensor = |name, dtype| match tensors.tensor(name) {
            Ok(tensor) if tensor.dtype() == dtype => Ok(tensor),
            _ => Err(broken("a tensor is missing, or of another type")),
        };
        let vectors = tensor(VECTORS, Dtype::F32)?;
        let records = tensor(RECORDS, Dtype::U8)?;
        let probe = tensor(PROBE_NAME, Dtype::F32)?;
        let (&[n, width], &[rows, record_bytes], &[probed]) = (vectors.shape(), records.shape(), probe.shape()) else {
            return Err(broken("a tensor has another number of dimensions"));
        };
        if n != rows || width != probed || width == 0 || record_bytes > MAX_RECORD_BYTES {
            return Err(broken("its sizes contradict each other"));
        }
        if !(1..=MAX_DOCUMENTS).contains(&n) {
            return Err(IndexFault::Documents(n));
        }
        let index = IndexFile {
            width,
            record_bytes,
            vectors: numbers(&vectors),
            records: records.data().to_vec(),
            probe: numbers(&probe),
        };
        let length = |row: &[f32]| row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
        // A NaN is not near 1 either.
        let unit = |row: &[f32]| (length(row) - 1.0).abs() < 1e-3;
        let mut rows = index.vectors.chunks_exact(width);
        match rows.position(|row| !unit(row)) {
            Some(place) => Err(IndexFault::Length(place)),
            None => Ok(index),
        }
    }

    /// Writes the index, as a whole or not at all.
    ///
    /// # Errors
    /// [`ServeError::File`]; [`IndexFault::Documents`] if it is empty.
    pub fn write(&self, path: &Path) -> Result<(), ServeError> {
        files::write(path, &self.encode()?)
    }

    fn encode(&self) -> Result<Vec<u8>, IndexFault> {
        let n = self.documents();
        if n == 0 {
            return Err(IndexFault::Documents(n));
        }
        let bytes = |numbers: &[f32]| -> Vec<u8> { numbers.iter().flat_map(|v| v.to_le_bytes()).collect() };
        let (vectors, probe) = (bytes(&self.vectors), bytes(&self.probe));
        let tensors = [
            (VECTORS, Dtype::F32, vec![n, self.width], &vectors),
            (RECORDS, Dtype::U8, vec![n, self.record_bytes], &self.records),
            (PROBE_NAME, Dtype::F32, vec![self.width], &probe),
        ];
        let view = |(name, dtype, shape, data)| {
            let data: &Vec<u8> = data;
            Ok((name, TensorView::new(dtype, shape, data)?))
        };
        let views: Result<Vec<_>, safetensors::SafeTensorError> = tensors.into_iter().map(view).collect();
        let file = views.and_then(|views| serialize(views, None));
        let file = file.map_err(|_| IndexFault::NotAnIndex("its sizes contradict each other"))?;
        match file.len() as u64 <= MAX_INDEX_BYTES {
            true => Ok(file),
            false => Err(IndexFault::TooLarge),
        }
    }

    /// The documents in the form in which a server of this model searches them.
    ///
    /// # Errors
    /// [`IndexFault::OtherModel`].
    pub fn for_server(self, model: &Model) -> Result<Index, ServeError> {
        self.is_of(model)?;
        let records = (self.record_bytes, self.records.as_slice());
        Ok(Index::new(self.documents(), self.width, &self.vectors, records)?)
    }

    /// Checks that it was made with this model.
    fn is_of(&self, model: &Model) -> Result<(), ServeError> {
        if model.public.task() != Task::Embed {
            return Err(IndexFault::NoVectors.into());
        }
        let ours = vector(model, 0, PROBE)?;
        let products = ours.iter().zip(&self.probe);
        let cosine: f64 = products.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        match ours.len() == self.width && cosine >= SAME_MODEL {
            true => Ok(()),
            false => Err(IndexFault::OtherModel.into()),
        }
    }
}

/// A text's embedding, of length one.
fn vector(model: &Model, index: usize, text: &str) -> Result<Vec<f32>, ServeError> {
    let failed = |source| IndexFault::Document { index, source };
    let ids = model.tokens(text, TooLong::Cut).map_err(failed)?;
    let row = model.embed(vec![ids]).map_err(failed)?.pop();
    let row = row.unwrap_or_default();
    // A run computes √width/length in few bits, and takes lengths below 128 (`hushed_twopc::func::norm`).
    let shortest = (row.len() as f64).sqrt() / 48.0;
    Ok(unit(&row, shortest..100.0).ok_or(IndexFault::Length(index))?)
}

/// The row scaled to length one, if its length lies within `lengths`.
fn unit(row: &[f64], lengths: Range<f64>) -> Option<Vec<f32>> {
    let length = row.iter().map(|v| v * v).sum::<f64>().sqrt();
    let scaled = row.iter().map(|v| (v / length) as f32);
    lengths.contains(&length).then(|| scaled.collect())
}

/// The numbers of a tensor of f32.
fn numbers(tensor: &TensorView<'_>) -> Vec<f32> {
    let (words, _) = tensor.data().as_chunks::<4>();
    words.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

#[cfg(test)]
mod tests {
    use hushed_model::testing::tiny_model;

    use super::*;

    fn made(texts: &[&str], bytes: usize) -> IndexFile {
        let model = tiny_model();
        let mut index = IndexFile::empty(&model, bytes).unwrap();
        index.add(&model, texts, || ()).unwrap();
        index
    }

    #[test]
    fn an_index_is_read_as_it_was_written_and_changed_in_place() {
        let model = tiny_model();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        made(&["hello", "日本語", "the weather is lovely"], 7).write(&path).unwrap();
        let mut index = IndexFile::read(&path).unwrap();
        assert_eq!((index.documents(), index.record_bytes()), (3, 7));
        let records = |index: &IndexFile| {
            let rows = index.records.chunks_exact(7).map(String::from_utf8_lossy);
            rows.map(|r| r.trim_end_matches('\0').to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(records(&index), ["hello", "日本", "the wea"]);
        index.add(&model, &["a"], || ()).unwrap();
        assert!(matches!(index.remove(&[0, 99]), Err(IndexFault::NoSuchPlace { place: 99, documents: 4 })));
        index.remove(&[0, 2]).unwrap();
        assert_eq!(records(&index), ["日本", "a"]);
        let alone = made(&["日本語", "a"], 7);
        assert_eq!(index.vectors, alone.vectors);
        assert_eq!(index.for_server(&model).unwrap().documents(), 2);
    }

    /// Ids and metadata come with a document, and stay when others are removed.
    #[test]
    fn documents_are_known_by_their_ids() {
        let model = tiny_model();
        let document = |id: &str, text: &str| Document { id: Some(id.into()), ..Document::from(text) };
        let mut index = IndexFile::empty(&model, 40).unwrap();
        index.add(&model, &[document("a", "hello"), document("b", "world"), Document::from("no id")], || ()).unwrap();
        assert_eq!(index.places(&["b".to_owned(), "a".to_owned()]).unwrap(), [1, 0]);
        index.remove(&[0]).unwrap();
        assert_eq!(index.places(&["b".to_owned()]).unwrap(), [0]);
        assert!(matches!(index.places(&["a".to_owned()]), Err(IndexFault::NoSuchId(_))));
        let mut refused = |document: Document| {
            let error = index.add(&model, &[document], || ()).err().unwrap();
            assert_eq!((error.name(), index.documents()), ("index", 2));
        };
        refused(document("b", "again"));
        refused(document(&"long".repeat(10), "a"));
        assert!(IndexFile::empty(&model, 0).unwrap().add(&model, &[document("a", "a")], || ()).is_err());
    }

    #[test]
    fn embeddings_computed_elsewhere_make_the_same_index() {
        let model = tiny_model();
        let texts = ["hello", "日本語"];
        let alone = made(&texts, 7);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors.safetensors");
        let write = |rows: &[f32], shape: [usize; 2]| {
            let data: Vec<u8> = rows.iter().flat_map(|v| v.to_le_bytes()).collect();
            let view = TensorView::new(Dtype::F32, shape.to_vec(), &data).unwrap();
            std::fs::write(&path, serialize([(VECTORS, view)], None).unwrap()).unwrap();
        };
        let mut index = IndexFile::empty(&model, 7).unwrap();
        // Rows of a length other than one.
        let long: Vec<f32> = alone.vectors.iter().map(|v| v * 8.0).collect();
        write(&long, [2, alone.width]);
        index.add_ready(&model, &texts, &path).unwrap();
        assert_eq!(index.records, alone.records);
        let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6;
        assert!(index.vectors.iter().zip(&alone.vectors).all(near));
        // What does not fit changes nothing.
        let mut refused = |rows: &[f32], shape| {
            write(rows, shape);
            let fault = index.add_ready(&model, &texts, &path).err().unwrap();
            assert_eq!((fault.name(), index.documents()), ("index", 2));
        };
        refused(&long[alone.width..], [1, alone.width]);
        refused(&long, [alone.width, 2]);
        for bad in [0.0, f32::NAN, f32::INFINITY] {
            refused(&[&long[alone.width..], &vec![bad; alone.width]].concat(), [2, alone.width]);
        }
    }

    #[test]
    fn what_is_no_index_of_this_model_is_refused() {
        let bytes = made(&["hello", "a"], 5).encode().unwrap();
        assert!(IndexFile::decode(&bytes).is_ok());
        for cut in [0, 8, 40, bytes.len() - 1] {
            assert!(IndexFile::decode(&bytes[..cut]).is_err(), "{cut}");
        }
        let mut nan = made(&["hello", "a"], 0);
        nan.vectors[1] = f32::NAN;
        let fault = IndexFile::decode(&nan.encode().unwrap()).err();
        assert!(matches!(fault, Some(IndexFault::Length(0))));
        let mut other = made(&["hello"], 5);
        other.probe.reverse();
        let error = other.for_server(&tiny_model()).err().unwrap();
        assert_eq!(error.name(), "index");
        let model = tiny_model();
        assert!(IndexFile::empty(&model, 1 << 20).is_err());
        let empty = IndexFile::empty(&model, 5).unwrap();
        assert!(matches!(empty.encode(), Err(IndexFault::Documents(0))));
    }
}
