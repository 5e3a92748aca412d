//! Frames of a Python traceback, in the forms people have in their logs.

use crate::line::{split_rank, without_colours, without_margin};
use crate::traceback::TRACEBACK_HEADER;

/// The most frames that are kept; the innermost count.
const MOST: usize = 96;
/// How much is kept of a path or a name, and of a line of code.
const LONGEST_NAME: usize = 300;
const LONGEST_CODE: usize = 400;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StackFrame {
    /// Path of the source file.
    pub file: String,
    /// Line of the source file, where it is named.
    pub line: Option<u64>,
    /// Name of the function.
    pub function: String,
    /// The quoted line of code, empty where there is none.
    pub code: String,
}

impl StackFrame {
    /// Name of the source file without its folder.
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.file.rsplit(['/', '\\']).next().unwrap_or_default()
    }
}

/// The frames of the last traceback in a text that ends where the error stands, outermost first.
#[must_use]
pub fn frames(text: &str) -> Vec<StackFrame> {
    let text = without_colours(text.as_bytes());
    let text = String::from_utf8_lossy(&text);
    let start = text.rfind(TRACEBACK_HEADER).unwrap_or(0);
    let (rank, _) = split_rank(text[..start].rsplit('\n').next().unwrap_or_default());
    let mut frames: Vec<StackFrame> = Vec::new();
    let mut margin = "";
    let mut is_indented = false;
    for line in text[start..].lines() {
        let (mark, line) = split_rank(line.trim_end());
        if mark != rank && !rank.is_empty() {
            continue;
        }
        // A box has something before it where somebody collected the lines.
        let line = line.find('│').filter(|_| line.ends_with('│')).map_or(line, |at| &line[at..]);
        let full = without_margin(line, margin).unwrap_or(line);
        let line = full.trim_start_matches(['│', '|', ' ', '\t']);
        let (prefix, framed) = line.find("File \"").filter(|at| *at > 0).map_or(("", line), |at| line.split_at(at));
        if let Some(frame) = head(framed) {
            if frames.len() == MOST {
                frames.remove(0);
            }
            frames.push(frame);
            is_indented = prefix.is_empty() && full.starts_with("  ");
            // What a logger puts before every line.
            if !prefix.is_empty() {
                margin = prefix.trim_end();
            }
        } else if let (Some(last), Some(code)) = (frames.last_mut(), pointed_at(line)) {
            last.code = cut(code, LONGEST_CODE);
        } else if let Some(last) = frames.last_mut()
            && last.code.is_empty()
            && !line.starts_with(['^', '~'])
            // Code is indented where its frame is: any other line is of another stream, and came in between.
            && (!is_indented || full.starts_with([' ', '\t']))
        {
            last.code = cut(line, LONGEST_CODE);
        }
    }
    if frames.is_empty() {
        frames.extend(code_alone(&text));
    }
    frames
}

/// The line of code that a post has left of a traceback: an arrow's, or an indented call right above the error.
fn code_alone(text: &str) -> Option<StackFrame> {
    let last = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let (_, bare) = split_rank(last.trim_end());
    let bare = bare.strip_prefix('>').unwrap_or(bare);
    let is_call = bare.starts_with("    ") && bare.contains('(') && !bare.contains(": ");
    let code = pointed_at(bare.trim_start()).or_else(|| is_call.then(|| bare.trim()))?;
    Some(StackFrame { code: cut(code, LONGEST_CODE), ..StackFrame::default() })
}

/// The code a notebook's arrow points at: `----> 5     loss.backward()`, or rich's `❱ 217 │   loss.backward()   │`.
fn pointed_at(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix('❱') {
        let code = rest.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
        return Some(code.trim_matches([' ', '│', '|']));
    }
    let rest = line.strip_prefix("--")?.trim_start_matches('-').strip_prefix("> ")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then(|| &rest[digits..])
}

/// `File "train.py", line 3, in main`, `File ~/train.py:3, in main(..)`, rich's `train.py:3 in main`, and notebooks'
/// `Cell In[3], line 5` and `<ipython-input-5-def> in validate(model)`.
fn head(line: &str) -> Option<StackFrame> {
    if let Some((file, function)) = linked(line) {
        return Some(frame(file, function));
    }
    if let Some(rest) = line.strip_prefix("File \"") {
        let (file, rest) = rest.split_once('"')?;
        let function = rest.split_once(", in ").map_or("", |(_, name)| name);
        return Some(StackFrame { line: number(rest.strip_prefix(", line ")), ..frame(file, function) });
    }
    if let Some(rest) = line.strip_prefix("File ") {
        let (file, rest) = rest.split_once(':')?;
        let (at, function) = rest.split_once(", in ")?;
        return Some(StackFrame { line: number(Some(at)), ..frame(file, function) });
    }
    if line.starts_with("Cell In[") || line.starts_with("Input In [") {
        let function = line.split_once(", in ").map_or("", |(_, name)| name);
        return Some(frame(line.split(", ").next().unwrap_or(line), function));
    }
    if let Some((file, function)) = line.split_once(" in ")
        && (file.starts_with("<ipython-input-") || file.ends_with(".py") && !file.contains(' '))
    {
        return Some(frame(file, function));
    }
    let (file, rest) = line.split_once(".py:")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let function = rest.get(digits..)?.strip_prefix(" in ")?;
    let is_path = digits > 0 && !file.is_empty() && !file.contains(' ');
    is_path.then(|| {
        let frame = frame(&format!("{file}.py"), function.trim_end_matches(['│', '|', ' ']));
        StackFrame { line: number(Some(rest)), ..frame }
    })
}

