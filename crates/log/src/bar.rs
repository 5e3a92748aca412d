//! Progress bars: tqdm's, Keras's, rich's, Lightning's, Hugging Face's, and what each of them counts.

use std::sync::LazyLock;

use memchr::{memchr, memmem, memrchr, memrchr_iter};

use crate::number::leading_number;

/// A progress bar in a line, the last one where several were drawn over each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgressBar<'a> {
    /// The line up to where the bar ends.
    pub text: &'a [u8],
    label: &'a [u8],
    /// How many are done, and of how many, where they are whole numbers.
    count: Option<(u64, u64)>,
    /// What stands behind the counts.
    rest: &'a [u8],
}

/// What bars are named that count something else than steps of a training.
const OTHER_LABELS: &str = "adding applying benchmark building caching calibrat capturing casting checking cloning collating collecting \
    compiling computing concatenating converting copying crawling creating decoding decompressing deduplicat \
    deleting dequantiz download dropping encoding eval exporting extracting fetching file filter flattening \
    formatting generating grouping hashing import index infer installing loading map materializ measuring merging \
    packing parsing predict preparing preprocess processing profiling pulling pushing quantiz reading renaming \
    rendering resolving retriev sampling sanity saving scanning searching shard sorting standardiz syncing test \
    tokeniz transcrib truncat unpacking unzipping upload valid verifying writing";
static OTHER_WORDS: LazyLock<Vec<&str>> = LazyLock::new(|| OTHER_LABELS.split(' ').collect());
/// What bars of an evaluation are named.
const EVALUATIONS: [&str; 8] =
    ["val", "valid", "validation", "validating", "eval", "evaluation", "evaluating", "testing"];
/// Measures of what comes out of a model: a bar that names one and no loss is of a validation.
const MEASURES: [&str; 4] = ["psnr", "ssim", "lpips", "miou"];
/// Units of what is moved or prepared, not trained on.
const OTHER_UNITS: [&str; 8] = ["examples/s", "B/s", "files/s", "file/s", "tables/s", "docs/s", "rows/s", "shards/s"];
/// How rich and Keras draw.
const HEAVY_LINE: &str = "━";

impl ProgressBar<'_> {
    /// How many steps of a training it counts as done, and of how many; `None` where it counts something else.
    #[must_use]
    pub fn steps(&self) -> Option<(u64, u64)> {
        let is_other = OTHER_UNITS.iter().any(|unit| memmem::find(self.rest, unit.as_bytes()).is_some());
        self.count.filter(|_| !is_other && !is_other_label(self.label))
    }

    /// Whether it has come to its end.
    #[must_use]
    pub(crate) fn is_over(&self) -> bool {
        self.count.is_some_and(|(done, all)| done == all)
    }

    /// What names it, where it counts batches of an evaluation and has not come to its end.
    #[must_use]
    pub(crate) fn evaluation(&self) -> Option<&'static str> {
        let label = self.label.to_ascii_lowercase();
        let mut words = label.split(|byte| !byte.is_ascii_alphanumeric());
        let is_trained = has(&label, "loss");
        let names = || EVALUATIONS.into_iter().chain(MEASURES.into_iter().filter(|_| !is_trained));
        let name = words.find_map(|word| names().find(|name| name.as_bytes() == word))?;
        self.count.is_some_and(|(done, all)| done < all).then_some(name)
    }

    /// Whether neither a name before the drawing nor a figure behind it says what is counted.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        let names_nothing = !self.label.iter().any(u8::is_ascii_alphabetic) && self.label.is_ascii();
        names_nothing && memchr(b'=', self.rest).is_none() && !has(self.rest, "loss")
    }
}

/// Reads the progress bar of a line.
#[must_use]
pub fn bar(line: &[u8]) -> Option<ProgressBar<'_>> {
    bracketed(line).or_else(|| heavy(line))
}

/// `Epoch 3:  45%|████▌     | 45/100 [00:03<00:21, 4.1it/s, loss=2.1]`, `12it [00:03, 4.1it/s]`, Keras's
/// `12/100 [==>......] - ETA: 3s`, and `45/100 [45%] in 3s`.
fn bracketed(line: &[u8]) -> Option<ProgressBar<'_>> {
    let opens = |at: &usize| {
        let inner = &line[at + 1..];
        let is_drawn = inner.starts_with(b"?") || matches!(inner.first(), Some(b'=' | b'>' | b'.'));
        let is_count = || count_start(&line[..*at]) < at.saturating_sub(1);
        (is_drawn || is_clock(inner) || is_percent(inner)) && is_count()
    };
    let mut all = memrchr_iter(b'[', line).filter(opens);
    let open = all.next()?;
    let start = count_start(&line[..open]);
    // What stands before it may be an earlier state of it.
    let earlier = all.next().and_then(|open| Some(open + memchr(b']', line.get(open..start)?)? + 1)).unwrap_or(0);
    let end = memchr(b']', &line[open..]).map_or(line.len(), |close| open + close + 1);
    let count = counts(line[start..open].trim_ascii_end());
    Some(ProgressBar { text: &line[..end], label: label(&line[earlier..start]), count, rest: &line[open..end] })
}

