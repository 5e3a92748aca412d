//! Samples and a run's figures, as text that a Prometheus server reads.
//!
//! Names follow its conventions: base units as suffix, `_total` for counters, shares from 0 to 1 as `_ratio`. What is
//! missing has no series, rather than a zero.

use crate::exposition::{Exposition, Kind, Series};
use crate::{Detail, Gpu, GpuMemory, Machine, Process, Sample};

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a run tells about itself. What is `None` is left out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunFigures {
    /// What tells this run from others: the label `run`.
    pub name: String,
    /// What it does now, as a word.
    pub phase: Option<String>,
    /// Steps done.
    pub steps: Option<u64>,
    /// The loss of the last step.
    pub loss: Option<f64>,
    /// Samples in one micro-batch.
    pub micro_batch: Option<u64>,
    /// The memory line.
    pub line_bytes: Option<u64>,
    /// What the allocator of the run's device has handed out.
    pub allocated_bytes: Option<u64>,
    /// What it holds, handed out or not.
    pub reserved_bytes: Option<u64>,
    /// The most it had handed out.
    pub peak_allocated_bytes: Option<u64>,
    /// Times that it gave back cached blocks in order to find memory.
    pub allocator_retries: Option<u64>,
    /// Out-of-memory errors.
    pub out_of_memory: Option<u64>,
    /// Metrics of the last evaluation, by name.
    pub metrics: Vec<(String, f64)>,
}

/// A page of metrics. Each part may be left out.
#[must_use]
pub fn exposition(sample: Option<&Sample>, detail: Option<&Detail>, runs: &[RunFigures]) -> String {
    let mut page = Exposition::default();
    if let Some(sample) = sample {
        cards(&mut page, &sample.gpus.cards);
        process(&mut page, sample);
        machine(&mut page, sample.machine.known());
        cgroup(&mut page, sample);
    }
    if let Some(detail) = detail {
        holders(&mut page, detail);
    }
    run_figures(&mut page, runs);
    page.into_text()
}

fn cards(page: &mut Exposition, cards: &[Gpu]) {
    let indexes: Vec<String> = cards.iter().map(|card| card.index.to_string()).collect();
    let mut memory = |name: &str, help: &str, figure: fn(&GpuMemory) -> u64| {
        let all = cards.iter().zip(&indexes);
        let all =
            all.filter_map(|(card, index)| Some((vec![("gpu", index.as_str())], wide(figure(card.memory.known()?)))));
        page.family(name, Kind::Gauge, help, all);
    };
    memory("lowtide_device_memory_total_bytes", "Memory of the card.", |memory| memory.total_bytes);
    memory("lowtide_device_memory_used_bytes", "Memory of the card that processes hold.", |memory| memory.used_bytes);
    memory("lowtide_device_memory_free_bytes", "Memory of the card that can be had.", |memory| memory.free_bytes);
    memory("lowtide_device_memory_driver_bytes", "Memory of the card that its driver holds.", |it| it.driver_bytes);
    let mut figure = |name: &str, help: &str, figure: fn(&Gpu) -> Option<f64>| {
        let all = cards.iter().zip(&indexes);
        page.family(
            name,
            Kind::Gauge,
            help,
            all.filter_map(|(card, index)| Some((vec![("gpu", index.as_str())], figure(card)?))),
        );
    };
    figure("lowtide_device_utilization_ratio", "Share of the last moments in which a kernel ran.", |card| {
        card.utilisation_percent.known().map(|percent| f64::from(*percent) / 100.0)
    });
    figure("lowtide_device_temperature_celsius", "Temperature of the card.", |card| {
        card.temperature_celsius.known().map(|degrees| f64::from(*degrees))
    });
    let infos = cards.iter().zip(&indexes).map(|(card, index)| {
        (vec![("gpu", index.as_str()), ("name", card.name.as_str()), ("uuid", card.uuid.as_str())], 1.0)
    });
    page.family("lowtide_device_info", Kind::Gauge, "What the card is called; always 1.", infos);
}

fn process(page: &mut Exposition, sample: &Sample) {
    let Some(process) = sample.process.known() else { return };
    let pid = process.pid.to_string();
    let labels = || vec![("pid", pid.as_str()), ("name", process.name.as_str())];
    let mut figure = |name: &str, help: &str, figure: fn(&Process) -> u64| {
        page.family(name, Kind::Gauge, help, [(labels(), wide(figure(process)))]);
    };
    figure("lowtide_process_resident_bytes", "Memory of the watched process in RAM.", |process| process.resident_bytes);
    figure("lowtide_process_peak_bytes", "The most the watched process had in RAM.", |process| process.peak_bytes);
    figure("lowtide_process_swap_bytes", "Memory of the watched process in swap.", |process| process.swap_bytes);
    let children = sample.children;
    page.family(
        "lowtide_children_processes",
        Kind::Gauge,
        "Processes below the watched one.",
        [(labels(), wide(children.processes))],
    );
    page.family(
        "lowtide_children_resident_bytes",
        Kind::Gauge,
        "Memory of the processes below the watched one in RAM.",
        [(labels(), wide(children.resident_bytes))],
    );
}

