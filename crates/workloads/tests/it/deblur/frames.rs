//! Films in folders of PNG files: their exact values, what is refused, and runs.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use lowtide_core::Event;
use lowtide_settings::LoadedSettings;
use lowtide_testkit::alone;
use lowtide_torch::attempt;
use lowtide_torch::tch::{Kind, Tensor};
use lowtide_train::{Batch, Bundle, EvalMode};
use lowtide_workloads::CATALOGUE;
use png::{BitDepth, ColorType, Encoder};
use tempfile::TempDir;

use super::kit::train;
use crate::kit::{open, shipped};

/// A PNG file of bytes as they are in it; a palette of 4 colours where the type asks for one.
fn write(path: &Path, [height, width]: [u32; 2], colour: ColorType, depth: BitDepth, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut encoder = Encoder::new(BufWriter::new(File::create(path).unwrap()), width, height);
    encoder.set_color(colour);
    encoder.set_depth(depth);
    if colour == ColorType::Indexed {
        encoder.set_palette(vec![0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 51, 255]);
    }
    encoder.write_header().unwrap().write_image_data(bytes).unwrap();
}

/// A grey frame of one brightness.
fn write_even(path: &Path, size: [u32; 2], value: u8) {
    let pixels = size[0] * size[1];
    write(path, size, ColorType::Grayscale, BitDepth::Eight, &vec![value; pixels as usize]);
}

/// Rows and columns of most frames here.
const SIZE: [u32; 2] = [24, 32];

/// Scenes `a`, `b` and `c` of 8 sharp frames each; frame f of scene s is grey of 16 s + f.
fn sharp_scenes() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (scene, name) in (0..).zip(["a", "b", "c"]) {
        for frame in 0..8 {
            write_even(&folder.path().join(format!("{name}/sharp/{frame}.png")), SIZE, 16 * scene + frame);
        }
    }
    folder
}

fn frame_settings(folder: &Path, more: &[&str]) -> LoadedSettings {
    let folder = format!("data.folder={}", folder.display());
    let own = ["data.source=frames", &folder, "data.crop=16", "data.frames=2", "data.moments=2", "train.batch=2"];
    shipped("deblur-tiny", &[&own[..], more].concat())
}

fn built(folder: &Path, more: &[&str]) -> Bundle {
    CATALOGUE.build(&frame_settings(folder, more), &open()).unwrap()
}

/// The mean of each frame of each clip, in 1 / 255.
fn means(tensor: &Tensor) -> Vec<f64> {
    let means = tensor.to_kind(Kind::Double).mean_dim([2i64, 3, 4].as_slice(), false, Kind::Double) * 255.0;
    Vec::try_from(means.view([-1])).unwrap()
}

fn same(a: &Batch, b: &Batch) -> bool {
    let pairs = a.inputs.iter().chain(&a.targets).zip(b.inputs.iter().chain(&b.targets));
    pairs.into_iter().all(|(a, b)| a == b)
}

