//! The three models, from a batch's inputs to the score and what else the loss is made of.
//!
//! A sequence encoder, then a graph encoder where the model has one, then the head: a segment each. Shapes: b samples,
//! t steps, n nodes, f features, h width, l latent width.

use std::collections::BTreeMap;

use lowtide_torch::tch::{Device, Kind, Reduction, Tensor};
use lowtide_torch::{Segment, Shared};
use lowtide_train::Mode;

use super::batch::{input, target};
use super::item::Widths;
use super::layers::{GraphConvolution, Lstm};
use super::settings::{GvaeSettings, ModelName, ModelSettings};
use crate::layers::{Dropout, Linear, Store};

/// A model: its parameters by name, and the chain of segments that computes with them.
pub(crate) struct Model {
    parameters: BTreeMap<String, Tensor>,
    segments: Vec<Segment>,
    /// There for `gvae`.
    variational: Option<GvaeSettings>,
}

impl Model {
    /// A model with fresh parameters, drawn from the engine's generator.
    pub(crate) fn new(name: ModelName, settings: &ModelSettings, widths: Widths, mode: &Mode, device: Device) -> Model {
        let mut store = Store::new(device);
        let dropout = Dropout::new(settings.dropout, mode);
        let sequence = SequenceEncoder::new(&mut store, settings, widths.step as i64, &dropout);
        let graph = GraphEncoder::new(&mut store, name, settings, widths.node as i64, mode, &dropout);
        let joined = i64::from(settings.lstm_hidden) + graph.as_ref().map_or(0, |graph| graph.width);
        let head = Head::new(&mut store, joined, i64::from(settings.head_hidden), dropout);
        let mut segments = vec![sequence.segment()];
        segments.extend(graph.map(GraphEncoder::segment));
        segments.push(head.segment());
        let variational = (name == ModelName::Gvae).then_some(settings.gvae);
        Model { parameters: store.into_parameters(), segments, variational }
    }

    /// Every parameter by its name.
    pub(crate) fn parameters(&self) -> &BTreeMap<String, Tensor> {
        &self.parameters
    }

    /// From a batch's inputs to the scores (b), then for `gvae` the latent values with their means and logarithms of
    /// variances (b, n, l).
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The loss of each sample: the square of what the score is off by, and for `gvae` its own two terms.
    pub(crate) fn losses(&self, outputs: &[Tensor], targets: &[Tensor]) -> Tensor {
        let squares_b = outputs[0].to_kind(Kind::Float).mse_loss(&targets[target::SCORE], Reduction::None);
        let Some(settings) = self.variational else { return squares_b };
        let [latent_bnl, mean_bnl, log_variance_bnl] = [1, 2, 3].map(|at| &outputs[at]);
        let (mask_bn, adjacency_bnn) = (&targets[target::NODE_MASK], &targets[target::ADJACENCY]);
        let reconstruction_b = reconstruction(latent_bnl, mask_bn, adjacency_bnn);
        let divergence_b = divergence(mean_bnl, log_variance_bnl, mask_bn);
        squares_b + reconstruction_b * settings.reconstruction_weight + divergence_b * settings.kl_weight
    }
}

/// LSTM layers; a sequence becomes what the last one shows after the sequence's own last step. Later steps are padding,
/// which an LSTM that runs forward has not seen by then.
struct SequenceEncoder {
    layers: Vec<Lstm>,
    dropout: Dropout,
}

impl SequenceEncoder {
    fn new(store: &mut Store, settings: &ModelSettings, width: i64, dropout: &Dropout) -> SequenceEncoder {
        let hidden = i64::from(settings.lstm_hidden);
        let input = |index| if index == 0 { width } else { hidden };
        let layers = (0..settings.lstm_layers).map(|index| store.lstm("lstm", index, input(index), hidden)).collect();
        SequenceEncoder { layers, dropout: dropout.clone() }
    }

