//! What a person tells in a sentence of a short post that shows no error: what was killed, what died, what was full.
//!
//! Nothing but the sentence says it, so that it counts for little. It must be of something that happened to who writes, and not
//! of what may happen to a reader.

use super::report::is_of_device;
use super::told_abroad::{TRANSLATED, translated};
use crate::message::without_prefix;
use crate::phrase::{has_any, has_any_word};
use crate::source_code::is_source_code;
use crate::talk::{is_asked, is_hypothetical};
use crate::{Certainty, Engine, Oom, Place, Source};

/// Words without which a line tells nothing.
pub(super) const TOLD: &[&[&str]] = &[
    &LACKS,
    &UNTIL,
    &FULL,
    &NOTEBOOKS,
    &BY_SYSTEM,
    &PASSIVE,
    &["checkpoint shards", "killed"],
    &["tcmalloc", "oom", "显存", "内存"],
    &SHORT_IN_SPANISH,
    &TRANSLATED,
];

/// What becomes of a program that gets no memory.
const ENDS: &str = "killed kills crash crashes crashed crashing dies died stops stopped fails failed breaks broke broken freezes froze \
    terminated terminates exits exited";
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
const BY_SYSTEM: [&str; 10] = [
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
];
/// The same, where nobody is named.
const PASSIVE: [&str; 4] = ["gets killed", "got killed", "is killed at", "was killed at"];
/// What people say of a card or a machine that was full.
const FULL: [&str; 31] = [
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
];
/// How people tell that something happened to themselves.
const OWN: [&str; 19] = [
    "my gpu ",
    "my card ",
    "my computer ",
    "my laptop ",
    "my machine ",
    "please help",
    "i get ",
    "i got ",
    "i use ",
    "i run ",
    "i'm ",
    "i tried ",
    "i try ",
    "i have ",
    "when i ",
    "i can not ",
    "i cannot ",
    "on our ",
    " mine ",
];
/// How people ask others about an error of their own.
const ASKS: [&str; 18] = [
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
];
/// How people tell in Chinese of an error they met.
const MET: [&str; 4] = ["就报", "报错", "这个错", "出现"];
/// What a notebook and its parts are called.
const NOTEBOOKS: [&str; 6] = ["kernel", "notebook", "colab", "jupyter", "session", "runtime died"];
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
const DYING: &str = "died dies dying die crash crashes crashed crashing muere murió";
/// The same in Chinese, with the verb that makes it something that happened.
const SHORT_IN_CHINESE: [&str; 17] = [
    "报oom",
    "爆oom",
    "oom错误",
    "oom了",
    "爆显存",
    "显存爆",
    "显存溢出",
    "溢出显存",
    "报显存不足",
    "报内存不足",
    "爆内存",
    "内存爆",
    "内存溢出",
    "内存用完",
    "内存耗尽",
    "显存用完",
    "显存耗尽",
];
/// The same without one, which people ask about, too.
const LITTLE_IN_CHINESE: [&str; 4] = ["显存不足", "显存不够", "内存不足", "内存不够"];
/// By which somebody tells of himself or asks.
const OWN_IN_CHINESE: [&str; 12] =
    ["我", "请问", "请教", "求助", "您好", "你好", "吗", "有人", "怎么办", "怎么处理", "怎么解决", "不知道"];
/// What was under way, or what became of it.
const RUNS_IN_CHINESE: [&str; 11] =
    ["训练", "推理", "微调", "运行", "加载", "报错", "提示", "跑", "程序", "失败", "被杀"];
/// By which somebody tells others what to do.
const ADVICE_IN_CHINESE: [&str; 8] = ["如果", "请减", "建议", "可以通过", "可通过", "请尝试", "请使用", "则需"];
/// Words that stand between memory and its lack.
const BETWEEN_IN_CHINESE: [&str; 11] =
    ["还是", "仍然", "依然", "一直", "总是", "直接", "已经", "全部", "就", "都", "又"];
