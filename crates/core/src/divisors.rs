//! Divisors of a batch: the sizes of the pieces that it can be cut into.

/// All divisors of a number, the smallest first; 0 has none. Takes as many steps as the number's square root.
#[must_use]
pub fn divisors(number: u64) -> Vec<u64> {
    let is_small = |it: &u64| *it <= number / it;
    let small: Vec<u64> = (1..).take_while(is_small).filter(|it| number.is_multiple_of(*it)).collect();
    let large = small.iter().rev().map(|it| number / it).filter(|it| !is_small(it));
    small.iter().copied().chain(large).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_have_their_divisors() {
        for number in 1..400_u64 {
            let expected: Vec<u64> = (1..=number).filter(|it| number.is_multiple_of(*it)).collect();
            assert_eq!(divisors(number), expected);
        }
        assert_eq!(divisors(0), Vec::<u64>::new());
        assert_eq!(divisors(u64::from(u32::MAX)).len(), 32);
    }
}
