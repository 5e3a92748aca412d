//! What a person tells in Chinese.

use super::told::{ended, shortage, without_brackets};
use crate::Oom;
use crate::phrase::{has_any, has_any_word};

/// What people say of a card or a machine that was full, with the verb that makes it something that happened.
const SHORT: [&str; 17] = [
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
const LITTLE: [&str; 4] = ["显存不足", "显存不够", "内存不足", "内存不够"];
/// How people tell of an error of their own; pages say `我们`.
pub(crate) const OWN: [&str; 8] = ["我的", "我在", "我用", "我跑", "请问", "求助", "怎么办啊", "大佬"];
/// By which somebody tells of himself or asks, where nothing is told to others.
const OWN_IN_SHORT: [&str; 10] =
    ["我", "请教", "您好", "你好", "吗", "有人", "怎么办", "怎么处理", "怎么解决", "不知道"];
/// How people tell of an error they met.
const MET: [&str; 4] = ["就报", "报错", "这个错", "出现"];
/// What was under way, or what became of it.
const RUNS: [&str; 11] = ["训练", "推理", "微调", "运行", "加载", "报错", "提示", "跑", "程序", "失败", "被杀"];
/// By which somebody tells others what to do.
const ADVICE: [&str; 8] = ["如果", "请减", "建议", "可以通过", "可通过", "请尝试", "请使用", "则需"];
/// Words that stand between memory and its lack.
const BETWEEN: [&str; 11] = ["还是", "仍然", "依然", "一直", "总是", "直接", "已经", "全部", "就", "都", "又"];
/// What makes it a doubt or a piece of advice.
const SUPPOSED: [&str; 8] = ["如果", "若", "避免", "防止", "以免", "可能会", "会不会", "容易"];
/// What became of a program, without who did it or why.
const KILLED: [&str; 7] = ["killed", "被系统杀", "被系统kill", "被杀", "被kill", "被oomkill", "被强制结束"];
/// What memory does that comes to an end.
const GROWS: [&str; 6] = ["涨", "增长", "上升", "增加", "飙升", "占满"];
/// How it is said that memory was full all at once.
const BURST: [&str; 3] = ["爆了", "爆掉", "撑爆"];
/// The end that it comes to.
const ENDED: [&str; 9] = ["停了", "停止", "崩", "挂了", "卡死", "死机", "退出", "中断", "被杀"];

/// Whether somebody tells of himself or asks.
pub(super) fn is_of_oneself(post: &str) -> bool {
    has_any(post, &OWN) || has_any(post, &OWN_IN_SHORT)
}

/// Whether somebody tells of an error that he met.
pub(super) fn tells_of_error(post: &str) -> bool {
    has_any(post, &MET)
}

fn is_own(post: &str) -> bool {
    is_of_oneself(post) && !has_any(post, &ADVICE)
}

/// `推理长视频总是报 OOM 错误`, `1080ti 显存还是不够`
pub(super) fn told_in_chinese(lower: &str, post: &str) -> Option<Oom> {
    if lower.is_ascii() {
        return None;
    }
    let mut dense: String = without_brackets(lower).chars().filter(|c| *c != ' ').collect();
    BETWEEN.iter().for_each(|word| dense = dense.replace(word, ""));
    let happened = |words: &[&str]| {
        dense.split(['。', '！', '？', '；']).any(|sentence| {
            let at = words.iter().find_map(|words| sentence.find(words));
            let is_advice = has_any(sentence, &["可以通过", "可通过", "请减"]);
            at.is_some_and(|at| !is_advice && !has_any(&sentence[..at], &SUPPOSED))
        })
    };
    let is_of_a_run = || has_any(post, &RUNS) && !has_any(post, &ADVICE);
    let burst = |name: &str| {
        dense.split(['。', '！', '？', '；', '，', ',']).any(|clause| {
            let behind = clause.split_once(name).map_or("", |(_, behind)| behind);
            has_any(behind, &BURST) && !has_any(clause, &SUPPOSED)
        })
    };
    let is_told =
        happened(&SHORT) || burst("内存") || burst("显存") || happened(&LITTLE) && (is_own(post) || is_of_a_run());
    // No card's memory kills a program.
    let is_of_machine = dense.contains("内存") && !post.contains("显存") || has_any_word(post, "killed");
    // A kill alone is the system's where the post speaks of the machine's memory.
    let is_killed = || post.contains("内存") && is_of_a_run() && happened(&KILLED);
    is_told
        .then(|| shortage(!is_of_machine))
        .or_else(|| is_killed().then(ended))
        .or_else(|| dense.split(['。', '！', '？', '；']).find_map(grew_until_the_end))
}

/// `内存线性往上涨，到100%程序停了`: of a machine's memory or a card's, and what came of it.
fn grew_until_the_end(sentence: &str) -> Option<Oom> {
    let at = ["内存", "显存"].iter().filter_map(|name| sentence.find(name)).min()?;
    let after = |from: usize, words: &[&str]| {
        words.iter().filter_map(|word| sentence[from..].find(word)).min().map(|found| from + found)
    };
    let ended = after(after(at, &GROWS)?, &ENDED)?;
    let is_denied =
        sentence[..ended].ends_with(['没', '不', '未']) || has_any(&sentence[..ended], &["正常", "不再", "稳定"]);
    (!is_denied && !has_any(sentence, &SUPPOSED)).then(|| shortage(sentence[at..].starts_with("显存")))
}
