//! Lists the tensors of files, one line of JSON a file: what `tests/torch_files.py` holds against torch.

use std::path::Path;

use lowtide_data::{Sums, open, rows};
use serde_json::json;

fn main() {
    for path in std::env::args().skip(1) {
        let listed = open(Path::new(&path)).and_then(|contents| rows(&contents.tree, Sums::Compute));
        let line = match listed {
            Ok(rows) => json!({ "file": path, "rows": rows }),
            Err(error) => json!({ "file": path, "error": error.to_string(), "hint": error.hint() }),
        };
        println!("{line}");
    }
}
