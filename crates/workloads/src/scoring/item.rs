//! What data has to be like: items with a sequence, a graph and a score, given by number.

use std::fmt;

use lowtide_core::Bytes;
use lowtide_generators::traces::{Item, SyntheticItems};

/// A source of items.
pub trait Items: Send + Sync + 'static {
    /// How many there are.
    fn count(&self) -> u64;

    /// Item `number`, which is below the count: always the same. Data that is wrong ends it with [`lowtide_torch::refuse_input`].
    fn item(&self, number: u64) -> Item;

    /// What the largest item takes, for sources that know it without making all of them.
    fn largest(&self) -> Bytes {
        (0..self.count()).map(|number| self.item(number).bytes()).max().unwrap_or_default()
    }

    /// The id of item `number`, for sources that know it without reading the whole item.
    fn id(&self, number: u64) -> String {
        self.item(number).id
    }
}

impl Items for SyntheticItems {
    fn count(&self) -> u64 {
        self.count
    }

    fn item(&self, number: u64) -> Item {
        SyntheticItems::item(self, number)
    }

    fn largest(&self) -> Bytes {
        SyntheticItems::largest(self)
    }

    fn id(&self, number: u64) -> String {
        SyntheticItems::id(self, number)
    }
}

/// Features of a step and of a node: the same in all items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Widths {
    pub(crate) step: usize,
    pub(crate) node: usize,
}

impl Widths {
    /// The widths of an item, which must be a good one.
    pub(crate) fn of(item: &Item) -> Result<Widths, ItemProblem> {
        let width = |values: &[f32], rows: usize| {
            let width = values.len().checked_div(rows).filter(|width| *width > 0 && width * rows == values.len());
            width.ok_or(ItemProblem::Shape { values: values.len(), rows })
        };
        let widths = Widths { step: width(&item.sequence, item.steps)?, node: width(&item.nodes, item.node_count)? };
        if let Some(edge) = item.edges.iter().find(|edge| edge.iter().any(|node| *node as usize >= item.node_count)) {
            return Err(ItemProblem::Edge { edge: *edge, nodes: item.node_count });
        }
        let mut values = item.sequence.iter().chain(&item.nodes).chain([&item.score]);
        if values.all(|value| value.is_finite()) { Ok(widths) } else { Err(ItemProblem::NotFinite) }
    }

    /// Says what is wrong with an item that is not a good one with these widths.
    pub(crate) fn check(self, item: &Item) -> Result<(), String> {
        let problem = match Widths::of(item) {
            Ok(there) if there == self => return Ok(()),
            Ok(there) => ItemProblem::Widths { there, here: self },
            Err(problem) => problem,
        };
        Err(format!("item `{}`: {problem}", item.id))
    }
}

impl fmt::Display for Widths {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} features a step and {} a node", self.step, self.node)
    }
}

/// What can be wrong with an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ItemProblem {
    #[error("{values} values are no rows of equal length for {rows} steps or nodes")]
    Shape { values: usize, rows: usize },
    #[error("an edge joins {} and {}, and there are {nodes} nodes", edge[0], edge[1])]
    Edge { edge: [u32; 2], nodes: usize },
    #[error("a value is not a finite number")]
    NotFinite,
    #[error("it has {there}, and the first item has {here}")]
    Widths { there: Widths, here: Widths },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Item {
        Item {
            id: "a".to_owned(),
            sequence: vec![0.0; 6],
            steps: 2,
            nodes: vec![0.0; 8],
            node_count: 4,
            edges: vec![[0, 3], [2, 2]],
            score: 1.0,
        }
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Item), expect: &str) {
        let mut item = good();
        change(&mut item);
        assert_eq!(Widths::of(&item).unwrap_err().to_string(), expect);
    }

    #[test]
    fn widths_are_read_from_the_data_and_bad_data_is_named() {
        assert_eq!(Widths::of(&good()).unwrap(), Widths { step: 3, node: 2 });
        check(|item| item.steps = 4, "6 values are no rows of equal length for 4 steps or nodes");
        check(|item| item.steps = 0, "6 values are no rows of equal length for 0 steps or nodes");
        check(|item| item.nodes.clear(), "0 values are no rows of equal length for 4 steps or nodes");
        check(|item| item.edges.push([1, 4]), "an edge joins 1 and 4, and there are 4 nodes");
        check(|item| item.score = f32::NAN, "a value is not a finite number");
        check(|item| item.nodes[3] = f32::INFINITY, "a value is not a finite number");
    }
}
