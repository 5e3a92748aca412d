//! Numbers as configurations write them.

/// A whole number, or a product of them: `65,536`, `5 * 8`, `1_000`.
#[must_use]
pub fn whole_number(text: &str) -> Option<u64> {
    text.split('*').try_fold(1_u64, |product, factor| {
        let digits: String = factor.trim().chars().filter(|c| !matches!(c, ',' | '_')).collect();
        product.checked_mul(digits.parse().ok()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_products() {
        assert_eq!(whole_number("5 * 8"), Some(40));
        assert_eq!(whole_number("1_000"), Some(1000));
        assert_eq!(whole_number("65,536"), Some(65_536));
        assert_eq!(whole_number("x"), None);
        assert_eq!(whole_number(&"9*".repeat(40)), None);
    }
}
