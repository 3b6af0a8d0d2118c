//! From images to the numbers that a vision transformer reads: a PNG or JPEG file is decoded, resized, normalised and
//! cut into patches, as the model's `preprocessor_config.json` says.
//!
//! Files are untrusted: their bytes and pixels are limited before anything is decoded.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod item;
mod resize;

use std::io::Cursor;

use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use crate::error::ImageError;
use crate::matrix::Matrix;
use crate::rows::TextRows;
use resize::Rgb;

pub use item::Item;
pub use resize::Resample;

/// Most bytes in a file.
pub const MAX_IMAGE_BYTES: usize = 32 << 20;
/// Most pixels in an image, width times height.
pub const MAX_POINTS: u64 = 50_000_000;
/// Largest width and height. Resizing goes through an image of the new width and the old height.
pub const MAX_SIDE: u32 = 1 << 14;
/// Most bytes of decoded pixels. A decoder uses a few times as much at once.
const MAX_DECODED: u64 = 256 << 20;
/// Numbers per pixel.
pub(crate) const CHANNELS: usize = 3;

/// One image as a model reads it: one row of numbers per patch, patches in row-major order. A row holds one channel
/// after another, each in row-major order. No `Debug`: this is the private input.
#[derive(Clone, PartialEq)]
pub struct Pixels {
    patches: Matrix<f32>,
}

/// How an image becomes numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Preprocess {
    /// Width and height of the model's input, in pixels.
    pub side: usize,
    /// Width and height of a patch; divides the side.
    pub patch: usize,
    /// How images of other sizes are resized; `None`: they are refused.
    pub resample: Option<Resample>,
    /// The size that they are resized to. Of a larger one than the model's input, the middle is taken.
    pub resize_to: ResizeTo,
    /// Factor applied to each byte.
    pub rescale: f64,
    /// Then subtracted, per channel.
    pub mean: [f32; CHANNELS],
    /// Then divided by, per channel.
    pub deviation: [f32; CHANNELS],
}

/// The size that an image is resized to, before its middle is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeTo {
    /// This width and height.
    Square(usize),
    /// This shorter side, in the proportion that it has.
    Shortest(usize),
}

impl ResizeTo {
    /// Width and height that an image of this width and height gets.
    fn of(self, width: usize, height: usize) -> [usize; 2] {
        match self {
            ResizeTo::Square(side) => [side; 2],
            ResizeTo::Shortest(side) if width <= height => [side, side * height / width.max(1)],
            ResizeTo::Shortest(side) => [side * width / height.max(1), side],
        }
    }
}

impl Pixels {
    /// Takes patches as they are, one per row.
    pub fn new(patches: Matrix<f32>) -> Pixels {
        Pixels { patches }
    }

    /// The patches, one per row.
    pub fn patches(&self) -> &Matrix<f32> {
        &self.patches
    }

    /// Rows in a model: one for the class token, then one per patch.
    pub fn rows(&self) -> TextRows {
        let rows = self.patches.rows() + 1;
        TextRows { real: rows, total: rows }
    }
}

impl Preprocess {
    /// Patches per image.
    pub fn patches(&self) -> usize {
        (self.side / self.patch.max(1)).pow(2)
    }

    /// Decodes and preprocesses a file. Ignores transparency and the orientation that a camera has noted; grey values
    /// become three equal channels.
    ///
    /// # Errors
    /// [`ImageError`] if the file is neither PNG nor JPEG, too large, truncated or broken.
    pub fn read(&self, file: &[u8]) -> Result<Pixels, ImageError> {
        let image = decode(file)?;
        self.of_rgb(image)
    }

    /// Preprocesses an image of `side` × `side` pixels, three bytes per pixel, row by row.
    ///
    /// # Errors
    /// [`ImageError::OtherSize`] if the number of pixels differs.
    pub fn of_points(&self, bytes: Vec<u8>) -> Result<Pixels, ImageError> {
        let side = self.side;
        if bytes.len() != side * side * CHANNELS {
            let points = (bytes.len() / CHANNELS) as u64;
            return Err(ImageError::OtherSize { points, side });
        }
        Ok(self.cut(&Rgb { width: side, height: side, bytes }))
    }

