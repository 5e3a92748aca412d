//! Reading a settings file from disk.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::error::SettingsError;

/// The most bytes a settings file may have: 1 MiB.
pub const FILE_LIMIT: u64 = 1 << 20;

/// The text of the settings file at `path`.
///
/// # Errors
///
/// [`SettingsError::Unreadable`] where there is no such file, it is a directory, may not be read, has more than
/// [`FILE_LIMIT`] bytes, or is not UTF-8.
pub fn read(path: &Path) -> Result<String, SettingsError> {
    let failed = |problem: &str, source| SettingsError::Unreadable {
        file: path.to_owned(),
        problem: problem.to_owned(),
        source,
    };
    let bytes = bytes(path).map_err(|error| {
        let problem = match error.kind() {
            io::ErrorKind::NotFound => "there is no such file".to_owned(),
            io::ErrorKind::IsADirectory => "this is a directory, not a settings file".to_owned(),
            io::ErrorKind::PermissionDenied => "the file may not be read (permission denied)".to_owned(),
            _ => format!("the file cannot be read: {error}"),
        };
        failed(&problem, Some(error))
    })?;
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(failed("the file is larger than 1 MiB, which no settings file is", None));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        failed(&format!("line {line} is not UTF-8 text"), None)
    })
}

/// The file's bytes, but not many more than the limit.
fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_LIMIT + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[track_caller]
    fn check(path: &Path, expect: &str) {
        let error = read(path).unwrap_err();
        assert_eq!(error.to_string(), format!("{}: {expect}", path.display()));
    }

    #[test]
    fn refuses_what_is_no_settings_file() {
        let folder = tempfile::tempdir().unwrap();
        check(&folder.path().join("absent.yaml"), "there is no such file");
        check(folder.path(), "this is a directory, not a settings file");
        let file = folder.path().join("a.yaml");
        fs::write(&file, b"seed: 1\nworkload: \xff\n").unwrap();
        check(&file, "line 2 is not UTF-8 text");
        fs::write(&file, vec![b'#'; 1 + FILE_LIMIT as usize]).unwrap();
        check(&file, "the file is larger than 1 MiB, which no settings file is");
        fs::write(&file, vec![b'#'; FILE_LIMIT as usize]).unwrap();
        assert_eq!(read(&file).unwrap().len() as u64, FILE_LIMIT);
    }
}
