//! What people write about a run in Spanish, with accents and without.

use super::narrative::{Narrative, has_one, is_of};

/// Words for growth.
const GROWS: &[&str] = &[
    "crece",
    "crecen",
    "creciendo",
    "crecer",
    "aumenta",
    "aumentan",
    "aumentando",
    "acumula",
    "acumulan",
    "acumulando",
    "sube",
    "subiendo",
    "fuga",
    "fugas",
];
/// What somebody makes larger, so that no growth is told of.
const SETTINGS: &[&str] = &["batch", "lote", "tamaño", "resolución", "resolucion", "límite", "limite", "swap", "ram"];
/// What was given back, or was not.
const GIVEN_BACK: &[&str] = &["libera", "liberan", "liberada", "liberado", "liberar", "liberando"];
/// What denies the word behind it.
const DENIALS: &[&str] = &["no", "nunca", "sin", "ningún", "ningun", "ninguna"];
/// Words for a model that is trained.
const TRAINING: &[&str] =
    &["entrenar", "entreno", "entrena", "entrenando", "entrenamiento", "reentrenar", "reentrenamiento"];
/// Words for a model that is used.
const INFERENCE: &[&str] = &["inferencia", "inferir", "predicción", "prediccion", "predicciones", "predecir"];
/// Words for a run that goes on from a checkpoint.
const RESUMES: &[&str] = &["reanudar", "reanudo", "reanuda", "reanudando", "reanudé", "retomar"];
/// Words for an evaluation.
const EVALUATION: &[&str] = &["validación", "validacion", "validar", "evaluación", "evaluacion", "evaluar"];
/// What the time of a failure is told by.
const WHEN: &[&str] = &["durante", "al", "cuando", "mientras", "en", "tras", "después", "despues"];
/// What goes in, whatever is done with it.
const DATA: &[&str] = &["datos", "conjunto", "imágenes", "imagenes", "set", "dataset"];
/// What is done one after the other, and what it takes.
const UNITS: &[&str] = &[
    "época",
    "épocas",
    "epoca",
    "epocas",
    "epochs",
    "iteraciones",
    "pasos",
    "imágenes",
    "imagenes",
    "archivos",
    "minutos",
    "horas",
    "rato",
    "tiempo",
];
/// Who others on a card are.
const OTHERS: &[&str] = &[
    "proceso",
    "procesos",
    "programa",
    "programas",
    "usuario",
    "usuarios",
    "persona",
    "personas",
    "trabajo",
    "trabajos",
];
/// What others on a card do.
const RUNS: &[&str] = &[
    "usa",
    "usan",
    "usando",
    "utiliza",
    "utilizando",
    "ocupa",
    "ocupan",
    "ocupando",
    "ejecutando",
    "corriendo",
    "comparte",
    "comparten",
];
/// What stands between the name of the batch and its size.
const BEFORE_ONE: &[&str] = &["de", "a", "en", "es", "=", "igual", "ya", "incluso", "solo", "sólo"];

/// Adds what a sentence tells to what is known.
pub(super) fn note(told: &mut Narrative, words: &[&str], speaks_of_memory: bool) {
    told.grows |= speaks_of_memory && tells_of_growth(words);
    told.evaluates |= fails_in_evaluation(words);
    told.trains |= has_one(words, TRAINING);
    told.infers |= has_one(words, INFERENCE);
    told.fails_later |= fails_later(words);
    told.resumes |= has_one(words, RESUMES);
    told.runs_again |= runs_again(words);
    told.takes_one_sample |= takes_one_sample(words);
    told.shares_the_card |= shares_the_card(words);
}

/// Up to so many words before a place.
fn before<'a, 'b>(words: &'a [&'b str], at: usize, most: usize) -> &'a [&'b str] {
    &words[at.saturating_sub(most)..at]
}

/// Up to so many words behind a place.
fn behind<'a, 'b>(words: &'a [&'b str], at: usize, most: usize) -> &'a [&'b str] {
    &words[at + 1..(at + 1 + most).min(words.len())]
}

/// `la memoria crece`, `no se libera`
fn tells_of_growth(words: &[&str]) -> bool {
    words.iter().enumerate().any(|(at, word)| {
        let is_made = has_one(before(words, at, 4), SETTINGS) || has_one(behind(words, at, 3), SETTINGS);
        is_of(GROWS, word) && !is_made || is_of(GIVEN_BACK, word) && has_one(before(words, at, 3), DENIALS)
    })
}

/// `durante la validación`; a set for validation is another matter.
fn fails_in_evaluation(words: &[&str]) -> bool {
    words.iter().enumerate().any(|(at, word)| {
        let is_then =
            has_one(before(words, at, 4), WHEN) || has_one(before(words, at, 7), &["al", "cuando", "durante"]);
        is_of(EVALUATION, word) && is_then && !has_one(before(words, at, 3), DATA)
    })
}

