"""Does training on a data set larger than its host line stay under the line, seen from outside?

Generates a set (or takes one), trains `scoring` on it under the line and once with everything in memory, and samples
the process's resident memory from /proc every 50 ms. Needs no more than Python and the programs:

    python benches/host_line.py --size 500MB --line 450MB          # quick
    python benches/host_line.py --size 8GB --line 1GB              # what it is for; 10 GB of disk
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import kit

EVERY = 0.05


def watch(command, out):
    """Runs a command and gives its exit code, seconds, and the most and the course of its resident memory."""
    begun = time.monotonic()
    with open(out, "w") as log:
        child = subprocess.Popen([str(word) for word in command], stdout=log, stderr=subprocess.STDOUT)
    most, peak, course = 0, 0, []
    while child.poll() is None:
        try:
            # The high-water mark is the kernel's own, so nothing between two looks is missed.
            peak = max(peak, kit.status_bytes("VmHWM", child.pid))
            now = kit.status_bytes("VmRSS", child.pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
        most = max(most, now)
        course.append(now)
        time.sleep(EVERY)
    return {"code": child.returncode, "seconds": time.monotonic() - begun, "peak_rss_bytes": peak,
            "most_sampled_bytes": most, "looks": len(course)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="a folder of batches that is there already")
    parser.add_argument("--size", default="8GB", help="the size of the set that is generated (default 8GB)")
    parser.add_argument("--steps", default="200..600", help="steps of its sequences (default 200..600)")
    parser.add_argument("--per-file", type=int, default=64)
    parser.add_argument("--line", default="1GB", help="the host line (default 1GB)")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--max-cache-batches", type=int, help="a cache of so many batches, besides the line")
    parser.add_argument("--models", default="lstm,gnn-det,gvae", help="which to train (default lstm,gnn-det,gvae)")
    parser.add_argument("--work", help="where set and runs go (default: a temporary folder)")
    parser.add_argument("--whole", choices=["yes", "no"], default="yes", help="also train with all in memory")
    parser.add_argument("--whole-args", default="--data-pattern {data}/*.pt",
                        help="the words that make a run load everything; {data} is the folder")
    parser.add_argument("--keep", action="store_true", help="keep the set and the runs")
    parser.add_argument("more", nargs="*", help="further words for `lowtide train`, after --")
    args = parser.parse_args()
    lowtide = kit.program("lowtide")
    work = Path(args.work or tempfile.mkdtemp(prefix="lowtide-host-line-"))
    work.mkdir(parents=True, exist_ok=True)
    made = not args.data
    data = Path(args.data) if args.data else work / "data"
    try:
        if made:
            told = kit.run([lowtide, "generate", "scoring", "--out", data, "--size", args.size, "--steps", args.steps,
                            "--per-file", args.per_file, "--json"])[-1]
            kit.say(**told)
        set_bytes = sum(path.stat().st_size for path in data.glob("*.pt"))
        chosen = args.models.split(",")
        models = [f"--run-{name}" if name in chosen else f"--no-run-{name}" for name in ["lstm", "gnn-det", "gvae"]]
        common = ["--epochs", args.epochs, "--batch-size", args.batch_size, *models, *args.more]
        cache = ["--max-cache-batches", args.max_cache_batches] if args.max_cache_batches else []
        runs = {f"line {args.line}": ["--preprocessed-dir", data, "--host-limit", args.line, *cache]}
        if args.whole == "yes":
            runs["all in memory"] = [word.format(data=data) for word in args.whole_args.split()]
        rows, line_bytes, over = [], None, False
        for number, (name, words) in enumerate(runs.items()):
            out = work / f"run-{number}"
            shutil.rmtree(out, ignore_errors=True)
            kit.drop_page_cache(data)
            log = work / f"run-{number}.log"
            seen = watch([lowtide, "train", "scoring", *words, *common, "--output-dir", out], log)
            summary = {}
            if (out / "summary.json").exists():
                summary = json.loads((out / "summary.json").read_text())
            told = {key: summary.get(key) for key in ["peak_rss_bytes", "host_line_bytes", "cache", "stopped"]}
            hashes = {model: facts.get("weights_sha256", "")[:12] for model, facts in summary.get("models", {}).items()}
            kit.say(run=name, set_bytes=set_bytes, told_by_summary=told, weights=hashes, log=str(log), **seen)
            if told["host_line_bytes"]:
                line_bytes = told["host_line_bytes"]
                over |= seen["peak_rss_bytes"] > line_bytes
            if seen["code"] != 0:
                print(f"`{name}` ended with {seen['code']}:\n{log.read_text()[-1500:]}", file=sys.stderr)
            rows.append([name, seen["code"], f"{set_bytes / 1e6:,.0f} MB", f"{seen['peak_rss_bytes'] / 1e6:,.0f} MB",
                         f"{(told['peak_rss_bytes'] or 0) / 1e6:,.0f} MB", f"{seen['seconds']:.0f} s",
                         " ".join(f"{model} {hash}" for model, hash in hashes.items())])
        print()
        head = ["", "exit code", "on disk", "peak RSS from outside", "told in summary.json", "time", "weights"]
        kit.table(head, rows)
        if over:
            sys.exit(f"error: the line of {line_bytes} bytes was passed")
    finally:
        if not args.keep:
            if made:
                shutil.rmtree(data, ignore_errors=True)
            if not args.work:
                shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
