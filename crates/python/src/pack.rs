//! Packing files of samples into shards, as Python asks for it.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lowtide_core::Bytes;
use lowtide_data::feed::OnDamage;
use lowtide_data::pack::{Job, OnMissing, Options, Progress, Stage, Start};
use lowtide_data::shard::Compression;
use lowtide_tensorfile::DecodeLimit;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::Failure;

/// How often Python is asked whether to go on, and shown how far it is.
const EVERY: Duration = Duration::from_millis(100);

/// Packs files and folders of samples into a folder of shards, and gives what is there in the end.
///
/// `progress` is called with the stage, the bytes that are done and all bytes.
#[pyfunction]
#[pyo3(signature = (sources, out, *, shard_bytes, level, scores, allow_missing, skip_damaged, decode_bytes, restart, verify, progress))]
#[expect(clippy::too_many_arguments, clippy::fn_params_excessive_bools, reason = "all of them have names in Python")]
pub(crate) fn pack<'py>(
    py: Python<'py>,
    sources: Vec<PathBuf>,
    out: PathBuf,
    shard_bytes: u64,
    level: Option<i32>,
    scores: Option<PathBuf>,
    allow_missing: bool,
    skip_damaged: bool,
    decode_bytes: Option<u64>,
    restart: bool,
    verify: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let options = Options {
        shard_bytes: Bytes(shard_bytes),
        compression: level.map_or(Compression::None, |level| Compression::Zstd { level }),
        scores,
        missing: if allow_missing { OnMissing::Allow } else { OnMissing::Refuse },
        on_damage: if skip_damaged { OnDamage::Skip } else { OnDamage::Stop },
        decode_limit: DecodeLimit::asked(decode_bytes.map(Bytes)),
    };
    let start = if restart { Start::Over } else { Start::GoOn };
    let mut watch = Watch { progress, shown: None, stopped: None };
    let packed = py.detach(|| {
        let mut job = Job::begin(&sources, &out, options, start)?;
        job.run(&mut |at| watch.show(at))?;
        let verified = if verify { Some(job.verify(&mut |at| watch.show(at))?) } else { None };
        Ok::<_, lowtide_data::pack::Error>((job.summary()?, verified))
    });
    // What Python said goes before what followed from it.
    if let Some(error) = watch.stopped {
        return Err(error);
    }
    let (summary, verified) = packed.map_err(Failure::from)?;
    let facts = PyDict::new(py);
    facts.set_item("samples", summary.samples)?;
    facts.set_item("shards", summary.shards)?;
    facts.set_item("bytes", summary.bytes.get())?;
    facts.set_item("sources", summary.sources)?;
    facts.set_item("source_bytes", summary.source_bytes.get())?;
    facts.set_item("ids", summary.ids)?;
    facts.set_item("duplicate_ids", summary.duplicates.samples)?;
    let left_out: Vec<_> = summary.left_out.into_iter().map(|file| (file.file, file.reason)).collect();
    facts.set_item("left_out", left_out)?;
    facts.set_item("verified", verified)?;
    Ok(facts)
}

/// Asks Python now and then.
struct Watch {
    progress: Option<Py<PyAny>>,
    shown: Option<Instant>,
    stopped: Option<PyErr>,
}

impl Watch {
    fn show(&mut self, at: Progress) -> ControlFlow<()> {
        if self.shown.is_some_and(|shown| shown.elapsed() < EVERY) {
            return ControlFlow::Continue(());
        }
        self.shown = Some(Instant::now());
        let stage = match at.stage {
            Stage::Matching => "matching",
            Stage::Packing => "packing",
            Stage::Verifying => "verifying",
        };
        let asked = Python::attach(|py| {
            py.check_signals()?;
            match &self.progress {
                Some(progress) => progress.call1(py, (stage, at.done.get(), at.all.get())).map(|_| ()),
                None => Ok(()),
            }
        });
        match asked {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.stopped = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}
