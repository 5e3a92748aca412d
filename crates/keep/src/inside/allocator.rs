//! PyTorch's allocator is told to grow its segments instead of leaving gaps between them.
//!
//! That is a variable, and a PyTorch before 2.1 fails by it. Which one a command has shows only inside of its Pythons, so the
//! variable is set only where `allocator.py` comes in too, which takes it away again once it sees an older one.

use std::ffi::OsString;

use crate::Launch;
use crate::inside::door::{Moment, Part};

/// The variable and what it says.
const SETTING: (&str, &str) = ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");
/// Variables by which a person chooses for themselves.
const CHOSEN: [&str; 3] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"];
const TEXT: &str = include_str!("allocator.py");

/// What is set, unless somebody chose.
pub(crate) fn setting(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<(OsString, OsString)> {
    let is_chosen = CHOSEN.iter().any(|name| variable(name).is_some());
    (!is_chosen).then(|| (SETTING.0.into(), SETTING.1.into()))
}

/// What comes into the Pythons of a start that has the setting.
pub(crate) fn part(launch: &Launch) -> Option<Part> {
    let part = Part { name: "allocator", moment: Moment::After("torch"), text: TEXT, files: Vec::new() };
    launch.environment.iter().any(is_ours).then_some(part)
}

/// Takes the setting away from a start that nothing comes into.
pub(crate) fn unset(launch: &mut Launch) {
    launch.environment.retain(|set| !is_ours(set));
}

fn is_ours((name, value): &(OsString, OsString)) -> bool {
    name == SETTING.0 && value == SETTING.1
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn only_a_pytorch_that_knows_the_setting_gets_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("allocator.py");
        std::fs::write(&path, TEXT).unwrap();
        let run = "import os, sys, types\n\
                   sys.modules['torch'] = types.SimpleNamespace(__version__=sys.argv[2])\n\
                   try: exec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'))\n\
                   except Exception as error: print(type(error).__name__, end=' ')\n\
                   print(os.environ.get('PYTORCH_CUDA_ALLOC_CONF'))\n";
        let left = |version: &str, value: &str| {
            let mut command = Command::new("python3");
            let ran = command.args(["-c", run]).arg(&path).arg(version).env(SETTING.0, value).output().unwrap();
            String::from_utf8(ran.stdout).unwrap().trim_end().to_owned()
        };
        for version in ["2.1.0", "2.10.1+cu128", "3.0.0a0+git1", "2.1"] {
            assert_eq!(left(version, SETTING.1), SETTING.1, "{version}");
        }
        for version in ["2.0.1", "1.13.1+cu117", "2.0.0a0"] {
            assert_eq!(left(version, SETTING.1), "None", "{version}");
            // What a script of the command set itself is its own affair.
            assert_eq!(left(version, "max_split_size_mb:128"), "max_split_size_mb:128");
        }
        assert_eq!(left("unknown", SETTING.1), format!("ValueError {}", SETTING.1));
    }
}