fn machine(page: &mut Exposition, machine: Option<&Machine>) {
    let Some(machine) = machine else { return };
    let mut figure = |name: &str, help: &str, bytes: u64| page.family(name, Kind::Gauge, help, [(vec![], wide(bytes))]);
    figure("lowtide_machine_memory_total_bytes", "Memory of the machine.", machine.total_bytes);
    figure("lowtide_machine_memory_available_bytes", "Memory that a new program could have.", machine.available_bytes);
    figure("lowtide_machine_swap_total_bytes", "Swap of the machine.", machine.swap_total_bytes);
    figure("lowtide_machine_swap_used_bytes", "Swap that is taken.", machine.swap_used_bytes);
    let Some(pressure) = machine.pressure.known() else { return };
    page.family(
        "lowtide_machine_memory_stalled_seconds_total",
        Kind::Counter,
        "Time in which some or all tasks waited for memory.",
        [("some", pressure.some), ("full", pressure.full)]
            .map(|(tasks, stall)| (vec![("tasks", tasks)], wide(stall.total_microseconds) / 1e6)),
    );
}

fn cgroup(page: &mut Exposition, sample: &Sample) {
    let Some(group) = sample.cgroup.known() else { return };
    let mut figure = |name: &str, help: &str, bytes: Option<u64>| {
        page.family(name, Kind::Gauge, help, bytes.map(|bytes| (vec![], wide(bytes))));
    };
    figure(
        "lowtide_cgroup_memory_limit_bytes",
        "The least memory limit over the control group and its ancestors.",
        group.limit_bytes,
    );
    figure(
        "lowtide_cgroup_memory_used_bytes",
        "Memory that the control group with the least limit uses, page cache included.",
        group.used_bytes,
    );
    figure("lowtide_cgroup_memory_left_bytes", "Memory left at the fullest level of control groups.", group.left_bytes);
}

fn holders(page: &mut Exposition, detail: &Detail) {
    let pids: Vec<String> = detail.processes.iter().map(|it| it.process.pid.to_string()).collect();
    let shares = detail.processes.iter().zip(&pids).filter_map(|(detail, pid)| {
        let labels = vec![("pid", pid.as_str()), ("name", detail.process.name.as_str())];
        Some((labels, wide(*detail.proportional_bytes.known()?)))
    });
    page.family(
        "lowtide_process_proportional_bytes",
        Kind::Gauge,
        "Memory in RAM of the watched process and those below it, shared pages split among their users.",
        shares,
    );
    let mut rows: Vec<(String, String, &str, f64)> = Vec::new();
    for card in &detail.cards {
        for process in card.processes.known().into_iter().flatten() {
            let name = process.name.known().map_or("", String::as_str);
            if let Some(bytes) = process.memory_bytes.known() {
                rows.push((card.index.to_string(), process.pid.to_string(), name, wide(*bytes)));
            }
        }
    }
    let all =
        rows.iter().map(|(gpu, pid, name, bytes)| (vec![("gpu", gpu.as_str()), ("pid", pid), ("name", name)], *bytes));
    page.family("lowtide_device_process_memory_bytes", Kind::Gauge, "Memory of the card that a process holds.", all);
}

fn run_figures(page: &mut Exposition, runs: &[RunFigures]) {
    let mut figure = |name: &str, kind: Kind, help: &str, figure: fn(&RunFigures) -> Option<f64>| {
        page.family(name, kind, help, runs.iter().filter_map(|run| Some((label(run), figure(run)?))));
    };
    figure("lowtide_run_steps_total", Kind::Counter, "Steps done.", |run| run.steps.map(wide));
    figure("lowtide_run_loss", Kind::Gauge, "The loss of the last step.", |run| run.loss);
    figure("lowtide_run_micro_batch_samples", Kind::Gauge, "Samples in one micro-batch.", |run| {
        run.micro_batch.map(wide)
    });
    figure("lowtide_run_memory_line_bytes", Kind::Gauge, "The memory line.", |run| run.line_bytes.map(wide));
    figure("lowtide_run_memory_allocated_bytes", Kind::Gauge, "Memory that the allocator has handed out.", |run| {
        run.allocated_bytes.map(wide)
    });
    figure("lowtide_run_memory_reserved_bytes", Kind::Gauge, "Memory that the allocator holds.", |run| {
        run.reserved_bytes.map(wide)
    });
    figure("lowtide_run_memory_peak_bytes", Kind::Gauge, "The most that the allocator had handed out.", |run| {
        run.peak_allocated_bytes.map(wide)
    });
    figure("lowtide_run_allocator_retries_total", Kind::Counter, "Times that cached blocks were given back.", |run| {
        run.allocator_retries.map(wide)
    });
    figure("lowtide_run_out_of_memory_total", Kind::Counter, "Out-of-memory errors.", |run| {
        run.out_of_memory.map(wide)
    });
    let phases = runs.iter().filter_map(|run| {
        let mut labels = label(run);
        labels.push(("phase", run.phase.as_deref()?));
        Some((labels, 1.0))
    });
    page.family("lowtide_run_phase", Kind::Gauge, "What the run does, as a label; always 1.", phases);
    let metrics = runs.iter().flat_map(|run| {
        run.metrics.iter().map(move |(name, value)| -> Series<'_> {
            let mut labels = label(run);
            labels.push(("metric", name));
            (labels, *value)
        })
    });
    page.family("lowtide_run_evaluation", Kind::Gauge, "A metric of the last evaluation.", metrics);
}

fn label(run: &RunFigures) -> Vec<(&'static str, &str)> {
    vec![("run", run.name.as_str())]
}

/// Prometheus has floating-point values only; bytes are exact up to 8 PiB.
fn wide(value: u64) -> f64 {
    value as f64
}
