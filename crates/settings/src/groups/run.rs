//! The settings of a run, as the sum of its parts.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::violation::{Violation, ensure};
use crate::source::excerpt::{described, excerpt};
use crate::source::origin::join;
use crate::{
    EvalSettings, MemorySettings, OptimizerSettings, Origins, RanksSettings, SaveSettings, SettingsError,
    TrainSettings, WatchSettings,
};

/// Everything that a settings file can say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSettings {
    /// What is trained, by name. Default: `gpt`.
    pub workload: String,
    /// Where all random numbers start. Default: 1.
    pub seed: u64,
    /// The workload's own settings of its model: always an object, read with [`typed`](crate::typed). Default: empty.
    #[serde(deserialize_with = "group")]
    pub model: Value,
    /// The workload's own settings of its data: always an object, read with [`typed`](crate::typed). Default: empty.
    #[serde(deserialize_with = "group")]
    pub data: Value,
    /// How long and in what pieces.
    pub train: TrainSettings,
    /// How parameters are updated.
    pub optimizer: OptimizerSettings,
    /// What memory may be used.
    pub memory: MemorySettings,
    /// When and on how much it is evaluated.
    pub eval: EvalSettings,
    /// When checkpoints are written.
    pub save: SaveSettings,
    /// What it tells of memory meanwhile.
    pub watch: WatchSettings,
    /// How several ranks train together.
    pub ranks: RanksSettings,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            workload: "gpt".to_owned(),
            seed: 1,
            model: Value::Object(Map::new()),
            data: Value::Object(Map::new()),
            train: TrainSettings::default(),
            optimizer: OptimizerSettings::default(),
            memory: MemorySettings::default(),
            eval: EvalSettings::default(),
            save: SaveSettings::default(),
            watch: WatchSettings::default(),
            ranks: RanksSettings::default(),
        }
    }
}

impl RunSettings {
    /// The keys that hold groups, in the order of a settings file.
    pub(crate) const GROUPS: [&'static str; 9] =
        ["model", "data", "train", "optimizer", "memory", "eval", "save", "watch", "ranks"];

    /// Refuses values that parse and make no sense, such as 0 steps or a micro-batch above the batch.
    ///
    /// [`RunSettings::load`] has done this; settings made by hand have no origins and take [`Origins::default`].
    ///
    /// # Errors
    ///
    /// [`SettingsError::Value`] for the first such value.
    pub fn validate(&self, origins: &Origins) -> Result<(), SettingsError> {
        let workload = format!("\"{}\"", excerpt(&self.workload));
        let root = ensure(!self.workload.trim().is_empty(), "workload", "the name of a workload", workload);
        let parts = [
            ("", root),
            ("model", is_group(&self.model)),
            ("data", is_group(&self.data)),
            ("train", self.train.check()),
            ("optimizer", self.optimizer.check()),
            ("memory", self.memory.check()),
            ("eval", self.eval.check()),
            ("save", self.save.check()),
            ("watch", self.watch.check()),
            ("ranks", self.ranks.check()),
        ];
        for (group, checked) in parts {
            checked.map_err(|wrong| refuse(group, wrong, origins))?;
        }
        Ok(())
    }
}

fn refuse(group: &str, wrong: Violation, origins: &Origins) -> SettingsError {
    let path = if wrong.key.is_empty() { group.to_owned() } else { join(group, wrong.key) };
    let origin = origins.exactly(&path).cloned();
    let mend = origin.is_none().then(|| format!("set `{path}` too"));
    SettingsError::Value { origin, path, expected: wrong.expected, got: wrong.got, mend }
}

fn is_group(value: &Value) -> Result<(), Violation> {
    ensure(value.is_object(), "", "a group of keys", described(value))
}

fn group<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Map::deserialize(deserializer).map(Value::Object)
}
