//! Single flipped bits in files whose index is there: an error, or the same samples.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use lowtide_data::feed::Store;
use lowtide_data::{BufferedSample, DataError, DataSet, OpenOptions};
use lowtide_tensorfile::{Dtype, Packing, PtTensor, PtValue, write_pickle, write_pt};

const FLIPS: u64 = 100;
const ROWS: u64 = 12;

/// A number that depends on another in no simple way.
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

fn values() -> Vec<u8> {
    (0..ROWS * 5).flat_map(|place| (mixed(place) as f32).to_le_bytes()).collect()
}

fn batch() -> PtValue<'static> {
    let ids = (0..ROWS).map(|row| PtValue::Str(format!("id-{row}").into())).collect();
    let tensor = PtTensor { dtype: Dtype::Float32, shape: vec![ROWS, 5], bytes: Cow::Owned(values()) };
    PtValue::Dict(vec![
        (PtValue::Str("ids".into()), PtValue::List(ids)),
        (PtValue::Str("x".into()), PtValue::Tensor(tensor)),
    ])
}

fn npy() -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({ROWS}, 5), }}\n");
    [&b"\x93NUMPY\x01\0"[..], &(header.len() as u16).to_le_bytes(), header.as_bytes(), &values()].concat()
}

/// An archive of one array, as numpy writes it.
fn npz() -> Vec<u8> {
    let (array, name) = (npy(), b"x.npy");
    let sizes = |out: &mut Vec<u8>| {
        out.extend([20, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        out.extend(crc32(&array).to_le_bytes());
        out.extend((array.len() as u32).to_le_bytes());
        out.extend((array.len() as u32).to_le_bytes());
        out.extend([name.len() as u8, 0, 0, 0]);
    };
    let mut file = b"PK\x03\x04".to_vec();
    sizes(&mut file);
    file.extend(name);
    file.extend(&array);
    let directory = file.len() as u32;
    file.extend(b"PK\x01\x02\x14\0");
    sizes(&mut file);
    file.extend([0; 14]);
    file.extend(name);
    let length = file.len() as u32 - directory;
    file.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    file.extend(length.to_le_bytes());
    file.extend(directory.to_le_bytes());
    file.extend([0, 0]);
    file
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

fn safetensors() -> Vec<u8> {
    let header = format!(r#"{{"x":{{"dtype":"F32","shape":[{ROWS},5],"data_offsets":[0,{}]}}}}"#, ROWS * 20);
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &values()].concat()
}

/// Every sample, read in each of the ways that a feed reads.
fn read_all(folder: &Path) -> Result<Vec<BufferedSample>, DataError> {
    let set = DataSet::open(folder, OpenOptions::default())?.set;
    let places: Vec<u64> = (0..set.layout().samples_of(0)).collect();
    let mut samples = set.read_shard(0)?;
    samples.extend(set.read_together(0, &places)?);
    samples.extend(set.read_samples(0, &places)?);
    Ok(samples)
}

/// Writes other bytes, and leaves the time of the file as it was: disks do not tell when they forget.
fn write_quietly(path: &Path, bytes: &[u8]) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let mut file = File::options().write(true).truncate(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
    file.set_modified(modified).unwrap();
}

#[track_caller]
fn check(name: &str, write: impl FnOnce(&Path)) {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join(name);
    write(&path);
    let good = read_all(folder.path()).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(good.len() as u64, 3 * ROWS, "{name}");
    let (bytes, mut noticed) = (fs::read(&path).unwrap(), 0);
    for flip in 0..FLIPS {
        let place = mixed(flip << 8 | name.len() as u64) % (bytes.len() as u64 * 8);
        let mut flipped = bytes.clone();
        flipped[place as usize / 8] ^= 1 << (place % 8);
        write_quietly(&path, &flipped);
        match read_all(folder.path()) {
            Ok(samples) => assert!(samples == good, "{name}: bit {place} goes unnoticed"),
            Err(error) => {
                noticed += 1;
                assert!(error.to_string().contains(name), "{name}: bit {place}: {error}");
            }
        }
    }
    // What holds no data, such as times in an archive, may have any bits.
    assert!(noticed > FLIPS / 3, "{name}: {noticed} of {FLIPS} were noticed");
    write_quietly(&path, &bytes);
    assert!(read_all(folder.path()).unwrap() == good, "{name}");
}

#[test]
fn flips_in_batches_of_every_format() {
    check("batch.pt", |path| write_pt(path, &batch()).unwrap());
    check("batch.npz", |path| fs::write(path, npz()).unwrap());
    check("batch.npy", |path| fs::write(path, npy()).unwrap());
    check("batch.safetensors", |path| fs::write(path, safetensors()).unwrap());
    check("batch.pkl", |path| write_pickle(path, &batch(), Packing::Plain).unwrap());
    check("batch.pkl.gz", |path| write_pickle(path, &batch(), Packing::Gzip).unwrap());
}
