//! How the engine is to run: what was typed, and where a run goes on, what it was started with.

use std::num::NonZeroU32;

use lowtide_args::EngineArgs;
use lowtide_core::{Numerics, NumericsChoice};
use lowtide_torch::DeviceChoice;
use lowtide_torch::cuda::Deterministic;
use lowtide_torch::numerics::FIXED_THREADS;

/// Where to compute, with how many threads, and whether all that decides the bits is fixed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EngineChoice {
    pub(crate) device: DeviceChoice,
    pub(crate) deterministic: Deterministic,
    threads: Option<NonZeroU32>,
    /// What a person should know about it.
    pub(crate) notes: Vec<String>,
}

impl EngineChoice {
    /// What was typed; for what was not, what the run was started with that goes on.
    pub(crate) fn new(args: &EngineArgs, before: Option<&Numerics>) -> EngineChoice {
        let choice = before.map(|before| &before.choice);
        // An unknown device is that of a later version.
        let device_then = choice.and_then(|choice| choice.device.parse::<DeviceChoice>().ok());
        let deterministic_then = choice.map(|choice| choice.deterministic);
        let threads_then = before.and_then(|before| {
            let fixed = before.choice.deterministic.then_some(before.threads.libtorch);
            before.choice.threads.or(fixed).and_then(NonZeroU32::new)
        });
        let mut notes = Vec::new();
        let mut taken = |flag: &str, typed: Option<String>, then: Option<String>, is_usual: bool| match (typed, then) {
            (Some(typed), Some(then)) if typed != then => {
                notes.push(format!("note: {flag} {typed} from now on; the run was started with {then}"));
            }
            (None, Some(then)) if !is_usual => notes.push(format!("{flag} {then}, as the run was started")),
            _ => {}
        };
        let on_or_off = |on: bool| if on { "on" } else { "off" }.to_owned();
        taken(
            "--device",
            args.device.map(|device| device.to_string()),
            device_then.map(|device| device.to_string()),
            device_then == Some(DeviceChoice::Auto),
        );
        taken(
            "--deterministic",
            args.deterministic.map(on_or_off),
            deterministic_then.map(on_or_off),
            deterministic_then == Some(false),
        );
        let is_deterministic = args.deterministic.or(deterministic_then).unwrap_or(false);
        EngineChoice {
            device: args.device.or(device_then).unwrap_or_default(),
            deterministic: if is_deterministic { Deterministic::Yes } else { Deterministic::No },
            threads: args.threads.or(threads_then),
            notes,
        }
    }

    /// The number of threads, where it is fixed.
    pub(crate) fn threads(&self) -> Option<NonZeroU32> {
        self.threads.or(self.is_deterministic().then_some(FIXED_THREADS))
    }

    pub(crate) fn is_deterministic(&self) -> bool {
        self.deterministic == Deterministic::Yes
    }

    /// As it is written down.
    pub(crate) fn record(&self) -> NumericsChoice {
        NumericsChoice {
            device: self.device.to_string(),
            deterministic: self.is_deterministic(),
            threads: self.threads.map(NonZeroU32::get),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_core::{Instructions, Threads, Versions};

    fn args(device: Option<DeviceChoice>, deterministic: Option<bool>, threads: u32) -> EngineArgs {
        EngineArgs { device, deterministic, threads: NonZeroU32::new(threads), json: false }
    }

    fn before(device: &str, deterministic: bool, threads: Option<u32>) -> Numerics {
        Numerics {
            choice: NumericsChoice { device: device.to_owned(), deterministic, threads },
            device: String::new(),
            threads: Threads { libtorch: 3, openmp_dynamic: false, mkl: None, mkl_dynamic: None },
            instructions: Instructions { libtorch: String::new(), mkl: None, onednn: None },
            versions: Versions { libtorch: String::new(), mkl: None, onednn: None },
        }
    }

    #[track_caller]
    fn check(args: &EngineArgs, before: Option<Numerics>, expect: (&str, bool, Option<u32>), notes: &[&str]) {
        let choice = EngineChoice::new(args, before.as_ref());
        let threads = choice.threads().map(NonZeroU32::get);
        assert_eq!((choice.device.to_string().as_str(), choice.is_deterministic(), threads), expect);
        assert_eq!(choice.notes, notes);
    }

    #[test]
    fn a_new_run_takes_what_was_typed() {
        check(&args(None, None, 0), None, ("auto", false, None), &[]);
        check(&args(Some(DeviceChoice::Cpu), Some(true), 0), None, ("cpu", true, Some(FIXED_THREADS.get())), &[]);
        check(&args(None, Some(true), 5), None, ("auto", true, Some(5)), &[]);
        check(&args(None, None, 5), None, ("auto", false, Some(5)), &[]);
    }

    #[test]
    fn a_resume_remembers() {
        let nothing = args(None, None, 0);
        check(&nothing, Some(before("auto", false, None)), ("auto", false, None), &[]);
        let lines = ["--device cuda:1, as the run was started", "--deterministic on, as the run was started"];
        check(&nothing, Some(before("cuda:1", true, None)), ("cuda:1", true, Some(3)), &lines);
        check(&nothing, Some(before("auto", false, Some(2))), ("auto", false, Some(2)), &[]);
        check(&args(Some(DeviceChoice::Cpu), None, 0), Some(before("cpu", false, None)), ("cpu", false, None), &[]);
    }

    #[test]
    fn a_resume_that_is_told_otherwise_says_so() {
        let lines = [
            "note: --device cpu from now on; the run was started with cuda:0",
            "note: --deterministic off from now on; the run was started with on",
        ];
        let typed = args(Some(DeviceChoice::Cpu), Some(false), 1);
        check(&typed, Some(before("cuda:0", true, Some(4))), ("cpu", false, Some(1)), &lines);
    }
}
