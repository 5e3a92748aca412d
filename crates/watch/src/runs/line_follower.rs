//! Reading a file of lines while another process appends to it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The most bytes that one call reads; a longer line is passed over.
pub(crate) const SLICE: u64 = 1 << 20;

/// A place in a growing file of lines.
///
/// Holds no bytes between two calls: a last line without its end is read again, so that it may be cut and written anew.
#[derive(Debug)]
pub(crate) struct LineFollower {
    path: PathBuf,
    /// Where the first line begins that was not handed out.
    at: u64,
    /// Device and inode of the file that `at` belongs to.
    file: Option<(u64, u64)>,
    /// Whether `at` lies within a line that is longer than a slice.
    within_long_line: bool,
}

/// What a call of [`LineFollower::read`] hands out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileNews<'a> {
    /// The file is another one, or shorter than it was: all lines before belong to nothing.
    Restart,
    /// A whole line, without its end.
    Line(&'a [u8]),
}

impl LineFollower {
    /// Begins at the start of a file that need not be there yet.
    pub(crate) fn new(path: PathBuf) -> LineFollower {
        LineFollower { path, at: 0, file: None, within_long_line: false }
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Hands out the whole lines of the next slice; whether there is more to read at once.
    ///
    /// # Errors
    ///
    /// What the system answers, except that the file is not there.
    pub(crate) fn read(&mut self, mut each: impl FnMut(FileNews<'_>)) -> io::Result<bool> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file?,
        };
        let metadata = file.metadata()?;
        let id = (metadata.dev(), metadata.ino());
        if self.file.is_some_and(|known| known != id) || metadata.len() < self.at {
            (self.at, self.within_long_line) = (0, false);
            each(FileNews::Restart);
        }
        self.file = Some(id);
        let wanted = (metadata.len() - self.at).min(SLICE);
        let mut slice = vec![0; usize::try_from(wanted).expect("a slice fits in memory")];
        let read = read_at(&file, &mut slice, self.at)?;
        let used = self.hand_out(&slice[..read], &mut each);
        self.at += used as u64;
        Ok(used > 0 && self.at < metadata.len())
    }

    /// Hands out the lines of a slice and tells how much of it was used.
    fn hand_out(&mut self, slice: &[u8], each: &mut impl FnMut(FileNews<'_>)) -> usize {
        let mut used = 0;
        while let Some(length) = slice[used..].iter().position(|byte| *byte == b'\n') {
            if !std::mem::take(&mut self.within_long_line) {
                each(FileNews::Line(&slice[used..used + length]));
            }
            used += length + 1;
        }
        if used == 0 && slice.len() as u64 == SLICE {
            self.within_long_line = true;
            used = slice.len();
        }
        used
    }
}

/// Reads as much as there is, for a file may be cut while it is read.
fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Reads to the end and shows what was handed out.
    fn rest(follow: &mut LineFollower) -> Vec<String> {
        let mut seen = Vec::new();
        let mut note = |what: FileNews<'_>| match what {
            FileNews::Restart => seen.push("(anew)".to_owned()),
            FileNews::Line(line) => seen.push(String::from_utf8_lossy(line).into_owned()),
        };
        while follow.read(&mut note).unwrap() {}
        seen
    }

    #[test]
    fn a_file_that_is_not_there_yet_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut follow = LineFollower::new(path.clone());
        assert!(rest(&mut follow).is_empty());
        fs::write(&path, "a\nb\n").unwrap();
        assert_eq!(rest(&mut follow), ["a", "b"]);
        assert!(rest(&mut follow).is_empty());
    }

    #[test]
    fn a_torn_line_is_read_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut follow = LineFollower::new(path.clone());
        fs::write(&path, "a\nb").unwrap();
        assert_eq!(rest(&mut follow), ["a"]);
        fs::write(&path, "a\nbc\nd").unwrap();
        assert_eq!(rest(&mut follow), ["bc"]);
        // A run that goes on cuts the torn line and writes another.
        fs::write(&path, "a\nbc\nother\n").unwrap();
        assert_eq!(rest(&mut follow), ["other"]);
    }

    #[test]
    fn a_file_that_was_replaced_or_cut_is_read_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut follow = LineFollower::new(path.clone());
        fs::write(&path, "a\nb\n").unwrap();
        assert_eq!(rest(&mut follow), ["a", "b"]);
        fs::write(&path, "c\n").unwrap();
        assert_eq!(rest(&mut follow), ["(anew)", "c"]);
        let other = folder.path().join("other");
        fs::write(&other, "longer than before\n").unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(rest(&mut follow), ["(anew)", "longer than before"]);
    }

    #[test]
    fn a_line_without_an_end_takes_no_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut follow = LineFollower::new(path.clone());
        let long = "x".repeat(3 * SLICE as usize + 5);
        fs::write(&path, format!("a\n{long}\nb\n")).unwrap();
        assert_eq!(rest(&mut follow), ["a", "b"]);
    }
}
