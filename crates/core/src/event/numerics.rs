//! What decides the bits of a run beside its settings and its data: who computes, with how many threads and which
//! instructions, in which versions.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What decides the bits of a run beside its settings and its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numerics {
    /// What was asked for, so that a resume can ask for the same.
    pub choice: NumericsChoice,
    /// The processor or the card that computes, by its name.
    pub device: String,
    /// Who shares the work of an operation on the host.
    pub threads: Threads,
    /// The instruction sets that the libraries use on the host.
    pub instructions: Instructions,
    /// The versions of the libraries.
    pub versions: Versions,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumericsChoice {
    /// The device as typed: `auto`, `cpu`, `cuda:0`.
    pub device: String,
    /// Whether threads, instruction sets and orders of adding are fixed.
    pub deterministic: bool,
    /// The number of threads, where one was named.
    pub threads: Option<u32>,
}

impl Default for NumericsChoice {
    fn default() -> Self {
        Self { device: "auto".to_owned(), deterministic: false, threads: None }
    }
}

/// Threads that share the work of an operation on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Threads {
    /// Those of LibTorch, which are OpenMP's.
    pub libtorch: u32,
    /// Whether OpenMP may take fewer when the machine is busy.
    pub openmp_dynamic: bool,
    /// Those of MKL, where it is there.
    pub mkl: Option<u32>,
    /// Whether MKL may take fewer.
    pub mkl_dynamic: Option<bool>,
}

/// Instruction sets by the names the libraries have for them; `null` where a library is not there or does not tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instructions {
    /// Those of LibTorch's own loops.
    pub libtorch: String,
    /// MKL's branch, with `,STRICT` where results must not depend on the number of threads.
    pub mkl: Option<String>,
    /// The most that oneDNN may use.
    pub onednn: Option<String>,
}

/// Versions of the libraries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// Of LibTorch.
    pub libtorch: String,
    /// Of MKL.
    pub mkl: Option<String>,
    /// Of oneDNN.
    pub onednn: Option<String>,
}

/// One thing that was another before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumericsChange {
    /// What it is, in words.
    pub what: String,
    /// Before.
    pub then: String,
    /// From now on.
    pub now: String,
}

impl fmt::Display for NumericsChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {} then, {} now", self.what, self.then, self.now)
    }
}

/// All of them in one line.
pub(super) fn listed(changes: &[NumericsChange]) -> String {
    changes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Numerics {
    /// What of `then` is something else now.
    #[must_use]
    pub fn changes_since(&self, then: &Numerics) -> Vec<NumericsChange> {
        let pairs = then.facts().into_iter().zip(self.facts());
        let changed = pairs.filter(|((_, then), (_, now))| then != now);
        changed.map(|((what, then), (_, now))| NumericsChange { what: what.to_owned(), then, now }).collect()
    }

    /// Each thing with its name. What was asked for decides nothing by itself, but for fixed orders of adding.
    fn facts(&self) -> [(&'static str, String); 12] {
        let Numerics { choice, device, threads, instructions, versions } = self;
        let yes_or_no = |yes: bool| if yes { "on" } else { "off" }.to_owned();
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
        [
            ("device", device.clone()),
            ("--deterministic", yes_or_no(choice.deterministic)),
            ("threads", threads.libtorch.to_string()),
            ("OMP_DYNAMIC", yes_or_no(threads.openmp_dynamic)),
            ("MKL's threads", or_none(threads.mkl.map(|threads| threads.to_string()))),
            ("MKL_DYNAMIC", or_none(threads.mkl_dynamic.map(yes_or_no))),
            ("LibTorch's instructions", instructions.libtorch.clone()),
            ("MKL's instructions", or_none(instructions.mkl.clone())),
            ("oneDNN's instructions", or_none(instructions.onednn.clone())),
            ("LibTorch", versions.libtorch.clone()),
            ("MKL", or_none(versions.mkl.clone())),
            ("oneDNN", or_none(versions.onednn.clone())),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numerics() -> Numerics {
        Numerics {
            choice: NumericsChoice { device: "auto".into(), deterministic: false, threads: None },
            device: "a processor".into(),
            threads: Threads { libtorch: 2, openmp_dynamic: false, mkl: Some(2), mkl_dynamic: Some(true) },
            instructions: Instructions { libtorch: "AVX512".into(), mkl: Some("AVX512_E1".into()), onednn: None },
            versions: Versions { libtorch: "2.11.0".into(), mkl: Some("2024.2".into()), onednn: None },
        }
    }

    #[test]
    fn what_is_the_same_is_no_change() {
        let mut now = numerics();
        now.choice.device = "cpu".into();
        assert_eq!(now.changes_since(&numerics()), []);
    }

    #[test]
    fn changes_say_what_was_and_what_is() {
        let mut now = numerics();
        now.threads.libtorch = 1;
        now.threads.mkl = None;
        now.choice.deterministic = true;
        now.instructions.onednn = Some("AVX2".into());
        let words: Vec<String> = now.changes_since(&numerics()).iter().map(ToString::to_string).collect();
        let expect = [
            "--deterministic off then, on now",
            "threads 2 then, 1 now",
            "MKL's threads 2 then, none now",
            "oneDNN's instructions none then, AVX2 now",
        ];
        assert_eq!(words, expect);
    }
}
