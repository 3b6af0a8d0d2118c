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

/// Resizes an image.
pub(super) fn resize(image: Rgb, width: usize, height: usize, how: Resample) -> Rgb {
    let image = match image.width == width {
        true => image,
        false => columns(&image, width, how),
    };
    match image.height == height {
        true => image,
        false => rows(&image, height, how),
    }
}

fn columns(image: &Rgb, width: usize, how: Resample) -> Rgb {
    let reads = reads(image.width, width, how);
    let mut bytes = Vec::with_capacity(width * image.height * CHANNELS);
    for row in image.bytes.chunks_exact((image.width * CHANNELS).max(1)) {
        for point in &reads {
            for channel in 0..CHANNELS {
                let from = row.iter().skip(point.first * CHANNELS + channel);
                bytes.push(weighed(from.step_by(CHANNELS), &point.coefficients));
            }
        }
    }
    Rgb { width, height: image.height, bytes }
}

fn rows(image: &Rgb, height: usize, how: Resample) -> Rgb {
    let stride = image.width * CHANNELS;
    let mut bytes = Vec::with_capacity(height * stride);
    for point in reads(image.height, height, how) {
        for column in 0..stride {
            let from = image.bytes.iter().skip(point.first * stride + column);
            bytes.push(weighed(from.step_by(stride.max(1)), &point.coefficients));
        }
    }
    Rgb { width: image.width, height, bytes }
}

/// The weighted sum of pixels, rounded and clamped to 0 to 255.
fn weighed<'a>(points: impl Iterator<Item = &'a u8>, coefficients: &[i32]) -> u8 {
    // The coefficients sum to 2^22, and their magnitudes to at most 1.3·2^22: 32 bits hold the sum.
    let sum = points.zip(coefficients).map(|(&p, c)| i32::from(p) * c);
    let sum = sum.fold(1 << (FRAC - 1), i32::wrapping_add);
    (sum >> FRAC).clamp(0, 255) as u8
}

/// Pillow's `precompute_coeffs` and `normalize_coeffs_8bpc`.
fn reads(from: usize, to: usize, how: Resample) -> Vec<Reads> {
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
    (0..to).map(point).collect()
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
