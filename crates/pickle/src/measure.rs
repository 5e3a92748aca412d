//! How deep a value is and how long a walk through it takes.
//!
//! Both can be exponential in the size of the pickle or without end, so neither is found by walking: each container
//! is measured once, after what it holds.

use crate::arena::{Arena, Node};
use crate::{LimitKind, Limits, NodeId};

/// What a walk along all paths meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Measure {
    pub(crate) depth: u32,
    pub(crate) walk: u64,
    pub(crate) has_cycle: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unseen,
    /// On the path from the root to where the search is.
    Open,
    Done {
        depth: u32,
        walk: u64,
    },
}

/// What the state of a container or an object takes.
pub(crate) const MEASURED: usize = size_of::<State>();

/// A container on the path, with the child to look at next and what was found so far.
struct Step {
    slot: usize,
    next: usize,
    depth: u32,
    walk: u64,
}

/// Measures what hangs on `root`, and gives up where a path is longer than `limits` allow.
pub(crate) fn measure(arena: &Arena, root: NodeId, limits: &Limits) -> Result<Measure, LimitKind> {
    let mut states = vec![State::Unseen; arena.containers.len() + arena.objects.len()];
    let mut path: Vec<Step> = Vec::new();
    let mut has_cycle = false;
    let Some(slot) = slot_of(arena, root) else { return Ok(Measure { depth: 0, walk: 1, has_cycle }) };
    states[slot] = State::Open;
    path.push(Step { slot, next: 0, depth: 0, walk: 1 });
    loop {
        let Some(step) = path.last_mut() else { return Ok(Measure { has_cycle, ..Measure::default() }) };
        pass_over_plain_values(arena, step);
        let Some(child) = child_of(arena, step.slot, step.next) else {
            let (depth, walk) = (step.depth.saturating_add(1), step.walk);
            states[step.slot] = State::Done { depth, walk };
            path.pop();
            if depth > limits.depth {
                return Err(LimitKind::Depth);
            }
            let Some(parent) = path.last_mut() else { return Ok(Measure { depth, walk, has_cycle }) };
            parent.depth = parent.depth.max(depth);
            parent.walk = parent.walk.saturating_add(walk);
            continue;
        };
        step.next += 1;
        let Some(slot) = slot_of(arena, child) else {
            step.walk = step.walk.saturating_add(1);
            continue;
        };
        match states[slot] {
            State::Done { depth, walk } => {
                step.depth = step.depth.max(depth);
                step.walk = step.walk.saturating_add(walk);
            }
            State::Open => {
                has_cycle = true;
                step.walk = step.walk.saturating_add(1);
            }
            State::Unseen if path.len() >= limits.depth as usize => return Err(LimitKind::Depth),
            State::Unseen => {
                states[slot] = State::Open;
                path.push(Step { slot, next: 0, depth: 0, walk: 1 });
            }
        }
    }
}

/// Goes on to the next child that is a container itself; most are not.
fn pass_over_plain_values(arena: &Arena, step: &mut Step) {
    let Some(container) = arena.containers.get(step.slot) else { return };
    let rest = arena.items_of(*container).get(step.next..).unwrap_or_default();
    let plain = rest.iter().take_while(|child| slot_of(arena, **child).is_none()).count();
    step.next += plain;
    step.walk = step.walk.saturating_add(plain as u64);
}

/// The place of a value in the list of states; plain values have none.
fn slot_of(arena: &Arena, id: NodeId) -> Option<usize> {
    match arena.node(id) {
        Node::Container(_, index) => Some(index as usize),
        Node::Object(index) => Some(arena.containers.len() + index as usize),
        _ => None,
    }
}

fn child_of(arena: &Arena, slot: usize, position: usize) -> Option<NodeId> {
    if let Some(container) = arena.containers.get(slot) {
        return arena.items_of(*container).get(position).copied();
    }
    let parts = &arena.objects[slot - arena.containers.len()];
    let mut position = position;
    for items in [parts.args, parts.items, parts.pairs] {
        let items = arena.items_of(items);
        if let Some(child) = items.get(position) {
            return Some(*child);
        }
        position -= items.len();
    }
    parts.kwargs.into_iter().chain(parts.state).nth(position)
}
