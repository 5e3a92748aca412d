//! A frame in a PNG file: its size, from the header, and a region of its pixels.
//!
//! Grey, palettes and transparency become red, green and blue from 0 to 1; how opaque a pixel is does not count.
//!
//! Whatever the region, a file is read to its end, and every chunk against its checksum: a flipped bit is an error, wherever
//! it is.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use lowtide_generators::films::Region;
use png::{BitDepth, ColorType, DecodeOptions, Decoder, DecodingError, Reader, Transformations};

use super::film_error::FilmError;
use super::png_chunks::CheckedChunks;
use super::settings::MOST_SIDE;

/// The last chunk of every file: no data, its name, its checksum.
const END: [u8; 12] = *b"\0\0\0\0IEND\xaeB`\x82";
/// More than a header takes, and little to read of many files.
const HEADER: usize = 64;

type Pixels<'a> = Reader<BufReader<&'a mut CheckedChunks<File>>>;

/// How many rows of a frame are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All, so that the checksum of the pixels is looked at too, which comes after the last one.
    Whole,
    /// Down to the end of the region.
    Region,
}

/// Rows and columns of a frame, of which only the header and the last bytes are read.
///
/// A file that ends in something else than its last chunk is decoded as a whole, to see whether it is cut short.
pub(crate) fn size(path: &Path) -> Result<[u32; 2], FilmError> {
    let mut decoder = Decoder::new(BufReader::with_capacity(HEADER, open(path)?));
    let info = decoder.read_header_info().map_err(|error| damaged(path, error))?;
    let size = [info.height, info.width];
    if size.iter().any(|side| *side > MOST_SIDE) {
        let wanted = format!("at most {MOST_SIDE} rows and columns are read");
        return Err(FilmError::Size { path: path.to_owned(), size, wanted });
    }
    if !ends_well(path)? {
        decode(path).map_err(|error| damaged(path, error))?;
    }
    Ok(size)
}

/// A region of a frame of `size`: red, green and blue planes.
pub(crate) fn read(path: &Path, size: [u32; 2], region: Region, extent: Extent) -> Result<Vec<f32>, FilmError> {
    let mut chunks = CheckedChunks::new(open(path)?);
    let decoded = decode_region(path, &mut chunks, size, region, extent);
    // Where both have something to say, a wrong checksum is the cause and what the decoder met its consequence.
    chunks.finish().map_err(|problem| FilmError::Damaged { path: path.to_owned(), problem })?;
    decoded
}

