//! Memory in use, as a log reports it with its steps or epochs, where it only grows.

use lowtide_core::Bytes;

use super::cards::size;

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
                "the log shows memory grow with each of {} reports, from {first} to {last}: something is kept",
                self.reports
            )
        })
    }
}

/// `epoch 3 mem 11.8 GB`, `step 200 | memory: 4521 MiB`
fn in_use(line: &str) -> Option<Bytes> {
    let (_, rest) = line.split_once("mem").or_else(|| line.split_once("Mem"))?;
    let is_name = |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | ' ' | ':' | '=' | '(');
    let bytes = size(rest.trim_start_matches(is_name)).filter(|bytes| *bytes >= Bytes::from_mib(1))?;
    let lower = line.to_ascii_lowercase();
    COUNTED.iter().any(|word| lower.contains(word)).then_some(bytes)
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
            "the log shows memory grow with each of 3 reports, from 4.00 GiB to 12.00 GiB: something is kept";
        assert_eq!(grown.as_deref(), Some(expected));
        for text in [
            "step 1 memory: 400 MiB\nstep 2 memory: 4000 MiB\n",
            "step 1 max_mem: 400M\nstep 2 max_mem: 4000M\nstep 3 max_mem: 4000M\nstep 4 max_mem: 4000M\n",
            "epoch 1 mem 4.0 GB\nepoch 2 mem 4.1 GB\nepoch 3 mem 4.2 GB\n",
            "GPU memory 4.0 GB\nGPU memory 9.0 GB\nGPU memory 20.0 GB\n",
        ] {
            assert_eq!(sentence(text), None, "{text}");
        }
    }
}
