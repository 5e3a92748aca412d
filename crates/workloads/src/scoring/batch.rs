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
    let steps = items.iter().map(|item| item.steps).max().unwrap_or(0);
    let sequence_btf = padded(items, steps * widths.step, |item| &item.sequence);
    let sequence_btf = sequence_btf.view([items.len() as i64, steps as i64, widths.step as i64]);
    let last: Vec<i64> = items.iter().map(|item| item.steps as i64 - 1).collect();
    let scores: Vec<f32> = items.iter().map(|item| item.score).collect();
    let mut inputs = vec![upload(&sequence_btf, device), upload(&Tensor::from_slice(&last), device)];
    let mut targets = vec![upload(&Tensor::from_slice(&scores), device)];
    if model != ModelName::Lstm {
        inputs.extend(graphs(items, widths.node).map(|tensor| upload(&tensor, device)));
    }
    if model == ModelName::Gvae {
        targets.extend([input::NODE_MASK, input::ADJACENCY].map(|at| inputs[at].shallow_clone()));
    }
    Batch { inputs, targets, targets_per_sample: 1 }
}

/// Nodes, their mask and the adjacency.
fn graphs(items: &[Arc<Item>], width: usize) -> [Tensor; 3] {
    let (b, n) = (items.len(), items.iter().map(|item| item.node_count).max().unwrap_or(0));
    let nodes_bnf = padded(items, n * width, |item| &item.nodes).view([b as i64, n as i64, width as i64]);
    let mask =
        |item: &Arc<Item>| (0..n).map(|node| if node < item.node_count { 1.0 } else { 0.0 }).collect::<Vec<f32>>();
    let mask_bn = Tensor::from_slice(&items.iter().flat_map(mask).collect::<Vec<f32>>()).view([b as i64, n as i64]);
    let adjacency: Vec<f32> = items.iter().flat_map(|item| adjacency(item, n)).collect();
    [nodes_bnf, mask_bn, Tensor::from_slice(&adjacency).view([b as i64, n as i64, n as i64])]
}

/// Each item's values, filled up with zeros to `length`, one after the other.
fn padded(items: &[Arc<Item>], length: usize, values: impl Fn(&Item) -> &[f32]) -> Tensor {
    let mut all = vec![0.0; items.len() * length];
    for (row, item) in all.chunks_exact_mut(length).zip(items) {
        let values = values(item);
        row[..values.len()].copy_from_slice(values);
    }
    Tensor::from_slice(&all)
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
