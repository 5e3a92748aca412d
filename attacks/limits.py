"""Limits of the system, signals, and folders that go away while a run is under way."""

import json
import os
import pathlib
import re
import shutil
import signal
import sys
import time

from damage import CPU, GPT, resume, trained
from harness import attack

LONG = ["--set", "train.steps=100000", "--set", "eval.every=null", "--set", "save.every=50"]


def start_training(place, out, **more):
    """Starts a run without an end and waits until a step that it has made is saved: one of step 0 may come first."""
    started = place.start("train", "gpt", "--out", out, *CPU, *GPT, *LONG, **more)
    for _ in range(400):
        saved = newest(out)
        if saved and int(saved.name) > 0:
            return started
        time.sleep(0.05)
    raise RuntimeError(f"no checkpoint in {out}: {place.finish(started).said}")


def send(started, number):
    """To the program itself, below the process that measures it."""
    pid = started[1].pid
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(int(children[0]), number)
    except (IndexError, FileNotFoundError, ProcessLookupError):
        pass  # it has ended, which `finish` shows


def wait_for_engine(started):
    """On a busy machine a process may not have become a program of ours yet."""
    pid = started[1].pid
    for _ in range(1000):
        try:
            children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            if pathlib.Path(f"/proc/{children[0]}/comm").read_text().startswith("lowtide-engine"):
                return
        except (IndexError, FileNotFoundError, ProcessLookupError):
            pass
        time.sleep(0.005)


def newest(run):
    saved = sorted(pathlib.Path(run).glob("checkpoints/0*/state.json"))
    return saved[-1].parent if saved else None


def loads(place, words, run):
    """Checks that the newest checkpoint of a run can be evaluated."""
    ran = place.run("eval", run, *CPU, "--set", "eval.batches=1")
    place.check(f"{words}: its newest checkpoint is whole", ran.code == 0, ran.last_line)


@attack("SIGHUP saves and ends, SIGUSR1 saves and goes on")
def signals(place):
    out = place.path("hup")
    started = start_training(place, out)
    send(started, signal.SIGHUP)
    ran = place.finish(started)
    place.check("SIGHUP: ends as interrupted", ran.code == 130, f"exit {ran.code}: {ran.last_line}")
    steps = json.loads((out / "summary.json").read_text())["steps"] if (out / "summary.json").exists() else -1
    place.check("SIGHUP: the last step is saved", newest(out).name == f"{steps:08}", f"{newest(out).name} of {steps}")
    out = place.path("usr1")
    started = start_training(place, out, patience=40)
    before = newest(out)
    send(started, signal.SIGUSR1)
    for _ in range(100):
        time.sleep(0.1)
        text = (out / "events.jsonl").read_text()
        odd = re.findall(r'"event":"[a-z_]*saved[a-z_]*","step":(\d+)', text) or [path.name for path in out.glob("checkpoints/0*")]
        if any(int(step) % 50 for step in odd):
            break
    place.check("SIGUSR1: goes on", started[1].poll() is None, started[1].poll())
    place.check("SIGUSR1: a step between is saved", any(int(step) % 50 for step in odd), f"{odd[-5:]} after {before}")
    send(started, signal.SIGTERM)
    place.check("SIGTERM: ends as interrupted", place.finish(started).code == 130, "")


@attack("signals that come before the first step")
def early_signals(place):
    for number, name in ((signal.SIGUSR1, "SIGUSR1"), (signal.SIGHUP, "SIGHUP"), (signal.SIGTERM, "SIGTERM")):
        for delay in (0.02, 0.1, 0.2, 0.3, 0.5):
            out = place.path(f"{name}-{delay}")
            started = place.start("train", "gpt", "--out", out, *CPU, *GPT, "--set", "train.steps=3")
            time.sleep(delay)
            if number == signal.SIGUSR1:
                wait_for_engine(started)
            send(started, number)
            ran = place.finish(started)
            fine = (0,) if name == "SIGUSR1" else (0, 130, -number)
            # Before it can hear signals it has nothing to lose, and is ended by them; SIGUSR1 is never meant to end it.
            place.check(f"{name} after {delay} s", ran.code in fine, f"exit {ran.code}: {ran.last_line}")
            left = out.exists() and not (out / "config.yaml").exists() and any(out.iterdir())
            place.check(f"{name} after {delay} s leaves nothing half-made", not left, left)


