//! Writes a made-up day of training into a folder, to be looked at with `tensorboard --logdir FOLDER`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::path::Path;

use lowtide_tensorboard::{Error, Options, Retention, Scalar, Writer};

/// A Monday in autumn.
const START: f64 = 1_763_200_000.0;

fn main() -> Result<(), Error> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "made-up-run".to_owned());
    let mut writer = Writer::create(Path::new(&folder), START, &Options::default())?;
    for sample in 0_u32..172_800 {
        let (time, step) = (START + f64::from(sample) / 2.0, u64::from(sample / 4));
        let wave = (f64::from(sample) / 3000.0).sin();
        let memory = [("allocated", 20.0 + wave), ("reserved", 24.0 + wave), ("used", 26.0 + wave)];
        for (name, value) in memory {
            for card in 0..8 {
                let tag = format!("memory/gpu{card}_{name}_gb");
                writer.scalar(Scalar { tag: &tag, step, time, value, keep: Retention::Largest })?;
            }
        }
        let value = 10.0 / (1.0 + f64::from(sample) / 1000.0);
        writer.scalar(Scalar { tag: "train/loss", step, time, value, keep: Retention::Last })?;
        if sample % 20_000 == 10_000 {
            writer.text(
                "events/out_of_memory",
                step,
                time,
                "**Out of memory**: 15.82 GiB asked for, 6.17 GiB free.",
            )?;
        }
    }
    println!("{}", writer.path().display());
    writer.close()
}
