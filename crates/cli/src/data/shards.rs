//! The shards of a folder.

use std::collections::HashSet;
use std::path::Path;

use lowtide_args::DataArgs;
use lowtide_core::{Bytes, counted, grouped};
use lowtide_data::feed::OnDamage;
use lowtide_data::pack::PACKED;
use lowtide_data::shard::Reader;
use lowtide_data::{DataError, DataSet, FieldSummaries, Folder, OpenOptions, OpenedSet, see_records};
use serde_json::{Value, json};

use super::command::decode_limit;
use crate::data::cost::{Cost, Sizes};
use crate::data::survey::{disk_fact, field_json, field_table, name_of, print_survey};
use crate::output::{Failure, printable};

/// What fields there are stands in the records. A set of up to this size is read for that,
const READ_WHOLE: Bytes = Bytes::from_mib(64);
/// and of a larger one a record of so many shards.
const MOST_LOOKED_AT: u32 = 256;
const MOST_TWICE: usize = 5;
const MOST_NAMED: usize = 1000;

pub(crate) fn survey(args: &DataArgs, folder: &Folder) -> Result<(), Failure> {
    let options = OpenOptions { on_damage: OnDamage::Skip, decode_limit: decode_limit(args), ..OpenOptions::default() };
    let opened = DataSet::open(&args.path, options)?;
    let mut survey = Shards::of(&opened.set);
    survey.leave_out(folder, &opened);
    survey.see_fields(&opened.set, args.sums);
    let others = folder.others - u64::from(args.path.join(PACKED).exists());
    let cost = Cost::of(&survey.sizes, &args.cost);
    print_survey(args, "shard", || survey.json(), || survey.text(&args.path, others), cost)?;
    if survey.unreadable.is_empty() {
        return Ok(());
    }
    let (bad, all) = (survey.unreadable.len() as u64, folder.shards.len() as u64);
    let text = format!("{} of {} cannot be read", grouped(bad), counted(all, "shard"));
    Err(Failure::bad_input(text, Some("each is listed with its reason; copy or pack them again".to_owned())))
}

/// What was seen of the shards of a folder.
struct Shards {
    samples: u64,
    shards: u64,
    on_disk: Bytes,
    smallest: (Bytes, String),
    largest: (Bytes, String),
    sizes: Sizes,
    ids: u64,
    again: u64,
    /// Some that came twice: the places of both.
    twice: Vec<[String; 2]>,
    fields: FieldSummaries,
    /// Samples in which the fields were seen.
    seen: u64,
    /// Shards that could not be opened.
    left_out: u64,
    /// Names and reasons of these, and of others that are damaged.
    unreadable: Vec<(String, String)>,
}

impl Shards {
    fn of(set: &DataSet) -> Self {
        let index = set.index();
        let sizes = (0..index.files()).map(|file| (index.stamp_of(file).bytes, index.name_of(file).to_owned()));
        let smallest = sizes.clone().min().unwrap_or_default();
        let largest =
            sizes.clone().max_by(|one, other| one.0.cmp(&other.0).then(other.1.cmp(&one.1))).unwrap_or_default();
        let mut hashes: Vec<(u64, u32, u64)> = (0..index.files())
            .flat_map(|file| (0..).zip(index.samples_of(file)).map(move |(record, it)| (it.id_hash, file, record)))
            .filter(|(hash, ..)| *hash != 0)
            .collect();
        hashes.sort_unstable();
        let pairs = || hashes.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        let place =
            |(_, file, record): &(u64, u32, u64)| format!("record {record} of {}", printable(index.name_of(*file)));
        Self {
            samples: index.samples(),
            shards: u64::from(index.files()),
            on_disk: sizes.fold(Bytes::ZERO, |sum, (size, _)| sum.saturating_add(size)),
            smallest,
            largest,
            sizes: Sizes::of(set),
            ids: hashes.len() as u64,
            again: pairs().count() as u64,
            twice: pairs().take(MOST_TWICE).map(|pair| [place(&pair[0]), place(&pair[1])]).collect(),
            fields: FieldSummaries::default(),
            seen: 0,
            left_out: 0,
            unreadable: Vec::new(),
        }
    }