/// `[/usr/lib/trainer.py](https://localhost:8080/#) in train(self)`, as Colab hands a frame over.
fn linked(line: &str) -> Option<(&str, &str)> {
    let (file, rest) = line.strip_prefix('[')?.split_once("](")?;
    let (_, function) = rest.split_once(") in ")?;
    file.ends_with(".py").then_some((file, function))
}

/// The number that a text begins with.
fn number(text: Option<&str>) -> Option<u64> {
    let digits = text?.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

fn frame(file: &str, function: &str) -> StackFrame {
    StackFrame { file: cut(file, LONGEST_NAME), line: None, function: cut(function, LONGEST_NAME), code: String::new() }
}

fn cut(text: &str, most: usize) -> String {
    text.trim().chars().take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str, &str)]) {
        let found = frames(text);
        let found: Vec<_> = found.iter().map(|frame| (&*frame.file, &*frame.function, &*frame.code)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn plain_ranked_notebook_and_rich() {
        check(
            "Traceback (most recent call last):\n  File \"old.py\", line 1, in old\nTraceback (most recent call \
             last):\n  \
             File \"train.py\", line 3, in <module>\n    main()\n    ^^^^^^\n",
            &[("train.py", "<module>", "main()")],
        );
        check(
            "[/usr/lib/trainer.py](https://localhost:8080/#) in train(self)\n---> 88     y = f(x)\n",
            &[("/usr/lib/trainer.py", "train(self)", "y = f(x)")],
        );
        check(
            "[rank1]:   File \"a.py\", line 3, in step\n[rank1]:     y = f(x)\n[rank1]:         ^^^^\n",
            &[("a.py", "step", "y = f(x)")],
        );
        check(
            "[rank1]: Traceback (most recent call last):\n[rank0]:   File \"b.py\", line 1, in other\n\
             [rank1]:   File \"a.py\", line 3, in step\n[rank0]:     other()\n[rank1]:     y = f(x)\n",
            &[("a.py", "step", "y = f(x)")],
        );
        check(
            "Cell In[12], line 5\n      4     y = f(x)\n----> 5     loss.backward()\n",
            &[("Cell In[12]", "", "loss.backward()")],
        );
        check(
            "<ipython-input-5-def> in validate(model)\n      3 with x:\n----> 4     y = model(x)\n",
            &[("<ipython-input-5-def>", "validate(model)", "y = model(x)")],
        );
        check(
            "3: Traceback (most recent call last):\n3:   File \"a.py\", line 3, in step\n3:     y = f(x)\n",
            &[("a.py", "step", "y = f(x)")],
        );
        check(
            "[11:22:00][ERROR] - Traceback (most recent call last):\n[11:22:01][ERROR] -   File \"a.py\", line 3, in \
             step\n[11:22:02][ERROR] -     y = f(x)\n",
            &[("a.py", "step", "y = f(x)")],
        );
        check(
            "Traceback (most recent call last):\n  File \x1b[35m\"a.py\"\x1b[0m, line \x1b[35m3\x1b[0m, in \
             \x1b[35mstep\x1b[0m\n    \x1b[31my = \x1b[1;31mf(x)\x1b[0m\n",
            &[("a.py", "step", "y = f(x)")],
        );
        check(
            "Traceback (most recent call last):\n  File \"a.py\", line 3, in step\nstep 4: loss 2.1\n    y = f(x)\n",
            &[("a.py", "step", "y = f(x)")],
        );
        check("---> 21         loss.backward()\n", &[("", "", "loss.backward()")]);
        check("    net = Net.from_pretrained(\"a\").cuda()\n", &[("", "", "net = Net.from_pretrained(\"a\").cuda()")]);
        check("  0%|          | 0/10 [00:00<?, ?it/s]\n", &[]);
        check("File ~/x.py:22, in Trainer.train(self)\n", &[("~/x.py", "Trainer.train(self)", "")]);
        check("│ /home/me/train.py:123 in main     │\n", &[("/home/me/train.py", "main", "")]);
    }
}
