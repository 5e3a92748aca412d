//! Reading the log.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use lowtide_explain::Investigation;

use crate::output::Failure;

/// How much is read at once.
const PIECE: usize = 256 << 10;

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
            Ok(length) if is_first && let Some((kind, reads)) = compression(&piece[..length]) => {
                let text = format!("{}: this is compressed ({kind}), not a log", path.display());
                return Err(Failure::bad_input(text, Some(format!("{reads} LOG | lowtide explain -"))));
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
