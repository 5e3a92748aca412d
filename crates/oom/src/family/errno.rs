//! The operating system's own words: errno 12, Windows 8 and 1455.

use super::cuda::refuses;
use crate::message::Message;
use crate::phrase::{has_any, has_any_word, has_number_after, has_word};
use crate::talk::is_only_mentioned;
use crate::{Certainty, Engine, Oom, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if line.contains("/dev/shm") && line.contains("No space left on device") {
        return Some(Oom { certainty: Certainty::Likely, ..Oom::host(Engine::Linux, Source::SharedMemory) });
    }
    if has_any(
        line,
        &[
            "WinError 1455",
            "os error 1455",
            "paging file is too small",
            "WinError 8]",
            "WinError 1450",
            "Insufficient system resources exist",
            "Not enough memory resources are available",
        ],
    ) {
        return Some(Oom::host(Engine::Windows, Source::Heap));
    }
    if PAGE_FILES.iter().any(|words| line.contains(words)) {
        return Some(Oom::host(Engine::Windows, Source::Heap));
    }
    // Notebooks on the web tell it in their own words.
    if has_any(line, &NOTEBOOKS) {
        return Some(Oom::host(Engine::Unknown, Source::Cgroup));
    }
    let lack = ["Not enough memory", "not enough memory"].into_iter().find_map(|phrase| line.find(phrase));
    let is_reported = |at: usize| !is_only_mentioned(line, at, at + "not enough memory".len());
    if lack.is_some_and(is_reported) && has_any(line, &["rror", "rrno", "(os error 8)"]) {
        return Some(Oom { certainty: Certainty::Likely, ..Oom::host(Engine::Windows, Source::Heap) });
    }
    if ["os error", "rrno"].iter().any(|name| has_number_after(line, name, "12")) || has_word(line, "ENOMEM") {
        return Some(Oom::host(Engine::Linux, Source::Heap));
    }
    let phrase = ["Cannot allocate memory", "cannot allocate memory", "virtual memory exhausted"];
    let (at, phrase) = phrase.into_iter().find_map(|phrase| Some((line.find(phrase)?, phrase)))?;
    // What the device's runtime refused keeps its place, whatever the system's last error was.
    if refuses(&line[..at]) {
        return None;
    }
    // What a program notes for who looks for its own mistakes is no end of it.
    let is_noted = has_any_word(&line[..at], "debug trace");
    (!is_noted && !is_only_mentioned(line, at, at + phrase.len())).then(|| Oom::host(Engine::Linux, Source::Heap))
}

/// `The paging file is too small for this operation to complete.` in other languages of Windows.
pub(crate) const PAGE_FILES: [&str; 10] = [
    "页面文件太小",
    "分頁檔太小",
    "ページング ファイルが小さすぎる",
    "페이징 파일이 너무 작",
    "Auslagerungsdatei ist zu klein",
    "fichier de pagination est insuffisant",
    "archivo de paginación es demasiado pequeño",
    "arquivo de paginação é muito pequeno",
    "ile di paging è troppo piccolo",
    "Файл подкачки слишком мал",
];

/// Colab, in the languages of its page, and Kaggle.
const NOTEBOOKS: [&str; 6] = [
    "using all available RAM",
    "allocate more memory than is available",
    "toda la RAM disponible",
    "toda la memoria RAM disponible",
    "toda a RAM disponível",
    "toute la RAM disponible",
];
