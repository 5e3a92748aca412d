"""How fast is the feed against lazy loading by hand in Python: `torch.load` of a batch, an OrderedDict of the last N?

Same files, same order, same number of batches cached, in one run and in turn. Needs torch in the Python that runs it:

    lowtide generate scoring --out data/lazy --size 500MB --steps 28..28 --per-file 256
    python benches/feed_vs_python.py data/lazy --cache-batches 100 --window 16
    python benches/feed_vs_python.py data/lazy --cache-batches 100 --window 16 --disk 100MB
"""

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from pathlib import Path

import kit


class LazyBatches:
    """As such scripts do it: an index of all samples, and the batches that were used last."""

    def __init__(self, files, cached, collects):
        import torch

        self.torch, self.files, self.cached, self.collects = torch, files, cached, collects
        self.index, self.cache, self.loads = [], OrderedDict(), 0
        for number, file in enumerate(files):
            ids = torch.load(file)["question_ids"]
            self.index.extend((number, place, name) for place, name in enumerate(ids))

    def batch(self, number):
        if number in self.cache:
            self.cache.move_to_end(number)
            return self.cache[number]
        batch = self.torch.load(self.files[number])
        self.loads += 1
        self.cache[number] = batch
        while len(self.cache) > self.cached:
            del self.cache[next(iter(self.cache))]
            if self.collects:
                gc.collect()
        return batch

    def __getitem__(self, number):
        batch_number, place, name = self.index[number]
        batch = self.batch(batch_number)
        return name, batch["sequences"][place], batch["graphs"][place], batch["lengths"][place], batch["scores"][place]


def worker(args):
    """The Python side, in a process of its own."""
    with open(args.order) as file:
        head = json.loads(next(file))
        orders = [json.loads(line)["order"] for line in file][: args.epochs]
    begun = time.perf_counter()
    samples = LazyBatches(head["files"], args.cache_batches, not args.no_collect)
    index_seconds = time.perf_counter() - begun
    for epoch, order in enumerate(orders):
        if args.disk:
            kit.drop_page_cache(args.data)
        begun, device, loads, elements = time.perf_counter(), kit.device_bytes(), samples.loads, 0
        for number in order:
            _, sequence, graph, _, _ = samples[number]
            elements += sequence.numel() + graph["x"].numel()
        seconds = time.perf_counter() - begun
        kit.say(epoch=epoch, seconds=seconds, loads=samples.loads - loads, device_bytes=kit.device_bytes() - device)
    kit.say(index_seconds=index_seconds, peak_rss_bytes=kit.status_bytes("VmHWM"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a folder of batches as `lowtide generate scoring` writes them")
    parser.add_argument("--cache-batches", type=int, default=2, help="batches in memory (default 2)")
    parser.add_argument("--window", type=int, default=None, help="batches shuffled together (default: suits the cache)")
    parser.add_argument("--epochs", type=int, default=3, help="epochs; the first is left out (default 3)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="threads of the feed (default 2)")
    parser.add_argument("--disk", metavar="SIZE", help="bytes a second that the disk gives (100MB), or `free`: the "
                        "page cache is emptied before each epoch. Without this it is warm")
    parser.add_argument("--no-collect", action="store_true", help="spare Python the gc.collect() at each eviction")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--order", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(args)

    feed = [kit.program("examples/feed"), args.data, "--cache-batches", args.cache_batches, "--seed", args.seed,
            "--epochs", args.epochs, "--threads", args.threads]
    if args.window:
        feed += ["--window", args.window]
    reading = ["--drop-page-cache"] if args.disk else ["--keep-page-cache"]
    with tempfile.TemporaryDirectory() as folder:
        order = Path(folder) / "order.jsonl"
        with open(order, "w") as file:
            subprocess.run([str(word) for word in [*feed, "--print-order"]], stdout=file, check=True)
        with open(order) as file:
            head = json.loads(next(file))
        count = sum(head["samples"])
        lazy = [sys.executable, __file__, args.data, "--worker", "--order", order, "--epochs", args.epochs,
                "--cache-batches", args.cache_batches]
        lazy += ["--disk", "x"] if args.disk else []
        lazy += ["--no-collect"] if args.no_collect else []
        contenders = {
            "python, LRU": lazy,
            "feed, lru": [*feed, *reading, "--policy", "lru"],
            "feed, belady": [*feed, *reading, "--policy", "belady"],
        }
        limit = None
        if args.disk and args.disk != "free":
            limit = kit.DiskLimit(args.data, size(args.disk))
            if limit.reason:
                print(f"note: the disk is not limited: {limit.reason}", file=sys.stderr)
        if not args.disk:
            for file in head["files"]:
                Path(file).read_bytes()
        try:
            results = {name: [] for name in contenders}
            for repeat in range(args.repeats):
                for name, command in contenders.items():
                    *epochs, last = kit.run(command, join=[limit.join] if limit else [])
                    counted = epochs[1:]
                    seconds = sum(epoch["seconds"] for epoch in counted)
                    result = {
                        "contender": name,
                        "repeat": repeat,
                        "samples_per_second": count * len(counted) / seconds,
                        "loads_per_epoch": sum(epoch["loads"] for epoch in counted) / len(counted),
                        "device_bytes_per_epoch": sum(epoch["device_bytes"] for epoch in counted) / len(counted),
                        "peak_rss_bytes": last["peak_rss_bytes"],
                    }
                    results[name].append(result)
                    kit.say(**result)
        finally:
            if limit:
                limit.close()
    report(args, head, count, results)


def report(args, head, count, results):
    python = results["python, LRU"]
    rows = []
    for name, runs in results.items():
        ratios = [run["samples_per_second"] / base["samples_per_second"] for run, base in zip(runs, python)]
        of = lambda key: [run[key] for run in runs]
        rows.append([
            name, kit.spread(of("samples_per_second")), kit.spread(ratios, 2), kit.spread(of("loads_per_epoch")),
            f"{kit.middle(of('device_bytes_per_epoch')) / 1e6:,.0f} MB", f"{max(of('peak_rss_bytes')) / 1e6:,.0f} MB",
        ])
    disk = f"page cache emptied before each epoch, disk {args.disk}" if args.disk else "warm page cache"
    batches = f"{len(head['files'])} batches, {count} samples, {args.cache_batches} batches cached"
    print(f"\n{batches}, {head['shuffle']}, {disk}\n")
    kit.table(["", "samples/s", "against Python", "loads an epoch", "from disk an epoch", "peak RSS"], rows)
    if args.disk:
        lru, belady = (kit.middle([run["loads_per_epoch"] for run in results[name]])
                       for name in ["python, LRU", "feed, belady"])
        print(f"\nloads, LRU against belady: {lru / belady:.2f}; 0.95 of that: {0.95 * lru / belady:.2f}")


def size(text):
    units = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    for unit, factor in units.items():
        if text.endswith(unit):
            return int(float(text[: -len(unit)]) * factor)
    return int(text)


if __name__ == "__main__":
    main()
