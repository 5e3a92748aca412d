"""Tests examples/own-model as a crate that lies elsewhere: built, trained, resumed. `make test` runs this.

What the workspace has built of others' crates is used: the same target folder, versions, features and profile.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
# Cargo's own are of no use to the crate, and it is to start without the other.
FOREIGN = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "LD_LIBRARY_PATH")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in FOREIGN}


def run(*words, cwd):
    return subprocess.run(words, cwd=cwd, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def profile():
    """The release profile of the workspace as text, but for its crates, which would take longest: few steps are trained."""
    text = (ROOT / "Cargo.toml").read_text()
    tables = re.findall(r"^\[profile\.release\b.*?(?=^\[(?!profile\.release\b)|\Z)", text, re.MULTILINE | re.DOTALL)
    text = re.sub(r"^\[profile\.release\.package\.lowtide-.*\n(?:[^\[].*\n)*", "", "".join(tables), flags=re.MULTILINE)
    crates = [f"[profile.release.package.lowtide-{path.name}]\nopt-level = 0\n" for path in sorted((ROOT / "crates").iterdir())]
    return "".join([text, *crates])


def companion():
    """A crate that asks for all that the workspace does of others' crates: built beside it, they have the same features."""
    done = run(CARGO, "metadata", "--no-deps", "--locked", "--format-version", "1", cwd=ROOT)
    lines, asked = ["[package]", 'name = "companion"', 'edition = "2024"', "[dependencies]"], {}
    for package in json.loads(done.stdout)["packages"]:
        for dependency in package["dependencies"]:
            if dependency["source"]:
                asked.setdefault((dependency["name"], dependency["req"]), []).append(dependency)
    for (name, version), several in asked.items():
        default = json.dumps(any(each["uses_default_features"] for each in several))
        features = json.dumps(sorted({feature for each in several for feature in each["features"]}))
        lines.append(f'{name} = {{ version = "{version}", default-features = {default}, features = {features} }}')
    return "\n".join(lines)


class OwnModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.crate = Path(folder.name) / "own-model"
        shutil.copytree(ROOT / "examples/own-model", cls.crate, ignore=shutil.ignore_patterns("target", "runs", ".cargo"))
        manifest = cls.crate / "Cargo.toml"
        manifest.write_text(manifest.read_text().replace('"../../crates/', f'"{ROOT}/crates/') + 'members = ["companion"]\n')
        (cls.crate / "profile.toml").write_text(profile())
        (cls.crate / "companion/src").mkdir(parents=True)
        (cls.crate / "companion/src/lib.rs").touch()
        (cls.crate / "companion/Cargo.toml").write_text(companion())
        shutil.copy(ROOT / "Cargo.lock", cls.crate)
        done = run(sys.executable, "-B", ROOT / "scripts/setup", ".", cwd=cls.crate)
        assert done.returncode == 0, done.stderr
        # Adds the two crates and leaves versions as they are, which needs the registry only where its index is not here.
        add = [CARGO, "update", "--workspace"]
        added = run(*add, "--offline", cwd=cls.crate)
        added = run(*add, cwd=cls.crate) if added.returncode else added
        assert added.returncode == 0, added.stderr
        build = ["build", "--release", "--locked", "--workspace", "--target-dir", TARGET, "--config", "profile.toml"]
        cls.built = run(CARGO, *build, cwd=cls.crate)
        assert cls.built.returncode == 0, cls.built.stderr
        cls.program = TARGET / "release/own-model"

    def call(self, *words, code=0):
        done = run(self.program, *words, cwd=self.crate)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def train(self, *words):
        """Trains in a folder of the test's name; what the summary says."""
        self.call("train", *words, "--device", "cpu", "--deterministic", "--out", self.id())
        return json.loads((self.crate / self.id() / "summary.json").read_text())

    def test_the_long_part_of_the_build_is_shared(self):
        self.assertNotIn("Compiling torch-sys", self.built.stderr)

    def test_help_is_its_own(self):
        self.assertIn("own-model 0.1.0", self.call("--version").stdout)
        self.assertIn("Trains inside a memory limit: spirals", self.call("--help").stdout)
        text = self.call("train", "--help").stdout
        self.assertIn("own-model train spirals", text)
        self.assertIn("--host-limit", text)
        self.assertNotIn("lowtide", text)

    def test_it_learns_and_resumes_bit_for_bit(self):
        summary = self.train("spirals", "--inject-oom", "step=3,phase=backward")
        self.assertEqual((summary["stopped"], summary["steps"]), ("finished", 400))
        self.assertEqual((summary["oom_errors"], summary["oom_recovered"], summary["samples_lost"]), (1, 1, 0))
        self.assertGreater(summary["metrics"]["accuracy"], 0.95)
        events = [json.loads(line) for line in (self.crate / self.id() / "events.jsonl").read_text().splitlines()]
        self.assertEqual((events[0]["event"], events[0]["workload"]), ("run_started", "spirals"))
        self.assertEqual(sum(event["event"] == "step" for event in events), 400)

        again = self.train("--resume", "--checkpoint", "300")
        self.assertEqual(again["weights_sha256"], summary["weights_sha256"])
        found = json.loads(self.call("eval", self.id(), "--json").stdout)
        self.assertEqual(found["metrics"], summary["metrics"])

    def test_it_stays_below_the_line(self):
        summary = self.train("spirals", "--set", "train.steps=5", "--set", "train.batch=4096", "--limit", "2MiB")
        self.assertLessEqual(summary["peak_allocated_bytes"], 2 << 20)

    def test_its_settings_are_checked(self):
        done = self.call("train", "spirals", "--set", "model.widht=8", code=2)
        self.assertIn("hint: did you mean `model.width`?", done.stderr)
        self.assertIn("model.width: must be at least 1", self.call("train", "spirals", "--set", "model.width=0", code=2).stderr)
        self.assertIn("use one of spirals", self.call("train", "spirals", "--set", "workload=gpt", code=2).stderr)
        self.assertIn("train.epochs", self.call("train", "spirals", "--epochs", "3", code=2).stderr)

    def test_a_page_and_the_front(self):
        self.assertTrue((TARGET / "release/lowtide").is_file(), "lowtide is built with the tests")
        words = ["train", "spirals", "--set", "train.steps=2", "--device", "cpu", "--out", self.id()]
        self.assertIn("watch this run at http://", self.call(*words, "--watch").stderr)

    def test_hints_name_the_program(self):
        self.train("spirals", "--set", "train.steps=2", "--set", "save.every=1")
        for file in (self.crate / self.id() / "checkpoints").glob("*2/model.safetensors"):
            file.write_bytes(file.read_bytes()[:100])
        self.assertIn("own-model train --resume --out", self.call("train", "--resume", "--out", self.id(), code=2).stderr)


if __name__ == "__main__":
    unittest.main()
