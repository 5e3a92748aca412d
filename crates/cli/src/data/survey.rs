//! The data files of a folder, one at a time: what is known of each is added up and let go.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lowtide_args::DataArgs;
use lowtide_core::{Bytes, counted, grouped};
use lowtide_data::feed::OnDamage;
use lowtide_data::{
    BatchFile, DataError, DataSet, FieldSummaries, FieldSummary, Folder, KNOWN_ENDINGS, OpenOptions, Shapes,
};
use lowtide_tensorfile::{DecodeLimit, Format, Sums, rows};
use serde_json::{Value, json};

use super::command::decode_limit;
use crate::data::cost::{Cost, Sizes};
use crate::output::{Failure, Side, aligned, json_text, print, print_json, printable};

/// From so many files on, a person wants to see that it goes on.
const FILES_WITH_BAR: u64 = 200;
/// Bounds on what is remembered, whatever the files hold.
const MOST_IDS: usize = 2 << 20;
const MOST_FIELDS: usize = 1000;
const MOST_LEFT_OUT: usize = 100;
const MOST_UNREADABLE: usize = 1000;
const MOST_TWICE: usize = 5;

pub(crate) fn survey(args: &DataArgs, folder: &Folder) -> Result<(), Failure> {
    if folder.files.is_empty() {
        let text = format!("{}: there are no data files in this folder", args.path.display());
        let hint = format!("data files end in {}; folders within are not looked into", KNOWN_ENDINGS.join(", "));
        return Err(Failure::bad_input(text, Some(hint)));
    }
    let sums = if args.sums { Sums::Compute } else { Sums::Skip };
    let survey = Survey::of(&folder.files, sums, decode_limit(args));
    let text = || survey.text(&args.path, folder.others);
    print_survey(args, "file", || survey.json(), text, cost_of(args, folder))?;
    if survey.unreadable_count == 0 {
        return Ok(());
    }
    let text = format!("{} of {} cannot be read", grouped(survey.unreadable_count), counted(survey.files, "file"));
    Err(Failure::bad_input(text, Some("each is listed with its reason".to_owned())))
}

/// Prints what was seen of a folder, and what a run would cost, where that is known.
pub(crate) fn print_survey(
    args: &DataArgs,
    file: &str,
    json: impl FnOnce() -> Value,
    text: impl FnOnce() -> String,
    cost: Result<Option<Cost>, Failure>,
) -> Result<(), Failure> {
    let known = cost.as_ref().ok().and_then(Option::as_ref);
    if args.json {
        let mut json = json();
        json["cost"] = known.map_or(Value::Null, Cost::json);
        print_json(&json_text(&json))?;
    } else {
        print(&(text() + &known.map_or(String::new(), |cost| cost.text(file))))?;
    }
    cost.map(|_| ())
}

/// What a run would cost, where that is asked for; files that cannot be read are left out.
fn cost_of(args: &DataArgs, folder: &Folder) -> Result<Option<Cost>, Failure> {
    if args.cost.host_line.is_none() && args.cost.max_cache_batches.is_none() {
        return Ok(None);
    }
    let options = OpenOptions { on_damage: OnDamage::Skip, decode_limit: decode_limit(args), ..OpenOptions::default() };
    Cost::of(&Sizes::of(&DataSet::of_files(&folder.files, options)?.set), &args.cost)
}

/// What was seen in the files of a folder.
struct Survey {
    limit: DecodeLimit,
    files: u64,
    formats: BTreeMap<Format, u64>,
    samples: u64,
    on_disk: Bytes,
    smallest: Option<(Bytes, String)>,
    largest: Option<(Bytes, String)>,
    decoded: Bytes,
    /// The most that the samples of one file take.
    largest_decoded: Bytes,
    fields: FieldSummaries,
    /// What files hold beside their samples, by name.
    left_out: Vec<String>,
    ids: Ids,
    /// Names and reasons.
    unreadable: Vec<(String, String)>,
    unreadable_count: u64,
}

