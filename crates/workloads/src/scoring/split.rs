//! Which items are trained on and which are evaluated on, and the order of training.

use std::cell::RefCell;

use super::item::Items;
use crate::random::Random;

/// Share of the items that are evaluated on.
const EVALUATION_SHARE: f64 = 0.2;

/// The items by number, in two parts.
///
/// An item's part follows from its id alone: files that are read in another order, or more of them, move none.
pub(crate) struct Split {
    seed: u64,
    train: Vec<u64>,
    eval: Vec<u64>,
    /// An epoch and the order of its items, so that a batch does not shuffle anew.
    shuffled: RefCell<Option<(u64, Vec<u64>)>>,
}

impl Split {
    /// Splits all items; `seed` is of the order of training.
    pub(crate) fn of(items: &dyn Items, seed: u64) -> Split {
        let (eval, train) = (0..items.count()).partition(|number| is_for_evaluation(&items.id(*number)));
        Split { seed, train, eval, shuffled: RefCell::new(None) }
    }

    /// Items in both parts: to train on, to evaluate on.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [self.train.len() as u64, self.eval.len() as u64]
    }

    /// The number of the item that is training sample `sample`: all of them in each epoch, each time in another order.
    pub(crate) fn train_item(&self, sample: u64) -> u64 {
        let count = self.train.len() as u64;
        let (epoch, at) = (sample / count, (sample % count) as usize);
        let mut shuffled = self.shuffled.borrow_mut();
        match &*shuffled {
            Some((there, order)) if *there == epoch => order[at],
            _ => shuffled.insert((epoch, self.shuffle(epoch))).1[at],
        }
    }

    /// The number of the item that is evaluation sample `sample`, below their count.
    pub(crate) fn eval_item(&self, sample: u64) -> u64 {
        self.eval[sample as usize]
    }

    fn shuffle(&self, epoch: u64) -> Vec<u64> {
        let mut random = Random::new(self.seed, epoch);
        let mut order = self.train.clone();
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at as u64 + 1) as usize);
        }
        order
    }
}

fn is_for_evaluation(id: &str) -> bool {
    Random::new(fnv(id), 0).unit() < EVALUATION_SHARE
}

/// Fowler, Noll and Vo's hash 1a in 64 bits: the same on every machine and in every version.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::super::item::Item;
    use super::*;

    /// Items that have ids and nothing else.
    struct Named(Vec<String>);

    impl Items for Named {
        fn count(&self) -> u64 {
            self.0.len() as u64
        }

        fn item(&self, _number: u64) -> Item {
            panic!("an id is enough")
        }

        fn id(&self, number: u64) -> String {
            self.0[number as usize].clone()
        }
    }

    fn named() -> Named {
        Named((0..5000).map(|number| format!("trace-{number}")).collect())
    }

    #[test]
    fn a_fifth_is_for_evaluation_whatever_the_order() {
        let forward = named();
        let backward = Named(forward.0.iter().rev().cloned().collect());
        let ids = |items: &Named, seed| {
            let split = Split::of(items, seed);
            let mut ids: Vec<String> = split.eval.iter().map(|number| items.id(*number)).collect();
            ids.sort();
            ids
        };
        assert_eq!(ids(&forward, 1), ids(&backward, 2));
        let [train, eval] = Split::of(&forward, 1).counts();
        assert_eq!(train + eval, 5000);
        assert!((900..1100).contains(&eval), "{eval}");
        // So that the parts stay the same in later versions.
        assert_eq!(fnv("foobar"), 0x8594_4171_F739_67E8);
    }

    #[test]
    fn an_epoch_has_every_item_once_and_the_next_another_order() {
        let split = Split::of(&named(), 7);
        let count = split.train.len() as u64;
        let epoch = |number: u64| (0..count).map(|at| split.train_item(number * count + at)).collect::<Vec<_>>();
        let (first, second) = (epoch(0), epoch(1));
        assert_ne!(first, second);
        assert_eq!(epoch(0), first);
        for mut order in [first, second] {
            order.sort_unstable();
            assert_eq!(order, split.train);
        }
    }
}
