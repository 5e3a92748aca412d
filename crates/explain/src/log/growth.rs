//! Memory in use, as a log reports it with its steps or epochs, where it only grows.

use lowtide_core::Bytes;

use super::cards::size;
use super::narrative::is_of;

/// Memory in use, as long as each report is above the one before.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Growth {
    first: Bytes,
    last: Bytes,
    reports: u32,
}

/// So many reports may grow by chance, as a first step takes less than the second.
const BY_CHANCE: u32 = 2;
/// What programs count beside the memory that they report.
const COUNTED: [&str; 3] = ["epoch", "step", "iter"];
/// What a size stands for that may only rise, or that is not in use: the highest so far, what is left, what there is.
const OTHERS: &[&str] = &[
    "max",
    "peak",
    "maximum",
    "highest",
    "reserved",
    "cached",
    "free",
    "available",
    "avail",
    "total",
    "limit",
    "left",
];

impl Growth {
    /// Looks at a line of the log.
    pub(super) fn note(&mut self, line: &str) {
        let Some(bytes) = in_use(line) else { return };
        if self.reports == 0 || bytes <= self.last {
            *self = Self { first: bytes, ..Self::default() };
        }
        self.last = bytes;
        self.reports += 1;
    }

    /// What it shows, where it grew to twice of what it was.
    pub(crate) fn sentence(self) -> Option<String> {
        let is_shown = self.reports > BY_CHANCE && self.last.get() / 2 >= self.first.get();
        let (first, last) = (self.first, self.last);
        is_shown.then(|| {
            format!(
                "the log shows memory grow with each of {} reports, from {first} to {last}: something may be kept",
                self.reports
            )
        })
    }
}

/// `epoch 3 mem 11.8 GB`, `step 200 | memory: 4521 MiB`, and no `max_mem: 4521M`
fn in_use(line: &str) -> Option<Bytes> {
    let (before, rest) = line.split_once("mem").or_else(|| line.split_once("Mem"))?;
    let is_word = !rest.strip_prefix("ory").unwrap_or(rest).starts_with(|c: char| c.is_ascii_alphabetic());
    let is_name = |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | ' ' | ':' | '=' | '(');
    let value = rest.trim_start_matches(is_name);
    let bytes = size(value).filter(|bytes| *bytes >= Bytes::from_mib(1))?;
    // `step 200 | max memory allocated: 4521 MiB`: the name of the figure is what stands on both sides.
    let start = before.trim_end_matches(is_name).len();
    let name = line[start..line.len() - value.len()].to_ascii_lowercase();
    let behind = value.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| word.len() > 3).take(1);
    let is_other = name.split(|c: char| !c.is_ascii_alphabetic()).chain(behind).any(|word| is_of(OTHERS, word));
    let lower = line.to_ascii_lowercase();
    (is_word && !is_other && COUNTED.iter().any(|word| lower.contains(word))).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(text: &str) -> Option<String> {
        let mut growth = Growth::default();
        text.lines().for_each(|line| growth.note(line));
        growth.sentence()
    }

    #[test]
    fn memory_that_only_grows() {
        let grown = sentence("epoch 1 mem 4.0 GB\nloss 2.1\nepoch 2 mem 7.9 GB\nepoch 3 mem 12.0 GB\n");
        let expected =
            "the log shows memory grow with each of 3 reports, from 4.00 GiB to 12.00 GiB: something may be kept";
        assert_eq!(grown.as_deref(), Some(expected));
        for text in [
            "step 1 memory: 400 MiB\nstep 2 memory: 4000 MiB\n",
            "step 1 max_mem: 400M\nstep 2 max_mem: 4000M\nstep 3 max_mem: 4000M\nstep 4 max_mem: 4000M\n",
            "iter: 19  max_mem: 2310M\niter: 39  max_mem: 3877M\niter: 59  max_mem: 5120M\n",
            "step 1 peak memory 4.0 GB\nstep 2 peak memory 8.0 GB\nstep 3 peak memory 12.0 GB\n",
            "step 1 memory: 4.0 GB free\nstep 2 memory: 8.0 GB free\nstep 3 memory: 12.0 GB free\n",
            "epoch 1 members: 4.0 M\nepoch 2 members: 8.0 M\nepoch 3 members: 12.0 M\n",
            "epoch 1 mem 4.0 GB\nepoch 2 mem 4.1 GB\nepoch 3 mem 4.2 GB\n",
            "GPU memory 4.0 GB\nGPU memory 9.0 GB\nGPU memory 20.0 GB\n",
        ] {
            assert_eq!(sentence(text), None, "{text}");
        }
    }
}