/// What makes it a doubt or a piece of advice.
const SUPPOSED_IN_CHINESE: [&str; 8] = ["如果", "若", "避免", "防止", "以免", "可能会", "会不会", "容易"];
/// What became of a program, without who did it or why.
const KILLED_IN_CHINESE: [&str; 6] = ["被系统杀", "被系统kill", "被杀", "被kill", "被oomkill", "被强制结束"];
/// The same in Spanish.
const SHORT_IN_SPANISH: [&str; 8] = [
    "sin memoria",
    "falta de memoria",
    "memoria insuficiente",
    "no hay suficiente memoria",
    "no hay memoria suficiente",
    "no alcanza la memoria",
    "la memoria no alcanza",
    "error de memoria",
];

/// Whether somebody tells of a run of his own, or asks about one.
#[must_use]
pub fn is_of_oneself(post: &str) -> bool {
    let lower = post.to_lowercase();
    has_any_word(&lower, "i i'm i've my")
        || lower.lines().any(is_of_form)
        || has_any(&lower, &OWN)
        || has_any(&lower, &ASKS)
        || has_any(post, &OWN_IN_CHINESE)
        || has_any(post, &MET)
}

/// `### Steps to reproduce`: a part of a tracker's form for errors; those for wishes have others.
fn is_of_form(line: &str) -> bool {
    line.starts_with(['#', '*']) && has_any(line, &["reproduc", "describe the bug", "expected behavio"])
}

fn is_own_in_chinese(post: &str) -> bool {
    has_any(post, &OWN_IN_CHINESE) && !has_any(post, &ADVICE_IN_CHINESE)
}

/// What a line of a post tells; the post is all there is.
pub(super) fn told(line: &str, post: &str) -> Option<Oom> {
    if is_source_code(without_prefix(line)) {
        return None;
    }
    let lower = line.to_lowercase();
    // `Memory is not enough for it. Use the maximal possible size instead.` is what a program did about it.
    if lower.contains(". use ") && lower.contains("instead") {
        return None;
    }
    ended_for_memory(&lower)
        .or_else(|| ended_by_system(&lower, post))
        .or_else(|| killed_notebook(&lower, post))
        .or_else(|| kernel_died(&lower, post))
        .or_else(|| chinese(&lower, post))
        .or_else(|| spanish(&lower))
        .or_else(|| translated(&lower))
        .or_else(|| full(&lower, post))
}

/// `it is killed due to insufficient memory`, `it takes 100% of the memory and breaks down`: what became of a program, and not what may
/// become of one.
fn ended_for_memory(lower: &str) -> Option<Oom> {
    let told = lower.split(". ").find(|sentence| {
        let lacks = || LACKS.iter().find_map(|words| sentence.find(words));
        let Some(at) = lacks().or_else(|| grows_until(sentence)) else { return false };
        // `If I understand correctly` supposes nothing of the end.
        let before = without_brackets(sentence).replace("if i ", "").replace("when i ", "");
        let is_supposed = has_any_word(
            &before,
            "may might could would should can avoid prevent if when whether not never will you your",
        );
        has_any_word(sentence, ENDS) && !is_supposed && at > 0 && !sentence[..at].contains(';')
    })?;
    let is_of_card = has_any(told, &["gpu", "cuda", "vram", "graphics card"]);
    Some(if is_of_card { shortage(true) } else { ended() })
}

/// Where `RAM fills up until` ends, with what becomes of the program behind it.
fn grows_until(sentence: &str) -> Option<usize> {
    let at = UNTIL.iter().find_map(|word| sentence.find(word))?;
    let (before, behind) = sentence.split_at(at);
    let is_of_memory = has_any_word(before, "ram memory") && has_any(before, &GROWS);
    (is_of_memory && has_any_word(behind, ENDS)).then_some(at)
}

