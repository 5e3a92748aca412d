//! Files of `torch.save` and `pickle.dump` as Python reads them.

mod pickle;
mod pickler;
mod pt;
mod value;
mod zip;

pub use pickle::{Packing, write_pickle};
pub use pt::write_pt;
pub use value::{PtTensor, PtValue};
