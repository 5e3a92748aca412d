//! The settings of `model.*` and `data.*` for the workload `scoring`.

use std::fmt;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use lowtide_core::{Bytes, Line, LineSpec};
use lowtide_data::feed::OnDamage;
use lowtide_data::policy::Policy;
use lowtide_tensorfile::DecodeLimit;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Which models are trained, and their sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelSettings {
    /// The models, one run after the other. Default: `[lstm, gnn_det, gvae]`.
    pub run: Vec<ModelName>,
    /// Width of the sequence encoder. Default 32.
    pub lstm_hidden: u32,
    /// Layers of the sequence encoder. Default 1.
    pub lstm_layers: u32,
    /// Width of the graph encoders. Default 32.
    pub graph_hidden: u32,
    /// Width of the layer before the score. Default 32.
    pub head_hidden: u32,
    /// Share of values dropped in training. Default 0.
    pub dropout: f64,
    /// What only `gvae` has.
    pub gvae: GvaeSettings,
}

/// The variational part of `gvae`: the keys under `model.gvae`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GvaeSettings {
    /// Width of a node's latent vector. Default 16.
    pub latent: u32,
    /// Weight of the reconstructed edges in the loss. Default 0.1.
    pub reconstruction_weight: f64,
    /// Weight in the loss of the distance from a normal distribution. Default 0.001.
    pub kl_weight: f64,
}

/// A model by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelName {
    /// An LSTM over the sequence, and no graph.
    Lstm,
    /// The LSTM and a graph network.
    GnnDet,
    /// The LSTM and a variational graph encoder that also learns to tell which nodes are joined.
    Gvae,
}

impl Default for ModelSettings {
    fn default() -> ModelSettings {
        ModelSettings {
            run: vec![ModelName::Lstm, ModelName::GnnDet, ModelName::Gvae],
            lstm_hidden: 32,
            lstm_layers: 1,
            graph_hidden: 32,
            head_hidden: 32,
            dropout: 0.0,
            gvae: GvaeSettings::default(),
        }
    }
}

impl Default for GvaeSettings {
    fn default() -> GvaeSettings {
        GvaeSettings { latent: 16, reconstruction_weight: 0.1, kl_weight: 0.001 }
    }
}

impl ModelSettings {
    /// What is wrong with them, as (key, problem).
    pub(crate) fn problem(&self) -> Option<(&'static str, String)> {
        if self.run.is_empty() {
            return Some(("model.run", "name at least one model".to_owned()));
        }
        if let Some(twice) = (1..self.run.len()).find(|at| self.run[..*at].contains(&self.run[*at])) {
            return Some(("model.run", format!("`{}` is named twice", self.run[twice])));
        }
        let counts = [
            ("model.lstm_hidden", self.lstm_hidden),
            ("model.lstm_layers", self.lstm_layers),
            ("model.graph_hidden", self.graph_hidden),
            ("model.head_hidden", self.head_hidden),
            ("model.gvae.latent", self.gvae.latent),
        ];
        if let Some((key, _)) = counts.iter().find(|(_, value)| *value == 0) {
            return Some((key, "must be at least 1".to_owned()));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Some(("model.dropout", "must be at least 0 and less than 1".to_owned()));
        }
        let weights = [
            ("model.gvae.reconstruction_weight", self.gvae.reconstruction_weight),
            ("model.gvae.kl_weight", self.gvae.kl_weight),
        ];
        let wrong = weights.iter().find(|(_, weight)| !(weight.is_finite() && *weight >= 0.0));
        if let Some((key, _)) = wrong {
            return Some((key, "must be 0 or more".to_owned()));
        }
        let huge = weights.iter().find(|(_, weight)| !(*weight as f32).is_finite());
        huge.map(|(key, _)| (*key, format!("must be at most {:e}, the largest number in fp32", f32::MAX)))
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            ModelName::Lstm => "lstm",
            ModelName::GnnDet => "gnn_det",
            ModelName::Gvae => "gvae",
        })
    }
}

/// Where the items come from, and how they are brought into memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataSettings {
    /// The source. Default: `files` where `folder` or `pattern` is given, else `generated`.
    pub source: Source,
    /// For `generated`: how many items there are, a fifth of them to evaluate on. Default 2000.
    pub count: u64,
    /// For `files`: a folder of batch files or of shards. Default: null.
    pub folder: Option<PathBuf>,
    /// For `files`: the files by a pattern, such as `traces/*.pkl*`. Default: null.
    pub pattern: Option<String>,
    /// For `files`: a table (CSV) with the score of each id. Items without one are left out. Default: null, the score is in
    /// the files.
    pub scores: Option<PathBuf>,
    /// Whether files are read as they are needed or all at the start. Default: `feed`.
    pub load: Load,
    /// How training is shuffled. Default: `window`.
    pub shuffle: ShuffleName,
    /// For `window`: shards whose items are shuffled together, or `auto` to have it chosen from the cache when a run starts.
    /// Default: 4.
    pub window: Window,
    /// Shards that the cache may keep, whichever they are; null leaves it to the host line, and without one to a quarter of
    /// the machine's memory. Default: null.
    pub cache_batches: Option<u32>,
    /// What leaves the cache first. Default: `belady`, what is needed latest.
    pub policy: Policy,
    /// Threads that read. Default 2.
    pub threads: NonZeroUsize,
    /// What to do about a file that cannot be read. Default: `stop`.
    pub on_damage: OnDamage,
    /// For `files`: what one file may decode to, such as `2GiB`, or `none`; never more than the host line. Default: null,
    /// which is 256 MiB or 64 times its size on the disk.
    pub decode_limit: Option<LineSpec>,
    /// Stands for the files and samples that a run began with; written by Lowtide, so that it goes on with the same.
    pub fingerprint: Option<String>,
}

