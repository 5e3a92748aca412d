//! A file of JSON lines that grows while others read it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lowtide_core::{Bytes, sealed};
use serde::Serialize;

use crate::error::{LineFileError, Result};
use crate::line_reader::{LineReader, LineState};

/// The most bytes, from the end, whose lines are looked at again: seven times what a run writes in years.
const LOOKED_AT: u64 = 1 << 30;

/// A file to whose end lines are added: each is handed to the system at once, so that someone who watches the file sees it, and has a seal, so that no bit
/// of it changes unnoticed.
#[derive(Debug)]
pub struct LineFile {
    path: PathBuf,
    file: File,
    /// Bytes in it.
    bytes: u64,
}

impl LineFile {
    /// Opens it at its end, or makes it. What is in it is not looked at, and what is no file is refused.
    pub fn open(path: &Path) -> Result<LineFile> {
        let open = || {
            match fs::metadata(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                metadata => lowtide_disk::ensure_regular(&metadata?)?,
            }
            let file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
            let metadata = file.metadata()?;
            lowtide_disk::ensure_regular(&metadata)?;
            Ok(LineFile { path: path.to_owned(), file, bytes: metadata.len() })
        };
        open().map_err(LineFileError::at(path))
    }

    /// Whether another process has locked it; else it is ours until this process ends. Where a file system has no locks,
    /// nobody is kept out.
    #[must_use]
    pub fn is_anothers(&self) -> bool {
        matches!(self.file.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Looks at what is in it, once it is ours: a last line that a kill cut short is dropped. What is damaged stays as it is
    /// and is told, in words.
    pub fn check(&mut self) -> Result<Vec<String>> {
        let begin = self.bytes.saturating_sub(LOOKED_AT);
        self.file.seek(SeekFrom::Start(begin)).map_err(LineFileError::at(&self.path))?;
        let mut lines = LineReader::new(&self.file, begin);
        let (mut number, mut damaged, mut first, mut end) = (0u64, 0u64, 0, begin);
        let mut torn = false;
        while let Some(line) = lines.read_line().map_err(LineFileError::at(&self.path))? {
            number += 1;
            // Where the look begins within a line, nothing can be said of it.
            let is_cut = begin > 0 && number == 1;
            torn = line.state == LineState::Torn || (line.state == LineState::Damaged && !line.is_ended);
            if torn && line.text.is_none() {
                return Err(self.no_run_writes(line.end - line.start));
            }
            if line.state == LineState::Damaged && !is_cut {
                damaged += 1;
                first = if damaged == 1 { number } else { first };
            }
            end = if torn { line.start } else { line.end };
        }
        if torn {
            self.file.set_len(end).map_err(LineFileError::at(&self.path))?;
        }
        self.bytes = end;
        let name = self.path.file_name().unwrap_or_default().display();
        let mut notes = Vec::new();
        if begin > 0 {
            notes.push(format!("{name} has {}, and only its last {} were checked", Bytes(end), Bytes(LOOKED_AT)));
        }
        match damaged {
            0 => {}
            1 => notes.push(format!("line {first} of {name} is damaged")),
            _ => notes.push(format!("{damaged} lines of {name} are damaged, the first is line {first}")),
        }
        Ok(notes)
    }

    /// Adds a line.
    pub fn write(&mut self, line: &impl Serialize) -> Result<()> {
        let line = sealed(serde_json::to_string(line).expect("plain numbers and texts")) + "\n";
        let written = self.file.write_all(line.as_bytes());
        if written.is_err() {
            // Best effort: what was written of it is dropped when the run goes on, or here where that can be done.
            let _ = self.file.set_len(self.bytes);
        }
        written.map_err(LineFileError::at(&self.path))?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Bytes in it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it has no name any more: somebody deleted it.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
    }

    /// A copy under another name, to go on in.
    pub fn copied_to(&self, path: &Path) -> Result<LineFile> {
        let mut copy = LineFile::open(path)?;
        let mut source = &self.file;
        let copied = source.seek(SeekFrom::Start(0)).and_then(|_| io::copy(&mut source, &mut copy.file));
        copy.bytes += copied.map_err(LineFileError::at(path))?;
        Ok(copy)
    }

    fn no_run_writes(&self, length: u64) -> LineFileError {
        let problem = format!("its last line has {}, which no run writes: move this file away", Bytes(length));
        LineFileError::at(&self.path)(io::Error::new(io::ErrorKind::InvalidData, problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::net::UnixListener;

    fn line(number: u32) -> String {
        sealed(format!("{{\"a\":{number}}}")) + "\n"
    }

    #[test]
    fn a_torn_line_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        for (before, kept) in [
            (line(1) + &line(2) + "{\"a\"", line(1) + &line(2)),
            (line(1), line(1)),
            ("{".to_owned(), String::new()),
            (String::new(), String::new()),
        ] {
            fs::write(&path, before).unwrap();
            let mut file = LineFile::open(&path).unwrap();
            assert_eq!(file.check().unwrap(), Vec::<String>::new());
            file.write(&json!({"a": 4})).unwrap();
            let after = kept + &line(4);
            assert_eq!(fs::read_to_string(&path).unwrap(), after);
            assert_eq!(file.bytes, after.len() as u64);
        }
    }

    #[test]
    fn damage_is_told_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let text = line(1) + &line(2).replace('2', "3") + &line(3).replace('3', "7");
        fs::write(&path, &text).unwrap();
        let notes = LineFile::open(&path).unwrap().check().unwrap();
        assert_eq!(notes, ["2 lines of events.jsonl are damaged, the first is line 2"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        // The end of the last line was changed.
        fs::write(&path, line(1) + &line(2).replace('\n', "\u{b}")).unwrap();
        assert_eq!(LineFile::open(&path).unwrap().check().unwrap(), ["line 2 of events.jsonl is damaged"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), line(1));
    }

    #[test]
    fn what_is_no_file_of_lines_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        assert!(LineFile::open(&socket).unwrap_err().to_string().ends_with("and not a file"));
        assert!(LineFile::open(folder.path()).unwrap_err().to_string().ends_with("and not a file"));
        let path = folder.path().join("lines");
        fs::write(&path, vec![b'x'; 3 << 20]).unwrap();
        let error = LineFile::open(&path).unwrap().check().unwrap_err().to_string();
        assert!(error.ends_with("its last line has 3.00 MiB, which no run writes: move this file away"), "{error}");
        assert_eq!(fs::metadata(&path).unwrap().len(), 3 << 20);
    }

    #[test]
    fn of_a_huge_file_the_end_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let mut file = File::create(&path).unwrap();
        file.set_len(64 << 30).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(format!("\n{}", line(1)).as_bytes()).unwrap();
        let notes = LineFile::open(&path).unwrap().check().unwrap();
        assert_eq!(notes, ["lines has 64.00 GiB, and only its last 1.00 GiB were checked"]);
    }
}
