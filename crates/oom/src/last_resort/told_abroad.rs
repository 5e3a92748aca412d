//! The same in short words of further languages: Spanish, Portuguese, Russian, Japanese, Korean.

use super::report::is_of_device;
use super::told::shortage;
use crate::Oom;
use crate::phrase::{has_any, has_any_word};

/// How people tell of an error of their own, or ask about one: pages speak to their readers.
const OWN: [&str; 34] = [
    "me sale ",
    "me da ",
    "me dice ",
    "no puedo ",
    "estoy ",
    "tengo ",
    "alguien ",
    "ayuda",
    "estou ",
    "tenho ",
    "alguém",
    "j'ai ",
    "quelqu'un",
    "ich habe",
    "bekomme ich",
    "ich bekomme",
    "kann jemand",
    "у меня",
    "подскажите",
    "помогите",
    "что делать?",
    "в чем может",
    "почему ",
    "제가",
    "저는",
    "제 ",
    "까요",
    "인가요",
    "나요",
    "でしょうか",
    "ですか",
    "困って",
    "教えて",
    "助けて",
];

/// Whether somebody tells of himself or asks; the post is given in small letters.
pub(super) fn is_of_oneself(lower: &str) -> bool {
    has_any(lower, &OWN)
}

/// What people say of a card or a machine that was full. Without first letters that may be capitals.
pub(super) const TRANSLATED: [&str; 42] = [
    "emória insuficiente",
    "sem memória",
    "falta de memória",
    "estouro de memória",
    "estourou a memória",
    "stoura a memória",
    "memória acaba",
    "memória acabou",
    "erro de memória",
    "ехватка памяти",
    "ехватка видеопамяти",
    "ехватка оперативной памяти",
    "е хватает памяти",
    "е хватает видеопамяти",
    "е хватает оперативной памяти",
    "е хватило памяти",
    "е хватило видеопамяти",
    "едостаточно памяти",
    "едостаточно видеопамяти",
    "ончилась память",
    "аканчивается память",
    "ереполнение памяти",
    "メモリ不足",
    "メモリーが不足",
    "メモリが不足",
    "メモリーが足り",
    "メモリが足り",
    "メモリーエラー",
    "メモリエラー",
    "vram不足",
    "vramが足り",
    "메모리 부족",
    "메모리부족",
    "메모리가 부족",
    "메모리 초과",
    "메모리가 모자",
    "메모리가 터",
    "memory 부족",
    "memory가 부족",
    "vram 부족",
    "memory不足",
    "memory 不足",
];
/// The same in Spanish, which many write without its accents.
pub(super) const SPANISH: [&str; 8] = [
    "sin memoria",
    "falta de memoria",
    "memoria insuficiente",
    "no hay suficiente memoria",
    "no hay memoria suficiente",
    "no alcanza la memoria",
    "la memoria no alcanza",
    "error de memoria",
];
/// What makes it a doubt or a piece of advice, wherever in its sentence.
const SUPPOSED: [&str; 32] = [
    "evitar",
    "evite",
    "caso ",
    "se houver",
    "se ficar",
    "se der",
    "pode ",
    "poderia",
    "если",
    "чтобы",
    "избежать",
    "может",
    "могут",
    "при нехватке",
    "場合",
    "もし",
    "避け",
    "防",
    "かもしれ",
    "ときは",
    "경우",
    "만약",
    "부족하면",
    "초과하면",
    "방지",
    "피하",
    "설명합니다",
    "이 글",
    "説明",
    "解説",
    "記事",
    "このページ",
];
/// A card, in these languages.
const CARDS: [&str; 10] = [
    "placa de vídeo",
    "placa gráfica",
    "видео",
    "ビデオメモリ",
    "グラボ",
    "グラフィック",
    "그래픽",
    "그래픽카드",
    "지피유",
    "куда",
];

/// `me quedo sin memoria al entrenar`
pub(super) fn spanish(lower: &str) -> Option<Oom> {
    let at = SPANISH.iter().find_map(|words| lower.find(words))?;
    let is_supposed = has_any_word(&lower[..at], "si evitar evita para puede podría podria");
    (!is_supposed).then(|| shortage(is_of_device(lower) || has_any(lower, &["tarjeta", "gráfica", "grafica"])))
}

/// `При обучении не хватает видеопамяти`, `学習中にメモリ不足で落ちます`
pub(super) fn translated(lower: &str) -> Option<Oom> {
    if lower.is_ascii() {
        return None;
    }
    let is_told = |sentence: &str| has_any(sentence, &TRANSLATED) && !has_any(sentence, &SUPPOSED);
    let sentence = lower.split(". ").flat_map(|part| part.split(['。', '！', '!'])).find(|part| is_told(part))?;
    Some(shortage(is_of_device(sentence) || has_any(sentence, &CARDS)))
}

#[cfg(test)]
mod tests {
    use crate::{Certainty, Place, scan_last_resort};

    #[test]
    fn what_was_full_is_told_in_other_languages() {
        for (text, place) in [
            ("Dá erro de memória insuficiente na GPU durante o treino", Place::Device),
            ("memória insuficiente", Place::Host),
            ("O notebook fica sem memória quando carrego os dados", Place::Host),
            ("При обучении нехватка памяти на видеокарте", Place::Device),
            ("Не хватает видеопамяти, карта на 8 ГБ", Place::Device),
            ("Не хватило памяти при чтении таблицы", Place::Host),
            ("学習中にメモリ不足で落ちます", Place::Host),
            ("GPUのメモリ不足エラーになります", Place::Device),
            ("VRAM不足で学習できません", Place::Device),
            ("학습 중 메모리 부족 오류가 발생합니다", Place::Host),
            ("그래픽카드 메모리가 부족합니다", Place::Device),
        ] {
            let found = scan_last_resort(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((found.oom.place, found.oom.certainty), (place, Certainty::Slight), "{text}");
        }
    }

    #[test]
    fn advice_in_other_languages_tells_nothing() {
        for text in [
            "Para evitar memória insuficiente, diminua o lote",
            "Если не хватает памяти, уменьшите размер пакета",
            "メモリ不足の場合はバッチを小さくしてください",
            "메모리 부족을 방지하려면 배치를 줄이세요",
            "메모리가 부족하면 배치를 줄이세요",
            "이 글에서는 vram 부족 문제를 설명합니다.",
            "このページでは GPU memory不足 の原因を説明します。",
        ] {
            assert!(scan_last_resort(text.as_bytes()).is_none(), "{text}");
        }
    }
}
