//! `lowtide generate deblur`: made-up films in folders of PNG files.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use lowtide_args::{FilmArgs, Layout};
use lowtide_core::SCHEMA;
use lowtide_disk::DiskError;
use lowtide_generators::films::{FilmFiles, FilmLayout, FilmShape};
use serde_json::json;

use crate::output::{Failure, print_json, to_stderr};

pub(super) fn write(args: &FilmArgs) -> Result<(), Failure> {
    let began = Instant::now();
    let counts = [("--scenes", args.scenes), ("--frames", args.frames), ("--moments", args.moments)];
    if let Some((flag, _)) = counts.iter().find(|(_, count)| *count == 0) {
        return Err(Failure::bad_input(format!("{flag} must be at least 1"), None));
    }
    fs::create_dir_all(&args.out).map_err(Failure::at(&args.out))?;
    if fs::read_dir(&args.out).map_err(Failure::at(&args.out))?.next().is_some() {
        let text = format!("{}: this folder is not empty", args.out.display());
        return Err(Failure::bad_input(text, Some("name a new folder or an empty one".to_owned())));
    }
    let [height, width] = args.frame_size;
    let (frames, moments, speed) = (args.frames, args.moments, args.speed);
    let shape = FilmShape { height, width, frames, moments, speed };
    let layout = match args.layout {
        Layout::Sharp => FilmLayout::Sharp,
        Layout::Pairs => FilmLayout::Pairs,
    };
    let films = FilmFiles::new(shape, layout, args.seed);
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
    .map_err(|error: DiskError| Failure::bad_input(error.to_string(), None))?;
    let seconds = began.elapsed().as_secs_f64();
    let of_each = u64::from(args.frames) * if layout == FilmLayout::Pairs { 2 } else { 1 };
    let files = u64::from(args.scenes) * of_each;
    if args.json {
        let told = json!({
            "schema": SCHEMA,
            "event": "generated",
            "folder": args.out,
            "scenes": args.scenes,
            "files": files,
            "seconds": seconds,
        });
        return print_json(&format!("{told}\n"));
    }
    to_stderr(&format!("{} scenes, {files} frames of {width} x {height} pixels, in {seconds:.1} s", args.scenes));
    let folder = args.out.display();
    to_stderr(&format!("train on them with: lowtide train deblur --set data.source=frames --set data.folder={folder}"));
    Ok(())
}
