#!/usr/bin/env python3
"""Tests of scripts/dependencies, on workspaces that are made up: nothing of Cargo's is run."""

import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from unittest import mock

SCRIPT = Path(__file__).resolve().parent / "dependencies"


def load():
    sys.dont_write_bytecode = True
    loader = SourceFileLoader("lowtide_dependencies", str(SCRIPT))
    module = module_from_spec(spec_from_loader("lowtide_dependencies", loader))
    loader.exec_module(module)
    return module


dependencies = load()


def dependency(name, kind=None, rename=None):
    return {"name": name, "kind": kind, "rename": rename}


class Workspace:
    """One member, `app`, that uses `serde`; each test makes one thing of it bad."""

    def __init__(self, folder):
        self.root = Path(folder)
        self.manifest = "[workspace]\n\n[workspace.dependencies]\nserde = \"1\"\n\n[profile.dev]\nopt-level = 1\n"
        self.packages, self.edges, self.defaults = {}, {}, ["app"]
        self.package("app", source=None, uses=[dependency("serde")])
        self.package("serde")
        self.edges["app"] = ["serde"]
        self.file("app/src/lib.rs", "use serde::Serialize;\n")

    def package(self, name, version="1.0.0", source=dependencies.CRATES_IO, licence="MIT", uses=(), key=None):
        folder = self.root / name
        self.edges[key or name] = []
        self.packages[key or name] = {
            "id": key or name,
            "name": name,
            "version": version,
            "source": source,
            "license": licence,
            "manifest_path": str(folder / "Cargo.toml"),
            "dependencies": list(uses),
            "targets": [{"kind": ["lib"], "src_path": str(folder / "src/lib.rs")}],
        }
        return self.packages[key or name]

    def file(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def problems(self):
        members = [key for key, package in self.packages.items() if not package["source"]]
        metadata = {
            "packages": list(self.packages.values()),
            "workspace_members": members,
            "workspace_default_members": self.defaults,
            "workspace_root": str(self.root),
            "resolve": {"nodes": [{"id": key, "dependencies": edges} for key, edges in self.edges.items()]},
        }
        with mock.patch.object(dependencies, "SEVERAL_VERSIONS", {}):
            return list(dependencies.check(self.manifest, metadata))


class Dependencies(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.workspace = Workspace(folder.name)

    def test_a_good_workspace(self):
        self.assertEqual(self.workspace.problems(), [])

    def test_a_licence_that_is_not_on_the_list(self):
        self.workspace.packages["serde"]["license"] = "GPL-3.0-only"
        problem = "serde 1.0.0 is under GPL-3.0-only, which is not on the list of licences"
        self.assertEqual(self.workspace.problems(), [problem])
        self.workspace.packages["serde"]["license"] = None
        self.assertEqual(self.workspace.problems(), ["serde 1.0.0 states no licence"])

    def test_expressions_of_licences(self):
        good = [
            "MIT",
            "MIT OR GPL-3.0-only",
            "GPL-3.0-only OR MIT",
            "MIT/Apache-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
            "GPL-3.0-only AND MIT OR ISC",
        ]
        bad = [
            "",
            "MPL-2.0",
            "MIT AND GPL-3.0-only",
            "(MIT OR Apache-2.0) AND GPL-3.0-only",
            "Apache-2.0 WITH another-exception",
            "(MIT",
            "MIT GPL-3.0-only",
        ]
        self.assertEqual([text for text in good if not dependencies.allows(text)], [])
        self.assertEqual([text for text in bad if dependencies.allows(text)], [])

    def test_a_source_that_is_not_crates_io(self):
        self.workspace.packages["serde"]["source"] = "git+https://example.com/serde"
        problem = "serde comes from git+https://example.com/serde, and only crates.io is allowed"
        self.assertEqual(self.workspace.problems(), [problem])

    def test_a_path_outside_of_the_project(self):
        self.workspace.package("elsewhere", source=None)["manifest_path"] = "/somewhere/else/Cargo.toml"
        self.workspace.defaults.append("elsewhere")
        self.assertEqual(self.workspace.problems(), ["elsewhere is a path outside of the project"])

    def test_a_banned_crate(self):
        self.workspace.package("serde_yaml")
        self.assertEqual(
            self.workspace.problems(), ["serde_yaml is banned: no longer maintained; saphyr-parser reads YAML"]
        )

    def test_a_crate_that_only_another_may_name(self):
        self.workspace.package("anyhow")
        self.workspace.packages["app"]["dependencies"].append(dependency("anyhow"))
        self.workspace.file("app/src/lib.rs", "use serde::Serialize;\nuse anyhow::Result;\n")
        self.assertEqual(self.workspace.problems(), ["app depends on anyhow, which only lowtide-program may"])

    def test_two_versions_of_a_crate(self):
        self.workspace.package("serde", version="0.9.0", key="serde 0.9")
        self.assertEqual(self.workspace.problems(), ["serde is there as 0.9.0 and 1.0.0"])

    def test_a_dependency_that_is_not_used(self):
        self.workspace.file("app/src/lib.rs", "// serde is not used here.\nfn main() {}\n")
        self.assertEqual(self.workspace.problems(), ["app: the dependency serde is not used"])
        # What is only used in tests is no dependency of what is built.
        self.workspace.file("app/tests/it/main.rs", "use serde::Serialize;\n")
        self.assertEqual(self.workspace.problems(), ["app: the dependency serde is not used"])
        self.workspace.packages["app"]["dependencies"] = [dependency("serde", kind="dev")]
        self.assertEqual(self.workspace.problems(), [])
        self.workspace.packages["app"]["dependencies"] = [dependency("serde", kind="build")]
        self.assertEqual(self.workspace.problems(), ["app: the build-dependency serde is not used"])

    def test_a_name_with_a_dash(self):
        self.workspace.package("memory-map")
        self.workspace.packages["app"]["dependencies"].append(dependency("memory-map"))
        self.assertEqual(self.workspace.problems(), ["app: the dependency memory-map is not used"])
        self.workspace.file("app/src/map.rs", "memory_map::map();\n")
        self.assertEqual(self.workspace.problems(), [])

    def test_a_version_that_no_crate_takes(self):
        self.workspace.manifest += "\n[workspace.dependencies.more]\n"
        self.workspace.manifest = self.workspace.manifest.replace('serde = "1"', 'serde = "1"\nlog = { version = "1" }')
        self.assertEqual(
            self.workspace.problems(), ["log is in [workspace.dependencies], and no crate depends on it"]
        )

    def test_default_members_are_those_without_libtorch(self):
        self.workspace.package("torch-sys")
        self.workspace.edges["serde"] = ["torch-sys"]
        self.assertEqual(self.workspace.problems(), ["app is a default member, and needs LibTorch"])
        self.workspace.defaults = []
        self.assertEqual(self.workspace.problems(), [])
        self.workspace.edges["serde"] = []
        self.assertEqual(self.workspace.problems(), ["app needs no LibTorch, and is no default member"])


if __name__ == "__main__":
    unittest.main()
