//! Frames that are computed tile by tile.
//!
//! Frames are evaluated in tiles that begin and end at multiples of the model's window, or where the frame does. A tile
//! overlaps its neighbours by what an output can see, and only what no border of a tile reaches is kept, so outputs are
//! those of the whole frame up to rounding. Outputs are put together on the host; the device holds one tile. A workload
//! states its receptive field and alignment (`Workload::tiling`) or why it has none; `train` knows no more of frames
//! than that rows and columns are the last two dimensions. `auto` begins with the whole frame and halves the tile when
//! memory runs out, which is no matter of the guard's: its rungs make pieces of a batch smaller, and a tile is one
//! piece. What was found is kept in the checkpoint for the same line. A model with something that looks at the whole
//! frame says so in `Tiling::global`.

use lowtide_settings::{EvalSettings, Origins, SettingsError, TileChoice};
use lowtide_torch::tch::{Device, Tensor};

use crate::error::Result;
use crate::step::{Model, Pass};
use crate::workload::{Batch, Tiling, Workload};

/// Refuses tiles where the workload has none or they would change its figures, or where nothing of a tile would be kept.
pub(super) fn check(settings: &EvalSettings, workload: &dyn Workload) -> Result<()> {
    let refuse = |problem: String| Err(SettingsError::refused("eval.tile", problem, &Origins::default()).into());
    let tiling = match (settings.tile, workload.tiling()) {
        (TileChoice::None, _) => return Ok(()),
        (_, Err(reason)) => {
            return refuse(format!("`{}` cannot be evaluated in tiles: {reason}", workload.name()));
        }
        (_, Ok(tiling)) => tiling,
    };
    if let Some(global) = tiling.global.filter(|_| !settings.tile_approximate) {
        return refuse(format!(
            "in tiles `{}` has other outputs than on whole frames: {global}. eval.tile_approximate=true allows figures \
             that are approximate",
            workload.name()
        ));
    }
    match settings.tile {
        TileChoice::Pixels(side) if side < tiling.least() => refuse(format!(
            "a tile of {side} is too small: its borders reach {} pixels far, so it takes at least {}",
            tiling.overlap(),
            tiling.least()
        )),
        _ => Ok(()),
    }
}

/// The outputs of samples, computed tile by tile and put together on the host.
pub(super) fn tiled_outputs(model: &Model<'_>, samples: &Batch, pass: Pass, tiling: &Tiling, side: u32) -> Vec<Tensor> {
    let [.., rows, columns] = samples.inputs[0].size()[..] else { unreachable!("a frame has rows and columns") };
    let pixels = |length: i64| u32::try_from(length).expect("a frame has fewer than 2^32 rows and columns");
    let mut frames: Vec<Tensor> = Vec::new();
    for tile in tiling.tiles(pixels(rows), pixels(columns), side) {
        let inputs = samples.inputs.iter().map(|input| tile.taken(input).to_device(model.device)).collect();
        let piece = Batch { inputs, targets: Vec::new(), targets_per_sample: samples.targets_per_sample };
        model.with_outputs(&piece, pass, |outputs| {
            if frames.is_empty() {
                frames = outputs.iter().map(|output| frame_like(output, rows, columns)).collect();
            }
            outputs.iter().zip(&frames).for_each(|(output, frame)| tile.put(output, frame));
        });
    }
    frames
}

fn frame_like(output: &Tensor, rows: i64, columns: i64) -> Tensor {
    let mut size = output.size();
    let dimensions = size.len();
    size[dimensions - 2..].copy_from_slice(&[rows, columns]);
    Tensor::empty(size, (output.kind(), Device::Cpu))
}