impl Survey {
    fn of(files: &[PathBuf], sums: Sums, limit: DecodeLimit) -> Self {
        let mut survey = Self {
            limit,
            files: files.len() as u64,
            formats: BTreeMap::new(),
            samples: 0,
            on_disk: Bytes::ZERO,
            smallest: None,
            largest: None,
            decoded: Bytes::ZERO,
            largest_decoded: Bytes::ZERO,
            fields: FieldSummaries::default(),
            left_out: Vec::new(),
            ids: Ids::default(),
            unreadable: Vec::new(),
            unreadable_count: 0,
        };
        let bar = bar(survey.files);
        for (index, path) in files.iter().enumerate() {
            if let Err(error) = survey.add(path, index, sums, files) {
                survey.refuse(path, &error);
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        survey
    }

    fn add(&mut self, path: &Path, index: usize, sums: Sums, files: &[PathBuf]) -> Result<(), DataError> {
        let file = BatchFile::open_within(path, self.limit)?;
        if sums == Sums::Compute {
            rows(file.tree(), Sums::Compute)?;
        }
        let on_disk = path.metadata().map_or(Bytes::ZERO, |metadata| Bytes(metadata.len()));
        *self.formats.entry(file.format()).or_default() += 1;
        self.samples = self.samples.saturating_add(file.samples());
        self.on_disk = self.on_disk.saturating_add(on_disk);
        self.decoded = self.decoded.saturating_add(file.bytes());
        self.largest_decoded = self.largest_decoded.max(file.bytes());
        if self.smallest.as_ref().is_none_or(|(size, _)| on_disk < *size) {
            self.smallest = Some((on_disk, name_of(path)));
        }
        if self.largest.as_ref().is_none_or(|(size, _)| on_disk > *size) {
            self.largest = Some((on_disk, name_of(path)));
        }
        for field in file.fields() {
            if self.fields.all().len() < MOST_FIELDS || self.fields.contains(&field.name) {
                self.fields.add(field);
            }
        }
        for name in file.left_out() {
            if self.left_out.len() < MOST_LEFT_OUT && !self.left_out.iter().any(|known| *known == *name) {
                self.left_out.push(name.into_owned());
            }
        }
        for id in file.ids().unwrap_or_default() {
            self.ids.see(&id, index, files);
        }
        Ok(())
    }

    fn refuse(&mut self, path: &Path, error: &DataError) {
        self.unreadable_count += 1;
        if self.unreadable.len() < MOST_UNREADABLE {
            let text = error.to_string();
            let reason = text.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&text);
            self.unreadable.push((name_of(path), reason.to_owned()));
        }
    }

    /// What a person reads.
    fn text(&self, path: &Path, others: u64) -> String {
        let beside = if others == 0 { String::new() } else { format!(", {} passed over", counted(others, "other")) };
        let mut text =
            format!("{}: {}{beside}\n", printable(&path.display().to_string()), counted(self.files, "data file"));
        let facts = [self.format_fact(), self.sample_fact(), self.disk_fact(), self.decoded_fact(), self.ids.fact()];
        for (name, fact) in ["format", "samples", "on disk", "decoded", "ids"].iter().zip(facts) {
            if let Some(fact) = fact {
                text.push_str(&format!("  {name:<9}{fact}\n"));
            }
        }
        text.push_str(&field_table(&self.fields));
        if !self.left_out.is_empty() {
            let names: Vec<String> = self.left_out.iter().map(|name| format!("`{}`", printable(name))).collect();
            text.push_str(&format!("\nbeside the samples: {}\n", names.join(", ")));
        }
        if self.unreadable_count > 0 {
            text.push_str(&format!("\ncannot be read: {}\n", counted(self.unreadable_count, "file")));
            for (name, reason) in &self.unreadable {
                text.push_str(&format!("  {}: {}\n", printable(name), printable(reason)));
            }
            let more = self.unreadable_count - self.unreadable.len() as u64;
            if more > 0 {
                text.push_str(&format!("  and {} more\n", grouped(more)));
            }
        }
        text
    }

    fn format_fact(&self) -> Option<String> {
        let formats: Vec<String> =
            self.formats.iter().map(|(format, files)| format!("{format}: {}", counted(*files, "file"))).collect();
        (!formats.is_empty()).then(|| formats.join("; "))
    }

    fn sample_fact(&self) -> Option<String> {
        (!self.formats.is_empty()).then(|| grouped(self.samples))
    }

    fn disk_fact(&self) -> Option<String> {
        Some(disk_fact(self.on_disk, self.smallest.as_ref()?, self.largest.as_ref()?))
    }

    fn decoded_fact(&self) -> Option<String> {
        (!self.formats.is_empty())
            .then(|| format!("{} for everything, up to {} for one file", self.decoded, self.largest_decoded))
    }

    fn json(&self) -> Value {
        let formats = self.formats.iter().map(|(format, files)| (format.to_string(), json!(files)));
        let size =
            |of: &Option<(Bytes, String)>| of.as_ref().map(|(bytes, name)| json!({"file": name, "bytes": bytes}));
        let unreadable = |(name, reason): &(String, String)| json!({"file": name, "reason": reason});
        json!({
            "files": self.files,
            "formats": formats.collect::<serde_json::Map<_, _>>(),
            "samples": self.samples,
            "disk_bytes": self.on_disk,
            "smallest": size(&self.smallest),
            "largest": size(&self.largest),
            "decoded_bytes": self.decoded,
            "largest_decoded_bytes": self.largest_decoded,
            "ids": self.ids.json(),
            "fields": self.fields.all().iter().map(field_json).collect::<Vec<_>>(),
            "left_out": self.left_out,
            "unreadable_count": self.unreadable_count,
            "unreadable": self.unreadable.iter().map(unreadable).collect::<Vec<_>>(),
        })
    }
}

/// Which ids came twice. Of each only a hash is kept, of 64 bits: among two million, two are taken for one with a
/// chance of one in ten million.
#[derive(Default)]
struct Ids {
    hasher: RandomState,
    /// The file of each id, by its index.
    files: HashMap<u64, u32>,
    seen: u64,
    twice: u64,
    /// Some of those that came twice: id, first file, second file.
    named: Vec<[String; 3]>,
}

impl Ids {
    fn see(&mut self, id: &str, index: usize, files: &[PathBuf]) {
        self.seen += 1;
        let has_room = self.files.len() < MOST_IDS;
        match self.files.entry(self.hasher.hash_one(id)) {
            Entry::Occupied(first) => {
                self.twice += 1;
                if self.named.len() < MOST_TWICE {
                    let first = files.get(*first.get() as usize).map(|path| name_of(path)).unwrap_or_default();
                    let second = files.get(index).map(|path| name_of(path)).unwrap_or_default();
                    self.named.push([id.to_owned(), first, second]);
                }
            }
            Entry::Vacant(vacant) if has_room => _ = vacant.insert(index as u32),
            Entry::Vacant(_) => {}
        }
    }

