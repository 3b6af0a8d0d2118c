//! `model.safetensors`, or the files that an index lists, read one tensor at a time.
//!
//! Format: u64 little-endian n, n bytes of JSON `{name: {dtype, shape, data_offsets: [a, b]}}`, then the numbers,
//! little-endian and row-major, at `8 + n + a .. 8 + n + b`. The header is parsed by the `safetensors` crate, which
//! refuses gaps, overlaps and sizes that do not match shapes. The file is read at positions, not mapped: a mapped file
//! that shrinks would kill the process.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::error::{FolderError, Problem};
use crate::folder::json;
use crate::folder::shards::{INDEX, Index, MAX_INDEX};
use crate::folder::small::{link, read_small};

pub(crate) const WEIGHTS: &str = "model.safetensors";
/// In a folder with a head beside the layers, the tensors of the layers are under one of these.
const PREFIXES: [&str; 12] = [
    "bert.",
    "roberta.",
    "distilbert.",
    "electra.",
    "albert.",
    "transformer.",
    "model.",
    "vit.",
    "dinov2.",
    "vision_model.",
    "text_model.",
    "",
];
/// Ends of the name of a tensor that every model has, one of these per architecture. What is before it is the prefix.
const ANCHORS: [&str; 6] = [
    "embeddings.word_embeddings.weight",
    "wte.weight",
    "embed_tokens.weight",
    "embeddings.patch_embeddings.projection.weight",
    "embeddings.patch_embedding.weight",
    "embeddings.token_embedding.weight",
];
/// Headers of published models are below 1 MiB; the format's own limit is 100 MB.
const MAX_HEADER: u64 = 16 << 20;
/// Bytes per read, unless rows are longer: the bytes and their numbers fit in a second-level cache.
const CHUNK: usize = 1 << 18;

/// Bytes that can be read at a position: a file, or memory in tests.
pub(crate) trait ReadAt {
    fn len(&self) -> io::Result<u64>;
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, offset)
    }
}

