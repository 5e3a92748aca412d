//! Manual pages, read by `man`. `make test` runs this where there is one.

use std::process::Command;

use crate::kit::sandbox;

#[test]
#[ignore = "needs man"]
fn the_pages_are_shown() {
    let place = sandbox();
    place.says("man share/man/man1");
    let man = |name: &str| {
        let mut command = Command::new("man");
        command.args(["-M", "share/man", name]).env("MANPAGER", "cat").env("MANWIDTH", "100");
        let output = command.current_dir(place.folder()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = man("lowtide");
    assert!(shown.contains("lowtide-explain(1)"), "{shown}");
    let shown = man("lowtide-explain");
    assert!(shown.contains("Write the patch into the configuration"), "{shown}");
}
