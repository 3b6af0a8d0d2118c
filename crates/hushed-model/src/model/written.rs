//! Writes random weights to a folder, for code that reads them from disk.

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::{Map, json};

use crate::arch::{self, config::NetworkConfig};
use crate::blocks::Pool;
use crate::folder::weights::WEIGHTS;
use crate::layers::{Random, Source};

/// Writes the numbers of [`Random`], rounded to bf16, as `model.safetensors`, and nothing else.
pub(super) fn write(config: &NetworkConfig, seed: u64, folder: &Path) -> io::Result<()> {
    let mut shapes = Shapes(Vec::new());
    let Ok(_) = arch::body(config, Pool::Last, &mut shapes);
    let (mut header, mut at) = (Map::new(), 0);
    for (name, shape) in shapes.0 {
        let end = at + 2 * shape.iter().product::<usize>();
        let tensor = json!({ "dtype": "BF16", "shape": shape, "data_offsets": [at, end] });
        header.insert(name, tensor);
        at = end;
    }
    let header = json!(header).to_string();
    fs::create_dir_all(folder)?;
    let mut out = BufWriter::new(File::create(folder.join(WEIGHTS))?);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    let random = Random::new(seed);
    let mut written = Written { random, out };
    arch::body(config, Pool::Last, &mut written)?;
    written.out.flush()
}

/// Names and shapes, in the order of the requests.
struct Shapes(Vec<(String, Vec<usize>)>);

impl Source for Shapes {
    type Error = Infallible;

    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Option<Vec<f32>>, Infallible> {
        self.0.push((name.to_owned(), shape.to_vec()));
        Ok(None)
    }
}

/// Writes each requested tensor and keeps none.
struct Written<W> {
    random: Random,
    out: W,
}

impl<W: Write> Source for Written<W> {
    type Error = io::Error;

    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Option<Vec<f32>>, io::Error> {
        let numbers = self.random.numbers(name, shape);
        let bytes: Vec<u8> = numbers.iter().flat_map(|&v| bf16(v)).collect();
        self.out.write_all(&bytes)?;
        Ok(None)
    }
}

/// Rounds to nearest, ties to even; for numbers far from the largest.
fn bf16(v: f32) -> [u8; 2] {
    let bits = v.to_bits();
    let rounded = bits + 0x7fff + (bits >> 16 & 1);
    ((rounded >> 16) as u16).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::bf16;

    #[test]
    fn roundings() {
        let read = |v: f32| f32::from_bits(u32::from(u16::from_le_bytes(bf16(v))) << 16);
        assert_eq!([1.0, -0.5, 0.0].map(read), [1.0, -0.5, 0.0]);
        // Eight significant bits: 257 and 259 are ties.
        assert_eq!([257.0, 259.0, 257.1].map(read), [256.0, 260.0, 258.0]);
    }
}
