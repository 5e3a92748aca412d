//! A shuffle of any number of values that takes no memory.
//!
//! A shuffled list of a billion samples is 8 GB, and has to be made anew for each epoch before the first sample is
//! read. Here each place of the list is computed when it is asked for: a Feistel network, which is a bijection
//! whatever its round function does, over the smallest power of two that holds all values. Places that fall outside
//! are sent through again until one falls inside ("cycle walking"), which keeps it a bijection and takes fewer than 2
//! turns on average. Where that power of two is an odd one, the halves differ by a bit: an even one would take up to
//! 4 turns.
//!
//! So seed, epoch, position and window say all that is needed to resume, and the cache can ask when anything is needed
//! next.

/// How many times both halves change.
const TURNS: u64 = 4;
/// Halves of few bits know few round functions: over millions of keys, 4 turns do not bring every order of 6 values
/// equally often.
const TURNS_OF_FEW_VALUES: u64 = 8;
/// The bits up to which values are few.
const FEW_BITS: u32 = 10;
/// With halves of two bits some orders of 4 values come more often than others, however many turns are made.
const LEAST_BITS: u32 = 6;
/// 2^64 divided by the golden ratio: the step of SplitMix64.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A bijection of `0..len` onto itself, chosen by a key.
///
/// Takes 24 bytes for any length, and is the same on every platform and in every version: an order that was stored as
/// a key can be walked again. It shuffles well and hides nothing: it is no cipher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permutation {
    len: u64,
    left_bits: u32,
    right_bits: u32,
    key: u64,
}

impl Permutation {
    /// The permutation of `0..len` that belongs to `key`. Keys that differ in one bit give unrelated permutations.
    pub fn new(len: u64, key: u64) -> Self {
        let bits = (u64::BITS - len.saturating_sub(1).leading_zeros()).max(LEAST_BITS);
        Self { len, left_bits: bits / 2, right_bits: bits - bits / 2, key: mix(key.wrapping_add(STEP)) }
    }

    /// How many values there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value at `index`, in constant time.
    ///
    /// # Panics
    ///
    /// Where `index` is not below [`Permutation::len`].
    pub fn at(&self, index: u64) -> u64 {
        assert!(index < self.len, "index {index} of a permutation of {}", self.len);
        let mut value = self.forward(index);
        while value >= self.len {
            value = self.forward(value);
        }
        value
    }

    /// The index at which `value` stands, in constant time: the inverse of [`Permutation::at`].
    ///
    /// # Panics
    ///
    /// Where `value` is not below [`Permutation::len`].
    pub fn position_of(&self, value: u64) -> u64 {
        assert!(value < self.len, "value {value} of a permutation of {}", self.len);
        let mut index = self.backward(value);
        while index >= self.len {
            index = self.backward(index);
        }
        index
    }

    fn forward(&self, block: u64) -> u64 {
        let (mut left, mut right) = self.halves(block);
        for turn in 0..self.turns() {
            left ^= self.round(2 * turn, right) >> (u64::BITS - self.left_bits);
            right ^= self.round(2 * turn + 1, left) >> (u64::BITS - self.right_bits);
        }
        left << self.right_bits | right
    }

    fn backward(&self, block: u64) -> u64 {
        let (mut left, mut right) = self.halves(block);
        for turn in (0..self.turns()).rev() {
            right ^= self.round(2 * turn + 1, left) >> (u64::BITS - self.right_bits);
            left ^= self.round(2 * turn, right) >> (u64::BITS - self.left_bits);
        }
        left << self.right_bits | right
    }

    fn halves(&self, block: u64) -> (u64, u64) {
        (block >> self.right_bits, block & ((1 << self.right_bits) - 1))
    }

    fn turns(&self) -> u64 {
        if self.left_bits + self.right_bits <= FEW_BITS { TURNS_OF_FEW_VALUES } else { TURNS }
    }

    /// A number whose upper bits depend on every bit of `half`, of the key and of the round.
    fn round(&self, round: u64, half: u64) -> u64 {
        let word = half ^ self.key.wrapping_add(round.wrapping_mul(STEP));
        let word = (word ^ word >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        (word ^ word >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93)
    }
}

/// One key made of several numbers, such as a seed, an epoch and the number of a block.
pub(crate) fn key_of(parts: &[u64]) -> u64 {
    parts.iter().fold(0, |key, part| mix(key.wrapping_add(STEP) ^ mix(part.wrapping_add(STEP))))
}

/// The finaliser of SplitMix64: a bijection of 64 bits in which each bit of the input moves half of the output.
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers come from a second implementation, written in another language.
    #[test]
    fn the_order_is_the_same_everywhere_and_for_ever() {
        let order = |len, key| (0..8.min(len)).map(|index| Permutation::new(len, key).at(index)).collect::<Vec<_>>();
        assert_eq!(order(8, 0), [5, 0, 4, 1, 2, 6, 7, 3]);
        assert_eq!(order(1000, 1), [909, 353, 278, 315, 161, 431, 69, 615]);
        assert_eq!(order(1 << 40, 2)[..3], [997_743_407_554, 956_566_058_049, 343_707_326_907]);
        assert_eq!(order(u64::MAX, 3)[..2], [1_846_463_768_093_835_624, 8_364_367_666_790_737_176]);
        assert_eq!(key_of(&[1, 2, 3]), 17_824_878_756_907_967);
    }

    #[test]
    fn the_smallest_lengths_work() {
        assert!(Permutation::new(0, 7).is_empty());
        assert_eq!(Permutation::new(1, 7).at(0), 0);
        assert_eq!(Permutation::new(1, 7).position_of(0), 0);
    }

    #[test]
    #[should_panic(expected = "index 5 of a permutation of 5")]
    fn an_index_outside_is_refused() {
        Permutation::new(5, 0).at(5);
    }

    #[test]
    fn the_parts_of_a_key_do_not_run_together() {
        let keys = [key_of(&[]), key_of(&[0]), key_of(&[0, 0]), key_of(&[1, 2]), key_of(&[2, 1]), key_of(&[3])];
        for (number, key) in keys.iter().enumerate() {
            assert!(!keys[..number].contains(key), "{keys:?}");
        }
    }
}
