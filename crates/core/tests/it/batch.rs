//! Properties of cutting a batch into micro-batches.

use lowtide_core::{MicroBatch, pieces};
use proptest::prelude::*;

proptest! {
    #[test]
    fn micro_batches_add_up_to_the_batch(samples in 0_u32..100_000, micro_batch in 1_u32..200_000) {
        let sizes: Vec<u32> = pieces(samples, MicroBatch::new(micro_batch).expect("not 0")).collect();
        prop_assert_eq!(sizes.iter().sum::<u32>(), samples);
        prop_assert!(sizes.iter().all(|size| (1..=micro_batch).contains(size)));
        prop_assert_eq!(sizes.len(), samples.div_ceil(micro_batch) as usize);
    }

    #[test]
    fn they_add_up_for_the_largest_batches_too(samples in u32::MAX - 1000..=u32::MAX, micro_batch in 1_u32 << 20..=u32::MAX) {
        let sizes = pieces(samples, MicroBatch::new(micro_batch).expect("not 0"));
        prop_assert_eq!(sizes.map(u64::from).sum::<u64>(), u64::from(samples));
    }
}
