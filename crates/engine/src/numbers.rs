//! Numbers as people read them.

/// Digits in groups of three.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Tokens a second, or samples a second where a sample is one target; slow ones with decimals.
pub(crate) fn speed(samples_per_second: f64, targets_per_second: f64) -> String {
    if targets_per_second > samples_per_second {
        return format!("{} tokens/s", grouped(targets_per_second as u64));
    }
    match samples_per_second {
        slow if slow < 10.0 => format!("{slow:.2} samples/s"),
        fast => format!("{} samples/s", grouped(fast as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds() {
        assert_eq!(speed(10.0, 640.0), "640 tokens/s");
        assert_eq!(speed(0.298, 0.298), "0.30 samples/s");
        assert_eq!(speed(1234.5, 1234.5), "1,234 samples/s");
    }

    #[test]
    fn digits_in_groups() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
    }
}
