//! Tensors, and the bytes that they are views of.

mod dtype;
mod inflater;
mod loader;
mod number;
mod storage;
mod sum;
mod tensor;
mod values;
mod view;

pub use dtype::Dtype;
pub use loader::{Loader, StorageReader};
pub(crate) use number::{Number, decoder};
pub(crate) use storage::{ByteOrder, Checksum};
pub use storage::{Source, Storage};
pub(crate) use sum::{sum, sum_of};
pub(crate) use tensor::{Flags, MOST_DIMENSIONS, column_strides, row_strides};
pub use tensor::{Quantizer, Tensor};
pub use view::View;
