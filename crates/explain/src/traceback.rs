//! Frames of a Python traceback, in the forms people have in their logs.

/// The most frames that are kept; the innermost count.
const MOST: usize = 96;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Frame {
    /// Path of the source file.
    pub(crate) file: String,
    /// Name of the function.
    pub(crate) function: String,
    /// The quoted line of code, empty where there is none.
    pub(crate) code: String,
}

impl Frame {
    /// Name of the source file without its folder.
    pub(crate) fn file_name(&self) -> &str {
        self.file.rsplit(['/', '\\']).next().unwrap_or_default()
    }

    /// Whether it is the constructor of one of PyTorch's layers.
    pub(crate) fn makes_a_layer(&self) -> bool {
        let file = self.file.replace('\\', "/");
        let is_made = matches!(&*self.function, "__init__" | "reset_parameters");
        file.contains("torch/nn/modules") && is_made || file.contains("torch/nn/init.py")
    }

    /// Whether it is PyTorch's recomputation of activations.
    pub(crate) fn recomputes(&self) -> bool {
        self.file.ends_with("torch/utils/checkpoint.py") || self.file.ends_with("torch\\utils\\checkpoint.py")
    }
}

/// The frames of the last traceback in a text that ends where the error stands, outermost first.
pub(crate) fn frames(text: &str) -> Vec<Frame> {
    let start = text.rfind("Traceback (most recent call last)").unwrap_or(0);
    let mut frames: Vec<Frame> = Vec::new();
    let mut margin = "";
    for line in text[start..].lines() {
        let line = line.trim_end();
        let line = without_margin(line.strip_prefix(margin).filter(|_| !margin.is_empty()).unwrap_or(line));
        let (prefix, framed) = line.find("File \"").filter(|at| *at > 0).map_or(("", line), |at| line.split_at(at));
        if let Some(frame) = head(framed) {
            if frames.len() == MOST {
                frames.remove(0);
            }
            frames.push(frame);
            // What a logger or `srun --label` puts before every line.
            if !prefix.is_empty() {
                margin = prefix.trim_end();
            }
        } else if let (Some(last), Some(code)) = (frames.last_mut(), pointed_at(line)) {
            last.code = code.trim().chars().take(400).collect();
        } else if let Some(last) = frames.last_mut()
            && last.code.is_empty()
            && !line.trim_start().starts_with(['^', '~'])
        {
            last.code = line.trim().chars().take(400).collect();
        }
    }
    frames
}

/// A line without the rank and the ruler before it.
fn without_margin(line: &str) -> &str {
    let line = line.trim_end();
    let line = match line.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
        Some((rank, rest)) if rank.starts_with("rank") => rest,
        _ => line,
    };
    line.trim_start_matches(['│', '|', ' ', '\t'])
}

/// The code a notebook's arrow points at: `----> 5     loss.backward()`.
fn pointed_at(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("--")?.trim_start_matches('-').strip_prefix("> ")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then(|| &rest[digits..])
}

/// `File "train.py", line 3, in main`, `File ~/train.py:3, in main(..)`, rich's `train.py:3 in main`, and notebooks'
/// `Cell In[3], line 5` and `<ipython-input-5-def> in validate(model)`.
fn head(line: &str) -> Option<Frame> {
    if let Some(rest) = line.strip_prefix("File \"") {
        let (file, rest) = rest.split_once('"')?;
        let function = rest.split_once(", in ").map_or("", |(_, name)| name);
        return Some(frame(file, function));
    }
    if let Some(rest) = line.strip_prefix("File ") {
        let (file, rest) = rest.split_once(':')?;
        let (_, function) = rest.split_once(", in ")?;
        return Some(frame(file, function));
    }
    if line.starts_with("Cell In[") || line.starts_with("Input In [") {
        return Some(frame(
            line.split(", ").next().unwrap_or(line),
            line.split_once(", in ").map_or("", |(_, name)| name),
        ));
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
    is_path.then(|| frame(&format!("{file}.py"), function.trim_end_matches(['│', '|', ' '])))
}

fn frame(file: &str, function: &str) -> Frame {
    let cut = |text: &str| text.trim().chars().take(300).collect();
    Frame { file: cut(file), function: cut(function), code: String::new() }
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
            "[rank1]:   File \"a.py\", line 3, in step\n[rank1]:     y = f(x)\n[rank1]:         ^^^^\n",
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
        check("File ~/x.py:22, in Trainer.train(self)\n", &[("~/x.py", "Trainer.train(self)", "")]);
        check("│ /home/me/train.py:123 in main     │\n", &[("/home/me/train.py", "main", "")]);
    }
}
