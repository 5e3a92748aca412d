//! Properties of sizes and lines: any text is answered, and what is printed can be read.

use lowtide_core::{Bytes, LineSpec, Percent, Phase};
use proptest::prelude::*;

/// Half of the last printed decimal of `bytes`, rounded up.
fn half_of_last_decimal(bytes: u64) -> u64 {
    let unit = [40, 30, 20, 10].into_iter().map(|shift| 1_u64 << shift).find(|unit| bytes >= *unit);
    unit.map_or(0, |unit| unit.div_ceil(200))
}

proptest! {
    #[test]
    fn no_text_makes_parsing_panic(text in any::<String>()) {
        let _ = text.parse::<Bytes>();
        let _ = text.parse::<LineSpec>();
        let _ = text.parse::<Percent>();
        let _ = text.parse::<Phase>();
    }

    #[test]
    fn no_text_that_looks_like_a_size_makes_parsing_panic(text in "[0-9]{0,60}[.]?[0-9]{0,60} ?[kmgtKMGT%]?i?[bB]{0,2}") {
        let _ = text.parse::<Bytes>();
        let _ = text.parse::<LineSpec>();
        let _ = text.parse::<Percent>();
    }

    #[test]
    fn whole_numbers_are_exact(bytes in any::<u64>()) {
        prop_assert_eq!(bytes.to_string().parse(), Ok(Bytes(bytes)));
    }

    #[test]
    fn decimals_agree_with_integer_arithmetic(whole in 0_u64..1 << 22, fraction in 0_u64..1_000_000_000) {
        let exact = (u128::from(whole) * 1_000_000_000 + u128::from(fraction)) * (1 << 30) / 1_000_000_000;
        let parsed: Bytes = format!("{whole}.{fraction:09}GiB").parse().expect("a size");
        prop_assert_eq!(u128::from(parsed.get()), exact);
        let decimal: Bytes = format!("{whole}.{fraction:09}GB").parse().expect("a size");
        prop_assert_eq!(decimal.get(), whole * 1_000_000_000 + fraction);
    }

    #[test]
    fn what_is_printed_parses_to_nearly_the_same(shift in 1_u32..64, raw in any::<u64>()) {
        let bytes = raw >> shift;
        let printed = Bytes(bytes).to_string();
        let parsed: Bytes = printed.parse().expect("printed sizes parse");
        let slack = half_of_last_decimal(bytes.max(parsed.get())) + 1;
        prop_assert!(parsed.get().abs_diff(bytes) <= slack, "{} became {}", bytes, parsed.get());
        prop_assert_eq!(parsed.to_string(), printed);
    }

    #[test]
    fn a_line_prints_exactly_what_it_is(raw in 1..u64::MAX, zeros in 0_u32..50) {
        let line = LineSpec::Size(Bytes((raw >> zeros << zeros).max(1)));
        prop_assert_eq!(line.to_string().parse(), Ok(line));
        let json = serde_json::to_string(&line).expect("a line is a text");
        prop_assert_eq!(serde_json::from_str::<LineSpec>(&json).expect("its own text"), line);
    }

    #[test]
    fn a_line_never_passes_the_device(total in 1..u64::MAX, size in 1..u64::MAX, hundredths in 1_u16..=10_000) {
        let percent = Percent::from_hundredths(hundredths).expect("in range");
        for spec in [LineSpec::Size(Bytes(size)), LineSpec::Share(percent)] {
            if let Ok(line) = spec.resolve(Bytes(total)) {
                let limit = line.limit().expect("a limit was asked for");
                prop_assert!(Bytes::ZERO < limit && limit <= Bytes(total));
                prop_assert!(line.admits(Bytes::ZERO, limit));
                prop_assert!(!line.admits(Bytes(1), limit));
            }
        }
    }
}