    /// Takes a batch's inputs; gives the states (b, h), then the inputs that are left.
    fn segment(self) -> Segment {
        let shared = Shared::new(self);
        Segment::new(move |inputs| {
            let state_bh = shared.apply(&inputs[input::SEQUENCE], &inputs[input::LAST]);
            [state_bh].into_iter().chain(inputs[input::NODES..].iter().map(Tensor::shallow_clone)).collect()
        })
    }

    fn apply(&self, sequence_btf: &Tensor, last_b: &Tensor) -> Tensor {
        let shown = |x: Tensor, layer: &Lstm| self.dropout.apply(layer.apply(&x));
        let shown_bth = self.layers.iter().fold(sequence_btf.shallow_clone(), shown);
        let (b, _, h) = shown_bth.size3().expect("a state after each step");
        shown_bth.gather(1, &last_b.view([b, 1, 1]).expand([b, 1, h], false), false).squeeze_dim(1)
    }
}

/// Graph convolutions; a graph becomes the mean over its nodes.
struct GraphEncoder {
    first: GraphConvolution,
    second: Second,
    dropout: Dropout,
    /// Of what it gives.
    width: i64,
}

/// What comes after the first convolution.
enum Second {
    Deterministic(GraphConvolution),
    /// Nodes are drawn around their means in training, and are their means in evaluation.
    Variational {
        mean: GraphConvolution,
        log_variance: GraphConvolution,
        mode: Mode,
    },
}

impl GraphEncoder {
    /// `None` for a model that sees no graph.
    fn new(
        store: &mut Store,
        name: ModelName,
        settings: &ModelSettings,
        input: i64,
        mode: &Mode,
        dropout: &Dropout,
    ) -> Option<GraphEncoder> {
        let (hidden, latent) = (i64::from(settings.graph_hidden), i64::from(settings.gvae.latent));
        let width = match name {
            ModelName::Lstm => return None,
            ModelName::GnnDet => hidden,
            ModelName::Gvae => latent,
        };
        let first = store.graph_convolution("graph.conv1", input, hidden);
        let second = match name {
            ModelName::Gvae => Second::Variational {
                mean: store.graph_convolution("graph.mean", hidden, latent),
                log_variance: store.graph_convolution("graph.log_variance", hidden, latent),
                mode: mode.clone(),
            },
            _ => Second::Deterministic(store.graph_convolution("graph.conv2", hidden, hidden)),
        };
        Some(GraphEncoder { first, second, dropout: dropout.clone(), width })
    }

    /// Takes states, nodes, their mask and the adjacency; gives states joined with graphs, then what the loss wants.
    fn segment(self) -> Segment {
        let shared = Shared::new(self);
        Segment::new(move |inputs| {
            let [state_bh, nodes_bnf, mask_bn, adjacency_bnn] = [0, 1, 2, 3].map(|at| &inputs[at]);
            let hidden_bnh = shared.dropout.apply(shared.first.apply(nodes_bnf, adjacency_bnn).relu());
            let mut nodes = shared.second.apply(&hidden_bnh, adjacency_bnn);
            let graph = mean_of_nodes(&nodes[0], mask_bn);
            let joined = Tensor::cat(&[state_bh, &graph.to_kind(state_bh.kind())], 1);
            if matches!(shared.second, Second::Deterministic(_)) {
                nodes.clear();
            }
            [joined].into_iter().chain(nodes).collect()
        })
    }
}

impl Second {
    /// The nodes, and where they are drawn their means and logarithms of variances in 32 bits.
    fn apply(&self, hidden_bnh: &Tensor, adjacency_bnn: &Tensor) -> Vec<Tensor> {
        match self {
            Second::Deterministic(convolution) => vec![convolution.apply(hidden_bnh, adjacency_bnn).relu()],
            Second::Variational { mean, log_variance, mode } => {
                let mean_bnl = mean.apply(hidden_bnh, adjacency_bnn).to_kind(Kind::Float);
                let log_variance_bnl = log_variance.apply(hidden_bnh, adjacency_bnn).to_kind(Kind::Float);
                let latent_bnl = if mode.is_training() {
                    mean_bnl.randn_like() * (&log_variance_bnl * 0.5).exp() + &mean_bnl
                } else {
                    mean_bnl.shallow_clone()
                };
                vec![latent_bnl, mean_bnl, log_variance_bnl]
            }
        }
    }
}

