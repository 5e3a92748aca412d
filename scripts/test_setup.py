#!/usr/bin/env python3
"""Tests of scripts/setup. Nothing is downloaded: torch is a few empty files, pip a small script."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "setup"


def load_setup():
    sys.dont_write_bytecode = True
    loader = SourceFileLoader("lowtide_setup", str(SCRIPT))
    module = module_from_spec(spec_from_loader("lowtide_setup", loader))
    sys.modules["lowtide_setup"] = module
    loader.exec_module(module)
    return module


setup = load_setup()
SITE = "lib/python3.11/site-packages"


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def fake_torch(packages: Path, version: str = "2.11.0+cu130", cuda: str = "'13.0'", runtime: bool = True) -> Path:
    """The files of a torch wheel that set-up looks at; `runtime` adds those of nvidia-cuda-runtime."""
    folder = packages / "torch"
    write(folder / "version.py", f"__version__ = '{version}'\ncuda: Optional[str] = {cuda}\n")
    write(folder / "include/torch/csrc/api/include/torch/torch.h")
    write(folder / "lib/libc10.so")
    write(folder / "lib/libtorch_cpu.so")
    if runtime:
        write(packages / "nvidia/cu13/include/cuda_runtime_api.h")
        write(packages / "nvidia/cu13/lib/libcudart.so.13")
    return folder


# Stands for `python -m pip`. Installs a fake torch into --target; FAKE_PIP names a way to fail first.
FAKE_PIP = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
import test_setup
target = Path(sys.argv[sys.argv.index("--target") + 1])
with open(os.environ["FAKE_PIP_CALLS"], "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
how = os.environ.get("FAKE_PIP", "")
if how == "cut short":
    test_setup.fake_torch(target)
    (target / "torch/lib/libtorch_cpu.so").unlink()
    os.kill(os.getpid(), 9)
if how == "hangs":
    print("working", flush=True)
    time.sleep(60)
if how == "installs nothing":
    sys.exit(0)
if how:
    print(how)
    sys.exit(1)
test_setup.fake_torch(target)
"""


