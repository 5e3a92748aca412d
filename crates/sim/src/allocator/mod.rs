//! PyTorch's caching allocator: what it does with each request, byte for byte.

mod device;
mod expandable;
mod free;
mod malloc;
mod release;
mod restore;
mod state;

pub use device::AddressOrder;
pub use state::Allocator;