#[test]
fn pixels_of_every_kind_of_png_are_read_exactly() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let pixels = (SIZE[0] * SIZE[1]) as usize;
    let byte = |at: usize| (at * 7 % 251) as u8;
    let wide = |at: usize| (at * 7919 % 65521) as u16;
    let bytes = |parts: usize| (0..pixels * parts).map(byte).collect::<Vec<u8>>();
    let eight = |at: usize| f64::from(byte(at)) / 255.0;
    let sixteen = |at: usize| f64::from(wide(at)) / 65535.0;
    let words = |parts: usize| (0..pixels * parts).flat_map(|at| wide(at).to_be_bytes()).collect::<Vec<u8>>();
    // Two bits a pixel, four pixels a byte.
    let packed = (0..pixels / 4).map(byte).collect::<Vec<u8>>();
    let two_bits = |pixel: usize| byte(pixel / 4) >> (6 - 2 * (pixel % 4)) & 3;
    let palette = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.2, 1.0]];

    type Value<'a> = Box<dyn Fn(usize, usize) -> f64 + 'a>;
    let kinds: [(ColorType, BitDepth, Vec<u8>, Value<'_>); 8] = [
        (ColorType::Grayscale, BitDepth::Eight, bytes(1), Box::new(|pixel, _| eight(pixel))),
        (ColorType::GrayscaleAlpha, BitDepth::Eight, bytes(2), Box::new(|pixel, _| eight(2 * pixel))),
        (ColorType::Rgb, BitDepth::Eight, bytes(3), Box::new(|pixel, part| eight(3 * pixel + part))),
        (ColorType::Rgba, BitDepth::Eight, bytes(4), Box::new(|pixel, part| eight(4 * pixel + part))),
        (ColorType::Grayscale, BitDepth::Sixteen, words(1), Box::new(|pixel, _| sixteen(pixel))),
        (ColorType::Rgba, BitDepth::Sixteen, words(4), Box::new(|pixel, part| sixteen(4 * pixel + part))),
        (ColorType::Indexed, BitDepth::Two, packed.clone(), {
            Box::new(|pixel, part| palette[usize::from(two_bits(pixel))][part])
        }),
        (ColorType::Grayscale, BitDepth::Two, packed, Box::new(|pixel, _| f64::from(two_bits(pixel)) / 3.0)),
    ];
    for (frame, (colour, depth, bytes, _)) in kinds.iter().enumerate() {
        write(&folder.path().join(format!("eval/{frame}.png")), SIZE, *colour, *depth, bytes);
        write_even(&folder.path().join(format!("a/{frame}.png")), SIZE, 0);
    }
    let built = built(folder.path(), &["data.frames=8", "data.moments=1", "eval.crop=null", "eval.tile=null"]);
    let batch = built.workload.eval_batch(0, 1);
    assert_eq!(batch.targets[0].size(), [1, 8, 3, 24, 32]);
    for (frame, (colour, depth, _, value)) in kinds.iter().enumerate() {
        for part in 0..3 {
            let plane = batch.targets[0].get(0).get(frame as i64).get(part as i64).view([-1]);
            let plane: Vec<f64> = Vec::try_from(plane.to_kind(Kind::Double)).unwrap();
            let wrong = (0..pixels).find(|pixel| plane[*pixel] != f64::from(value(*pixel, part) as f32));
            assert_eq!(wrong, None, "{colour:?} {depth:?}");
        }
    }
    assert_eq!(batch.inputs[0], batch.targets[0], "blur over one moment is none");

    // The middle of the frame, in which rows and columns are counted from other places.
    let crop = self::built(folder.path(), &["data.frames=8", "data.moments=1", "eval.crop=11", "eval.tile=null"]);
    let middle = batch.targets[0].narrow(3, 6, 11).narrow(4, 10, 11);
    assert_eq!(crop.workload.eval_batch(0, 1).targets[0], middle);
}

#[test]
fn sharp_frames_alone_are_the_moments_that_blur_is_made_of() {
    let _alone = alone();
    let folder = sharp_scenes();
    let built = built(folder.path(), &["eval.crop=null", "eval.tile=null"]);
    assert_eq!(built.settings.data["height"], 24);
    assert_eq!(built.settings.data["width"], 32);
    // Scene c has two clips of 2 x 2 frames.
    assert_eq!(built.workload.eval_samples(), Some(2));
    let batch = built.workload.eval_batch(0, 2);
    assert_eq!(batch.inputs[0].size(), [2, 2, 3, 24, 32]);
    assert_eq!(batch.inputs[1].size(), [2, 2, 2, 24, 32]);
    let near = |values: Vec<f64>, expect: [f64; 4]| {
        assert!(values.iter().zip(expect).all(|(value, expect)| (value - expect).abs() < 1e-4), "{values:?}");
    };
    near(means(&batch.inputs[0]), [32.5, 34.5, 36.5, 38.5]);
    near(means(&batch.targets[0]), [33.0, 35.0, 37.0, 39.0]);

    // A camera that sees 35 / 255 at four moments fires at about that share of pixels at each.
    let fired = batch.inputs[1].to_kind(Kind::Double).mean(Kind::Double).double_value(&[]);
    assert!((fired - 35.5 / 255.0).abs() < 0.02, "{fired}");
}

#[test]
fn pairs_are_read_as_they_are() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    for scene in ["GOPR01", "GOPR02"] {
        for frame in 1..=5u8 {
            let name = format!("{frame:06}.png");
            write_even(&folder.path().join(scene).join("blur").join(&name), SIZE, 100 + frame);
            write_even(&folder.path().join(scene).join("sharp").join(&name), SIZE, 200 + frame);
        }
    }
    let built = built(folder.path(), &["data.frames=2", "data.moments=16", "eval.crop=null", "eval.tile=null"]);
    assert_eq!(built.workload.eval_samples(), Some(2), "clips have no frame in common");
    let batch = built.workload.eval_batch(1, 1);
    let near = |tensor: &Tensor, expect: [f64; 2]| {
        let values = means(tensor);
        assert!(values.iter().zip(expect).all(|(value, expect)| (value - expect).abs() < 1e-4), "{values:?}");
    };
    near(&batch.inputs[0], [103.0, 104.0]);
    near(&batch.targets[0], [203.0, 204.0]);
    // 32 moments of about 203.5 / 255.
    let spikes = batch.inputs[1].to_kind(Kind::Double).sum_dim_intlist([1i64, 2].as_slice(), false, Kind::Double);
    let (least, most) = (spikes.min().double_value(&[]), spikes.max().double_value(&[]));
    assert!((25.0..=26.0).contains(&least) && (25.0..=26.0).contains(&most), "{least} to {most}");
}

