//! Several runs side by side.

use lowtide_core::grouped;
use lowtide_train::{RunEnding, RunResult, Summary};

/// A table with a row for each run: its metrics, steps and seconds, or why it has none. `waiting` did not begin.
pub(crate) fn comparison<'a>(runs: &[RunResult], waiting: impl Iterator<Item = &'a str>) -> Vec<String> {
    let figures: Vec<(&str, &Summary)> =
        runs.iter().filter_map(|run| Some((run.name.as_str(), run.result.as_ref().ok()?))).collect();
    let metrics: Vec<&str> =
        figures.first().map_or_else(Vec::new, |(_, run)| run.metrics.iter().map(|(name, _)| name).collect());
    let head = ["model"].into_iter().chain(metrics.iter().copied()).chain(["steps", "seconds"]);
    let head: Vec<String> = head.map(str::to_owned).collect();
    let rows: Vec<Vec<String>> = runs
        .iter()
        .map(|run| match &run.result {
            Ok(summary) => row(&run.name, summary, &metrics),
            Err(_) => vec![run.name.clone()],
        })
        .chain(waiting.map(|name| vec![name.to_owned()]))
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().chain([&head]).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let notes = runs.iter().map(note).chain(std::iter::repeat_with(|| "not begun".to_owned()));
    let noted = rows.iter().zip(notes).map(|(row, note)| line(row, &widths, &note));
    [line(&head, &widths, "")].into_iter().chain(noted).collect()
}

fn row(name: &str, summary: &Summary, metrics: &[&str]) -> Vec<String> {
    let metric = |metric: &&str| summary.metrics.get(metric).map_or("-".to_owned(), |value| format!("{value:.4}"));
    let mut row = vec![name.to_owned()];
    row.extend(metrics.iter().map(metric));
    row.extend([grouped(summary.steps), format!("{:.1}", summary.wall_seconds)]);
    row
}

/// What a row's figures do not tell.
fn note(run: &RunResult) -> String {
    match &run.result {
        Ok(Summary { stopped: RunEnding::Finished, stopped_early_at: Some(_), .. }) => "finished early".to_owned(),
        Ok(Summary { stopped: RunEnding::Finished, .. }) => String::new(),
        Ok(Summary { stopped: RunEnding::Interrupted, .. }) => "interrupted".to_owned(),
        Ok(Summary { stopped: RunEnding::Line, .. }) => "stopped at the memory limit".to_owned(),
        Err(error) => format!("error: {error}"),
    }
}

fn line(cells: &[String], widths: &[usize], note: &str) -> String {
    let mut line = String::from(" ");
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        line += &if column == 0 { format!(" {cell:<width$}") } else { format!("  {cell:>width$}") };
    }
    format!("{line}  {note}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_without_figures_have_their_reason() {
        let failed = RunResult { name: "first".to_owned(), result: Err("no room".to_owned()) };
        let table = comparison(&[failed], ["b"].into_iter());
        assert_eq!(table, ["  model  steps  seconds", "  first  error: no room", "  b      not begun"]);
    }
}
