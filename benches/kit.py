"""What the benches share: running a contender, limiting its disk and memory, and printing a table."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASE = ROOT / "target" / "release"


class Missing(Exception):
    """A contender that cannot run here, and why."""


def program(name):
    """A program that was built, or an error that says how to build it."""
    path = RELEASE / name
    if not path.exists():
        how = "cargo build --release -p lowtide-data --example feed" if name == "examples/feed" else "make build"
        sys.exit(f"error: {path} is not there\nhint: {how}")
    return str(path)


def drop_page_cache(folder):
    """Makes the system forget the files of a folder and of those within it."""
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                # Pages that are not on the disk yet cannot be forgotten.
                os.fsync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)


def device_bytes():
    """Bytes that this process made the disk read."""
    with open("/proc/self/io") as file:
        return int(next(line for line in file if line.startswith("read_bytes")).split()[1])


def status_bytes(name, process="self"):
    """A size such as VmHWM or VmRSS out of a process's status."""
    with open(f"/proc/{process}/status") as file:
        line = next((line for line in file if line.startswith(name + ":")), None)
    return int(line.split()[1]) * 1024 if line else 0


class DiskLimit:
    """A cgroup of our own whose processes read no faster than so many bytes a second.

    Only where this process is in no other cgroup of that kind: those belong to whoever runs the machine.
    """

    def __init__(self, folder, bytes_per_second):
        device = os.stat(folder).st_dev
        self.path = None
        self.reason = None
        which = f"{os.major(device)}:{os.minor(device)}"
        with open("/proc/self/cgroup") as file:
            groups = dict((line.split(":", 2)[1], line.strip().split(":", 2)[2]) for line in file)
        name = f"lowtide-bench-{os.getpid()}"
        v1, v2 = Path("/sys/fs/cgroup/blkio"), Path("/sys/fs/cgroup")
        try:
            if groups.get("blkio") == "/":
                self.path = v1 / name
                self.path.mkdir()
                (self.path / "blkio.throttle.read_bps_device").write_text(f"{which} {bytes_per_second}\n")
            elif groups.get("") == "/" and "io" in (v2 / "cgroup.controllers").read_text().split():
                self.path = v2 / name
                self.path.mkdir()
                (self.path / "io.max").write_text(f"{which} rbps={bytes_per_second}\n")
            else:
                self.reason = "no cgroup that limits the disk can be made here"
        except OSError as error:
            self.close()
            self.reason = f"no cgroup that limits the disk can be made here: {error}"

    def join(self):
        """To be called in the process that is to be limited."""
        if self.path:
            (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def close(self):
        if self.path and self.path.exists():
            self.path.rmdir()
        self.path = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def run(command, join=(), environment=None, timeout=1200):
    """Runs a contender and gives the lines of JSON that it printed. `join` are calls made in its process first."""

    def before():
        for call in join:
            call()

    # One thread each, so that nobody wins by taking the other core.
    alone = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})}
    try:
        done = subprocess.run(
            [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **alone}, preexec_fn=before if join else None, timeout=timeout,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"ended after {timeout} s without a result: {' '.join(map(str, command))}") from error
    if done.returncode == 77:
        raise Missing(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "it is missing")
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def middle(values):
    return statistics.median(values)


def spread(values, digits=0):
    """The middle value, and the least and the most where there are several."""
    form = f"{{:,.{digits}f}}"
    if len(values) == 1:
        return form.format(values[0])
    return f"{form.format(middle(values))} ({form.format(min(values))} to {form.format(max(values))})"


def table(head, rows):
    """A table as it stands in a Markdown file."""
    cells = [head, *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    line = lambda row: "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |"
    print(line(cells[0]))
    print("| " + " | ".join("-" * width for width in widths) + " |")
    for row in cells[1:]:
        print(line(row))


def say(**facts):
    """A line of JSON on standard output."""
    print(json.dumps(facts), flush=True)
