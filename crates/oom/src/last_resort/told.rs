//! What a person tells in a sentence of a short post that shows no error: what was killed, what died, what was full.
//!
//! Nothing but the sentence says it, so that it counts for little. It must be of something that happened to who writes, and not
//! of what may happen to a reader.

use super::report::is_of_device;
use super::told_abroad::{self, SPANISH, TRANSLATED, spanish, translated};
use super::told_in_chinese::{self, told_in_chinese};
use crate::message::{is_entry, without_prefix};
use crate::phrase::{find_words, has_any, has_any_word};
use crate::source_code::is_source_code;
use crate::talk::{is_asked, is_hypothetical, is_topic};
use crate::{Certainty, Engine, Oom, Place, Source};

/// Words without which a line tells nothing.
pub(super) const TOLD: &[&[&str]] = &[
    &LACKS,
    &UNTIL,
    &FULL,
    &NOTEBOOKS,
    &["kernel", "session"],
    &BY_SYSTEM,
    &PASSIVE,
    &["checkpoint shards", "killed"],
    &["tcmalloc", "oom", "显存", "内存"],
    &SPANISH,
    &GROWS,
    &QUOTED_KILLS,
    &TRANSLATED,
];

/// What becomes of a program that gets no memory.
const ENDS: &str = "killed kills crash crashes crashed crashing dies died stops stopped fails failed breaks broke broken freezes froze \
    terminated terminates exits exited oomkilled";
/// What people give as the reason for it, or tell came before.
const LACKS: [&str; 30] = [
    "insufficient memory",
    "insufficient ram",
    "lack of memory",
    "lack of the memory",
    "lack of ram",
    "not enough memory",
    "not enough ram",
    "out of memory",
    "out of ram",
    "memory overflow",
    "memory always overflow",
    "memory is full",
    "memory being full",
    "ram is full",
    "ram being full",
    "all memory",
    "all the memory",
    "all of the memory",
    "all available memory",
    "all of my memory",
    "all my memory",
    "100% of the memory",
    "100% of memory",
    "100% memory",
    "memory goes to 100%",
    "all my ram",
    "all the ram",
    "up the ram",
    "up all ram",
    "up all the ram",
];
/// What stands between growth and the end it comes to.
const UNTIL: [&str; 2] = [" until ", " till "];
/// What memory does that comes to an end.
const GROWS: [&str; 10] =
    ["grow", "grew", "increas", "fill", "climb", "rising", "rises", "leak", "takes more", "more and more"];
/// Who ends a program that takes too much.
const BY_SYSTEM: [&str; 13] = [
    "os kills",
    "system kills",
    "kernel kills",
    "linux kills",
    "killed by the system",
    "killed by system",
    "killed by the os",
    "killed by os",
    "killed by the kernel",
    "killed by linux",
    "killed by oom",
    "killed by the oom",
    "oom killer kill",
];
/// The same, where nobody is named.
const PASSIVE: [&str; 8] = [
    "get killed",
    "gets killed",
    "got killed",
    "is killed at",
    "is killed while",
    "is killed when",
    "was killed at",
    "was killed while",
];
/// A shell's word for it, as somebody quotes it.
const QUOTED_KILLS: [&str; 4] = ["\"killed\"", "'killed'", "`killed`", "\u{201c}killed\u{201d}"];
/// By which somebody says that it was all he saw.
const SEEN: &str = "just only says said prints printed shows shown see saw get got gives ends ended";
/// What people say of a card or a machine that was full.
const FULL: [&str; 41] = [
    "out of memory",
    "out-of-memory",
    "out of vram",
    "out of ram",
    "out of cpu memory",
    "out of gpu memory",
    "out of cuda memory",
    "out of system memory",
    "out of host memory",
    "i oom",
    "it ooms",
    "goes oom",
    "going oom",
    "runs oom",
    "hits oom",
    "oom error",
    "got oom",
    "get oom",
    "getting oom",
    "insufficient gpu memory",
    "not enough gpu memory",
    "not enough vram",
    "memory is not enough",
    "memory is insufficient",
    "memory overflow",
    "get a memoryerror",
    "got a memoryerror",
    "get memoryerror",
    "got memoryerror",
    "getting a memoryerror",
    "getting memoryerror",
    "gpu oom",
    "cuda oom",
    "still oom",
    "always oom",
    "gives oom",
    "gives an oom",
    "oom when ",
    "oom while ",
    "oom during ",
    "memory oom",
];
/// How people tell of their own without naming themselves, or ask.
const OWN: [&str; 3] = ["please help", "on our ", " mine "];
/// How people ask others about an error of their own.
const ASKS: [&str; 20] = [
    "does anybody",
    "does anyone",
    "does somebody",
    "has anybody",
    "has anyone",
    "has somebody",
    "can anybody",
    "can anyone",
    "can somebody",
    "can someone",
    "could anybody",
    "could anyone",
    "could somebody",
    "could someone",
    "how come",
    "what to do?",
    "any idea",
    "help me",
    "how to avoid it?",
    "how to avoid this?",
];
/// What a notebook and its parts are called.
const NOTEBOOKS: [&str; 8] =
    ["the kernel ", "my kernel ", "kernel died", "kernel dies", "notebook", "colab", "jupyter", "runtime died"];
