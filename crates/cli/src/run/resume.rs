//! What `lowtide run` says of checkpoints: where a restart begins, what that does not restore, and what is kept safe.

use std::env;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lowtide_core::Bytes;
use lowtide_keep::{Checkpoint, KeptCheckpoint, Refuge, ResumeRule, Resumption};
use lowtide_trainers::{Beginning, ResumeCall};

use crate::output::{printable, shown};

/// How many checkpoints are named, one by one.
const NAMED: usize = 8;

/// What is said where a start could not resume.
pub(super) fn unresumable(instead: Option<&Checkpoint>) -> String {
    let next = instead.map_or("begins at step 0".to_owned(), |it| format!("resumes from {}", shown(&it.path)));
    format!(
        "the start that was to resume failed before its first step, for another reason than memory: the next one {next}"
    )
}

/// Names of files, not too many of them.
pub(super) fn listed<'a>(paths: impl ExactSizeIterator<Item = &'a Path>) -> String {
    let more = paths.len().saturating_sub(NAMED);
    let mut names: Vec<String> = paths.take(NAMED).map(shown).collect();
    if more > 0 {
        return format!("{} and {more} more", names.join(", "));
    }
    let last = names.pop().unwrap_or_default();
    if names.is_empty() { last } else { format!("{} and {last}", names.join(", ")) }
}

/// Where a restart begins.
pub(super) fn origin(
    resumption: &Resumption,
    checkpoint: Option<&Checkpoint>,
    refused: &[Checkpoint],
    unclear: &[PathBuf],
) -> String {
    if let Some(checkpoint) = checkpoint {
        let step = checkpoint.step.map_or(String::new(), |step| format!(" at step {step}"));
        return format!("resumes from {}{step}", shown(&checkpoint.path));
    }
    match &resumption.rule {
        _ if resumption.beginning == Beginning::Resumes => match resumption.newest() {
            Some((newest, written)) => {
                let whose = if resumption.is_known() { "; this run wrote none" } else { "" };
                let (newest, age) = (shown(&newest), age(written));
                format!("resumes as the command itself does (newest there: {newest}, written {age} ago{whose})")
            }
            None => "resumes as the command itself does".to_owned(),
        },
        ResumeRule::Off => "begins at step 0 (--no-resume)".to_owned(),
        ResumeRule::Gap(_) => "begins at step 0".to_owned(),
        _ if resumption.patterns().is_empty() => "begins at step 0".to_owned(),
        _ if !unclear.is_empty() => {
            let here = env::current_dir().and_then(|here| here.canonicalize()).unwrap_or_default();
            let names = listed(unclear.iter().map(|folder| folder.strip_prefix(&here).unwrap_or(folder)));
            format!("begins at step 0 ({names} are new, and which of them is this run's is not known)")
        }
        _ if !refused.is_empty() => {
            let names = listed(refused.iter().map(|it| it.path.as_path()));
            format!("begins at step 0 (it does not resume from {names})")
        }
        ResumeRule::Own(_) | ResumeRule::Trainer { .. } | ResumeRule::Call(_) => {
            format!("begins at step 0 (this run wrote no whole {})", printable(&resumption.patterns().join(" or ")))
        }
    }
}

/// How long ago something was written, in the unit that people would take.
fn age(written: SystemTime) -> String {
    let seconds = written.elapsed().unwrap_or_default().as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} minutes", seconds / 60),
        7200..172_800 => format!("{} hours", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// What else is to be known of it.
pub(super) fn remarks(resumption: &Resumption, checkpoint: Option<&Checkpoint>, damaged: &[PathBuf]) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(newest) = damaged.first() {
        let instead = if checkpoint.is_some() { ", and the one before it is taken" } else { "" };
        lines.push(format!("{} was cut short or is damaged{instead}", shown(newest)));
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

/// What is said of checkpoints that a start may write over.
pub(super) fn endangered(
    resumption: &Resumption,
    kept: &[KeptCheckpoint],
    resumed_from: Option<&Checkpoint>,
) -> String {
    let mut lines: Vec<String> = Vec::new();
    for group in kept.chunk_by(|one, other| place(one) == place(other)) {
        lines.push(safety(group, resumed_from));
    }
    let newest = kept.iter().find(|it| it.is_whole && resumed_from.is_none());
    let words = newest.zip(resumption.template()).map(|(it, template)| {
        let from = match &it.refuge {
            Ok(Refuge::Moved(place) | Refuge::Aside(place)) => place,
            _ => &it.checkpoint,
        };
        template.to_string().replace("{checkpoint}", &shown(from))
    });
    if let (Some(words), Some(last)) = (words, lines.last_mut()) {
        let place = newest.map_or(String::new(), |it| shown(&it.checkpoint));
        let from = if kept.len() == 1 { "it".to_owned() } else { place };
        last.push_str(&format!("; `{}` resumes from {from} instead", printable(&words)));
    }
    lines.join("\n")
}

/// How a checkpoint was kept, and in which folder.
fn place(kept: &KeptCheckpoint) -> Option<(std::mem::Discriminant<Refuge>, Option<&Path>)> {
    let refuge = kept.refuge.as_ref().ok()?;
    let (Refuge::Copy(path) | Refuge::Moved(path) | Refuge::Aside(path) | Refuge::Earlier(path)) = refuge;
    Some((std::mem::discriminant(refuge), path.parent()))
}

/// Where checkpoints are safe that were kept in the same way.
fn safety(group: &[KeptCheckpoint], resumed_from: Option<&Checkpoint>) -> String {
    let names = listed(group.iter().map(|it| it.checkpoint.as_path()));
    let size = Bytes(group.iter().map(|it| it.size.0).sum());
    let is_one = group.len() == 1;
    let (they_were, them, each) = if is_one { ("it was", "it", "a copy") } else { ("they were", "them", "copies") };
    // One is named whole, and several by the folder that they are in.
    let there = |path: &Path| match is_one {
        true => shown(path),
        false => format!("{}/", shown(path.parent().unwrap_or(path))),
    };
    let place = match group[0].refuge.as_ref() {
        Ok(Refuge::Copy(copy)) => format!("{they_were} copied to {} ({size} of disk)", there(copy)),
        Ok(Refuge::Earlier(copy)) if is_one => format!("{each} of {them} is in {}", there(copy)),
        Ok(Refuge::Earlier(copy)) => format!("{each} of {them} are in {}", there(copy)),
        Ok(Refuge::Moved(path)) => {
            format!("there is no room for {each} ({size}), so {they_were} moved to {}", there(path))
        }
        Ok(Refuge::Aside(path)) => {
            return format!("{names} cannot be resumed from, and {they_were} moved to {}", there(path));
        }
        Err(error) => return format!("warning: {names} may be written over, and cannot be copied: {error}"),
    };
    match resumed_from {
        None => format!("warning: the next start begins at step 0 and may write over {names}: {place}"),
        Some(from) => format!("the next start resumes from {} and may write over {names}: {place}", shown(&from.path)),
    }
}

/// What a restart would do.
pub(super) fn rehearsal(resumption: &Resumption) -> String {
    let patterns = || printable(&resumption.patterns().join(" or "));
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