/// `after 8k iterations the OS kills the process`, in a post that speaks of the machine's memory.
fn ended_by_system(lower: &str, post: &str) -> Option<Oom> {
    let is_supposed = |sentence: &str| has_any_word(sentence, "if may might could would you your");
    // Shards of weights are read into the machine's memory, one after the other.
    let loads = |sentence: &str| sentence.contains("checkpoint shards") && has_any_word(sentence, "killed");
    let is_told =
        |sentence: &str| (has_any(sentence, &BY_SYSTEM) || has_any(sentence, &PASSIVE)) && !is_supposed(sentence);
    let names_memory = || has_any_word(&post.to_lowercase(), "ram memory memoria");
    // As somebody writes it down who has no more of the log.
    let is_last_line = lower.trim() == "killed";
    let is_killed = (is_last_line || lower.split(". ").any(is_told)) && names_memory();
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
        has_any(sentence, &NOTEBOOKS) && has_any_word(sentence, DYING) && !is_supposed
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

/// `推理长视频总是报 OOM 错误`, `1080ti 显存还是不够`
fn chinese(lower: &str, post: &str) -> Option<Oom> {
    if lower.is_ascii() {
        return None;
    }
    let mut dense: String = without_brackets(lower).chars().filter(|c| *c != ' ').collect();
    BETWEEN_IN_CHINESE.iter().for_each(|word| dense = dense.replace(word, ""));
    let happened = |words: &[&str]| {
        dense.split(['。', '！', '？', '；']).any(|sentence| {
            let at = words.iter().find_map(|words| sentence.find(words));
            let is_advice = has_any(sentence, &["可以通过", "可通过", "请减"]);
            at.is_some_and(|at| !is_advice && !has_any(&sentence[..at], &SUPPOSED_IN_CHINESE))
        })
    };
    let is_of_a_run = || has_any(post, &RUNS_IN_CHINESE) && !has_any(post, &ADVICE_IN_CHINESE);
    let is_told =
        happened(&SHORT_IN_CHINESE) || happened(&LITTLE_IN_CHINESE) && (is_own_in_chinese(post) || is_of_a_run());
    // No card's memory kills a program.
    let is_of_machine = dense.contains("内存") && !post.contains("显存") || has_any_word(post, "killed");
    // A kill alone is the system's where the post speaks of the machine's memory.
    let is_killed = || post.contains("内存") && is_of_a_run() && happened(&KILLED_IN_CHINESE);
    is_told.then(|| shortage(!is_of_machine)).or_else(|| is_killed().then(ended))
}

/// A sentence without what stands in brackets: `内存（252G）已经用完`.
fn without_brackets(sentence: &str) -> String {
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

/// `me quedo sin memoria al entrenar`
fn spanish(lower: &str) -> Option<Oom> {
    let at = SHORT_IN_SPANISH.iter().find_map(|words| lower.find(words))?;
    let is_supposed = has_any_word(&lower[..at], "si evitar evita para puede podría podria");
    (!is_supposed).then(|| shortage(is_of_device(lower) || has_any(lower, &["tarjeta", "gráfica", "grafica"])))
}

/// `I can not train, the problem is gpu out of memory`: by who tells of his own.
fn full(lower: &str, post: &str) -> Option<Oom> {
    let (at, words) = FULL.iter().find_map(|words| Some((lower.find(words)?, *words)))?;
    let clause = &lower[lower[..at].rfind([',', '.', ':', ';', '!', '?', '(']).map_or(0, |end| end + 1)..at];
    let is_own = is_of_oneself(post);
    // Python's error is of the machine's memory, whatever else is named.
    let is_of_python = words.ends_with("memoryerror");
    (is_own && !is_hypothetical(clause) && !is_asked(clause))
        .then(|| shortage(!is_of_python && is_of_card(lower, post)))
}

/// Whether it is the card's memory: by the line, or by the post where that names none of the machine's.
fn is_of_card(lower: &str, post: &str) -> bool {
    let lower = lower.replace("no gpu", "").replace("without gpu", "");
    let post = post.to_lowercase().replace("gpu ram", "vram");
    is_of_device(&lower) || is_of_device(&post) && !has_any_word(&post, "ram")
}

fn ended() -> Oom {
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
        ] {
            assert!(found(text).is_some(), "{text}");
        }
        for text in [
            "Your training may be killed due to insufficient memory.\n",
            "If the training is killed, there is insufficient memory.\n",
            "Killed the old job. Training has insufficient memory for this size.\n",
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
            ("报错显存不够\n", Place::Device),
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
