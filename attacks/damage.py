"""Single flipped bits in every kind of file that a run reads. None may change what comes out without a word.

A flip is silent where a command ends as if nothing was, says nothing, and makes something else than without the flip.
"""

import concurrent.futures
import os
import pathlib
import random
import shutil

import forge
from harness import attack

CPU = ["--device", "cpu"]
GPT = ["--set", "model.n_layer=1", "--set", "model.n_embd=32", "--set", "train.batch=4", "--set", "train.micro_batch=4"]


def flip(path, generator):
    """Flips one bit, and leaves the time of the file as it was: disks do not tell when they forget."""
    times = path.stat()
    data = bytearray(path.read_bytes())
    place = generator.randrange(len(data) * 8)
    data[place // 8] ^= 1 << place % 8
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return f"bit {place % 8} of byte {place // 8}"


def weights(run):
    """The newest weights of a run, and nothing where there are none."""
    files = sorted(path for path in pathlib.Path(run).glob("checkpoints/0*/model.safetensors"))
    return files[-1].read_bytes() if files else None


def flips(place, kind, folder, name, command, result, told=None):
    """Flips bits of `name` in copies of `folder`; `command(copy)` are the words, `result(copy)` is what it makes.

    Where `told` is given, each flip has to be spoken of with that word, even where the result is the same.
    """
    generator = random.Random(f"{kind} {name}")
    good = place.path(f"{kind}-good")
    shutil.copytree(folder, good)
    ran = place.run(*command(good))
    place.check(f"{kind}: without a flip", ran.code == 0, ran.last_line)
    expected = result(good)
    place.check(f"{kind}: something is made", expected is not None, expected is not None)

    def once(number):
        copy = place.path(f"{kind}-{number}")
        shutil.copytree(folder, copy)
        where = flip(copy / name, random.Random(f"{kind} {name} {number} {generator.random()}"))
        ran = place.run(*command(copy))
        same = ran.code == 0 and result(copy) == expected
        shutil.rmtree(copy)
        said = (told or pathlib.Path(name).name) in ran.said
        if "panicked" in ran.said or ran.code < 0:
            return f"{where}: exit {ran.code}: {ran.last_line}"
        if ran.code == 0 and not said and (told or not same):
            return f"{where}: exit 0, not a word"
        if ran.code != 0 and not said:
            return f"{where}: the error does not name it: {ran.last_line}"
        return None

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        silent = [one for one in pool.map(once, range(place.flips)) if one]
    place.check(f"{kind}: {place.flips} flips in {name}", not silent, f"{len(silent)} silent: {'; '.join(silent[:3])}")


def trained(place):
    """A run of four steps with a checkpoint after each second."""
    if "run" not in place.shared:
        run = place.folder.parent / f"{place.folder.name}-run"
        more = ["--set", "train.steps=4", "--set", "save.every=2", "--set", "eval.every=2", "--set", "eval.batches=1"]
        ran = place.run("train", "gpt", "--out", run, *CPU, *GPT, *more)
        assert ran.code == 0, ran.said
        place.shared["run"] = run
        place.shared.setdefault("folders", []).append(run)
    return place.shared["run"]


def resume(copy):
    return ["train", "--resume", "--out", copy, *CPU, "--set", "train.steps=6"]


@attack("flipped bits in the weights of a checkpoint, resumed")
def checkpoint_model(place):
    flips(place, "model", trained(place), "checkpoints/00000004/model.safetensors", resume, weights)


@attack("flipped bits in the optimizer's state, resumed")
def checkpoint_training(place):
    flips(place, "training", trained(place), "checkpoints/00000004/training.safetensors", resume, weights)


@attack("flipped bits in state.json, resumed")
def checkpoint_state(place):
    flips(place, "state", trained(place), "checkpoints/00000004/state.json", resume, weights)


@attack("flipped bits in the weights of a checkpoint, evaluated")
def checkpoint_evaluated(place):
    def command(copy):
        return ["eval", copy, *CPU, "--json"]

    flips(place, "eval", trained(place), "checkpoints/00000004/model.safetensors", command, lambda copy: True, told="model.safetensors")


@attack("flipped bits in the events of a run, resumed")
def events(place):
    flips(place, "events", trained(place), "events.jsonl", resume, weights, told="events.jsonl")


@attack("the checkpoint before a damaged one is offered, and works")
def the_one_before(place):
    copy = place.path("run")
    shutil.copytree(trained(place), copy)
    flip(copy / "checkpoints/00000004/model.safetensors", random.Random(1))
    ran = place.run(*resume(copy))
    place.check("refused", ran.code != 0 and "00000004" in ran.said, ran.last_line)
    place.check("the one before is named", "00000002" in ran.said or "step 2" in ran.said, ran.said[-300:])


def frames(place):
    """Two scenes of as many frames as a clip takes, so that every step reads all of the first."""
    out = place.path("films")
    ran = place.run("generate", "deblur", "--out", out, "--scenes", "2", "--frames", "6", "--moments", "2", "--frame-size", "48x40")
    assert ran.code == 0, ran.said
    return out


@attack("flipped bits in frames that are trained on")
def png_frames(place):
    def command(copy):
        given = ["--set", "data.source=frames", "--set", f"data.folder={copy}", "--set", "data.moments=2", "--set", "train.steps=2"]
        small = ["--set", "model.channels=4", "--set", "model.blocks=1", "--set", "train.batch=2", "--set", "eval.every=2"]
        return ["train", "deblur", "--out", f"{copy}-run", *CPU, *given, *small]

    folder = frames(place)
    name = sorted(folder.glob("scene_000/**/*.png"))[0].relative_to(folder)
    flips(place, "frame", folder, str(name), command, lambda copy: weights(f"{copy}-run"))


def samples(place, form="pt"):
    out = place.path(f"samples-{form}")
    ran = place.run("generate", "scoring", "--out", out, "--samples", "16", "--per-file", "16", "--format", form)
    assert ran.code == 0, ran.said
    return out


def train_scoring(copy):
    few = ["--set", "train.steps=3", "--set", "train.batch=8", "--set", "model.run=[gnn_det]", "--set", "eval.every=3"]
    small = ["--set", "model.lstm_hidden=8", "--set", "model.graph_hidden=8", "--set", "model.head_hidden=8"]
    return ["train", "scoring", "--preprocessed-dir", copy, "--out", f"{copy}-run", *CPU, *few, *small]


def scoring_weights(copy):
    return weights(f"{copy}-run")


@attack("flipped bits in a batch file of torch.save")
def batches(place):
    folder = samples(place)
    flips(place, "batch", folder, "batch_00000.pt", train_scoring, scoring_weights)


@attack("flipped bits in a batch file whose index is there")
def indexed_batches(place):
    folder = samples(place)
    place.run(*train_scoring(folder))
    flips(place, "indexed", folder, "batch_00000.pt", train_scoring, scoring_weights)


@attack("flipped bits in a shard")
def shards(place):
    folder = samples(place)
    packed = place.path("packed")
    ran = place.run("pack", folder, "--out", packed)
    assert ran.code == 0, ran.said
    flips(place, "shard", packed, "00000.shard", train_scoring, scoring_weights)


@attack("flipped bits in the index of a folder")
def index(place):
    folder = samples(place)
    place.run(*train_scoring(folder))
    flips(place, "index", folder, ".lowtide-index", train_scoring, scoring_weights)


@attack("flipped bits are found by `data --sums` in each format that has checksums")
def sums(place):
    def command(copy):
        return ["data", "--sums", copy / name]

    row = bytes(range(64))
    entries = {"a.npz": forge.zipped([("a.npy", forge.npy((4, 4), row))]), "a.pt": forge.pt(forge.tensor(0, 16, (4, 4), (4, 1)), [row])}
    for name, data in entries.items():
        folder = place.fresh(name.replace(".", "-"))
        (folder / name).write_bytes(data)
        listed = {}

        def result(copy, listed=listed):
            listed.setdefault(copy, place.run("data", "--sums", copy / name).out)
            return listed[copy]

        flips(place, name, folder, name, command, result)
