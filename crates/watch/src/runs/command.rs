//! A command that is kept alive: what it said of itself, and the end of what it printed.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use lowtide_log::last_lines;
use serde::Serialize;

/// What is read of the end of its output.
const END: u64 = 32 << 10;
/// The most lines that are shown of it, and the longest, in characters.
const LINES: usize = 40;
const LONGEST: usize = 400;

/// A command that is kept alive, as it was last started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CommandHeader {
    /// The command.
    pub command: String,
    /// The number of its start, from 1.
    pub start: u32,
    /// Samples computed at once, where it is known.
    pub micro_batch: Option<u64>,
    /// Micro-batches in a step, where it is known.
    pub accumulation: Option<u64>,
    /// The checkpoint it went on from.
    pub resumed_from: Option<String>,
}

impl CommandHeader {
    /// The last lines of what it printed, where its log can be read.
    pub(crate) fn output(&self, folder: &Path) -> Vec<String> {
        let path = folder.join(format!("start-{}.log", self.start));
        // Opening a pipe would wait for whoever writes into it.
        if !path.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return Vec::new();
        }
        end_of(&path).map_or(Vec::new(), |(end, is_cut)| {
            let lines = last_lines(&end, LINES, LONGEST);
            // The first line began before what was read.
            lines.into_iter().skip(usize::from(is_cut)).collect()
        })
    }
}

/// The end of a file, and whether there is something before it that would be shown.
fn end_of(path: &Path) -> std::io::Result<(Vec<u8>, bool)> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let begin = size.saturating_sub(END);
    file.seek(SeekFrom::Start(begin))?;
    let mut end = Vec::new();
    file.take(END).read_to_end(&mut end)?;
    let is_short = end.iter().filter(|byte| **byte == b'\n').count() < LINES;
    Ok((end, begin > 0 && is_short))
}
