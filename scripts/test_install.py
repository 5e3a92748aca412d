"""Tests `make install` and `make uninstall` with the programs that are built. `make test` runs this."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARE = {
    "share/bash-completion/completions/lowtide",
    "share/fish/vendor_completions.d/lowtide.fish",
    "share/zsh/site-functions/_lowtide",
}


class Install(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        # A blank is what breaks recipes.
        self.prefix = Path(folder.name) / "a prefix"

    def make(self, *words, environment=os.environ):
        command = ["make", "--no-print-directory", f"PREFIX={self.prefix}", *words]
        environment = {name: value for name, value in environment.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def files(self):
        return {str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*") if path.is_file()}

    def test_the_front_alone(self):
        self.assertIn("to PATH", self.make("install-built"))
        files = self.files()
        pages = {name for name in files if name.startswith("share/man/man1/")}
        self.assertEqual(files - pages, SHARE | {"bin/lowtide"})
        self.assertIn("share/man/man1/lowtide.1", pages)
        self.assertIn("share/man/man1/lowtide-train.1", pages)
        said = subprocess.run([self.prefix / "bin/lowtide", "train", "--help"], capture_output=True, text=True)
        self.assertIn("--host-limit", said.stdout)
        said = subprocess.run([self.prefix / "bin/lowtide", "train", "gpt"], capture_output=True, text=True)
        self.assertIn("make build", said.stderr)
        self.make("uninstall")
        self.assertEqual(self.files(), set())

    def test_with_the_engine(self):
        self.make("install-built", "WITH=engine")
        self.assertIn("bin/lowtide-engine", self.files())
        words = ["train", "gpt", "--set", "train.steps=1", "--device", "cpu", "--out", self.prefix / "run"]
        done = subprocess.run([self.prefix / "bin/lowtide", *words], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_front_alone_is_built_in_its_own_profile(self):
        environment = {**os.environ, "CARGO_TARGET_DIR": "built"}
        self.assertIn("'built/front/lowtide'", self.make("-n", "install", environment=environment))
        self.assertIn("'built/release/lowtide-engine'", self.make("-n", "install", "WITH=engine", environment=environment))

    def test_uninstall_leaves_what_is_not_ours(self):
        self.make("install-built")
        mine = self.prefix / "bin/mine"
        mine.write_text("")
        self.make("uninstall")
        self.assertEqual(self.files(), {"bin/mine"})


if __name__ == "__main__":
    unittest.main()
