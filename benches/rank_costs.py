"""What do the agreement of a step, a recovery and a restart cost at 8, 64 and 1,024 ranks?

    python3 benches/rank_costs.py                simulates a cluster
    python3 benches/rank_costs.py --measure      measures 2, 4 and 8 ranks here (torch needed), and simulates those too

A simulation, because nobody has 1,024 cards at hand. It is of the messages alone: gloo hands the rows of all ranks around a ring, in N - 1 rounds.
In each round every rank handles one message, which takes a core of its machine for a while, and the message is under way for a while. Those two
times are fitted to 2 and 4 ranks here, and 8 ranks, which had no part in that, show what the simulation is worth.
"""

import argparse
import heapq
import json
import os
import random
import subprocess
import sys

# How long a message of a few bytes takes between two machines, and how long a core handles it: kernel TCP on a fast Ethernet.
NETWORK_SECONDS = 30e-6
HANDLING_SECONDS = 10e-6
RANKS = (8, 64, 1024)
RANKS_PER_MACHINE = 8
ROUNDS_HERE = 300


def ring_seconds(ranks, machines, cores, travel, handling, seed=0):
    """How long a ring takes until all ranks have a short row from all; ranks are dealt out to machines in a row."""
    rng = random.Random(seed)
    rounds = ranks - 1
    free = [[0.0] * cores for _ in range(machines)]
    # (when a message is there, who gets it, which round it ends)
    due = [(0.0, rank, 0) for rank in range(ranks)]
    heapq.heapify(due)
    end = 0.0
    while due:
        at, rank, done = heapq.heappop(due)
        if done == rounds:
            end = max(end, at)
            continue
        own = free[rank * machines // ranks]
        core = min(range(cores), key=own.__getitem__)
        # Handling takes longer now and then, never less: an exponential tail of a tenth.
        finish = max(at, own[core]) + handling * (0.9 + rng.expovariate(10))
        own[core] = finish
        heapq.heappush(due, (finish + travel, (rank + 1) % ranks, done + 1))
    return end


def fitted(measured, cores):
    """The two times of a message that fit what was measured at 2 and at 4 ranks best."""
    candidates = [10 ** (-6 + exponent / 8) for exponent in range(25)]

    def error(pair):
        return sum((ring_seconds(ranks, 1, cores, *pair) / measured[ranks] - 1) ** 2 for ranks in (2, 4))

    return min(((travel, handling) for travel in candidates for handling in candidates), key=error)


WORKER = """
import sys, time, statistics, torch, torch.distributed as dist
from datetime import timedelta
rank, ranks, port, rounds = map(int, sys.argv[1:])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks, timeout=timedelta(seconds=120))
row, seconds = torch.zeros(16, dtype=torch.int64), []
rows = [torch.empty_like(row) for _ in range(ranks)]
for _ in range(rounds + 20):
    begin = time.perf_counter()
    dist.all_gather(rows, row)
    seconds.append(time.perf_counter() - begin)
if rank == 0:
    print(statistics.median(seconds[20:]))
dist.destroy_process_group()
"""


def measured_seconds(ranks, port):
    """How long gloo takes here, in the middle of many times."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WORKER]
    started = [
        subprocess.Popen([*command, str(rank), str(ranks), str(port), str(ROUNDS_HERE)], stdout=subprocess.PIPE, env=environment)
        for rank in range(ranks)
    ]
    printed = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        sys.exit("error: a rank failed")
    return float(printed[0])


def cluster_agreement(ranks):
    """How long the agreement takes on machines of a cluster, each with a core for every rank."""
    machines = max(1, ranks // RANKS_PER_MACHINE)
    return ring_seconds(ranks, machines, RANKS_PER_MACHINE, NETWORK_SECONDS, HANDLING_SECONDS)


def recovery_seconds(ranks, step, share=0.5, slowdown=1.1):
    """What one error costs: the rest of the failed try, in which the others go on, the agreement, and the batch once more in smaller pieces."""
    return share * step + cluster_agreement(ranks) + (slowdown - 1 + share) * step


def restart_seconds(ranks, step, start, meet, load, interval):
    """What a restart costs: processes that start at once, ranks that meet at one store in a row, the checkpoint, and the steps since it."""
    return start + ranks * meet + load + interval / 2 * step


def show(rows, columns):
    widths = [max(len(str(row[index])) for row in [columns, *rows]) for index in range(len(columns))]
    for row in [columns, *rows]:
        print("  ".join(str(cell).rjust(width) for cell, width in zip(row, widths, strict=True)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="measure 2, 4 and 8 ranks on this machine")
    parser.add_argument("--port", type=int, default=29750, help="the first of three ports (29750)")
    parser.add_argument("--step", type=float, default=0.5, help="seconds of a step (0.5)")
    parser.add_argument("--start", type=float, default=20.0, help="seconds from a start to a model on the device (20)")
    parser.add_argument("--meet", type=float, default=0.005, help="seconds that one rank takes at the store (0.005)")
    parser.add_argument("--load", type=float, default=30.0, help="seconds to load a checkpoint (30)")
    parser.add_argument("--interval", type=int, default=500, help="steps between checkpoints (500)")
    args = parser.parse_args()

    if args.measure:
        cores = os.cpu_count() or 1
        measured = {ranks: measured_seconds(ranks, args.port + index) for index, ranks in enumerate((2, 4, 8))}
        travel, handling = fitted(measured, cores)
        rows = []
        for ranks, seconds in measured.items():
            simulated = ring_seconds(ranks, 1, cores, travel, handling)
            print(json.dumps({"ranks": ranks, "measured": seconds, "simulated": simulated}))
            rows.append((ranks, f"{seconds * 1e6:.0f}", f"{simulated * 1e6:.0f}", f"{simulated / seconds:.2f}"))
        print(f"fitted: a message is under way {travel * 1e6:.0f} us, and takes a core {handling * 1e6:.0f} us ({cores} cores)")
        show(rows, ("ranks", "measured us", "simulated us", "ratio"))
        print()

    rows = []
    for ranks in RANKS:
        agreement = cluster_agreement(ranks)
        recovery = recovery_seconds(ranks, args.step)
        restart = restart_seconds(ranks, args.step, args.start, args.meet, args.load, args.interval)
        row = {"ranks": ranks, "agreement": agreement, "recovery": recovery, "restart": restart}
        print(json.dumps(row))
        rows.append((ranks, f"{agreement * 1e3:.2f}", f"{agreement / args.step:.2%}", f"{recovery:.2f}", f"{restart:.0f}"))
    show(rows, ("ranks", "agreement ms", "of a step", "recovery s", "restart s"))


if __name__ == "__main__":
    main()