@attack("a limit on the size of files ends nothing without a word")
def file_size(place):
    out = place.path("out")
    # Checkpoints stay below the limit; events do not.
    small = [*GPT, "--set", "model.n_embd=8", "--set", "model.n_head=1", "--set", "train.steps=2000", "--set", "save.every=100"]
    ran = place.run("train", "gpt", "--out", out, *CPU, *small, "--set", "eval.every=null", file_size=60_000, patience=60)
    place.check("train: ends by itself", ran.code > 0, f"exit {ran.code}: {ran.last_line}")
    place.check("train: names a file", "out/" in ran.said, ran.last_line)
    if newest(out):
        loads(place, "train", out)
    script = place.write("script.py", b"import sys\nfor _ in range(4000): print('x' * 99)\nsys.exit(7)\n")
    ran = place.run("run", "--", sys.executable, script, file_size=100_000)
    place.check("run: the command's own code is kept", ran.code == 7, f"exit {ran.code}: {ran.last_line}")
    place.check("run: all of its output passes", ran.out.count(b"x" * 99) == 4000, ran.out.count(b"x" * 99))
    script = place.write("large.py", b"import signal, sys\nassert signal.getsignal(signal.SIGXFSZ) is not None\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nopen('large', 'wb').write(bytes(200_000))\n")
    ran = place.run("run", "--", sys.executable, script, file_size=100_000)
    place.check("run: the limit still is the command's", ran.code == -signal.SIGXFSZ, f"exit {ran.code}: {ran.last_line}")


@attack("a run folder that is moved while the run goes")
def moved_folder(place):
    out, now = place.path("out"), place.path("elsewhere/now")
    started = start_training(place, out)
    now.parent.mkdir()
    out.rename(now)
    at = newest(now)
    for _ in range(200):
        if newest(now) and newest(now).name > at.name:
            break
        time.sleep(0.05)
    send(started, signal.SIGTERM)
    ran = place.finish(started)
    place.check("goes on in the folder's new place", newest(now).name > at.name, f"{at.name} then, {newest(now).name} now")
    place.check("makes no new folder at the old one", not out.exists(), list(out.rglob("*"))[:3] if out.exists() else "")
    place.check("ends as interrupted", ran.code == 130, f"exit {ran.code}: {ran.last_line}")
    loads(place, "moved", now)
    hints_work(place, ran, now)


@attack("a run folder that is deleted while the run goes")
def deleted_folder(place):
    out = place.path("out")
    started = start_training(place, out)
    # The run writes meanwhile, so that a folder may not be empty when all that was in it is deleted.
    for _ in range(100):
        shutil.rmtree(out, ignore_errors=True)
        if not out.exists():
            break
    time.sleep(1.5)
    if started[1].poll() is None:
        send(started, signal.SIGTERM)
    ran = place.finish(started)
    place.check("says so", re.search(r"delet|remov|gone|no longer", ran.said), ran.said[-300:])
    runs = [path for path in place.folder.rglob("config.yaml") if newest(path.parent)]
    place.check("saves what it can with its configuration", runs, [str(path) for path in place.folder.iterdir()])
    for config in runs:
        place.check("says where", str(config.parent.name) in ran.said, f"{config.parent}: {ran.said[-300:]}")
        loads(place, "deleted", config.parent)


def hints_work(place, ran, folder):
    """Folders that the last words name are there."""
    named = re.findall(r"(?:is in|--out|resume with:.*--out|eval) (\S+)", ran.said)
    place.check("folders in its last words are there", all(os.path.isdir(place.folder / name.rstrip(".,")) for name in named) and named, named)


