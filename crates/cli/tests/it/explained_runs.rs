//! Runs that failed, were explained and were started again with the patch: one is enough.

use std::process::Command;

use lowtide_testkit::Sandbox;

use crate::kit::sandbox;

/// What a run may take beyond the interpreter: the forward pass fails in it inside `gelu`.
const LIMIT: u64 = 2 << 30;

fn run(place: &Sandbox) -> (bool, String) {
    let output = Command::new("python3")
        .args(["-u", "train.py", "config_char.py"])
        .current_dir(place.folder())
        .env("MEMORY_LIMIT", LIMIT.to_string())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn a_character_model_on_a_processor_fits_after_one_patch() {
    let place = sandbox();
    place.write("train.py", include_bytes!("char_model/train.py"));
    place.write("model.py", include_bytes!("char_model/model.py"));
    place.write("configurator.py", include_bytes!("char_model/configurator.py"));
    place.write("config_char.py", include_bytes!("char_model/train_char.py"));
    let (succeeded, log) = run(&place);
    assert!(!succeeded && log.contains("in gelu") && log.contains("will be: 262,144"), "{log}");
    place.write("run.log", log.as_bytes());

    let words = ["run.log", "--command", "python3 -u train.py config_char.py", "--write", "--all"];
    let told = place.command("explain").args(words).output().unwrap();
    let told = String::from_utf8([told.stdout, told.stderr].concat()).unwrap();
    assert!(told.contains("0.80M in fp32") && told.contains("x 96 x"), "{told}");
    assert!(!told.contains("50304") && !told.contains("Read data"), "{told}");
    let config = place.text("config_char.py");
    assert!(config.contains("device = 'cpu'  # no card here") && !config.contains("batch_size = 4096"), "{config}");

    let (succeeded, log) = run(&place);
    assert!(succeeded && log.contains("iter 1: loss") && log.contains("will be: 262,144"), "{config}\n{log}");
}