/// rich's `Epoch 3/9 ━━━━━━╸━━━ 45/100 0:00:12 • 0:00:15 4.1it/s`, and Keras's `12/100 ━━━━━━━━━ 3s 4ms/step`.
fn heavy(line: &[u8]) -> Option<ProgressBar<'_>> {
    let first = memmem::find(line, HEAVY_LINE.as_bytes())?;
    let end = memmem::rfind(line, HEAVY_LINE.as_bytes())? + HEAVY_LINE.len();
    // The line ends with a half where it is not full.
    let behind = &line[end..];
    let behind = behind.iter().position(|byte| byte.is_ascii()).map_or(&[][..], |at| &behind[at..]).trim_ascii_start();
    let word_end = memchr(b' ', behind).unwrap_or(behind.len());
    let (word, rest) = behind.split_at(word_end);
    let is_running = is_clock(rest.trim_ascii_start()) || ["it/s", "s/it"].iter().any(|unit| has(rest, unit));
    let before = line[..first].trim_ascii();
    let (label, count) = match counts(word) {
        Some(count) => (before, Some(count).filter(|_| is_running)),
        None => (&[][..], counts(before).filter(|_| has(rest, "/step") || has(word, "/step"))),
    };
    Some(ProgressBar { text: line, label, count, rest })
}

fn has(text: &[u8], word: &str) -> bool {
    memmem::find(text, word.as_bytes()).is_some()
}

/// Where the word before a bracket begins; it is a count where it begins with a digit.
fn count_start(before: &[u8]) -> usize {
    let Some(text) = before.strip_suffix(b" ") else { return before.len() };
    let start = text.iter().rposition(|byte| matches!(byte, b' ' | b'|')).map_or(0, |at| at + 1);
    if text.get(start).is_some_and(u8::is_ascii_digit) { start } else { before.len() }
}

/// `45/100`, as whole numbers.
fn counts(word: &[u8]) -> Option<(u64, u64)> {
    let (done, rest) = leading_number(word)?;
    let (all, rest) = leading_number(rest.strip_prefix(b"/")?)?;
    (rest.is_empty() && done <= all).then_some((done, all))
}

/// `0:03`, `00:03<00:21`.
fn is_clock(text: &[u8]) -> bool {
    matches!(leading_number(text), Some((_, [b':', b'0'..=b'5', b'0'..=b'9', ..])))
}

/// `45%]`.
fn is_percent(text: &[u8]) -> bool {
    matches!(leading_number(text), Some((_, [b'%', b']', ..])))
}

/// What stands before the drawing: `Epoch 3:  45%|████▌     | `.
fn label(text: &[u8]) -> &[u8] {
    let Some(percent) = memrchr(b'%', text) else { return text };
    let digits = text[..percent].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    &text[..percent - digits]
}

