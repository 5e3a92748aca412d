//! The call in a script that begins the training, and what makes it resume from a checkpoint.

/// The one call that begins the training, which takes a checkpoint by a keyword that it does not have yet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResumeCall {
    /// The call as it stands in the script.
    pub call: String,
    /// The keyword.
    pub keyword: &'static str,
    /// What is other than it would have been without the stop.
    pub caveat: &'static str,
}

impl ResumeCall {
    /// Finds the one call of a trainer's method, such as `.train(`.
    pub(crate) fn find(script: &str, method: &str, keyword: &'static str, caveat: &'static str) -> Option<Self> {
        let mut calls = script.match_indices(method).filter_map(|(at, _)| {
            let start = receiver(&script[..at])?;
            let end = closing(&script[at + method.len()..])? + at + method.len();
            Some(&script[start..=end])
        });
        let call = calls.next().filter(|call| !call.contains(keyword))?;
        (calls.next().is_none() && script.matches(call).count() == 1).then(|| Self {
            call: call.to_owned(),
            keyword,
            caveat,
        })
    }

    /// A text of the script in which the call resumes; `None` where the call is not in it, or the path is no plain text.
    #[must_use]
    pub fn applied(&self, script: &str, checkpoint: &str) -> Option<String> {
        if script.matches(&self.call).count() != 1 || checkpoint.chars().any(char::is_control) {
            return None;
        }
        let open = self.call.strip_suffix(')')?;
        let comma = if open.trim_end().ends_with(['(', ',']) { "" } else { ", " };
        let path = checkpoint.replace('\\', "\\\\").replace('\'', "\\'");
        Some(script.replace(&self.call, &format!("{open}{comma}{}='{path}')", self.keyword)))
    }
}

/// Where the name of a trainer begins that a text ends with: `trainer`, `self.trainer`; other things are trained too, such as
/// `model.train()`.
fn receiver(before: &str) -> Option<usize> {
    let line = before.rfind('\n').map_or(0, |at| at + 1);
    if before[line..].trim_start().starts_with('#') {
        return None;
    }
    let start = before.rfind(|it: char| !it.is_alphanumeric() && it != '_' && it != '.').map_or(0, |at| at + 1);
    let start = start.max(line);
    before[start..].rsplit('.').next()?.to_ascii_lowercase().contains("trainer").then_some(start)
}

/// Where the bracket closes that was opened before a text.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0_usize, None);
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')') if depth == 0 => return Some(at),
            (None, ')' | ']' | '}') => depth = depth.checked_sub(1)?,
            // It may have brackets of its own.
            (None, '#') => return None,
            (None, _) => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resumed(script: &str) -> Option<String> {
        let call = ResumeCall::find(script, ".train(", "resume_from_checkpoint", "")?;
        call.applied(script, "/runs/it's/checkpoint-5")
    }

    #[test]
    fn the_one_call_gets_a_checkpoint() {
        let keyword = "resume_from_checkpoint='/runs/it\\'s/checkpoint-5'";
        for (script, expected) in [
            ("model.train()\ntrainer.train()\n", format!("model.train()\ntrainer.train({keyword})\n")),
            (
                "r = self.trainer.train(\n    trial=f(1),\n)\n",
                format!("r = self.trainer.train(\n    trial=f(1),\n{keyword})\n"),
            ),
            ("sft_trainer.train(trial=')')", format!("sft_trainer.train(trial=')', {keyword})")),
        ] {
            assert_eq!(resumed(script), Some(expected), "{script}");
        }
        for script in [
            "model.train()\n",
            "# trainer.train()\n",
            "trainer.train()\ntrainer.train()\n",
            "trainer.train(resume_from_checkpoint=True)\n",
            "trainer.train(",
            "trainer.train(  # ( \n)",
        ] {
            assert_eq!(resumed(script), None, "{script}");
        }
    }
}
