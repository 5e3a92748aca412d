//! What is known of a field before any sample is read.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::shard::FieldKind;

/// The shapes that a field has in the samples. Prints as `? x 24`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shapes {
    /// As many dimensions in all samples, and the size of each, or `None` where it differs.
    Sizes(Vec<Option<u64>>),
    /// Other numbers of dimensions in other samples.
    Varied,
}

impl Shapes {
    /// Those of one value.
    #[must_use]
    pub fn of(shape: &[u64]) -> Self {
        Self::Sizes(shape.iter().copied().map(Some).collect())
    }

    fn add(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::Sizes(sizes), Self::Sizes(others)) if sizes.len() == others.len() => {
                sizes.iter_mut().zip(others).filter(|(size, other)| *size != *other).for_each(|(size, _)| *size = None);
            }
            _ => *self = Self::Varied,
        }
    }
}

impl fmt::Display for Shapes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Varied => "varied".to_owned(),
            Self::Sizes(sizes) if sizes.is_empty() => "scalar".to_owned(),
            Self::Sizes(sizes) => {
                let size = |size: &Option<u64>| size.map_or("?".to_owned(), |size| size.to_string());
                sizes.iter().map(size).collect::<Vec<_>>().join(" x ")
            }
        };
        formatter.pad(&text)
    }
}

/// A field over many samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldSummary {
    /// Its name.
    pub name: Arc<str>,
    /// What its values are: one kind, unless the samples differ.
    pub kinds: Vec<FieldKind>,
    /// The shapes that were seen.
    pub shapes: Shapes,
    /// How many samples have it.
    pub samples: u64,
}

/// The fields of many samples, in the order in which they were first seen.
#[derive(Debug, Clone, Default)]
pub struct FieldSummaries {
    fields: Vec<FieldSummary>,
    places: HashMap<Arc<str>, usize>,
    name_bytes: u64,
}

/// What a field takes besides the letters of its name.
const FIELD: usize = size_of::<FieldSummary>() + 96;

impl FieldSummaries {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[FieldSummary] {
        &self.fields
    }

    /// Adds what was seen in other samples.
    pub fn add(&mut self, other: &FieldSummary) {
        let Some(place) = self.places.get(&other.name) else {
            self.name_bytes += (other.name.len() + FIELD) as u64;
            self.places.insert(Arc::clone(&other.name), self.fields.len());
            self.fields.push(other.clone());
            return;
        };
        let field = &mut self.fields[*place];
        let new = other.kinds.iter().filter(|kind| !field.kinds.contains(kind)).copied().collect::<Vec<_>>();
        field.kinds.extend(new);
        field.shapes.add(&other.shapes);
        field.samples = field.samples.saturating_add(other.samples);
    }

    /// Adds so many samples in which a field has this kind and shape.
    pub(crate) fn see(&mut self, name: &str, kind: FieldKind, shape: &[u64], samples: u64) {
        let name = self.name(name).unwrap_or_else(|| name.into());
        self.add(&FieldSummary { name, kinds: vec![kind], shapes: Shapes::of(shape), samples });
    }

    /// The one copy of a name that all samples share.
    pub(crate) fn name(&self, name: &str) -> Option<Arc<str>> {
        self.places.get_key_value(name).map(|(name, _)| Arc::clone(name))
    }

    /// Memory that the fields take.
    pub(crate) fn name_bytes(&self) -> u64 {
        self.name_bytes
    }

    /// Whether a field of that name was seen.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }
}

#[cfg(test)]
mod tests {
    use lowtide_tensorfile::Dtype;

    use super::*;

    #[test]
    fn shapes_that_differ() {
        let check = |shapes: &[&[u64]], expect: &str| {
            let mut fields = FieldSummaries::default();
            shapes.iter().for_each(|shape| fields.see("x", FieldKind::Text, shape, 1));
            assert_eq!(fields.all()[0].shapes.to_string(), expect);
        };
        check(&[&[]], "scalar");
        check(&[&[3, 24], &[3, 24]], "3 x 24");
        check(&[&[3, 24], &[4, 24], &[3, 24]], "? x 24");
        check(&[&[3, 24], &[3], &[3]], "varied");
    }

    #[test]
    fn kinds_that_differ() {
        let mut fields = FieldSummaries::default();
        for dtype in [Dtype::Int64, Dtype::Float64, Dtype::Int64] {
            fields.see("x", FieldKind::Array(dtype), &[], 2);
        }
        let expect = [FieldKind::Array(Dtype::Int64), FieldKind::Array(Dtype::Float64)];
        assert_eq!((fields.all()[0].kinds.as_slice(), fields.all()[0].samples), (&expect[..], 6));
    }
}
