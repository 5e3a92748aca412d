//! Items out of the samples of files.

use std::path::Path;
use std::sync::Arc;

use lowtide_data::order::SampleId;
use lowtide_data::{BufferedSample, Scores};
use lowtide_generators::traces::Item;
use lowtide_tensorfile::View;

/// The names under which files have each part, the usual one first.
const SEQUENCE: [&str; 3] = ["sequences", "sequence", "features"];
const NODES: [&str; 5] = ["graphs.x", "graph.x", "x", "nodes", "node_features"];
const EDGES: [&str; 4] = ["graphs.edge_index", "graph.edge_index", "edge_index", "edges"];
const SCORE: [&str; 6] = ["scores", "score", "labels", "label", "targets", "y"];

/// Makes an item of a sample, with its score out of the table where there is one.
///
/// The error says what the sample lacks or has in a shape of its own; `file` is where it came from.
pub(crate) fn decode(
    sample: &BufferedSample,
    at: SampleId,
    file: &Path,
    scores: Option<&Scores>,
) -> Result<Arc<Item>, String> {
    let id = sample.id().unwrap_or_else(|| format!("{}:{}", file.display(), at.index));
    let item = parts(sample, &id, scores).map_err(|problem| format!("{}: sample `{id}`: {problem}", file.display()))?;
    Ok(Arc::new(Item { id, ..item }))
}

fn parts(sample: &BufferedSample, id: &str, scores: Option<&Scores>) -> Result<Item, String> {
    let (sequence, steps) = rows(sample, &SEQUENCE)?;
    let (nodes, node_count) = rows(sample, &NODES)?;
    let score = match scores {
        Some(scores) => scores.get(id).ok_or("the table of scores does not have it")? as f32,
        None => match named(sample, &SCORE)?.to_f32().as_deref() {
            Some([score]) => *score,
            _ => return Err(format!("its score is not one number (a table of them is named with {SCORES_HINT})")),
        },
    };
    Ok(Item { id: String::new(), sequence, steps, nodes, node_count, edges: edges(sample)?, score })
}

/// How a table of scores is named.
const SCORES_HINT: &str = "--scores-file or data.scores";

/// Numbers in rows, and how many rows.
fn rows(sample: &BufferedSample, names: &[&str]) -> Result<(Vec<f32>, usize), String> {
    let view = named(sample, names)?;
    let View::Array { shape, .. } = &view else { return Err(format!("`{}` is a text", names[0])) };
    let rows = shape.first().copied().unwrap_or(1);
    if shape.len() > 2 {
        return Err(format!("`{}` has {} dimensions, and 2 are rows of features", names[0], shape.len()));
    }
    let values = view.to_f32().ok_or_else(|| format!("`{}` holds no real numbers", names[0]))?;
    Ok((values, usize::try_from(rows).map_err(|_| "it is too large")?))
}

/// Pairs of nodes, 2 x n as torch_geometric has them.
fn edges(sample: &BufferedSample) -> Result<Vec<[u32; 2]>, String> {
    let view = named(sample, &EDGES)?;
    let View::Array { shape, .. } = &view else { return Err(format!("`{}` is a text", EDGES[0])) };
    let shape = shape.to_vec();
    let values = view.to_i64().ok_or_else(|| format!("`{}` holds no whole numbers", EDGES[0]))?;
    let node = |value: i64| u32::try_from(value).map_err(|_| format!("an edge has an end at node {value}"));
    match shape[..] {
        [2, count] => {
            let (from, to) = values.split_at(usize::try_from(count).map_err(|_| "it is too large")?);
            from.iter().zip(to).map(|(from, to)| Ok([node(*from)?, node(*to)?])).collect()
        }
        [0] => Ok(Vec::new()),
        _ => Err(format!("`{}` has the shape {shape:?}, and edges are 2 x n", EDGES[0])),
    }
}

fn named<'a>(sample: &'a BufferedSample, names: &[&str]) -> Result<View<'a>, String> {
    names.iter().find_map(|name| sample.get(name)).ok_or_else(|| {
        let there: Vec<&str> = sample.fields().map(|(name, _)| name).collect();
        let table =
            if names == SCORE { format!("; a table of scores is named with {SCORES_HINT}") } else { String::new() };
        format!("it has no `{}` (it has {}){table}", names[0], there.join(", "))
    })
}
