//! Bytes that are changed here and there.

use proptest::prelude::*;
use proptest::sample::Index;

/// A change of one byte somewhere in a file.
#[derive(Clone, Copy, Debug)]
pub struct Damage {
    place: Index,
    byte: u8,
    kind: u8,
}

/// Between one and `most` changes.
pub fn damages(most: usize) -> impl Strategy<Value = Vec<Damage>> {
    let one = (any::<Index>(), any::<u8>(), 0_u8..6).prop_map(|(place, byte, kind)| Damage { place, byte, kind });
    prop::collection::vec(one, 1..=most)
}

impl Damage {
    /// Changes, adds or takes away a byte; an empty file stays as it is. `likely` are bytes that such files are made of,
    /// if any come more often than others.
    pub fn apply(&self, bytes: &mut Vec<u8>, likely: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let at = self.place.index(bytes.len());
        match self.kind {
            0 => bytes[at] = self.byte,
            1 => bytes[at] ^= 1 << (self.byte % 8),
            2 => bytes.insert(at, self.byte),
            3 => drop(bytes.remove(at)),
            4 => {
                // Lengths and offsets stand near both ends of most files.
                let near = at % bytes.len().min(120);
                let at = if self.byte.is_multiple_of(2) { near } else { bytes.len() - 1 - near };
                bytes[at] = self.byte;
            }
            _ => bytes[at] = *likely.get(usize::from(self.byte) % likely.len().max(1)).unwrap_or(&self.byte),
        }
    }
}