@attack("events.jsonl that is a pipe, a device, a folder, or without end")
def odd_events(place):
    for kind in ("pipe", "device", "folder", "line", "lines"):
        copy = place.path(kind)
        shutil.copytree(trained(place), copy)
        file = copy / "events.jsonl"
        file.unlink()
        if kind == "pipe":
            os.mkfifo(file)
        elif kind == "device":
            file.symlink_to("/dev/zero")
        elif kind == "folder":
            file.mkdir()
        else:
            with open(file, "wb") as out:
                out.truncate(3 << 30)
                if kind == "lines":
                    out.write(b"\n" * 1000)
        if "resumed" not in place.shared:
            good = place.path("good")
            shutil.copytree(trained(place), good)
            place.shared["resumed"] = place.run(*resume(good), file_size=0)
        base = place.shared["resumed"]
        ran = place.run(*resume(copy), file_size=0)
        place.check(f"{kind}: ends, within memory", ran.code in (0, 2) and ran.peak < base.peak + (64 << 20), f"exit {ran.code}, {(ran.peak - base.peak) >> 20} MiB over the base, {ran.seconds:.1f} s: {ran.last_line}")
        place.check(f"{kind}: is named", "events.jsonl" in ran.said, ran.last_line)


@attack("a run that is under way is left alone by a second one")
def two_at_once(place):
    out = place.path("out")
    started = start_training(place, out)
    before = (out / "events.jsonl").read_bytes()
    ran = place.run("train", "--resume", "--out", out, *CPU)
    place.check("refused", ran.code == 2, f"exit {ran.code}: {ran.last_line}")
    after = (out / "events.jsonl").read_bytes()
    place.check("its events are as they were", after.startswith(before), f"{len(before)} bytes then, {len(after)} now")
    send(started, signal.SIGTERM)
    place.check("the first goes on to its end", place.finish(started).code == 130, "")


@attack("settings that overflow where they are used are refused before anything is written")
def overflowing_settings(place):
    for setting in ("optimizer.clip=1e308", "optimizer.learning_rate=1e300", "optimizer.weight_decay=1e300", "optimizer.eps=1e300", "optimizer.clip=inf", "optimizer.clip=nan", "optimizer.clip=-1", "optimizer.beta2=1e300"):
        out = place.path("out")
        ran = place.run("train", "gpt", "--out", out, *CPU, *GPT, "--set", "train.steps=2", "--set", setting)
        key = setting.split("=")[0].split(".")[1]
        place.check(setting, ran.code == 2 and key in ran.said, f"exit {ran.code}: {ran.last_line}")
        place.check(f"{setting}: nothing is written", not out.exists(), list(out.rglob("*"))[:3] if out.exists() else "")
        shutil.rmtree(out, ignore_errors=True)


@attack("a patch keeps hard links and the mode of the file")
def hard_links(place):
    config = place.write("config/train.yaml", b"batch_size: 16\ngradient_accumulation_steps: 1\n")
    os.chmod(config, 0o640)
    other = place.path("other.yaml")
    os.link(config, other)
    log = place.write("train.log", b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB of which 1.10 GiB is free. Including non-PyTorch memory, this process has 6.60 GiB memory in use. Of the allocated memory 6.21 GiB is allocated by PyTorch, and 120.00 MiB is reserved by PyTorch but unallocated.\n")
    ran = place.run("explain", log, "--config", config, "--write")
    changed = config.read_bytes() != b"batch_size: 16\ngradient_accumulation_steps: 1\n"
    if changed:
        place.check("both names are one file still", config.samefile(other) and config.read_bytes() == other.read_bytes(), ran.last_line)
        place.check("its mode is kept", config.stat().st_mode & 0o777 == 0o640, oct(config.stat().st_mode))
    else:
        place.check("refused with a word about the link", "link" in ran.said, f"exit {ran.code}: {ran.said[-300:]}")
