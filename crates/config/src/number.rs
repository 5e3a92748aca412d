//! Numbers as configurations and logs write them.

/// A whole number, or a product of them: `5 * 8`, `1_000`. With a comma it is several: `128,256` is a sweep of two.
#[must_use]
pub fn whole_number(text: &str) -> Option<u64> {
    text.split('*').try_fold(1_u64, |product, factor| product.checked_mul(factor_of(factor.trim())?))
}

/// A whole number as logs print it for people, with commas between groups of three digits: `65,536`. `4,8` is a list.
#[must_use]
pub fn printed_number(text: &str) -> Option<u64> {
    let (first, groups) = text.split_once(',')?;
    let is_grouped = (1..=3).contains(&first.len()) && groups.split(',').all(|group| group.len() == 3);
    let digits = text.replace(',', "");
    let is_plain = is_grouped && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| digits.parse().ok()).flatten()
}

fn factor_of(text: &str) -> Option<u64> {
    let digits = text.replace('_', "");
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
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
        for text in ["x", "", "-3", "+3", "4,8", "128,256", "65,536", "16,", ",16"] {
            assert_eq!(whole_number(text), None, "{text}");
        }
        assert_eq!(whole_number(&"9*".repeat(40)), None);
    }

    #[test]
    fn numbers_with_groups_of_digits() {
        assert_eq!(printed_number("65,536"), Some(65_536));
        assert_eq!(printed_number("1,048,576"), Some(1 << 20));
        for text in ["x", "", "16", "4,8", "2,3", "16,", ",168", "1234,567", "1,04,576", "-1,024", "1,_24"] {
            assert_eq!(printed_number(text), None, "{text}");
        }
    }
}
