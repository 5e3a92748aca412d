//! The two parts of a transformer's layer, by their sizes: attention, and a feed-forward part that may be many experts.

use crate::facts::{Facts, Key};

/// Families whose feed-forward part has three matrices, and whose embeddings are two.
pub(crate) const GATED: &[&str] = &[
    "llama",
    "mistral",
    "ministral",
    "qwen",
    "gemma",
    "phi3",
    "phimoe",
    "mixtral",
    "olmo",
    "gpt_oss",
    "deepseek",
    "glm4_moe",
    "granitemoe",
    "ernie4_5",
    "minimax",
];

/// No more experts are in a layer, so that the product of all sizes fits into 64 bits.
const MOST_EXPERTS: u64 = 1 << 10;
/// The largest size of a feed-forward part.
const LARGEST_INNER: u64 = 1 << 20;

/// Matrices of attention: for queries and outputs, and for keys and values.
pub(crate) struct Attention {
    width: u64,
    /// Dimensions of all heads of queries together.
    queries: u64,
    /// Those of keys or values, which heads may share.
    pairs: u64,
}

impl Attention {
    pub(crate) fn read(facts: &Facts<'_>, heads: Option<u64>, width: u64) -> Option<Self> {
        let of_all_heads = |size: u64| heads.and_then(|heads| size.checked_mul(heads)).filter(|all| *all <= 1 << 20);
        let queries = facts.number(Key::HeadSize).and_then(of_all_heads).filter(|all| *all > 0).unwrap_or(width);
        let pairs = match (heads, facts.number(Key::PairHeads)) {
            (Some(heads), Some(pairs)) => queries * pairs.min(heads) / heads,
            _ => queries,
        };
        Some(Self { width, queries, pairs })
    }

    pub(crate) const fn weights(&self) -> u64 {
        2 * self.width * (self.queries + self.pairs)
    }
}

/// Units between the matrices of a feed-forward part.
pub(crate) struct FeedForward {
    /// Those of all layers and experts.
    pub(crate) units: u64,
    /// Those of a layer that one token goes through.
    pub(crate) active: u64,
}

impl FeedForward {
    pub(crate) fn read(facts: &Facts<'_>, layers: u64, width: u64) -> Option<Self> {
        let size = |key| facts.number(key).filter(|size| *size > 0);
        let inner = size(Key::Inner).unwrap_or(4 * width);
        let Some(experts) = size(Key::Experts).filter(|experts| *experts > 1) else {
            return (inner <= LARGEST_INNER).then_some(Self { units: layers * inner, active: inner });
        };
        let of_one = size(Key::ExpertInner).unwrap_or(inner);
        let shared = size(Key::SharedInner).unwrap_or(size(Key::SharedExperts).unwrap_or(0).saturating_mul(of_one));
        if experts > MOST_EXPERTS || inner.max(of_one).max(shared / MOST_EXPERTS) > LARGEST_INNER {
            return None;
        }
        let dense = facts.number(Key::DenseLayers).unwrap_or(0).min(layers);
        let taken = size(Key::ActiveExperts).unwrap_or(2).min(experts);
        Some(Self {
            units: dense * inner + (layers - dense) * (experts * of_one + shared),
            active: taken * of_one + shared,
        })
    }
}
