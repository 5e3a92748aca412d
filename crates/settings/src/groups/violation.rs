//! A value that parses and makes no sense.

/// A field's key in its group, what is allowed, and what it holds.
pub(crate) struct Violation {
    pub(crate) key: &'static str,
    pub(crate) expected: String,
    pub(crate) got: String,
}

/// Refuses unless `holds`.
pub(crate) fn ensure(holds: bool, key: &'static str, expected: &str, got: impl ToString) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { key, expected: expected.to_owned(), got: got.to_string() }) }
}

/// Refuses zero.
pub(crate) fn at_least_one(key: &'static str, count: u64) -> Result<(), Violation> {
    ensure(count > 0, key, "a whole number of 1 or more", count)
}

/// Refuses zero steps between two events of a kind; no number at all means never.
pub(crate) fn every(key: &'static str, steps: Option<u64>) -> Result<(), Violation> {
    ensure(steps != Some(0), key, "a whole number of 1 or more, or null for never", 0)
}

/// Refuses what is below 0, or not finite in fp32, in which updates are computed.
pub(crate) fn not_negative(key: &'static str, number: f64) -> Result<(), Violation> {
    ensure(number >= 0.0, key, "a number of 0 or more", number)?;
    fits_fp32(key, number)
}

/// Refuses what is more than fp32 can hold, in which updates are computed.
pub(crate) fn fits_fp32(key: &'static str, number: f64) -> Result<(), Violation> {
    let most = format!("a number up to {:e}, the largest in fp32", f32::MAX);
    ensure((number as f32).is_finite(), key, &most, format!("{number:e}"))
}
