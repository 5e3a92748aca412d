"""Several ranks on this machine, each a process, that must come to an end."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

SCRIPTS = Path(__file__).parent / "scripts"


class Ended(NamedTuple):
    """How a rank ended."""

    code: int
    output: str
    errors: str

    def answer(self) -> Any:
        """The last line that it printed, as JSON."""
        assert self.code == 0, f"exit code {self.code}\n{self.errors[-4000:]}"
        return json.loads(self.output.splitlines()[-1])


def run(script: str, world: int, *arguments: str, seconds: float = 240.0, **environment: str) -> list[Ended]:
    """Runs a script of ``scripts/`` on so many ranks. Ranks that hang are ended, and the test fails."""
    with start(script, world, *arguments, **environment) as started:
        until = time.monotonic() + seconds
        for rank in range(world):
            if started.wait(rank, until - time.monotonic()) is None:
                said = "\n".join(f"rank {one}: {started.errors(one)[-2000:]}" for one in range(world))
                raise AssertionError(f"rank {rank} hung for {seconds:g} s\n{said}")
        return [started.ended(rank) for rank in range(world)]


def start(script: str, world: int, *arguments: str, **environment: str) -> Started:
    """The same without waiting: as a context it ends ranks that are still there."""
    port = free_port()
    folder = tempfile.TemporaryDirectory()
    processes = []
    for rank in range(world):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(SCRIPTS / script), *arguments]
        with open(f"{folder.name}/{rank}.out", "w") as out, open(f"{folder.name}/{rank}.err", "w") as err:
            every = {**os.environ, **own, **meeting, **environment}
            processes.append(subprocess.Popen(command, stdout=out, stderr=err, env=every))
    return Started(folder, processes)


class Started:
    """Ranks that run."""

    def __init__(self, folder: tempfile.TemporaryDirectory[str], processes: list[subprocess.Popen[Any]]) -> None:
        self._folder, self._processes = folder, processes

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._folder.cleanup()

    def wait(self, rank: int, seconds: float) -> int | None:
        """The exit code of a rank; none where it is still running."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._processes[rank].wait(max(seconds, 0.01))
        return None

    def ended(self, rank: int) -> Ended:
        output = Path(self._folder.name, f"{rank}.out").read_text()
        return Ended(self._processes[rank].returncode, output, self.errors(rank))

    def errors(self, rank: int) -> str:
        return Path(self._folder.name, f"{rank}.err").read_text()


def check_recovered(answers: list[dict[str, Any]], cases: int) -> None:
    """Whether every variant met its errors and ended with the bits of a clean run, on all ranks."""
    for variant in answers[0]:
        found = [answer[variant] for answer in answers]
        assert not any(one["different"] for one in found), (variant, found)
        assert sum(one["errors"] for one in found) >= cases, (variant, found)


def leave() -> None:
    """Ends a rank that has said what it found, without taking its groups down: now and then a thread of torch's aborts in that."""
    import torch.distributed as dist

    dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    if dist.get_rank() == 0:
        time.sleep(0.3)  # the store of all ranks is in this one
    os._exit(0)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
