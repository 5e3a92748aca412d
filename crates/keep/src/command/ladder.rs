//! What is to be run: the command of each rung, its environment, and how it goes on from a checkpoint.

use std::ffi::OsString;
use std::path::Path;

use lowtide_config::command::{at_script, is_module};
use lowtide_trainers::{Access, Flag, Preset, processes, script_path};

use crate::command::discovery::Discovery;
use crate::command::gap::RungGap;
use crate::command::recipe::Recipe;
use crate::command::resume::Resumption;
use crate::command::script_copy::deaf_option;
use crate::command::shell::{InShell, deaf_script};
use crate::command::template::Values;
use crate::inside::allocator;
use crate::inside::door::PATHS;
use crate::inside::request::is_python_command;
use crate::{BatchSplit, CommandRequest, ConfigCopy, KeepError, Launch, ResumeRequest, StandIn, Template};

/// What is to be run.
#[derive(Debug, Clone)]
pub struct CommandLadder {
    /// The command as it was given.
    pub command: Vec<OsString>,
    /// Variables that every start gets besides those that are there, where something of ours comes into its Pythons.
    pub environment: Vec<(OsString, OsString)>,
    /// The trainer that was named or found.
    pub preset: Option<Preset>,
    /// The number of processes that share a step.
    pub group: u64,
    /// The batch of each rung, the command's own first; empty where nothing can be changed.
    pub rungs: Vec<BatchSplit>,
    /// Why there are no rungs, where something was found or given.
    pub gap: Option<RungGap>,
    /// How starts resume from checkpoints.
    pub resumption: Resumption,
    /// The flag for the batch of evaluation, where the script has one.
    pub evaluation: Option<Flag>,
    /// The training command in the file of a shell's script, where the command runs one.
    pub in_shell: Option<InShell>,
    recipe: Recipe,
}

impl CommandLadder {
    /// Finds out what is to be run.
    ///
    /// # Errors
    ///
    /// A template or a file cannot be used, or rungs are asked for and the batch is not known.
    pub fn make(request: CommandRequest, access: &Access<'_>) -> Result<Self, KeepError> {
        let Discovery { mut recipe, preset, batch, gap, evaluation } = Discovery::of(&request, access)?;
        recipe.paths = (access.variable)(PATHS);
        if (recipe.words.is_some() || matches!(request.resume, ResumeRequest::Own { .. }))
            && let Some(error) = deaf_script(&request.command)
        {
            return Err(error);
        }
        let group = processes(&request.command, access);
        let rungs = match batch {
            Some(batch) if recipe.accumulates() => {
                let group = if preset.is_none_or(Preset::shares_accumulation) { group } else { 1 };
                batch.rungs_of(group, |batch| recipe.takes(batch))
            }
            Some(batch) => batch.smaller().into_iter().filter(|rung| *rung == batch || recipe.takes(*rung)).collect(),
            None => Vec::new(),
        };
        // Nothing comes into another one, which might be told what it does not know.
        let listens = is_python_command(&request.command, access) && deaf_option(&request.command).is_none();
        let environment = allocator::setting(access.variable).filter(|_| listens).into_iter().collect();
        let trainer = preset.or_else(|| Preset::of_command(&request.command, access));
        let resumption = Resumption::read(&request, trainer, access)?;
        let in_shell = InShell::find(&request.command, access);
        let command = request.command;
        let mut ladder =
            Self { command, environment, preset, group, rungs, gap, resumption, evaluation, in_shell, recipe };
        // What cannot be changed is better known before memory runs out than after.
        let last = ladder.launch(ladder.rungs.len().saturating_sub(1), Path::new(""), None)?;
        let script = script_path(&ladder.command, access);
        // The call that trains stands in the script, and a copy may be of a module.
        let is_script = |copy: &ConfigCopy| script.as_ref().is_none_or(|script| *script == copy.original);
        if last.copies.first().is_some_and(|copy| copy.stand_in.is_some() && is_script(copy)) {
            ladder.resumption.use_copy();
        }
        Ok(ladder)
    }

    /// The samples of a step, of all processes together; none where they may get fewer. Where a template of the user's
    /// own runs in a group, it is not known who shares what, and the product stands for it. Where a flag gives it, it
    /// may be tokens.
    #[must_use]
    pub fn effective_batch(&self) -> Option<u64> {
        let each = self.rungs.first()?.effective();
        if !self.recipe.accumulates() {
            return None;
        }
        if let Some(whole) = &self.recipe.whole {
            return Some(whole.number);
        }
        match self.preset {
            Some(preset) if !preset.shares_accumulation() => each.checked_mul(self.group),
            _ => Some(each),
        }
    }

