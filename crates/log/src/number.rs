//! Whole numbers as logs print them.

/// The whole number that a text begins with, thousands set apart or not, and what follows it.
pub(crate) fn leading_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut end = digits(text);
    if end <= 3 {
        while text.get(end) == Some(&b',') && digits(&text[end + 1..]) == 3 {
            end += 4;
        }
    }
    let (number, rest) = text.split_at(end);
    if number.is_empty() {
        return None;
    }
    let number = number
        .iter()
        .filter(|byte| **byte != b',')
        .try_fold(0_u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')))?;
    Some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart_by_threes() {
        for (text, expected) in [
            ("491,520 tokens", Some((491_520, " tokens"))),
            ("1,048,576", Some((1_048_576, ""))),
            ("5, loss 3", Some((5, ", loss 3"))),
            ("4,8", Some((4, ",8"))),
            ("1234,567", Some((1234, ",567"))),
            ("many", None),
            ("99999999999999999999", None),
        ] {
            let expected = expected.map(|(number, rest)| (number, rest.as_bytes()));
            assert_eq!(leading_number(text.as_bytes()), expected, "{text}");
        }
    }
}
