//! GPT-2, from token ids to the loss.
//!
//! Shapes: b samples, t tokens, c width, h heads, d = c / h, v vocabulary. Names of parameters are those of GPT-2's
//! published weights.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use lowtide_core::Bytes;
use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{Product, Segment, Shared, add, embed, gelu, heads, linear_cross_entropy};
use lowtide_train::Mode;

use super::settings::ModelSettings;
use crate::layers::{Dropout, Linear, Norm, Store};

/// Logits held at once, counted at two bytes each. Smaller pieces cost time: each adds to the gradient of the whole
/// vocabulary. At GPT-2's vocabulary this is 8,004 tokens, and the additions are half a percent of a step.
const LOGITS_HELD: Bytes = Bytes::from_mib(768);

/// The model: its parameters by name, and the chain of segments that computes with them.
pub struct Model {
    parameters: BTreeMap<String, Tensor>,
    segments: Vec<Segment>,
    head: Head,
}

/// The last normalisation and the output layer, which shares its weight with the token embedding.
struct Head {
    before: Option<Before>,
    norm: Norm,
    embedding_vc: Tensor,
}

struct Embedding {
    tokens_vc: Tensor,
    positions_tc: Tensor,
    dropout: Dropout,
}

/// How the block before ended. It leaves the residual stream and what is to be added to it: the sum is made with the normalisation
/// that comes next, in one pass.
struct Before {
    /// The bias of its last layer.
    bias_c: Tensor,
    dropout: Dropout,
}

struct Block {
    /// None before the first one.
    before: Option<Before>,
    attention_norm: Norm,
    attention_in: Linear,
    attention_out: Linear,
    mlp_norm: Norm,
    mlp_in: Linear,
    mlp_out: Linear,
    heads: i64,
    dropout: Dropout,
}

impl Model {
    /// A model with fresh parameters, drawn as GPT-2's were from the engine's generator.
    #[must_use]
    pub fn new(settings: &ModelSettings, mode: &Mode, device: Device) -> Model {
        let dropout = Dropout::new(settings.dropout, mode);
        let mut store = Store::new(device);
        let width = i64::from(settings.n_embd);
        let tokens_vc = store.normal("transformer.wte.weight", &[i64::from(settings.vocab_size), width], 0.02);
        let positions_tc = store.normal("transformer.wpe.weight", &[i64::from(settings.block_size), width], 0.02);
        let embedding = Embedding { tokens_vc: tokens_vc.shallow_clone(), positions_tc, dropout: dropout.clone() };
        let mut segments = vec![embedding.segment()];
        let mut before = None;
        for index in 0..settings.n_layer {
            let block = Block::new(&mut store, index, settings, &dropout, before);
            before = Some(block.end());
            segments.push(block.segment());
        }
        let head = Head { before, norm: store.norm("transformer.ln_f", width), embedding_vc: tokens_vc };
        Model { parameters: store.into_parameters(), segments, head }
    }

    /// Every parameter by its name.
    #[must_use]
    pub fn parameters(&self) -> &BTreeMap<String, Tensor> {
        &self.parameters
    }

    /// From ids (b, t) to hidden values (b, t, c), in two parts that are still to be added up: the embedding, then a segment a block.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The cross-entropy of the next tokens, summed over all of them.
    ///
    /// The logits are held in pieces of at most `LOGITS_HELD`, and in `chunks` times as many pieces where that is asked.
    pub fn loss_sum(&self, hidden: &[Tensor], targets_bt: &Tensor, chunks: NonZeroU32) -> Tensor {
        let (_, hidden_btc) = normed(self.head.before.as_ref(), hidden, &self.head.norm);
        let width = hidden_btc.size()[2];
        let targets = targets_bt.reshape([-1]);
        let logits = targets.numel() as u64 * self.head.embedding_vc.size()[0] as u64 * 2;
        let pieces = u32::try_from(logits.div_ceil(LOGITS_HELD.get())).unwrap_or(u32::MAX).max(1);
        let chunks = chunks.saturating_mul(NonZeroU32::new(pieces).expect("at least one piece"));
        linear_cross_entropy(&hidden_btc.view([-1, width]), &self.head.embedding_vc, &targets, chunks)
    }
}

impl Embedding {
    fn segment(self) -> Segment {
        let shared = Shared::new(self);
        Segment::new(move |inputs| vec![shared.apply(&inputs[0])])
    }