/// A source of items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Made-up items whose score depends on sequence and graph in a known way.
    #[default]
    Generated,
    /// Files of samples.
    Files,
}

/// When files are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// As they are needed, into a cache.
    #[default]
    Feed,
    /// All at the start.
    Whole,
}

/// How training is shuffled, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShuffleName {
    /// Not at all.
    Sequential,
    /// Shards, and the items of a few of them together.
    #[default]
    Window,
    /// All items together; each is read by itself.
    Full,
}

/// Shards whose items are shuffled together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Chosen from the cache when a run starts, and kept with it.
    Auto,
    /// So many.
    Shards(NonZeroU32),
}

impl Serialize for Window {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Window::Auto => serializer.serialize_str("auto"),
            Window::Shards(shards) => serializer.serialize_u32(shards.get()),
        }
    }
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Window, D::Error> {
        deserializer.deserialize_any(WindowVisitor)
    }
}

struct WindowVisitor;

impl de::Visitor<'_> for WindowVisitor {
    type Value = Window;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("auto or a whole number of shards, 1 or more")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Window, E> {
        if text.eq_ignore_ascii_case("auto") {
            return Ok(Window::Auto);
        }
        Err(E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Window, E> {
        let shards = u32::try_from(number).ok().and_then(NonZeroU32::new);
        shards.map(Window::Shards).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
    }
}

impl Default for DataSettings {
    fn default() -> DataSettings {
        DataSettings {
            source: Source::default(),
            count: 2000,
            folder: None,
            pattern: None,
            scores: None,
            load: Load::default(),
            shuffle: ShuffleName::default(),
            window: Window::Shards(NonZeroU32::new(4).expect("4 is not 0")),
            cache_batches: None,
            policy: Policy::default(),
            threads: NonZeroUsize::new(2).expect("2 is not 0"),
            on_damage: OnDamage::default(),
            decode_limit: None,
            fingerprint: None,
        }
    }
}

impl DataSettings {
    /// What a file may decode to on a machine with so much memory.
    pub(crate) fn limit(&self, host_line: Line, machine: Bytes) -> DecodeLimit {
        let asked = self.decode_limit.map(|limit| {
            let limit = limit.resolve(machine).ok().and_then(Line::limit);
            limit.unwrap_or(Bytes::MAX)
        });
        DecodeLimit::asked(asked).under(host_line.limit())
    }

    /// With the source that was meant.
    pub(crate) fn with_source(self) -> DataSettings {
        let is_files = self.folder.is_some() || self.pattern.is_some();
        DataSettings { source: if is_files { Source::Files } else { self.source }, ..self }
    }

    /// What is wrong with them, as (key, problem).
    pub(crate) fn problem(&self) -> Option<(&'static str, String)> {
        if self.source == Source::Files && self.folder.is_none() == self.pattern.is_none() {
            let problem = "name either a folder (data.folder) or a pattern of files (data.pattern)";
            return Some(("data.source", problem.to_owned()));
        }
        if self.cache_batches == Some(0) {
            return Some(("data.cache_batches", "must be at least 1, or null".to_owned()));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_fine_and_wrong_values_are_named() {
        let good = ModelSettings::default();
        assert_eq!(good.problem(), None);
        let problem = |change: &dyn Fn(&mut ModelSettings)| {
            let mut settings = good.clone();
            change(&mut settings);
            settings.problem().map(|(key, problem)| format!("{key}: {problem}")).unwrap()
        };
        assert_eq!(problem(&|settings| settings.run.clear()), "model.run: name at least one model");
        assert_eq!(problem(&|settings| settings.run[2] = ModelName::Lstm), "model.run: `lstm` is named twice");
        assert_eq!(problem(&|settings| settings.gvae.latent = 0), "model.gvae.latent: must be at least 1");
        assert_eq!(problem(&|settings| settings.gvae.kl_weight = -1.0), "model.gvae.kl_weight: must be 0 or more");
        let huge = "model.gvae.kl_weight: must be at most 3.4028235e38, the largest number in fp32";
        assert_eq!(problem(&|settings| settings.gvae.kl_weight = 1e308), huge);
        assert_eq!(problem(&|settings| settings.dropout = 1.0), "model.dropout: must be at least 0 and less than 1");
    }
}
