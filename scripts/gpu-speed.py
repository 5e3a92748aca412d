"""How fast training is beside the best that a person can put together by hand, under the same cap and in the same run.

    python3 scripts/gpu-speed.py [NAME...]     gpt, qca, free, head; the programs `lowtide` and `loss_head` are in PATH

`lab/field_caps.py` is the field: torch.compile with loss chunks, Liger's fused loss and cut-cross-entropy (where their wheels lie
beside, as `scripts/gpu-check` puts them), and CUDA graphs written by hand. Prints one JSON object for each row; exit code 1
where a goal is missed.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

here = Path(__file__).parent
# In a bundle, and in a checkout.
lab = next(place for place in (here / "lab", here.parent / "lab") if (place / "field_caps.py").exists())
configs = next(place for place in (here, here.parent / "configs") if (place / "gpt2-124m.yaml").exists())

QUIET = ["--set", "eval.every=null", "--set", "eval.at_start=false", "--set", "save.every=null"]


def ours(config, limit, steps, *more):
    """Seconds of a step once it is warm, by its events; the field is timed in the same way."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["lowtide", "train", configs / config, "--device", "cuda", "--out", f"{folder}/run", "--set", f"train.steps={steps}"]
        done = subprocess.run([*words, "--limit", limit, *QUIET, *more], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr[-600:])
        events = [json.loads(line) for line in Path(folder, "run/events.jsonl").read_text().splitlines()]
        made = [event for event in events if event["event"] == "step"]
        summary = json.loads(Path(folder, "run/summary.json").read_text())
        seconds = statistics.median(event["seconds"] for event in made[steps // 2 :])
        return {
            "seconds": seconds,
            "tokens/s": round(made[-1]["tokens"] / seconds) if made[-1].get("tokens") else None,
            "reserved GiB": round(summary["peak_reserved_bytes"] / 2**30, 2),
            "micro-batch": summary["micro_batch_final"],
        }


def field(*words):
    """What the field's programs print: {(name, cap): figure}."""
    return read_field(beside("field_caps.py", *words))


def beside(*words):
    """What a script of `lab` prints, with the packages of others."""
    packages = tempfile.mkdtemp()
    for wheel in here.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(packages)
    path = os.pathsep.join([packages, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, *words], cwd=lab, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    print(done.stdout, done.stderr[-600:] if done.returncode else "", file=sys.stderr, flush=True)
    return done.stdout


def read_field(text):
    found = re.findall(r"^field (.+), cap ([\d.]+) GiB: ([\d.]+) (?:tokens/s|s an episode)", text, re.M)
    return {(name, cap): float(figure) for name, cap, figure in found}


def gpt():
    theirs = field("gpt")
    for cap, goal in (("11.69", 1.05), ("8.5", 1.2)):
        best = max((figure, name) for (name, of), figure in theirs.items() if of == cap)
        mine = ours("gpt2-124m.yaml", f"{cap}GiB", 40)
        yield f"gpt2-124m, card {cap} GiB", mine["tokens/s"] / best[0], goal, {"ours": mine, "best of the field": best}


def qca():
    # The others take 2 and 5 times as long, and minutes to say so.
    theirs = field("qca", "graph")
    mine = ours("qca.yaml", "3.68GiB", 4, "--set", "train.batch=1", "--set", "model.symmetry=false", "--set", "train.precision=fp32")
    best = min((figure, name) for (name, _), figure in theirs.items())
    yield "qca, card 3.68 GiB", best[0] / mine["seconds"], 1.0, {"ours": mine, "best of the field": best}


def free():
    text = subprocess.run([sys.executable, "torch_gpt.py", "compiled"], cwd=lab, capture_output=True, text=True).stdout
    theirs = dict(re.findall(r"compiled batch (\d+): .*?(\d+) tokens/s", text))
    for batch, goal in (("4", 1.2), ("16", 1.1)):
        mine = ours("gpt2-124m.yaml", "none", 60, "--set", f"train.batch={batch}", "--set", f"train.micro_batch={batch}")
        yield f"gpt2-124m, batch {batch}, no cap", mine["tokens/s"] / int(theirs[batch]), goal, {"ours": mine, "compiled": int(theirs[batch])}


def head():
    """The loss head by itself, in as many pieces as need no more memory than the other's. Ours leaves no gradient out."""
    read = lambda text: re.findall(r"^head (.+): ([\d.]+) ms, ([\d.]+) MiB", text, re.M)
    theirs = {name: (float(ms), float(mib)) for name, ms, mib in read(beside("loss_head.py"))}
    done = subprocess.run(["loss_head"], capture_output=True, text=True)
    print(done.stdout, file=sys.stderr, flush=True)
    mine = [(float(ms), float(mib), name) for name, ms, mib in read(done.stdout)]
    for name in ("cut-cross-entropy", "cut-cross-entropy without small gradients"):
        other = theirs[f"{name}, weights float32"]
        fits = min(figures for figures in mine if figures[1] <= other[1])
        yield f"loss head beside {name}", other[0] / fits[0], 1.0, {"ours": fits, "theirs": other, "all": theirs}


def main():
    bad = 0
    for name in sys.argv[1:] or ["gpt", "qca", "free", "head"]:
        begun = time.perf_counter()
        try:
            rows = list({"gpt": gpt, "qca": qca, "free": free, "head": head}[name]())
        except Exception as error:
            bad += 1
            print(json.dumps({"row": name, "holds": False, "error": f"{type(error).__name__}: {error}"[:600]}), flush=True)
            continue
        for row, ratio, goal, more in rows:
            bad += ratio < goal
            print(json.dumps({"row": row, "holds": ratio >= goal, "ratio": round(ratio, 3), "goal": goal, **more}), flush=True)
        print(json.dumps({"part": name, "seconds": round(time.perf_counter() - begun, 1)}), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
