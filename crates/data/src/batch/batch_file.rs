//! A file of samples, as preprocessing scripts leave them.
//!
//! | the file holds | a sample is |
//! | --- | --- |
//! | a dict with lists | element i of each list, and row i of each tensor that has as many rows |
//! | a dict of tensors with as many rows each, or a tuple of such | row i of each |
//! | a list of dicts or of objects | an element |
//! | one array | a row |
//! | anything else | the whole: a dict with one `id`, a dict of `pickle.dump`, a graph, tensors of other lengths |
//!
//! A dict within a sample gives fields such as `graphs.x`. What a batch file holds beside its columns is the file's and
//! no sample's, and is left out: [`BatchFile::left_out`] names it.

use std::borrow::Cow;
use std::convert::Infallible;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use lowtide_core::Bytes;
use lowtide_tensorfile::{DecodeLimit, Format, Loader, Tensor, TensorFile, TensorFileError, Tree};

use super::arrangement::{Arrangement, child, id_of};
use super::leaf::{Leaf, NAMELESS, each_leaf};
use super::pending_field::{PendingField, fill};
use super::survey::{Survey, tree_bytes, values_nowhere};
use crate::DataError;
use crate::samples::{Field, FieldSummaries, FieldSummary, FieldValue, SAMPLE_BYTES, Sample, field_bytes};

/// A file whose samples are known and not yet read.
#[derive(Debug)]
pub struct BatchFile {
    file: Arc<TensorFile>,
    format: Format,
    tree: Tree,
    arrangement: Arrangement,
    samples: u64,
    fields: FieldSummaries,
    bytes: Bytes,
    reading_bytes: Bytes,
}

