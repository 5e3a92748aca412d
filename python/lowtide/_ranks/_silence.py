"""A rank that falls silent: who it is, what it did last, and the end of the others.

A rank that was killed, or that failed where nobody can walk for it, leaves the others in a collective. Where the connection to
it breaks they see an error; where it does not, a thread of ours sees the time pass. Both ask who is still there through the
store that the ranks met by, and end the process by an exit code of its own: torchrun then ends and restarts the group.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

# The exit code of a rank that ends because another one is lost (`EX_TEMPFAIL` of sysexits.h: another try may succeed).
LOST = 75
# Seconds in which ranks that are alive answer a roll-call.
_ROLL_CALL = 5.0
# Seconds in which the thread that watches ends, unless it is about to end the process.
_JOIN = 5.0
# What errors of broken connections and of collectives that took too long have in them.
_WORDS = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "timed out",
    "timeout",
    "socket",
    "gloo",
    "nccl",
)

_count = 0
# Those that watch.
_OPEN: set[Silence] = set()


class RankLost(SystemExit):
    """Another rank is lost, and this one ends with the exit code 75, to be started again with all others."""

    def __init__(self, message: str) -> None:
        super().__init__(LOST)
        self.message = message

    def __str__(self) -> str:
        return self.message


class Silence:
    """Watches that the other ranks answer."""

    def __init__(self, rank: int, world: int, timeout: float, folder: Path | None) -> None:
        global _count
        _count += 1
        self._rank, self._world, self._timeout, self._folder = rank, world, timeout, folder
        # Of this start and this guard, in the order in which guards are made on every rank.
        start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._prefix = f"lowtide/{start}/{_count}"
        self._store: Any = _store()
        # What this rank is doing, in words: told when it must end.
        self.place = "its first step"
        self._deadline: float | None = None
        self._is_ending = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lowtide-ranks", daemon=True)
        self._thread.start()
        if not _OPEN:
            atexit.unregister(_leave)
            atexit.register(_leave)
        _OPEN.add(self)

    def close(self) -> None:
        """Ends the watch."""
        self._closed.set()
        _OPEN.discard(self)
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN)

    def begin(self, place: str) -> None:
        """Others are waited for from now on."""
        self.place = place
        self._deadline = time.monotonic() + self._timeout

    def end(self) -> None:
        """Nobody is waited for."""
        self._deadline = None

    def announce(self, error: BaseException) -> None:
        """This rank ends by an error that the others cannot know of: leaves word."""
        self.end()
        if isinstance(error, RankLost):
            return
        self._say("gone", f"{type(error).__name__}: {error}".partition("\nhint:")[0])

    def lost(self, reason: str) -> RankLost:
        """Finds out who is lost, and says so; to be raised."""
        self._is_ending.acquire()
        message = self._report(reason)
        print(f"lowtide: {message}", file=sys.stderr, flush=True)
        return RankLost(message)

    def _watch(self) -> None:
        while not self._closed.wait(min(self._timeout / 4, 1.0)):
            deadline = self._deadline
            if deadline is not None and time.monotonic() > deadline and self._is_ending.acquire(blocking=False):
                message = self._report(f"no answer for {self._timeout:g} s")
                print(f"lowtide: {message}", file=sys.stderr, flush=True)
                os._exit(LOST)

    def _report(self, reason: str) -> str:
        self._say("here", self.place)
        dump = self._dump()
        gone, silent = self._roll_call()
        lines = [f"rank {self._rank} ends in {self.place}: {reason.splitlines()[0] if reason else 'a rank is lost'}"]
        lines += [f"rank {rank} ended first: {text}" for rank, text in sorted(gone.items())]
        if silent:
            ranks = ", ".join(map(str, silent))
            noun = "rank" if len(silent) == 1 else "ranks"
            lines.append(f"{noun} {ranks} fell silent, last heard of before {self.place}")
        elif not gone:
            lines.append("all ranks are there: the connection between them is broken, or one takes too long")
        if dump is not None:
            lines.append(f"torch's flight recorder: {dump}")
        return "; ".join(lines)

    def _roll_call(self) -> tuple[dict[int, str], list[int]]:
        """Who left word that it ends, and who says nothing."""
        others = [rank for rank in range(self._world) if rank != self._rank]
        gone: dict[int, str] = {}
        here: set[int] = set()
        until = time.monotonic() + min(_ROLL_CALL, self._timeout)
        while len(gone) + len(here) < len(others) and time.monotonic() < until:
            try:
                for rank in others:
                    if rank not in gone and self._store.check([self._key("gone", rank)]):
                        gone[rank] = self._store.get(self._key("gone", rank)).decode(errors="ignore")
                    elif rank not in gone and self._store.check([self._key("here", rank)]):
                        here.add(rank)
            except (RuntimeError, AttributeError):
                break  # the store went with the rank that held it
            time.sleep(0.05)
        here -= set(gone)
        return gone, [rank for rank in others if rank not in gone and rank not in here]

    def _say(self, what: str, text: str) -> None:
        with contextlib.suppress(RuntimeError, AttributeError):
            self._store.set(self._key(what, self._rank), text)

    def _key(self, what: str, rank: int) -> str:
        return f"{self._prefix}/{what}/{rank}"

    def _dump(self) -> str | None:
        """Writes what torch's flight recorder holds, where it records."""
        with contextlib.suppress(Exception):
            native: Any = torch._C._distributed_c10d
            take = native._dump_nccl_trace if torch.cuda.is_initialized() else native._dump_fr_trace
            trace = take()
            if not _has_entries(trace):
                return None
            folder = self._folder or Path(tempfile.gettempdir())
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"flight-recorder-{os.getpid()}-rank{self._rank}.pkl"
            path.write_bytes(trace)
            return str(path)
        return None


def _leave() -> None:
    """Ends the threads of guards that were not closed, before the interpreter does."""
    for one in list(_OPEN):
        one.close()


def is_sign(error: BaseException) -> bool:
    """Whether an error is that of a collective which others did not come to."""
    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in _WORDS)


def _has_entries(trace: bytes) -> bool:
    import pickle

    return bool(pickle.loads(trace).get("entries"))


def _store() -> Any:
    """The store that ranks met by, with a connection of its own: the other one may be in use when it matters."""
    with contextlib.suppress(RuntimeError, AttributeError, AssertionError):
        store: Any = dist.distributed_c10d._get_default_store()
        return store.clone()
    return None
