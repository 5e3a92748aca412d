//! What a trace is.

use lowtide_core::Bytes;

/// One sample as its source gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Names it among all others, whatever file it is in.
    pub id: String,
    /// Steps x features, row by row.
    pub sequence: Vec<f32>,
    /// Steps of the sequence, at least 1.
    pub steps: usize,
    /// Nodes x features, row by row.
    pub nodes: Vec<f32>,
    /// Nodes of the graph, at least 1.
    pub node_count: usize,
    /// Pairs of nodes that are joined; which one comes first means nothing.
    pub edges: Vec<[u32; 2]>,
    /// What is to be predicted.
    pub score: f32,
}

impl Item {
    /// Memory that it takes.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        let held = size_of::<Item>() + self.id.len() + size_of_val(&self.sequence[..]) + size_of_val(&self.nodes[..]);
        Bytes((held + size_of_val(&self.edges[..])) as u64)
    }
}
