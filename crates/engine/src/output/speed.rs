//! How fast a run is, as people read it.

use lowtide_core::grouped;

/// Tokens a second, or samples a second where there are no tokens; slow ones with decimals.
pub(crate) fn speed(samples_per_second: f64, tokens_per_second: Option<f64>) -> String {
    if let Some(tokens) = tokens_per_second {
        return format!("{} tokens/s", grouped(tokens as u64));
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
        assert_eq!(speed(10.0, Some(640.0)), "640 tokens/s");
        assert_eq!(speed(0.298, None), "0.30 samples/s");
        assert_eq!(speed(1234.5, None), "1,234 samples/s");
    }
}
