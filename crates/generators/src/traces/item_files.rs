//! Items as files, laid out as people have them: batches of `torch.save`, or pickles with a table of scores.
//!
//! Item `n` of the files is item `n` of [`SyntheticItems`], so that training on either is training on the same data.

use std::borrow::Cow;
use std::ops::{Range, RangeInclusive};
use std::path::Path;

use lowtide_core::Bytes;
use lowtide_tensorfile::{Dtype, Packing, PtTensor, PtValue, TensorFileError, write_pickle, write_pt};

use super::item::Item;
use super::synthetic_items::{NODE_WIDTH, STEP_WIDTH, SyntheticItems};

/// What a file of items looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemFormat {
    /// `torch.save` of a dict of columns: `question_ids`, `sequences`, `graphs`, `lengths`, `scores`.
    Pt,
    /// `pickle.dump` of a dict, which is one item, or a list of them. Scores are not in it.
    Pickle(Packing, PickledItems),
}

/// How many items are in a pickle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PickledItems {
    /// One, as a dict.
    One,
    /// Any number, as a list of dicts.
    List,
}

/// Made-up items that become files.
#[derive(Clone, Debug)]
pub struct ItemFiles {
    /// The items.
    pub items: SyntheticItems,
    /// How many steps their sequences have, at least 1; [`STEPS`](super::STEPS) for those of the built-in source.
    pub steps: RangeInclusive<u64>,
    /// What the files look like.
    pub format: ItemFormat,
}

impl ItemFiles {
    /// Writes the items with these numbers into one file, which is there as a whole or not at all.
    ///
    /// All of them are in memory at once. Gives their scores; or nothing, and writes nothing, where `stop` says so
    /// between two items.
    ///
    /// # Errors
    ///
    /// Where the system refuses.
    pub fn write(
        &self,
        path: &Path,
        numbers: Range<u64>,
        stop: impl Fn() -> bool,
    ) -> Result<Option<Vec<f32>>, TensorFileError> {
        let mut columns = Columns::default();
        for number in numbers {
            if stop() {
                return Ok(None);
            }
            columns.push(self.item(number));
        }
        let scores = columns.scores.clone();
        match self.format {
            ItemFormat::Pt => write_pt(path, &columns.batch())?,
            ItemFormat::Pickle(packing, items) => write_pickle(path, &columns.pickled(items), packing)?,
        }
        Ok(Some(scores))
    }

    /// The score of an item.
    #[must_use]
    pub fn score(&self, number: u64) -> f32 {
        self.item(number).score
    }

    /// What an item takes in a file that is not compressed: up to some percent less than it really does, never more.
    #[must_use]
    pub fn bytes_of(&self, number: u64) -> Bytes {
        /// What stands around the values of an item: for [`ItemFormat::Pt`] three entries of an archive.
        const AROUND: [u64; 2] = [700, 175];
        let (steps, nodes) = self.items.size_of(number, &self.steps);
        let values = 4 * (steps * STEP_WIDTH as u64 + nodes * NODE_WIDTH as u64) + 16 * nodes;
        Bytes(values + if self.format == ItemFormat::Pt { AROUND[0] } else { AROUND[1] })
    }

    fn item(&self, number: u64) -> Item {
        self.items.item_of(number, &self.steps)
    }
}

/// Items column by column, as they are to be written.
#[derive(Default)]
struct Columns {
    ids: Vec<PtValue<'static>>,
    sequences: Vec<PtValue<'static>>,
    graphs: Vec<PtValue<'static>>,
    lengths: Vec<i64>,
    scores: Vec<f32>,
}

impl Columns {
    fn push(&mut self, item: Item) {
        let (steps, nodes, edges) = (item.steps as u64, item.node_count as u64, item.edges.len() as u64);
        let ends = [0, 1].map(|end| item.edges.iter().map(move |edge| i64::from(edge[end])));
        self.graphs.push(dict([
            ("x", floats(&item.nodes, vec![nodes, NODE_WIDTH as u64])),
            ("edge_index", integers(ends.into_iter().flatten(), vec![2, edges])),
        ]));
        self.sequences.push(floats(&item.sequence, vec![steps, STEP_WIDTH as u64]));
        self.ids.push(PtValue::Str(item.id.into()));
        self.lengths.push(steps as i64);
        self.scores.push(item.score);
    }

