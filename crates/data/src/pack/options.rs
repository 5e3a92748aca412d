//! What packing is told.

use std::path::PathBuf;

use lowtide_core::Bytes;
use lowtide_tensorfile::DecodeLimit;

use crate::feed::OnDamage;
use crate::shard::Compression;

/// How samples become shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// A shard ends with the sample that brings it to this size. Default 32 MiB.
    pub shard_bytes: Bytes,
    /// Whether records are compressed. Default: not.
    pub compression: Compression,
    /// A table of `id,score`; each sample gets its score as the field `scores`. Default: none.
    pub scores: Option<PathBuf>,
    /// What to do about samples without a score and scores without a sample. Default: refuse.
    pub missing: OnMissing,
    /// What to do about a source that cannot be read. Default: stop.
    pub on_damage: OnDamage,
    /// What a source may decode to. Default: 256 MiB, or 64 times its size.
    pub decode_limit: DecodeLimit,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shard_bytes: Bytes::from_mib(32),
            compression: Compression::None,
            scores: None,
            missing: OnMissing::Refuse,
            on_damage: OnDamage::Stop,
            decode_limit: DecodeLimit::default(),
        }
    }
}

/// What to do about samples without a score and scores without a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnMissing {
    /// Write nothing.
    #[default]
    Refuse,
    /// Pack such samples without a score.
    Allow,
}