    /// Starts get no variables of ours: they are for Pythons that something comes into.
    pub fn leave_environment(&mut self) {
        self.environment.clear();
    }

    /// Whether what is added to the command line reaches the program: it does not where a shell has its script in one word.
    #[must_use]
    pub fn takes_words(&self) -> bool {
        deaf_script(&self.command).is_none()
    }

    /// The flag for the batch of a whole step, for which the script accumulates by itself what is missing.
    #[must_use]
    pub fn whole(&self) -> Option<&Flag> {
        self.recipe.whole.as_ref()
    }

    /// Where the command's Python looks for modules besides.
    pub(crate) fn python_paths(&self) -> Option<OsString> {
        self.recipe.paths.clone()
    }

    /// What a retry changes, by the names that the command has for it.
    #[must_use]
    pub fn changes(&self) -> Vec<String> {
        self.recipe.names()
    }

    /// A short name for the run, after its script or program.
    #[must_use]
    pub fn name(&self) -> String {
        let (launcher, _) = at_script(&self.command);
        let path = launcher.last().or(self.command.first()).map_or(Path::new("run"), Path::new);
        // The name of a module has dots in it.
        let is_module = !launcher.is_empty() && is_module(launcher, launcher.len() - 1);
        let name = if is_module { path.file_name() } else { path.file_stem() }.unwrap_or_default().to_string_lossy();
        let plain =
            |character: char| if character.is_alphanumeric() || "-_.".contains(character) { character } else { '-' };
        let name: String = name.chars().map(plain).take(60).collect();
        if name.trim_matches(['.', '-']).is_empty() { "run".to_owned() } else { name }
    }

    /// Puts another batch of evaluation on the command line of a start.
    ///
    /// # Errors
    ///
    /// The flag cannot be written as a template.
    pub fn set_evaluation(&self, launch: &mut Launch, samples: u64) -> Result<(), KeepError> {
        let Some(flag) = &self.evaluation else { return Ok(()) };
        let template = Template::read(&flag.with(samples))?;
        launch.command = template.applied(&launch.command, Values::default());
        Ok(())
    }

    /// Why a run in this folder cannot change the script, where that is so.
    ///
    /// # Errors
    ///
    /// Python cannot be told of the folder.
    pub fn can_change(&self, folder: &Path) -> Result<(), KeepError> {
        let launch = self.launch(self.rungs.len().saturating_sub(1), folder, None)?;
        launch.copies.iter().filter_map(|copy| copy.stand_in.as_ref()).try_for_each(StandIn::can_be_taken)
    }

