"""How fast is `lowtide.Feed` against the Rust feed below it: samples/s of one epoch, same files, order and memory?

Needs torch, and the package beside it (`make` or `pip install .`; else PYTHONPATH=python with `_native` built):

    python benches/feed_from_python.py                        # makes up 512 MiB of samples of 12 KiB
    python benches/feed_from_python.py packed --limit 256MiB  # or your own

Rust runs twice: `feed --batch` puts the same batches together, `feed` alone looks at every sample as little as one can and
copies nothing. Contenders take turns, and the median of each counts.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import kit


def worker(args):
    """The Python side, in a process of its own."""
    import lowtide

    # Both know where the last epoch ends, and read nothing for one behind it.
    feed = lowtide.Feed(
        args.folder, args.batch_size, shuffle=args.window, seed=1, limit=args.limit, epochs=args.epochs
    )
    if args.order:
        print(json.dumps(feed.order(0)))
        return
    batches, steps = iter(feed), len(feed) // args.epochs
    for epoch in range(args.epochs):
        begun, seen = time.perf_counter(), 0
        for batch in itertools.islice(batches, steps):
            seen += len(next(iter(batch.values())))
        print(json.dumps({"epoch": epoch, "samples_per_second": seen / (time.perf_counter() - begun)}))


def lines(command):
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def python(args, *more):
    values = ("--limit", args.limit, "--window", args.window, "--batch-size", args.batch_size, "--epochs", args.epochs)
    return [sys.executable, __file__, args.folder, "--worker", *map(str, values), *more]


def rust(args, *more):
    values = ("--cache", args.limit, "--window", args.window, "--epochs", args.epochs, "--seed", 1)
    return [kit.program("examples/feed"), args.folder, *map(str, values), *more]


def speed(epochs):
    """Of the best epoch; the first one fills the cache."""
    rates = [epoch["samples_per_second"] for epoch in epochs if "epoch" in epoch and "samples_per_second" in epoch]
    return max(rates[1:] or rates)


def make_up(folder):
    import lowtide
    import torch

    source = Path(folder, "files")
    source.mkdir()
    for file in range(16):
        x = torch.randint(0, 256, (2731, 3, 64, 64), dtype=torch.uint8)
        torch.save({"x": x, "y": torch.randint(0, 10, (len(x),))}, source / f"{file:02}.pt")
    lowtide.pack(source, Path(folder, "packed"), progress=False)
    return str(Path(folder, "packed"))


def compare(args):
    order = lines(rust(args, "--print-order"))[1]["order"]
    if lines(python(args, "--order"))[0] != order:
        sys.exit("error: Python has another order than Rust")
    batches = rust(args, "--batch", str(args.batch_size))
    contenders = {"rust, batches": batches, "python, batches": python(args), "rust, samples": rust(args)}
    speeds = {name: [] for name in contenders}
    for _ in range(args.rounds):
        for name, command in contenders.items():
            speeds[name].append(speed(lines(command)))
    middle = {name: statistics.median(rates) for name, rates in speeds.items()}
    for name, rate in middle.items():
        print(json.dumps({"contender": name, "samples_per_second": round(rate), "batches_per_second": round(rate / args.batch_size, 1)}))
    ratios = {name: round(middle["python, batches"] / middle[name], 3) for name in ("rust, batches", "rust, samples")}
    print(json.dumps({"same_order": True, "batch_size": args.batch_size, "python_against": ratios}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--limit", default="256MiB")
    parser.add_argument("--window", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--order", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(args)
    if args.folder:
        return compare(args)
    with tempfile.TemporaryDirectory() as folder:
        args.folder = make_up(folder)
        return compare(args)


if __name__ == "__main__":
    main()
