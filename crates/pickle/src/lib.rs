//! Pickles as data.
//!
//! Python's pickle is a program for a small stack machine, and Python runs it, which is why a pickle from a stranger
//! may do anything. [`read`] runs the same machine without Python: a call becomes a value that says what would have
//! been called with what ([`Object`]), and only names on the caller's [`AllowList`] list may be called at all. Nothing is
//! executed.
//!
//! ```
//! use lowtide_pickle::{AllowList, Limits, Value, read};
//!
//! let pickle = read(&b"\x80\x02}U\x04stepK\x07s."[..], &AllowList::plain(), &Limits::default())?;
//! let step = pickle.entry(pickle.root(), "step").map(|node| pickle.get(node));
//! assert!(matches!(step, Some(Value::Int(7))));
//!
//! let error = read(&b"cos\nsystem\n(S'echo'\ntR."[..], &AllowList::plain(), &Limits::default()).unwrap_err();
//! assert_eq!(error.to_string(), "byte 0: GLOBAL names `os.system`, which is not on the list of allowed names");
//! # Ok::<(), lowtide_pickle::PickleError>(())
//! ```
//!
//! The values stand in one table, [`Pickle`], and point at each other by [`NodeId`]: a value that is referenced twice
//! is one node, a list that holds itself is no trouble to drop, and a dict of a memory snapshot costs a few bytes for
//! each entry, because its keys are the same nodes as those of its neighbours.
//!
//! All opcodes of the protocols 0 to 5 are known. Extension codes and out-of-band buffers are refused by name, for
//! their meaning lies outside the pickle. Persistent ids are handed out as they are.
//!
//! Bounds are the caller's [`Limits`]. A length in the pickle is never believed: memory is taken as bytes arrive. A
//! pickle of a few hundred bytes can describe a tree of 2^100 values by sharing; what a walk along all paths would
//! meet is counted before the pickle is handed out.
//!
//! What it leaves out: writing, and any knowledge of classes. `lowtide-tensorfile` knows those of PyTorch and NumPy.
//!
//! Where to start: `reader.rs` is the machine, `call.rs` what becomes of calls, `arena.rs` the table, `measure.rs`
//! the last check, `fold.rs` how a long pickle is read without keeping all of it.

mod allow_list;
mod arena;
mod big_int;
mod call;
mod error;
mod fold;
mod input;
mod limits;
mod measure;
mod memo;
mod opcode;
mod pickle;
mod reader;
mod stack;
mod text;
mod value;
mod values;

pub use allow_list::{AllowList, Call};
pub use big_int::BigInt;
pub use error::{LimitKind, PickleError};
pub use fold::Fold;
pub use limits::{Cycles, Limits};
pub use pickle::Pickle;
pub use reader::{read, read_folding, read_seek};
pub use value::{Construction, Global, NodeId, Object, Pairs, Value};
pub use values::Values;

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
