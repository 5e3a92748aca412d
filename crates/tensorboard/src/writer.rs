//! Writes an event file.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::thinning::{Point, Thinning};
use crate::{Error, Retention, message, record};

/// Records wait for the file up to here.
const BUFFER_BYTES: usize = 64 << 10;
/// The first event and the mark of a start.
const HEAD_BYTES: u64 = 128;
/// A longer text is cut.
const TEXT_BYTES: usize = 16 << 10;
/// A longer tag is cut.
const TAG_BYTES: usize = 256;
/// The part of a file that is for text.
const TEXT_SHARE: u64 = 8;

/// How a [`Writer`] names and bounds its file.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of the machine, for the file's name; default `localhost`.
    pub host: String,
    /// The number of the process, for the file's name; default this one.
    pub pid: u32,
    /// The first step that will be written, where a run goes on: TensorBoard then forgets what earlier files say of
    /// later steps. Default none.
    pub resumes_at: Option<u64>,
    /// The most that the file takes, in bytes; default 48 MB. An eighth of it is for text, the rest is shared by the
    /// tags.
    pub file_bytes: u64,
    /// The most tags of scalars; default 48. Those beyond are dropped and counted.
    pub tags: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            host: "localhost".to_owned(),
            pid: std::process::id(),
            resumes_at: None,
            file_bytes: 48_000_000,
            tags: 48,
        }
    }
}

/// One point of a curve.
#[derive(Debug, Clone, Copy)]
pub struct Scalar<'a> {
    /// The curve, as `memory/gpu0_allocated_gb`; what is before the slash is its group.
    pub tag: &'a str,
    /// The training step.
    pub step: u64,
    /// When, in seconds since 1970.
    pub time: f64,
    /// The value.
    pub value: f64,
    /// What is kept when points come too often.
    pub keep: Retention,
}

/// What was not written for want of room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DropCounts {
    /// Points of tags beyond the most.
    pub scalars: u64,
    /// Texts beyond the part of the file that is for text.
    pub texts: u64,
}

/// Writes an event file. Dropped, it writes what waits; a file that cannot be written then is let be.
#[derive(Debug)]
pub struct Writer {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
    series: BTreeMap<String, Thinning>,
    most_series: usize,
    series_bytes: u64,
    text_bytes_left: u64,
    dropped: DropCounts,
    /// The length of the file up to its last whole record.
    whole_bytes: u64,
    /// Whether the file ends within a record.
    torn: bool,
}

