//! The device underneath: how much it has, and where it puts what it gives.

use std::collections::VecDeque;

/// Addresses that nobody recorded begin here.
const START: u64 = 1 << 46;
/// Room for each of them, so that they never meet.
const ROOM: u64 = 1 << 21;
/// Where they go on once there is no more room below, and the highest of all.
const FAR: u64 = 1 << 62;
const HIGHEST: u64 = 1 << 63;
/// More than any device has.
const MOST: u64 = 1 << 60;

/// Where segments are put whose address nobody recorded.
///
/// Up to PyTorch 2.11 the address decides between free blocks of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressOrder {
    /// Each above the last one.
    Ascending,
    /// Each below the last one.
    Descending,
}

/// What the device has and has given.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    /// Bytes that it can give, where that is known.
    capacity: Option<u64>,
    pub(crate) given: u64,
    order: AddressOrder,
    up: u64,
    down: u64,
    /// Addresses that it gave when the history was recorded, for what is asked next.
    pub(crate) recorded: VecDeque<u64>,
}

impl Device {
    pub(crate) const fn new(capacity: Option<u64>, order: AddressOrder) -> Self {
        Self { capacity, given: 0, order, up: START, down: START, recorded: VecDeque::new() }
    }

    /// Whether it could give so much more.
    pub(crate) fn has(&self, size: u64) -> bool {
        self.given.checked_add(size).is_some_and(|given| given <= self.capacity.unwrap_or(MOST).min(MOST))
    }

    /// The address of a new segment; none where addresses have run out.
    pub(crate) fn place(&mut self, size: u64) -> Option<u64> {
        if let Some(address) = self.recorded.pop_front() {
            return Some(address);
        }
        let room = size.checked_next_multiple_of(ROOM)?;
        match self.order {
            AddressOrder::Ascending => {
                let address = self.up;
                self.up = address.checked_add(room).filter(|up| *up <= HIGHEST)?;
                Some(address)
            }
            AddressOrder::Descending => {
                if self.down < room {
                    self.down = FAR;
                }
                self.down = self.down.checked_sub(room).filter(|down| *down > 0)?;
                Some(self.down)
            }
        }
    }
}