impl ReadAt for &[u8] {
    fn len(&self) -> io::Result<u64> {
        Ok(<[u8]>::len(self) as u64)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(self.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// A model's tensors, in one file or in several.
pub(crate) struct Weights<R> {
    files: Vec<Checked<R>>,
    /// Which file holds which tensor, if there are several.
    index: Option<Index>,
    /// What a program that wrapped the model put before every name (`module.`, `_orig_mod.`, `0.auto_model.`).
    wrapped: String,
    /// Names are looked up as they are.
    exact: bool,
}

/// A weights file with a checked header.
struct Checked<R> {
    name: String,
    file: R,
    data_start: u64,
    header: Metadata,
}

/// The weights files of a folder, sorted by name: those that its index lists, or the only one.
///
/// # Errors
/// [`FolderError`] if there are none, or the index is invalid.
pub fn weight_files(folder: &Path) -> Result<Vec<PathBuf>, FolderError> {
    let mut problems = Vec::new();
    match files(folder, &mut problems) {
        Some((names, _)) => Ok(names.into_iter().map(|name| folder.join(name)).collect()),
        None => Err(FolderError { folder: folder.to_owned(), problems }),
    }
}

/// The names of the files, and the index if there is one; `None` if and only if a problem was added.
fn files(folder: &Path, problems: &mut Vec<Problem>) -> Option<(Vec<String>, Option<Index>)> {
    if let Some(target) = link(&folder.join(WEIGHTS)) {
        let file = WEIGHTS.to_owned();
        problems.push(Problem::BrokenLink { file, target });
        return None;
    }
    if folder.join(WEIGHTS).is_file() {
        return Some((vec![WEIGHTS.to_owned()], None));
    }
    match read_small(&folder.join(INDEX), INDEX, MAX_INDEX) {
        Ok(Some(bytes)) => {
            let index = Index::parse(&bytes, problems)?;
            let names = index.files().into_iter().map(str::to_owned).collect();
            Some((names, Some(index)))
        }
        Ok(None) => {
            let hint = if folder.join("pytorch_model.bin").is_file() {
                "only safetensors are read, never pickles; save the model with `safe_serialization=True`"
            } else {
                "the weights have to be safetensors, in one file or in those that model.safetensors.index.json lists"
            };
            problems.push(Problem::MissingFile { file: WEIGHTS.to_owned(), hint });
            None
        }
        Err(problem) => {
            problems.push(problem);
            None
        }
    }
}

impl Weights<File> {
    /// Opens the weights of a folder; `None` if and only if a problem was added.
    pub(crate) fn open(folder: &Path, problems: &mut Vec<Problem>) -> Option<Weights<File>> {
        let before = problems.len();
        let (names, index) = files(folder, problems)?;
        let mut files = Vec::with_capacity(names.len());
        for name in names {
            let path = folder.join(&name);
            // A named pipe would block forever.
            let opened = match (link(&path), path.is_file()) {
                (Some(target), _) => Err(Problem::BrokenLink { file: name.clone(), target }),
                (None, true) => File::open(path).map_err(|source| unreadable(&name, source)),
                (None, false) => Err(Problem::MissingFile {
                    file: name.clone(),
                    hint: "model.safetensors.index.json names it; fetch all files of the model",
                }),
            };
            match opened.and_then(|file| Checked::new(file, name)) {
                Ok(file) => files.push(file),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.len() > before {
            return None;
        }
        match Weights::unwrapped(files, index) {
            Ok(weights) => Some(weights),
            Err(problem) => {
                problems.push(problem);
                None
            }
        }
    }

    /// Size and time of the last write of each file.
    pub(crate) fn written(&self) -> Result<Vec<Written>, Problem> {
        let written = |checked: &Checked<File>| {
            let found = checked.file.metadata();
            let found = found.and_then(|found| Ok((found.len(), found.modified()?)));
            found.map_err(|source| unreadable(&checked.name, source))
        };
        self.files.iter().map(written).collect()
    }

    /// Checks that no file was written since `before`.
    pub(crate) fn unchanged(&self, before: &[Written]) -> Result<(), Problem> {
        let now = self.written()?;
        let mut files = self.files.iter().zip(now.iter().zip(before));
        match files.find(|(_, (now, before))| now != before) {
            Some((checked, _)) => Err(Problem::Changed { file: checked.name.clone() }),
            None => Ok(()),
        }
    }
}

/// Size and time of the last write of a file.
pub(crate) type Written = (u64, SystemTime);

fn unreadable(file: &str, source: io::Error) -> Problem {
    let file = file.to_owned();
    Problem::Unreadable { file, source }
}

/// An object in which no name occurs twice.
struct DistinctNames;

impl<'de> Deserialize<'de> for DistinctNames {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = DistinctNames;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DistinctNames, A::Error> {
                let mut seen = HashSet::new();
                while let Some((name, _)) = map.next_entry::<String, IgnoredAny>()? {
                    if !seen.insert(name) {
                        return Err(de::Error::custom("the same name twice"));
                    }
                }
                Ok(DistinctNames)
            }
        }
        from.deserialize_map(Names)
    }
}

impl<R: ReadAt> Checked<R> {
    /// Reads and checks the header. After that, every tensor lies inside the file.
    fn new(file: R, name: String) -> Result<Checked<R>, Problem> {
        let unreadable = |source| unreadable(&name, source);
        let bytes = file.len().map_err(unreadable)?;
        let mut length = [0; 8];
        if bytes < 8 {
            let file = name;
            let needed = 8;
            return Err(Problem::TruncatedHeader { file, bytes, needed });
        }
        file.read_exact_at(&mut length, 0).map_err(unreadable)?;
        let length = u64::from_le_bytes(length);
        let mut start = vec![0; bytes.min(64) as usize];
        file.read_exact_at(&mut start, 0).map_err(unreadable)?;
        if let Some(found) = json::in_its_place(&start) {
            return Err(Problem::InItsPlace { file: name, found });
        }
        if length > MAX_HEADER {
            return Err(Problem::TooLarge { file: format!("{name} (its header)"), bytes: length, limit: MAX_HEADER });
        }
        let data_start = length + 8;
        if bytes < data_start {
            return Err(Problem::TruncatedHeader { file: name, bytes, needed: data_start });
        }
        let mut text = vec![0; length as usize];
        file.read_exact_at(&mut text, 8).map_err(unreadable)?;
        let header = serde_json::from_slice(&text).and_then(|header: Metadata| {
            // Of two entries for one name, readers differ in which they take.
            serde_json::from_slice::<DistinctNames>(&text).map(|_| header)
        });
        let header = header.map_err(|e| Problem::Header {
            file: name.clone(),
            source: safetensors::SafeTensorError::InvalidHeaderDeserialization(e),
        })?;
        let (declared, found) = (header.data_len() as u64, bytes - data_start);
        if declared != found {
            return Err(Problem::DataLength { file: name, declared, found });
        }
        Ok(Checked { name, file, data_start, header })
    }
}

impl<R: ReadAt> Weights<R> {
    /// One file with all tensors.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn new(file: R) -> Result<Weights<R>, Problem> {
        Weights::unwrapped(vec![Checked::new(file, WEIGHTS.to_owned())?], None)
    }

    /// Finds what a program that wrapped the model put before every name.
    fn unwrapped(files: Vec<Checked<R>>, index: Option<Index>) -> Result<Weights<R>, Problem> {
        let mut found = BTreeSet::new();
        for name in files.iter().flat_map(|checked| checked.header.offset_keys()) {
            found.extend(ANCHORS.iter().filter_map(|end| name.strip_suffix(end)).map(str::to_owned));
        }
        let known = |prefix: &String| PREFIXES.contains(&prefix.as_str());
        let wrapped = match found.iter().collect::<Vec<_>>().as_slice() {
            found if found.is_empty() || found.iter().any(|prefix| known(prefix)) => String::new(),
            [only] => {
                let mut inner = PREFIXES.iter().filter(|prefix| !prefix.is_empty());
                let outer = inner.find_map(|prefix| only.strip_suffix(prefix));
                outer.unwrap_or(only).to_owned()
            }
            several => {
                let shown = |prefix: &&String| prefix.chars().filter(|c| !c.is_control()).take(60).collect();
                let prefixes: Vec<String> = several.iter().take(4).map(shown).collect();
                let prefixes = prefixes.join(", ");
                return Err(Problem::Prefixes { prefixes });
            }
        };
        Ok(Weights { files, index, wrapped, exact: false })
    }

    /// The same with names looked up as they are, instead of under any of the names that folders of transformers use.
    pub(crate) fn exact(self) -> Weights<R> {
        Weights { exact: true, ..self }
    }

    /// The names of all tensors.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.files.iter().flat_map(|checked| checked.header.offset_keys())
    }

    /// The file that has the tensor of exactly this name, and its entry in the header.
    fn info(&self, name: &str) -> Option<(&Checked<R>, &TensorInfo)> {
        let file = match &self.index {
            None => self.files.first()?,
            Some(index) => {
                let file = index.of(name)?;
                self.files.iter().find(|checked| checked.name == file)?
            }
        };
        Some((file, file.header.info(name)?))
    }

    /// The tensor called `name`, under any of the names that folders use for it.
    fn find(&self, name: &str) -> Option<(&Checked<R>, &TensorInfo)> {
        if self.exact {
            return self.info(name);
        }
        // Older exports call a norm's gain and offset gamma and beta, and models with a head put the encoder under
        // `bert.` or a similar prefix.
        let old = name.strip_suffix("LayerNorm.weight").map(|n| format!("{n}LayerNorm.gamma"));
        let old = old.or_else(|| name.strip_suffix("LayerNorm.bias").map(|n| format!("{n}LayerNorm.beta")));
        let names = [Some(name.to_owned()), old].into_iter().flatten();
        names.flat_map(|n| PREFIXES.map(|prefix| format!("{}{prefix}{n}", self.wrapped))).find_map(|n| self.info(&n))
    }

    /// Checks that the tensor exists with this shape and a readable type.
    pub(crate) fn check(&self, name: &str, shape: &[usize]) -> Result<(), Problem> {
        self.place(name, shape).map(|_| ())
    }

    /// The type of a tensor's numbers; `None` if the tensor is missing.
    pub(crate) fn dtype(&self, name: &str) -> Option<Dtype> {
        self.find(name).map(|(_, info)| info.dtype)
    }

    /// The file of a tensor of this shape, and its entry in the header.
    fn shaped(&self, name: &str, shape: &[usize]) -> Result<(&Checked<R>, &TensorInfo), Problem> {
        let (file, info) = self.find(name).ok_or_else(|| Problem::MissingTensor { name: name.to_owned() })?;
        if info.shape != shape {
            return Err(Problem::WrongShape {
                name: name.to_owned(),
                found: info.shape.clone(),
                expected: shape.to_vec(),
            });
        }
        Ok((file, info))
    }

    /// The bytes of a tensor of this shape, one per number.
    pub(crate) fn read_bytes(&self, name: &str, shape: &[usize]) -> Result<Vec<u8>, Problem> {
        let (file, info) = self.shaped(name, shape)?;
        if info.dtype != Dtype::U8 {
            return Err(Problem::WrongNumbers { name: name.to_owned(), found: format!("{:?}", info.dtype) });
        }
        let (start, end) = info.data_offsets;
        // The header has been checked: the tensor lies inside the file.
        let mut bytes = vec![0; end - start];
        file.file
            .read_exact_at(&mut bytes, file.data_start + start as u64)
            .map_err(|source| unreadable(&file.name, source))?;
        Ok(bytes)
    }

    fn place(&self, name: &str, shape: &[usize]) -> Result<Place<'_, R>, Problem> {
        let (file, info) = self.shaped(name, shape)?;
        let numbers = match info.dtype {
            Dtype::F32 => Numbers::F32,
            Dtype::F16 => Numbers::F16,
            Dtype::BF16 => Numbers::Bf16,
            other => {
                return Err(Problem::WrongNumbers { name: name.to_owned(), found: format!("{other:?}") });
            }
        };
        Ok((file, info, numbers))
    }