impl Writer {
    /// Makes a new file in `folder`, which is made if need be; `now` is in seconds since 1970.
    ///
    /// # Errors
    ///
    /// The folder or the file cannot be made, or its head not be written.
    pub fn create(folder: &Path, now: f64, options: &Options) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(|error| Error::Create { path: folder.to_owned(), error })?;
        let (file, path) = new_file(folder, now, options)?;
        let text_bytes_left = options.file_bytes / TEXT_SHARE;
        let for_series = options.file_bytes.saturating_sub(text_bytes_left + HEAD_BYTES);
        let mut writer = Self {
            file,
            path,
            buffer: Vec::new(),
            series: BTreeMap::new(),
            most_series: options.tags,
            series_bytes: for_series / (options.tags as u64).max(1),
            text_bytes_left,
            dropped: DropCounts::default(),
            whole_bytes: 0,
            torn: false,
        };
        record::append(&mut writer.buffer, &message::version(now));
        if let Some(step) = options.resumes_at {
            record::append(&mut writer.buffer, &message::start(now, step));
        }
        writer.flush()?;
        Ok(writer)
    }

    /// The file that is written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was not written for want of room. Points that thinning left out do not count.
    pub const fn dropped(&self) -> DropCounts {
        self.dropped
    }

    /// Adds a point to a curve. It may wait in memory until [`Writer::flush`], and longer if its curve is thinned.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn scalar(&mut self, scalar: Scalar<'_>) -> Result<(), Error> {
        let tag = cut(scalar.tag, TAG_BYTES);
        if !self.series.contains_key(tag) {
            if self.series.len() >= self.most_series {
                self.dropped.scalars += 1;
                return Ok(());
            }
            self.series.insert(tag.to_owned(), Thinning::new(self.series_bytes));
        }
        let series = self.series.get_mut(tag).expect("it is there or was put there");
        let point = Point { time: scalar.time, step: scalar.step, value: scalar.value as f32 };
        if let Some(point) = series.take(point, scalar.keep) {
            append_point(&mut self.buffer, tag, series, point);
        }
        self.write_when_full()
    }

    /// Adds a text, which TensorBoard shows as Markdown. Text beyond 16 KiB is cut.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn text(&mut self, tag: &str, step: u64, time: f64, text: &str) -> Result<(), Error> {
        let event = message::text(time, step, cut(tag, TAG_BYTES), cut(text, TEXT_BYTES));
        let size = (event.len() + record::FRAME_BYTES) as u64;
        if size > self.text_bytes_left {
            self.dropped.texts += 1;
            return Ok(());
        }
        self.text_bytes_left -= size;
        record::append(&mut self.buffer, &event);
        self.write_when_full()
    }

    /// Hands all whole records to the system, after which a kill of the process loses none of them.
    ///
    /// # Errors
    ///
    /// The file cannot be written. What waited is given up, and the file is cut back to its last whole record, for a
    /// reader stops at half of one; where even that fails, nothing more is written.
    pub fn flush(&mut self) -> Result<(), Error> {
        let size = self.buffer.len() as u64;
        let result = if self.torn { Ok(()) } else { self.file.write_all(&self.buffer) };
        self.buffer.clear();
        match result {
            Ok(()) => {
                self.whole_bytes += size;
                Ok(())
            }
            Err(error) => {
                self.torn = self.file.set_len(self.whole_bytes).is_err();
                Err(Error::Write { path: self.path.clone(), error })
            }
        }
    }

    /// Writes the rest of every thinned curve and flushes.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn close(mut self) -> Result<(), Error> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), Error> {
        for (tag, series) in &mut self.series {
            if let Some(point) = series.rest() {
                append_point(&mut self.buffer, tag, series, point);
            }
        }
        self.flush()
    }

    fn write_when_full(&mut self) -> Result<(), Error> {
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Nobody is left to tell.
        let _ = self.finish();
    }
}

fn append_point(buffer: &mut Vec<u8>, tag: &str, series: &mut Thinning, point: Point) {
    let event = message::scalar(point.time, point.step, tag, point.value);
    if series.spend((event.len() + record::FRAME_BYTES) as u64) {
        record::append(buffer, &event);
    }
}

/// What TensorBoard knows files of events by; the time of their start follows.
const PREFIX: &str = "events.out.tfevents.";
/// The largest time that has as many digits as the others.
const LAST_SECOND: u64 = 9_999_999_999;

/// `events.out.tfevents.TIME.HOST.PID.lowtide`, and a number behind it where that is taken.
fn new_file(folder: &Path, now: f64, options: &Options) -> Result<(File, PathBuf), Error> {
    let host: String = options
        .host
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || "-.".contains(letter) { letter } else { '_' })
        .collect();
    // TensorBoard reads files in the order of their names, and numbers of processes start anew now and then.
    let second = (now.max(0.0) as u64).max(newest_second(folder).map_or(0, |newest| newest + 1)).min(LAST_SECOND);
    let name = format!("{PREFIX}{second:010}.{}.{}.lowtide", cut(&host, 64), options.pid);
    let mut path = folder.join(&name);
    for number in 1_u32.. {
        match OpenOptions::new().append(true).create_new(true).open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                path = folder.join(format!("{name}.{number}"));
            }
            Err(error) => return Err(Error::Create { path, error }),
        }
    }
    unreachable!("one of four billion names is free");
}

/// The latest start that the names of a folder tell of.
fn newest_second(folder: &Path) -> Option<u64> {
    let names = fs::read_dir(folder).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let second = |name: String| name.strip_prefix(PREFIX)?.split('.').next()?.parse().ok();
    names.filter_map(second).filter(|second| *second < LAST_SECOND).max()
}

/// The beginning of a text, up to `bytes` and not within a letter.
fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
