//! `--record-memory`: every request of the run's allocator, for `lowtide replay`.

use std::io::BufReader;
use std::path::Path;

use anyhow::Context as _;
use lowtide_core::Bytes;
use lowtide_disk::{PartialFile, write_with};
use lowtide_sim::{HostHistory, Snapshot};
use lowtide_torch::cuda;
use lowtide_torch::host::{self, HostAction, HostEvent};
use lowtide_torch::tch::Device;
use lowtide_train::TrainError;

/// Records what the allocator of the device is asked for while `body` runs, and writes it, also where that ends in an error.
pub(crate) fn recorded<T>(path: &Path, device: Device, body: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let (value, snapshot) = match device {
        Device::Cuda(_) => {
            cuda::record_history(u64::MAX)?;
            let value = body();
            (value, of_card(path))
        }
        _ => {
            let (value, events) = host::record(body);
            (value, Ok(of_host(&events)))
        }
    };
    let written = snapshot.and_then(|snapshot| Ok(write_with(path, |file| snapshot.write_recording(file))?));
    // What went wrong with the run counts more than what went wrong with its recording.
    let value = value?;
    written.with_context(|| format!("--record-memory {}", path.display()))?;
    Ok(value)
}

/// Whether the file can be written: nobody should find out after an hour.
pub(crate) fn check(path: &Path) -> Result<(), TrainError> {
    Ok(PartialFile::create(path).map(drop)?)
}

fn of_host(events: &[HostEvent]) -> Snapshot {
    let mut history = HostHistory::default();
    let begin = events.first().map_or(0, |event| event.nanoseconds);
    for event in events {
        let microseconds = event.nanoseconds.abs_diff(begin) / 1000;
        match event.action {
            HostAction::Allocate => history.allocated(event.serial, event.bytes.get(), microseconds),
            HostAction::Free => history.freed(event.serial, microseconds),
            HostAction::Refuse => history.refused(event.bytes.get(), microseconds),
        }
    }
    history.into_snapshot(host::last_refusal().and_then(|refusal| refusal.line).map(Bytes::get))
}

/// The history of the card, by way of the pickle that LibTorch writes.
fn of_card(path: &Path) -> anyhow::Result<Snapshot> {
    let pickle = path.with_added_extension("pickle");
    let written = cuda::snapshot(&pickle);
    cuda::record_history(0)?;
    written?;
    let read = std::fs::File::open(&pickle).map(|file| Snapshot::read(BufReader::with_capacity(1 << 18, file)));
    std::fs::remove_file(&pickle)?;
    Ok(read??)
}
