//! A permutation is a bijection with a known inverse, and looks like chance.

use lowtide_data::order::Permutation;
use proptest::prelude::*;

/// How far counts are from equal, in standard deviations of a chi-square figure.
fn deviation(counts: &[u64]) -> f64 {
    let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let square: f64 = counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum();
    let freedom = (counts.len() - 1) as f64;
    (square - freedom) / (2.0 * freedom).sqrt()
}

#[track_caller]
fn check_fair(what: &str, counts: &[u64]) {
    let deviation = deviation(counts);
    assert!(deviation < 5.0, "{what}: {deviation:.1} standard deviations from equal");
}

#[test]
fn every_value_comes_once_for_every_length() {
    for len in (0..1500).chain(3000..3010) {
        let permutation = Permutation::new(len, len ^ 0x5EED);
        let mut seen = vec![false; len as usize];
        for index in 0..len {
            let value = permutation.at(index);
            assert!(!std::mem::replace(&mut seen[value as usize], true), "{value} twice of {len}");
            assert_eq!(permutation.position_of(value), index);
        }
    }
}

#[test]
fn a_million_values_come_once() {
    for len in [(1 << 20) - 1, 1 << 20, (1 << 20) + 1] {
        let permutation = Permutation::new(len, 11);
        let mut seen = vec![false; len as usize];
        (0..len).for_each(|index| seen[permutation.at(index) as usize] = true);
        assert!(seen.iter().all(|seen| *seen));
    }
}

#[test]
fn every_order_of_few_values_comes_equally_often() {
    for len in [2, 3, 4, 5, 6] {
        let orders: u64 = (1..=len).product();
        let mut counts = vec![0; orders as usize];
        for key in 0..orders * 200 {
            let order: Vec<_> = (0..len).map(|index| Permutation::new(len, key).at(index)).collect();
            let rank = order.iter().enumerate().fold(0, |rank, (index, value)| {
                let smaller = order[index..].iter().filter(|later| *later < value).count();
                rank * (order.len() - index) + smaller
            });
            counts[rank] += 1;
        }
        check_fair(&format!("orders of {len}"), &counts);
    }
}

#[test]
fn every_value_stands_at_every_place_equally_often() {
    for len in [7_u64, 16, 17, 33, 64, 100] {
        let mut counts = vec![0; (len * len) as usize];
        for key in 0..5_000 {
            let permutation = Permutation::new(len, key << 32);
            (0..len).for_each(|index| counts[(index * len + permutation.at(index)) as usize] += 1);
        }
        check_fair(&format!("places of {len}"), &counts);
    }
}

#[test]
fn neighbours_land_anywhere() {
    for len in [1_000_u64, 1_025, 2_048, 65_536, 1_000_003, 1 << 40] {
        let permutation = Permutation::new(len, 42);
        let mut steps = vec![0; 64];
        let mut last_bits = vec![0; 64];
        for index in 0..50_000.min(len - 1) {
            let (value, next) = (permutation.at(index), permutation.at(index + 1));
            let step = (next + len - value) % len;
            steps[(u128::from(step) * 64 / u128::from(len)) as usize] += 1;
            last_bits[((value & 7) * 8 + (next & 7)) as usize] += 1;
        }
        check_fair(&format!("steps of {len}"), &steps);
        check_fair(&format!("last bits of {len}"), &last_bits);
    }
}

#[test]
fn one_changed_bit_of_the_key_changes_everything() {
    let len = 10_000;
    for bit in 0..64 {
        let (one, other) = (Permutation::new(len, 5), Permutation::new(len, 5 ^ 1 << bit));
        let same = (0..len).filter(|index| one.at(*index) == other.at(*index)).count();
        assert!(same < 10, "bit {bit}: {same} places are the same, 1 is expected");
    }
}

proptest! {
    #[test]
    fn the_inverse_is_the_inverse(len in 1_u64..1 << 40, key in any::<u64>(), share in 0.0..1.0) {
        let permutation = Permutation::new(len, key);
        let index = (share * len as f64) as u64 % len;
        let value = permutation.at(index);
        prop_assert!(value < len);
        prop_assert_eq!(permutation.position_of(value), index);
        prop_assert_eq!(permutation.at(permutation.position_of(index)), index);
    }

    #[test]
    fn it_works_up_to_the_last_bit(len in (1_u64 << 62)..=u64::MAX, key in any::<u64>(), index in 0_u64..1 << 62) {
        let permutation = Permutation::new(len, key);
        prop_assert_eq!(permutation.position_of(permutation.at(index)), index);
    }
}
