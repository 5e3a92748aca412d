//! The newest sample of the machine as metrics.

use lowtide_sensors::{Children, Detail, Gpu, GpuMemory, Machine, Process, Sample};

use super::exposition::{Exposition, Kind, wide};
use crate::machine::Viewpoint;

/// What changes quickly: cards, the watched process, the machine and its control group.
pub(super) fn sample(page: &mut Exposition, sample: &Sample) {
    cards(page, &sample.gpus.cards);
    process(page, sample);
    machine(page, sample.machine.known());
    cgroup(page, sample);
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
    let processes: Vec<Viewpoint<'_>> = Viewpoint::all(sample, None).collect();
    let pids: Vec<String> = processes.iter().filter_map(Viewpoint::pid).map(|pid| pid.to_string()).collect();
    let mut figure = |name: &str, help: &str, figure: fn(&Process, Children) -> u64| {
        let all = processes.iter().zip(&pids).filter_map(|(viewpoint, pid)| {
            let process = viewpoint.process?;
            let labels = vec![("pid", pid.as_str()), ("name", process.name.as_str())];
            Some((labels, wide(figure(process, viewpoint.children))))
        });
        page.family(name, Kind::Gauge, help, all);
    };
    figure("lowtide_process_resident_bytes", "Memory of a watched process in RAM.", |it, _| it.resident_bytes);
    figure("lowtide_process_peak_bytes", "The most a watched process had in RAM.", |it, _| it.peak_bytes);
    figure("lowtide_process_swap_bytes", "Memory of a watched process in swap.", |it, _| it.swap_bytes);
    figure("lowtide_children_processes", "Processes below a watched one.", |_, children| children.processes);
    let help = "Memory of the processes below a watched one in RAM.";
    figure("lowtide_children_resident_bytes", help, |_, children| children.resident_bytes);
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

/// Who holds memory: what takes long to read.
pub(super) fn holders(page: &mut Exposition, detail: &Detail) {
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
