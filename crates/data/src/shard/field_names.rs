//! The names of fields, which samples share.

use std::collections::HashMap;

/// The names of the fields of some samples, each with a number.
#[derive(Debug, Default)]
pub(crate) struct FieldNames {
    pub(crate) list: Vec<String>,
    numbers: HashMap<String, u32>,
    bytes: u64,
}

/// What a name takes besides its letters.
const NAME: usize = 64;

impl FieldNames {
    /// Memory that the names take.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of a name; `guess` is looked at first, for samples mostly have the same fields in the same order.
    pub(crate) fn number_of(&mut self, name: &str, guess: usize) -> u32 {
        if self.list.get(guess).is_some_and(|known| known == name) {
            return guess as u32;
        }
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.list.len() as u32;
        self.bytes += 2 * (name.len() + NAME) as u64;
        self.list.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }
}
