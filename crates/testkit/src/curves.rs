//! TensorBoard's own reader.

use std::path::Path;
use std::process::Command;

/// Names a Python that has the package tensorboard.
const PYTHON: &str = "LOWTIDE_TENSORBOARD_PYTHON";

/// What TensorBoard finds in a folder, line by line; `None`, which is said, where there is no TensorBoard.
pub fn read_back(folder: &Path) -> Option<Vec<String>> {
    let named = std::env::var(PYTHON).ok();
    let python = named.clone().unwrap_or_else(|| "python3".to_owned());
    let has = Command::new(&python).args(["-c", "import tensorboard"]).output();
    if named.is_none() && !has.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: {python} has no package tensorboard; {PYTHON} names one that has");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("read_back.py");
    let output = Command::new(python).arg("-B").arg(script).arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}