/// What notebooks say of a kernel that is gone.
const KERNEL_NOTICES: [&str; 5] = [
    "kernel appears to have died",
    "appears to have died. it will restart",
    "kernel crashed while executing code",
    "kernel died, restarting",
    "died unexpectedly, restarting",
];
/// What else a program may have ended by.
const OTHER_ENDS: [&str; 8] =
    ["error", "exception", "egmentation", "core dumped", "abort", "omp:", "fatal", "traceback"];
/// What becomes of them.
const DYING: &str = "died dies dying crash crashes crashed crashing muere murió";
/// Whether somebody tells of a run of his own, or asks about one.
#[must_use]
pub fn is_of_oneself(post: &str) -> bool {
    let lower = post.to_lowercase();
    has_any_word(&lower, "i i'm i've my")
        || lower.lines().any(is_of_form)
        || has_any(&lower, &OWN)
        || has_any(&lower, &ASKS)
        || ends_with_question(post)
        || told_in_chinese::is_of_oneself(post)
        || told_in_chinese::tells_of_error(post)
        || told_abroad::is_of_oneself(&lower)
}

/// Whether the last line asks something, as no page does that tells what it knows.
fn ends_with_question(post: &str) -> bool {
    let last = post.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    last.ends_with(['?', '？']) && !last.starts_with(['#', '-', '*', '|', '>'])
}

/// `### Steps to reproduce`: a part of a tracker's form for errors; those for wishes have others.
fn is_of_form(line: &str) -> bool {
    line.starts_with(['#', '*']) && has_any(line, &["reproduc", "describe the bug", "expected behavio"])
}

/// What a line of a post tells; the post is all there is.
pub(super) fn told(line: &str, post: &str) -> Option<Oom> {
    if is_source_code(without_prefix(line)) {
        return None;
    }
    let lower = line.to_lowercase();
    // `Memory is not enough for it. Use the maximal possible size instead.` is what a program did about it, where nobody speaks of
    // himself, and a logger's line is of a program.
    if lower.contains(" instead.") && !has_any_word(&lower, "i i'm i've my we our") || is_entry(without_prefix(line)) {
        return None;
    }
    ended_for_memory(&lower)
        .or_else(|| ended_by_system(&lower, post))
        .or_else(|| killed_notebook(&lower, post))
        .or_else(|| kernel_died(&lower, post))
        .or_else(|| told_in_chinese(&lower, post))
        .or_else(|| spanish(&lower))
        .or_else(|| translated(&lower))
        .or_else(|| full(&lower, post))
}

/// `it is killed due to insufficient memory`, `it takes 100% of the memory and breaks down`: what became of a program, and not what may
/// become of one.
fn ended_for_memory(lower: &str) -> Option<Oom> {
    let told = lower.split(". ").find(|sentence| {
        let lacks = || LACKS.iter().find_map(|words| find_words(sentence, words));
        let Some(at) = lacks().or_else(|| grows_until(sentence)).or_else(|| grows_and_ends(sentence)) else {
            return false;
        };
        // `If I understand correctly` supposes nothing of the end.
        let before = without_brackets(sentence).replace("if i ", "").replace("when i ", "");
        let is_supposed = has_any_word(
            &before,
            "may might could would should can avoid prevent if when whether not never will you your",
        );
        ends(sentence) && !is_supposed && at > 0 && !sentence[..at].contains(';')
    })?;
    let is_of_card = has_any(told, &["gpu", "cuda", "vram", "graphics card"]);
    Some(if is_of_card { shortage(true) } else { ended() })
}

