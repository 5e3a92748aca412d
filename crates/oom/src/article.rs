//! A page that explains an error, told from a post of somebody who met it: guides, articles, entries of a catalogue.
//!
//! Such a page shows the error with figures and all, so that no line of it gives it away; its headings do. One heading may
//! stand in anybody's post, so that several are asked for, and nothing that only a report has: a stack, the parts of a
//! tracker's form. A change or a proposal is known by its title, which begins as no report's does.

use crate::family;
use crate::last_resort::{OWN_IN_CHINESE, is_of_oneself};
use crate::message::{Message, without_prefix};
use crate::phrase::{has_any, has_any_word, has_word};

/// How much a post reads like a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PageLikeness {
    /// Somebody's own error, or a log.
    Report,
    /// Sentences in which nobody tells of himself, beside an error without its stack, or a sign of a page: it may be quoted.
    Perhaps,
    /// A page that explains errors in general, or a change or a proposal that speaks of them.
    Page,
}

/// What is counted until a text is a page.
const ENOUGH: u32 = 3;
/// Longer lines are no headings.
const LONGEST_HEADING: usize = 90;

/// How headings of pages about errors begin; nobody heads a report so.
const HEADINGS: [&str; 24] = [
    "example errors",
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
    "why this matters",
    "why it matters",
    "what it means",
];
/// The same, where reports may have them too.
const WEAK_HEADINGS: [&str; 13] = [
    "overview",
    "problem description",
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
/// Headings in Chinese, which may have a number before them.
const CHINESE_HEADINGS: [&str; 12] = [
    "问题背景",
    "问题分析",
    "原因分析",
    "根本原因",
    "常见原因",
    "可能原因",
    "常见错误",
    "错误信息",
    "解决方案",
    "解决方法",
    "预防措施",
    "总结",
];
/// Numbers of such headings, and of the ways out that they name.
const CHINESE_NUMBERS: &str = "一二三四五六七八九十";
/// What such pages say of themselves.
const CHINESE_SAYINGS: [&str; 6] = ["个人笔记", "本文", "下面介绍", "报错解决", "解决方案汇总", "解决方法汇总"];
/// Parts of a tracker's form in Chinese.
const FORM_IN_CHINESE: [&str; 6] = ["环境", "复现", "版本", "期望", "日志", "问题描述"];
/// What pages say of themselves, and how they are called.
const SAYINGS: [&str; 23] = [
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
    // The same in Spanish.
    "el artículo",
    "este artículo",
    "esta guía",
    "este tutorial",
    "esta entrada",
    "min de lectura",
    "ejemplo típico",
    "causas comunes",
];
/// What an error is said to be.
const DEFINES: [&str; 8] = [
    " means ",
    " signifies ",
    " indicates that ",
    " refers to ",
    " occurs when ",
    " happens when ",
    " is short for ",
    " stands for ",
];
/// What is defined, before that.
const DEFINED: [&str; 6] =
    ["oomkilled", "out of memory", "out-of-memory", "outofmemory", "memoryerror", "exit code 137"];
/// What the reader is to put in.
const PLACEHOLDERS: [&str; 11] = [
    "<pod-name>",
    "<pod_name>",
    "<your-",
    "<your_",
    "(pid ****)",
    "(pid ...)",
    "(pid xxx",
    "to allocate xxx ",
    "to allocate x gib",
    "to allocate x mib",
    "to allocate ...",
];
/// What somebody proposes.
const PROPOSES: [&str; 3] = ["i propose ", "i would propose ", "i'd propose "];
/// What is asked of a change that is planned.
const PLAN: &str = "acceptance criteria";
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
/// How titles of changes to documents and of proposals begin.
const PROPOSALS: [&str; 8] =
    ["[doc]", "[docs]", "[documentation]", "[rfc]", "[proposal]", "[feature]", "[feature request]", "[enhancement]"];
/// What a change is of, before a colon, with or without the part that it changes in parentheses. Logs begin so, too (`test: `), so
/// that their titles have to speak of memory.
const CHANGES: [&str; 10] =
    ["fix", "feat", "docs", "perf", "refactor", "chore", "test", "ci", "feature", "feature request"];
/// How a change is told to be made, in its title.
const IMPERATIVES: &str = "add allow avoid catch clarify describe document explain extend handle implement improve include indicate \
    introduce make mention move print provide raise recommend refactor remove rename report show support update warn";
/// What a message has, and no title.
const FIGURES: [&str; 3] = ["tried to allocate", "gib", "mib"];
/// Keys of a catalogue of errors.
const CATALOGUE: [&str; 4] = ["\"signature\"", "\"regex\"", "\"root_cause\"", "\"workarounds\""];

/// How much a post reads like a page that explains errors in general, or like a change or a proposal that speaks of them.
#[must_use]
pub fn page_likeness(post: &str) -> PageLikeness {
    if CATALOGUE.iter().filter(|key| post.contains(*key)).count() > 1 {
        return PageLikeness::Page;
    }
    let title = post.lines().map(without_prefix).find(|line| !line.trim().is_empty()).unwrap_or_default();
    let is_titled = is_title_of_change(title);
    if has_any(post, &REPORTS) {
        return if is_titled { PageLikeness::Perhaps } else { PageLikeness::Report };
    }
    if is_titled {
        // Who proposes something quotes the error that it is about.
        let is_raised = |line: &str| !is_proposal(title) && is_raised(line);
        let is_own = post.lines().any(|line| has_any(&line.to_lowercase(), &OWN) || is_raised(line));
        return if is_own { PageLikeness::Perhaps } else { PageLikeness::Page };
    }
    match headings(post) {
        Some(score) if score >= ENOUGH => PageLikeness::Page,
        Some(1..) => PageLikeness::Perhaps,
        Some(_) if is_impersonal(post) => PageLikeness::Perhaps,
        _ => PageLikeness::Report,
    }
}

/// `RuntimeError: CUDA out of memory.`: a line that is an error by its class.
fn is_raised(line: &str) -> bool {
    let class = without_prefix(line).split_once(": ").map_or("", |(class, _)| class);
    class.ends_with("Error") && class.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_'))
}

/// Whether a post has sentences, and nobody in them tells of himself.
fn is_impersonal(post: &str) -> bool {
    let ends = [". ", "? ", "! ", ": ", "。", "？", "！"];
    let pieces = without_messages(post).into_iter().flat_map(|line| {
        let ended = ends.iter().fold(line.to_owned(), |line, end| line.replace(end, "\n"));
        ended.split('\n').map(str::to_owned).collect::<Vec<_>>()
    });
    pieces.filter(|piece| is_sentence(piece)).nth(1).is_some() && !is_of_oneself(post)
}

/// The lines of a post but for those of messages: who runs out of memory may say so, and what to do, in whole sentences.
fn without_messages(post: &str) -> Vec<&str> {
    let mut left = Vec::new();
    let mut is_within = false;
    let mut rest = post;
    while !rest.is_empty() {
        let (line, below) = rest.split_once('\n').unwrap_or((rest, ""));
        rest = below;
        let begins = || family::read(&Message::new(line.as_bytes(), below.as_bytes())).is_some();
        is_within = !line.trim().is_empty() && (is_within || begins());
        if !is_within {
            left.push(line);
        }
        // A message that a terminal broke goes on where its sentence does.
        is_within &= !line.trim_end().ends_with(['.', '!', '?', '。', ')', ':']);
    }
    left
}

/// Words that every sentence is held together by; lines of logs have few.
const JOINTS: &str = "the a an is are was has have to of and or that this it in for with by as on at from if when not";
/// The least number of words of a sentence, and of such joints in it.
const SHORTEST_SENTENCE: (usize, usize) = (6, 3);
/// The same in Chinese characters.
const SHORTEST_IN_CHINESE: usize = 8;

fn is_sentence(line: &str) -> bool {
    let is_chinese = |c: &char| ('\u{4e00}'..='\u{9fff}').contains(c);
    if line.chars().any(|c| is_chinese(&c)) {
        return line.chars().filter(is_chinese).count() >= SHORTEST_IN_CHINESE;
    }
    let joints = line.split_whitespace().filter(|word| has_any_word(word, JOINTS)).count();
    line.split_whitespace().count() >= SHORTEST_SENTENCE.0 && joints >= SHORTEST_SENTENCE.1
}

/// What the headings and sayings of a page come to; `None` for a report, which says so.
fn headings(post: &str) -> Option<u32> {
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
        if has_any(&lower, &OWN) || has_any(line, &OWN_IN_CHINESE) {
            return None;
        }
        CHINESE_SAYINGS.iter().filter(|words| line.contains(*words)).for_each(|words| count(words, 2));
        SAYINGS.iter().filter(|words| lower.contains(*words)).for_each(|words| count(words, 2));
        if defines(&lower) {
            count("a definition", 2);
        }
        if promises_ways(&lower) {
            count("ways", 2);
        }
        if has_any(&lower, &PROPOSES) {
            count("a proposal", ENOUGH);
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
        if line.starts_with('#') && (has_any_word(heading, FORM) || has_any(heading, &FORM_IN_CHINESE)) {
            return None;
        }
        let behind_number =
            heading.trim_start_matches(|c| CHINESE_NUMBERS.contains(c)).trim_start_matches(['、', '.', ' ']);
        CHINESE_HEADINGS.iter().filter(|words| behind_number.starts_with(*words)).for_each(|words| count(words, 1));
        if heading.strip_prefix("方法").is_some_and(|rest| rest.starts_with(|c| CHINESE_NUMBERS.contains(c))) {
            count("a numbered way", 2);
        }
        if heading.starts_with(PLAN) {
            count(PLAN, ENOUGH);
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
    Some(score)
}

/// `[Doc] Tell what to do on OOM`, `fix(pt): take a failed allocation for OOM`
fn is_title_of_change(title: &str) -> bool {
    let lower = title.trim_start_matches(['#', ' ', '*']).to_lowercase();
    if is_proposal(title) || title.starts_with('#') && is_imperative(title) && of_memory(&lower) {
        return true;
    }
    let Some((kind, rest)) = lower.split_once(": ") else { return false };
    let kind = kind.trim_end_matches('*');
    let (name, part) = kind.split_once('(').map_or((kind, None), |(name, part)| (name, Some(part)));
    let is_part = part.is_none_or(|part| part.trim_end_matches('!').ends_with(')'));
    let is_change = is_part && CHANGES.contains(&name.trim_end_matches('!'));
    is_change && of_memory(rest)
}

/// `[Feature] a message that says more`
fn is_proposal(title: &str) -> bool {
    let lower = title.trim_start_matches(['#', ' ', '*']).to_lowercase();
    PROPOSALS.iter().any(|words| lower.starts_with(words))
}

fn of_memory(title: &str) -> bool {
    has_any(title, &["memory", "oom"]) && !has_any(title, &FIGURES)
}

/// By which a title tells what happened, or asks for help.
const HAPPENING: &str = "leads led gives gave causes caused throws threw raises raised results fails failed crashes crashed goes went needed";

/// `Update README.md to fix shared memory exhaustion`, `Show the size when an array gives a MemoryError`: what somebody wants done.
pub(crate) fn is_imperative(title: &str) -> bool {
    let title = title.trim_start_matches(['#', ' ', '*', '>']);
    let (word, rest) = title.split_once(' ').unwrap_or((title, ""));
    // `Report: OOM while tuning`, `Update to 2.1 leads to it`, `Add LoRA -> OOM`, `Support needed`
    let is_name = word.ends_with(':')
        || rest.strip_prefix("to ").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        || has_any(rest, &["->", "=>", "\u{2192}"])
        || has_any_word(rest, HAPPENING) && !has_any_word(rest, "when where if that which");
    !is_name && word.starts_with(|c: char| c.is_uppercase()) && has_any_word(word, IMPERATIVES)
}

/// `10 fixes for it`, `five ways to free memory`, `siete arreglos`
fn promises_ways(lower: &str) -> bool {
    const NUMBERS: &str =
        "two three four five six seven eight nine ten dos tres cuatro cinco seis siete ocho nueve diez";
    const WAYS: &str = "fixes ways solutions tips methods arreglos formas maneras soluciones consejos métodos";
    let words: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    words.windows(2).any(|pair| {
        let is_number = pair[0].len() < 3 && pair[0].bytes().all(|byte| byte.is_ascii_digit());
        (is_number || has_any_word(pair[0], NUMBERS)) && WAYS.split(' ').any(|word| word == pair[1])
    })
}

/// `OOMKilled (exit code 137) means the kernel ended it`
pub(crate) fn defines(lower: &str) -> bool {
    let is_defined = |head: &str| has_any(head, &DEFINED) || has_word(head, "oom");
    DEFINES.iter().filter_map(|word| lower.find(word)).any(|at| is_defined(&lower[..at]))
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
            "A common error, and 10 fixes for it.\nUnderstanding the error\nRuntimeError: CUDA out of memory.\n1. Reduce the batch\n",
            "Overview\nDataLoader worker (pid ...) is killed by signal: Killed.\n",
            "Problem description\nJobs run out of memory.\nExample errors\nslurmstepd: error: Detected 1 oom-kill event(s)\n",
            "Report the OOM-kill\nAcceptance Criteria\n- an OOM-killed job reports OutOfMemory\n",
            "（个人笔记）\nDataLoader worker (pid ****) is killed by signal: Killed.\n",
            "一、问题背景\nRuntimeError: CUDA out of memory.\n二、解决方案\n方法一：减小批量\n",
            "# Update README.md to fix shared memory exhaustion\nThe DataLoader crashed with a bus error: insufficient shared memory (shm).\n",
            "# Add a guard against CUDA out of memory\nSo far the loop ends there.\n",
            "Error «CUDA out of memory»: siete arreglos\nEjemplo típico del error:\nError: CUDA out of memory.\n",
            "[Doc] Tell what to do on OOM\nA lower share may end in `CUDA out of memory`.\n",
            "fix(data): take `CUDA out of memory` for what it is\nSo far it was raised.\n",
        ] {
            assert_eq!(page_likeness(page), PageLikeness::Page, "{page}");
        }
    }

    #[test]
    fn a_report_may_have_a_heading() {
        for post in [
            "# Update to 2.1 leads to CUDA out of memory\nAfter the update my script fails:\nRuntimeError: CUDA out of memory.\n",
            "# Report: OOM while finetuning\nRuntimeError: CUDA out of memory.\n",
            "### Quick fix needed\nRuntimeError: CUDA out of memory.\n",
            "How to fix this error?\nRuntimeError: CUDA out of memory.\n",
            "## Symptoms\nKilled\n## Root cause\nthe cache\n## Environment\nUbuntu\n## Solutions\n",
            "I followed this guide and got\nTraceback (most recent call last):\n  File \"t.py\", line 3\nMemoryError\nCommon causes were tried\n",
            "step 7\nRuntimeError: CUDA out of memory.\n",
            "The headroom means little.\nRuntimeError: CUDA out of memory.\n",
            "test: 12 samples\nRuntimeError: CUDA out of memory.\n",
            "test: CUDA out of memory. Tried to allocate 20.00 MiB\n",
            "# Make it fit, CUDA out of memory\nI get this with a batch of 8:\nRuntimeError: CUDA out of memory.\n",
            "# make: CUDA out of memory\nRuntimeError: CUDA out of memory.\n",
            "feature: resnet50\nRuntimeError: CUDA out of memory.\n",
            "## 环境\ntorch 2.1\n## 错误信息\nCUDA out of memory\n## 解决方案\n## 总结\n",
            "训练时显存不足，请问怎么办\nRuntimeError: CUDA out of memory.\n原因分析\n解决方案\n总结\n",
            "[Bug] CUDA out of memory while it loads\nRuntimeError: CUDA out of memory.\n",
            "fix: i get RuntimeError: CUDA out of memory with the last one\n",
            "I am trying to train and get\nRuntimeError: CUDA out of memory.\nCommon causes\nSolution 1: a smaller batch\n",
        ] {
            assert_ne!(page_likeness(post), PageLikeness::Page, "{post}");
        }
    }

    #[test]
    fn what_may_be_quoted_is_told() {
        for post in [
            "The loader is often to blame when the memory of a node is gone.\nIt is then that the system ends it:\nMemoryError\n",
            "Symptoms\nRuntimeError: CUDA out of memory.\n",
            "[feature request] Catch it\nI get this for now:\nRuntimeError: CUDA out of memory.\n",
            "显存不够的时候程序会停下来\nRuntimeError: CUDA out of memory.\n批量太大时显存不够\n",
        ] {
            assert_eq!(page_likeness(post), PageLikeness::Perhaps, "{post}");
        }
        for post in [
            "RuntimeError: CUDA out of memory.\n",
            "I train on the card of a friend, and it is not large.\nThis is all that it says to me:\nRuntimeError: CUDA out of memory.\n",
            "INFO the model is loaded from the disk and ready\nINFO the model is on the card and the data in memory\n\
             Traceback (most recent call last):\nRuntimeError: CUDA out of memory.\n",
            "step 7 loss 2.31\nstep 8 loss 2.30\nRuntimeError: CUDA out of memory.\n",
            "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node (IP: \
             10.0.0.5) where the task was running was 59.91GB / 62.80GB. Ray killed this worker because it was the most recent\n",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of \
             which 1.00 GiB is free. If reserved memory is large try the setting to avoid what is in pieces.\n",
        ] {
            assert_eq!(page_likeness(post), PageLikeness::Report, "{post}");
        }
    }
}