#[test]
fn training_clips_are_pure_and_come_from_all_scenes_but_the_last() {
    let _alone = alone();
    let folder = sharp_scenes();
    let (one, other) = (built(folder.path(), &[]), built(folder.path(), &[]));
    let batch = one.workload.train_batch(40, 6);
    assert_eq!(batch.inputs[0].size(), [6, 2, 3, 16, 16]);
    assert!(same(&batch, &other.workload.train_batch(40, 6)));
    assert!(same(&batch.piece(2, 1), &other.workload.train_batch(42, 1)), "whatever batch it is in");
    assert!(!same(&batch, &built(folder.path(), &["seed=2"]).workload.train_batch(40, 6)));

    // The first frame of a clip is the mean of two frames that follow each other.
    let batch = one.workload.train_batch(0, 64);
    let mut firsts: Vec<u32> = means(&batch.inputs[0]).chunks(2).map(|clip| (clip[0] - 0.5).round() as u32).collect();
    firsts.sort_unstable();
    firsts.dedup();
    assert_eq!(firsts, [0, 1, 2, 3, 4, 16, 17, 18, 19, 20], "every start in a and b, and nothing of c");

    let eval = sharp_scenes();
    let eval_folder = format!("data.eval_folder={}", eval.path().display());
    let all = built(folder.path(), &[&eval_folder]);
    assert_eq!(all.workload.eval_samples(), Some(6));
    let batch = all.workload.eval_batch(0, 3);
    let firsts: Vec<u32> = means(&batch.inputs[0]).chunks(2).map(|clip| (clip[0] - 0.5).round() as u32).collect();
    assert_eq!(firsts, [0, 16, 32], "a few clips are of as many scenes as there are");
    assert_eq!(built(folder.path(), &["data.eval_scenes=2"]).workload.eval_samples(), Some(4));
}

/// What is said of `folder`, with the folder's own path left out.
#[test]
fn clips_that_were_prepared_are_those_that_were_not() {
    let _alone = alone();
    let folder = sharp_scenes();
    let Bundle { workload, .. } = built(folder.path(), &[]);
    for first in [0, 2, 40] {
        let plain = workload.train_batch(first, 5);
        workload.prepare(first, 5);
        assert!(same(&workload.train_batch(first, 5), &plain), "prepared from {first}");
        workload.prepare(first + 5, 5);
        assert!(same(&workload.train_batch(first, 5), &plain), "tried again while the next ones are prepared");
    }
    // What cannot be read is told when its turn comes, and not before.
    for scene in ["a", "b"] {
        fs::remove_dir_all(folder.path().join(scene)).unwrap();
    }
    workload.prepare(0, 1);
    let error = attempt(|| workload.train_batch(0, 1)).unwrap_err();
    assert!(error.to_string().contains(".png"), "{error}");
}

fn refusal(folder: &Path, more: &[&str]) -> String {
    let problem = CATALOGUE.build(&frame_settings(folder, more), &open()).err().unwrap().to_string();
    // Settings given on the command line are named first.
    let text = problem.rsplit_once("`: ").map_or(problem.clone(), |(_, rest)| rest.to_owned());
    text.replace(&format!("{}/", folder.display()), "").replace(&folder.display().to_string(), "FOLDER")
}

