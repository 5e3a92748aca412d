//! A batch that stands in the script or in modules that it imports, in whole or beside a flag.

use lowtide_config::{Config, Scope};
use lowtide_trainers::{
    Flag, HardCoded, NumberInFile, SourceBatch, declarations, hard_coded, hard_coded_steps, imported_batch,
    imported_steps, split_batch, takes_batch_from,
};

use crate::command::found::{Found, Place, place_of};
use crate::command::gap::{Library, RungGap};
use crate::command::no_accumulation::{library, no_accumulation};
use crate::command::recipe::{Recipe, Script};
use crate::{BatchPart, BatchSplit, EffectiveBatch, Template};

/// What a retry would change, or why there is none, where something was found.
pub(crate) type Search = Result<Found, Option<RungGap>>;

/// A flag for the batch and none for accumulation, which may stand in the script or in a module of it.
pub(crate) fn by_batch_flag(
    micro: &Flag,
    place: Option<&Place>,
    modules: &[Config],
    configs: &[Config],
    effective: EffectiveBatch,
) -> Search {
    let steps = place.map_or(Ok(None), |(script, _)| hard_coded_steps(script));
    let imported = place.and_then(|(script, _)| imported_steps(script, modules));
    match (steps, place) {
        (Ok(Some((steps, slot))), Some(place)) => Ok(Found::by_flag_and_number(micro, place, slot, steps)),
        (_, Some(place)) if let Some(NumberInFile { file, number, slot }) = imported => {
            Ok(Found::by_flag_and_number(micro, &place_of(file, place), slot, number))
        }
        (Err(detail), _) => Err(Some(RungGap::Batch { detail })),
        _ if effective == EffectiveBatch::MayShrink => Ok(Found::by_flag(micro)),
        // Where neither options nor a loop are to be seen, accumulation may be anywhere.
        _ if configs.iter().all(|it| library(it) == Library::Unknown && declarations(it).is_empty()) => {
            let detail = format!("no flag for gradient accumulation is known beside {}", micro.with(micro.number));
            let templates = vec![format!("{} --FLAG={{accum}}", micro.with("{micro}"))];
            Err(Some(RungGap::Flags { detail, templates, samples: Some(micro.number) }))
        }
        _ => Err(no_accumulation(place, micro.with("{}"), None, micro.number)),
    }
}

/// A batch that stands in the script or in modules that it imports: both numbers in one file, or each in its own.
pub(crate) fn by_files(script: &Place, modules: &[Config], accum: Option<&Flag>, effective: EffectiveBatch) -> Search {
    let gap = match by_source(script, accum, effective) {
        Err(gap) => gap,
        found => return found,
    };
    // What the script says itself counts first: only where it names a module's number is that number its own.
    let is_its_own = |batch: &SourceBatch| match (&gap, batch) {
        (None, _) => true,
        (
            Some(RungGap::Batch { .. }),
            SourceBatch::Both(HardCoded { slots: [slot, _], .. }) | SourceBatch::Alone { slot, .. },
        ) => takes_batch_from(&script.0, slot.name()),
        _ => false,
    };
    let imported = imported_batch(&script.0, modules).filter(|(_, batch)| is_its_own(batch));
    if let Some((module, batch @ SourceBatch::Both(_))) = imported {
        return by_batch(&place_of(module, script), batch, accum, effective);
    }
    if let Some(numbers) = split_batch(&script.0, modules).filter(|_| accum.is_none()) {
        return Ok(Found::by_numbers(script, numbers));
    }
    imported.map_or(Err(gap), |imported| by_module(script, imported, accum, effective))
}

/// A batch that stands in a module that the script imports; accumulation by a flag, or nowhere.
fn by_module(
    script: &Place,
    (module, batch): (&Config, SourceBatch),
    accum: Option<&Flag>,
    effective: EffectiveBatch,
) -> Search {
    let place = place_of(module, script);
    let SourceBatch::Alone { micro, slot } = &batch else { return by_batch(&place, batch, accum, effective) };
    if accum.is_some() || effective == EffectiveBatch::MayShrink {
        return by_batch(&place, batch, accum, effective);
    }
    let line = module.line_of(slot.setting.span.start);
    let at = format!("{}, line {line}", module.name);
    match hard_coded_steps(&script.0) {
        Ok(Some((steps, other))) => {
            let (file, name) = (&script.0.name, other.name());
            let beside = script.0.line_of(other.setting.span.start);
            let detail = format!(
                "{at}: {} is {micro}, and {name} ({steps}, {file}, line {beside}) is set elsewhere too",
                slot.name()
            );
            Err(Some(RungGap::Batch { detail }))
        }
        Err(detail) => Err(Some(RungGap::Batch { detail })),
        Ok(None) => Err(no_accumulation(Some(script), format!("{} = {{}} ({at})", slot.name()), None, *micro)),
    }
}

/// A batch that stands in the script; accumulation there too, or by a flag.
fn by_source(place: &Place, accum: Option<&Flag>, effective: EffectiveBatch) -> Search {
    by_batch(place, hard_coded(&place.0), accum, effective)
}

fn by_batch(place: &Place, batch: SourceBatch, accum: Option<&Flag>, effective: EffectiveBatch) -> Search {
    let with_script = |slots, accum: Option<&Flag>, batch, names| {
        let words = accum.and_then(|accum| Template::read(&accum.with("{accum}")).ok());
        let choices = [Vec::new(), accum.map(|accum| accum.choices.clone()).unwrap_or_default()];
        let recipe = Recipe { words, choices, scripts: vec![Script::new(place, slots)], ..Recipe::default() };
        Ok(Found { recipe, batch, names })
    };
    match (batch, accum) {
        (SourceBatch::Absent, _) => Err(None),
        (SourceBatch::Unknown(detail), _) => Err(Some(RungGap::Batch { detail })),
        (SourceBatch::Both(HardCoded { micro, accum, slots: [one, other] }), None) => {
            let names = [&one, &other].map(|slot| slot.name().to_owned());
            let slots = vec![(BatchPart::Micro, one), (BatchPart::Accum, other)];
            with_script(slots, None, BatchSplit::new(micro, accum), Some(names))
        }
        (
            SourceBatch::Both(HardCoded { micro, slots: [slot, _], .. }) | SourceBatch::Alone { micro, slot },
            Some(accum),
        ) => {
            let names = [slot.name().to_owned(), accum.name.clone()];
            with_script(vec![(BatchPart::Micro, slot)], Some(accum), BatchSplit::new(micro, accum.number), Some(names))
        }
        (SourceBatch::Alone { micro, slot }, None) if effective == EffectiveBatch::MayShrink => {
            with_script(vec![(BatchPart::Micro, slot)], None, BatchSplit::new(micro, 1), None)
        }
        (SourceBatch::Alone { micro, slot }, None) => {
            let sign = if slot.setting.scope == Scope::Call { "=" } else { " = " };
            let line = place.0.line_of(slot.setting.span.start);
            Err(no_accumulation(Some(place), format!("{}{sign}{{}}", slot.name()), Some(line), micro))
        }
    }
}
