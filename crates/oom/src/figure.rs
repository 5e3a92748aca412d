//! Figures with units, by integer arithmetic.
//!
//! Every engine met so far counts in steps of 1024, whatever it prints: Metal's `5.56 GB`, XLA's `6.48G` and the kernel's `76kB`
//! are binary. So there is one table of units and no guess per engine.

use lowtide_core::Bytes;

/// From 1 EiB up a figure is a broken counter or a corrupted size, never memory.
pub(crate) const ABSURD: u128 = 1 << 60;

/// A figure at the start of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Figure {
    /// Its value in bytes, to the nearest byte; a bare number counts as bytes.
    pub(crate) bytes: u128,
    /// Whether a unit was written.
    pub(crate) has_unit: bool,
    /// Whether a decimal point was written.
    pub(crate) has_fraction: bool,
    /// How much of the text it took.
    pub(crate) length: usize,
}

impl Figure {
    /// The figure as memory: `None` for a bare decimal (a ratio) and for an absurd one.
    pub(crate) fn memory(self) -> Option<Bytes> {
        if self.has_fraction && !self.has_unit {
            return None;
        }
        if self.bytes >= ABSURD {
            return None;
        }
        u64::try_from(self.bytes).ok().map(Bytes)
    }
}

/// Reads the figure a text starts with, blanks before it allowed.
pub(crate) fn figure_at(text: &str) -> Option<Figure> {
    let start = text.len() - text.trim_start().len();
    let (whole, after_whole) = whole_number(text, start)?;
    let (fraction, after_fraction) = fraction(text, after_whole);
    let (unit, end) = unit(text, after_fraction);
    let scale = unit.unwrap_or(1);
    let part = fraction.map_or(0, |(digits, power)| (digits * scale + power / 2) / power);
    Some(Figure {
        bytes: whole.saturating_mul(scale).saturating_add(part),
        has_unit: unit.is_some(),
        // A point alone ends a sentence.
        has_fraction: fraction.is_some_and(|(_, power)| power > 1),
        length: end,
    })
}

/// Digits, with commas between groups of three.
fn whole_number(text: &str, start: usize) -> Option<(u128, usize)> {
    let bytes = text.as_bytes();
    let mut end = start;
    let mut value = 0_u128;
    while let Some(&byte) = bytes.get(end) {
        match byte {
            b'0'..=b'9' => value = value.saturating_mul(10).saturating_add(u128::from(byte - b'0')),
            b',' if end > start && is_group(bytes, end + 1) => {}
            _ => break,
        }
        end += 1;
    }
    (end > start).then_some((value, end))
}

fn is_group(bytes: &[u8], start: usize) -> bool {
    let digits = bytes[start.min(bytes.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits == 3
}

/// The digits after a decimal point, and the power of ten they stand over. Past 15 digits nothing changes a byte.
fn fraction(text: &str, start: usize) -> (Option<(u128, u128)>, usize) {
    let bytes = text.as_bytes();
    if bytes.get(start) != Some(&b'.') {
        return (None, start);
    }
    let digits = bytes[start + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (mut value, mut power) = (0_u128, 1_u128);
    for &byte in bytes[start + 1..].iter().take(digits.min(15)) {
        value = value * 10 + u128::from(byte - b'0');
        power *= 10;
    }
    (Some((value, power)), start + 1 + digits)
}

/// The unit after a number; a single letter counts only when nothing stands between.
fn unit(text: &str, start: usize) -> (Option<u128>, usize) {
    let rest = &text[start..];
    let blanks = rest.len() - rest.trim_start().len();
    let word_length = rest[blanks..].bytes().take_while(u8::is_ascii_alphabetic).count();
    let word = &rest[blanks..blanks + word_length];
    if blanks > 0 && word.len() == 1 && word != "B" {
        return (None, start);
    }
    match scale(word) {
        Some(scale) => (Some(scale), start + blanks + word_length),
        None => (None, start),
    }
}

fn scale(word: &str) -> Option<u128> {
    let power = match word {
        "B" | "bytes" | "byte" | "Bytes" => 0,
        "K" | "k" | "KB" | "kB" | "kb" | "Kb" | "Ki" | "KiB" | "Kib" | "kib" | "kilobytes" => 1,
        "M" | "m" | "MB" | "mb" | "Mb" | "Mi" | "MiB" | "Mib" | "mib" | "megabytes" => 2,
        "G" | "g" | "GB" | "gb" | "Gb" | "Gi" | "GiB" | "Gib" | "gib" | "gigabytes" => 3,
        "T" | "t" | "TB" | "tb" | "Tb" | "Ti" | "TiB" | "tib" => 4,
        "P" | "PB" | "pb" | "Pb" | "Pi" | "PiB" => 5,
        "E" | "EB" | "eb" | "Eb" | "Ei" | "EiB" => 6,
        _ => return None,
    };
    Some(1 << (10 * power))
}

/// Bytes of a tensor, given `32,128,1024` and `float`; `None` for an unknown type or more than memory can be.
pub(crate) fn tensor_bytes(shape: &str, dtype: &str) -> Option<Bytes> {
    let mut count = 1_u64;
    for dimension in shape.split(',').map(str::trim).filter(|dimension| !dimension.is_empty()) {
        count = count.checked_mul(dimension.parse().ok()?)?;
    }
    let total = count.checked_mul(element_bytes(dtype)?)?;
    (u128::from(total) < ABSURD).then_some(Bytes(total))
}

fn element_bytes(dtype: &str) -> Option<u64> {
    match dtype {
        "bool" | "int8" | "uint8" | "qint8" | "quint8" | "float8_e4m3fn" | "float8_e5m2" => Some(1),
        "half" | "float16" | "bfloat16" | "int16" | "uint16" => Some(2),
        "float" | "float32" | "int32" | "uint32" | "qint32" => Some(4),
        "double" | "float64" | "int64" | "uint64" | "complex64" => Some(8),
        "complex128" => Some(16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<u64>) {
        assert_eq!(figure_at(text).and_then(Figure::memory).map(Bytes::get), expected, "{text:?}");
    }

    #[test]
    fn units_are_binary_and_rounding_is_to_the_nearest_byte() {
        check("0 bytes", Some(0));
        check("18.25 MiB free", Some(19_136_512));
        check("7.57 GiB", Some(8_128_225_608));
        check("5.56 GB", Some(5_970_004_541));
        check("6.48G at", Some(6_957_847_020));
        check("25,600,000 bytes", Some(25_600_000));
        check("128. GiB", Some(128 << 30));
        // As people type it anew.
        check("2 Gib", Some(2 << 30));
        check("76kB", Some(77_824));
        check("1.953125GB memory", Some(2_097_152_000));
        check("359661568", Some(359_661_568));
    }

    #[test]
    fn ratios_and_broken_counters_are_no_memory() {
        check("0.95", None);
        check("17179869184.00 GiB", None);
        check("99999999999999999999999999999999999999999999999 GiB", None);
        check("-4 bytes", None);
        check("", None);
        check("GiB", None);
    }

    #[test]
    fn a_word_after_a_number_is_not_a_unit() {
        check("12 KV cache", Some(12));
        check("1,2,3 bytes", Some(1));
    }

    #[test]
    fn shape_times_type() {
        assert_eq!(tensor_bytes("32,128,1024", "float"), Some(Bytes(16_777_216)));
        assert_eq!(tensor_bytes("", "double"), Some(Bytes(8)));
        assert_eq!(tensor_bytes("9223372036854775807,9", "half"), None);
        assert_eq!(tensor_bytes("4,x", "half"), None);
        assert_eq!(tensor_bytes("4", "string"), None);
    }
}
