//! `lowtide generate scoring`: writes what is not there yet, on all cores.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use lowtide_args::ScoringArgs;
use lowtide_core::{Bytes, SCHEMA};
use lowtide_data::{DataError, write_scores};
use lowtide_tensorfile::TensorFileError;
use serde_json::json;

use super::out_folder::{OutFolder, SCORES};
use super::scoring_files::ScoringFiles;
use super::write_progress::WriteProgress;
use crate::output::{Failure, INTERRUPTED, print_json, to_stderr};
use crate::stop_flag::stop_flag;

pub(super) fn write(args: &ScoringArgs) -> Result<(), Failure> {
    let began = Instant::now();
    let files = ScoringFiles::of(args)?;
    let folder = OutFolder::open(&args.out, &files)?;
    let stop = stop_flag()?;
    let progress = WriteProgress::new(files.samples(), args.json);
    let scores = write_files(&files, &folder, &stop, &progress);
    progress.end();
    let Some(scores) = scores? else {
        let there = (0..files.ranges.len()).filter(|file| folder.path_of(&files, *file).exists()).count();
        let text = format!("interrupted: {there} of {} files are there", files.ranges.len());
        let hint = "the same command writes the rest".to_owned();
        return Err(Failure { text, hint: Some(hint), code: INTERRUPTED });
    };
    if files.has_table() {
        let numbers = 0..files.samples();
        let rows = numbers.map(|number| files.data.items.id(number)).zip(scores);
        write_scores(&folder.path().join(SCORES), rows).map_err(not_written)?;
    }
    let report = Report { folder: &folder, files: &files, seconds: began.elapsed().as_secs_f64() };
    if args.json {
        return report.print_json();
    }
    report.say();
    Ok(())
}

/// Writes the files that are not there yet, on all cores; gives the scores of all samples where a table is wanted, and
/// nothing where somebody asked the command to end.
fn write_files(
    files: &ScoringFiles,
    folder: &OutFolder,
    stop: &AtomicBool,
    progress: &WriteProgress,
) -> Result<Option<Vec<f32>>, Failure> {
    let next = AtomicUsize::new(0);
    let halt = AtomicBool::new(false);
    let is_over = || stop.load(Ordering::Relaxed) || halt.load(Ordering::Relaxed);
    let work = || -> Result<Vec<(usize, Vec<f32>)>, DataError> {
        let mut mine = Vec::new();
        while !is_over() {
            let file = next.fetch_add(1, Ordering::Relaxed);
            let Some(numbers) = files.ranges.get(file).cloned() else { break };
            let written = write_file(files, folder, file, &is_over);
            let Some(scores) = written.inspect_err(|_| halt.store(true, Ordering::Relaxed))? else { break };
            mine.push((file, scores));
            progress.add(numbers.end - numbers.start);
        }
        Ok(mine)
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(files.ranges.len());
    let written = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("writing does not panic")).collect::<Result<Vec<_>, _>>()
    })
    .map_err(not_written)?;
    let mut written: Vec<_> = written.into_iter().flatten().collect();
    if written.len() < files.ranges.len() {
        return Ok(None);
    }
    written.sort_unstable_by_key(|(file, _)| *file);
    Ok(Some(written.into_iter().flat_map(|(_, scores)| scores).collect()))
}

/// Writes a file unless it is there; gives the scores where a table is wanted.
fn write_file(
    files: &ScoringFiles,
    folder: &OutFolder,
    file: usize,
    is_over: &impl Fn() -> bool,
) -> Result<Option<Vec<f32>>, DataError> {
    let numbers = files.ranges[file].clone();
    if folder.keeps(files, file) {
        let scores = numbers.filter(|_| files.has_table()).map(|number| files.data.score(number));
        return Ok(Some(scores.collect()));
    }
    let scores = files.data.write(&folder.path_of(files, file), numbers, is_over)?;
    Ok(scores.map(|scores| if files.has_table() { scores } else { Vec::new() }))
}

/// A full disk, where all that is there can stay.
fn not_written(error: DataError) -> Failure {
    let is_full = match &error {
        DataError::File(TensorFileError::Io { source, .. }) => source.kind() == io::ErrorKind::StorageFull,
        _ => false,
    };
    let mut failure = Failure::from(error);
    if is_full {
        failure.hint =
            Some("make room, then run the same command again: the files that are there are whole".to_owned());
    }
    failure
}

/// What came of it.
struct Report<'a> {
    folder: &'a OutFolder,
    files: &'a ScoringFiles,
    seconds: f64,
}

impl Report<'_> {
    fn say(&self) {
        let (files, samples) = (self.files.ranges.len(), self.files.samples());
        let kept = match self.folder.kept() {
            0 => String::new(),
            kept => format!(", {kept} of them from before"),
        };
        let path = self.folder.path().display();
        to_stderr(&format!("{files} files, {samples} samples, {}{kept}, in {:.1} s", self.bytes(), self.seconds));
        to_stderr(&format!("look into them with: lowtide data {path}"));
    }

    fn print_json(&self) -> Result<(), Failure> {
        let told = json!({
            "schema": SCHEMA,
            "event": "generated",
            "folder": self.folder.path(),
            "format": self.files.format.name(),
            "files": self.files.ranges.len(),
            "kept": self.folder.kept(),
            "samples": self.files.samples(),
            "bytes": self.bytes(),
            "seconds": self.seconds,
        });
        print_json(&format!("{told}\n"))
    }

    /// On disk.
    fn bytes(&self) -> Bytes {
        let length = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
        let paths = (0..self.files.ranges.len()).map(|file| self.folder.path_of(self.files, file));
        Bytes(paths.map(|path| length(&path)).sum())
    }
}