fn is_other_label(label: &[u8]) -> bool {
    let words = || label.split(|byte| !byte.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    // Between other words it names a figure: `train 2.1 | val 2.3`.
    let is_val = |word: Option<&[u8]>| word.is_some_and(|word| word.eq_ignore_ascii_case(b"val"));
    let begins = |word: &[u8], with: &str| {
        // Most differ in the first letter.
        word[0].eq_ignore_ascii_case(&with.as_bytes()[0])
            && word.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with.as_bytes()))
    };
    is_val(words().next())
        || is_val(words().next_back())
        || words().any(|word| OTHER_WORDS.iter().any(|other| begins(word, other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_of_bars() {
        for (line, expected) in [
            // tqdm, and what is made of it.
            (" 12%|█▏        | 12/100 [00:03<00:21,  4.1it/s]", Some((12, 100))),
            (" 12%|#2        | 12/100 [00:03<00:21]", Some((12, 100))),
            ("  0%|          | 0/500 [00:00<?, ?it/s]", Some((0, 500))),
            (" 1%| | 1/500 [00:01<", Some((1, 500))),
            ("Train:  12%|█▏ | 12/100 [00:03<00:21,  4.1batch/s, loss=2.1]", Some((12, 100))),
            ("Epoch [3/10]:  45%|████▌ | 45/100 [1:00:03<1:00:21,  2.1s/it]", Some((45, 100))),
            ("Epoch 3:  45%|████▌     | 45/100 [00:03<00:04, 12.1it/s, v_num=0, train_loss=0.5]", Some((45, 100))),
            ("Training embeddings:  45%|████▌ | 45/100 [00:03<00:04, 12.1it/s]", Some((45, 100))),
            ("train 2.1 | val 2.3:  45%|████▌ | 45/100 [00:03<00:04, 12.1it/s]", Some((45, 100))),
            (" 3%| | 31/1000 [00:10<05:23,  3.0it/s]  3%| | 32/1000 [00:11<05:23,  3.0it/s]", Some((32, 1000))),
            ("  0%| | 1,500/90,000 [00:11<05:23,  3.0it/s]", Some((1500, 90_000))),
            // Keras, rich, Lightning with rich, alive-progress, Ultralytics.
            ("12/100 [==>...........................] - ETA: 3s - loss: 2.31", Some((12, 100))),
            ("100/100 [==============================] - 3s 4ms/step - loss: 2.31", Some((100, 100))),
            ("12/100 ━━━━━━━━━━━━━━━━━━━━ 3s 4ms/step - loss: 2.31", Some((12, 100))),
            ("Epoch 3/9  ━━━━━━━╸━━━━━━━━  45/100 0:00:12 • 0:00:15 4.1it/s v_num: 0", Some((45, 100))),
            ("|██████▌⚠︎      | ▃▁▃ 45/100 [45%] in 3s (~4s, 12.3/s)", Some((45, 100))),
            ("   1/100   2.5G   1.2   640: 100% ━━━━━━━━━━━━ 8/8 5.1it/s 1.6s", Some((8, 8))),
            // Bars of something else.
            ("Loading checkpoint shards: 50%|#####  | 2/4 [00:03<00:03]", None),
            ("Validation DataLoader 0:   0%|          | 0/12 [00:00<?, ?it/s]", None),
            ("Sanity Checking DataLoader 0:   0%|          | 0/2 [00:00<?, ?it/s]", None),
            ("[Val] Epoch 3:  45%|████▌ | 45/100 [00:03<00:21]", None),
            ("Epoch 3 val:  45%|████▌ | 45/100 [00:03<00:21]", None),
            ("Map (num_proc=4):  50%|█████ | 500/1000 [00:01<00:01, 900.1 examples/s]", None),
            (" 50%|█████ | 500/1000 [00:01<00:01, 900.1 examples/s]", None),
            ("model.safetensors:  50%|█████ | 500/1000 [00:01<00:01, 12.1MB/s]", None),
            ("Downloading shards:  50%|█████ | 1/2 [00:01<00:01]", None),
            ("Writing model shards: 100%|██████████| 1/1 [00:00<00:00,  5.1it/s]", None),
            ("Writing model shards:   0%|          | 0/1 [00:00<?, ?it/s]", None),
            ("Loading weights: 100%|███| 148/148 [00:00<00:00, 400.1it/s, Materializing param=lm_head.weight]", None),
            ("Fetching 4 files:  50%|█████ | 2/4 [00:01<00:01,  1.1it/s]", None),
            ("Upload 3 LFS files:  33%|███ | 1/3 [00:01<00:01,  1.1it/s]", None),
            ("Processing Files (1 / 3):  33%|███ | 1/3 [00:01<00:01]", None),
            ("Running tokenizer on dataset:  50%|█████ | 1/2 [00:01<00:01,  1.1ba/s]", None),
            ("Adding EOS to train dataset:  50%|█████ | 500/1000 [00:01<00:01]", None),
            ("Truncating train dataset:  50%|█████ | 500/1000 [00:01<00:01]", None),
            ("Applying chat template to train dataset:  50%|█████ | 500/1000 [00:01<00:01]", None),
            ("Capturing CUDA graph shapes:  50%|█████ | 12/23 [00:01<00:01,  9.1it/s]", None),
            ("Saving the dataset (1/2 shards):  50%|█████ | 500/1000 [00:01<00:01]", None),
            (" Class Images Box(P R mAP50 mAP50-95): 100%|██████| 1/1 [00:00<00:00,  5.1it/s]", None),
            ("Validation ━━━━━━━━━━━━ 45/100 0:00:12 • 0:00:15 4.1it/s", None),
            // No whole numbers, no counts, no bars.
            ("12it [00:03,  4.1it/s]", None),
            ("  1%| | 1.2k/90k [00:11<05:23,  3.0it/s]", None),
            ("Training ━━━━━━━━━━━━━━ 45% 0:00:12", None),
            ("Epoch 3/9 ━━━━━━━━━━━━━ 45% 0:00:12", None),
            ("━━━━━━━━━━━━━━━━━━━━━━━ 12/12 [numpy]", None),
            ("━━━━━━━━━━━━━━━━━━━━━━━ 755.6/755.6 MB 1.2 MB/s eta 0:00:00", None),
            ("on 2024/03 [info] started", None),
            ("ratio 7/5 [00:03]", None),
            ("step 5 [INFO] loss", None),
            ("", None),
        ] {
            assert_eq!(bar(line.as_bytes()).and_then(|bar| bar.steps()), expected, "{line}");
        }
    }

    #[test]
    fn it_ends_where_the_next_words_begin() {
        let text = |line: &'static str| bar(line.as_bytes()).map(|bar| String::from_utf8_lossy(bar.text));
        assert_eq!(
            text("1%| | 3/9 [00:01<00:02, 3it/s]Error: x [y]").as_deref(),
            Some("1%| | 3/9 [00:01<00:02, 3it/s]")
        );
        assert_eq!(text("12it [00:03, 4.1it/s]Error").as_deref(), Some("12it [00:03, 4.1it/s]"));
        assert_eq!(text("Error: [x] 3/4"), None);
    }
}