    fn fact(&self) -> Option<String> {
        if self.seen == 0 {
            return None;
        }
        let full = if self.files.len() < MOST_IDS {
            String::new()
        } else {
            format!(", {} compared", grouped(MOST_IDS as u64))
        };
        if self.twice == 0 {
            return Some(format!("{}, none twice{full}", grouped(self.seen)));
        }
        let named = self.named.iter().map(|[id, first, second]| {
            format!("\n           `{:.80}` in {} and {}", printable(id), printable(first), printable(second))
        });
        Some(format!(
            "{}, {} of them a second time{full}:{}",
            grouped(self.seen),
            grouped(self.twice),
            named.collect::<String>()
        ))
    }

    fn json(&self) -> Value {
        let named = self.named.iter().map(|[id, first, second]| json!({"id": id, "files": [first, second]}));
        json!({"seen": self.seen, "again": self.twice, "examples": named.collect::<Vec<_>>()})
    }
}

/// What all files take on the disk, and the smallest and the largest of them.
pub(crate) fn disk_fact(all: Bytes, (small, small_name): &(Bytes, String), largest: &(Bytes, String)) -> String {
    let (large, large_name) = largest;
    let (small_name, large_name) = (printable(small_name), printable(large_name));
    format!("{all} (smallest {small} {small_name}, largest {large} {large_name})")
}

/// The fields of samples, one a line, below a blank one; nothing where there are none.
pub(crate) fn field_table(fields: &FieldSummaries) -> String {
    if fields.all().is_empty() {
        return String::new();
    }
    let mut lines = vec![["field", "dtype", "shape", "samples"].map(str::to_owned)];
    lines.extend(fields.all().iter().map(|field| {
        [printable(&field.name), kinds(field).join(" or "), field.shapes.to_string(), grouped(field.samples)]
    }));
    format!("\n{}", aligned([Side::Left, Side::Left, Side::Left, Side::Right], &lines))
}

pub(crate) fn field_json(field: &FieldSummary) -> Value {
    let shape = match &field.shapes {
        Shapes::Sizes(sizes) => json!(sizes),
        Shapes::Varied => Value::Null,
    };
    json!({"name": &*field.name, "dtypes": kinds(field), "shape": shape, "samples": field.samples})
}

fn kinds(field: &FieldSummary) -> Vec<String> {
    field.kinds.iter().map(ToString::to_string).collect()
}

pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn bar(files: u64) -> ProgressBar {
    if files < FILES_WITH_BAR || !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} files  {eta} left").expect("the template is right");
    ProgressBar::with_draw_target(Some(files), ProgressDrawTarget::stderr_with_hz(10)).with_style(style)
}
