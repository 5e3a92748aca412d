//! Opening the index of a folder, making it where there is none that fits.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::path::Path;

use super::{Builder, Error, FileStamp, Index};
use crate::shard::Reader;

/// An index that fits the files of its folder.
#[derive(Debug)]
pub struct Opened {
    /// The index.
    pub index: Index,
    /// Why it was made anew; `None` where the saved one was used.
    pub rebuilt: Option<Rebuilt>,
    /// Why a new one could not be saved, such as in a folder that may only be read. The index is good all the same.
    pub unsaved: Option<Error>,
}

/// Why an index was made anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rebuilt {
    /// There was none.
    Missing,
    /// The saved one could not be used.
    Unusable {
        /// What was wrong with it.
        reason: String,
    },
    /// A file was changed since.
    Changed {
        /// The file.
        name: String,
    },
    /// A file was added since.
    Added {
        /// The file.
        name: String,
    },
    /// A file was removed since.
    Removed {
        /// The file.
        name: String,
    },
}

impl fmt::Display for Rebuilt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(formatter, "there was no index"),
            Self::Unusable { reason } => write!(formatter, "{reason}"),
            Self::Changed { name } => write!(formatter, "{name} was changed since the index was made"),
            Self::Added { name } => write!(formatter, "{name} was added since the index was made"),
            Self::Removed { name } => write!(formatter, "{name} was removed since the index was made"),
        }
    }
}

/// Opens the index of the shards in `folder` that is saved at `path`, or makes it and saves it there.
///
/// Looks at size and time of every file, and opens none where the saved index fits.
///
/// # Errors
///
/// Where the folder cannot be listed or has no shards, or one of them cannot be opened.
pub fn open_or_build(folder: &Path, path: &Path) -> Result<Opened, Error> {
    let names = shard_names(folder)?;
    let rebuilt = match Index::load(path) {
        Ok(index) => match index.misfit(folder, &names)? {
            None => return Ok(Opened { index, rebuilt: None, unsaved: None }),
            Some(misfit) => misfit,
        },
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Rebuilt::Missing,
        Err(error) => Rebuilt::Unusable { reason: error.to_string() },
    };
    let index = Index::build_of(folder, &names)?;
    let unsaved = index.save(path).err();
    Ok(Opened { index, rebuilt: Some(rebuilt), unsaved })
}

impl Index {
    /// Makes the index of all files `*.shard` in `folder`, in the order of their names.
    ///
    /// # Errors
    ///
    /// Where the folder cannot be listed or has no shards, or one of them cannot be opened.
    pub fn build(folder: &Path) -> Result<Self, Error> {
        Self::build_of(folder, &shard_names(folder)?)
    }

    fn build_of(folder: &Path, names: &[String]) -> Result<Self, Error> {
        let mut builder = Builder::new();
        for name in names {
            let path = folder.join(name);
            let metadata = fs::metadata(&path).map_err(Error::io(&path, "look at"))?;
            let reader = Reader::open(path)?;
            let places: Result<Vec<_>, _> = (0..reader.len()).map(|record| reader.place_of(record)).collect();
            builder.add(name, FileStamp::new(&metadata, reader.fingerprint()), places?);
        }
        Ok(builder.finish())
    }

    /// The first thing in which the files differ from those of the index.
    fn misfit(&self, folder: &Path, names: &[String]) -> Result<Option<Rebuilt>, Error> {
        let known: HashSet<&str> = (0..self.files()).map(|file| self.name_of(file)).collect();
        if let Some(name) = names.iter().find(|name| !known.contains(name.as_str())) {
            return Ok(Some(Rebuilt::Added { name: name.clone() }));
        }
        let there: HashSet<&str> = names.iter().map(String::as_str).collect();
        for file in 0..self.files() {
            let name = self.name_of(file);
            if !there.contains(name) {
                return Ok(Some(Rebuilt::Removed { name: name.to_owned() }));
            }
            let path = folder.join(name);
            let metadata = fs::metadata(&path).map_err(Error::io(&path, "look at"))?;
            let stamp = self.stamp_of(file);
            if FileStamp::new(&metadata, stamp.fingerprint) != stamp {
                return Ok(Some(Rebuilt::Changed { name: name.to_owned() }));
            }
        }
        Ok(None)
    }
}

/// The names of all shards in the folder, sorted: the order of a folder is left to chance.
fn shard_names(folder: &Path) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io(folder, "list"))? {
        let path = entry.map_err(Error::io(folder, "list"))?.path();
        if path.extension().is_none_or(|extension| extension != "shard") {
            continue;
        }
        match path.file_name().and_then(|name| name.to_str()) {
            Some(name) => names.push(name.to_owned()),
            None => return Err(Error::Name { file: path }),
        }
    }
    if names.is_empty() {
        return Err(Error::Empty { folder: folder.to_path_buf() });
    }
    names.sort_unstable();
    Ok(names)
}
