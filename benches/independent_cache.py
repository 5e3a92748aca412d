"""Are the feed's loads those of an independent simulation of the same order?

Takes the order that `feed --print-order` prints, simulates the two policies by the book, with no code in common, and
compares with what the real feed counted on the real files. Ends with exit code 1 where a number differs. Needs no
more than Python:

    lowtide generate scoring --out data/small --samples 4000 --per-file 40
    python benches/independent_cache.py data/small
"""

import argparse
import bisect
import json
import subprocess
import sys
from collections import OrderedDict

import kit


def furthest_next_use(uses, counted, sizes, capacity):
    """Loads in the first `counted` uses. Out goes what is needed latest; what is needed later than all that would have
    to go is not kept at all."""
    places = {}
    for at, unit in enumerate(uses):
        places.setdefault(unit, []).append(at)

    def next_use(unit, now):
        later = bisect.bisect_right(places[unit], now)
        return places[unit][later] if later < len(places[unit]) else float("inf")

    kept, used, loads = set(), 0, 0
    for now in range(counted):
        unit = uses[now]
        if unit in kept:
            continue
        loads += 1
        out, free = [], capacity - used
        if sizes[unit] > capacity:
            continue
        if free < sizes[unit]:
            mine = next_use(unit, now)
            for other in sorted(kept, key=lambda other: next_use(other, now), reverse=True):
                if next_use(other, now) < mine:
                    out = None
                    break
                out.append(other)
                free += sizes[other]
                if free >= sizes[unit]:
                    break
        if out is None or free < sizes[unit]:
            continue
        for other in out:
            kept.remove(other)
            used -= sizes[other]
        kept.add(unit)
        used += sizes[unit]
    return loads


def least_recently_used(uses, counted, sizes, capacity):
    """Loads in the first `counted` uses. Out goes what was used longest ago."""
    kept, used, loads = OrderedDict(), 0, 0
    for unit in uses[:counted]:
        if unit in kept:
            kept.move_to_end(unit)
            continue
        loads += 1
        if sizes[unit] > capacity:
            continue
        while used + sizes[unit] > capacity:
            used -= sizes[kept.popitem(last=False)[0]]
        kept[unit] = None
        used += sizes[unit]
    return loads


POLICIES = {"belady": furthest_next_use, "lru": least_recently_used}


def order_of(feed):
    lines = subprocess.run([str(word) for word in [*feed, "--print-order"]], capture_output=True, text=True, check=True)
    head, *epochs = [json.loads(line) for line in lines.stdout.splitlines()]
    shard_of = [shard for shard, count in enumerate(head["samples"]) for _ in range(count)]
    return head, [shard_of[number] for epoch in epochs for number in epoch["order"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a folder of batches or shards")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    rows, wrong = [], 0
    for share, window, seed in [(0.1, 2, 1), (0.25, 4, 2), (0.5, 8, 3), (0.5, 16, 4), (0.75, 8, 5)]:
        base = [kit.program("examples/feed"), args.data, "--window", window, "--seed", seed, "--epochs", args.epochs]
        head, uses = order_of(base)
        batches = max(window + 1, round(share * len(head["files"])))
        for policy, simulate in POLICIES.items():
            for threads in [1, 3]:
                told = kit.run([*base, "--cache-batches", batches, "--policy", policy, "--threads", threads])[-1]
                expect = simulate(uses, args.epochs * sum(head["samples"]), head["bytes"], told["capacity_bytes"])
                same = told["loads"] == expect
                wrong += not same
                kit.say(policy=policy, batches=batches, window=window, seed=seed, threads=threads, loads=told["loads"],
                        simulated=expect)
                rows.append([policy, f"{batches} of {len(head['files'])}", window, seed, threads, told["loads"], expect,
                             "same" if same else "DIFFERENT"])
    print()
    kit.table(["policy", "cached", "window", "seed", "threads", "loads of the feed", "simulated", ""], rows)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
