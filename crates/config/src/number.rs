//! Numbers as configurations write them.

/// A whole number, or a product of them: `65,536`, `5 * 8`, `1_000`. A comma stands between groups of three digits only:
/// `4,8` is a list.
#[must_use]
pub fn whole_number(text: &str) -> Option<u64> {
    text.split('*').try_fold(1_u64, |product, factor| product.checked_mul(factor_of(factor.trim())?))
}

fn factor_of(text: &str) -> Option<u64> {
    let (first, groups) = text.split_once(',').unwrap_or((text, ""));
    let is_grouped = groups.is_empty() || (first.len() <= 3 && groups.split(',').all(|group| group.len() == 3));
    let digits: String = text.chars().filter(|c| !matches!(c, ',' | '_')).collect();
    if !is_grouped || text.ends_with(',') || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_products() {
        assert_eq!(whole_number("5 * 8"), Some(40));
        assert_eq!(whole_number("1_000"), Some(1000));
        assert_eq!(whole_number("65,536"), Some(65_536));
        assert_eq!(whole_number("1,048,576"), Some(1 << 20));
        for text in ["x", "", "-3", "+3", "4,8", "2,3", "16,", ",16", "1234,567", "1,04,576"] {
            assert_eq!(whole_number(text), None, "{text}");
        }
        assert_eq!(whole_number(&"9*".repeat(40)), None);
    }
}