fn decode_region(
    path: &Path,
    chunks: &mut CheckedChunks<File>,
    size: [u32; 2],
    region: Region,
    extent: Extent,
) -> Result<Vec<f32>, FilmError> {
    let mut options = DecodeOptions::default();
    options.set_ignore_adler32(false);
    options.set_ignore_text_chunk(true);
    options.set_ignore_iccp_chunk(true);
    let mut decoder = Decoder::new_with_options(BufReader::new(chunks), options);
    decoder.set_transformations(Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(|error| damaged(path, error))?;
    let there = [reader.info().height, reader.info().width];
    if there != size {
        let wanted = "it was of another size when the run began".to_owned();
        return Err(FilmError::Size { path: path.to_owned(), size: there, wanted });
    }
    let mut planes = Planes::new(region, reader.output_color_type());
    let copied = if reader.info().interlaced { planes.take_all(&mut reader) } else { planes.take_rows(&mut reader) };
    copied
        .and_then(|()| if extent == Extent::Whole { rest(&mut reader) } else { Ok(()) })
        .map_err(|error| damaged(path, error))?;
    Ok(planes.values)
}

/// Goes through the rows that are left, and what comes after them.
fn rest<R: BufRead + Seek>(reader: &mut Reader<R>) -> Result<(), DecodingError> {
    while reader.next_row()?.is_some() {}
    reader.finish()
}

fn open(path: &Path) -> Result<File, FilmError> {
    File::open(path).map_err(|source| FilmError::Unreadable { path: path.to_owned(), source })
}

fn ends_well(path: &Path) -> Result<bool, FilmError> {
    let mut end = [0; END.len()];
    let mut file = open(path)?;
    let read = file.seek(SeekFrom::End(-(END.len() as i64))).and_then(|_| file.read_exact(&mut end));
    // Shorter than the last chunk: it does not end in it either.
    Ok(read.is_ok() && end == END)
}

/// Goes through a whole file, row by row.
fn decode(path: &Path) -> Result<(), DecodingError> {
    let mut reader = Decoder::new(BufReader::new(File::open(path)?)).read_info()?;
    rest(&mut reader)
}

fn damaged(path: &Path, error: DecodingError) -> FilmError {
    FilmError::Damaged { path: path.to_owned(), problem: error.to_string() }
}

/// The region's planes, filled row by row.
struct Planes {
    region: Region,
    /// Numbers in a pixel.
    parts: usize,
    depth: BitDepth,
    values: Vec<f32>,
}

impl Planes {
    fn new(region: Region, (colour, depth): (ColorType, BitDepth)) -> Planes {
        Planes { region, parts: colour.samples(), depth, values: vec![0.0; 3 * region.pixels()] }
    }

    fn take_rows(&mut self, reader: &mut Pixels<'_>) -> Result<(), DecodingError> {
        for y in 0..self.region.top + self.region.height {
            let row = reader.next_row()?.expect("the region is inside the frame");
            if let Some(inside) = y.checked_sub(self.region.top) {
                self.take_row(inside, row.data());
            }
        }
        Ok(())
    }

    /// Rows of an interlaced file come in no order, so it is decoded as a whole.
    fn take_all(&mut self, reader: &mut Pixels<'_>) -> Result<(), DecodingError> {
        let mut bytes = vec![0; reader.output_buffer_size().expect("sides are bounded")];
        let line = reader.next_frame(&mut bytes)?.line_size;
        for inside in 0..self.region.height {
            let start = (self.region.top + inside) as usize * line;
            self.take_row(inside, &bytes[start..start + line]);
        }
        Ok(())
    }

    fn take_row(&mut self, inside: u32, row: &[u8]) {
        let (pixels, width) = (self.region.pixels(), self.region.width as usize);
        let wide = self.depth == BitDepth::Sixteen;
        for x in 0..width {
            let pixel = (self.region.left as usize + x) * self.parts;
            for colour in 0..3 {
                let at = if self.parts < 3 { pixel } else { pixel + colour };
                let value = if wide {
                    f32::from(u16::from_be_bytes([row[2 * at], row[2 * at + 1]])) / f32::from(u16::MAX)
                } else {
                    f32::from(row[at]) / f32::from(u8::MAX)
                };
                self.values[colour * pixels + inside as usize * width + x] = value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const SIZE: [u32; 2] = [8, 6];
    const TOP: Region = Region { top: 0, left: 1, height: 1, width: 2 };

    fn picture() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, SIZE[1], SIZE[0]);
        encoder.set_color(ColorType::Rgb);
        encoder.add_text_chunk("Comment".to_owned(), "passed over".to_owned()).unwrap();
        let pixels: Vec<u8> = (0..144).map(|place| (place * 7) as u8).collect();
        encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
        bytes
    }

    fn read_bytes(bytes: &[u8], extent: Extent) -> Result<Vec<f32>, FilmError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("frame.png");
        fs::write(&path, bytes).unwrap();
        read(&path, SIZE, TOP, extent)
    }

    #[test]
    fn a_flipped_bit_is_found_whatever_part_is_asked_for() {
        let picture = picture();
        let whole = read_bytes(&picture, Extent::Whole).unwrap();
        assert_eq!(read_bytes(&picture, Extent::Region).unwrap(), whole);
        for bit in 0..8 * picture.len() {
            let mut damaged = picture.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read_bytes(&damaged, Extent::Region).is_err(), "bit {bit}");
        }
    }

    /// What was damaged before the chunk was made: its own checksum is right, that of the pixels is not.
    #[test]
    fn the_checksum_of_the_pixels_is_looked_at_too() {
        let mut picture = picture();
        let data = picture.windows(4).position(|name| name == b"IDAT").unwrap();
        let length = u32::from_be_bytes(picture[data - 4..data].try_into().unwrap()) as usize;
        let end = data + 4 + length;
        picture[end - 1] ^= 1;
        let sum = crc32fast::hash(&picture[data..end]);
        picture[end..end + 4].copy_from_slice(&sum.to_be_bytes());
        assert!(read_bytes(&picture, Extent::Whole).is_err());
    }
}