    /// Names the shards that are not in the data set, which come in the order of their names.
    fn leave_out(&mut self, folder: &Folder, opened: &OpenedSet) {
        let index = opened.set.index();
        let known: HashSet<&str> = (0..index.files()).map(|file| index.name_of(file)).collect();
        let names = folder.shards.iter().map(|path| name_of(path)).filter(|name| !known.contains(name.as_str()));
        self.left_out = opened.left_out.len() as u64;
        self.unreadable = names.zip(&opened.left_out).map(|(name, error)| (name, error.to_string())).collect();
    }

    /// Reads all records, or of a large set the first of some shards.
    fn see_fields(&mut self, set: &DataSet, is_all_asked: bool) {
        let is_all = is_all_asked || self.sizes.all() <= READ_WHOLE;
        let step = if is_all { 1 } else { set.index().files().div_ceil(MOST_LOOKED_AT).max(1) };
        let mut read = Bytes::ZERO;
        for shard in (0..set.index().files()).step_by(step as usize) {
            let samples = set.index().samples_of(shard);
            let records = if is_all { samples.len() } else { samples.len().min(1) };
            read = read.saturating_add(samples.first().map_or(Bytes::ZERO, |sample| sample.memory));
            if !is_all && read > READ_WHOLE {
                return;
            }
            let seen = Reader::open(set.path(shard))
                .map_err(DataError::from)
                .and_then(|reader| see_records(reader, 0..records as u64, &mut self.fields));
            match seen {
                Ok(()) => self.seen += records as u64,
                Err(error) => self.unreadable.push((set.index().name_of(shard).to_owned(), error.to_string())),
            }
        }
    }

    fn text(&self, path: &Path, others: u64) -> String {
        let beside = if others == 0 { String::new() } else { format!(", {} passed over", counted(others, "other")) };
        let path = printable(&path.display().to_string());
        let mut text = format!("{path}: {}{beside}\n", counted(self.shards + self.left_out, "shard"));
        let percent = self.on_disk.get() as f64 / self.sizes.all().get().max(1) as f64 * 100.0;
        let facts = [
            ("samples", grouped(self.samples)),
            ("on disk", disk_fact(self.on_disk, &self.smallest, &self.largest)),
            ("memory", format!("{}; the files are {percent:.0} % of that", self.sizes.fact("shard"))),
            ("ids", self.ids_fact()),
        ];
        for (name, fact) in facts {
            text.push_str(&format!("  {name:<9}{}\n", fact));
        }
        text.push_str(&field_table(&self.fields));
        if self.seen < self.samples && self.unreadable.is_empty() {
            text.push_str(&format!(
                "(seen in {} of {}; --sums reads all)\n",
                grouped(self.seen),
                grouped(self.samples)
            ));
        }
        if !self.unreadable.is_empty() {
            text.push_str(&format!("\ncannot be read: {}\n", counted(self.unreadable.len() as u64, "shard")));
            let line = |(_, reason): &(String, String)| format!("  {}\n", printable(reason));
            text.extend(self.unreadable.iter().take(MOST_NAMED).map(line));
            if self.unreadable.len() > MOST_NAMED {
                text.push_str(&format!("  and {} more\n", self.unreadable.len() - MOST_NAMED));
            }
        }
        text
    }

    fn ids_fact(&self) -> String {
        if self.ids == 0 {
            return "none".to_owned();
        }
        let without = match self.samples - self.ids {
            0 => String::new(),
            without => format!(", {} without", counted(without, "sample")),
        };
        if self.again == 0 {
            return format!("{}{without}, none twice", grouped(self.ids));
        }
        let named: String = self.twice.iter().map(|[one, other]| format!("\n           {one} and {other}")).collect();
        format!("{}{without}, {} of them a second time:{named}", grouped(self.ids), grouped(self.again))
    }

    fn json(&self) -> Value {
        let size = |(bytes, name): &(Bytes, String)| json!({"file": name, "bytes": bytes});
        let unreadable = |(name, reason): &(String, String)| json!({"file": name, "reason": reason});
        json!({
            "shards": self.shards,
            "samples": self.samples,
            "disk_bytes": self.on_disk,
            "smallest": size(&self.smallest),
            "largest": size(&self.largest),
            "memory_bytes": self.sizes.all(),
            "largest_memory_bytes": self.sizes.largest_shard(),
            "ids": {"seen": self.ids, "again": self.again, "examples": self.twice},
            "fields": self.fields.all().iter().map(field_json).collect::<Vec<_>>(),
            "fields_seen_in_samples": self.seen,
            "unreadable_count": self.unreadable.len(),
            "unreadable": self.unreadable.iter().map(unreadable).collect::<Vec<_>>(),
        })
    }
}