    fn batch(self) -> PtValue<'static> {
        let count = vec![self.scores.len() as u64];
        dict([
            ("question_ids", PtValue::List(self.ids)),
            ("sequences", PtValue::List(self.sequences)),
            ("graphs", PtValue::List(self.graphs)),
            ("lengths", integers(self.lengths.into_iter(), count.clone())),
            ("scores", floats(&self.scores, count)),
        ])
    }

    fn pickled(self, items: PickledItems) -> PtValue<'static> {
        let columns = self.ids.into_iter().zip(self.sequences).zip(self.graphs).zip(self.lengths);
        let mut dicts = columns.map(|(((id, sequence), graph), length)| {
            let length = PtValue::Int(length);
            dict([("question_id", id), ("sequence", sequence), ("graph", graph), ("length", length)])
        });
        match items {
            PickledItems::One => dicts.next().unwrap_or(PtValue::None),
            PickledItems::List => PtValue::List(dicts.collect()),
        }
    }
}

fn dict<const N: usize>(fields: [(&'static str, PtValue<'static>); N]) -> PtValue<'static> {
    PtValue::Dict(fields.into_iter().map(|(name, value)| (PtValue::Str(name.into()), value)).collect())
}

fn floats(values: &[f32], shape: Vec<u64>) -> PtValue<'static> {
    let mut bytes = Vec::with_capacity(4 * values.len());
    values.iter().for_each(|value| bytes.extend_from_slice(&value.to_ne_bytes()));
    PtValue::Tensor(PtTensor { dtype: Dtype::Float32, shape, bytes: Cow::Owned(bytes) })
}

fn integers(values: impl Iterator<Item = i64>, shape: Vec<u64>) -> PtValue<'static> {
    let bytes = values.flat_map(i64::to_ne_bytes).collect();
    PtValue::Tensor(PtTensor { dtype: Dtype::Int64, shape, bytes: Cow::Owned(bytes) })
}

#[cfg(test)]
mod tests {
    use lowtide_data::{BatchFile, Field, FieldValue, Scores, write_scores};

    use super::super::synthetic_items::STEPS;
    use super::*;

    const ITEMS: SyntheticItems = SyntheticItems { seed: 5, count: 40 };

    fn files(format: ItemFormat) -> ItemFiles {
        ItemFiles { items: ITEMS, steps: STEPS, format }
    }

