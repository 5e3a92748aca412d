//! Made-up items whose score depends on the sequence and on the graph in a known way.
//!
//! The sequence's part is the mean of its first feature and the last value of its second. The graph's part is how much
//! neighbours agree: take the mean of the first feature over a node and its neighbours, and of that the mean size over
//! all nodes. Nodes without edges do not tell it, nor edges without nodes, so a model that does not see the graph can
//! explain no more than the sequence's share, which is about half.

use std::ops::RangeInclusive;

use lowtide_core::Bytes;

use super::item::Item;
use crate::random::{Normal, Random};

/// Features of a step.
pub(super) const STEP_WIDTH: usize = 24;
/// Features of a node.
pub(super) const NODE_WIDTH: usize = 12;
/// How many steps a sequence has.
pub const STEPS: RangeInclusive<u64> = 8..=48;
/// Fewest nodes of a graph and how many more there may be.
const NODES: (u64, u64) = (7, 13);
/// The deviation of what nothing explains.
const NOISE: f64 = 0.1;

/// Items that are pure functions of (seed, number).
#[derive(Clone, Copy, Debug)]
pub struct SyntheticItems {
    /// Of all random numbers.
    pub seed: u64,
    /// How many there are.
    pub count: u64,
}

impl SyntheticItems {
    /// Item `number`.
    #[must_use]
    pub fn item(&self, number: u64) -> Item {
        self.item_of(number, &STEPS)
    }

    /// What the largest item takes in memory, or somewhat more.
    #[must_use]
    pub fn largest(&self) -> Bytes {
        let (steps, nodes) = (*STEPS.end() as usize, (NODES.0 + NODES.1) as usize);
        let values = size_of::<f32>() * (steps * STEP_WIDTH + nodes * NODE_WIDTH);
        let longest_id = self.id(u64::MAX).len();
        Bytes((size_of::<Item>() + values + nodes * size_of::<[u32; 2]>() + longest_id) as u64)
    }

    /// The id of item `number`.
    #[must_use]
    pub fn id(&self, number: u64) -> String {
        format!("generated-{number}")
    }

    /// Item `number` with a sequence of so many steps, which are never none.
    pub(super) fn item_of(&self, number: u64, steps: &RangeInclusive<u64>) -> Item {
        let mut random = Random::new(self.seed, 2 * number);
        let mut normal = Normal::new(self.seed, 2 * number + 1);
        let sequence = Sequence::draw(steps, &mut random, &mut normal);
        let graph = Graph::draw(&mut random, &mut normal);
        let score = sequence.part() + graph.part() + NOISE * normal.draw();
        Item {
            id: self.id(number),
            steps: sequence.0.len() / STEP_WIDTH,
            sequence: sequence.0,
            node_count: graph.nodes.len() / NODE_WIDTH,
            nodes: graph.nodes,
            edges: graph.edges,
            score: score as f32,
        }
    }

    /// Steps and nodes of item `number`, without making it.
    pub(super) fn size_of(&self, number: u64, steps: &RangeInclusive<u64>) -> (u64, u64) {
        let mut random = Random::new(self.seed, 2 * number);
        (step_count(steps, &mut random), node_count(&mut random))
    }
}

fn step_count(steps: &RangeInclusive<u64>, random: &mut Random) -> u64 {
    steps.start() + random.below(steps.end() - steps.start() + 1)
}

fn node_count(random: &mut Random) -> u64 {
    NODES.0 + random.below(NODES.1 + 1)
}

struct Sequence(Vec<f32>);

impl Sequence {
    /// Noise, around a level of the sequence's own in the first feature.
    fn draw(steps: &RangeInclusive<u64>, random: &mut Random, normal: &mut Normal) -> Sequence {
        let steps = step_count(steps, random);
        let level = normal.draw();
        let value = |at: u64| if at.is_multiple_of(STEP_WIDTH as u64) { level } else { 0.0 };
        Sequence((0..steps * STEP_WIDTH as u64).map(|at| (value(at) + 0.5 * normal.draw()) as f32).collect())
    }

