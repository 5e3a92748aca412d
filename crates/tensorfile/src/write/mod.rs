//! Files of `torch.save` and `pickle.dump` as Python reads them.

mod file;
mod pickler;
mod value;
mod zip;

pub use file::{Packing, write_pickle, write_pt};
pub use value::{PtTensor, PtValue};
