"""How do other libraries read a data set larger than their memory, and how does the feed?

Shards of 32 MiB with samples of 64 KiB that hold their own number; every contender reads its own format of the same
samples, in a process of its own, in turn. Told are bytes from the disk an epoch as a share of the set, samples a
second, the peak of resident memory, and how far samples move: the mean distance between place in the epoch and place
in the set, as a share of the set (a full shuffle has 0.333), so that nobody wins by shuffling less.

    python -m venv peers && peers/bin/pip install numpy litdata mosaicml-streaming datasets grain array_record
    peers/bin/python benches/peers.py --work /somewhere/with/15GB

Where a memory cgroup of yours is named (--memory-cgroup), contenders run in it with the line and their base as its
limit, so that the page cache counts. Without one, the page cache is as large as the machine: `cold` empties it before
each epoch, so that what was not kept on purpose is read again, and `warm` leaves it alone, so that nothing is.
"""

import argparse
import gc
import importlib.metadata
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import kit

SAMPLE = 64 << 10
PER_SHARD = 512
PEERS = ["litdata", "mosaic", "datasets", "grain", "memmap"]
DISTRIBUTIONS = {"litdata": "litdata", "mosaic": "mosaicml-streaming", "datasets": "datasets", "grain": "grain",
                 "memmap": "numpy"}


def number_of(sample):
    return int.from_bytes(bytes(sample[:8]), "little")


def shard_rows(shard):
    import numpy

    rows = numpy.random.default_rng(shard).integers(0, 256, (PER_SHARD, SAMPLE), dtype=numpy.uint8)
    numbers = numpy.arange(shard * PER_SHARD, (shard + 1) * PER_SHARD, dtype="<u8")
    rows[:, :8] = numbers.view(numpy.uint8).reshape(PER_SHARD, 8)
    return rows


# Writing: each contender's own format, from the same samples.


def write_memmap(folder, shards):
    import numpy

    for shard in range(shards):
        numpy.save(folder / f"{shard:05}.npy", shard_rows(shard))


def write_litdata(folder, shards):
    from litdata.streaming.cache import Cache

    cache = Cache(str(folder), chunk_size=PER_SHARD)
    for shard in range(shards):
        for place, row in enumerate(shard_rows(shard)):
            cache[shard * PER_SHARD + place] = {"data": row.tobytes()}
    cache.done()
    cache.merge()


def write_mosaic(folder, shards):
    from streaming import MDSWriter

    with MDSWriter(out=str(folder), columns={"data": "bytes"}, size_limit=PER_SHARD * (SAMPLE + 16)) as out:
        for shard in range(shards):
            for row in shard_rows(shard):
                out.write({"data": row.tobytes()})


def write_datasets(folder, shards):
    from datasets import Features, Value
    from datasets.arrow_writer import ArrowWriter

    for shard in range(shards):
        writer = ArrowWriter(features=Features({"data": Value("large_binary")}), path=str(folder / f"{shard:05}.arrow"))
        for row in shard_rows(shard):
            writer.write({"data": row.tobytes()})
        writer.finalize()


def write_grain(folder, shards):
    from array_record.python.array_record_module import ArrayRecordWriter

    for shard in range(shards):
        # As grain advises: one record a group, so that each is read by itself.
        writer = ArrayRecordWriter(str(folder / f"{shard:05}.arrayrecord"), "group_size:1,uncompressed")
        for row in shard_rows(shard):
            writer.write(row.tobytes())
        writer.close()


# Reading: the samples of one epoch.


def read_memmap(args, epoch):
    import numpy

    files = [numpy.load(path, mmap_mode="r") for path in sorted(Path(args.folder).glob("*.npy"))]
    for number in own_order(len(files), args, epoch):
        yield files[number // PER_SHARD][number % PER_SHARD].tobytes()


def own_order(shards, args, epoch):
    """For those that have none: the shards of a window, or all samples, shuffled together."""
    chance = random.Random(1000 * args.seed + epoch)
    order = list(range(shards))
    chance.shuffle(order)
    width = args.window if args.shuffle == "window" else shards
    for start in range(0, shards, width):
        numbers = [shard * PER_SHARD + place for shard in order[start:start + width] for place in range(PER_SHARD)]
        chance.shuffle(numbers)
        yield from numbers


def read_litdata(args, epoch):
    from litdata import StreamingDataset

    dataset = StreamingDataset(args.folder, shuffle=True, seed=args.seed)
    dataset.set_epoch(epoch)
    return (item["data"] for item in dataset)


def read_mosaic(args, epoch):
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    kind = {"shuffle_algo": "py1s"} if args.shuffle == "full" else \
        {"shuffle_algo": "py1br", "shuffle_block_size": args.window * PER_SHARD}
    dataset = StreamingDataset(local=args.folder, shuffle=True, shuffle_seed=args.seed + epoch, batch_size=1,
                               num_canonical_nodes=1, **kind)
    return (item["data"] for item in dataset)


def read_datasets(args, epoch):
    import datasets

    datasets.disable_progress_bars()
    files = sorted(str(path) for path in Path(args.folder).glob("*.arrow"))
    whole = datasets.concatenate_datasets([datasets.Dataset.from_file(file) for file in files])
    if args.shuffle == "full":
        shuffled = whole.shuffle(seed=args.seed + epoch, keep_in_memory=True)
        return (shuffled[number]["data"] for number in range(len(shuffled)))
    stream = whole.to_iterable_dataset(num_shards=len(files))
    stream = stream.shuffle(seed=args.seed + epoch, buffer_size=args.window * PER_SHARD)
    return (item["data"] for item in stream)


def read_grain(args, epoch):
    import grain

    files = sorted(str(path) for path in Path(args.folder).glob("*.arrayrecord"))
    dataset = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(files))
    if args.shuffle == "full":
        dataset = dataset.shuffle(seed=args.seed + epoch)
    else:
        dataset = grain.experimental.WindowShuffleMapDataset(
            dataset, window_size=args.window * PER_SHARD, seed=args.seed + epoch)
    return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=args.threads, prefetch_buffer_size=16)))