#[test]
fn what_is_wrong_with_a_folder_is_said_before_training() {
    let _alone = alone();
    let folder = sharp_scenes();
    let at = |name: &str| folder.path().join(name);
    let said = |more: &[&str]| refusal(folder.path(), more);

    write_even(&at("b/sharp/7.png"), [24, 31], 1);
    let problem = said(&[]);
    assert!(problem.ends_with(
        "data.folder: b/sharp/7.png: this frame is 31 x 24 pixels, and a/sharp/0.png is 32 x 24 pixels: all frames in a \
         folder have one size"
    ), "{problem}");

    let whole = fs::read(at("b/sharp/6.png")).unwrap();
    for (bytes, expect) in [
        (&whole[..whole.len() - 20], "b/sharp/7.png: this is not a whole PNG file: "),
        (&whole[..20], "b/sharp/7.png: this is not a whole PNG file: "),
        (&b"a text"[..], "b/sharp/7.png: this is not a whole PNG file: "),
        (&b""[..], "b/sharp/7.png: this is not a whole PNG file: "),
    ] {
        fs::write(at("b/sharp/7.png"), bytes).unwrap();
        let problem = said(&[]);
        assert!(problem.contains(expect), "{problem}");
    }
    // What stands after the end of a file does no harm.
    fs::write(at("b/sharp/7.png"), [&whole[..], b"and more"].concat()).unwrap();
    built(folder.path(), &[]);

    for (more, expect) in [
        (
            &["data.frames=5"][..],
            "a: there are 8 frames, and a clip takes 10 (data.frames x data.moments, 5 x 2, because",
        ),
        (&["data.crop=25"], "data.crop: a crop of 25 is larger than the frames to train on, 32 x 24 pixels"),
        (&["eval.crop=25"], "eval.crop: must be from 11 to 24"),
        (&["data.eval_scenes=3"], "FOLDER: there are 3 scenes, and 3 of them are for evaluation"),
        (&["data.eval_folder=/nowhere"], "data.eval_folder: /nowhere: No such file or directory"),
        (&["data.source=synthetic"], "this is for films in files: set data.source to frames"),
    ] {
        let problem = said(more);
        assert!(problem.contains(expect), "{problem}");
    }
    let problem = refusal(&at("a"), &[]);
    assert!(problem.contains("FOLDER: this is a scene itself: name the folder that holds the scenes"), "{problem}");

    fs::rename(at("b/sharp"), at("b/blur")).unwrap();
    assert!(said(&[]).contains("b: there is `blur/` and no `sharp/` beside it"));
    fs::create_dir(at("b/sharp")).unwrap();
    assert!(said(&[]).contains("b/sharp: there is no PNG file in it"));
    for frame in 1..10 {
        write_even(&at(&format!("b/sharp/{frame}.png")), SIZE, 1);
    }
    assert!(said(&[]).contains("b/blur/0.png: there is no `sharp/` frame of this name"));
    fs::remove_file(at("b/blur/0.png")).unwrap();
    assert!(said(&[]).contains("b/sharp/8.png: there is no `blur/` frame of this name"));

    let empty = tempfile::tempdir().unwrap();
    assert!(refusal(empty.path(), &[]).contains("FOLDER: there is no scene in it"));
    let problem = CATALOGUE.build(&shipped("deblur-tiny", &["data.source=frames"]), &open()).err().unwrap().to_string();
    assert!(problem.contains("data.folder: the source `frames` needs a folder of scenes"), "{problem}");
}

/// Scenes with something to sharpen: bars that move a pixel a frame.
fn bars() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for scene in 0..3u32 {
        for frame in 0..12u32 {
            let bytes: Vec<u8> = (0..48 * 64u32)
                .flat_map(|at| {
                    let (y, x) = (at / 64, at % 64);
                    let bar = (x + frame + scene * (y / 8)) % 16 < 6;
                    if bar { [230, 200, 40] } else { [20, 30, (4 * y) as u8] }
                })
                .collect();
            let path = folder.path().join(format!("{scene}/{frame:03}.png"));
            write(&path, [48, 64], ColorType::Rgb, BitDepth::Eight, &bytes);
        }
    }
    folder
}

#[test]
fn a_run_on_frames_learns_and_evaluates_whole_frames_in_tiles() {
    let _alone = alone();
    let folder = bars();
    let settings = |more: &[&str]| {
        let folder = format!("data.folder={}", folder.path().display());
        let own = ["data.source=frames", &folder, "data.frames=2", "data.moments=6"];
        let rest = ["train.steps=30", "eval.every=30", "optimizer.warmup_steps=1"];
        train(&[&own[..], &rest, more].concat())
    };
    let (summary, events) = settings(&["eval.tile=56"]).unwrap();
    let eval = summary.eval.unwrap();
    assert_eq!((eval.mode, eval.tile), (EvalMode::Tile, Some(56)));
    let first = events.iter().find_map(|event| match event {
        Event::Evaluated { metrics, batches, .. } => Some((metrics.get("psnr").unwrap(), *batches)),
        _ => None,
    });
    let (before, batches) = first.unwrap();
    assert_eq!(batches, 1, "the scene for evaluation has one clip");
    let after = eval.metrics.get("psnr").unwrap();
    assert!(after > before + 1.0, "{before} dB to {after} dB");

    // A file that goes bad under way ends the run by its name.
    let path: PathBuf = folder.path().join("0/005.png");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(&path, bytes).unwrap();
    let problem = settings(&[]).unwrap_err();
    assert!(problem.is_users() && problem.to_string().contains("0/005.png: this is not a whole PNG file"), "{problem}");
}
