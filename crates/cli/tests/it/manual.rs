//! Manual pages.

use std::collections::BTreeSet;

use crate::kit::sandbox;

#[test]
fn each_command_has_a_page() {
    let place = sandbox();
    assert_eq!(place.says("man share/man1"), "");
    let names: BTreeSet<String> = place.names("share/man1");
    let commands = [
        "completions",
        "data",
        "doctor",
        "eval",
        "explain",
        "generate",
        "generate-deblur",
        "generate-scoring",
        "pack",
        "report",
        "replay",
        "run",
        "top",
        "train",
        "watch",
    ];
    let pages = commands.map(|command| format!("lowtide-{command}.1")).into_iter().chain(["lowtide.1".to_owned()]);
    assert_eq!(names, pages.collect());
    // Once more, over what is there.
    place.says("man share/man1");
    let train = place.text("share/man1/lowtide-train.1");
    assert!(train.contains(r"\-\-host\-limit") && train.contains("Exit codes:"), "{train}");
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let place = sandbox();
    place.write("file", "");
    assert_eq!(place.refuses("man file/man1"), "error: file/man1: Not a directory (os error 20)\n");
}
