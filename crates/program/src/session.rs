//! The started engine, and one run on it.

use std::num::NonZeroU32;
use std::path::PathBuf;

use lowtide_args::EngineArgs;
use lowtide_core::{Bytes, Event, Line, LineSpec, NumericsChoice, Record};
use lowtide_settings::{LoadedSettings, RunSettings};
use lowtide_torch::cuda::{self, AllocatorSettings};
use lowtide_torch::tch::Device;
use lowtide_torch::{
    DeviceFacts, MatmulPrecision, TorchError, host, numerics, rng, set_deterministic, set_matmul_precision, start_for,
};
use lowtide_train::{
    Bundle, EvalEnding, EvalJob, FolderChoice, Injection, Outcome, Passage, Requests, Result, RunCheckpoint, Schedule,
    Team, TrainError, TrainJob, Trainer, evaluate_checkpoint,
};

use crate::Program;
use crate::curves::Curves;
use crate::engine_choice::EngineChoice;
use crate::launch::Launch;
use crate::output::{Console, RunHeader, to_stderr};

/// What all runs of a command share.
pub(crate) struct Session<'a> {
    pub(crate) program: Program,
    args: &'a EngineArgs,
    choice: NumericsChoice,
    facts: DeviceFacts,
    allocator: AllocatorSettings,
    pub(crate) requests: Requests,
    /// Those who train together.
    pub(crate) team: Team,
}

/// What a session is started with beside its settings.
pub(crate) struct Beginning<'a> {
    pub(crate) program: Program,
    pub(crate) args: &'a EngineArgs,
    pub(crate) requests: Requests,
    pub(crate) team: Team,
    /// How this process was started, where there are others.
    pub(crate) launch: Option<Launch>,
}

/// What a run is given beside its settings.
pub(crate) struct RunExtras<'a> {
    pub(crate) schedule: Option<Schedule>,
    pub(crate) injections: &'a [Injection],
    pub(crate) profile: Option<NonZeroU32>,
}

impl<'a> Session<'a> {
    /// Starts the engine as the settings and the arguments say.
    pub(crate) fn start(
        beginning: Beginning<'a>,
        choice: &EngineChoice,
        settings: &RunSettings,
    ) -> anyhow::Result<Session<'a>> {
        let Beginning { program, args, requests, team, launch } = beginning;
        if choice.is_deterministic() {
            numerics::fix_environment();
        }
        let allocator = cuda::set_environment(&settings.memory.allocator, choice.deterministic);
        if settings.memory.host_line != LineSpec::None {
            host::keep_little();
        }
        let mut facts = facts(choice, launch.as_ref()).map_err(TrainError::from)?;
        let passage = team.connect_cards(&settings.ranks, facts.device)?;
        if let (Some(Passage::Cards), Device::Cuda(index)) = (&passage, facts.device) {
            facts.context = cuda::context(index)?;
        }
        if let Some(threads) = choice.threads() {
            numerics::fix_threads(threads).map_err(TrainError::from)?;
        }
        if choice.is_deterministic() {
            numerics::check_fixed(&numerics::numerics(choice.record(), &facts)?).map_err(TrainError::from)?;
        }
        set_deterministic(choice.is_deterministic())?;
        let precision = if choice.is_deterministic() { MatmulPrecision::Highest } else { MatmulPrecision::High };
        set_matmul_precision(precision)?;
        let session = Session { program, args, choice: choice.record(), facts, allocator, requests, team };
        choice.notes.iter().for_each(|note| session.say(note));
        match passage {
            Some(Passage::Cards) => session.say("tensors go from card to card by NCCL"),
            Some(Passage::Host(reason)) => session.say(&format!("tensors go through the host, not by NCCL: {reason}")),
            None => {}
        }
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
        folder: Option<FolderChoice>,
        RunExtras { schedule, injections, profile }: RunExtras<'_>,
        resumed_in: impl FnOnce(&Outcome) -> PathBuf,
    ) -> Result<Outcome> {
        // One rank speaks for all.
        let path = folder.as_ref().map(FolderChoice::path);
        let header = |path| RunHeader::new(&self.facts, bundle, path).with_ranks(self.team.world());
        let mut console = path.map(|path| Console::new(self.args.json, &bundle.settings, header(path)));
        let mut curves = path.filter(|_| bundle.settings.watch.tensorboard).map(Curves::new);
        let mut tell = |record: &Record| {
            let Some(console) = &mut console else { return };
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
            team: &self.team,
            requests: &self.requests,
            injections,
            schedule,
            profile,
        };
        let outcome = Trainer::prepare(job, bundle.workload.as_ref(), &mut tell)?.train()?;
        if let Some(console) = console {
            console.end(&outcome, &self.program.resume_command(&resumed_in(&outcome)));
        }
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
            team: &self.team,
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

    /// Says something to people; with `--json` nobody is there to hear it, and of several ranks one speaks.
    pub(crate) fn say(&self, text: &str) {
        if !self.is_json() && self.team.is_first() {
            to_stderr(text);
        }
    }

    pub(crate) fn device(&self) -> Device {
        self.facts.device
    }

    /// Whether every event is a line on standard output, and nothing else is said.
    pub(crate) fn is_json(&self) -> bool {
        self.args.json
    }
}

/// The device of this process. Ranks of a machine share its memory: a percentage means that of a rank's part.
fn facts(choice: &EngineChoice, launch: Option<&Launch>) -> Result<DeviceFacts, TorchError> {
    let (local_rank, local_world) = launch.map_or((0, 1), |launch| (launch.local_rank, launch.local_world.max(1)));
    let mut facts = start_for(choice.device, local_rank)?;
    facts.host_total = Bytes(facts.host_total.get() / u64::from(local_world));
    if facts.device == Device::Cpu {
        facts.total = Bytes(facts.total.get() / u64::from(local_world));
    }
    Ok(facts)
}