impl BatchFile {
    /// Finds the samples of a file; no value of a tensor is read.
    ///
    /// # Errors
    ///
    /// As for [`lowtide_tensorfile::open`], and where columns of a batch differ in length.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        Self::open_within(path, DecodeLimit::default())
    }

    /// As [`BatchFile::open`], with another limit on what the file may decode to.
    ///
    /// # Errors
    ///
    /// As for [`BatchFile::open`].
    pub fn open_within(path: &Path, limit: DecodeLimit) -> Result<Self, DataError> {
        let mut file = Self::find(&TensorFile::open(path, 0, limit)?)?;
        file.survey()?;
        Ok(file)
    }

    /// Finds the samples without adding up what they take.
    pub(crate) fn find(file: &Arc<TensorFile>) -> Result<Self, DataError> {
        let contents = file.contents()?;
        let (arrangement, samples) = Arrangement::find(&contents.tree, contents.format, file.path())?;
        // Rows that have no values cost memory and time all the same, and so does room for values that are nowhere.
        file.check_rows(samples.saturating_mul(arrangement.columns()))?;
        file.check_values(Bytes(values_nowhere(&contents.tree)))?;
        Ok(Self {
            file: Arc::clone(file),
            format: contents.format,
            tree: contents.tree,
            arrangement,
            samples,
            fields: FieldSummaries::default(),
            bytes: Bytes::ZERO,
            reading_bytes: Bytes::ZERO,
        })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// An error where the names of its fields take more memory than a file of its size should need.
    pub(crate) fn check_names(&self, bytes: u64) -> Result<(), DataError> {
        Ok(self.file.check_tables(Bytes(bytes))?)
    }

    /// How it was written.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// All that is in it.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// How many samples there are.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The fields of the samples, with the types and shapes that they have.
    #[must_use]
    pub fn fields(&self) -> &[FieldSummary] {
        self.fields.all()
    }

    /// What the file holds beside its samples, by name.
    #[must_use]
    pub fn left_out(&self) -> Vec<Cow<'_, str>> {
        self.arrangement.left_out(&self.tree)
    }

    /// Memory that all samples take once they are read: the sum of [`Sample::bytes`].
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Memory that [`BatchFile::read_all`] needs on the way, besides that of the samples: at most this.
    #[must_use]
    pub fn reading_bytes(&self) -> Bytes {
        self.reading_bytes
    }

    /// Memory that one sample takes; nothing where there is no such sample.
    #[must_use]
    pub fn sample_bytes(&self, index: u64) -> Bytes {
        if index >= self.samples {
            return Bytes::ZERO;
        }
        let mut bytes = SAMPLE_BYTES;
        let Ok(()) = self.each_field(index, &mut |_, leaf| {
            bytes = bytes.saturating_add(field_bytes(leaf.bytes(), leaf.shape().len()));
            Ok::<_, Infallible>(())
        });
        bytes
    }

    /// Memory that all that is known of the file takes, and took to find out: at most about this.
    pub(crate) fn tree_bytes(&self) -> u64 {
        tree_bytes(&self.tree)
    }

    /// The ids of the samples, where each has one: a string or an integer under `id`, `question_id`, `sample_id` or
    /// the plural of these.
    #[must_use]
    pub fn ids(&self) -> Option<Vec<Cow<'_, str>>> {
        let id = |tree: &'_ Tree| matches!(tree, Tree::Str(_) | Tree::Int(_) | Tree::BigInt(_));
        let ids: Vec<&Tree> = match (&self.arrangement, &self.tree) {
            (Arrangement::Columns(_), tree) => match id_of(tree)? {
                Tree::List(items) => items.iter().collect(),
                _ => return None,
            },
            (Arrangement::Items, Tree::List(items) | Tree::Tuple(items)) => {
                items.iter().map(id_of).collect::<Option<_>>()?
            }
            (Arrangement::One, tree) => vec![id_of(tree)?],
            _ => return None,
        };
        ids.into_iter().map(|tree| id(tree).then(|| tree.name())).collect()
    }

    /// Reads every sample: each storage once, as a whole and in the order of the file, its checksum verified.
    ///
    /// # Errors
    ///
    /// Where there is no memory for them, or the file cannot be read, was cut short or is damaged.
    pub fn read_all(&self) -> Result<Vec<Sample>, DataError> {
        let mut samples = Vec::new();
        if samples.try_reserve_exact(usize::try_from(self.samples).unwrap_or(usize::MAX)).is_err() {
            return Err(DataError::malformed(self.path(), format!("there is no memory for {} samples", self.samples)));
        }
        let mut pending = Vec::new();
        for index in 0..self.samples {
            let fields = self.fields_of(index, |field, view| {
                pending.push(PendingField { sample: samples.len(), field, view: view.into_owned() });
                Ok(Vec::new())
            })?;
            samples.push(Sample { fields });
        }
        fill(&mut samples, pending)?;
        Ok(samples)
    }

    /// Reads one sample by offset. The checksum of a storage is verified only where the sample takes all of it.
    ///
    /// # Errors
    ///
    /// Where there is no such sample, and as for [`BatchFile::read_all`].
    pub fn read(&self, index: u64) -> Result<Sample, DataError> {
        if index >= self.samples {
            return Err(DataError::malformed(
                self.path(),
                format!("sample {index} is asked for, and there are {}", self.samples),
            ));
        }
        let mut loader = Loader::new(Bytes::ZERO);
        Ok(Sample { fields: self.fields_of(index, |_, view| loader.read(&view))? })
    }

    /// Reads some neighbours; what they have of one tensor is read together. Checksums are verified as with
    /// [`BatchFile::read`].
    pub(crate) fn read_some(&self, samples: Range<u64>, loader: &mut Loader) -> Result<Vec<Sample>, DataError> {
        let (columns, tree) = match (&self.arrangement, &self.tree) {
            (Arrangement::Columns(columns), tree) => (columns, tree),
            (Arrangement::Rows, Tree::Tensor(tensor)) => {
                let mut read: Vec<Sample> = samples.clone().map(|_| Sample { fields: Vec::new() }).collect();
                self.add_rows(NAMELESS, tensor, samples, (&mut read, loader))?;
                return Ok(read);
            }
            _ => {
                let fields = |index| self.fields_of(index, |_, view| loader.read(&view));
                return samples.map(fields).map(|fields| Ok(Sample { fields: fields? })).collect();
            }
        };
        let mut read: Vec<Sample> = samples.clone().map(|_| Sample { fields: Vec::new() }).collect();
        for (name, column) in columns.iter().filter_map(|index| child(tree, *index)) {
            match column {
                Tree::Tensor(tensor) => self.add_rows(&name, tensor, samples.clone(), (&mut read, loader))?,
                Tree::List(items) => {
                    for (sample, item) in read.iter_mut().zip(items.iter().skip(samples.start as usize)) {
                        each_leaf(item, &mut name.clone().into_owned(), &mut |name, leaf| {
                            sample.fields.push(self.field(name, leaf, |view| loader.read(&view))?);
                            Ok::<_, DataError>(())
                        })?;
                    }
                }
                _ => {}
            }
        }
        Ok(read)
    }

    /// Gives each of some neighbouring samples its row of a tensor.
    fn add_rows(
        &self,
        name: &str,
        tensor: &Tensor,
        samples: Range<u64>,
        (read, loader): (&mut [Sample], &mut Loader),
    ) -> Result<(), DataError> {
        let (Some(rows), Some(row)) = (tensor.rows(samples.clone()), tensor.row(samples.start)) else { return Ok(()) };
        let row_bytes = row.bytes() as usize;
        let is_together = rows.bytes() == row.bytes() * read.len() as u64;
        let block = if is_together { loader.read(&rows)? } else { Vec::new() };
        for (number, sample) in read.iter_mut().enumerate() {
            let bytes = match tensor.row(samples.start + number as u64) {
                Some(row) if !is_together => loader.read(&row)?,
                _ => block[number * row_bytes..(number + 1) * row_bytes].to_vec(),
            };
            let value = FieldValue::Array { dtype: row.dtype(), shape: row.shape().to_vec(), bytes };
            sample.fields.push(Field { name: self.fields.name(name).unwrap_or_else(|| name.into()), value });
        }
        Ok(())
    }

    fn field(
        &self,
        name: &str,
        leaf: Leaf<'_>,
        read: impl FnOnce(Cow<'_, Tensor>) -> Result<Vec<u8>, TensorFileError>,
    ) -> Result<Field, DataError> {
        let value = match leaf {
            Leaf::Text(text) => FieldValue::Text(text.into_owned()),
            Leaf::Array { dtype, shape, bytes } => FieldValue::Array { dtype, shape, bytes },
            Leaf::View(view) => {
                let (dtype, shape) = (view.dtype(), view.shape().to_vec());
                FieldValue::Array { dtype, shape, bytes: read(view)? }
            }
        };
        Ok(Field { name: self.fields.name(name).unwrap_or_else(|| name.into()), value })
    }

    /// The fields of a sample; `read` is given the index of a field and the view of the file that it is.
    fn fields_of(
        &self,
        index: u64,
        mut read: impl FnMut(usize, Cow<'_, Tensor>) -> Result<Vec<u8>, TensorFileError>,
    ) -> Result<Vec<Field>, DataError> {
        let mut fields = Vec::new();
        self.each_field(index, &mut |name, leaf| {
            let field = self.field(name, leaf, |view| read(fields.len(), view))?;
            fields.push(field);
            Ok::<_, DataError>(())
        })?;
        Ok(fields)
    }

    /// Looks at every field of every sample, and at the rows of a tensor all at once.
    fn survey(&mut self) -> Result<(), DataError> {
        let mut survey = Survey {
            file: Arc::clone(&self.file),
            fields: FieldSummaries::default(),
            bytes: SAMPLE_BYTES.saturating_mul(self.samples),
            largest_storage: 0,
            views: Bytes::ZERO,
        };
        match (&self.arrangement, &self.tree) {
            (Arrangement::Columns(columns), tree) => {
                for (name, column) in columns.iter().filter_map(|index| child(tree, *index)) {
                    match column {
                        Tree::Tensor(tensor) => survey.rows(&name, tensor),
                        Tree::List(items) => items.iter().try_for_each(|item| survey.value(&name, item))?,
                        _ => {}
                    }
                }
            }
            (Arrangement::Items, Tree::List(items) | Tree::Tuple(items)) => {
                items.iter().try_for_each(|item| survey.value("", item))?;
            }
            (Arrangement::Rows, Tree::Tensor(tensor)) => survey.rows(NAMELESS, tensor),
            (_, tree) => survey.value("", tree)?,
        }
        self.bytes = survey.bytes;
        self.reading_bytes = survey.views.saturating_add(Bytes(survey.largest_storage));
        self.fields = survey.fields;
        Ok(())
    }

    /// Hands each field of a sample to `take`.
    pub(crate) fn each_field<'t, E>(
        &'t self,
        index: u64,
        take: &mut impl FnMut(&str, Leaf<'t>) -> Result<(), E>,
    ) -> Result<(), E> {
        let at = index as usize;
        match (&self.arrangement, &self.tree) {
            (Arrangement::Columns(columns), tree) => {
                for (name, column) in columns.iter().filter_map(|column| child(tree, *column)) {
                    match column {
                        Tree::Tensor(tensor) => take_row(&name, tensor, index, take)?,
                        Tree::List(items) if at < items.len() => {
                            each_leaf(&items[at], &mut name.into_owned(), take)?;
                        }
                        _ => {}
                    }
                }
                Ok(())
            }
            (Arrangement::Items, Tree::List(items) | Tree::Tuple(items)) => match items.get(at) {
                Some(item) => each_leaf(item, &mut String::new(), take),
                None => Ok(()),
            },
            (Arrangement::Rows, Tree::Tensor(tensor)) => take_row(NAMELESS, tensor, index, take),
            (_, tree) => each_leaf(tree, &mut String::new(), take),
        }
    }
}

fn take_row<'t, E>(
    name: &str,
    tensor: &Tensor,
    index: u64,
    take: &mut impl FnMut(&str, Leaf<'t>) -> Result<(), E>,
) -> Result<(), E> {
    match tensor.row(index) {
        Some(row) => take(name, Leaf::View(Cow::Owned(row))),
        None => Ok(()),
    }
}
