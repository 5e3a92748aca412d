//! The checksum of a file, taken while it is written or read.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Length and CRC-32C of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileSum {
    bytes: u64,
    crc32c: String,
}

/// Whoever writes or reads through this has the sum of it.
pub(super) struct Summed<T> {
    inner: T,
    bytes: u64,
    sum: u32,
}

impl FileSum {
    /// That of the file at `path`, read in pieces.
    pub(super) fn of(path: &Path) -> io::Result<FileSum> {
        let mut file = Summed::new(lowtide_disk::open(path)?);
        file.drain()?;
        Ok(file.sum())
    }

    /// What is wrong with a file of another length.
    pub(super) fn check_length(&self, length: u64) -> Result<(), String> {
        match self.bytes {
            written if written == length => Ok(()),
            written => Err(format!("it is {length} bytes long, and {written} were written")),
        }
    }

    /// What is wrong with a file that was read to its end.
    pub(super) fn check(&self, found: &FileSum) -> Result<(), String> {
        self.check_length(found.bytes)?;
        if found == self {
            return Ok(());
        }
        Err(format!("it was changed after it was written: its checksum is {found}, and {self} was noted"))
    }
}

impl fmt::Display for FileSum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.crc32c)
    }
}

impl<T> Summed<T> {
    pub(super) fn new(inner: T) -> Summed<T> {
        Summed { inner, bytes: 0, sum: 0 }
    }

    /// The sum of all that passed.
    pub(super) fn sum(&self) -> FileSum {
        FileSum { bytes: self.bytes, crc32c: format!("{:08x}", self.sum) }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.sum = crc32c::crc32c_append(self.sum, bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl Summed<File> {
    /// Reads to the end what nobody asked for.
    pub(super) fn drain(&mut self) -> io::Result<()> {
        let mut piece = vec![0; 1 << 18];
        loop {
            match self.read(&mut piece) {
                Ok(0) => return Ok(()),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }
}

impl<T: Read> Read for Summed<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.add(&buffer[..count]);
        Ok(count)
    }
}

impl<T: Write> Write for Summed<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.add(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_and_reading_give_the_same_sum() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut file = Summed::new(File::create(&path).unwrap());
        file.write_all(b"1234").unwrap();
        file.write_all(b"56789").unwrap();
        // The check value of CRC-32C.
        let sum = FileSum { bytes: 9, crc32c: "e3069283".to_owned() };
        assert_eq!(file.sum(), sum);
        assert_eq!(FileSum::of(&path).unwrap(), sum);
        assert_eq!(sum.check_length(8).unwrap_err(), "it is 8 bytes long, and 9 were written");
        let other = FileSum { bytes: 9, crc32c: "00000000".to_owned() };
        let expect = "it was changed after it was written: its checksum is 00000000, and e3069283 was noted";
        assert_eq!(sum.check(&other).unwrap_err(), expect);
    }
}