class SetupTest(unittest.TestCase):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp(prefix="lowtide-setup-"))
        self.addCleanup(shutil.rmtree, self.root, True)
        self.project = self.root / "project"
        self.project.mkdir()
        for tool in ("cargo", "c++"):
            write(self.root / "bin" / tool, "#!/bin/sh\n").chmod(0o755)
        self.calls = self.root / "pip-calls"
        pip = write(self.root / "pip.py", FAKE_PIP.format(tests=str(SCRIPT.parent)))
        self.machine = setup.Machine(
            project=self.project,
            environment={"PATH": str(self.root / "bin"), "FAKE_PIP_CALLS": str(self.calls), "CI": "true"},
            system="Linux",
            architecture="x86_64",
            python=(3, 11),
            python_sites=[],
            has_driver=lambda: False,
            free_bytes=lambda folder: 100 * setup.GB,
            pip=[sys.executable, "-B", str(pip)],
            say=lambda line: self.said.append(line),
        )
        self.said = []

    def run_setup(self, **environment):
        """The exit code and all that was said, with the temporary folder written as ROOT."""
        self.said = []
        self.machine.environment.update(environment)
        code = setup.run(self.machine)
        for name in environment:
            del self.machine.environment[name]
        return code, "\n".join(self.said).replace(str(self.root), "ROOT")

    def assertFirstLine(self, outcome, code, line):
        self.assertEqual((outcome[0], outcome[1].splitlines()[0]), (code, line), outcome[1])

    def config(self):
        return self.machine.config.read_text().replace(str(self.root), "ROOT")

    def pip_calls(self):
        return self.calls.read_text().splitlines() if self.calls.exists() else []

    # Finding

    def test_libtorch_from_the_environment(self):
        folder = fake_torch(self.root / "there")
        code, said = self.run_setup(LIBTORCH=str(folder))
        self.assertEqual((code, said), (0, "setup: torch 2.11.0+cu130, ROOT/there/torch (LIBTORCH)"))
        self.assertTrue(self.config().endswith('[env]\nLIBTORCH = "ROOT/there/torch"\n'), self.config())
        self.assertEqual(self.pip_calls(), [])

    def test_libtorch_archive_with_build_version(self):
        folder = fake_torch(self.root / "there")
        (folder / "version.py").unlink()
        write(folder / "build-version", "2.11.0+cpu\n")
        code, said = self.run_setup(LIBTORCH=str(folder))
        self.assertEqual((code, said), (0, "setup: torch 2.11.0+cpu, ROOT/there/torch (LIBTORCH)"))

    def test_libtorch_of_the_wrong_version_stops(self):
        folder = fake_torch(self.root / "there", "2.9.1+cpu")
        code, said = self.run_setup(LIBTORCH=str(folder))
        self.assertEqual(code, 2)
        self.assertEqual(
            said,
            "error: LIBTORCH=ROOT/there/torch cannot be used: it is version 2.9.1+cpu, and 2.11.0 is needed\n"
            "hint: unset LIBTORCH to let set-up find or install torch 2.11.0, or set it to a folder that has it",
        )
        self.assertFalse(self.machine.config.exists())

    def test_libtorch_that_is_not_there_or_not_whole_stops(self):
        self.assertFirstLine(
            self.run_setup(LIBTORCH=str(self.root / "nowhere")),
            2,
            "error: LIBTORCH=ROOT/nowhere cannot be used: there is no such folder",
        )
        folder = fake_torch(self.root / "there")
        (folder / "lib/libtorch_cpu.so").unlink()
        self.assertFirstLine(
            self.run_setup(LIBTORCH=str(folder)),
            2,
            "error: LIBTORCH=ROOT/there/torch cannot be used: lib/libtorch_cpu.so is missing",
        )
        self.assertFirstLine(
            self.run_setup(LIBTORCH="there/torch"), 2, "error: LIBTORCH=there/torch is not an absolute path"
        )

    def test_active_environments(self):
        for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
            prefix = self.root / variable
            fake_torch(prefix / SITE)
            code, said = self.run_setup(**{variable: str(prefix)})
            self.assertEqual((code, said), (0, f"setup: torch 2.11.0+cu130, ROOT/{variable}/{SITE}/torch ({variable})"))
        self.assertEqual(self.pip_calls(), [])

    def test_wrong_version_in_the_active_environment_is_passed_over(self):
        fake_torch(self.root / "active" / SITE, "2.8.0")
        self.machine.python_sites = [self.root / "active" / SITE]
        code, said = self.run_setup(VIRTUAL_ENV=str(self.root / "active"))
        self.assertEqual((code, said.count("passing over")), (0, 1))
        self.assertIn("passing over the torch of VIRTUAL_ENV: it is version 2.8.0, and 2.11.0 is needed", said)
        self.assertEqual(len(self.pip_calls()), 1)

    def test_torch_of_the_running_python(self):
        fake_torch(self.root / "system")
        self.machine.python_sites = [self.root / "system"]
        code, said = self.run_setup()
        self.assertEqual((code, said), (0, "setup: torch 2.11.0+cu130, ROOT/system/torch (python3)"))

    def test_last_choice_stays(self):
        folder = fake_torch(self.root / "there")
        self.run_setup(LIBTORCH=str(folder))
        code, said = self.run_setup()
        self.assertEqual((code, said), (0, "setup: torch 2.11.0+cu130, ROOT/there/torch (as before)"))
        shutil.rmtree(folder)
        code, said = self.run_setup()
        self.assertEqual(code, 0)
        self.assertEqual(len(self.pip_calls()), 1)

    def test_venv_of_the_user(self):
        fake_torch(self.machine.venv / SITE)
        code, said = self.run_setup()
        self.assertEqual((code, said), (0, f"setup: torch 2.11.0+cu130, .venv/{SITE}/torch (.venv)"))
        self.assertEqual(self.pip_calls(), [])

    def test_unusable_venv_of_the_user_is_left_alone(self):
        folder = fake_torch(self.machine.venv / SITE, "2.6.0")
        code, said = self.run_setup()
        self.assertEqual(code, 2)
        self.assertIn(
            "error: the torch in .venv cannot be used: it is version 2.6.0, and 2.11.0 is needed\nhint: ", said
        )
        self.assertTrue(folder.exists())
        self.assertEqual(self.pip_calls(), [])

    # Installing

    def test_installs_the_slim_parts_without_a_driver(self):
        code, said = self.run_setup()
        self.assertEqual(
            (code, said),
            (
                0,
                "setup: installing torch 2.11.0 (slim) into .venv\n"
                f"setup: torch 2.11.0+cu130, .venv/{SITE}/torch (installed)",
            ),
        )
        self.assertTrue(self.config().endswith(f'LIBTORCH = {{ value = ".venv/{SITE}/torch", relative = true }}\n'))
        (call,) = self.pip_calls()
        self.assertIn(" --no-deps ", call)
        self.assertTrue(call.endswith(" torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85"), call)

    def test_installs_everything_with_a_driver(self):
        self.machine.has_driver = lambda: True
        code, _ = self.run_setup()
        (call,) = self.pip_calls()
        self.assertEqual(code, 0)
        self.assertNotIn("--no-deps", call)
        self.assertTrue(call.endswith(" torch==2.11.0"), call)

    def test_slim_install_grows_when_a_driver_appears(self):
        self.run_setup()
        self.machine.has_driver = lambda: True
        self.assertEqual(self.run_setup(LOWTIDE_TORCH="slim")[0], 0)
        self.assertEqual(len(self.pip_calls()), 1)
        self.assertEqual(self.run_setup()[0], 0)
        self.assertEqual(len(self.pip_calls()), 2)
        self.machine.has_driver = lambda: False
        self.assertEqual(self.run_setup()[0], 0)
        self.assertEqual(len(self.pip_calls()), 2)

    def test_growth_that_fails_leaves_the_slim_install(self):
        self.run_setup()
        self.machine.has_driver = lambda: True
        self.assertEqual(self.run_setup(FAKE_PIP="ReadTimeout")[0], 2)
        self.assertEqual(self.run_setup(LOWTIDE_TORCH="slim")[0], 0)
        self.assertEqual(len(self.pip_calls()), 2)

    def test_growth_that_was_cut_short_is_repaired(self):
        self.run_setup()
        self.machine.has_driver = lambda: True
        self.assertEqual(self.run_setup(FAKE_PIP="Installing collected packages: torch")[0], 2)
        self.assertFirstLine(
            self.run_setup(LOWTIDE_TORCH="slim"), 0, "setup: the last install was cut short or damaged; starting again"
        )

    def test_mac_wheels_come_alone(self):
        self.machine.system, self.machine.architecture = "Darwin", "arm64"
        self.run_setup()
        (call,) = self.pip_calls()
        self.assertIn(" --no-deps ", call)
        self.assertTrue(call.endswith(" torch==2.11.0"), call)

    def test_second_run_does_nothing(self):
        self.run_setup()
        before = os.stat(self.machine.config)
        start = time.monotonic()
        code, said = self.run_setup()
        self.assertLess(time.monotonic() - start, 0.3)
        after = os.stat(self.machine.config)
        self.assertEqual((code, said), (0, f"setup: torch 2.11.0+cu130, .venv/{SITE}/torch (.venv)"))
        self.assertEqual((before.st_mtime_ns, before.st_ino), (after.st_mtime_ns, after.st_ino))
        self.assertEqual(len(self.pip_calls()), 1)

    def test_own_venv_may_be_the_active_one(self):
        self.run_setup()
        self.machine.stamp.unlink()
        self.machine.python_sites = [self.machine.venv / SITE]
        code, _ = self.run_setup(VIRTUAL_ENV=str(self.machine.venv))
        self.assertEqual(code, 0)
        self.assertEqual(len(self.pip_calls()), 2)

    def test_missing_stamp_is_repaired(self):
        self.run_setup()
        left_over = write(self.machine.venv / "left-over")
        self.machine.stamp.unlink()
        self.assertFirstLine(self.run_setup(), 0, "setup: the last install was cut short or damaged; starting again")
        self.assertFalse(left_over.exists())
        self.assertTrue(self.machine.stamp.exists())
        self.assertEqual(len(self.pip_calls()), 2)

    def test_install_that_was_killed_is_repaired(self):
        code, said = self.run_setup(FAKE_PIP="cut short")
        self.assertEqual(code, 2)
        self.assertEqual(said.splitlines()[1], "error: pip was killed by signal 9")
        self.assertFalse(self.machine.config.exists())
        self.assertFirstLine(self.run_setup(), 0, "setup: the last install was cut short or damaged; starting again")
        self.assertTrue((self.machine.venv / SITE / "torch/lib/libtorch_cpu.so").exists())

    def test_damage_after_the_install_is_repaired(self):
        self.run_setup()
        (self.machine.venv / SITE / "torch/lib/libc10.so").unlink()
        left_over = write(self.machine.venv / "left-over")
        code, _ = self.run_setup()
        self.assertEqual((code, left_over.exists()), (0, False))
        self.assertTrue((self.machine.venv / SITE / "torch/lib/libc10.so").exists())

    def test_small_disk(self):
        self.machine.free_bytes = lambda folder: 1300 * 1000**2
        code, said = self.run_setup()
        self.assertEqual(
            (code, said),
            (2, "error: 1.3 GB are free in ROOT/project, and installing torch takes 2.5 GB\nhint: free some space"),
        )
        self.assertFalse(self.machine.venv.exists())
        self.assertEqual(self.pip_calls(), [])
        self.machine.has_driver = lambda: True
        self.machine.free_bytes = lambda folder: 5 * setup.GB
        code, said = self.run_setup()
        self.assertEqual(code, 2)
        self.assertEqual(
            said.splitlines()[1], "hint: free some space, or take the CPU parts only: make setup LOWTIDE_TORCH=slim"
        )

    def test_failures_of_pip(self):
        cases = {
            "WARNING: Retrying: NewConnectionError\nERROR: No matching distribution found for torch==2.11.0": (
                "error: the download of torch failed: the package index cannot be reached"
            ),
            "ERROR: No matching distribution found for torch==2.11.0": (
                "error: the package index has no torch 2.11.0 for this Python and machine"
            ),
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device": (
                "error: the disk is full"
            ),
            "ERROR: [Errno 13] Permission denied: '/x'": (
                "error: pip may not write: ERROR: [Errno 13] Permission denied: '/x'"
            ),
            "Traceback\nKeyError: 'x'": "error: pip failed (exit code 1): Traceback / KeyError: 'x'",
            "installs nothing": "error: pip ended well, but torch cannot be used: there is no such folder",
        }
        for output, message in cases.items():
            with self.subTest(output):
                code, said = self.run_setup(FAKE_PIP=output)
                errors = [line for line in said.splitlines() if re.match("error|hint", line)]
                self.assertEqual((code, errors[0], len(errors)), (2, message, 2), said)
                self.assertTrue(errors[1].startswith("hint: "), said)
                self.assertFalse(self.machine.config.exists())
                self.assertFalse(self.machine.stamp.exists())

    def test_old_python_and_other_machines(self):
        self.machine.python = (3, 9)
        self.assertIn("error: torch 2.11.0 has no package for Python 3.9\nhint: ", self.run_setup()[1])
        self.machine.python = (3, 11)
        self.machine.architecture = "riscv64"
        self.assertFirstLine(self.run_setup(), 2, "error: torch 2.11.0 has no package for Linux on riscv64")
        self.assertFalse(self.machine.venv.exists())

    def test_missing_tools(self):
        self.assertFirstLine(
            self.run_setup(CXX="clang++-99"), 2, "error: no C++ compiler: clang++-99 (from CXX) is not on PATH"
        )
        (self.root / "bin/c++").unlink()
        self.assertFirstLine(self.run_setup(), 2, "error: no C++ compiler: c++ is not on PATH")
        (self.root / "bin/cargo").unlink()
        self.assertFirstLine(self.run_setup(HOME=str(self.root)), 2, "error: cargo is not on PATH")
        write(self.root / ".cargo/bin/cargo")
        code, said = self.run_setup(HOME=str(self.root))
        self.assertEqual(
            (code, said), (2, "error: cargo is installed, but ROOT/.cargo/bin is not on PATH\nhint: . ~/.cargo/env")
        )

    # Telling Cargo

    def test_config_of_the_user_is_respected(self):
        folder = fake_torch(self.root / "there")
        own = "[build]\njobs = 2\n"
        write(self.machine.config, own)
        self.machine.python_sites = [self.root / "there"]
        code, said = self.run_setup()
        self.assertEqual(code, 2)
        self.assertIn("error: .cargo/config.toml is not from `make setup`", said)
        self.assertIn('\n    LIBTORCH = "ROOT/there/torch"', said)
        self.assertEqual(self.machine.config.read_text(), own)
        self.assertEqual(self.run_setup(LIBTORCH=str(folder))[0], 0)
        own += f'[env]\nLIBTORCH = "{folder}"\n'
        write(self.machine.config, own)
        self.assertEqual(self.run_setup()[0], 0)
        self.assertEqual(self.machine.config.read_text(), own)

    def test_generated_config_follows_the_torch(self):
        self.run_setup()
        folder = fake_torch(self.root / 'a place with "quotes"')
        self.assertEqual(self.run_setup(LIBTORCH=str(folder))[0], 0)
        self.assertTrue(self.config().endswith('LIBTORCH = "ROOT/a place with \\"quotes\\"/torch"\n'), self.config())
        self.assertEqual(setup.configured_folder(self.machine), folder)

    def test_another_project_is_told_too(self):
        self.machine.other = self.root / "other"
        code, said = self.run_setup()
        self.assertEqual((code, said.splitlines()[0]), (2, "error: ROOT/other has no Cargo.toml"))
        write(self.machine.other / "Cargo.toml")
        code, said = self.run_setup()
        self.assertEqual((code, said.splitlines()[-1]), (0, "setup: ROOT/other/.cargo/config.toml names it"))
        told = (self.machine.other / ".cargo/config.toml").read_text().replace(str(self.root), "ROOT")
        self.assertTrue(told.endswith(f'LIBTORCH = "ROOT/project/.venv/{SITE}/torch"\n'), told)
        self.assertIn("relative = true", self.config())

    def test_config_of_another_project_is_respected(self):
        self.machine.other = self.root / "other"
        write(self.machine.other / "Cargo.toml")
        own = write(self.machine.other / ".cargo/config.toml", "[build]\njobs = 2\n")
        code, said = self.run_setup()
        self.assertEqual(code, 2)
        self.assertIn(f'\n    LIBTORCH = "ROOT/project/.venv/{SITE}/torch"', said)
        self.assertEqual(own.read_text(), "[build]\njobs = 2\n")

    def test_notes(self):
        self.machine.has_driver = lambda: True
        slim = fake_torch(self.root / "slim")
        self.assertIn("note: the CUDA libraries of this torch are not installed", self.run_setup(LIBTORCH=str(slim))[1])
        cpu = fake_torch(self.root / "cpu", "2.11.0+cpu", "None", runtime=False)
        self.assertIn("note: this torch is built without CUDA", self.run_setup(LIBTORCH=str(cpu))[1])
        self.machine.has_driver = lambda: False
        self.assertEqual(len(self.run_setup(LIBTORCH=str(cpu))[1].splitlines()), 1)
        code, said = self.run_setup(LIBTORCH=str(cpu), LIBTORCH_USE_PYTORCH="1")
        self.assertEqual(code, 0)
        self.assertEqual(
            said.splitlines()[1], "note: LIBTORCH_USE_PYTORCH is set; the build follows it, whatever set-up found"
        )

    # As a program

    def test_interrupt_ends_pip_too(self):
        script = (
            f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import test_setup\n"
            "test = test_setup.SetupTest('test_notes'); test.setUp()\n"
            "test.machine.environment['FAKE_PIP'] = 'hangs'\n"
            "test.machine.say = lambda line: print(line, flush=True)\n"
            "code = test_setup.setup.run(test.machine); print(test.machine.stamp.exists())\n"
            "test.doCleanups(); sys.exit(code)\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-B", "-c", script],
            stdout=subprocess.PIPE,
            universal_newlines=True,
            # A shell starts what runs in the background with this signal ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.assertIn("installing", process.stdout.readline())
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=20)
        self.assertEqual((process.returncode, output), (130, "stopped; run `make setup` again to finish\nFalse\n"))

    def test_script_runs_as_a_program(self):
        script = write(self.project / "scripts/setup", SCRIPT.read_text())
        folder = fake_torch(self.root / "there")
        environment = {"PATH": "{}:{}".format(self.root / "bin", os.environ["PATH"]), "LIBTORCH": str(folder)}
        done = subprocess.run(
            [sys.executable, str(script)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.assertEqual((done.returncode, done.stdout), (0, b""), done.stderr)
        self.assertTrue(self.config().endswith('LIBTORCH = "ROOT/there/torch"\n'))


if __name__ == "__main__":
    unittest.main(verbosity=1)
