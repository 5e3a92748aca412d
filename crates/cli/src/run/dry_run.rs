//! What `lowtide run` would do: the starts of a command, as text and as JSON.

use std::path::PathBuf;

use lowtide_core::counted;
use lowtide_keep::{CommandLadder, ConfigCopy, Copies, Launch};
use serde_json::{Value, json};

use crate::output::{Failure, printable, shown};
use crate::run::gap::gap_words;
use crate::run::memory::FirstRung;
use crate::run::narration::{command_line, copy_line, retries_line, setting};
use crate::run::resume;

/// The starts that a command may come to.
pub(crate) struct DryRun {
    folder: PathBuf,
    launches: Vec<Launch>,
    /// Micro-batches that are smaller than restarts are allowed.
    out_of_reach: usize,
    restarts: u32,
    max_restarts: u32,
    copies: Copies,
    first: Option<FirstRung>,
}

impl DryRun {
    pub(super) fn of(
        ladder: &CommandLadder,
        folder: PathBuf,
        max_restarts: u32,
        copies: Copies,
        first: Option<FirstRung>,
    ) -> Result<Self, Failure> {
        let rungs = ladder.rungs.len().max(1);
        let below = first.as_ref().map_or(0, |first| first.rung);
        let reached = rungs.min(below.saturating_add(max_restarts as usize).saturating_add(1));
        let launches = (0..reached).map(|rung| ladder.launch(rung, &folder, None)).collect::<Result<_, _>>()?;
        let restarts = if rungs > 1 || ladder.resumption.is_known() { max_restarts } else { 0 };
        Ok(Self { folder, launches, out_of_reach: rungs - reached, restarts, max_restarts, copies, first })
    }

    pub(crate) fn text(&self, ladder: &CommandLadder) -> String {
        let mut text = format!("{}\n", retries_line(ladder, self.max_restarts));
        if let Some(first) = &self.first {
            text.push_str(&format!("{}\n", first.greeting()));
        }
        for (name, value) in &ladder.environment {
            text.push_str(&format!("with {}\n", printable(&setting(name, value))));
        }
        let begins = self.first.as_ref().map_or(0, |first| first.rung);
        for (rung, launch) in self.launches.iter().enumerate().skip(begins) {
            let batch = ladder.rungs.get(rung).map_or(String::new(), |batch| format!("   # {batch}"));
            text.push_str(&format!("  {}{batch}\n", command_line(ladder, launch)));
            for copy in &launch.copies {
                text.push_str(&format!("    {}\n", copy_line(copy)));
            }
        }
        if self.restarts > 0 {
            text.push_str(&format!("{}\n", resume::rehearsal(&ladder.resumption)));
        }
        let mut endangered = ladder.resumption.endangered(None);
        endangered.extend(ladder.resumption.named(None, &endangered));
        if !endangered.is_empty() && self.copies == Copies::Made {
            let pronoun = if endangered.len() == 1 { "it" } else { "them" };
            let names = resume::listed(endangered.iter().map(PathBuf::as_path));
            text.push_str(&format!("{names} would be copied first: the first start may write over {pronoun}\n"));
        }
        let restarts = match (self.restarts, self.out_of_reach) {
            (0, 0) => "it is not started again".to_owned(),
            (restarts, 0) => format!("at most {}", counted(restarts.into(), "restart")),
            (restarts, rungs) => {
                let restarts = counted(restarts.into(), "restart");
                format!("at most {restarts}, which leaves out the {rungs} smallest (--max-restarts)")
            }
        };
        text.push_str(&format!("{restarts}; logs in {}/\n", shown(&self.folder)));
        text
    }

    pub(crate) fn json(&self, ladder: &CommandLadder) -> Value {
        let copied = |copy: &ConfigCopy| {
            json!({
                "path": copy.path, "original": copy.original, "changes": copy.changes, "text": copy.text,
            })
        };
        let starts = self.launches.iter().enumerate().map(|(rung, launch)| {
            json!({
                "rung": rung,
                "batch": ladder.rungs.get(rung),
                "command": launch.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>(),
                "environment": launch.environment.iter().map(|(name, value)| setting(name, value)).collect::<Vec<_>>(),
                "config_copy": launch.copies.first().map(copied),
                "further_copies": launch.copies.iter().skip(1).map(copied).collect::<Vec<_>>(),
            })
        });
        json!({
            "schema": lowtide_keep::SCHEMA,
            "preset": ladder.preset.map(|preset| preset.name()),
            "no_rungs_for": ladder.gap.as_ref().map(gap_words),
            "group": ladder.group,
            "effective_batch": ladder.effective_batch(),
            "max_restarts": self.restarts,
            "resume": ladder.resumption.is_known().then(|| json!({
                "with": ladder.resumption.template().map(ToString::to_string),
                "checkpoints": ladder.resumption.patterns(),
            })),
            "first_rung": self.first.as_ref().map_or(0, |first| first.rung),
            "starts": starts.collect::<Vec<_>>(),
        })
    }
}
