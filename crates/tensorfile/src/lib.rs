//! Reads and writes the tensor files that people have: `.pt`, `.npy`, `.npz`, safetensors and pickles.
//!
//! The crate to begin with: it needs neither Python nor LibTorch, and nothing else of Lowtide. [`open`] reads what a
//! file says about itself and gives a [`Tree`]: the dicts, lists and scalars that were saved, with every [`Tensor`] as a
//! view of bytes that are still in the file. A tensor is read when somebody asks for it, by offset, into memory of the
//! caller's; listing a file of 100 GB reads some megabytes.
//!
//! ```
//! use std::borrow::Cow;
//!
//! use lowtide_core::Bytes;
//! use lowtide_tensorfile::{Dtype, Loader, PtTensor, PtValue, Tree, open, write_pt};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("batch.pt");
//! let bytes: Vec<u8> = [1.5_f32, 2.0].iter().flat_map(|value| value.to_ne_bytes()).collect();
//! let weight = PtTensor { dtype: Dtype::Float32, shape: vec![2], bytes: Cow::Owned(bytes.clone()) };
//! let weights = PtValue::Dict(vec![(PtValue::Str("weight".into()), PtValue::Tensor(weight))]);
//! write_pt(&path, &weights)?;
//!
//! let contents = open(&path)?;
//! let weight = contents.tree.at("weight").and_then(Tree::tensor).ok_or("no tensor")?;
//! assert_eq!((weight.dtype(), weight.shape()), (Dtype::Float32, &[2][..]));
//! assert_eq!(Loader::new(Bytes::from_mib(64)).read(weight)?, bytes);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | format | how it is told | module |
//! | --- | --- | --- |
//! | `torch.save`, zip and older | a zip archive with `data.pkl`, or the magic number | `formats/pt.rs` |
//! | `numpy.save`, `numpy.savez` | `\x93NUMPY`, or a zip archive of `.npy` | `formats/npy.rs` |
//! | safetensors | a header of JSON | `formats/safetensors.rs` |
//! | `pickle.dump`, also gzipped | the first byte | `formats/pickle.rs` |
//!
//! Nothing in a file is executed: pickles are read as data by `lowtide-pickle`, and what they may name is a list
//! (`formats/objects/names.rs`). Sizes and offsets are checked against the file before they are used, and a file that is
//! cut short while it is read is an error, not a crash, which is why nothing is mapped. What a file may decode to is bounded
//! by its own size ([`DecodeLimit`]) before anything is read. The checksum of an entry is
//! verified whenever all of it is read. Errors name the file, the place and the problem, and some have a
//! [hint](TensorFileError::hint).
//!
//! [`rows`] is a file as a table. [`write_pt`] writes what `torch.load` reads, [`write_pickle`] what `pickle.load` does;
//! a file that is written is there as a whole or not at all.
//!
//! What it leaves out: the other formats when writing, what a sample is, and turning tensors into those of an engine.
//!
//! Where to start: `formats/contents.rs` tells the formats apart, `formats/objects/builder.rs` turns a pickle into a
//! tree, `tensors/tensor.rs` is the view, `tensors/loader.rs` reads it; `write/file.rs` writes.

mod error;
mod file;
mod formats;
mod limit;
pub mod pages;
mod tensors;
mod tree;
mod write;

pub use error::{Place, TensorFileError};
pub use file::TensorFile;
pub use formats::{Contents, Format, open, open_within, safetensors_header};
pub use limit::DecodeLimit;
pub use tensors::{Dtype, Loader, Quantizer, Source, Storage, StorageReader, Tensor, View};
pub use tree::{Fields, Row, Sparse, Sums, Tree, rows};
pub use write::{Packing, PtTensor, PtValue, write_pickle, write_pt};

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
