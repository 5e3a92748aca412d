//! The curves of a run, read back by TensorBoard's own reader.

use lowtide_core::Event;
use lowtide_testkit::read_back;

use crate::kit::Place;

/// The points of one curve: step and value.
fn curve(lines: &[String], tag: &str) -> Vec<(u64, f64)> {
    let of_tag = lines.iter().filter_map(|line| line.strip_prefix(&format!("scalar {tag} ")));
    let point = |text: &str| {
        let words: Vec<&str> = text.split(' ').collect();
        (words[0].parse().unwrap(), words[2].parse().unwrap())
    };
    of_tag.map(point).collect()
}

#[test]
fn tensorboard_reads_the_curves_of_a_run_that_went_on() {
    let place = Place::new();
    place.train("out", "--set eval.every=2 --set train.steps=2 --inject-oom step=2,phase=backward");
    place.resume("out", "--set eval.every=2 --set train.steps=4");
    let Some(lines) = read_back(&place.path("out/tensorboard")) else { return };

    let events = place.events("out");
    let losses: Vec<(u64, f64)> = events
        .iter()
        .filter_map(|event| match event {
            Event::StepDone { step, loss, .. } => Some((step.get(), f64::from(*loss as f32))),
            _ => None,
        })
        .collect();
    assert_eq!(losses.len(), 4);
    assert_eq!(curve(&lines, "train/loss"), losses);
    for tag in ["train/learning_rate", "train/samples_per_second", "memory/cpu_allocated_gb", "memory/cpu_reserved_gb"]
    {
        assert_eq!(curve(&lines, tag).len(), 4, "{tag}");
    }
    assert_eq!(curve(&lines, "eval/loss").iter().map(|(step, _)| *step).collect::<Vec<_>>(), [2, 4]);
    let system = curve(&lines, "memory/system_used_gb");
    assert!(!system.is_empty() && system.iter().all(|(_, used)| (0.01..1e5).contains(used)), "{system:?}");
    let told = lines.iter().filter(|line| line.starts_with("text memory/out_of_memory 2 ")).count();
    assert_eq!(told, 1, "{lines:?}");
}

#[test]
fn curves_can_be_switched_off() {
    let place = Place::new();
    place.train("on", "");
    place.train("off", "--set watch.tensorboard=false");
    assert!(place.names("on").contains("tensorboard"));
    assert!(!place.names("off").contains("tensorboard"));
}
