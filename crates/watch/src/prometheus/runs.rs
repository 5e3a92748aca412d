//! Runs as metrics.

use super::exposition::{Exposition, Kind, Series, wide};
use crate::runs::{Figures, Run};

/// Every run, by the label `run`.
pub(super) fn runs(page: &mut Exposition, runs: &[Run]) {
    let names: Vec<String> = runs.iter().map(|run| label(run, runs)).collect();
    let named = || runs.iter().zip(&names).map(|(run, name)| (run, ("run", name.as_str())));
    let mut figure = |name: &str, kind: Kind, help: &str, figure: &dyn Fn(&Run, &Figures) -> Option<f64>| {
        let all = named().filter_map(|(run, label)| Some((vec![label], figure(run, run.figures())?)));
        page.family(name, kind, help, all);
    };
    // Before its first step a run has no figures of one, and nothing is no zero.
    let stepped = |of: fn(&Figures) -> u64| move |_: &Run, it: &Figures| (it.step > 0).then(|| wide(of(it)));
    figure("lowtide_run_steps_total", Kind::Counter, "Steps done.", &|_, it| Some(wide(it.step)));
    figure("lowtide_run_loss", Kind::Gauge, "The loss of the last step.", &|_, it| it.loss);
    let samples = stepped(|it| it.micro_batch.into());
    figure("lowtide_run_micro_batch_samples", Kind::Gauge, "Samples in one micro-batch.", &samples);
    let line = |run: &Run, _: &Figures| run.header()?.line.map(|line| wide(line.get()));
    figure("lowtide_run_memory_line_bytes", Kind::Gauge, "The memory line.", &line);
    let allocated = stepped(|it| it.allocated.get());
    let help = "Memory that the allocator has handed out.";
    figure("lowtide_run_memory_allocated_bytes", Kind::Gauge, help, &allocated);
    let reserved = stepped(|it| it.reserved.get());
    figure("lowtide_run_memory_reserved_bytes", Kind::Gauge, "Memory that the allocator holds.", &reserved);
    let peak = stepped(|it| it.highest_peak.get());
    figure("lowtide_run_memory_peak_bytes", Kind::Gauge, "The most that the allocator had handed out.", &peak);
    let help = "Times that cached blocks were given back.";
    figure("lowtide_run_allocator_retries_total", Kind::Counter, help, &|_, it| it.retries.map(wide));
    let left = |run: &Run, _: &Figures| run.time_left().map(|left| left.seconds);
    figure("lowtide_run_seconds_left", Kind::Gauge, "Time to the last step, by the speed of the last ones.", &left);
    let failed = |_: &Run, it: &Figures| it.failed_reserved.map(|bytes| wide(bytes.get()));
    let help = "The most that the allocator held in a try that ran out of memory.";
    figure("lowtide_run_memory_failed_reserved_bytes", Kind::Gauge, help, &failed);
    let help = "Out-of-memory errors.";
    figure("lowtide_run_out_of_memory_total", Kind::Counter, help, &|_, it| Some(wide(it.out_of_memory)));
    let phases = named().map(|(run, label)| (vec![label, ("phase", run.state().word())], 1.0));
    page.family("lowtide_run_phase", Kind::Gauge, "What the run does, as a label; always 1.", phases);
    let metrics = named().flat_map(|(run, label)| {
        let loss = run.figures().eval_loss.map(|loss| ("loss", loss));
        let all = loss.into_iter().chain(run.figures().metrics.iter());
        all.map(move |(name, value)| -> Series<'_> { (vec![label, ("metric", name)], value) })
    });
    page.family("lowtide_run_evaluation", Kind::Gauge, "A metric of the last evaluation.", metrics);
}

/// Its name, or its folder where another run has that name: series of two runs must differ in their labels.
fn label(run: &Run, runs: &[Run]) -> String {
    let is_only = runs.iter().filter(|other| other.name() == run.name()).count() == 1;
    if is_only { run.name().to_owned() } else { run.folder().display().to_string() }
}