    /// Its share of the score: a deviation of about 0.7.
    fn part(&self) -> f64 {
        let steps = self.0.chunks_exact(STEP_WIDTH);
        let mean = steps.clone().map(|step| f64::from(step[0])).sum::<f64>() / steps.len() as f64;
        let last = steps.last().map_or(0.0, |step| f64::from(step[1]));
        0.6 * mean + 0.5 * last
    }
}

struct Graph {
    nodes: Vec<f32>,
    edges: Vec<[u32; 2]>,
}

impl Graph {
    /// As many nodes of one kind as of the other, told by the sign of their first feature. The graph's own leaning says
    /// how much they keep to their kind.
    fn draw(random: &mut Random, normal: &mut Normal) -> Graph {
        let count = node_count(random);
        let leaning = random.unit();
        let mut nodes: Vec<f32> = (0..count * NODE_WIDTH as u64).map(|_| (0.5 * normal.draw()) as f32).collect();
        for (index, node) in nodes.chunks_exact_mut(NODE_WIDTH).enumerate() {
            node[0] = if index % 2 == 0 { 1.0 } else { -1.0 };
        }
        let mut edges = Vec::new();
        // There are more pairs of either kind than edges, and none is impossible, so this ends.
        while edges.len() < count as usize {
            let (a, b) = (random.below(count) as u32, random.below(count) as u32);
            let alike = if (a + b) % 2 == 0 { 1.0 } else { -1.0 };
            if a < b && random.unit() < 0.5 + 0.48 * leaning * alike && !edges.contains(&[a, b]) {
                edges.push([a, b]);
            }
        }
        Graph { nodes, edges }
    }

    /// Its share of the score: a deviation of about 0.7.
    fn part(&self) -> f64 {
        let first: Vec<f64> = self.nodes.chunks_exact(NODE_WIDTH).map(|node| f64::from(node[0])).collect();
        let (mut sums, mut counts) = (first.clone(), vec![1.0; first.len()]);
        for [a, b] in self.edges.iter().map(|edge| edge.map(|node| node as usize)) {
            sums[a] += first[b];
            sums[b] += first[a];
            counts[a] += 1.0;
            counts[b] += 1.0;
        }
        let accord: f64 = sums.iter().zip(&counts).map(|(sum, count)| (sum / count).abs()).sum();
        3.5 * (accord / first.len() as f64 - 0.75)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEMS: SyntheticItems = SyntheticItems { seed: 1, count: 2000 };

    fn deviation(values: &[f64]) -> f64 {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
    }

    #[test]
    fn items_are_pure_and_different() {
        assert_eq!(ITEMS.item(3), ITEMS.item(3));
        assert_ne!(ITEMS.item(3).sequence, ITEMS.item(4).sequence);
        assert_ne!(ITEMS.item(3).sequence, SyntheticItems { seed: 2, ..ITEMS }.item(3).sequence);
        assert_eq!(ITEMS.item(3).id, ITEMS.id(3));
    }

    #[test]
    fn sizes_cover_their_range() {
        let items: Vec<Item> = (0..ITEMS.count).map(|number| ITEMS.item(number)).collect();
        let range = |size: fn(&Item) -> usize| {
            let sizes = items.iter().map(size);
            (sizes.clone().min().unwrap(), sizes.max().unwrap())
        };
        assert_eq!((range(|item| item.steps), range(|item| item.node_count)), ((8, 48), (7, 20)));
        assert!(
            items.iter().all(|item| item.sequence.len() == 24 * item.steps && item.nodes.len() == 12 * item.node_count)
        );
        assert!(items.iter().all(|item| item.edges.len() == item.node_count));
    }

    #[test]
    fn sequence_and_graph_weigh_about_the_same() {
        let parts = |number| {
            let (mut random, mut normal) = (Random::new(1, 2 * number), Normal::new(1, 2 * number + 1));
            let sequence = Sequence::draw(&STEPS, &mut random, &mut normal).part();
            [sequence, Graph::draw(&mut random, &mut normal).part()]
        };
        let parts: Vec<[f64; 2]> = (0..ITEMS.count).map(parts).collect();
        let [sequence, graph] = [0, 1].map(|of| deviation(&parts.iter().map(|part| part[of]).collect::<Vec<_>>()));
        assert!((0.6..0.75).contains(&sequence) && (0.6..0.75).contains(&graph), "{sequence} and {graph}");
    }
}
