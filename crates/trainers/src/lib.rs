//! What the settings of other people's trainers mean.
//!
//! **What it does.** [`answer`] says what configurations set a number to: one [`Answer`] with its place, or why it is not
//! known. A [`Key`] is what a setting is about, whoever named it; a [`Preset`] is a trainer whose own keys, flags and
//! defaults are known, how it is recognised, and which files of a command line it has its settings from.
//! [`processes`] counts what a launcher starts. Of scripts that nobody knows, [`flag`] finds the option that they declare
//! for a number, [`variable`] the one of the environment, [`hard_coded`] the numbers that stand in them, [`accumulation`] what more
//! accumulation does there, and [`training_loop`] their loop as it would be with it.
//!
//! **What it leaves out.** How configurations are written, which is crate `config`; files, the environment and the
//! machine, which come in through [`Access`]; logs.
//!
//! **Where to start reading.** `answer/reading.rs`; then `preset.rs`, the trainers that are known, and `key.rs`, the table of names.

mod accumulation;
mod answer;
mod checkpoints;
mod code;
mod config_file;
mod declaration;
mod deepspeed;
mod environment;
mod flag;
mod hard_coded;
mod key;
mod launcher;
mod nodes;
mod other_training;
mod preset;
mod refusal;
mod resume_call;
mod script;
mod sources;
mod split_batch;
mod text;
mod training_loop;

pub use accumulation::{Accumulation, accumulation, check_whole, divides_whole};
pub use answer::{Answer, Question, answer, candidates};
pub use checkpoints::{
    Beginning, CheckpointPlace, Checkpoints, ENDINGS, NamedCheckpoints, ResumeGap, ResumeWords, checkpoints,
    named_checkpoints,
};
pub use declaration::{Declaration, Takes, declarations};
pub use deepspeed::{is_deepspeed, whole_batch};
pub use environment::{Variable, variable};
pub use flag::{Flag, UnknownFlag, flag};
pub use hard_coded::{HardCoded, Slot, SourceBatch, hard_coded, hard_coded_steps, imported_batch};
pub use key::{Key, key_of, key_of_option, key_of_path};
pub use launcher::processes;
pub use preset::Preset;
pub use refusal::{Refusal, refusal};
pub use resume_call::ResumeCall;
pub use script::{imported_text, script, script_path, siblings};
pub use sources::{Access, command_line, file};
pub use split_batch::{NumberInFile, imported_steps, split_batch, takes_batch_from};
pub use text::{TextAnswer, text};
pub use training_loop::{LoopGap, TrainingLoop, training_loop};