    fn field<'s>(fields: &'s [Field], name: &str) -> &'s FieldValue {
        &fields.iter().find(|field| &*field.name == name).unwrap_or_else(|| panic!("no `{name}`")).value
    }

    fn array(values: Vec<u8>, dtype: Dtype, shape: &[usize]) -> FieldValue {
        FieldValue::Array { dtype, shape: shape.iter().map(|size| *size as u64).collect(), bytes: values }
    }

    fn float_bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_ne_bytes()).collect()
    }

    /// Writes items 3 to 8, and reads them with fields of these names.
    #[track_caller]
    fn check(format: ItemFormat, names: [&str; 5]) -> Vec<Vec<Field>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("items");
        let scores = files(format).write(&path, 3..9, || false).unwrap().unwrap();
        let samples: Vec<_> =
            BatchFile::open(&path).unwrap().read_all().unwrap().into_iter().map(|sample| sample.fields).collect();
        assert_eq!(samples.len(), 6);
        for ((number, fields), score) in (3..).zip(&samples).zip(scores) {
            let item = ITEMS.item(number);
            let ends = [0, 1].map(|end| item.edges.iter().map(|edge| i64::from(edge[end])).collect::<Vec<_>>());
            let edges = ends.concat().into_iter().flat_map(i64::to_ne_bytes).collect();
            let length = (item.steps as i64).to_ne_bytes().to_vec();
            let expect = [
                FieldValue::Text(item.id),
                array(float_bytes(&item.sequence), Dtype::Float32, &[item.steps, STEP_WIDTH]),
                array(float_bytes(&item.nodes), Dtype::Float32, &[item.node_count, NODE_WIDTH]),
                array(edges, Dtype::Int64, &[2, item.edges.len()]),
                array(length, Dtype::Int64, &[]),
            ];
            for (name, expect) in names.iter().zip(expect) {
                assert_eq!(*field(fields, name), expect, "{name} of {number}");
            }
            assert_eq!(score, item.score);
        }
        samples
    }

    #[test]
    fn a_batch_holds_the_items_of_the_built_in_source() {
        let names = ["question_ids", "sequences", "graphs.x", "graphs.edge_index", "lengths"];
        for (number, fields) in (3..).zip(check(ItemFormat::Pt, names)) {
            let score = array(float_bytes(&[ITEMS.item(number).score]), Dtype::Float32, &[]);
            assert_eq!(*field(&fields, "scores"), score);
        }
    }

    #[test]
    fn a_pickle_holds_them_without_scores() {
        let names = ["question_id", "sequence", "graph.x", "graph.edge_index", "length"];
        for packing in [Packing::Plain, Packing::Gzip] {
            let samples = check(ItemFormat::Pickle(packing, PickledItems::List), names);
            assert!(samples.iter().flatten().all(|field| !field.name.contains("score")));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one.pkl");
        let one = files(ItemFormat::Pickle(Packing::Plain, PickledItems::One));
        one.write(&path, 7..8, || false).unwrap().unwrap();
        let file = BatchFile::open(&path).unwrap();
        assert_eq!((file.samples(), file.ids().unwrap()), (1, vec!["generated-7".into()]));
    }

    #[test]
    fn a_table_gives_the_scores_back_to_the_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scores.csv");
        let files = files(ItemFormat::Pickle(Packing::Plain, PickledItems::One));
        write_scores(&path, (0..40).map(|number| (ITEMS.id(number), files.score(number)))).unwrap();
        let scores = Scores::read(&path).unwrap();
        assert_eq!(scores.len(), 40);
        for number in 0..40 {
            assert_eq!(scores.get(&ITEMS.id(number)).map(|score| score as f32), Some(ITEMS.item(number).score));
        }
    }

    #[test]
    fn what_a_file_takes_is_foreseen() {
        let formats = [ItemFormat::Pt, ItemFormat::Pickle(Packing::Plain, PickledItems::List)].map(files);
        for (files, count) in formats.iter().flat_map(|files| [(files, 1), (files, 40), (files, 1000)]) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("items");
            files.write(&path, 0..count, || false).unwrap().unwrap();
            let foreseen: u64 = (0..count).map(|number| files.bytes_of(number).get()).sum();
            let there = path.metadata().unwrap().len();
            // A file by itself takes something too, which is not foreseen.
            let most = foreseen + foreseen / 25 + 1500;
            assert!((foreseen..=most).contains(&there), "{count} in {:?}: {there}, not {foreseen}", files.format);
        }
    }

    #[test]
    fn longer_sequences_and_stopping() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("items.pt");
        let files = ItemFiles { steps: 100..=101, ..files(ItemFormat::Pt) };
        assert_eq!(files.write(&path, 0..4, || true).unwrap(), None);
        assert!(!path.exists());
        files.write(&path, 0..4, || false).unwrap().unwrap();
        let samples = BatchFile::open(&path).unwrap().read_all().unwrap();
        let steps = samples.iter().map(|sample| match sample.get("sequences") {
            Some(FieldValue::Array { shape, .. }) => shape[0],
            _ => 0,
        });
        assert!(steps.clone().all(|steps| (100..=101).contains(&steps)), "{:?}", steps.collect::<Vec<_>>());
    }
}
