//! What `lowtide run` says of checkpoints: where a restart begins, what that does not restore, and what is kept safe.

use std::path::{Path, PathBuf};

use lowtide_keep::{Checkpoint, KeepError, Refuge, ResumeRule, Resumption};
use lowtide_trainers::{Beginning, ResumeCall};

use crate::output::{printable, shown};

/// What is said where a start could not resume.
pub(super) const UNRESUMABLE: &str = "the start that was to resume failed before its first step, for another reason than memory: \
                                      the next one begins at step 0";

/// Where a restart begins.
pub(super) fn origin(resumption: &Resumption, checkpoint: Option<&Checkpoint>) -> String {
    if let Some(checkpoint) = checkpoint {
        let step = checkpoint.step.map_or(String::new(), |step| format!(" at step {step}"));
        return format!("resumes from {}{step}", shown(&checkpoint.path));
    }
    match &resumption.rule {
        _ if resumption.beginning == Beginning::Resumes => "resumes as the command itself does".to_owned(),
        ResumeRule::Off => "begins at step 0 (--no-resume)".to_owned(),
        ResumeRule::Gap(_) => "begins at step 0".to_owned(),
        _ if resumption.patterns.is_empty() => "begins at step 0".to_owned(),
        ResumeRule::Own(_) | ResumeRule::Trainer { .. } | ResumeRule::Call(_) => {
            format!("begins at step 0 (this run wrote no whole {})", printable(&resumption.patterns.join(" or ")))
        }
    }
}

/// What else is to be known of it.
pub(super) fn remarks(resumption: &Resumption, checkpoint: Option<&Checkpoint>, damaged: &[PathBuf]) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(newest) = damaged.first() {
        let instead = if checkpoint.is_some() { ", and the one before it is taken" } else { "" };
        lines.push(format!("{} was cut short{instead}", shown(newest)));
    }
    match (&resumption.rule, checkpoint) {
        (ResumeRule::Trainer { caveat, .. } | ResumeRule::Call(ResumeCall { caveat, .. }), Some(_)) => {
            lines.push((*caveat).to_owned());
        }
        (ResumeRule::Gap(gap), _) if resumption.beginning != Beginning::Resumes => {
            lines.push(printable(&format!("it does not resume: {}; {}", gap.reason, gap.remedy)));
        }
        _ => {}
    }
    lines
}

/// What is said of a checkpoint that a start would write over.
pub(super) fn endangered(resumption: &Resumption, checkpoint: &Path, refuge: Result<&Refuge, &KeepError>) -> String {
    let there = shown(checkpoint);
    let place = match refuge {
        Ok(Refuge::Copy(copy)) => format!("it was copied to {}", shown(copy)),
        Ok(Refuge::Earlier(copy)) => format!("a copy of it is in {}", shown(copy)),
        Ok(Refuge::Moved(place)) => format!("there is no room for a copy, so it was moved to {}", shown(place)),
        Err(error) => return format!("warning: {there} may be written over, and cannot be copied: {error}"),
    };
    let words = resumption.template().map(|template| template.to_string().replace("{checkpoint}", &there));
    let instead = words.map_or(String::new(), |words| format!("; `{}` resumes from it instead", printable(&words)));
    format!("warning: the next start begins at step 0 and may write over {there}: {place}{instead}")
}

/// What a restart would do.
pub(super) fn rehearsal(resumption: &Resumption) -> String {
    let patterns = || printable(&resumption.patterns.join(" or "));
    match (&resumption.rule, resumption.template()) {
        (ResumeRule::Off, _) => "a restart begins at step 0 (--no-resume)".to_owned(),
        (ResumeRule::Gap(gap), _) => printable(&format!("a restart begins at step 0: {}; {}", gap.reason, gap.remedy)),
        (ResumeRule::Call(call), _) => {
            let call_text = printable(call.call.lines().next().unwrap_or_default());
            format!("a restart changes {call_text} to resume where this run wrote a whole {}", patterns())
        }
        (ResumeRule::Trainer { .. } | ResumeRule::Own(_), Some(template)) => {
            let template = printable(&template.to_string());
            format!("a restart adds {template} where this run wrote a whole {}", patterns())
        }
        (ResumeRule::Trainer { .. } | ResumeRule::Own(_), None) => {
            format!("a restart resumes by itself where this run wrote {}", patterns())
        }
    }
}
