//! The tensors of one file.

use lowtide_args::DataArgs;
use lowtide_core::{Bytes, counted};
use lowtide_data::{Shapes, shard_rows};
use lowtide_tensorfile::{Row, Sums, open_within, rows};

use super::command::decode_limit;
use crate::output::{Failure, Side, aligned, print, print_json, printable};

pub(crate) fn list(args: &DataArgs) -> Result<(), Failure> {
    let sums = if args.sums || args.json { Sums::Compute } else { Sums::Skip };
    let (rows, format) = if args.path.extension().is_some_and(|ending| ending == "shard") {
        (shard_rows(&args.path, sums, decode_limit(args))?, "shard".to_owned())
    } else {
        let contents = open_within(&args.path, decode_limit(args))?;
        (rows(&contents.tree, sums)?, contents.format.to_string())
    };
    if args.json {
        return print_json(&json(&rows));
    }
    let on_disk = args.path.metadata().map_or(Bytes::ZERO, |metadata| Bytes(metadata.len()));
    let values = rows.iter().fold(Bytes::ZERO, |sum, row| sum.saturating_add(row.bytes));
    let table = if rows.is_empty() { String::new() } else { table(&rows, sums) };
    let tensors = counted(rows.len() as u64, "tensor");
    print(&format!("{table}{tensors}, {values}; the file is {on_disk} ({format})\n"))
}

fn table(rows: &[Row], sums: Sums) -> String {
    let line = |row: &Row| {
        let path = if row.path.is_empty() { "(the whole)".to_owned() } else { printable(&row.path) };
        let sum = match sums {
            Sums::Skip => String::new(),
            Sums::Compute => row.sum.map_or("-".to_owned(), |sum| sum.to_string()),
        };
        [path, row.dtype.to_string(), Shapes::of(&row.shape).to_string(), row.bytes.to_string(), sum]
    };
    let sum = if sums == Sums::Compute { "sum" } else { "" };
    let mut lines = vec![["path", "dtype", "shape", "bytes", sum].map(str::to_owned)];
    lines.extend(rows.iter().map(line));
    aligned([Side::Left, Side::Left, Side::Left, Side::Right, Side::Left], &lines)
}

/// A JSON list with a tensor a line.
fn json(rows: &[Row]) -> String {
    let lines: Vec<String> =
        rows.iter().map(|row| serde_json::to_string(row).expect("plain numbers and texts")).collect();
    if lines.is_empty() { "[]\n".to_owned() } else { format!("[\n{}\n]\n", lines.join(",\n")) }
}
