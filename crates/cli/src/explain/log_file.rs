//! Reading the log.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use lowtide_explain::{Investigation, notebook_text};

use crate::output::Failure;

/// How much is read at once.
const PIECE: usize = 256 << 10;
/// Larger notebooks are read as any text is.
const LARGEST_NOTEBOOK: u64 = 256 << 20;

pub(super) fn read(path: &Path) -> Result<Investigation, Failure> {
    let failure = |error: &io::Error| Failure::bad_input(format!("{}: {error}", path.display()), None);
    let mut source: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(path).map_err(|error| failure(&error))?),
    };
    let mut reader = Investigation::default();
    let mut piece = vec![0; PIECE];
    let mut is_first = true;
    loop {
        match source.read(&mut piece) {
            Ok(0) => return Ok(reader),
            Ok(length) if is_first && is_of_torch(&piece[..length]) => {
                let text = format!("{}: this is a checkpoint of PyTorch, not a log", path.display());
                return Err(Failure::bad_input(text, Some(LOG.to_owned())));
            }
            Ok(length) if is_first && let Some((kind, reads)) = compression(&piece[..length]) => {
                let text = format!("{}: this is compressed ({kind}), not a log", path.display());
                return Err(Failure::bad_input(text, Some(format!("{reads} LOG | lowtide explain -"))));
            }
            Ok(length) if is_first && let Some((kind, hint)) = other_than_text(&piece[..length]) => {
                let text = format!("{}: this is {kind}, not a log", path.display());
                return Err(Failure::bad_input(text, Some(hint.to_owned())));
            }
            Ok(length) if is_first && may_be_notebook(&piece[..length]) => {
                is_first = false;
                let mut file = piece[..length].to_vec();
                source.by_ref().take(LARGEST_NOTEBOOK).read_to_end(&mut file).map_err(|error| failure(&error))?;
                reader.feed(notebook_text(&file).map_or(file, String::into_bytes).as_slice());
            }
            Ok(length) => {
                is_first = false;
                reader.feed(&piece[..length]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failure(&error)),
        }
    }
}

/// What to give instead of what is none.
const LOG: &str = "give the log that the run printed (python train.py 2>&1 | tee train.log)";

/// The same for a picture of it.
const TEXT: &str = "give the text: copy it from the terminal instead of a picture of it";

/// Whether a zip file is one that `torch.save` wrote: its first entry is the pickle, or says how it is written.
fn is_of_torch(start: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&start[..start.len().min(512)]);
    let names = ["/data.pkl", "/version", "/.format_version", "/byteorder", "/.data/serialization_id"];
    start.starts_with(b"PK\x03\x04") && names.iter().any(|name| head.contains(name))
}

