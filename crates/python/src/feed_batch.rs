//! Samples side by side: one piece of memory for each field of a batch.

use std::sync::Arc;

use lowtide_core::printable;
use lowtide_data::BufferedSample;
use lowtide_data::feed::FeedSample;
use lowtide_tensorfile::{Dtype, View};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::block::{Block, Gap};
use crate::dlpack::{Lent, Part};
use crate::failure::{Failure, Kind};
use crate::help::{Desk, WORTH_BYTES};

/// A batch that is being put together.
#[derive(Debug)]
pub(crate) struct Gathering {
    /// Samples that it will have.
    samples: usize,
    columns: Vec<Column>,
    /// Memory of others for fields that are as foreseen.
    offers: Vec<Offer>,
}

/// Memory for a field, which was seen before in samples of this shape.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) field: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<u64>,
    pub(crate) memory: Lent,
}

#[derive(Debug)]
struct Column {
    name: String,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Texts(Vec<String>),
    Numbers { dtype: Dtype, memory: Memory, shapes: Shapes },
}

#[derive(Debug)]
enum Memory {
    Own(Block),
    Lent(Lent),
}

/// How large the values of the samples are.
#[derive(Debug)]
enum Shapes {
    /// All alike.
    Same { shape: Vec<u64>, samples: u64 },
    /// Each by itself, with where it begins in memory.
    Each(Vec<(usize, Vec<u64>)>),
}

impl Gathering {
    /// Of so many samples, into memory of others where it suits.
    pub(crate) fn new(samples: usize, offers: Vec<Offer>) -> Self {
        Self { samples, columns: Vec::new(), offers }
    }

    /// Adds a sample, of which somebody may copy a part who looks at the desk.
    pub(crate) fn add(&mut self, sample: &FeedSample<'_, BufferedSample>, desk: &Desk) -> Result<(), Failure> {
        if self.columns.is_empty() {
            for (name, view) in sample.fields() {
                let column = self.begin(name, view)?;
                self.columns.push(column);
            }
            return Ok(());
        }
        let mut fields = 0;
        let mut is_free = desk.is_free();
        for (name, view) in sample.fields() {
            // Samples of one set have their fields in one order, nearly always.
            let at = match self.columns.get(fields).is_some_and(|column| column.name == name) {
                true => Some(fields),
                false => self.columns.iter().position(|column| column.name == name),
            };
            let column = at.map(|at| &mut self.columns[at]).ok_or_else(|| not_in_all(name))?;
            match is_free.then(|| column.gap(&view)).flatten() {
                Some(gap) => {
                    desk.put(sample, fields, gap);
                    is_free = false;
                }
                None => column.add(view)?,
            }
            fields += 1;
        }
        if fields == self.columns.len() {
            return Ok(());
        }
        let missing = self.columns.iter().find(|column| sample.get(&column.name).is_none());
        Err(not_in_all(missing.map_or("", |column| &column.name)))
    }

    fn begin(&mut self, name: &str, view: View<'_>) -> Result<Column, Failure> {
        let name = name.to_owned();
        let (dtype, shape, bytes) = match view {
            View::Text(text) => return Ok(Column { name, values: Values::Texts(vec![text.to_owned()]) }),
            View::Array { dtype, shape, bytes } => (dtype, shape.into_owned(), bytes),
        };
        let suits = |offer: &Offer| offer.field == name && offer.dtype == dtype && offer.shape == shape;
        let mut memory = match self.offers.iter().position(suits) {
            Some(at) => Memory::Lent(self.offers.swap_remove(at).memory),
            None => Memory::Own(Block::with_room(bytes.len().saturating_mul(self.samples))?),
        };
        memory.push(bytes)?;
        Ok(Column { name, values: Values::Numbers { dtype, memory, shapes: Shapes::Same { shape, samples: 1 } } })
    }

