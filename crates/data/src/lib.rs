//! Reads training data that is larger than memory.
//!
//! **The order.** [`order`] says in which order the samples of an epoch come, as a pure function of a seed; [`policy`]
//! decides from it what to keep, [`simulation`] tells what that reads, and [`budget`] shares one number of bytes among
//! all that hold data. [`feed`] puts them together: samples in their order, read ahead by threads under one budget.
//! [`shard`] is Lowtide's own file, and [`pack`] makes a folder of them.
//!
//! **The data set.** [`DataSet`] is a folder of shards or of batch files, which a feed reads from; its
//! [`index`](mod@index) says what each sample takes before any is read. A sample comes as [`Packed`]: a part of one
//! buffer that all samples of a shard share, so that memory is what was said of it, and goes back to the system with
//! the shard. [`Chosen`] is some of its samples.
//!
//! **The files.** [`open`] reads what a file says about itself and gives a [`Tree`]: the dicts, lists and scalars that
//! were saved, with every tensor as a view of bytes that are still in the file. A tensor is read when somebody asks for
//! it, by offset, into memory of the caller's; listing a file of 100 GB reads some megabytes.
//!
//! | format | how it is told | module |
//! | --- | --- | --- |
//! | `torch.save`, zip and older | a zip archive with `data.pkl`, or the magic number | `pt` |
//! | `numpy.save`, `numpy.savez` | `\x93NUMPY`, or a zip archive of `.npy` | `npy` |
//! | safetensors | a header of JSON | `safetensors` |
//! | `pickle.dump`, also gzipped | the first byte | `raw_pickle` |
//!
//! ```no_run
//! use lowtide_data::{Sums, open, rows};
//!
//! let contents = open("batch_0000.pt".as_ref())?;
//! for row in rows(&contents.tree, Sums::Compute)? {
//!     println!("{} {} {:?}", row.path, row.dtype, row.shape);
//! }
//! # Ok::<(), lowtide_data::DataError>(())
//! ```
//!
//! Nothing in a file is executed: pickles are read as data by `lowtide-pickle`, and what they may name is a list
//! (`pickled/allow.rs`). Sizes and offsets are checked against the file before they are used, and a file that is cut
//! short while it is read is an error, not a crash, which is why nothing is mapped. The checksum of an entry is
//! verified whenever all of it is read.
//!
//! [`BatchFile`] says what a file means in samples and reads them; [`Scores`] joins a table of scores to them.
//! [`write_pt`] writes what `torch.load` reads, [`write_pickle`] what `pickle.load` does.
//!
//! What it leaves out: the other formats when writing, and turning tensors into those of an engine.
//!
//! Where to start: `open.rs` tells the formats apart, `pickled/build.rs` turns a pickle into a tree, `tensor.rs` is
//! the view, `loader.rs` reads it; `batch_file.rs` tells what a sample is; `data_set.rs` puts files together, and
//! `batch_reads.rs` lays their samples out; `pt_writer.rs` writes.

mod batch_file;
mod batch_reads;
pub mod budget;
mod changed;
mod chosen;
mod data_set;
mod direct;
mod dtype;
mod durable;
mod error;
pub mod feed;
mod field_summary;
mod file;
mod folder;
mod in_order;
pub mod index;
mod kept_open;
mod layout;
mod leaf;
mod loader;
mod memory;
mod npy;
mod open;
pub mod order;
pub mod pack;
mod packed;
mod page_cache;
pub mod permutation;
mod pickle_writer;
mod pickled;
pub mod policy;
mod pt;
mod pt_writer;
mod raw_pickle;
mod raw_pickle_writer;
mod rows;
mod safetensors;
mod sample;
mod scores;
pub mod shard;
mod shard_reads;
mod shard_rows;
mod shard_walk;
pub mod simulation;
mod storage;
mod sum;
mod tensor;
mod tree;
mod view;
mod whole_file;
mod zip;
mod zip_writer;

pub use batch_file::BatchFile;
pub use chosen::Chosen;
pub use data_set::{DataSet, OpenOptions, OpenedSet};
pub use dtype::Dtype;
pub use error::{DataError, Place};
pub use field_summary::{FieldKind, FieldSummaries, FieldSummary, Shapes};
pub use folder::{Folder, KNOWN_ENDINGS};
pub use loader::Loader;
pub use open::{Contents, Format, open};
pub use packed::Packed;
pub use page_cache::PageCache;
pub use pt_writer::{PtTensor, PtValue, write_pt};
pub use raw_pickle_writer::{Packing, write_pickle, write_scores};
pub use rows::{Row, Sums, rows};
pub use sample::{Field, FieldValue, Sample, Unpackable, tensors_of};
pub use scores::Scores;
pub use shard_rows::{see_records, shard_rows};
pub use storage::Storage;
pub use tensor::{Quantizer, Tensor};
pub use tree::{Fields, Sparse, Tree};
pub use view::View;