/// What a file is packed with, by its first bytes, and what reads it.
fn compression(start: &[u8]) -> Option<(&'static str, &'static str)> {
    const KINDS: [(&[u8], &str, &str); 6] = [
        (b"\x1f\x8b", "gzip", "zcat"),
        (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
        (b"\xfd7zXZ\0", "xz", "xzcat"),
        (b"BZh", "bzip2", "bzcat"),
        (b"PK\x03\x04", "zip", "unzip -p"),
        (b"\x04\x22\x4d\x18", "lz4", "lz4cat"),
    ];
    let (magic, kind, reads) = KINDS.iter().find(|(magic, ..)| start.starts_with(magic))?;
    // Three letters may begin a text; the digit and the block behind them do not.
    let is_text = *magic == b"BZh" && start.get(4..10) != Some(b"1AY&SY");
    (!is_text).then_some((*kind, *reads))
}

/// What a file is that holds no text, by its first bytes, and what to give instead.
fn other_than_text(start: &[u8]) -> Option<(&'static str, &'static str)> {
    const KINDS: [(&[u8], &str, &str); 12] = [
        (b"\x7fELF", "a program (ELF)", LOG),
        (b"MZ\x90\0", "a program (Windows)", LOG),
        (b"\xcf\xfa\xed\xfe", "a program (macOS)", LOG),
        (b"\x89PNG\r\n", "a picture (PNG)", TEXT),
        (b"\xff\xd8\xff", "a picture (JPEG)", TEXT),
        (b"GIF8", "a picture (GIF)", TEXT),
        (b"%PDF-", "a PDF", LOG),
        (b"\x93NUMPY", "an array of numpy", LOG),
        (b"\x89HDF\r\n", "an HDF5 file", LOG),
        (b"GGUF", "a model (GGUF)", LOG),
        (b"\xd0\xcf\x11\xe0", "a document of Office", LOG),
        (b"SQLite format 3\0", "a database (SQLite)", LOG),
    ];
    if let Some((_, kind, hint)) = KINDS.iter().find(|(magic, ..)| start.starts_with(magic)) {
        return Some((kind, hint));
    }
    // A pickle names its protocol first; no text in any encoding begins so.
    if matches!(start, [0x80, 2..=5, ..]) {
        return Some((
            "a pickle",
            "lowtide explain --snapshot FILE for a memory snapshot of PyTorch; else give the log",
        ));
    }
    // Safetensors: the length of a header of JSON.
    if start.len() > 9 && start[4..8] == [0; 4] && start[8] == b'{' {
        return Some(("a model (safetensors)", LOG));
    }
    is_binary(start).then_some(("no text", LOG))
}

/// Whether so much of a beginning are bytes which no text has, in whatever encoding, that it is none.
///
/// A file that lost its end has zeros, and UTF-16 has one in every letter: they do not count.
fn is_binary(start: &[u8]) -> bool {
    let is_marked = start.starts_with(b"\xff\xfe") || start.starts_with(b"\xfe\xff");
    let zeros = start.iter().filter(|byte| **byte == 0).count();
    if is_marked || zeros * 5 > start.len() {
        return false;
    }
    // Colours, bells and what is written over are of terminals.
    let is_odd = |byte: &&u8| matches!(**byte, 1..=6 | 14..=26 | 28..=31);
    start.len() >= 64 && start.iter().filter(is_odd).count() * 25 > start.len()
}

/// Whether a beginning is that of a notebook's file.
fn may_be_notebook(start: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&start[..start.len().min(4 << 10)]);
    let head = head.trim_start_matches('\u{feff}').trim_start();
    head.starts_with('{') && ["\"cells\"", "\"nbformat\""].iter().any(|key| head.contains(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_no_text_is_named() {
        for (start, kind) in [
            (&b"\x7fELF\x02\x01\x01\0"[..], "a program (ELF)"),
            (b"\x89PNG\r\n\x1a\n\0\0", "a picture (PNG)"),
            (b"\x80\x04\x95\x10\0\0\0", "a pickle"),
            (b"\x40\x02\0\0\0\0\0\0{\"a\":", "a model (safetensors)"),
        ] {
            assert_eq!(other_than_text(start).map(|(kind, _)| kind), Some(kind));
        }
        let noise: Vec<u8> = (0..4000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        assert_eq!(other_than_text(&noise).map(|(kind, _)| kind), Some("no text"));
    }

    #[test]
    fn checkpoints_are_told_from_packed_logs() {
        assert!(is_of_torch(b"PK\x03\x04\0\0\x08\x08\0\0model/data.pklFB") && !is_of_torch(b"PK\x03\x04\0\0train.log"));
    }

    #[test]
    fn logs_are_text_in_every_encoding() {
        let log = "step 1 loss 2.0\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n";
        let utf16: Vec<u8> = log.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let marked = [&b"\xff\xfe"[..], &utf16].concat();
        let torn = [&[0; 4096][..], log.as_bytes()].concat();
        let bars = "\x1b[31m12%\x1b[0m|##|\r\x08\x08".repeat(40);
        let others = "\u{8b}\u{e9}".repeat(400);
        for start in [log.as_bytes(), &utf16, &marked, &torn, bars.as_bytes(), others.as_bytes(), b"", b"\x01"] {
            assert_eq!(other_than_text(start), None, "{}", String::from_utf8_lossy(start));
        }
    }

    #[test]
    fn notebooks_begin_with_their_cells() {
        assert!(may_be_notebook(b"{\n \"cells\": [\n"));
        assert!(!may_be_notebook(b"{\"message\": \"step 1\"}\n") && !may_be_notebook(b"step 1\n"));
    }
}