    /// The start of a rung. The first rung is the command as it was given.
    ///
    /// # Errors
    ///
    /// The configuration file has no such key.
    pub fn launch(&self, rung: usize, folder: &Path, checkpoint: Option<&Path>) -> Result<Launch, KeepError> {
        let mut launch =
            Launch { command: self.command.clone(), environment: self.environment.clone(), copies: Vec::new() };
        if rung > 0
            && let Some(batch) = self.rungs.get(rung)
        {
            let values = Values { batch: Some(*batch), checkpoint: None };
            self.recipe.change(&mut launch, values, &folder.join(format!("retry-{rung}")))?;
        }
        if let Some(checkpoint) = checkpoint {
            self.resumption.apply(&mut launch, checkpoint);
        }
        Ok(launch)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use lowtide_config::command::{quoted, split};

    use super::*;

    fn file(path: &Path) -> Option<String> {
        match path.to_str()? {
            "train.py" => Some("batch_size = 12\ngradient_accumulation_steps = 5\n# configurator.py\n".to_owned()),
            "fit.yaml" => Some("data:\n  batch_size: 8\ntrainer:\n  accumulate: 2\n".to_owned()),
            "flags.py" => Some("p.add_argument('--bs', default=4)\np.add_argument('--accum', default=1)\n".to_owned()),
            "pkg/mine.py" => Some("a = TrainingArguments('o', per_device_train_batch_size=4)\n".to_owned()),
            "env.py" => Some(
                "B = int(os.environ.get('BATCH_SIZE', '32'))\nA = int(os.environ.get('GRAD_ACCUM', 1))\n".to_owned(),
            ),
            "envs.py" => Some(
                "B = int(os.environ['BATCH_SIZE'])\nn = int(os.getenv('ACCUM', 1))\n(loss / n).backward()\n".to_owned(),
            ),
            "some.py" => Some(
                "p.add_argument('--bs', default=12, choices=[4, 8, 12])\np.add_argument('--accum', default=1)\n"
                    .to_owned(),
            ),
            "half.py" => Some(
                "p.add_argument('--bs', default=4)\nn_accum_steps = 2\nloss /= n_accum_steps\nloss.backward()\n"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    fn request(command: &str) -> CommandRequest {
        CommandRequest {
            command: split(command).unwrap().into_iter().map(OsString::from).collect(),
            ..CommandRequest::default()
        }
    }

    fn made(request: CommandRequest) -> Result<CommandLadder, KeepError> {
        CommandLadder::make(request, &Access { variable: &|_| None, read: &file, cards: &|| 0 })
    }

    fn rungs(ladder: &CommandLadder) -> Vec<String> {
        let launch = |rung| ladder.launch(rung, Path::new("f"), None).unwrap();
        let told = |launch: Launch| {
            let environment: Vec<String> = launch
                .environment
                .iter()
                .filter(|(name, _)| name != "PYTORCH_CUDA_ALLOC_CONF")
                .map(|(name, value)| format!("{}={} ", name.display(), value.display()))
                .collect();
            format!("{}{}", environment.concat(), quoted(&launch.command))
        };
        (0..ladder.rungs.len()).map(|rung| told(launch(rung))).collect()
    }

    #[test]
    fn a_known_trainer_needs_no_words() {
        let ladder = made(request("python train.py --device=cpu")).unwrap();
        assert_eq!(ladder.name(), "train");
        assert_eq!(
            rungs(&ladder),
            [
                "python train.py --device=cpu",
                "python train.py --device=cpu --batch_size=6 --gradient_accumulation_steps=10",
                "python train.py --device=cpu --batch_size=3 --gradient_accumulation_steps=20",
                "python train.py --device=cpu --batch_size=1 --gradient_accumulation_steps=60",
            ]
        );
    }

    #[test]
    fn flags_that_the_script_declares() {
        let ladder = made(request("python flags.py")).unwrap();
        assert_eq!(
            rungs(&ladder),
            ["python flags.py", "python flags.py --bs=2 --accum=2", "python flags.py --bs=1 --accum=4"]
        );
        assert_eq!(
            (ladder.changes(), ladder.effective_batch()),
            (vec!["--bs".to_owned(), "--accum".to_owned()], Some(4))
        );
    }

    #[test]
    fn numbers_that_an_option_does_not_take_are_passed_over() {
        let ladder = made(request("python some.py")).unwrap();
        assert_eq!(rungs(&ladder), ["python some.py", "python some.py --bs=4 --accum=3"]);
    }

    #[test]
    fn variables_that_the_script_reads() {
        let gap = |variable: &dyn Fn(&str) -> Option<OsString>| {
            CommandLadder::make(request("python env.py"), &Access { variable, read: &file, cards: &|| 0 }).unwrap().gap
        };
        let named = |numbers| {
            let template = "BATCH_SIZE={micro} GRAD_ACCUM={accum}".to_owned();
            Some(RungGap::Environment { template, numbers, detail: None })
        };
        assert_eq!(gap(&|_| None), named([Some(32), Some(1)]));
        assert_eq!(gap(&|name| (name == "BATCH_SIZE").then(|| "8".into())), named([Some(8), Some(1)]));
        let words = |command: &str| made(request(command)).unwrap().takes_words();
        assert!(words("python env.py") && !words("bash -c 'python env.py'"));
    }

    #[test]
    fn variables_that_the_script_divides_by_are_changed() {
        let ladder = made(request("env BATCH_SIZE=4 python envs.py")).unwrap();
        assert_eq!(
            rungs(&ladder),
            [
                "env BATCH_SIZE=4 python envs.py",
                "ACCUM=2 env BATCH_SIZE=2 python envs.py",
                "ACCUM=4 env BATCH_SIZE=1 python envs.py"
            ]
        );
        let variable = |name: &str| (name == "BATCH_SIZE").then(|| OsString::from("2"));
        let access = Access { variable: &variable, read: &file, cards: &|| 0 };
        let ladder = CommandLadder::make(request("python envs.py"), &access).unwrap();
        assert_eq!(rungs(&ladder), ["python envs.py", "BATCH_SIZE=1 ACCUM=2 python envs.py"]);
        // Nobody set it.
        assert!(made(request("python envs.py")).unwrap().rungs.is_empty());
    }

    #[test]
    fn numbers_in_the_script_are_changed_in_a_copy() {
        let ladder = made(request("python -m pkg.mine")).unwrap();
        assert_eq!(ladder.name(), "pkg.mine");
        let launch = ladder.launch(1, Path::new("/runs/a"), None).unwrap();
        assert_eq!(quoted(&launch.command), "python -m pkg.mine");
        let (name, value) = launch.environment.last().unwrap();
        assert_eq!((name.to_str(), value.to_str()), (Some("PYTHONPATH"), Some("/runs/a/retry-1.start")));
        let copy = launch.copies[0].clone();
        assert_eq!(copy.original, Path::new("pkg/mine.py"));
        let changed = "a = TrainingArguments('o', per_device_train_batch_size=2, gradient_accumulation_steps=2)\n";
        assert_eq!((&*copy.text, copy.path.to_str()), (changed, Some("/runs/a/retry-1.py")));
        assert_eq!(copy.changes, ["per_device_train_batch_size=2", "gradient_accumulation_steps=2"]);
    }

    #[test]
    fn one_number_by_a_flag_and_one_in_the_script() {
        let launch = made(request("python half.py")).unwrap().launch(1, Path::new("/f"), None).unwrap();
        assert_eq!(quoted(&launch.command), "python half.py --bs=2");
        assert_eq!(launch.copies[0].changes, ["n_accum_steps=4"]);
    }

    #[test]
    fn rungs_of_the_users_own() {
        let rung = Some("--bs={micro} --acc={accum}".to_owned());
        let ladder = made(CommandRequest { rung: rung.clone(), ..request("t --bs 4") }).unwrap();
        assert_eq!(rungs(&ladder), ["t --bs 4", "t --bs 2 --acc=2", "t --bs 1 --acc=4"]);
        let ladder = made(CommandRequest { rung, micro: Some(2), accum: Some(3), ..request("t") }).unwrap();
        assert_eq!(rungs(&ladder), ["t", "t --bs=1 --acc=6"]);
        let environment = Some("BS={micro} ACC={accum}".to_owned());
        let ladder = made(CommandRequest { rung_environment: environment, micro: Some(2), ..request("t") }).unwrap();
        assert_eq!(rungs(&ladder), ["t", "BS=1 ACC=2 t"]);
        // What `env` sets is read where it is written.
        let environment = Some("BS={micro} ACC={accum}".to_owned());
        let ladder = made(CommandRequest { rung_environment: environment, ..request("env BS=2 t BS=9") }).unwrap();
        assert_eq!(rungs(&ladder), ["env BS=2 t BS=9", "ACC=2 env BS=1 t BS=9"]);
    }

    #[test]
    fn a_copy_of_the_configuration_is_changed() {
        let template = "data.batch_size={micro} trainer.accumulate={accum}".to_owned();
        let config = Some((PathBuf::from("fit.yaml"), template));
        let ladder = made(CommandRequest { rung_config: config, ..request("t fit --config=./fit.yaml") }).unwrap();
        let launch = ladder.launch(2, Path::new("runs/t-1"), None).unwrap();
        assert_eq!(quoted(&launch.command), "t fit --config=runs/t-1/retry-2.yaml");
        let text = "data:\n  batch_size: 2\ntrainer:\n  accumulate: 8\n".to_owned();
        let copy = launch.copies[0].clone();
        assert_eq!((copy.path, copy.text), (PathBuf::from("runs/t-1/retry-2.yaml"), text));
        assert_eq!(copy.changes, ["data.batch_size=2", "trainer.accumulate=8"]);
    }

    #[test]
    fn a_restart_goes_on_from_a_checkpoint() {
        let own = |template: &str| ResumeRequest::Own { template: template.to_owned(), pattern: "out/*.pt".to_owned() };
        let resume = own("--init_from=resume --from {checkpoint}");
        let ladder = made(CommandRequest { resume, ..request("t --init_from=scratch") }).unwrap();
        let launch = ladder.launch(0, Path::new("f"), Some(Path::new("a.pt"))).unwrap();
        assert_eq!(quoted(&launch.command), "t --init_from=resume --from a.pt");
    }

    #[test]
    fn a_script_in_one_word_cannot_be_changed() {
        let rung = Some("--bs={micro} --acc={accum}".to_owned());
        let told = |command: &str| {
            let request = CommandRequest { rung: rung.clone(), micro: Some(4), ..request(command) };
            made(request).map(|ladder| rungs(&ladder).len()).map_err(|error| error.to_string())
        };
        let deaf = "`bash -c` does not give its script what stands after it: python t.py";
        assert_eq!(told("bash -c 'python t.py'"), Err(deaf.to_owned()));
        assert_eq!(told("nice bash -ec 'python t.py' x"), Err(deaf.replace("-c", "-ec")));
        assert_eq!(told("bash -l -o pipefail -c 'python t.py'"), Err(deaf.to_owned()));
        assert_eq!(told("bash -c 'python t.py \"$@\"' x"), Ok(3));
        assert_eq!(told("bash train.sh"), Ok(3));
        let environment = Some("BS={micro} ACC={accum}".to_owned());
        let request =
            CommandRequest { rung_environment: environment, micro: Some(4), ..request("sh -c 'python t.py'") };
        assert_eq!(rungs(&made(request).unwrap()).len(), 3);
    }

    #[test]
    fn the_effective_batch_of_a_group() {
        let effective = |command: &str| made(request(command)).unwrap().effective_batch();
        assert_eq!(effective("python train.py"), Some(60));
        // nanoGPT shares its accumulation out, others do not.
        assert_eq!(effective("torchrun --nproc_per_node=5 train.py"), Some(60));
        assert_eq!(effective("torchrun --nproc_per_node=4 x.py --per_device_train_batch_size=8"), Some(32));
        assert_eq!(effective("t"), None);
    }

    #[test]
    fn the_allocator_is_set_unless_somebody_did() {
        let chosen = |name: &str| (name == "PYTORCH_ALLOC_CONF").then(|| OsString::from("x"));
        let access = Access { variable: &chosen, read: &file, cards: &|| 0 };
        assert!(CommandLadder::make(request("python t.py"), &access).unwrap().environment.is_empty());
        let is_set = |command: &str| !made(request(command)).unwrap().environment.is_empty();
        assert!(is_set("python t.py") && is_set("torchrun t.py"));
        // Nothing of ours comes in there, and a PyTorch before 2.1 would fail by it.
        assert!(!is_set("./trainer") && !is_set("python -I t.py"));
    }

    #[test]
    fn refusals() {
        let told = |request: CommandRequest| made(request).unwrap_err().to_string();
        let rung = |text: &str| CommandRequest { rung: Some(text.to_owned()), ..request("t") };
        assert_eq!(
            told(rung("--bs={micro}")),
            "template `--bs={micro}`: {accum} is missing, without which the effective batch would change"
        );
        assert_eq!(told(rung("--bs={micro} --a={accum}")), "the batch of this command is not known: --bs is not set");
        let odd = CommandRequest { rung: Some("--bs={micro} --a={accum}".to_owned()), ..request("t --bs=eight") };
        assert_eq!(told(odd), "the batch of this command is not known: --bs is `eight`, which is no number");
        let other = CommandRequest {
            micro: Some(32),
            rung: Some("--bs={micro} --a={accum}".to_owned()),
            ..request("t --bs 16")
        };
        assert_eq!(told(other), "32 is given, and --bs is 16");
        let same = CommandRequest {
            micro: Some(16),
            rung: Some("--bs={micro} --a={accum}".to_owned()),
            ..request("t --bs 16")
        };
        assert_eq!(made(same).unwrap().rungs.len(), 5);
        let zero = CommandRequest { micro: Some(0), ..rung("--bs={micro} --a={accum}") };
        assert_eq!(told(zero), "the batch of this command is not known: 0 x 1 is no batch");
        let config =
            |file: &str| CommandRequest { rung_config: Some((file.into(), "x={micro}".to_owned())), ..request("t") };
        assert_eq!(told(config("a.txt")), "a.txt: neither .py nor .yaml nor .json");
        assert_eq!(told(config("fit.yaml")), "fit.yaml: the command line does not name this file");
        let keys = Some((PathBuf::from("fit.yaml"), "data.bs={micro} trainer.accumulate={accum}".to_owned()));
        let missing = CommandRequest { rung_config: keys, micro: Some(4), ..request("t fit.yaml") };
        assert_eq!(told(missing), "fit.yaml: has no data.bs");
        let resume = ResumeRequest::Own { template: "--n={micro}".to_owned(), pattern: "*.pt".to_owned() };
        let resume = CommandRequest { resume, ..request("t") };
        assert_eq!(told(resume), "`--n={micro}`: {micro} has no place where a run goes on from a checkpoint");
    }
}