/// Two layers down to the score.
struct Head {
    first: Linear,
    second: Linear,
    dropout: Dropout,
}

impl Head {
    fn new(store: &mut Store, input: i64, hidden: i64, dropout: Dropout) -> Head {
        Head { first: store.linear("head.0", input, hidden), second: store.linear("head.2", hidden, 1), dropout }
    }

    /// Takes encoded samples and hands on what else there is.
    fn segment(self) -> Segment {
        let shared = Shared::new(self);
        Segment::new(move |inputs| {
            let hidden_bh = shared.dropout.apply(shared.first.apply(&inputs[0]).relu());
            let score_b = shared.second.apply(&hidden_bh).squeeze_dim(1);
            [score_b].into_iter().chain(inputs[1..].iter().map(Tensor::shallow_clone)).collect()
        })
    }
}

/// How badly the products of nodes' latent vectors tell which nodes are joined, one value a sample: binary
/// cross-entropy, a mean over all pairs of nodes. Graphs are sparse, so joined pairs weigh as much as all others
/// together.
fn reconstruction(latent_bnl: &Tensor, mask_bn: &Tensor, adjacency_bnn: &Tensor) -> Tensor {
    let logits_bnn = latent_bnl.matmul(&latent_bnl.transpose(1, 2)).to_kind(Kind::Float);
    let joined_bnn = adjacency_bnn.gt(0.0).to_kind(Kind::Float);
    let pairs_bnn = mask_bn.unsqueeze(2) * mask_bn.unsqueeze(1);
    let pairs = sum_of_pairs(&pairs_bnn);
    let joined = sum_of_pairs(&joined_bnn);
    // At least one, so that a graph in which all are joined has a finite weight.
    let apart = (&pairs - &joined).clamp_min(1.0);
    let weights_bnn = (&joined_bnn * (&apart / &joined - 1.0) + 1.0) * &pairs_bnn;
    let entropy_bnn =
        logits_bnn.binary_cross_entropy_with_logits(&joined_bnn, Some(&weights_bnn), None::<&Tensor>, Reduction::None);
    // Kipf and Welling's factor: the mean is then one over weights, not over pairs.
    (sum_of_pairs(&entropy_bnn) / (apart * 2.0)).view([-1])
}

/// How far the nodes' distributions are from normal ones (Kullback and Leibler's divergence), one value a sample: a
/// mean over its nodes.
fn divergence(mean_bnl: &Tensor, log_variance_bnl: &Tensor, mask_bn: &Tensor) -> Tensor {
    let terms_bnl = (mean_bnl.square() + log_variance_bnl.exp() - log_variance_bnl - 1.0) * 0.5;
    mean_of_nodes(&terms_bnl.sum_dim_intlist([2i64].as_slice(), true, Kind::Float), mask_bn).view([-1])
}

/// The mean over a graph's nodes, padding left out.
fn mean_of_nodes(x_bnh: &Tensor, mask_bn: &Tensor) -> Tensor {
    let mask_bn1 = mask_bn.unsqueeze(2);
    let sum = |tensor: &Tensor| tensor.sum_dim_intlist([1i64].as_slice(), false, Kind::Float);
    sum(&(x_bnh * &mask_bn1)) / sum(&mask_bn1)
}

fn sum_of_pairs(x_bnn: &Tensor) -> Tensor {
    x_bnn.sum_dim_intlist([1i64, 2].as_slice(), true, Kind::Float)
}
