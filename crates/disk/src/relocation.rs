//! Another name for a file or folder.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::error::DiskError;

/// Moves a file or folder to a name on the same file system that nothing has yet.
///
/// # Errors
///
/// The system refuses.
pub fn move_to(path: &Path, target: &Path) -> Result<(), DiskError> {
    let sync = |path: &Path| {
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    };
    if fs::symlink_metadata(target).is_ok() {
        return Err(DiskError::at(target)(io::ErrorKind::AlreadyExists.into()));
    }
    fs::rename(path, target).and_then(|()| sync(target)).and_then(|()| sync(path)).map_err(DiskError::at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        fs::write(&from, "text").unwrap();
        move_to(&from, &to).unwrap();
        assert_eq!((fs::read_to_string(&to).unwrap(), from.exists()), ("text".to_owned(), false));
        fs::write(&from, "other").unwrap();
        assert_eq!(move_to(&from, &to).unwrap_err().source.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&to).unwrap(), "text");
    }
}
