//! A setting that is one of a few words.

use std::fmt;

use serde::{Deserializer, de};

/// The words that a setting may be and what they stand for, and what `false` and `true` stand for if they are allowed.
#[derive(Clone, Copy)]
pub(crate) struct Choice<T: 'static> {
    pub(crate) words: &'static [(&'static str, T)],
    pub(crate) booleans: Option<[T; 2]>,
}

impl<T: Copy> Choice<T> {
    pub(crate) fn read<'de, D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<T: Copy> de::Visitor<'_> for Choice<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.words.iter().map(|(word, _)| *word).collect();
        write!(formatter, "one of {}", words.join(", "))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        let chosen = self.words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
        chosen.map(|(_, value)| *value).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_bool<E: de::Error>(self, is_on: bool) -> Result<T, E> {
        match self.booleans {
            Some(values) => Ok(values[usize::from(is_on)]),
            None => Err(E::invalid_type(de::Unexpected::Bool(is_on), &self)),
        }
    }
}

/// Lets an enum with a constant `CHOICE` print itself, and be read and written as one of its words.
macro_rules! choice {
    ($name:ident) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let found = Self::CHOICE.words.iter().find(|(_, value)| value == self);
                formatter.pad(found.map(|(word, _)| *word).expect("every variant has a word"))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::CHOICE.read(deserializer)
            }
        }
    };
}

pub(crate) use choice;