/// `después de 3 épocas`, `tras unos minutos`
fn fails_later(words: &[&str]) -> bool {
    words.iter().enumerate().any(|(at, word)| {
        let near = behind(words, at, 4);
        is_of(&["después", "despues", "tras"], word) && has_one(near, UNITS) && !has_one(near, &["cada"])
    })
}

/// `la segunda vez`, `cuando vuelvo a ejecutar`
fn runs_again(words: &[&str]) -> bool {
    let is_second = words
        .windows(2)
        .any(|pair| pair[0] == "segunda" && is_of(&["vez", "ejecución", "ejecucion", "corrida"], pair[1]));
    let is_redone = words.windows(3).any(|three| {
        is_of(&["vuelvo", "volver", "vuelve"], three[0])
            && is_of(&["ejecutar", "ejecutarlo", "correr", "correrlo"], three[2])
    });
    is_second || is_redone
}

/// `incluso con un batch size de 1`; that it works with one is another matter.
fn takes_one_sample(words: &[&str]) -> bool {
    let names_one = words.iter().enumerate().any(|(at, word)| {
        let mut rest = words[at + 1..].iter().skip_while(|word| is_of(&["size"], word) || is_of(BEFORE_ONE, word));
        is_of(&["batch", "batch_size", "batchsize", "batch-size", "lote", "lotes"], word)
            && matches!(rest.next(), Some(&"1" | &"uno"))
    });
    let helps = words
        .iter()
        .enumerate()
        .any(|(at, word)| is_of(&["funciona", "funcionó", "entra"], word) && !has_one(before(words, at, 2), DENIALS));
    // English has its own words for what helps.
    let is_spanish = has_one(words, &["de", "con", "el", "la", "un"]);
    names_one && is_spanish && !helps
}

/// `otro proceso está usando la tarjeta`; that there is none is another matter.
fn shares_the_card(words: &[&str]) -> bool {
    let names_others = words.iter().enumerate().any(|(at, word)| {
        let is_denied = has_one(before(words, at, 3), DENIALS);
        is_of(&["otro", "otra", "otros", "otras"], word) && has_one(behind(words, at, 1), OTHERS) && !is_denied
    });
    names_others && has_one(words, RUNS)
}

#[cfg(test)]
mod tests {
    use crate::log::Narrative;

    fn of(line: &str) -> Narrative {
        let mut narrative = Narrative::default();
        narrative.note(line);
        narrative
    }

    #[test]
    fn growth_is_told() {
        for line in [
            "La memoria de la GPU crece en cada iteración hasta llenarse.",
            "La memoria no se libera después de cada lote.",
            "La VRAM va aumentando con cada imagen que proceso.",
            "Creo que hay una fuga de memoria en el bucle.",
        ] {
            assert!(of(line).grows, "{line}");
        }
        assert!(!of("Si el batch size aumenta la memoria de la GPU no alcanza.").grows);
    }

    #[test]
    fn when_it_failed_is_told() {
        for line in [
            "El error aparece durante la validación del modelo.",
            "Se queda sin memoria al llegar a la fase de evaluación.",
            "Falla en la validacion, nunca antes de ella.",
        ] {
            assert!(of(line).evaluates, "{line}");
        }
        assert!(!of("Tengo 200 imágenes en el conjunto de validación.").evaluates);
        assert!(of("El entrenamiento falla después de unas 3 épocas.").fails_later);
        assert!(!of("Guardo el modelo después de cada época.").fails_later);
        assert!(of("La segunda vez que lo ejecuto falla.").runs_again);
        assert!(of("Cuando vuelvo a ejecutar la celda falla.").runs_again);
        assert!(of("Al reanudar desde un checkpoint falla.").resumes);
    }

    #[test]
    fn what_somebody_does_is_told() {
        assert!(of("Quiero entrenar un modelo con mis datos.").trains);
        assert!(of("Solo quiero hacer inferencia con una imagen.").infers);
    }

    #[test]
    fn a_single_sample_is_told() {
        for line in [
            "Incluso con un batch size de 1 me da el mismo error.",
            "He puesto un tamaño de lote de 1 y no funciona.",
            "Con batch_size = 1 sigue sin memoria la tarjeta.",
        ] {
            assert!(of(line).takes_one_sample, "{line}");
        }
        for line in ["Con un batch size de 1 sí funciona.", "Uso un batch size de 16 en una tarjeta."] {
            assert!(!of(line).takes_one_sample, "{line}");
        }
    }

    #[test]
    fn others_on_the_card_are_told() {
        assert!(of("Hay otro proceso que está usando la misma tarjeta.").shares_the_card);
        assert!(of("En el servidor otro usuario ocupa la GPU.").shares_the_card);
        assert!(!of("No hay otro proceso usando la tarjeta.").shares_the_card);
    }
}
