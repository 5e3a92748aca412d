"""How fast is `lowtide.Feed` against the Rust feed below it: samples/s of one epoch, same files, order and memory?

Needs torch, and the package beside it (`make` or `pip install .`; else PYTHONPATH=python with `_native` built):

    python benches/feed_from_python.py                        # makes up 512 MiB of samples of 12 KiB
    python benches/feed_from_python.py packed --limit 256MiB  # or your own

Rust runs twice: `feed --batch` puts the same batches together, `feed` alone looks at every sample as little as one can and
copies nothing. Its limit is for data alone, where Python's has room for batches too: it is given what Python has for data,
so that both read as many bytes. Contenders take turns, and the median of each counts; the last line has the median of the
ratios of the turns, too, which a machine that is now quick and now slow spoils less.
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
        print(json.dumps({"order": feed.order(0), "budget": feed._data.budget}))
        return
    batches, steps = iter(feed), len(feed) // args.epochs
    for epoch in range(args.epochs):
        begun, before, seen = time.perf_counter(), feed.stats(), 0
        for batch in itertools.islice(batches, steps):
            seen += len(next(iter(batch.values())))
        rate = seen / (time.perf_counter() - begun)
        read = feed.stats()["bytes_read"] - before["bytes_read"]
        print(json.dumps({"epoch": epoch, "samples_per_second": rate, "bytes_read": read}))


def lines(command):
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def python(args, *more):
    values = ("--limit", args.limit, "--window", args.window, "--batch-size", args.batch_size, "--epochs", args.epochs)
    return [sys.executable, __file__, args.folder, "--worker", *map(str, values), *more]


def rust(args, *more):
    values = ("--cache", args.budget, "--window", args.window, "--epochs", args.epochs, "--seed", 1)
    return [kit.program("examples/feed"), args.folder, *map(str, values), *more]


def middle_of(epochs, name):
    """Of the epochs after the first, which fills the cache."""
    values = [epoch[name] for epoch in epochs if "epoch" in epoch]
    return statistics.median(values[1:] or values)


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
    asked = lines(python(args, "--order"))[0]
    args.budget = asked["budget"]
    if lines(rust(args, "--print-order"))[1]["order"] != asked["order"]:
        sys.exit("error: Python has another order than Rust")
    batches = rust(args, "--batch", str(args.batch_size))
    contenders = {"rust, batches": batches, "python, batches": python(args), "rust, samples": rust(args)}
    speeds, read = {name: [] for name in contenders}, {}
    for _ in range(args.rounds):
        for name, command in contenders.items():
            epochs = lines(command)
            speeds[name].append(middle_of(epochs, "samples_per_second"))
            read[name] = middle_of(epochs, "bytes_read")
    for name, rates in speeds.items():
        rate = statistics.median(rates)
        line = {"contender": name, "samples_per_second": round(rate), "batches_per_second": round(rate / args.batch_size, 1)}
        print(json.dumps(line | {"bytes_read": round(read[name])}))
    own = speeds.pop("python, batches")
    ratios = {name: round(statistics.median(own) / statistics.median(rates), 3) for name, rates in speeds.items()}
    turns = {name: [mine / rate for mine, rate in zip(own, rates)] for name, rates in speeds.items()}
    turns = {name: round(statistics.median(values), 3) for name, values in turns.items()}
    line = {"same_order": True, "batch_size": args.batch_size, "python_against": ratios, "by_turns": turns}
    print(json.dumps(line))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--limit", default="256MiB")
    parser.add_argument("--window", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=6)
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
