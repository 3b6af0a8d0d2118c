//! Images to the numbers that a vision transformer reads: a PNG or JPEG file is decoded, resized, normalised and cut
//! into patches, as the model's `preprocessor_config.json` says.
//!
//! A file is a stranger's: its bytes and its points are limited before anything is decoded.
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

/// Most bytes of a file.
pub const MAX_IMAGE_BYTES: usize = 32 << 20;
/// Most points of an image, width times height.
pub const MAX_POINTS: u64 = 50_000_000;
/// Greatest width and height: resizing goes through an image of the new width and the old height.
pub const MAX_SIDE: u32 = 1 << 14;
/// Most bytes of the decoded points. A decoder takes a few times as much at once.
const MAX_DECODED: u64 = 256 << 20;
/// Numbers of a point.
pub(crate) const CHANNELS: usize = 3;

/// One image as a model reads it: a row of numbers a patch, patches row by row; in a row the channels one after
/// another, each row by row. No `Debug`: it is the private input.
#[derive(Clone, PartialEq)]
pub struct Pixels {
    patches: Matrix<f32>,
}

/// How an image becomes numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Preprocess {
    /// Width and height of what the model reads, in points.
    pub side: usize,
    /// Width and height of a patch, a divisor of the side.
    pub patch: usize,
    /// How an image of another size becomes one of this; `None`: it is refused.
    pub resample: Option<Resample>,
    /// Factor of a byte.
    pub rescale: f64,
    /// Subtracted from a channel then.
    pub mean: [f32; CHANNELS],
    /// Divides a channel then.
    pub deviation: [f32; CHANNELS],
}

/// How an image is resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resample {
    /// Pillow's `BILINEAR`.
    Bilinear,
    /// Pillow's `BICUBIC`.
    Bicubic,
}

impl Pixels {
    /// Patches as they are: one a row.
    pub fn new(patches: Matrix<f32>) -> Pixels {
        Pixels { patches }
    }

    /// One a row.
    pub fn patches(&self) -> &Matrix<f32> {
        &self.patches
    }

    /// Rows in a model: one a patch, and before them that of the class token.
    pub fn rows(&self) -> TextRows {
        let rows = self.patches.rows() + 1;
        TextRows {
            real: rows,
            total: rows,
        }
    }
}

impl Preprocess {
    /// Patches of an image.
    pub fn patches(&self) -> usize {
        (self.side / self.patch.max(1)).pow(2)
    }

    /// A file's numbers. Transparency is ignored and shades of gray become three equal channels; an orientation that a
    /// camera has noted is ignored as well.
    ///
    /// # Errors
    /// [`ImageError`]: neither PNG nor JPEG, too large, truncated or broken.
    pub fn read(&self, file: &[u8]) -> Result<Pixels, ImageError> {
        let image = decode(file)?;
        self.of_rgb(image)
    }

    /// The numbers of an image of `side` × `side` points, three bytes a point, row by row.
    ///
    /// # Errors
    /// [`ImageError::OtherSize`] if there are more or fewer.
    pub fn of_points(&self, bytes: Vec<u8>) -> Result<Pixels, ImageError> {
        let side = self.side;
        if bytes.len() != side * side * CHANNELS {
            let points = (bytes.len() / CHANNELS) as u64;
            return Err(ImageError::OtherSize { points, side });
        }
        Ok(self.cut(&Rgb {
            width: side,
            height: side,
            bytes,
        }))
    }

    fn of_rgb(&self, image: Rgb) -> Result<Pixels, ImageError> {
        let side = self.side;
        let image = match self.resample {
            Some(how) => resize::resize(image, side, side, how),
            None if (image.width, image.height) == (side, side) => image,
            None => {
                let points = (image.width * image.height) as u64;
                return Err(ImageError::OtherSize { points, side });
            }
        };
        Ok(self.cut(&image))
    }

    /// In f32 from the rescaled byte on, as the processors of published models compute it.
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
        return Err(ImageError::TooManyBytes {
            bytes: file.len(),
            limit: MAX_IMAGE_BYTES,
        });
    }
    let broken = |source| ImageError::Broken { source };
    let format = match image::guess_format(file) {
        Ok(format @ (ImageFormat::Png | ImageFormat::Jpeg)) => format,
        _ => return Err(ImageError::OtherFormat),
    };
    // The decoder of JPEG makes up what is missing of a truncated file.
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
        return Err(ImageError::TooManyPoints {
            width,
            height,
            points: MAX_POINTS,
            side: MAX_SIDE,
        });
    }
    let image = DynamicImage::from_decoder(decoder).map_err(broken)?;
    Ok(Rgb {
        width: width as usize,
        height: height as usize,
        bytes: image.into_rgb8().into_raw(),
    })
}

/// Whether the marker that ends a JPEG comes after its last scan began. A thumbnail before it has markers of its own,
/// and some cameras put something behind the end.
fn ends(file: &[u8]) -> bool {
    let is = |marker: u8| move |pair: &[u8]| pair == [0xff, marker];
    let scan = file.windows(2).rposition(is(0xda));
    let rest = scan.and_then(|scan| file.get(scan..));
    rest.is_some_and(|rest| rest.windows(2).any(is(0xd9)))
}
