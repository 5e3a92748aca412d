//! Samples out of batch files, as a data set needs them.

use std::path::Path;

use lowtide_core::Bytes;

use crate::DataError;
use crate::batch_file::BatchFile;
use crate::data_set::Which;
use crate::index::{FileCost, FileStamp, Looked, SampleFacts};
use crate::packed::Packed;
use crate::shard::hash_of_id;

/// Finds the samples of a file and what they take.
pub(crate) fn look_at(path: &Path) -> Result<Looked, DataError> {
    let stamp = FileStamp::of(path, 0)?;
    let file = BatchFile::open(path)?;
    let ids = file.ids();
    let samples = (0..file.samples()).map(|index| {
        let id = ids.as_ref().and_then(|ids| ids.get(index as usize));
        SampleFacts { memory: Bytes(file.sample_bytes(index).get() * 2), id_hash: id.map_or(0, |id| hash_of_id(id)) }
    });
    let cost = FileCost { memory: Bytes(file.bytes().get() * 2), reading: file.reading_bytes() };
    Ok(Looked { stamp, cost, samples: samples.collect() })
}

/// Reads all samples of a file, or some.
pub(crate) fn read(path: &Path, which: Which<'_>) -> Result<Vec<Packed>, DataError> {
    let file = BatchFile::open(path)?;
    let samples = match which {
        Which::All => file.read_all()?,
        Which::Together(places) | Which::Apart(places) => {
            places.iter().map(|place| file.read(*place)).collect::<Result<Vec<_>, _>>()?
        }
    };
    Packed::of_samples(&samples, path)
}
