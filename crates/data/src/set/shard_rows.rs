//! Shards as tables, and what fields their records have.

use std::ops::Range;
use std::path::Path;

use lowtide_tensorfile::{DecodeLimit, Row, Sums};

use crate::DataError;
use crate::samples::FieldSummaries;
use crate::shard::{FieldKind, Reader, ShardWalk, Tensor};

/// Letters of the largest number, and a dot.
const LONGEST_NUMBER: usize = 21;

/// Every tensor of a shard, record by record, with a path such as `0.sequences`; texts are passed over.
///
/// Reads the whole file, some records at a time, and verifies all checksums.
///
/// # Errors
///
/// Where the file cannot be read, was cut short or is damaged.
pub fn shard_rows(path: &Path, sums: Sums, limit: DecodeLimit) -> Result<Vec<Row>, DataError> {
    let shard = Reader::open(path)?;
    shard.check_decoded(limit)?;
    let most = limit.tables(shard.file_bytes());
    let records = 0..shard.len();
    let mut walk = ShardWalk::new(shard, records);
    let mut rows = Vec::new();
    let mut table = 0;
    while let Some((number, record)) = walk.next()? {
        for tensor in record.tensors() {
            rows.extend(row_of(number, tensor, sums));
            let shape = 2 * tensor.shape.len() * size_of::<u64>();
            table += (tensor.name.len() + LONGEST_NUMBER + shape + size_of::<Row>()) as u64;
            if table > most.get() {
                return Err(DataError::malformed(path, format!("the table of all tensors takes more than {most}")));
            }
        }
    }
    Ok(rows)
}

/// Reads some records of a shard, which verifies their checksums, and adds what fields they have.
///
/// # Errors
///
/// Where one cannot be read or is damaged.
pub fn see_records(shard: Reader, records: Range<u64>, fields: &mut FieldSummaries) -> Result<(), DataError> {
    let mut walk = ShardWalk::new(shard, records);
    while let Some((_, record)) = walk.next()? {
        for tensor in record.tensors() {
            let shape = if tensor.kind == FieldKind::Text { &[] } else { &tensor.shape[..] };
            fields.see(tensor.name, tensor.kind, shape, 1);
        }
    }
    Ok(())
}

fn row_of(record: u64, tensor: &Tensor<'_>, sums: Sums) -> Option<Row> {
    let FieldKind::Array(dtype) = tensor.kind else { return None };
    Some(Row::of_values(format!("{record}.{}", tensor.name), dtype, &tensor.shape, tensor.bytes, sums))
}
