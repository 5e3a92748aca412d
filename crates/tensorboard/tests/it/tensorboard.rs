//! What is written is what TensorBoard's own reader finds.

use lowtide_tensorboard::{Options, Retention, Scalar, Writer};
use lowtide_testkit::read_back;

fn loss(step: u64, value: f64) -> Scalar<'static> {
    Scalar { tag: "train/loss", step, time: 1000.5 + step as f64, value, keep: Retention::Last }
}

#[test]
fn scalars_and_text_are_read_by_tensorboard() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut writer = Writer::create(folder.path(), 1000.0, &Options::default()).expect("a file");
    writer.scalar(loss(0, 2.5)).expect("written");
    writer.scalar(loss(1, f64::NAN)).expect("written");
    let memory = Scalar {
        tag: "memory/gpu0_allocated_gb",
        step: 300_000_000_000,
        time: 1_763_200_000.25,
        value: -0.125,
        keep: Retention::Largest,
    };
    writer.scalar(memory).expect("written");
    writer.text("events/oom", 7, 1007.0, "**out of memory** größer\n\n| a | b |").expect("written");
    writer.close().expect("written");
    let Some(lines) = read_back(folder.path()) else { return };
    let expected = [
        "scalar memory/gpu0_allocated_gb 300000000000 1763200000.25 -0.125",
        "scalar train/loss 0 1000.5 2.5",
        "scalar train/loss 1 1001.5 nan",
        r"text events/oom 7 1007.0 [1] '**out of memory** größer\n\n| a | b |'",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_run_that_goes_on_after_a_kill_is_one_curve() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut first = Writer::create(folder.path(), 1000.0, &Options::default()).expect("a file");
    for step in 0..6 {
        first.scalar(loss(step, 1.0)).expect("written");
    }
    first.flush().expect("written");
    // Killed within a record: the file ends anywhere.
    let bytes = std::fs::read(first.path()).expect("the file");
    let path = first.path().to_owned();
    drop(first);
    std::fs::write(path, &bytes[..bytes.len() - 20]).expect("the file");

    let options = Options { resumes_at: Some(3), ..Options::default() };
    let mut second = Writer::create(folder.path(), 2000.0, &options).expect("a second file");
    for step in 3..6 {
        second.scalar(loss(step, 2.0)).expect("written");
    }
    second.close().expect("written");
    let Some(lines) = read_back(folder.path()) else { return };
    let values: Vec<&str> = lines.iter().map(|line| line.rsplit(' ').next().expect("words")).collect();
    assert_eq!(values, ["1.0", "1.0", "1.0", "2.0", "2.0", "2.0"]);
}
