//! Scores that stand in a table beside the samples.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use csv::{ErrorKind, Position, StringRecord, Trim};
use lowtide_tensorfile::{Place, TensorFileError};

use super::ID_NAMES;
use crate::DataError;

/// Names of the column with the scores.
const SCORE_NAMES: [&str; 2] = ["score", "scores"];

/// What a table of `id,score` says about samples.
#[derive(Debug)]
pub struct Scores {
    by_id: HashMap<String, f64>,
}

impl Scores {
    /// Reads a table with a header, which names a column of ids and one of scores; others are passed over.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read, a column is missing, an id is empty or there twice, or a score is no finite
    /// number.
    pub fn read(path: &Path) -> Result<Self, DataError> {
        let table = fs::read(path).map_err(DataError::io(path))?;
        let failed = |error| table_error(path, error);
        let mut reader = csv::ReaderBuilder::new().trim(Trim::All).from_reader(&table[..]);
        let header = reader.headers().map_err(failed)?.clone();
        let id = column(path, &header, &ID_NAMES)?;
        let score = column(path, &header, &SCORE_NAMES)?;
        let mut by_id = HashMap::new();
        let mut record = StringRecord::new();
        while reader.read_record(&mut record).map_err(failed)? {
            read_row(&record, (id, &header[id]), (score, &header[score]), &mut by_id).map_err(
                |(column, problem)| {
                    let line = record.position().map_or(0, |position| line_of(position, &table));
                    DataError::Table { file: path.to_owned(), line, column: column.to_owned(), problem }
                },
            )?;
        }
        Ok(Self { by_id })
    }

    /// How many ids have a score.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether no id has one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The ids that have a score, in no order.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.by_id.keys().map(String::as_str)
    }

    /// The score of an id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<f64> {
        self.by_id.get(id).copied()
    }
}

/// Writes a table of scores that [`Scores`] reads; it is there as a whole or not at all.
///
/// A score is written in as few digits as tell it from all others.
///
/// # Errors
///
/// Where the system refuses.
pub fn write_scores(path: &Path, rows: impl IntoIterator<Item = (String, f32)>) -> Result<(), DataError> {
    let mut table = csv::Writer::from_writer(Vec::new());
    let all = || {
        table.write_record(["question_id", "score"])?;
        rows.into_iter().try_for_each(|(id, score)| table.write_record([id, score.to_string()]))
    };
    all().map_err(|error| DataError::io(path)(io::Error::from(error)))?;
    let text = table.into_inner().map_err(|error| DataError::io(path)(error.into_error()))?;
    Ok(lowtide_disk::write(path, &text)?)
}

/// Takes a row in, or tells the column and what is wrong with it.
fn read_row<'c>(
    record: &StringRecord,
    (id_column, id_name): (usize, &'c str),
    (score_column, score_name): (usize, &'c str),
    by_id: &mut HashMap<String, f64>,
) -> Result<(), (&'c str, String)> {
    let (id, text) = (&record[id_column], &record[score_column]);
    if id.is_empty() {
        return Err((id_name, "an empty id".to_owned()));
    }
    let Some(score) = text.parse().ok().filter(|score: &f64| score.is_finite()) else {
        return Err((score_name, format!("`{:.80}` is no finite number", text.escape_debug().to_string())));
    };
    if by_id.insert(id.to_owned(), score).is_some() {
        return Err((id_name, format!("`{:.80}` is there a second time", id.escape_debug().to_string())));
    }
    Ok(())
}

/// The line of a record; blank ones before it are counted to it by the reader.
fn line_of(position: &Position, table: &[u8]) -> u64 {
    let start = usize::try_from(position.byte()).unwrap_or(usize::MAX);
    let blank = table.get(start..).unwrap_or_default().iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    position.line() + blank.filter(|byte| **byte == b'\n').count() as u64
}

fn column(path: &Path, header: &StringRecord, names: &[&str]) -> Result<usize, DataError> {
    header.iter().position(|name| names.contains(&name)).ok_or_else(|| {
        let found: Vec<&str> = header.iter().take(12).collect();
        let problem = format!("is missing; the header has `{:.200}`", found.join(",").escape_debug().to_string());
        DataError::Table { file: path.to_owned(), line: 1, column: names[0].to_owned(), problem }
    })
}

fn table_error(path: &Path, error: csv::Error) -> DataError {
    let file = path.to_owned();
    let place = error.position().map_or(Place::Whole, |position| Place::Byte(position.byte()));
    let line = error.position().map_or(1, Position::line);
    match error.into_kind() {
        ErrorKind::Io(source) => TensorFileError::Io { file, place, source }.into(),
        ErrorKind::Utf8 { err, .. } => {
            DataError::Table { file, line, column: (err.field() + 1).to_string(), problem: "is not UTF-8".to_owned() }
        }
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            let problem = format!("the line has {len} columns, and the header has {expected_len}");
            DataError::Table { file, line, column: (len.min(expected_len) + 1).to_string(), problem }
        }
        _ => TensorFileError::Malformed { file, place, problem: "is no table".to_owned() }.into(),
    }
}
