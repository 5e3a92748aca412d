//! Settings that are one of a few words.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// When the allocator's cached blocks are given back to the device. It costs time and never changes numbers.
///
/// Written `auto`, `clock` or `never`. After an out-of-memory error they are always given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Clean {
    /// When it pays: more than 20 % of the line (or the device) is cached, and more than 80 % is taken.
    #[default]
    Auto,
    /// Every 10 steps in the step, every 20 in the loop, after each checkpoint, before each evaluation and every 5 of its
    /// batches.
    Clock,
    /// Only after an error.
    Never,
}

/// The floating-point type of the forward and backward pass; parameters and optimizer state stay fp32.
///
/// Written `auto`, `fp32`, `bf16` or `fp16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// Whatever is best on the device.
    #[default]
    Auto,
    /// 32 bits.
    Fp32,
    /// 16 bits with the range of fp32.
    Bf16,
    /// 16 bits with a small range; the loss is scaled.
    Fp16,
}

/// Whether the backward pass computes activations again instead of keeping them: less memory, more time, the same numbers.
///
/// Written `auto`, `on` (or `true`), `off` (or `false`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Recompute {
    /// Only when memory asks for it.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// Whether steps on a GPU are recorded as CUDA graphs and replayed: less time where kernels are small, the same numbers.
///
/// Written `auto`, `on` (or `true`), `off` (or `false`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Graphs {
    /// Where it can be done.
    #[default]
    Auto,
    /// A step that cannot be recorded is an error, unless memory is the reason.
    On,
    /// Never.
    Off,
}

/// Whether what a GPU has no room for is kept in host memory: the inputs of recomputed segments, then the optimizer's
/// moments. Less memory on the device, more time, the same numbers.
///
/// Written `auto`, `on` (or `true`), `off` (or `false`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Spill {
    /// Only when memory asks for it.
    #[default]
    Auto,
    /// From the start.
    On,
    /// Never.
    Off,
}

/// Whether several ranks divide the optimizer's state among them, so that each holds a part. Less memory, the same numbers;
/// parameters are exchanged after each update.
///
/// Written `auto`, `on` (or `true`), `off` (or `false`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Shard {
    /// Where all of it does not fit on some rank, at the start or once nothing smaller helps.
    #[default]
    Auto,
    /// From the start.
    On,
    /// Never.
    Off,
}

/// How tensors of several ranks are exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Backend {
    /// By NCCL where each rank has a card of its own, else by gloo.
    #[default]
    Auto,
    /// From card to card; where that cannot be, it is an error.
    Nccl,
    /// Through the host.
    Gloo,
}

/// The words that a setting may be and what they stand for, and what `false` and `true` stand for if they are allowed.
#[derive(Clone, Copy)]
struct Choice<T: 'static> {
    words: &'static [(&'static str, T)],
    booleans: &'static [T],
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
        let chosen = self.booleans.get(usize::from(is_on));
        chosen.copied().ok_or_else(|| E::invalid_type(de::Unexpected::Bool(is_on), &self))
    }
}

/// Lets an enum print itself, and be read and written as one of its words.
macro_rules! choice {
    ($name:ident: $($word:literal => $variant:ident),+ $(; false => $off:ident, true => $on:ident)?) => {
        impl $name {
            const CHOICE: Choice<Self> =
                Choice { words: &[$(($word, Self::$variant)),+], booleans: &[$(Self::$off, Self::$on)?] };
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                let found = Self::CHOICE.words.iter().find(|(_, value)| value == self);
                formatter.pad(found.map(|(word, _)| *word).expect("every variant has a word"))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Self::CHOICE)
            }
        }
    };
}

choice!(Backend: "auto" => Auto, "nccl" => Nccl, "gloo" => Gloo);
choice!(Clean: "auto" => Auto, "clock" => Clock, "never" => Never);
choice!(Precision: "auto" => Auto, "fp32" => Fp32, "bf16" => Bf16, "fp16" => Fp16);
choice!(Graphs: "auto" => Auto, "on" => On, "off" => Off; false => Off, true => On);
choice!(Recompute: "auto" => Auto, "on" => On, "off" => Off; false => Off, true => On);
choice!(Spill: "auto" => Auto, "on" => On, "off" => Off; false => Off, true => On);
choice!(Shard: "auto" => Auto, "on" => On, "off" => Off; false => Off, true => On);
