//! `lowtide generate deblur`: made-up films in folders of PNG files.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use clap::{Args, ValueEnum};
use lowtide_core::SCHEMA;
use lowtide_disk::DiskError;
use lowtide_workloads::deblur::{DataSettings, FilmFiles, FilmLayout};

use super::failure::Failure;
use crate::exit::Exit;
use crate::output::{print_json, to_stderr};

/// The most rows and columns of a frame.
const MOST_SIDE: u32 = 1 << 15;

/// Write made-up films: folders of PNG frames, as `data.source: frames` reads them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide generate deblur --out data/films --scenes 8 --frames 96 --frame-size 1280x720
  lowtide generate deblur --out data/pairs --layout pairs --frames 24
  lowtide train deblur --set data.source=frames --set data.folder=data/films")]
pub(super) struct FilmArgs {
    /// The folder: a new one or an empty one.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// How many scenes there are; the last one is evaluated on, where nothing else is said.
    #[arg(long, value_name = "N", default_value_t = 4)]
    scenes: u32,

    /// How many frames a scene has.
    #[arg(long, value_name = "N", default_value_t = 96)]
    frames: u32,

    /// Columns and rows of a frame.
    #[arg(long, value_name = "WxH", default_value = "640x360", value_parser = frame_size)]
    frame_size: [u32; 2],

    /// What a scene holds: sharp frames, one for every moment, of which blur is made; or pairs of a blurred and a sharp
    /// one.
    #[arg(long, value_name = "LAYOUT", default_value = "sharp")]
    layout: Layout,

    /// How many moments an exposure has.
    #[arg(long, value_name = "N", default_value_t = 16)]
    moments: u32,

    /// How many pixels something moves in an exposure, at most.
    #[arg(long, value_name = "PIXELS", default_value_t = 12.0)]
    speed: f32,

    /// The seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print what was written as a line of JSON on standard output, and nothing else there.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Layout {
    Sharp,
    Pairs,
}

fn frame_size(text: &str) -> Result<[u32; 2], String> {
    let sides = text.split_once('x').and_then(|(width, height)| Some([height.parse().ok()?, width.parse().ok()?]));
    sides
        .filter(|sides: &[u32; 2]| sides.iter().all(|side| (1..=MOST_SIDE).contains(side)))
        .ok_or_else(|| format!("expected columns x rows, each from 1 to {MOST_SIDE}, such as 1280x720"))
}

pub(super) fn write(args: &FilmArgs) -> Result<Exit, Failure> {
    let began = Instant::now();
    let counts = [("--scenes", args.scenes), ("--frames", args.frames), ("--moments", args.moments)];
    if let Some((flag, _)) = counts.iter().find(|(_, count)| *count == 0) {
        return Err(Failure::new(format!("{flag} must be at least 1")));
    }
    fs::create_dir_all(&args.out).map_err(Failure::at(&args.out))?;
    if fs::read_dir(&args.out).map_err(Failure::at(&args.out))?.next().is_some() {
        let text = format!("{}: this folder is not empty", args.out.display());
        return Err(Failure::with_hint(text, "name a new folder or an empty one"));
    }
    let [height, width] = args.frame_size;
    let (frames, moments, speed) = (args.frames, args.moments, args.speed);
    let data = DataSettings { height, width, frames, moments, speed, ..DataSettings::default() };
    let layout = match args.layout {
        Layout::Sharp => FilmLayout::Sharp,
        Layout::Pairs => FilmLayout::Pairs,
    };
    let films = FilmFiles::new(data, layout, args.seed);
    let next = AtomicU32::new(0);
    let work = || {
        loop {
            let scene = next.fetch_add(1, Ordering::Relaxed);
            if scene >= args.scenes {
                return Ok(());
            }
            films.write(&args.out, scene)?;
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(args.scenes as usize);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("writing does not panic"))
    })
    .map_err(|error: DiskError| Failure::new(error.to_string()))?;
    let seconds = began.elapsed().as_secs_f64();
    let of_each = u64::from(args.frames) * if layout == FilmLayout::Pairs { 2 } else { 1 };
    let files = u64::from(args.scenes) * of_each;
    if args.json {
        print_json(&serde_json::json!({
            "schema": SCHEMA,
            "event": "generated",
            "folder": args.out,
            "scenes": args.scenes,
            "files": files,
            "seconds": seconds,
        }));
    } else {
        to_stderr(&format!("{} scenes, {files} frames of {width} x {height} pixels, in {seconds:.1} s", args.scenes));
        let folder = args.out.display();
        to_stderr(&format!(
            "train on them with: lowtide train deblur --set data.source=frames --set data.folder={folder}"
        ));
    }
    Ok(Exit::Finished)
}
