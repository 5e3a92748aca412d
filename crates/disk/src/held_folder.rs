//! A folder that is found again after it was moved.
//!
//! A run folder is held open (`disk::HeldFolder`) and written to through `/proc/self/fd`, so files go where the folder
//! went, and never into another one of its name; people are shown where it is now. Once a second and before each
//! checkpoint it is looked for. What was deleted is written again, events from the file that is still open: into the
//! folder where that is there, else into `NAME-rescued` beside it.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A folder that is held open: files can be written into it wherever it, or a folder above it, is moved to, and never into
/// another one that has got its name.
#[derive(Debug)]
pub struct HeldFolder {
    folder: File,
    /// As it was named, or where it was found last.
    path: PathBuf,
    /// Leads into it through the open file; what it was named where the system has no such way.
    way: PathBuf,
}

/// What became of a folder since it was looked for last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FolderNews {
    /// It is where it was.
    Same,
    /// It is somewhere else.
    Moved,
    /// It was deleted, or is in a file system that was taken away: nobody can reach what is written into it.
    Gone,
}

impl HeldFolder {
    /// Holds the folder at `path`.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn open(path: &Path) -> io::Result<HeldFolder> {
        let folder = File::open(path)?;
        let way = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        let way = if leads_to(&way, &folder.metadata()?) { way } else { path.to_owned() };
        Ok(HeldFolder { folder, path: path.to_owned(), way })
    }

    /// A path for the system, through which the folder is reached wherever it is.
    #[must_use]
    pub fn way(&self) -> &Path {
        &self.way
    }

    /// A path for people: where it was when it was looked for last.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks where it is now.
    pub fn look(&mut self) -> FolderNews {
        let Ok(ours) = self.folder.metadata() else { return FolderNews::Gone };
        if ours.nlink() == 0 {
            return FolderNews::Gone;
        }
        if leads_to(&self.path, &ours) {
            return FolderNews::Same;
        }
        match fs::read_link(&self.way) {
            Ok(path) if leads_to(&path, &ours) => {
                self.path = path;
                FolderNews::Moved
            }
            _ => FolderNews::Gone,
        }
    }

    /// What the system called a file in it, as people call it.
    #[must_use]
    pub fn shown(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.way).map_or_else(|_| path.to_owned(), |inside| self.path.join(inside))
    }
}

/// Whether a path leads to a folder, or to where nobody but its owner may look.
fn leads_to(path: &Path, folder: &Metadata) -> bool {
    match fs::metadata(path) {
        Ok(there) => (there.dev(), there.ino()) == (folder.dev(), folder.ino()),
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_found_again() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let path = |name: &str| top.join(name);
        fs::create_dir_all(path("a/run")).unwrap();
        let mut held = HeldFolder::open(&path("a/run")).unwrap();
        assert_eq!((held.look(), held.path()), (FolderNews::Same, &*path("a/run")));

        fs::rename(path("a/run"), path("moved")).unwrap();
        fs::create_dir(path("a/run")).unwrap();
        assert_eq!((held.look(), held.path()), (FolderNews::Moved, &*path("moved")));
        fs::write(held.way().join("file"), "").unwrap();
        assert!(path("moved/file").exists() && !path("a/run/file").exists());
        assert_eq!(held.shown(&held.way().join("file")), path("moved/file"));
        assert_eq!(held.look(), FolderNews::Same);

        fs::create_dir(path("b")).unwrap();
        fs::rename(path("moved"), path("b/run")).unwrap();
        fs::rename(path("b"), path("c")).unwrap();
        assert_eq!((held.look(), held.path()), (FolderNews::Moved, &*path("c/run")));

        fs::remove_dir_all(path("c")).unwrap();
        assert_eq!((held.look(), held.path()), (FolderNews::Gone, &*path("c/run")));
        fs::create_dir_all(path("c/run")).unwrap();
        assert_eq!(held.look(), FolderNews::Gone, "another one of its name");
    }
}