    /// The batch for Python: for each field what `torch.from_dlpack` takes, a list of that where shapes differ, or a list of
    /// texts; `None` for a field that lies in memory that was offered.
    pub(crate) fn finish(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let batch = PyDict::new(py);
        for Column { name, values } in self.columns {
            match values {
                Values::Texts(texts) => batch.set_item(name, texts)?,
                Values::Numbers { memory: Memory::Lent(lent), .. } if lent.is_full() => {
                    batch.set_item(name, py.None())?;
                }
                Values::Numbers { dtype, memory, shapes } => {
                    let block = match memory {
                        Memory::Own(block) => Arc::new(block),
                        Memory::Lent(lent) => Arc::new(lent.to_block()?),
                    };
                    match shapes {
                        Shapes::Same { mut shape, samples } => {
                            shape.insert(0, samples);
                            batch.set_item(name, Part::new(&block, 0, &shape, dtype)?)?;
                        }
                        Shapes::Each(each) => {
                            let parts = each.iter().map(|(start, shape)| Part::new(&block, *start, shape, dtype));
                            batch.set_item(name, PyList::new(py, parts.collect::<PyResult<Vec<_>>>()?)?)?;
                        }
                    }
                }
            }
        }
        Ok(batch)
    }
}

impl Column {
    /// Room for a value that is worth being copied by somebody else, where it is like those before it.
    fn gap(&mut self, view: &View<'_>) -> Option<Gap> {
        let View::Array { dtype: other, shape: other_shape, bytes } = view else { return None };
        let Values::Numbers { dtype, memory: Memory::Own(block), shapes: Shapes::Same { shape, samples } } =
            &mut self.values
        else {
            return None;
        };
        if dtype != other || bytes.len() < WORTH_BYTES || !is_alike(shape, other_shape) {
            return None;
        }
        let gap = block.gap(bytes.len())?;
        *samples += 1;
        Some(gap)
    }

    fn add(&mut self, view: View<'_>) -> Result<(), Failure> {
        match (&mut self.values, view) {
            (Values::Texts(texts), View::Text(text)) => {
                texts.push(text.to_owned());
                Ok(())
            }
            (Values::Numbers { dtype, memory, shapes }, View::Array { dtype: other, shape, bytes })
                if *dtype == other =>
            {
                if !shapes.is(&shape) {
                    memory.own()?;
                }
                shapes.add(&shape, memory.len(), dtype.size());
                memory.push(bytes)
            }
            (values, view) => {
                let of = |view: &View<'_>| match view {
                    View::Text(_) => "texts",
                    View::Array { dtype, .. } => dtype.name(),
                };
                let first = match values {
                    Values::Texts(_) => "texts",
                    Values::Numbers { dtype, .. } => dtype.name(),
                };
                let text = format!(
                    "field `{}` holds {first} in some samples and {} in others",
                    printable(&self.name),
                    of(&view)
                );
                Err(Failure::new(Kind::BadData, text, "save it with one type in all samples"))
            }
        }
    }
}

impl Memory {
    fn len(&self) -> usize {
        match self {
            Self::Own(block) => block.len(),
            Self::Lent(lent) => lent.len(),
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Own(block) => block.push(bytes),
            Self::Lent(lent) => lent.push(bytes),
        }
    }

    /// As memory of our own, for samples that do not lie side by side as was foreseen.
    fn own(&mut self) -> Result<(), Failure> {
        if let Self::Lent(lent) = self {
            *self = Self::Own(lent.to_block()?);
        }
        Ok(())
    }
}

impl Shapes {
    fn is(&self, other: &[u64]) -> bool {
        matches!(self, Self::Same { shape, .. } if is_alike(shape, other))
    }

    fn add(&mut self, other: &[u64], start: usize, value: u64) {
        if let Self::Same { shape, samples } = self {
            if is_alike(shape, other) {
                *samples += 1;
                return;
            }
            let bytes = shape.iter().product::<u64>() * value;
            let each = (0..*samples).map(|sample| ((sample * bytes) as usize, shape.clone()));
            *self = Self::Each(each.collect());
        }
        if let Self::Each(each) = self {
            each.push((start, other.to_vec()));
        }
    }
}

/// Whether two shapes are equal, a number at a time: `other` was written a moment ago, behind the bytes of a sample, and a
/// wider read of it would wait until the processor has all of those in its cache.
fn is_alike(shape: &[u64], other: &[u64]) -> bool {
    shape.len() == other.len() && shape.iter().zip(other).all(|(one, other)| one == other)
}

fn not_in_all(field: &str) -> Failure {
    let text = format!("field `{}` is in some samples of a batch, and not in all", printable(field));
    Failure::new(Kind::BadData, text, "give every sample the same fields")
}