def worker(args):
    """A contender, in a process of its own."""
    try:
        read = globals()[f"read_{args.worker}"]
        version = importlib.metadata.version(DISTRIBUTIONS[args.worker])
        if args.write:
            globals()[f"write_{args.worker}"](Path(args.folder), args.shards)
            return
    except (ImportError, importlib.metadata.PackageNotFoundError) as error:
        print(f"not installed: {error}", file=sys.stderr)
        sys.exit(77)
    base = kit.status_bytes("VmRSS")
    for epoch in range(args.epochs):
        gc.collect()
        if args.cold:
            kit.drop_page_cache(args.folder)
        begun, device, seen, apart = time.perf_counter(), kit.device_bytes(), set(), 0
        for place, sample in enumerate(read(args, epoch)):
            number = number_of(sample)
            apart += abs(number - place)
            seen.add(number)
        count = args.shards * PER_SHARD
        kit.say(epoch=epoch, seconds=time.perf_counter() - begun, device_bytes=kit.device_bytes() - device,
                displacement=apart / count / count, missing=count - len(seen))
    kit.say(version=version, base_rss_bytes=base, peak_rss_bytes=kit.status_bytes("VmHWM"))


class MemoryLimit:
    """A memory cgroup that was named."""

    def __init__(self, folder, limit):
        self.folder = Path(folder)
        name = "memory.max" if (self.folder / "memory.max").exists() else "memory.limit_in_bytes"
        (self.folder / name).write_text(str(limit))

    def join(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))


