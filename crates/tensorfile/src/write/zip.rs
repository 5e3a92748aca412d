//! Writing a zip archive as torch does.
//!
//! Entries are stored, their bytes begin at multiples of 64, and the checksum stands behind them. The 64-bit records at
//! the end are always there, needed or not.

use std::io::{self, Write};

use crc32fast::hash;

/// Names are UTF-8, and checksum and sizes follow the bytes.
const FLAGS: u16 = 1 << 11 | 1 << 3;
const ALIGNMENT: u64 = 64;
const HEADER_SIZE: u64 = 30;
/// Identifier and length of an extra field.
const EXTRA_HEAD: u64 = 4;
const END_64_SIZE: u64 = 56;
/// From here on a number does not fit where 32 bits are meant for it.
const WIDE: u64 = u32::MAX as u64;

/// An archive that is written entry by entry.
pub(super) struct ZipWriter<W> {
    out: W,
    position: u64,
    directory: Vec<u8>,
    count: u64,
}

impl<W: Write> ZipWriter<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, position: 0, directory: Vec::new(), count: 0 }
    }

    /// Writes an entry. The name is not empty and shorter than 64 KiB.
    pub(super) fn add(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (start, length, crc) = (self.position, bytes.len() as u64, hash(bytes));
        let wide = wide_numbers(length, start);
        let mut header = b"PK\x03\x04".to_vec();
        push_u16s(&mut header, &[0, FLAGS, 0, 0, 0]);
        push_u32s(&mut header, &[0, 0, 0]);
        let before = start + HEADER_SIZE + name.len() as u64 + wide.len() as u64 + EXTRA_HEAD;
        let padding = before.next_multiple_of(ALIGNMENT) - before;
        push_u16s(&mut header, &[name.len() as u16, (wide.len() as u64 + EXTRA_HEAD + padding) as u16]);
        header.extend_from_slice(name.as_bytes());
        header.extend_from_slice(&wide);
        header.extend_from_slice(b"FB");
        push_u16s(&mut header, &[padding as u16]);
        header.resize(header.len() + padding as usize, b'Z');
        self.put(&header)?;
        self.put(bytes)?;
        let mut behind = b"PK\x07\x08".to_vec();
        push_u32s(&mut behind, &[crc]);
        if wide.is_empty() {
            push_u32s(&mut behind, &[length as u32, length as u32]);
        } else {
            push_u64s(&mut behind, &[length, length]);
        }
        self.put(&behind)?;

        self.count += 1;
        self.directory.extend_from_slice(b"PK\x01\x02");
        push_u16s(&mut self.directory, &[0, 0, FLAGS, 0, 0, 0]);
        push_u32s(&mut self.directory, &[crc, narrow(length), narrow(length)]);
        push_u16s(&mut self.directory, &[name.len() as u16, wide.len() as u16, 0, 0, 0, 0, 0]);
        push_u32s(&mut self.directory, &[narrow(start)]);
        self.directory.extend_from_slice(name.as_bytes());
        self.directory.extend_from_slice(&wide);
        Ok(())
    }

    /// Writes the directory and what stands behind it.
    pub(super) fn finish(mut self) -> io::Result<()> {
        let (start, size) = (self.position, self.directory.len() as u64);
        let mut end = std::mem::take(&mut self.directory);
        end.extend_from_slice(b"PK\x06\x06");
        push_u64s(&mut end, &[END_64_SIZE - 12]);
        push_u16s(&mut end, &[0x031e, 45, 0, 0, 0, 0]);
        push_u64s(&mut end, &[self.count, self.count, size, start]);
        end.extend_from_slice(b"PK\x06\x07\0\0\0\0");
        push_u64s(&mut end, &[start + size]);
        push_u32s(&mut end, &[1]);
        end.extend_from_slice(b"PK\x05\x06\0\0\0\0");
        let count = self.count.min(u64::from(u16::MAX)) as u16;
        push_u16s(&mut end, &[count, count]);
        push_u32s(&mut end, &[narrow(size), narrow(start)]);
        push_u16s(&mut end, &[0]);
        self.put(&end)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.position += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

/// The extra field for numbers that do not fit into 32 bits; empty where all do.
fn wide_numbers(length: u64, start: u64) -> Vec<u8> {
    let mut numbers = Vec::new();
    if length >= WIDE {
        push_u64s(&mut numbers, &[length, length]);
    }
    if start >= WIDE {
        push_u64s(&mut numbers, &[start]);
    }
    if numbers.is_empty() {
        return numbers;
    }
    let mut extra = Vec::new();
    push_u16s(&mut extra, &[1, numbers.len() as u16]);
    extra.append(&mut numbers);
    extra
}

fn narrow(number: u64) -> u32 {
    number.min(WIDE) as u32
}

fn push_u16s(out: &mut Vec<u8>, numbers: &[u16]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

fn push_u32s(out: &mut Vec<u8>, numbers: &[u32]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

fn push_u64s(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}
