//! The chunks of a PNG file, each compared with its checksum while somebody else reads the file.
//!
//! A decoder stops where the last pixel that is asked for is, and looks at no checksum that comes later; nor does it at those
//! of chunks that it passes over.

use std::io::{self, Read, Seek, SeekFrom};

use crc32fast::Hasher;

/// What every file begins with.
const SIGNATURE: [u8; 8] = *b"\x89PNG\r\n\x1a\n";
/// The chunk that every file ends with.
const END: [u8; 4] = *b"IEND";

/// A file whose bytes are checked as they are read.
pub(crate) struct CheckedChunks<R> {
    file: R,
    part: Part,
    /// Bytes that are still missing of the part.
    left: u64,
    /// The last bytes of a part that is read as a whole, at the end.
    word: [u8; 8],
    name: [u8; 4],
    sum: Hasher,
    problem: Option<String>,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Signature,
    /// Length and name of a chunk.
    Head,
    Data,
    Checksum,
    /// Whatever comes after the last chunk: no part of the picture.
    After,
}

impl<R: Read> CheckedChunks<R> {
    pub(crate) fn new(file: R) -> CheckedChunks<R> {
        let (part, left) = (Part::Signature, SIGNATURE.len() as u64);
        CheckedChunks { file, part, left, word: [0; 8], name: [0; 4], sum: Hasher::new(), problem: None }
    }

    /// Reads what nobody asked for; what is wrong with the file, in words.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        let mut rest = [0; 1 << 14];
        while self.part != Part::After && self.problem.is_none() {
            match self.read(&mut rest) {
                Ok(0) => self.problem = Some("it is cut short".to_owned()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.problem = Some(error.to_string()),
            }
        }
        self.problem.take().map_or(Ok(()), Err)
    }

    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.part != Part::After && self.problem.is_none() {
            let count = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            let (now, later) = bytes.split_at(count);
            if self.part == Part::Data {
                self.sum.update(now);
            } else {
                let at = self.word.len() - self.left as usize;
                self.word[at..at + count].copy_from_slice(now);
            }
            self.left -= count as u64;
            if self.left == 0 {
                self.next_part();
            }
            bytes = later;
        }
    }

    /// A part is complete.
    fn next_part(&mut self) {
        let [.., a, b, c, d] = self.word;
        let last = [a, b, c, d];
        match self.part {
            Part::Signature if self.word != SIGNATURE => {
                self.problem = Some("it does not begin as a PNG file does".to_owned());
            }
            Part::Signature => (self.part, self.left) = (Part::Head, 8),
            Part::Head => {
                let [a, b, c, d, ..] = self.word;
                let length = u64::from(u32::from_be_bytes([a, b, c, d]));
                self.name = last;
                self.sum = Hasher::new();
                self.sum.update(&last);
                (self.part, self.left) = if length == 0 { (Part::Checksum, 4) } else { (Part::Data, length) };
            }
            Part::Data => (self.part, self.left) = (Part::Checksum, 4),
            Part::Checksum if u32::from_be_bytes(last) != self.sum.clone().finalize() => {
                let name = self.name.escape_ascii();
                self.problem = Some(format!("the checksum of its {name} chunk is wrong, so bits of it were changed"));
            }
            Part::Checksum if self.name == END => self.part = Part::After,
            Part::Checksum => (self.part, self.left) = (Part::Head, 8),
            Part::After => {}
        }
    }
}

impl<R: Read> Read for CheckedChunks<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.take(&buffer[..count]);
        Ok(count)
    }
}

/// The decoder asks for a file that can be sought in, and only ever asks where it is.
impl<R: Seek> Seek for CheckedChunks<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match to {
            SeekFrom::Current(0) => self.file.stream_position(),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 5, 3);
        encoder.set_color(png::ColorType::Rgb);
        encoder.add_text_chunk("Comment".to_owned(), "not looked at".to_owned()).unwrap();
        encoder.write_header().unwrap().write_image_data(&[7; 45]).unwrap();
        bytes
    }

    fn check(bytes: &[u8]) -> Result<(), String> {
        CheckedChunks::new(bytes).finish()
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let picture = picture();
        check(&picture).unwrap();
        for bit in 0..8 * picture.len() {
            let mut damaged = picture.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&damaged).is_err(), "bit {bit} of {}", 8 * picture.len());
        }
    }

    #[test]
    fn every_cut_is_noticed_and_what_follows_the_picture_is_none_of_it() {
        let mut picture = picture();
        for length in 0..picture.len() {
            assert!(check(&picture[..length]).is_err(), "{length} bytes");
        }
        picture.extend(b"notes");
        check(&picture).unwrap();
    }
}
