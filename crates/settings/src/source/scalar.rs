//! What an unquoted word means: null, true or false, a number, or text.

use serde_json::{Number, Value};

/// The value of an unquoted word after the core schema of YAML 1.2; `None` for `.inf` and `.nan`, which no setting can be.
///
/// Whole numbers are exact over the whole range of `i64` and `u64`.
pub(crate) fn plain(word: &str) -> Option<Value> {
    let value = match word {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ if is_not_finite(word) => return None,
        _ => match whole(word).or_else(|| fraction(word)) {
            Some(number) => Value::Number(number),
            None => Value::String(word.to_owned()),
        },
    };
    Some(value)
}

fn is_not_finite(word: &str) -> bool {
    let unsigned = word.strip_prefix(['+', '-']).unwrap_or(word);
    matches!(unsigned, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN")
}

fn whole(word: &str) -> Option<Number> {
    if let Some(digits) = word.strip_prefix("0x") {
        return radix(digits, 16);
    }
    if let Some(digits) = word.strip_prefix("0o") {
        return radix(digits, 8);
    }
    let unsigned = word.parse::<u64>().map(Number::from);
    unsigned.or_else(|_| word.parse::<i64>().map(Number::from)).ok()
}

fn radix(digits: &str, base: u32) -> Option<Number> {
    let digits = digits.starts_with(|first: char| first.is_digit(base)).then_some(digits)?;
    u64::from_str_radix(digits, base).map(Number::from).ok()
}

/// A number with a fraction or an exponent, or one too large for 64 bits. One too large for a float is text.
fn fraction(word: &str) -> Option<Number> {
    let has_digits = word.bytes().any(|byte| byte.is_ascii_digit());
    let number = has_digits.then(|| word.parse::<f64>().ok())??;
    Number::from_f64(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(word: &str, expect: Value) {
        assert_eq!(plain(word), Some(expect), "{word}");
    }

    #[test]
    fn words_mean_what_yaml_says() {
        check("", json!(null));
        check("~", json!(null));
        check("True", json!(true));
        check("FALSE", json!(false));
        check("5", json!(5));
        check("+5", json!(5));
        check("-5", json!(-5));
        check("18446744073709551615", json!(u64::MAX));
        check("-9223372036854775808", json!(i64::MIN));
        check("0x1F", json!(31));
        check("0o17", json!(15));
        check("1e-3", json!(0.001));
        check(".5", json!(0.5));
        check("18446744073709551616", json!(18446744073709551616.0));
    }

    #[test]
    fn everything_else_is_text() {
        for word in ["on", "no", "yes", "1_000", "0x", "0x+1", "3.5GiB", "90%", "inf", "NaN", "1e999", "--5", "1.2.3"] {
            check(word, json!(word));
        }
    }

    #[test]
    fn no_setting_is_infinite() {
        for word in [".inf", "-.inf", "+.INF", ".nan", ".NaN"] {
            assert_eq!(plain(word), None, "{word}");
        }
    }
}
