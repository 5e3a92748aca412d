//! What went wrong with data, as an exception of the package.

use lowtide_core::{Bytes, printable};
use lowtide_data::feed::FeedError;
use lowtide_data::{DataError, pack};
use lowtide_tensorfile::TensorFileError;
use pyo3::exceptions::{PyKeyboardInterrupt, PyMemoryError};
use pyo3::prelude::*;

/// What went wrong; each is an exception of `lowtide._errors`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Data that is broken, or is none.
    BadData,
    /// A file or a folder that is not there.
    MissingData,
    /// A limit that is too small.
    BadLimit,
    /// What is not done here.
    Unsupported,
}

impl Kind {
    fn class(self) -> &'static str {
        match self {
            Self::BadData => "BadData",
            Self::MissingData => "MissingData",
            Self::BadLimit => "BadLimit",
            Self::Unsupported => "Unsupported",
        }
    }
}

/// Why something was not done.
#[derive(Debug)]
pub(crate) enum Failure {
    /// With words and a hint.
    Named { kind: Kind, text: String, hint: String },
    /// There is no memory for so many bytes.
    NoMemory(u64),
    /// Python interrupted it.
    Python(PyErr),
}

impl Failure {
    pub(crate) fn new(kind: Kind, text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Named { kind, text: in_python(&text.into()), hint: in_python(&hint.into()) }
    }
}

/// Options of the command line that are arguments of the functions here, by the same names, and whether they take a value.
const OPTIONS: [(&str, bool); 8] = [
    ("--shard-size", true),
    ("--compress", true),
    ("--scores", true),
    ("--decode-limit", true),
    ("--allow-missing", false),
    ("--skip-damaged", false),
    ("--restart", false),
    ("--verify", false),
];

/// A text in which options of the command line are called as arguments: `restart=True` for `--restart`. A name of a file may
/// have such words in it, but not as words of their own.
fn in_python(text: &str) -> String {
    let named = |word: &str| {
        let (option, takes_value) =
            OPTIONS.iter().find(|(option, _)| word.trim_end_matches([';', ',', '.', ':']) == *option)?;
        let argument = option[2..].replace('-', "_");
        Some(format!("{argument}{}{}", if *takes_value { "" } else { "=True" }, &word[option.len()..]))
    };
    let words = text.split(' ').map(|word| named(word).unwrap_or_else(|| word.to_owned()));
    words.collect::<Vec<_>>().join(" ").replace("decode_limit SIZE", "decode_limit=SIZE")
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        let (kind, text, hint) = match failure {
            Failure::Python(error) => return error,
            Failure::NoMemory(bytes) => {
                return PyMemoryError::new_err(format!("there is no memory for {} of values", Bytes(bytes)));
            }
            Failure::Named { kind, text, hint } => (kind, text, hint),
        };
        Python::attach(|py| {
            let class = py.import("lowtide._errors").and_then(|errors| errors.getattr(kind.class()));
            match class.and_then(|class| class.call1((printable(&text), hint))) {
                Ok(exception) => Self::from_value(exception),
                Err(error) => error,
            }
        })
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<TensorFileError> for Failure {
    fn from(error: TensorFileError) -> Self {
        let kind = match &error {
            TensorFileError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => Kind::MissingData,
            TensorFileError::Unsupported { .. } => Kind::Unsupported,
            _ => Kind::BadData,
        };
        Self::new(kind, error.to_string(), error.hint().unwrap_or_default())
    }
}

impl From<&DataError> for Failure {
    fn from(error: &DataError) -> Self {
        let kind = match error {
            DataError::File(TensorFileError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Kind::MissingData
            }
            DataError::File(TensorFileError::Unsupported { .. }) => Kind::Unsupported,
            _ => Kind::BadData,
        };
        Self::new(kind, error.to_string(), error.hint().unwrap_or_default())
    }
}

impl From<FeedError> for Failure {
    fn from(error: FeedError) -> Self {
        match &error {
            FeedError::Data(data) => (&**data).into(),
            FeedError::TooLarge { .. } => Self::new(Kind::BadLimit, error.to_string(), "set a larger limit"),
            FeedError::ThreadLost => Self::new(Kind::BadData, error.to_string(), "this is a bug in lowtide: report it"),
        }
    }
}

impl From<pack::Error> for Failure {
    fn from(error: pack::Error) -> Self {
        match &error {
            pack::Error::Source(data) => data.into(),
            pack::Error::Stopped { .. } => Self::Python(PyKeyboardInterrupt::new_err(error.to_string())),
            _ => Self::new(Kind::BadData, error.to_string(), error.hint().unwrap_or_default()),
        }
    }
}