    /// The numbers of a tensor of this shape, as f32.
    pub(crate) fn read(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Problem> {
        let (_, info, numbers) = self.place(name, shape)?;
        let (start, end) = info.data_offsets;
        let mut values = Vec::with_capacity((end - start) / numbers.bytes());
        self.each(name, shape, |part| values.extend_from_slice(part))?;
        Ok(values)
    }

    /// The same in order, some rows (of the first dimension) at a time, always whole rows. Rows before a number that is
    /// not finite have been visited by the time it is refused.
    pub(crate) fn each(&self, name: &str, shape: &[usize], mut visit: impl FnMut(&[f32])) -> Result<(), Problem> {
        let (file, info, numbers) = self.place(name, shape)?;
        let (start, end) = info.data_offsets;
        let row = (end - start) / shape.first().copied().unwrap_or(1).max(1);
        let together = (CHUNK / row.max(1)).max(1) * row.max(1);
        let mut buffer = vec![0; together.min(end - start)];
        let mut values = Vec::with_capacity(buffer.len() / numbers.bytes());
        for at in (start..end).step_by(together) {
            let part = buffer.get_mut(..together.min(end - at)).unwrap_or_default();
            file.file
                .read_exact_at(part, file.data_start + at as u64)
                .map_err(|source| unreadable(&file.name, source))?;
            values.clear();
            numbers.extend(&mut values, part);
            // No early exit, so that eight numbers are checked at a time.
            let finite = values.iter().fold(true, |all, v: &f32| all & v.is_finite());
            if !finite {
                return Err(Problem::NotFinite { name: name.to_owned() });
            }
            visit(&values);
        }
        Ok(())
    }
}

/// A tensor's file, its entry in the header, and how its numbers are stored.
type Place<'a, R> = (&'a Checked<R>, &'a TensorInfo, Numbers);

/// How numbers are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Numbers {
    F32,
    F16,
    Bf16,
}

