//! The network: feature extraction and spike encoder, blocks of temporal mutual attention, reconstruction.
//!
//! Nothing in it looks at the whole frame: convolutions see their neighbours, attention its window, and normalisation one
//! pixel. What an output sees is bounded by [`receptive_field`], wherever windows begin at the same pixels.
//!
//! Shapes: b clips, t frames, c channels, m moments, h rows, w columns; n windows of s tokens.

use std::collections::BTreeMap;

use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{Segment, Shared};

use super::settings::{DataSettings, ModelSettings};
use crate::layers::{Linear, Norm, PlainConv, Store};

/// Slope below zero of the activation between convolutions.
const SLOPE: f64 = 0.1;

/// All parts of the network.
struct Network {
    settings: ModelSettings,
    feature_extraction: [PlainConv; 2],
    spike_encoder: [PlainConv; 2],
    blocks: Vec<Block>,
    reconstruction: [PlainConv; 2],
}

/// Attention over all frames within a window, then convolutions; both are added to what they see.
struct Block {
    heads: i64,
    window: i64,
    norm: Norm,
    /// What is added to a token for its place in the window and its frame.
    place_sc: Tensor,
    mixed: Linear,
    output: Linear,
    residual: [PlainConv; 2],
}

/// A fresh network as a chain of segments, and its parameters by name.
///
/// The chain takes blurred frames \[b, t, 3, h, w\] and spikes \[b, t, m, h, w\] and makes sharp frames like the blurred ones.
/// Frames that are no multiple of the window are continued at the right and at the bottom by their last pixels.
pub(crate) fn network(
    model: &ModelSettings,
    data: &DataSettings,
    device: Device,
) -> (Vec<Segment>, BTreeMap<String, Tensor>) {
    let mut store = Store::new(device);
    let channels = model.channels;
    let tokens = data.frames * model.window * model.window;
    let network = Network {
        settings: *model,
        feature_extraction: [
            store.plain_conv("feature_extraction.0", 3, channels),
            store.plain_conv("feature_extraction.1", channels, channels),
        ],
        spike_encoder: [
            store.plain_conv("spike_encoder.0", data.moments, channels),
            store.plain_conv("spike_encoder.1", channels, channels),
        ],
        blocks: (0..model.blocks).map(|number| Block::new(&mut store, model, number, tokens)).collect(),
        reconstruction: [
            store.plain_conv("reconstruction.0", channels, channels),
            store.zero_conv("reconstruction.1", channels, 3),
        ],
    };
    (segments(&Shared::new(network)), store.into_parameters())
}

/// Pixels that an output sees at most, to each side.
pub(crate) fn receptive_field(settings: &ModelSettings) -> u32 {
    let pair = 2 * PlainConv::REACH;
    let attention = settings.window - 1;
    // Features and spikes side by side, the blocks, the reconstruction.
    pair + settings.blocks * (attention + pair) + pair
}

/// What is carried from segment to segment: features \[b t, c, h, w\] in whole windows, and the blurred frames.
fn segments(network: &Shared<Network>) -> Vec<Segment> {
    let first = network.clone();
    let mut segments = vec![Segment::new(move |inputs| {
        let (blurred, spikes) = (&inputs[0], &inputs[1]);
        vec![first.features(blurred, spikes), blurred.shallow_clone()]
    })];
    for number in 0..network.blocks.len() {
        let network = network.clone();
        segments.push(Segment::new(move |carried| {
            let clips = carried[1].size()[0];
            vec![network.blocks[number].apply(&carried[0], clips), carried[1].shallow_clone()]
        }));
    }
    let last = network.clone();
    segments.push(Segment::new(move |carried| vec![last.sharp(&carried[0], &carried[1])]));
    segments
}

impl Network {
    fn features(&self, blurred: &Tensor, spikes: &Tensor) -> Tensor {
        let frames = |values: &Tensor| {
            let values = values.flatten(0, 1).to_kind(Kind::Float);
            continued(&values, i64::from(self.settings.window))
        };
        apply_pair(&self.feature_extraction, &frames(blurred)) + apply_pair(&self.spike_encoder, &frames(spikes))
    }

    fn sharp(&self, features: &Tensor, blurred: &Tensor) -> Tensor {
        let change = apply_pair(&self.reconstruction, features);
        let [_, _, _, height, width] = sizes(blurred);
        change.narrow(2, 0, height).narrow(3, 0, width).reshape_as(blurred) + blurred
    }
}

impl Block {
    fn new(store: &mut Store, settings: &ModelSettings, number: u32, tokens: u32) -> Block {
        let name = |part: &str| format!("temporal_mutual_attention.{number}.{part}");
        let channels = settings.channels;
        Block {
            heads: settings.heads.into(),
            window: settings.window.into(),
            norm: store.norm(&name("norm"), channels.into()),
            place_sc: store.uniform(name("place"), &[tokens.into(), channels.into()], 0.02),
            mixed: store.linear(&name("mixed"), channels.into(), i64::from(3 * channels)),
            output: store.linear(&name("output"), channels.into(), channels.into()),
            residual: [
                store.plain_conv(&name("residual.0"), channels, channels),
                store.zero_conv(&name("residual.1"), channels, channels),
            ],
        }
    }

    fn apply(&self, x: &Tensor, clips: i64) -> Tensor {
        let x = x + self.attended(x, clips);
        apply_pair(&self.residual, &x) + x
    }

    fn attended(&self, x: &Tensor, clips: i64) -> Tensor {
        let [images, channels, height, width] = sizes(x);
        let (frames, side) = (images / clips, self.window);
        let (down, across) = (height / side, width / side);
        let tokens = x
            .reshape([clips, frames, channels, down, side, across, side].as_slice())
            .permute([0, 3, 5, 1, 4, 6, 2])
            .reshape([clips * down * across, frames * side * side, channels]);
        let mixed = self.mixed.apply(&(self.norm.apply(&tokens) + &self.place_sc));
        let [windows, length, _] = sizes(&tokens);
        let mixed = mixed.view([windows, length, 3, self.heads, channels / self.heads]).permute([2, 0, 3, 1, 4]);
        let part = |index| mixed.select(0, index);
        let seen =
            Tensor::scaled_dot_product_attention::<Tensor>(&part(0), &part(1), &part(2), None, 0.0, false, None, false);
        self.output
            .apply(&seen.transpose(1, 2).reshape([windows, length, channels]))
            .view([clips, down, across, frames, side, side, channels].as_slice())
            .permute([0, 3, 6, 1, 4, 2, 5])
            .reshape([images, channels, height, width])
    }
}

fn apply_pair([first, second]: &[PlainConv; 2], x: &Tensor) -> Tensor {
    let hidden = first.apply(x);
    second.apply(&hidden.maximum(&(&hidden * SLOPE)))
}

/// Images that are whole windows.
fn continued(images: &Tensor, window: i64) -> Tensor {
    let [_, _, height, width] = sizes(images);
    let missing = |length: i64| (window - length % window) % window;
    match (missing(width), missing(height)) {
        (0, 0) => images.shallow_clone(),
        (right, bottom) => images.pad([0, right, 0, bottom], "replicate", None),
    }
}

fn sizes<const N: usize>(tensor: &Tensor) -> [i64; N] {
    tensor.size().try_into().expect("the shape is the network's own")
}