    fn of_rgb(&self, image: Rgb) -> Result<Pixels, ImageError> {
        let side = self.side;
        let image = match self.resample {
            Some(how) => {
                let to = self.resize_to.of(image.width, image.height);
                resize::resize(image, to, side, how)
            }
            None if (image.width, image.height) == (side, side) => image,
            None => {
                let points = (image.width * image.height) as u64;
                return Err(ImageError::OtherSize { points, side });
            }
        };
        Ok(self.cut(&image))
    }

    /// Cuts into patches. Computes in f32 after the rescaling of bytes, as the processors of published models do.
    fn cut(&self, image: &Rgb) -> Pixels {
        let (side, patch) = (self.side, self.patch.max(1));
        let across = side / patch;
        let number = |y: usize, x: usize, channel: usize| {
            let byte = image.bytes.get((y * side + x) * CHANNELS + channel);
            let rescaled = (f64::from(byte.copied().unwrap_or(0)) * self.rescale) as f32;
            let (mean, deviation) = (self.mean.get(channel), self.deviation.get(channel));
            (rescaled - mean.copied().unwrap_or(0.0)) / deviation.copied().unwrap_or(1.0)
        };
        let mut data = Vec::with_capacity(across * across * patch * patch * CHANNELS);
        for (top, left) in (0..across).flat_map(|i| (0..across).map(move |j| (i, j))) {
            for channel in 0..CHANNELS {
                for y in top * patch..(top + 1) * patch {
                    data.extend((left * patch..(left + 1) * patch).map(|x| number(y, x, channel)));
                }
            }
        }
        let columns = patch * patch * CHANNELS;
        let patches = Matrix::new(across * across, columns, data);
        Pixels::new(patches.unwrap_or_else(|| Matrix::zero(0, columns)))
    }
}

fn decode(file: &[u8]) -> Result<Rgb, ImageError> {
    if file.len() > MAX_IMAGE_BYTES {
        return Err(ImageError::TooManyBytes { bytes: file.len(), limit: MAX_IMAGE_BYTES });
    }
    let broken = |source| ImageError::Broken { source };
    let format = match image::guess_format(file) {
        Ok(format @ (ImageFormat::Png | ImageFormat::Jpeg)) => format,
        _ => return Err(ImageError::OtherFormat),
    };
    // The JPEG decoder makes up the missing part of a truncated file.
    if format == ImageFormat::Jpeg && !ends(file) {
        return Err(ImageError::Truncated);
    }
    let mut reader = ImageReader::with_format(Cursor::new(file), format);
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_DECODED);
    reader.limits(limits);
    let decoder = reader.into_decoder().map_err(broken)?;
    let (width, height) = decoder.dimensions();
    let points = u64::from(width) * u64::from(height);
    let beyond = decoder.total_bytes() > MAX_DECODED || points > MAX_POINTS;
    if points == 0 || beyond || width.max(height) > MAX_SIDE {
        return Err(ImageError::TooManyPoints { width, height, points: MAX_POINTS, side: MAX_SIDE });
    }
    let image = DynamicImage::from_decoder(decoder).map_err(broken)?;
    Ok(Rgb { width: width as usize, height: height as usize, bytes: image.into_rgb8().into_raw() })
}

/// Whether the marker that ends a JPEG comes after the start of its last scan. A thumbnail before it has markers of its
/// own, and some cameras append data after the end.
fn ends(file: &[u8]) -> bool {
    let is = |marker: u8| move |pair: &[u8]| pair == [0xff, marker];
    let scan = file.windows(2).rposition(is(0xda));
    let rest = scan.and_then(|scan| file.get(scan..));
    rest.is_some_and(|rest| rest.windows(2).any(is(0xd9)))
}
