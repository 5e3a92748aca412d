//! Reading what is a file, and not more of it than there can be.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::Path;

/// Opens a file to be read. A pipe, a device or a folder of that name is refused, without waiting for anybody.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] where something else has the name; or the system refuses.
pub fn open(path: &Path) -> io::Result<File> {
    ensure_regular(&fs::metadata(path)?)?;
    let file = File::open(path)?;
    ensure_regular(&file.metadata()?)?;
    Ok(file)
}

/// The text of a file of at most so many bytes.
///
/// # Errors
///
/// [`io::ErrorKind::FileTooLarge`] where it has more, [`io::ErrorKind::InvalidData`] where it is no text; those of [`open`].
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let file = open(path)?;
    let length = file.metadata()?.len();
    let too_large = || io::Error::new(io::ErrorKind::FileTooLarge, format!("it has {length} bytes, more than {most}"));
    if length > most {
        return Err(too_large());
    }
    let mut text = String::new();
    // It may grow meanwhile.
    if file.take(most + 1).read_to_string(&mut text)? as u64 > most {
        return Err(too_large());
    }
    Ok(text)
}

/// Refuses what is no file.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`].
pub fn ensure_regular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    let what = if metadata.is_dir() { "this is a folder" } else { "this is a pipe, a socket or a device" };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{what}, and not a file")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_files_are_read_and_not_more_than_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "12345").unwrap();
        assert_eq!(read_text(&file, 5).unwrap(), "12345");
        let error = read_text(&file, 4).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string()),
            (io::ErrorKind::FileTooLarge, "it has 5 bytes, more than 4".into())
        );
        let error = open(folder.path()).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string()),
            (io::ErrorKind::InvalidInput, "this is a folder, and not a file".into())
        );
        let socket = folder.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        assert_eq!(open(&socket).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(open(&folder.path().join("absent")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
