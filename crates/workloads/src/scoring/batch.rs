//! Items as padded tensors.
//!
//! Shapes: b samples, t steps of the longest sequence, n nodes of the largest graph, f features. Padding is zero
//! everywhere.

use std::sync::Arc;

use lowtide_generators::traces::Item;
use lowtide_torch::tch::{Device, Tensor};
use lowtide_torch::upload;
use lowtide_train::Batch;

use super::item::Widths;
use super::settings::ModelName;

/// The place of each tensor in a batch's inputs.
pub(crate) mod input {
    /// Sequences (b, t, f).
    pub(crate) const SEQUENCE: usize = 0;
    /// The last step that is no padding (b).
    pub(crate) const LAST: usize = 1;
    /// Nodes (b, n, f). From here on only for models that see the graph.
    pub(crate) const NODES: usize = 2;
    /// 1 for a node, 0 for padding (b, n).
    pub(crate) const NODE_MASK: usize = 3;
    /// Adjacency with self-loops, normalised (b, n, n).
    pub(crate) const ADJACENCY: usize = 4;
}

/// The place of each tensor in a batch's targets.
pub(crate) mod target {
    /// Scores (b).
    pub(crate) const SCORE: usize = 0;
    /// As in the inputs; only for `gvae`.
    pub(crate) const NODE_MASK: usize = 1;
    /// As in the inputs; only for `gvae`.
    pub(crate) const ADJACENCY: usize = 2;
}

/// The batch of these items, which are all good and have these widths, as `model` wants it.
pub(crate) fn collate(items: &[Arc<Item>], widths: Widths, model: ModelName, device: Device) -> Batch {
    Collated::of(items, widths, model).into_batch(device)
}

/// A batch as plain numbers, which any thread can make.
pub(crate) struct Collated {
    model: ModelName,
    /// Samples, steps and features of a step.
    size: [i64; 3],
    sequence: Vec<f32>,
    last: Vec<i64>,
    scores: Vec<f32>,
    /// Only for models that see the graph.
    graphs: Option<CollatedGraphs>,
}

struct CollatedGraphs {
    /// Nodes, and features of a node.
    size: [i64; 2],
    nodes: Vec<f32>,
    mask: Vec<f32>,
    adjacency: Vec<f32>,
}

impl Collated {
    pub(crate) fn of(items: &[Arc<Item>], widths: Widths, model: ModelName) -> Collated {
        let steps = items.iter().map(|item| item.steps).max().unwrap_or(0);
        Collated {
            model,
            size: [items.len() as i64, steps as i64, widths.step as i64],
            sequence: padded(items, steps * widths.step, |item| &item.sequence),
            last: items.iter().map(|item| item.steps as i64 - 1).collect(),
            scores: items.iter().map(|item| item.score).collect(),
            graphs: (model != ModelName::Lstm).then(|| CollatedGraphs::of(items, widths.node)),
        }
    }

    /// As tensors on a device.
    pub(crate) fn into_batch(self, device: Device) -> Batch {
        let there = |tensor: Tensor| upload(&tensor, device);
        let mut inputs =
            vec![there(Tensor::from_slice(&self.sequence).view(self.size)), there(Tensor::from_slice(&self.last))];
        let mut targets = vec![there(Tensor::from_slice(&self.scores))];
        if let Some(CollatedGraphs { size: [n, width], nodes, mask, adjacency }) = self.graphs {
            let b = self.size[0];
            inputs.push(there(Tensor::from_slice(&nodes).view([b, n, width])));
            inputs.push(there(Tensor::from_slice(&mask).view([b, n])));
            inputs.push(there(Tensor::from_slice(&adjacency).view([b, n, n])));
        }
        if self.model == ModelName::Gvae {
            targets.extend([input::NODE_MASK, input::ADJACENCY].map(|at| inputs[at].shallow_clone()));
        }
        Batch { inputs, targets, targets_per_sample: 1 }
    }
}

impl CollatedGraphs {
    fn of(items: &[Arc<Item>], width: usize) -> CollatedGraphs {
        let n = items.iter().map(|item| item.node_count).max().unwrap_or(0);
        let is_node = |item: &Arc<Item>| {
            let count = item.node_count;
            (0..n).map(move |node| if node < count { 1.0 } else { 0.0 })
        };
        CollatedGraphs {
            size: [n as i64, width as i64],
            nodes: padded(items, n * width, |item| &item.nodes),
            mask: items.iter().flat_map(is_node).collect(),
            adjacency: items.iter().flat_map(|item| adjacency(item, n)).collect(),
        }
    }
}

/// Each item's values, filled up with zeros to `length`, one after the other.
fn padded(items: &[Arc<Item>], length: usize, values: impl Fn(&Item) -> &[f32]) -> Vec<f32> {
    let mut all = vec![0.0; items.len() * length];
    for (row, item) in all.chunks_exact_mut(length).zip(items) {
        let values = values(item);
        row[..values.len()].copy_from_slice(values);
    }
    all
}

/// An item's adjacency as a matrix of `n` rows: edges both ways and self-loops, each entry over the root of both nodes'
/// degrees.
fn adjacency(item: &Item, n: usize) -> Vec<f32> {
    let mut matrix = vec![0.0; n * n];
    let loops = (0..item.node_count).map(|node| [node, node]);
    let edges = item.edges.iter().map(|edge| edge.map(|node| node as usize));
    for [a, b] in edges.chain(loops) {
        (matrix[a * n + b], matrix[b * n + a]) = (1.0, 1.0);
    }
    // A padded node has degree 0 and no entry to be divided.
    let degrees: Vec<f32> = matrix.chunks_exact(n).map(|row| row.iter().sum()).collect();
    for (at, entry) in matrix.iter_mut().enumerate().filter(|(_, entry)| **entry > 0.0) {
        *entry /= (degrees[at / n] * degrees[at % n]).sqrt();
    }
    matrix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_count_both_ways_and_once() {
        let item = Item {
            id: String::new(),
            sequence: vec![0.0],
            steps: 1,
            nodes: vec![0.0; 3],
            node_count: 3,
            edges: vec![[0, 1], [1, 0], [0, 1], [2, 2]],
            score: 0.0,
        };
        let expect = [[0.5, 0.5, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]];
        assert_eq!(adjacency(&item, 4), expect.concat());
        let path = Item { edges: vec![[0, 1], [2, 1]], ..item };
        let side = 1.0 / 6.0f32.sqrt();
        assert_eq!(adjacency(&path, 3), [[0.5, side, 0.0], [side, 1.0 / 3.0, side], [0.0, side, 0.5]].concat());
    }
}
