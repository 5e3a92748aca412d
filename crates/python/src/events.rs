//! The file of events of a run that Python trains.

use std::path::PathBuf;

use lowtide_core::Event;
use lowtide_journal::{EVENTS, LineFile};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

/// The events of a run, in its folder where it has one. Locked while it is open: by that, others see that the run goes on.
#[pyclass(module = "lowtide._native")]
#[derive(Debug)]
pub(crate) struct EventFile {
    file: lowtide_journal::EventFile,
}

#[pymethods]
impl EventFile {
    /// Goes on in the file that is in a folder, or makes it; without a folder nothing is written.
    #[new]
    #[pyo3(signature = (folder=None))]
    fn new(folder: Option<PathBuf>) -> PyResult<Self> {
        let Some(folder) = folder else {
            return Ok(Self { file: lowtide_journal::EventFile::new(None) });
        };
        let path = folder.join(EVENTS);
        let refuse = |error: lowtide_journal::LineFileError| PyOSError::new_err(error.to_string());
        let mut lines = LineFile::open(&path).map_err(refuse)?;
        if lines.is_anothers() {
            let text = format!("{}: another process writes to it", path.display());
            return Err(PyOSError::new_err(text));
        }
        lines.check().map_err(refuse)?;
        Ok(Self { file: lowtide_journal::EventFile::new(Some(lines)) })
    }

    /// Writes an event, given as JSON, with the rank where it is one's own. Gives the line that tells people of it, where it is
    /// worth one.
    #[pyo3(signature = (event, batch, rank=None))]
    fn write(&mut self, event: &str, batch: u32, rank: Option<u32>) -> PyResult<Option<String>> {
        let event: Event = serde_json::from_str(event)
            .map_err(|error| PyValueError::new_err(format!("no event: {error}: {event}")))?;
        let record = self.file.write_of(rank, event).map_err(|error| PyOSError::new_err(error.to_string()))?;
        Ok(record.log_line(batch))
    }

    /// Seconds since it was opened.
    #[getter]
    fn seconds(&self) -> f64 {
        self.file.seconds()
    }
}