/// Where `RAM fills up until` ends, with what becomes of the program behind it.
fn grows_until(sentence: &str) -> Option<usize> {
    let at = UNTIL.iter().find_map(|word| sentence.find(word))?;
    let (before, behind) = sentence.split_at(at);
    let is_of_memory = has_any_word(before, "ram memory") && has_any(before, &GROWS);
    (is_of_memory && ends(behind)).then_some(at)
}

/// `the memory of my computer rises the whole time and around the 7th epoch the computer goes down`: growth, and an end that names no
/// other error.
fn grows_and_ends(sentence: &str) -> Option<usize> {
    let grows = GROWS.iter().filter_map(|word| sentence.find(word)).min()?;
    let (before, behind) = sentence.split_at(grows);
    // `I increased the memory of the machine and the crash is gone`
    let is_deed = before.split_whitespace().next_back().is_some_and(|word| matches!(word, "i" | "we" | "you" | "to"));
    if is_deed || has_any(behind, &[" by me", " by us", " by hand", " gone", " no more", " no longer"]) {
        return None;
    }
    let at = [", ", " and ", " then "].iter().filter_map(|joint| behind.find(joint)).min()?;
    let is_of_memory = has_any_word(before, "ram memory") || has_any_word(&behind[..at], "ram memory");
    (is_of_memory && ends(&behind[at..]) && !has_any(behind, &["error", "exception", "nan"])).then_some(grows)
}

fn ends(text: &str) -> bool {
    // A loss goes down, too.
    const MACHINES: [&str; 7] = ["computer", "machine", "pc", "laptop", "server", "system", "node"];
    let is_machine = |head: &str| head.split_whitespace().next_back().is_some_and(|word| MACHINES.contains(&word));
    let goes_down = ["goes down", "went down", "shuts down"]
        .iter()
        .any(|words| text.match_indices(words).any(|(at, _)| is_machine(&text[..at])));
    has_any_word(text, ENDS) || goes_down
}

/// `after 8k iterations the OS kills the process`, in a post that speaks of the machine's memory.
fn ended_by_system(lower: &str, post: &str) -> Option<Oom> {
    let is_supposed = |sentence: &str| has_any_word(sentence, "if may might could would you your");
    // Shards of weights are read into the machine's memory, one after the other.
    let loads = |sentence: &str| sentence.contains("checkpoint shards") && has_any_word(sentence, "killed");
    let is_told =
        |sentence: &str| (has_any(sentence, &BY_SYSTEM) || has_any(sentence, &PASSIVE)) && !is_supposed(sentence);
    let names_memory = || has_any_word(&post.to_lowercase(), "ram memory memoria");
    // Who shows what he ran, and nothing else that went wrong.
    let names_script = || post.contains("python ") && post.contains(".py");
    let names_killer = |sentence: &str| has_any_word(sentence, "oom") && is_of_oneself(post);
    // As somebody writes it down who has no more of the log.
    let is_last_line = lower.trim() == "killed";
    let is_quoted =
        |sentence: &str| has_any(sentence, &QUOTED_KILLS) && has_any_word(sentence, SEEN) && !is_supposed(sentence);
    let is_killed = is_last_line && names_memory()
        || lower.split(". ").any(|sentence| {
            is_told(sentence) && (names_memory() || names_killer(sentence))
                || is_quoted(sentence) && (names_memory() || names_script())
        });
    (is_killed || lower.split(". ").any(|sentence| loads(sentence) && !is_supposed(sentence))).then(ended)
}

/// `tcmalloc: large alloc 6442450944 bytes`, and then the program was killed: how Colab ends what takes too much.
fn killed_notebook(lower: &str, post: &str) -> Option<Oom> {
    let is_ended = lower.contains("tcmalloc") && has_any(post, &["killed", "Killed"]);
    is_ended.then(ended)
}

