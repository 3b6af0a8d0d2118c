//! Resampling exactly as Pillow up to version 12 does it for 8-bit images, because the processors of published models
//! use Pillow. It is separable, columns first, with each pass rounded to 8 bits. When reducing, the filter is stretched
//! by the reduction factor, so that every pixel of the image counts, unlike in the *bilinear* of most libraries.
//! (Pillow 13 does the rows first where that is faster, mostly in tall images; single values then differ by one level.)
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

/// How an image is resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resample {
    /// Pillow's `BILINEAR`.
    Bilinear,
    /// Pillow's `BICUBIC`.
    Bicubic,
}

/// An 8-bit RGB image, row by row.
pub(super) struct Rgb {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) bytes: Vec<u8>,
}

const CHANNELS: usize = 3;
/// Fraction bits of a coefficient.
const FRAC: u32 = 22;

/// What one output pixel reads: the first input pixel, and the coefficients of it and of those after it.
struct Reads {
    first: usize,
    coefficients: Vec<i32>,
}

/// The middle, `side` × `side` pixels, of what an image is when resized to this width and height, neither of them less.
pub(super) fn resize(image: Rgb, [width, height]: [usize; 2], side: usize, how: Resample) -> Rgb {
    let image = match (image.width, width) == (side, side) {
        true => image,
        false => columns(&image, &reads([image.width, width], side, how)),
    };
    match (image.height, height) == (side, side) {
        true => image,
        false => rows(&image, &reads([image.height, height], side, how)),
    }
}

fn columns(image: &Rgb, reads: &[Reads]) -> Rgb {
    let mut bytes = Vec::with_capacity(reads.len() * image.height * CHANNELS);
    for row in image.bytes.chunks_exact((image.width * CHANNELS).max(1)) {
        for point in reads {
            for channel in 0..CHANNELS {
                let from = row.iter().skip(point.first * CHANNELS + channel);
                bytes.push(weighed(from.step_by(CHANNELS), &point.coefficients));
            }
        }
    }
    Rgb { width: reads.len(), height: image.height, bytes }
}

fn rows(image: &Rgb, reads: &[Reads]) -> Rgb {
    let stride = image.width * CHANNELS;
    let mut bytes = Vec::with_capacity(reads.len() * stride);
    for point in reads {
        for column in 0..stride {
            let from = image.bytes.iter().skip(point.first * stride + column);
            bytes.push(weighed(from.step_by(stride.max(1)), &point.coefficients));
        }
    }
    Rgb { width: image.width, height: reads.len(), bytes }
}

/// The weighted sum of pixels, rounded and clamped to 0 to 255.
fn weighed<'a>(points: impl Iterator<Item = &'a u8>, coefficients: &[i32]) -> u8 {
    // The coefficients sum to 2^22, and their magnitudes to at most 1.3·2^22: 32 bits hold the sum.
    let sum = points.zip(coefficients).map(|(&p, c)| i32::from(p) * c);
    let sum = sum.fold(1 << (FRAC - 1), i32::wrapping_add);
    (sum >> FRAC).clamp(0, 255) as u8
}

/// What the `side` pixels in the middle of `to` read. Pillow's `precompute_coeffs` and `normalize_coeffs_8bpc`; an
/// image that has the size already is not resampled.
fn reads([from, to]: [usize; 2], side: usize, how: Resample) -> Vec<Reads> {
    let first = to.saturating_sub(side) / 2;
    let middle = first..first + side;
    if from == to {
        return middle.map(|first| Reads { first, coefficients: vec![1 << FRAC] }).collect();
    }
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let support = how.support() * stretch;
    let point = |x: usize| {
        let centre = (x as f64 + 0.5) * scale;
        let first = (centre - support + 0.5).max(0.0) as usize;
        let end = ((centre + support + 0.5) as usize).min(from);
        let place = |i: usize| (i as f64 - centre + 0.5) / stretch;
        let weights: Vec<f64> = (first..end).map(|i| how.weight(place(i))).collect();
        let sum: f64 = weights.iter().sum();
        let unit = f64::from(1u32 << FRAC);
        let integer = |w: &f64| (w / sum * unit).round() as i32;
        Reads { first, coefficients: weights.iter().map(integer).collect() }
    };
    middle.map(point).collect()
}

impl Resample {
    /// Half the width of the filter.
    fn support(self) -> f64 {
        match self {
            Resample::Bilinear => 1.0,
            Resample::Bicubic => 2.0,
        }
    }

    /// The filter at distance `x`.
    fn weight(self, x: f64) -> f64 {
        const A: f64 = -0.5;
        let x = x.abs();
        match self {
            Resample::Bilinear => (1.0 - x).max(0.0),
            Resample::Bicubic if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
            Resample::Bicubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * A,
            Resample::Bicubic => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(width: usize, height: usize) -> Rgb {
        let bytes = (0..width * height * CHANNELS).map(|i| (i * i * 31 % 251) as u8).collect();
        Rgb { width, height, bytes }
    }

    /// What a model reads is the middle of the whole image, resized; only that is made, whatever the image's shape.
    #[test]
    fn the_middle_alone() {
        for how in [Resample::Bilinear, Resample::Bicubic] {
            let whole = resize(noise(40, 30), [20, 20], 20, how);
            let middle = resize(noise(40, 30), [20, 20], 8, how);
            let rows = whole.bytes.chunks_exact(20 * CHANNELS).skip(6).take(8);
            let cut: Vec<u8> = rows.flat_map(|row| row[6 * CHANNELS..14 * CHANNELS].to_vec()).collect();
            assert_eq!((middle.width, middle.height, middle.bytes), (8, 8, cut));
            let strip = resize(noise(1 << 14, 1), [8 << 14, 8], 8, how);
            assert_eq!(strip.bytes.len(), 8 * 8 * CHANNELS);
        }
    }

    /// An image of the size already is only cut.
    #[test]
    fn no_resampling_of_the_same_size() {
        let cut = resize(noise(7, 6), [7, 6], 4, Resample::Bicubic);
        let rows = noise(7, 6).bytes;
        let rows = rows.chunks_exact(7 * CHANNELS).skip(1).take(4);
        assert_eq!(cut.bytes, rows.flat_map(|row| row[CHANNELS..5 * CHANNELS].to_vec()).collect::<Vec<_>>());
    }
}
