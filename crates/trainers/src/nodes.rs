//! Walks through the syntax tree of a script.

use tree_sitter::Node;

/// The named children of a node.
pub(crate) fn children(node: Node<'_>) -> Vec<Node<'_>> {
    node.named_children(&mut node.walk()).collect()
}

/// All named nodes of a tree, in the order of the text.
pub(crate) fn all(root: Node<'_>) -> Vec<Node<'_>> {
    let (mut nodes, mut stack) = (Vec::new(), vec![root]);
    while let Some(node) = stack.pop() {
        nodes.push(node);
        stack.extend(children(node).into_iter().rev());
    }
    nodes
}
