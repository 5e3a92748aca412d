//! Lists the tensors of files, one line of JSON a file: what `tests/torch_files.py` holds against torch.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::path::Path;

use lowtide_core::Bytes;
use lowtide_tensorfile::{Loader, Sums, TensorFileError, Tree, open, rows};
use serde_json::{Value, json};

fn main() {
    for path in std::env::args().skip(1) {
        let line = match list(Path::new(&path)) {
            Ok((rows, checksums)) => json!({ "file": path, "rows": rows, "checksums": checksums }),
            Err(error) => json!({ "file": path, "error": error.to_string(), "hint": error.hint() }),
        };
        println!("{line}");
    }
}

/// The rows, and the CRC-32 of each tensor's values in rows; none where it has no values.
fn list(path: &Path) -> Result<(Value, Vec<Option<u32>>), TensorFileError> {
    let contents = open(path)?;
    let rows = rows(&contents.tree, Sums::Compute)?;
    let mut loader = Loader::new(Bytes::from_mib(64));
    let mut checksum = |path: &str| {
        let tensor = contents.tree.at(path).and_then(Tree::tensor)?;
        loader.read(tensor).ok().map(|bytes| crc32fast::hash(&bytes))
    };
    let checksums = rows.iter().map(|row| checksum(&row.path)).collect();
    Ok((json!(rows), checksums))
}