impl Numbers {
    fn bytes(self) -> usize {
        match self {
            Numbers::F32 => 4,
            Numbers::F16 | Numbers::Bf16 => 2,
        }
    }

    fn extend(self, values: &mut Vec<f32>, bytes: &[u8]) {
        let halves = || bytes.as_chunks::<2>().0.iter().map(|&b| u16::from_le_bytes(b));
        match self {
            Numbers::F32 => values.extend(bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b))),
            Numbers::F16 => values.extend(halves().map(half)),
            Numbers::Bf16 => values.extend(halves().map(|h| f32::from_bits(u32::from(h) << 16))),
        }
    }
}

/// Converts IEEE binary16 to f32 exactly; computes all cases, so that a loop handles several at a time.
fn half(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let (exponent, fraction) = (u32::from(bits >> 10 & 31), u32::from(bits & 1023));
    let below = (fraction as f32 * 2f32.powi(-24)).to_bits();
    let normal = (exponent + 127 - 15) << 23 | fraction << 13;
    let magnitude = match exponent {
        0 => below,
        31 => normal | 0x7f80_0000,
        _ => normal,
    };
    f32::from_bits(sign | magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_exact() {
        let cases = [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 2f32.powi(-24)),
            (0x03ff, 1023.0 * 2f32.powi(-24)),
            (0x0400, 2f32.powi(-14)),
            (0x3555, 0.333_251_95),
            (0x7c00, f32::INFINITY),
        ];
        for (bits, value) in cases {
            assert_eq!(half(bits), value, "{bits:#06x}");
        }
        assert!(half(0x7e00).is_nan() && half(0x8000).is_sign_negative());
    }

    /// A file with this header and data.
    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
    }

    fn open(bytes: &[u8]) -> Result<Weights<&[u8]>, Problem> {
        Weights::new(bytes)
    }

    #[test]
    fn reads_what_the_header_says() {
        let header = r#"{"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"bert.x.LayerNorm.gamma":{"dtype":"BF16","shape":[1],"data_offsets":[8,10]}}"#;
        let data = [1.5f32.to_le_bytes(), (-2f32).to_le_bytes()].concat();
        let bytes = file(header, &[&data[..], &[0x40, 0x40]].concat());
        let weights = open(&bytes).ok().unwrap();
        assert_eq!(weights.read("a", &[1, 2]).ok(), Some(vec![1.5, -2.0]));
        assert_eq!(weights.read("x.LayerNorm.weight", &[1]).ok(), Some(vec![3.0]));
        assert!(matches!(weights.read("a", &[2, 1]), Err(Problem::WrongShape { .. })));
        assert!(matches!(weights.read("b", &[1]), Err(Problem::MissingTensor { .. })));
    }

    #[test]
    fn hostile_headers() {
        let tensor = |range: &str, shape: &str, dtype: &str| {
            format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":{range}}}"#)
        };
        let two = |a: &str, b: &str| format!(r#"{{"a":{a},"b":{b}}}"#);
        let overlap = two(&tensor("[0,8]", "[2]", "F32"), &tensor("[4,12]", "[2]", "F32"));
        assert!(matches!(open(&file(&overlap, &[0; 12])), Err(Problem::Header { .. })));
        let gap = two(&tensor("[0,8]", "[2]", "F32"), &tensor("[12,20]", "[2]", "F32"));
        assert!(matches!(open(&file(&gap, &[0; 20])), Err(Problem::Header { .. })));
        let oversized = format!(r#"{{"a":{}}}"#, tensor("[0,8]", "[18446744073709551615,2]", "F32"));
        assert!(matches!(open(&file(&oversized, &[0; 8])), Err(Problem::Header { .. })));
        let backwards = format!(r#"{{"a":{}}}"#, tensor("[8,0]", "[2]", "F32"));
        assert!(matches!(open(&file(&backwards, &[0; 8])), Err(Problem::Header { .. })));
        let truncated = format!(r#"{{"a":{}}}"#, tensor("[0,8]", "[2]", "F32"));
        assert!(matches!(open(&file(&truncated, &[0; 7])), Err(Problem::DataLength { declared: 8, found: 7, .. })));
        assert!(matches!(open(&file(&truncated, &[0; 9])), Err(Problem::DataLength { declared: 8, found: 9, .. })));
        assert!(matches!(open(&[0; 7]), Err(Problem::TruncatedHeader { bytes: 7, needed: 8, .. })));
        assert!(matches!(
            open(&[&100u64.to_le_bytes()[..], b"{}"].concat()),
            Err(Problem::TruncatedHeader { needed: 108, .. })
        ));
        assert!(matches!(open(&[0xff; 64]), Err(Problem::TooLarge { .. })));
        assert!(matches!(open(&file("{\"a\":", &[])), Err(Problem::Header { .. })));
        assert!(matches!(open(&file("\u{feff}{}", &[])), Err(Problem::Header { .. })));
    }

    #[test]
    fn types_and_values_that_are_refused() {
        let header = |dtype: &str, bytes: usize| {
            format!(r#"{{"a":{{"dtype":"{dtype}","shape":[2],"data_offsets":[0,{bytes}]}}}}"#)
        };
        let bytes = file(&header("F64", 16), &[0; 16]);
        assert!(matches!(open(&bytes).and_then(|w| w.read("a", &[2])), Err(Problem::WrongNumbers { .. })));
        let bytes = file(&header("F16", 4), &[0, 0, 0, 0x7c]);
        assert!(matches!(open(&bytes).and_then(|w| w.read("a", &[2])), Err(Problem::NotFinite { .. })));
    }

    #[test]
    fn long_tensors_come_in_whole_rows_in_their_order() {
        let (rows, columns) = (3, CHUNK / 8);
        let numbers: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
        let data: Vec<u8> = numbers.iter().flat_map(|v| v.to_le_bytes()).collect();
        let header =
            format!(r#"{{"a":{{"dtype":"F32","shape":[{rows},{columns}],"data_offsets":[0,{}]}}}}"#, data.len());
        let bytes = file(&header, &data);
        let weights = open(&bytes).ok().unwrap();
        let mut parts = Vec::new();
        let seen = weights.each("a", &[rows, columns], |part| parts.push(part.to_vec()));
        assert!(seen.is_ok() && parts.concat() == numbers);
        let lengths: Vec<usize> = parts.iter().map(Vec::len).collect();
        assert_eq!(lengths, [2 * columns, columns]);
        assert_eq!(weights.read("a", &[rows, columns]).ok(), Some(numbers));
    }

    #[test]
    fn a_file_that_shrinks_is_an_error() {
        let bytes = file(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, &[0; 8]);
        let mut weights = open(&bytes).ok().unwrap();
        weights.files[0].file = &bytes[..bytes.len() - 1];
        assert!(matches!(weights.read("a", &[2]), Err(Problem::Unreadable { .. })));
    }
}