    fn apply(&self, ids_bt: &Tensor) -> Tensor {
        let positions_tc = self.positions_tc.narrow(0, 0, ids_bt.size()[1]);
        self.dropout.apply(embed(ids_bt, &self.tokens_vc, &positions_tc))
    }
}

impl Block {
    fn new(
        store: &mut Store,
        index: u32,
        settings: &ModelSettings,
        dropout: &Dropout,
        before: Option<Before>,
    ) -> Block {
        let name = |part: &str| format!("transformer.h.{index}.{part}");
        let width = i64::from(settings.n_embd);
        // Two additions to the residual stream a block: their spread is made smaller so that the sum keeps its own.
        let narrow = 0.02 / (2.0 * f64::from(settings.n_layer)).sqrt();
        Block {
            before,
            attention_norm: store.norm(&name("ln_1"), width),
            attention_in: store.normal_linear(&name("attn.c_attn"), width, 3 * width, 0.02),
            attention_out: store.normal_linear(&name("attn.c_proj"), width, width, narrow),
            mlp_norm: store.norm(&name("ln_2"), width),
            mlp_in: store.normal_linear(&name("mlp.c_fc"), width, 4 * width, 0.02),
            mlp_out: store.normal_linear(&name("mlp.c_proj"), 4 * width, width, narrow),
            heads: i64::from(settings.n_head),
            dropout: dropout.clone(),
        }
    }

    fn segment(self) -> Segment {
        let shared = Shared::new(self);
        let joins = shared.clone();
        let segment = Segment::new(move |inputs| shared.apply(inputs));
        segment.joining(move |inputs| match (&joins.before, inputs) {
            (Some(before), [x_btc, more_btc]) => vec![add(x_btc, &before.product(more_btc))],
            _ => inputs.iter().map(Tensor::shallow_clone).collect(),
        })
    }

    /// How it ends, for what comes next.
    fn end(&self) -> Before {
        Before { bias_c: self.mlp_out.bias.shallow_clone(), dropout: self.dropout.clone() }
    }

    fn apply(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        let (x_btc, normed_btc) = normed(self.before.as_ref(), inputs, &self.attention_norm);
        let (x_btc, normed_btc) = self.mlp_norm.after_adding(&x_btc, &self.attend(&normed_btc));
        let wide = gelu(&self.mlp_in.product(&normed_btc));
        vec![x_btc, self.dropout.of(&self.mlp_out, &wide).values]
    }

    fn attend(&self, x_btc: &Tensor) -> Product<'_> {
        let (b, t, c) = x_btc.size3().expect("hidden values have three dimensions");
        let [q_bhtd, k_bhtd, v_bhtd] = heads(x_btc, &self.attention_in.weight, &self.attention_in.bias, self.heads);
        let y_bhtd = Tensor::scaled_dot_product_attention::<Tensor>(
            &q_bhtd,
            &k_bhtd,
            &v_bhtd,
            None,
            self.dropout.rate(),
            true,
            None,
            false,
        );
        self.dropout.of(&self.attention_out, &y_bhtd.transpose(1, 2).reshape([b, t, c]))
    }
}

impl Before {
    /// What is to be added, as the block's last layer left it.
    fn product(&self, values_btc: &Tensor) -> Product<'_> {
        self.dropout.product(values_btc.shallow_clone(), &self.bias_c)
    }
}

/// The residual stream, in one tensor or in its two parts, to go on with, and its values normalised.
fn normed(before: Option<&Before>, stream: &[Tensor], norm: &Norm) -> (Tensor, Tensor) {
    match (before, stream) {
        (Some(before), [x_btc, more_btc]) => norm.after_adding(x_btc, &before.product(more_btc)),
        _ => norm.split(&stream[0]),
    }
}

/// Fresh values are drawn as GPT-2's were.
impl Store {
    fn normal(&mut self, name: &str, shape: &[i64], deviation: f64) -> Tensor {
        let value = Tensor::randn(shape, (Kind::Float, self.device)) * deviation;
        self.keep(name.to_owned(), value)
    }

    fn normal_linear(&mut self, name: &str, input: i64, output: i64, deviation: f64) -> Linear {
        let weight = self.normal(&format!("{name}.weight"), &[output, input], deviation);
        Linear { weight, bias: self.zeros(format!("{name}.bias"), &[output]) }
    }
}