/// `The kernel appears to have died`, in a post that speaks of the machine's memory or of nothing else that went wrong: a notebook shows
/// no more of a kill.
fn kernel_died(lower: &str, post: &str) -> Option<Oom> {
    let names_memory = || has_any_word(post, "ram memory memoria") || post.contains("内存");
    let died = |sentence: &str| {
        let is_supposed = has_any_word(sentence, "if may might could would should avoid prevent");
        names_kernel(sentence, post) && is_dying(sentence) && !is_supposed
    };
    // Who shows what ran, and nothing else that went wrong, has memory as the usual reason; the bare sentence tells nothing.
    let shows_nothing_else = || {
        let lines = post.lines().filter(|line| !line.trim().is_empty()).count();
        lines > 1 && !has_any(&post.to_lowercase(), &OTHER_ENDS)
    };
    // What Jupyter, VS Code and Spyder say of it, beside a word of what was under way: a kill by the system is the usual reason.
    let names_work = || has_any_word(&post.to_lowercase(), "train training fit epoch epochs model batch dataset data");
    let is_notice = || has_any(lower, &KERNEL_NOTICES) && names_work() && !has_any(&post.to_lowercase(), &OTHER_ENDS);
    (is_notice() || lower.split(". ").any(died) && (names_memory() || shows_nothing_else())).then(ended)
}

