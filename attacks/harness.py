"""What the attacks have in common: a place to work in, commands that are measured, and the checks that are kept."""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

MIB = 1 << 20
# What a refusal may take: memory over that of the same command with an honest file, and seconds of a processor, which
# other work on the machine does not lengthen.
ROOM = 64 * MIB
SECONDS = 2.0
# An attack that succeeds is not to take this machine with it.
PATIENCE = 20
SPACE = 8 << 30
DISK = 1 << 30

ATTACKS = []


def attack(what):
    """Registers a function of a `Place` as an attack; `what` says in a line what it tries."""

    def register(function):
        group = function.__module__
        ATTACKS.append(Attack(f"{group}.{function.__name__}", what, function))
        return function

    return register


@dataclasses.dataclass
class Attack:
    name: str
    what: str
    function: object


@dataclasses.dataclass
class Ran:
    """A command that has ended. Without a code it was killed by the signal whose number `code` is, negative."""

    words: list
    code: int
    out: bytes
    err: bytes
    seconds: float
    busy: float
    peak: int

    @property
    def said(self):
        return (self.out + self.err).decode("utf-8", "replace")

    @property
    def last_line(self):
        lines = [line for line in self.err.decode("utf-8", "replace").splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error")]
        return (errors or lines or [""])[-1]


@dataclasses.dataclass
class Place:
    """A folder for one attack, and the programs to attack."""

    folder: pathlib.Path
    front: str
    flips: int
    checks: list = dataclasses.field(default_factory=list)
    # Shared by all attacks of one run: peaks of commands with honest files, and folders that are dear to make.
    shared: dict = dataclasses.field(default_factory=dict)

    def path(self, name):
        return self.folder / name

    def write(self, name, data):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def fresh(self, name):
        """An empty folder of this name."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.folder / name).mkdir(parents=True)
        return self.folder / name

    def start(self, *words, space=SPACE, file_size=DISK, patience=PATIENCE, **more):
        """Starts `lowtide` with these words, measured; `finish` waits for it."""
        program = [self.front, *map(str, words)]
        return self.start_program(program, space, file_size, patience, **more)

    def start_program(self, program, space=0, file_size=0, patience=PATIENCE, **more):
        read, write = os.pipe()
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        measure = str(pathlib.Path(__file__).with_name("measure.py"))
        numbers = [str(write), str(patience), str(space), str(file_size)]
        command = [sys.executable, "-I", "-S", measure, *numbers, *program]
        process = subprocess.Popen(command, pass_fds=[write], cwd=self.folder, **{**pipes, **more})
        os.close(write)
        return program, process, read

    def finish(self, started):
        words, process, read = started
        out, err = process.communicate()
        with open(read) as told:
            ended = json.loads(told.read() or '{"code": 127, "seconds": 0, "busy": 0, "peak": 0}')
        return Ran(words, ended["code"], out or b"", err or b"", ended["seconds"], ended["busy"], ended["peak"])

    def run(self, *words, **limits):
        return self.finish(self.start(*words, **limits))

    def check(self, words, holds, detail=""):
        self.checks.append((words, bool(holds), str(detail)))
        return bool(holds)

    def honest(self, *words):
        """What a command with honest files takes; it must succeed."""
        if words not in self.shared:
            ran = self.run(*words)
            if ran.code != 0:
                raise RuntimeError(f"an honest file was refused: {' '.join(map(str, words))}: {ran.last_line}")
            self.shared[words] = ran
        return self.shared[words]

    def is_bounded(self, words, ran, base, room=ROOM):
        """Checks that a command ended by itself, without a panic, within memory and time."""
        over = max(0, ran.peak - base.peak)
        figures = f"exit {ran.code}, {over / MIB:.0f} MiB over the base, {ran.busy:.1f} s: {ran.last_line[:150]}"
        ended = ran.code in (0, 1, 2, 3) and "panicked" not in ran.said
        return self.check(words, ended and over <= room and ran.busy < SECONDS + base.busy, figures)

    def is_refused(self, words, ran, base, name, room=ROOM):
        """The same, with an error that names the file."""
        bounded = self.is_bounded(words, ran, base, room)
        return bounded and self.check(f"{words}: the error names it", ran.code == 2 and name in ran.said, ran.last_line[:200])


def new_place(front, flips, shared):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lowtide-attack-"))
    return Place(folder, front, flips, shared=shared)
