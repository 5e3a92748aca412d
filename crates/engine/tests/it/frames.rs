//! Films in files: written by `lowtide generate deblur`, trained on, and refused where something is wrong with them.

use std::fs;

use insta::assert_snapshot;

use crate::kit::Place;

const FILMS: &str = "generate deblur --out films --scenes 3 --frames 16 --moments 4 --frame-size 48x40 --json";
const TRAIN: &str = "train deblur --device cpu --set data.source=frames --set data.folder=films --set data.moments=4 \
                     --set train.steps=2 --set train.batch=2 --set eval.every=2 --out run";

/// What is printed when training is refused.
#[track_caller]
fn refusal(place: &Place, words: &str) -> String {
    let ran = place.ends(2, words);
    assert!(!place.path("run").exists(), "nothing is written");
    ran.stderr
}

#[test]
fn films_that_were_made_up_are_trained_on() {
    let place = Place::new();
    let told: serde_json::Value = serde_json::from_str(&place.ends(0, FILMS).stdout).unwrap();
    assert_eq!((told["scenes"].as_u64(), told["files"].as_u64()), (Some(3), Some(48)));
    assert_eq!(place.names("films").len(), 3);
    assert_eq!(place.names("films/scene_000/sharp").len(), 16);
    place.ends(0, &format!("{TRAIN} --set eval.metrics=[ssim]"));
    let eval = place.summary("run")["eval"].clone();
    assert_eq!(eval["mode"], "tile");
    assert!(eval["ssim"].as_f64().unwrap() > 0.3 && eval["psnr"].is_null(), "{eval}");
    assert!(place.text("run/config.yaml").contains("height: 40\n"), "the size is that of the files");

    assert_snapshot!(place.ends(2, FILMS).stderr, @"
    error: films: this folder is not empty
    hint: name a new folder or an empty one
    ");
    let pairs = "generate deblur --out pairs --scenes 1 --frames 2 --moments 4 --frame-size 48x40 --layout pairs";
    let said = place.ends(0, pairs).stderr;
    assert!(said.starts_with("1 scenes, 4 frames of 48 x 40 pixels, in "), "{said}");
    assert_eq!(place.names("pairs/scene_000/blur"), place.names("pairs/scene_000/sharp"));
    assert_ne!(
        fs::read(place.path("pairs/scene_000/blur/000001.png")).unwrap(),
        fs::read(place.path("pairs/scene_000/sharp/000001.png")).unwrap()
    );
}

#[test]
fn what_is_wrong_is_said_before_training() {
    let place = Place::new();
    place.ends(0, FILMS);
    let small = FILMS.replace("films", "small").replace("48x40", "48x39");
    place.ends(0, &small);
    let frame = place.path("films/scene_001/sharp/000003.png");
    fs::copy(place.path("small/scene_001/sharp/000003.png"), &frame).unwrap();
    assert_snapshot!(refusal(&place, TRAIN), @"error: --set data.folder=films: data.folder: films/scene_001/sharp/000003.png: this frame is 48 x 39 pixels, and films/scene_000/sharp/000000.png is 48 x 40 pixels: all frames in a folder have one size");
    fs::write(&frame, "no picture").unwrap();
    assert_snapshot!(refusal(&place, TRAIN), @"error: --set data.folder=films: data.folder: films/scene_001/sharp/000003.png: this is not a whole PNG file: Invalid PNG signature.");
    fs::copy(place.path("films/scene_000/sharp/000003.png"), &frame).unwrap();
    assert_snapshot!(refusal(&place, &TRAIN.replace("moments=4", "moments=6")), @"error: --set data.folder=films: data.folder: films/scene_000: there are 16 frames, and a clip takes 18 (data.frames x data.moments, 3 x 6, because blur is made of sharp frames)");
    assert_snapshot!(refusal(&place, &TRAIN.replace("folder=films", "folder=nowhere")), @"error: --set data.folder=nowhere: data.folder: nowhere: No such file or directory (os error 2)");
    let unknown = format!("{TRAIN} --set eval.metrics=[pnsr]");
    assert_snapshot!(refusal(&place, &unknown), @"error: eval.metrics: `deblur` has no metric `pnsr`: there are loss, psnr, ssim");
}
