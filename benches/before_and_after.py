"""How fast and how small are `lowtide explain` and `lowtide run` against an older lowtide, on the same logs and in turn?

    python -B benches/before_and_after.py OLD NEW [--size MB] [--rounds N] [--goal RATIO] [--strict]

Logs of several forms are written into a folder that is deleted afterwards: lines of training, lines of JSON, lines of 100 KB,
bars that tqdm draws with carriage returns, lines that speak of memory without lacking it, and a post of 4 KB. Each is explained
by both programs in turn. Then both pass on the output of a command. Printed are the best time of each, its most memory (the middle
of several runs), and the ratio of new to old; with --strict the exit code is 1 where a ratio is above the goal.

Other programs on the machine make a time longer and never shorter, so that the best of the rounds counts. Where cores are shared,
the processor's time is the better measure: a goal is met where that or the wall's is within it.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ERROR = (
    "Traceback (most recent call last):\n"
    '  File "train.py", line 300, in <module>\n'
    "    scaler.scale(loss).backward()\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.07 GiB. GPU 0 has a total capacity of 79.35 GiB of which "
    "1.11 GiB is free. Including non-PyTorch memory, this process has 78.20 GiB memory in use. Of the allocated memory 75.03 GiB "
    "is allocated by PyTorch, and 1.42 GiB is reserved by PyTorch but unallocated.\n"
)


def plain(number):
    return f"iter {number}: loss {2 + 1 / (number + 1):.4f}, time {241 + number % 7:.2f}ms, mfu 31.02%\n"


def as_json(number):
    return json.dumps({"time": f"2026-01-02T03:{number // 60 % 60:02}:{number % 60:02}Z", "level": "info",
                       "msg": "step", "step": number, "loss": round(2 + 1 / (number + 1), 4), "gpu_mem_mb": 71234}) + "\n"


def long_line(number):
    return f"batch {number} token ids: " + " ".join(str((number * 7919 + at * 31) % 50257) for at in range(17_000)) + "\n"


def bar(number):
    percent = number % 1000 / 10
    filled = "█" * int(percent / 10)
    return f"\r{percent:3.0f}%|{filled:<10}| {number % 1000}/1000 [01:12<00:40, 12.31it/s, loss=2.31]" + ("\n" if number % 1000 == 999 else "")


def memory_words(number):
    return [
        f"[{number}] memory allocated 71.2 GiB, reserved 75.0 GiB, peak 77.9 GiB\n",
        f"[{number}] gradient norm exceeds 1.0 (1.37), clipped; 4096 tokens available for the next batch\n",
        f"[{number}] unable to overlap the next transfer, will go on without it\n",
    ][number % 3]


FORMS = {"lines": plain, "json": as_json, "long lines": long_line, "tqdm": bar, "words of memory": memory_words}


def write(path, form, size):
    """A log of a size: a piece of it is made once and repeated, with an error in the middle and one at the end."""
    text, number = [], 0
    while sum(map(len, text[-1000:])) * max(1, len(text) // 1000) < min(size, 8 << 20):
        text += [form(at) for at in range(number, number + 1000 if form is not long_line else number + 20)]
        number += 1000
    piece = "".join(text).encode()
    error = ERROR.encode() if form is not as_json else (json.dumps({"level": "error", "msg": ERROR}) + "\n").encode()
    with open(path, "wb") as file:
        for part in range(2):
            written = 0
            while written < size / 2:
                file.write(piece)
                written += len(piece)
            file.write(b"\n" + error)


def run(command, out=subprocess.DEVNULL):
    """Exit code, wall time and processor time of a command."""
    begun = time.perf_counter()
    child = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
    if out == subprocess.PIPE:
        buffer = bytearray(1 << 20)
        while child.stdout.readinto(buffer):
            pass
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, time.perf_counter() - begun, usage.ru_utime + usage.ru_stime


def peak(command):
    """The most memory of a command, in a run that is not timed. What `wait4` tells begins with this Python's own."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    most = 0
    while child.poll() is None:
        try:
            status = Path(f"/proc/{child.pid}/status").read_text()
        except OSError:
            break
        most = max([most] + [int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")])
        time.sleep(0.001)
    child.wait()
    return most


def best(runs, most):
    return {"seconds": min(run[1] for run in runs), "cpu_seconds": min(run[2] for run in runs), "peak_bytes": most}


def compare(name, programs, command, rounds, out=subprocess.DEVNULL):
    """Runs both in turn, the older one first in every other round."""
    runs = {which: [] for which in programs}
    for index in range(rounds):
        order = list(programs) if index % 2 == 0 else list(programs)[::-1]
        for which in order:
            done = run(command(which, programs[which]), out)
            if done[0] not in (0, 1):
                sys.exit(f"{which} lowtide ended with {done[0]} on {name}")
            runs[which].append(done)
    peaks = {which: [] for which in programs}
    for _ in range(rounds):
        for which, program in programs.items():
            peaks[which].append(peak(command(which, program)))
    # What threads hold at once is chance, in both directions: the middle one counts.
    old, new = (best(runs[which], statistics.median(peaks[which])) for which in ("old", "new"))
    ratios = {key: new[key] / (old[key] or new[key]) for key in old}
    print(json.dumps({"what": name, "old": old, "new": new, "ratios": {key: round(value, 3) for key, value in ratios.items()}}), flush=True)
    return name, old, new, ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--size", type=int, default=1000, help="MB of each log and of what a command prints (1000)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--goal", type=float, default=1.2)
    parser.add_argument("--strict", action="store_true", help="end with 1 where a goal is missed")
    parser.add_argument("--work", type=Path, help="where the logs are written")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=options.work))
    # Copies, made alike: how a file lies in the page cache makes a megabyte of difference to who maps it.
    programs = {which: str(shutil.copy(program, folder / which)) for which, program in (("old", options.old), ("new", options.new))}
    rows = []
    try:
        for name, form in FORMS.items():
            log = folder / "log"
            write(log, form, options.size * 1_000_000)
            rows.append(compare(f"explain: {name}", programs, lambda _, program: [program, "explain", str(log)], options.rounds))
            log.unlink()
        post = folder / "post"
        post.write_text("".join(map(plain, range(60))) + ERROR)
        many = f'for i in $(seq 40); do "$0" explain "{post}" >/dev/null; done'
        rows.append(compare("explain: 40 posts", programs, lambda _, program: ["sh", "-c", many, program], options.rounds))
        size = options.size * 1_000_000
        outputs = {
            "zeros": f"head -c {size} /dev/zero",
            "lines": f"yes 'iter 100: loss 3.2104, time 241.20ms, mfu 31.02%' | head -c {size}",
            "words of memory": f"yes '[7] gradient norm exceeds 1.0, memory allocated 71.2 GiB' | head -c {size}",
        }
        for name, script in outputs.items():
            def command(which, program):
                shutil.rmtree(folder / "runs", ignore_errors=True)
                return [program, "run", "-q", "--out", str(folder / "runs"), "--", "sh", "-c", script]

            rows.append(compare(f"run: {name}", programs, command, options.rounds, subprocess.PIPE))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{'':26} {'old s':>8} {'new s':>8} {'old MB':>7} {'new MB':>7} {'wall':>6} {'cpu':>6} {'memory':>6}   goal {options.goal}")
    missed = []
    for name, old, new, ratios in rows:
        is_met = min(ratios["cpu_seconds"], ratios["seconds"]) <= options.goal and ratios["peak_bytes"] <= options.goal
        missed += [] if is_met else [name]
        print(
            f"{name:26} {old['seconds']:8.3f} {new['seconds']:8.3f} {old['peak_bytes'] / 1e6:7.1f} {new['peak_bytes'] / 1e6:7.1f} "
            f"{ratios['seconds']:6.2f} {ratios['cpu_seconds']:6.2f} {ratios['peak_bytes']:6.2f}   {'met' if is_met else 'missed'}"
        )
    return bool(missed) and options.strict


if __name__ == "__main__":
    sys.exit(main())
