//! What is told of a machine, in words.

use lowtide_core::Bytes;

use super::facts::Facts;
use super::findings::Finding;
use crate::output::printable;

/// Columns before what is told of a thing.
pub(super) const MARGIN: usize = 12;

/// A line for each thing there is, then what looks wrong with its fix.
pub(super) fn text(facts: &Facts, findings: &[Finding]) -> String {
    let mut lines = Vec::new();
    let mut row = |name: &str, value: String| lines.push(format!("{name:<MARGIN$}{}", printable(&value)));
    if let Some(missing) = &facts.gpus.missing {
        row("GPU", format!("none ({missing})"));
    }
    for card in &facts.gpus.cards {
        let memory = card.memory.known().map_or("memory unknown".to_owned(), |memory| {
            format!("{} of {} free", Bytes(memory.free_bytes), Bytes(memory.total_bytes))
        });
        row(&format!("GPU {}", card.index), format!("{}, {memory}", card.name));
        for holder in facts.holders(card.index) {
            row("", holder);
        }
    }
    row("driver", facts.driver.clone().unwrap_or_else(|| "none".to_owned()));
    if facts.torch.is_empty() {
        row("torch", "none found (python3 and python on PATH, VIRTUAL_ENV, CONDA_PREFIX, .venv)".to_owned());
    }
    let own = facts.own_torch.iter().map(|torch| ("LibTorch", torch));
    for (name, torch) in own.chain(facts.torch.iter().map(|torch| ("torch", torch))) {
        let backend = match (&torch.cuda, &torch.hip) {
            (Some(cuda), _) => format!("CUDA {cuda}"),
            (None, Some(hip)) => format!("ROCm {hip}"),
            (None, None) => "CPU only".to_owned(),
        };
        row(name, format!("{} ({backend}) in {}", torch.version, torch.folder.display()));
    }
    match facts.allocator.is_empty() {
        true => row("allocator", "as PyTorch has it (`lowtide run` sets expandable_segments:True)".to_owned()),
        false => facts.allocator.iter().for_each(|(name, value)| row("allocator", format!("{name}={value}"))),
    }
    if let Some(machine) = facts.machine.known() {
        row("RAM", format!("{} of {} available", Bytes(machine.available_bytes), Bytes(machine.total_bytes)));
        row(
            "swap",
            match machine.swap_total_bytes {
                0 => "none".to_owned(),
                total => format!("{} of {} used", Bytes(machine.swap_used_bytes), Bytes(total)),
            },
        );
    }
    row(
        "cgroup",
        match facts.cgroup.known().map(|group| (group.limit_bytes, facts.cgroup_left_bytes)) {
            Some((Some(limit), left)) => {
                format!(
                    "limit {}{}",
                    Bytes(limit),
                    left.map_or(String::new(), |left| format!(", {} left", Bytes(left)))
                )
            }
            Some((None, _)) => "no limit".to_owned(),
            None => "none".to_owned(),
        },
    );
    if !facts.gpus.cards.is_empty() {
        row(
            "reserve",
            facts.reserve_bytes.map_or("none: needs torch 2.8 or newer with CUDA".to_owned(), |most| {
                format!("up to {} of RAM for PyTorch to fall back on (`lowtide run --reserve`)", Bytes(most))
            }),
        );
    }
    row("/dev/shm", facts.shared_memory_bytes.map_or("not there".to_owned(), |bytes| Bytes(bytes).to_string()));
    row(
        "open files",
        facts.open_files.map_or("unknown".to_owned(), |limit| match limit.soft {
            Some(soft) => soft.to_string(),
            None => "no limit".to_owned(),
        }),
    );
    if let Some(soft) = facts.address_space.and_then(|limit| limit.soft) {
        row("addresses", format!("at most {}", Bytes(soft)));
    }
    row("overcommit", facts.overcommit.map_or("unknown".to_owned(), |mode| mode.to_string()));
    lines.push(String::new());
    if findings.is_empty() {
        lines.push("nothing looks wrong".to_owned());
    }
    for finding in findings {
        lines.push(format!("wrong: {}", printable(&finding.what)));
        lines.push(format!("fix:   {}", printable(&finding.fix)));
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}