/// A sentence without what stands in brackets: `内存（252G）已经用完`.
pub(super) fn without_brackets(sentence: &str) -> String {
    let mut depth = 0_usize;
    let is_outside = |c: &char| {
        match c {
            '(' | '（' => depth += 1,
            ')' | '）' => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        false
    };
    sentence.chars().filter(is_outside).collect()
}

/// Whether a sentence is of a notebook's kernel: an operating system has one, and sessions are of many kinds.
fn names_kernel(sentence: &str, post: &str) -> bool {
    let is_of_notebook =
        || has_any(&post.to_lowercase(), &["notebook", "jupyter", "colab", "cell", "ipynb", "kaggle", "spyder"]);
    has_any(sentence, &NOTEBOOKS)
        || sentence.starts_with("kernel ") && is_of_oneself(post)
        || has_any_word(sentence, "kernel session") && is_of_notebook()
}

fn is_dying(sentence: &str) -> bool {
    let sentence = sentence.replace("crash dump", "").replace("crash report", "");
    has_any_word(&sentence, DYING) || has_any(&sentence, &["will die", "to die"])
}

/// `I can not train, the problem is gpu out of memory`: by who tells of his own.
fn full(lower: &str, post: &str) -> Option<Oom> {
    let (at, words) = FULL.iter().find_map(|words| Some((find_words(lower, words)?, *words)))?;
    let clause = &lower[lower[..at].rfind([',', '.', ':', ';', '!', '?', '(']).map_or(0, |end| end + 1)..at];
    let is_own = is_of_oneself(post);
    // Python's error is of the machine's memory, whatever else is named.
    let is_of_python = words.ends_with("memoryerror");
    let behind = &lower[at + words.len()..];
    let is_topic = behind.starts_with(' ') && is_topic(behind);
    (is_own && !is_topic && !is_hypothetical(clause) && !is_asked(clause))
        .then(|| shortage(!is_of_python && is_of_card(lower, post)))
}

/// Whether it is the card's memory: by the line, or by the post where that names none of the machine's.
fn is_of_card(lower: &str, post: &str) -> bool {
    if has_any(lower, &["cpu memory", "host memory", "system memory", "main memory"]) {
        return false;
    }
    let lower = lower.replace("no gpu", "").replace("without gpu", "");
    let post = post.to_lowercase().replace("gpu ram", "vram");
    is_of_device(&lower) || is_of_device(&post) && !has_any_word(&post, "ram")
}

pub(super) fn ended() -> Oom {
    Oom { certainty: Certainty::Slight, ..Oom::host(Engine::Unknown, Source::ExitStatus) }
}

pub(super) fn shortage(is_of_device: bool) -> Oom {
    let place = if is_of_device { Place::Device } else { Place::Host };
    Oom { place, certainty: Certainty::Slight, ..Oom::host(Engine::Unknown, Source::Heap) }
}

#[cfg(test)]
mod tests {
    use crate::{Certainty, Oom, Place, scan_last_resort};

    fn found(text: &str) -> Option<Oom> {
        scan_last_resort(text.as_bytes()).map(|hit| hit.oom)
    }

    #[test]
    fn a_kill_that_somebody_tells_of() {
        let told =
            "Why killed?\n\nThe main reason for being killed is insufficient memory during the training process.\n";
        let oom = found(told).expect("somebody tells what happened");
        assert_eq!((oom.place, oom.certainty), (Place::Host, Certainty::Slight));
        for text in [
            "The Ram (not cuda's) fills up in training till the process is killed, what to do?\n",
            "Every epoch takes more RAM, something like 50 GB, till the training crashes.\n",
            "The build eats all of the memory in a short time, and then the machine crashes.\n",
            "The integration job was killed due to out of memory in its first step.\n",
            "The test makes memory overflow and the task is killed.\n",
            "Training works as such, but the memory of my computer rises the whole time and around the 7th epoch the computer goes down.\n",
            "RAM climbs with every batch, and then the notebook crashes.\n",
            "The RAM of the container climbs for an hour until it's `OOMKilled`.\n",
            "The training stops here, with the error: killed by OOM killer\nWhat may be the reason?\n",
            "`python train.py` in a container always ends with \"Killed\".\n",
            "It runs for a while, then the process get killed. The machine has 12GB of RAM.\n",
            "While the model loads, the process is killed while the memory is at 99%.\n",
        ] {
            assert!(found(text).is_some(), "{text}");
        }
        for text in [
            "Your training may be killed due to insufficient memory.\n",
            "If the training is killed, there is insufficient memory.\n",
            "Killed the old job. Training has insufficient memory for this size.\n",
            "Memory grows for an hour, and then it crashes with a KeyError exception.\n",
            "I increased the memory of the machine and the crash is gone.\n",
            "GPU memory increases slowly, and the training was stopped by me at step 100.\n",
            "A process that is killed by the OOM killer is started again by systemd.\n",
            "Which line ends with \"Killed\" in the list below\n",
            "The memory rises to 12 GiB and stays there, the loss goes down.\n",
            "If the memory rises the whole time, the computer goes down.\n",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
        assert_eq!(found(&format!("{told}{:2048}\n", "")), None);
    }

    #[test]
    fn what_was_full_is_told_in_a_sentence() {
        for (text, place) in [
            ("my gpu is a RTX2080. I can not train the data, the problem is gpu out of memory\n", Place::Device),
            ("推理长视频（>5min）总是报 OOM 错误。请问可以调什么参数\n", Place::Device),
            ("训练的时候内存爆了，怎么解决\n", Place::Host),
            ("训练到一半显存就爆了。\n", Place::Device),
            ("此时 CPU 内存（252G）已经全部用完，请问怎么处理？\n", Place::Host),
            ("还在加载模型就输出 Killed，难道显存不够？不知道怎么办\n", Place::Host),
            ("Each process loads it, and the host runs out of CPU memory. On our machine there are 8.\n", Place::Host),
            ("The example gets to the decode step and then I OOM, with 24gb vram.\n", Place::Device),
            ("### Steps to reproduce\nload it\n### Actual\nThere is an OOM error, with 40GB of vram.\n", Place::Device),
            ("Al entrenar me quedo sin memoria en la GPU\n", Place::Device),
            ("我把 batch_size 改小了，但是 1080ti 显存还是不够\n", Place::Device),
            ("While it writes, the memory goes to 100% and then the program crashes.\n", Place::Host),
            ("The RAM usage increases, and after 8k iterations the OS kills the process.\n", Place::Host),
            ("I get a MemoryError when saving the features, with 8gb of ram.\n", Place::Host),
            ("The kernel appears to have died at this cell.\nMy laptop only has 8 GB of ram.\n", Place::Host),
            ("The kernel dies when all of it is read:\nfeatures = read_all(path)\n", Place::Host),
            ("Runtime died, Restarting automatically\nI train a network of 23 layers on Colab.\n", Place::Host),
            ("Generate.py dies: `Loading checkpoint shards: 52%` and the word `killed`.\n", Place::Host),
            ("It gets killed at 0%. The model goes into RAM, not to the GPU.\n", Place::Host),
            ("Training a CNN: the kernel appears to have died. It will restart automatically.\n", Place::Host),
            (
                "model.fit: The Kernel crashed while executing code in the current cell or a previous cell.\n",
                Place::Host,
            ),
            ("Kernel died, restarting (epoch 3)\n", Place::Host),
            ("训练到一半显存不足\n", Place::Device),
            (
                "always a GPU OOM. I set the flag and it is still OOM. On a 15GB GPU I divided all by 4.\n",
                Place::Device,
            ),
            ("训练中内存一直线性往上涨，到 100%（不可回收）程序就停了，数据少的时候是正常的\n", Place::Host),
            ("显存不断增加，跑几轮就崩溃\n", Place::Device),
            ("there is no error at all, just \"Killed\", and python is gone.\n16gb RAM\n", Place::Host),
            ("Il me dit seulement `Killed`, it only says `Killed`, with 8 GB of RAM.\n", Place::Host),
            ("resnet 18을 돌리는데 cuda memory 부족이라고 나옵니다. 그래픽 카드 때문일까요?\n", Place::Device),
            ("My session crashed on Colab with 12 GB of RAM.\n", Place::Host),
            ("Kernel keeps dying when I fit the model. I have 8GB of RAM\n", Place::Host),
            ("I set batch 2 instead. Still my GPU runs out of memory.\n", Place::Device),
            ("报错显存不够\n", Place::Device),
            ("Quantizing the model on 8 GPUs gives OOM. How could it be done at all?\n", Place::Device),
            ("Loading the checkpoint, my 256GB CPU memory OOM with 6 GPUs.\n", Place::Host),
            ("用8张卡时内存在加载参数那一步就爆了，4张卡能正常加载\n", Place::Host),
            ("训练时加载数据killed，是不是对内存要求相当高？\n", Place::Host),
            ("内存不足，程序被杀死\n", Place::Host),
            ("读数据时内存一直涨，训练到第三轮进程就被系统杀掉了。\n", Place::Host),
            ("跑到 57% 的时候被 kill 了，机器内存 64G\n", Place::Host),
            ("It printed tcmalloc: large alloc 6442450944 bytes and my program was killed on colab.\n", Place::Host),
        ] {
            let oom = found(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((oom.place, oom.certainty), (place, Certainty::Slight), "{text}");
        }
        for text in [
            "如果爆显存，请减小 batch\n",
            "这个进程被 kill 之后程序会自己重新跑\n",
            "如果内存太小，程序可能会被系统杀掉\n",
            "请问要改哪里，内存才不会爆？\n",
            "RAM use is flat until it crashes with an IndexError.\n",
            "### Describe the feature\nNo OOM error where the vram is full.\n",
            "Si se queda sin memoria, baje el lote.\n",
            "I use this flag to avoid running out of memory on small cards.\n",
            "The kernel died with a syntax error.\n",
            "Starting Kernel crash dump capture service...\n[  OK  ] Started Kernel crash dump capture service.\n",
            "INFO session 42 died, reconnecting\nINFO session 43 opened\n",
            "Linux-Kernel 6.1 wird geladen, die Module folgen\nfertig\n",
            "The project was saved.\nSession crashed? No, it dies only on logout.\n",
            "A page tells what the message \"Killed\" means for RAM.\n",
            "内存一直在涨，但是程序没停止\n",
            "显存占用上涨后趋于稳定，训练正常退出\n",
            "内存增加到64G之后，程序不再退出\n",
            "内存增长很快可能会导致程序崩溃，请注意\n",
            "We add GPU OOM handling to the trainer, thanks to my team.\n",
            "The kernel appears to have died. It will restart automatically.\n",
            "The kernel died.\nIllegal instruction (core dumped)\n",
            "My training gives EXECUTION_FAILED. Am I out of memory here, or is it another error?\n",
            "Servers run out of memory often.\n",
            "显存溢出可以通过调小 batch size 解决\n显存不足的请减小 batch\n",
            "It crashes if there is not enough memory.\n",
            "If the process gets killed by the system instead, it is RAM and not the GPU.\n",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
