//! The started engine, and one run on it.

use std::path::PathBuf;

use lowtide_args::EngineArgs;
use lowtide_core::{Event, Line, LineSpec, NumericsChoice, Record};
use lowtide_settings::{LoadedSettings, RunSettings};
use lowtide_torch::cuda::{self, AllocatorSettings};
use lowtide_torch::tch::Device;
use lowtide_torch::{
    DeviceFacts, MatmulPrecision, host, numerics, rng, set_deterministic, set_matmul_precision, start,
};
use lowtide_train::{
    Bundle, EvalEnding, EvalJob, FolderChoice, Injection, Outcome, Requests, Result, RunCheckpoint, Schedule,
    TrainError, TrainJob, Trainer, evaluate_checkpoint,
};

use crate::Program;
use crate::curves::Curves;
use crate::engine_choice::EngineChoice;
use crate::output::{Console, RunHeader, to_stderr};

/// What all runs of a command share.
pub(crate) struct Session<'a> {
    pub(crate) program: Program,
    args: &'a EngineArgs,
    choice: NumericsChoice,
    facts: DeviceFacts,
    allocator: AllocatorSettings,
    pub(crate) requests: Requests,
}

/// What a run is given beside its settings.
pub(crate) struct RunExtras<'a> {
    pub(crate) schedule: Option<Schedule>,
    pub(crate) injections: &'a [Injection],
}

impl<'a> Session<'a> {
    /// Starts the engine as the settings and the arguments say.
    pub(crate) fn start(
        program: Program,
        args: &'a EngineArgs,
        choice: &EngineChoice,
        settings: &RunSettings,
        requests: Requests,
    ) -> anyhow::Result<Session<'a>> {
        if choice.is_deterministic() {
            numerics::fix_environment();
        }
        let allocator = cuda::set_environment(&settings.memory.allocator, choice.deterministic);
        if settings.memory.host_line != LineSpec::None {
            host::keep_little();
        }
        let facts = start(choice.device).map_err(TrainError::from)?;
        if let Some(threads) = choice.threads() {
            numerics::fix_threads(threads).map_err(TrainError::from)?;
        }
        if choice.is_deterministic() {
            numerics::check_fixed(&numerics::numerics(choice.record(), &facts)?).map_err(TrainError::from)?;
        }
        set_deterministic(choice.is_deterministic())?;
        let precision = if choice.is_deterministic() { MatmulPrecision::Highest } else { MatmulPrecision::High };
        set_matmul_precision(precision)?;
        let session = Session { program, args, choice: choice.record(), facts, allocator, requests };
        choice.notes.iter().for_each(|note| session.say(note));
        Ok(session)
    }

    /// Builds a workload whose random numbers start from its seed, whatever ran before.
    pub(crate) fn build(&self, loaded: &LoadedSettings) -> Result<Bundle> {
        rng::seed(self.facts.device, loaded.settings.seed)?;
        self.program.catalogue.build(loaded, &self.facts)
    }

    /// Trains it to the end and tells of it. `resumed_in` gives the folder that `--resume` wants to go on from there: it may
    /// have been moved meanwhile.
    pub(crate) fn run(
        &self,
        bundle: &Bundle,
        folder: FolderChoice,
        RunExtras { schedule, injections }: RunExtras<'_>,
        resumed_in: impl FnOnce(&Outcome) -> PathBuf,
    ) -> Result<Outcome> {
        let header = RunHeader::new(&self.facts, bundle, folder.path());
        let mut console = Console::new(self.args.json, &bundle.settings, header);
        let mut curves = bundle.settings.watch.tensorboard.then(|| Curves::new(folder.path()));
        let mut tell = |record: &Record| {
            console.event(record);
            if let Some(problem) = curves.as_mut().and_then(|curves| curves.event(record)) {
                console.say(&problem);
            }
        };
        let job = TrainJob {
            settings: &bundle.settings,
            facts: &self.facts,
            allocator: &self.allocator,
            choice: self.choice.clone(),
            folder,
            requests: &self.requests,
            injections,
            schedule,
        };
        let outcome = Trainer::prepare(job, bundle.workload.as_ref(), &mut tell)?.train()?;
        console.end(&outcome, &self.program.resume_command(&resumed_in(&outcome)));
        Ok(outcome)
    }

    /// Evaluates a checkpoint of it and tells of what happens meanwhile.
    pub(crate) fn evaluate(&self, bundle: &Bundle, run: &RunCheckpoint) -> Result<EvalEnding> {
        let header = RunHeader::new(&self.facts, bundle, &run.checkpoint);
        let mut console = Console::lines(&bundle.settings, header);
        let job = EvalJob {
            settings: &bundle.settings,
            facts: &self.facts,
            allocator: &self.allocator,
            requests: &self.requests,
        };
        evaluate_checkpoint(run, job, bundle.workload.as_ref(), |record| {
            // The figures are told at the end, and there is no training that would go on.
            let is_result = matches!(record.event, Event::Evaluated { .. } | Event::EvaluationFailed { .. });
            if !self.args.json && !is_result {
                console.event(record);
            }
        })
    }

    /// Takes away the line of the last run and what it left cached: a next one begins as if it were the first.
    pub(crate) fn clear(&self) -> Result<()> {
        host::set_line(Line::NONE);
        host::trim();
        if let Device::Cuda(index) = self.facts.device {
            cuda::set_memory_fraction(index, 1.0)?;
            cuda::empty_cache()?;
        }
        Ok(())
    }

    /// Says something to people; with `--json` nobody is there to hear it.
    pub(crate) fn say(&self, text: &str) {
        if !self.is_json() {
            to_stderr(text);
        }
    }

    /// Whether every event is a line on standard output, and nothing else is said.
    pub(crate) fn is_json(&self) -> bool {
        self.args.json
    }
}
