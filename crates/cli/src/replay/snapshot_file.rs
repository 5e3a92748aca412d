//! A snapshot's file, plain or packed.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use lowtide_sim::{RECORDING_MAGIC, Snapshot};

use crate::output::Failure;

/// How a recording begins, of any version.
const NAME: &[u8] = RECORDING_MAGIC.split_at(RECORDING_MAGIC.len() - 1).0;
/// How gzip begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// How much is read at once.
const BUFFER: usize = 256 << 10;
/// How people get one.
pub(super) const HOW_TO_RECORD: &str = "record one: torch.cuda.memory._record_memory_history(), then, after the step, \
                                    torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")";

/// Reads a snapshot.
pub(super) fn read(path: &Path) -> Result<Snapshot, Failure> {
    let mut input = open(path)?;
    let is_recording = input.fill_buf().map_err(Failure::at(path))?.starts_with(NAME);
    let snapshot = if is_recording { Snapshot::read_recording(input) } else { Snapshot::read(input) };
    snapshot.map_err(|error| Failure::bad_input(format!("{}: {error}", path.display()), Some(HOW_TO_RECORD.to_owned())))
}

/// The bytes of a snapshot, unpacked where they are packed.
///
/// Behind a buffer of its own: a pickle is read a byte at a time, which a call through a table of functions would make slow.
pub(super) fn open(path: &Path) -> Result<BufReader<Box<dyn Read>>, Failure> {
    let file = File::open(path).map_err(Failure::at(path))?;
    let mut input = BufReader::with_capacity(BUFFER, file);
    let is_packed = input.fill_buf().map_err(Failure::at(path))?.starts_with(&GZIP);
    let bytes: Box<dyn Read> = match is_packed {
        true => Box::new(MultiGzDecoder::new(input)),
        false => Box::new(input),
    };
    Ok(BufReader::with_capacity(BUFFER, bytes))
}
