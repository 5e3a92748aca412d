//! What a retry would change, and whether each update stays the same then.

use std::path::PathBuf;

use lowtide_config::Config;
use lowtide_trainers::{Access, Accumulation, Flag, NumberInFile, Slot, accumulation, refusal};

use crate::command::gap::RungGap;
use crate::command::recipe::{Recipe, Script};
use crate::{BatchPart, BatchSplit, CommandRequest, Template};

/// What a retry would change.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) recipe: Recipe,
    /// The batch as it is; `None` where it is larger than any.
    pub(crate) batch: Option<BatchSplit>,
    /// What the script calls micro-batch and accumulation, where both are changed.
    pub(crate) names: Option<[String; 2]>,
}

/// A script as it was read, and where.
pub(crate) type Place = (Config, PathBuf);

impl Found {
    /// By flags: the batch, and accumulation.
    pub(crate) fn by_flags(micro: &Flag, accum: &Flag) -> Self {
        let words = format!("{} {}", micro.with("{micro}"), accum.with("{accum}"));
        let choices = [micro.choices.clone(), accum.choices.clone()];
        let recipe = Recipe { words: Template::read(&words).ok(), choices, ..Recipe::default() };
        let batch = BatchSplit::new(micro.number, accum.number);
        Self { recipe, batch, names: Some([micro.name.clone(), accum.name.clone()]) }
    }

    /// By a flag for the batch alone.
    pub(crate) fn by_flag(micro: &Flag) -> Self {
        let words = Template::read(&micro.with("{micro}")).ok();
        let recipe = Recipe { words, choices: [micro.choices.clone(), Vec::new()], ..Recipe::default() };
        Self { recipe, batch: BatchSplit::new(micro.number, 1), names: None }
    }

    /// By a flag for the batch, and a number that stands in a file.
    pub(crate) fn by_flag_and_number(micro: &Flag, place: &Place, slot: Slot, steps: u64) -> Self {
        let names = Some([micro.name.clone(), slot.name().to_owned()]);
        let found = Self::by_flag(micro);
        let recipe = Recipe { scripts: vec![Script::new(place, vec![(BatchPart::Accum, slot)])], ..found.recipe };
        Self { recipe, batch: BatchSplit::new(micro.number, steps), names }
    }

    /// By two numbers, each with its file.
    pub(crate) fn by_numbers(script: &Place, numbers: [NumberInFile<'_>; 2]) -> Self {
        let batch = BatchSplit::new(numbers[0].number, numbers[1].number);
        let names = Some(numbers.each_ref().map(|it| it.slot.name().to_owned()));
        let mut scripts: Vec<Script> = Vec::new();
        for (part, NumberInFile { file, slot, .. }) in [BatchPart::Micro, BatchPart::Accum].into_iter().zip(numbers) {
            let place = place_of(file, script);
            match scripts.iter_mut().find(|script| script.path == place.1) {
                Some(same) => same.slots.push((part, slot)),
                None => scripts.push(Script::new(&place, vec![(part, slot)])),
            }
        }
        scripts.sort_by_key(|it| it.path != script.1);
        Self { recipe: Recipe { scripts, ..Recipe::default() }, batch, names }
    }

    /// What keeps each update the same; of a script that cuts its batch by accumulation, accumulation alone.
    ///
    /// # Errors
    ///
    /// Why that cannot be.
    pub(crate) fn checked(
        self,
        request: &CommandRequest,
        configs: &[Config],
        access: &Access<'_>,
    ) -> Result<Self, RungGap> {
        let found = self.taken(request, configs, access)?;
        let Some([batch, steps]) = found.names.clone() else { return Ok(found) };
        let files: Vec<&Config> = configs.iter().collect();
        let number = found.batch.map_or(1, |batch| batch.accum);
        let typed = found.typed_steps();
        let shown = match &typed {
            Some((key, _)) => Flag::new(*key, number).with(number),
            None => format!("{steps} ({number})"),
        };
        let gap = |detail: String| match &typed {
            Some((_, words)) => RungGap::OtherTraining { detail, template: words.clone(), batch: found.batch },
            None => RungGap::Batch { detail },
        };
        match accumulation(&files, &steps, Some(&batch), &shown).map_err(gap)? {
            Accumulation::Cuts => found.without_micro(),
            _ => Ok(found),
        }
    }

    /// What the trainer takes.
    ///
    /// # Errors
    ///
    /// Why it refuses that, or would make another training of it.
    pub(crate) fn taken(
        self,
        request: &CommandRequest,
        configs: &[Config],
        access: &Access<'_>,
    ) -> Result<Self, RungGap> {
        let refusal = self.names.as_ref().and_then(|[_, steps]| refusal(&request.command, configs, steps, access));
        refusal.map_or(Ok(self), |refusal| Err(RungGap::Refused(refusal)))
    }

    /// The option for accumulation, and all that a retry changes on the command line.
    fn typed_steps(&self) -> Option<(&str, String)> {
        let words = self.recipe.words.as_ref()?;
        Some((words.key_of(BatchPart::Accum.place())?, words.to_string()))
    }

    /// Changes accumulation alone, by which the script cuts the batch that is changed so far.
    fn without_micro(self) -> Result<Self, RungGap> {
        let Some(BatchSplit { micro: whole, accum }) = self.batch else { return Ok(self) };
        let Some(batch) = BatchSplit::new(whole / accum, accum).filter(|_| whole.is_multiple_of(accum)) else {
            let detail = format!("the script divides its batch of {whole} by accumulation, and {accum} is no divisor");
            return Err(RungGap::Batch { detail });
        };
        Ok(Self { recipe: self.recipe.without(BatchPart::Micro), batch: Some(batch), names: self.names })
    }
}

/// The script as it was read, or a module, whose name is its path.
pub(crate) fn place_of(file: &Config, script: &Place) -> Place {
    let path = if *file == script.0 { script.1.clone() } else { PathBuf::from(&file.name) };
    (file.clone(), path)
}
