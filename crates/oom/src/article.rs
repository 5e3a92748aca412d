//! A page that explains an error, told from a post of somebody who met it: guides, articles, entries of a catalogue.
//!
//! Such a page shows the error with figures and all, so that no line of it gives it away; its headings do. One heading may
//! stand in anybody's post, so that several are asked for, and nothing that only a report has: a stack, the parts of a
//! tracker's form.

use crate::message::without_prefix;
use crate::phrase::has_any;
use crate::reference::has_any_word;

/// What is counted until a text is a page.
const ENOUGH: u32 = 3;
/// Longer lines are no headings.
const LONGEST_HEADING: usize = 90;

/// How headings of pages about errors begin; nobody heads a report so.
const HEADINGS: [&str; 20] = [
    "what this error means",
    "what does this error mean",
    "why it happens",
    "why this happens",
    "why does this happen",
    "common causes",
    "possible causes",
    "most likely causes",
    "most common causes",
    "causes & fixes",
    "causes and fixes",
    "causes and solutions",
    "common symptoms",
    "common workarounds",
    "common dead ends",
    "quick fix",
    "step-by-step fix",
    "what you will learn",
    "what you'll learn",
    "key takeaways",
];
/// The same, where reports may have them too.
const WEAK_HEADINGS: [&str; 11] = [
    "introduction",
    "symptoms",
    "causes",
    "root cause",
    "solutions",
    "solution 1",
    "workarounds",
    "prevention",
    "how to fix",
    "understanding ",
    "troubleshoot ",
];
/// What pages say of themselves, and how they are called.
const SAYINGS: [&str; 15] = [
    "this article",
    "this guide",
    "this tutorial",
    "this blog post",
    "we will cover",
    "we'll cover",
    " min read",
    "step-by-step guide",
    "troubleshooting guide",
    "comprehensive guide",
    "causes and fixes",
    "causes and solutions",
    "common causes",
    "the dreaded",
    "let's dive",
];
/// What an error is said to be.
const DEFINES: [&str; 6] =
    [" means ", " signifies ", " indicates that ", " refers to ", " occurs when ", " happens when "];
/// What is defined, before that.
const DEFINED: [&str; 6] =
    ["oomkilled", "out of memory", "out-of-memory", "outofmemory", "memoryerror", "exit code 137"];
/// What the reader is to put in.
const PLACEHOLDERS: [&str; 4] = ["<pod-name>", "<pod_name>", "<your-", "<your_"];
/// Numbered ways out.
const NUMBERED: [&str; 4] = ["fix 1", "fix #1", "solution 1", "method 1"];
/// What only reports have: stacks, and the parts of a tracker's form.
const REPORTS: [&str; 3] = ["Traceback (most recent call last)", "  File \"", "frame #0"];
const FORM: &str = "reproduce reproduction environment version versions expected logs checklist";
/// How people tell of an error of their own.
const OWN: [&str; 10] = [
    "i get ",
    "i got ",
    "i'm getting ",
    "i am getting ",
    "i keep getting ",
    "i'm trying ",
    "i am trying ",
    "my gpu ",
    "my code ",
    "please help",
];
/// Keys of a catalogue of errors.
const CATALOGUE: [&str; 4] = ["\"signature\"", "\"regex\"", "\"root_cause\"", "\"workarounds\""];

/// Whether a post is a page that explains errors in general.
#[must_use]
pub fn is_article(post: &str) -> bool {
    if CATALOGUE.iter().filter(|key| post.contains(*key)).count() > 1 {
        return true;
    }
    if has_any(post, &REPORTS) {
        return false;
    }
    let mut score = 0;
    let mut seen = Vec::new();
    let mut count = |word: &'static str, weight: u32| {
        if !seen.contains(&word) {
            seen.push(word);
            score += weight;
        }
    };
    for line in post.lines() {
        let line = without_prefix(line);
        let lower = line.to_lowercase();
        if has_any(&lower, &OWN) {
            return false;
        }
        SAYINGS.iter().filter(|words| lower.contains(*words)).for_each(|words| count(words, 2));
        if defines(&lower) {
            count("a definition", 2);
        }
        if has_any(&lower, &PLACEHOLDERS) {
            count("a placeholder", 2);
        }
        let heading = lower.trim_start_matches(|c: char| !c.is_alphanumeric());
        // `Root cause: ` may have a sentence behind it.
        let length = heading.find(':').unwrap_or(heading.len());
        if heading.is_empty() || length > LONGEST_HEADING {
            continue;
        }
        if line.starts_with('#') && has_any_word(heading, FORM) {
            return false;
        }
        HEADINGS.iter().filter(|words| heading.starts_with(*words)).for_each(|words| count(words, 2));
        if heading.starts_with("what ")
            && heading.trim_end().rsplit(' ').next().is_some_and(|word| matches!(word, "means" | "mean" | "mean?"))
        {
            count("what it means", 2);
        }
        NUMBERED.iter().filter(|words| heading.starts_with(*words)).for_each(|words| count(words, 2));
        // A question is somebody's own.
        let is_asked = heading.trim_end().ends_with('?');
        WEAK_HEADINGS.iter().filter(|words| heading.starts_with(*words) && !is_asked).for_each(|words| count(words, 1));
    }
    score >= ENOUGH
}

/// `OOMKilled (exit code 137) means the kernel ended it`
pub(crate) fn defines(lower: &str) -> bool {
    DEFINES.iter().filter_map(|word| lower.find(word)).any(|at| has_any(&lower[..at], &DEFINED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_known_by_their_headings() {
        for page in [
            "CUDA OOM: Causes and Fixes\n6 min read\nRuntimeError: CUDA out of memory.\n",
            "What this error means\nThe card is full.\nRuntimeError: CUDA out of memory.\nQUICK FIX\nA smaller batch.\n",
            "## Symptoms\nMemoryError\n## Causes\n- too much data\n## Solutions\n",
            "{\"signature\": \"CUDA out of memory\", \"regex\": \"CUDA.*memory\"}\n",
        ] {
            assert!(is_article(page), "{page}");
        }
    }

    #[test]
    fn a_report_may_have_a_heading() {
        for post in [
            "### Quick fix needed\nRuntimeError: CUDA out of memory.\n",
            "How to fix this error?\nRuntimeError: CUDA out of memory.\n",
            "## Symptoms\nKilled\n## Root cause\nthe cache\n## Environment\nUbuntu\n## Solutions\n",
            "I followed this guide and got\nTraceback (most recent call last):\n  File \"t.py\", line 3\nMemoryError\nCommon causes were tried\n",
            "step 7\nRuntimeError: CUDA out of memory.\n",
            "I am trying to train and get\nRuntimeError: CUDA out of memory.\nCommon causes\nSolution 1: a smaller batch\n",
        ] {
            assert!(!is_article(post), "{post}");
        }
    }
}