def prepare(args, names):
    """Writes what is not there yet; gives the contenders that can run."""
    able = {}
    for name in ["memmap", *names]:
        folder = args.work / name
        if not (args.work / f"{name}.done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            begun = time.perf_counter()
            try:
                kit.run([sys.executable, __file__, "--worker", name, "--write", "--folder", folder, "--shards",
                         args.shards])
            except kit.Missing as missing:
                print(f"{name}: {missing}", file=sys.stderr)
                continue
            except RuntimeError as error:
                print(f"{name}: cannot be written: {error}", file=sys.stderr)
                continue
            kit.say(prepared=name, seconds=time.perf_counter() - begun)
            (args.work / f"{name}.done").touch()
        able[name] = folder
    ours = args.work / "lowtide"
    if not (args.work / "lowtide.done").exists():
        shutil.rmtree(ours, ignore_errors=True)
        command = [args.lowtide, "pack", args.work / "memmap", "--out", ours, "--shard-size", "32MiB"]
        subprocess.run([str(word) for word in command], check=True, stderr=subprocess.DEVNULL)
        (args.work / "lowtide.done").touch()
    return able, ours


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="where the sets are written; they are used again")
    parser.add_argument("--lowtide", default=None, help="the program that packs (default: the one that was built)")
    parser.add_argument("--contenders", default=",".join(PEERS))
    parser.add_argument("--shards", type=int, default=64, help="shards of 32 MiB (default 64: 2 GiB)")
    parser.add_argument("--lines", default="25,50", help="percent of the set that may be kept (default 25,50)")
    parser.add_argument("--shuffles", default="window,full")
    parser.add_argument("--window", type=int, default=8, help="shards shuffled together (default 8)")
    parser.add_argument("--caches", default="cold,warm", help="without a cgroup: cold, warm (default both)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3, help="the first is left out (default 3)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--disk", metavar="MIB", type=int, help="MiB a second that the disk gives")
    parser.add_argument("--memory-cgroup", help="a memory cgroup of yours")
    parser.add_argument("--base", type=int, default=700, help="MiB beside the line in the cgroup (default 700)")
    parser.add_argument("--delete", action="store_true", help="delete the sets in the end")
    for hidden in ["--worker", "--folder", "--shuffle"]:
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    for hidden in ["--write", "--cold"]:
        parser.add_argument(hidden, action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(args)
    if not args.work:
        parser.error("--work is needed")
    args.lowtide = args.lowtide or kit.program("lowtide")
    args.work.mkdir(parents=True, exist_ok=True)
    names = [name for name in args.contenders.split(",") if name]
    able, ours = prepare(args, names)
    disk = kit.DiskLimit(args.work, args.disk << 20) if args.disk else None
    if disk and disk.reason:
        print(f"note: the disk is not limited: {disk.reason}", file=sys.stderr)
    try:
        compete(args, [name for name in names if name in able], able, ours, [disk.join] if disk else [])
    finally:
        if disk:
            disk.close()
        if args.delete:
            shutil.rmtree(args.work)


def compete(args, names, able, ours, join):
    set_bytes = args.shards * PER_SHARD * SAMPLE
    count = args.shards * PER_SHARD
    lines = [int(line) for line in args.lines.split(",")]
    caches = ["cgroup"] if args.memory_cgroup else args.caches.split(",")
    for shuffle in args.shuffles.split(","):
        for cache in caches:
            jobs = []
            for line in lines:
                budget = set_bytes * line // 100
                for policy in ["belady", "lru"] if shuffle == "window" else ["belady"]:
                    command = [kit.program("examples/feed"), ours, "--line", budget, "--policy", policy, "--copy",
                               "--threads", args.threads, "--epochs", args.epochs, "--seed", args.seed,
                               *(["--window", args.window] if shuffle == "window" else ["--full"]),
                               *(["--keep-page-cache"] if cache == "warm" else []),
                               *(["--drop-page-cache"] if cache == "cold" else [])]
                    jobs.append((f"lowtide, {policy}", line, command))
                # A peer's line is that of the cgroup; without one it has none.
                for name in names if args.memory_cgroup or line == lines[0] else []:
                    if (name, shuffle) == ("litdata", "full"):
                        print("litdata: has no full shuffle, only of chunks and within each", file=sys.stderr)
                        continue
                    command = [sys.executable, __file__, "--worker", name, "--folder", able[name], "--shuffle", shuffle,
                               "--shards", args.shards, "--window", args.window, "--threads", args.threads,
                               "--epochs", args.epochs, "--seed", args.seed, *(["--cold"] if cache == "cold" else [])]
                    jobs.append((name, line if args.memory_cgroup else None, command))
            results = {}
            for repeat in range(args.repeats):
                for name, line, command in jobs:
                    calls = list(join)
                    if args.memory_cgroup:
                        limit = MemoryLimit(args.memory_cgroup, set_bytes * line // 100 + (args.base << 20))
                        calls.append(limit.join)
                    if cache != "warm":
                        kit.drop_page_cache(args.work)
                    try:
                        *epochs, last = kit.run(command, join=calls)
                    except (RuntimeError, kit.Missing) as error:
                        if (name, line) not in results:
                            print(f"{name}: {error}", file=sys.stderr)
                        continue
                    counted = epochs[1:]
                    seconds = sum(epoch["seconds"] for epoch in counted)
                    result = dict(
                        contender=name, line_percent=line, shuffle=shuffle, cache=cache, repeat=repeat,
                        samples_per_second=count * len(counted) / seconds,
                        read_share=sum(epoch["device_bytes"] for epoch in counted) / len(counted) / set_bytes,
                        peak_rss_bytes=last["peak_rss_bytes"], base_rss_bytes=last["base_rss_bytes"],
                        displacement=last.get("displacement") or sum(e["displacement"] for e in counted) / len(counted),
                        missing=max(epoch.get("missing", 0) for epoch in epochs), version=last.get("version"),
                    )
                    kit.say(**result)
                    results.setdefault((name, line), []).append(result)
            report(args, shuffle, cache, results)


def report(args, shuffle, cache, results):
    disk = f", disk {args.disk} MiB/s" if args.disk else ""
    print(f"\n{shuffle}{f' of {args.window} shards' if shuffle == 'window' else ''}, {cache}{disk}\n")
    rows = []
    for (name, line), runs in results.items():
        of = lambda key: [run[key] for run in runs]
        version = runs[0]["version"]
        missing = max(of("missing"))
        rows.append([
            f"{name} {version}" if version else name, f"{line} %" if line else "none", kit.spread(of("read_share"), 3),
            f"{1 - line / 100:.3f}" if line else "-", kit.spread(of("samples_per_second")),
            f"{max(of('peak_rss_bytes')) / 2**20:,.0f} MiB", f"{max(of('base_rss_bytes')) / 2**20:,.0f} MiB",
            f"{kit.middle(of('displacement')):.3f}" + (f", {missing} missing" if missing else ""),
        ])
    kit.table(["", "line", "read an epoch", "bound", "samples/s", "peak RSS", "base", "displacement"], rows)
    print()


if __name__ == "__main__":
    main()
