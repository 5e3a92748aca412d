"""Holds what lowtide-tensorfile writes against torch: files of torch.save are rewritten, and torch.load has to find the same.

    python written_files.py PROGRAM [--huge]

PROGRAM is built by `cargo build --release -p lowtide-tensorfile --example rewrite_pt`. With `--huge` one file has storages of
more than 4 GiB, which takes 20 GB of disk and of memory. Needs torch 2.11; the tests do not.
"""

import pathlib
import random
import subprocess
import sys
import tempfile
import zipfile

import torch

DTYPES = "uint8 int8 int16 int32 int64 bool float16 bfloat16 float32 float64 complex64 complex128".split()


def random_tensor(rng):
    dtype = getattr(torch, rng.choice(DTYPES))
    shape = [rng.randrange(0, 5) for _ in range(rng.randrange(4))]
    tensor = torch.randint(0, 2 if dtype == torch.bool else 100, shape)
    tensor = tensor.to(dtype)
    return tensor.mT if tensor.dim() > 1 and rng.random() < 0.3 else tensor


def random_value(rng, depth):
    kind = rng.randrange(11 if depth else 8)
    if kind == 8:
        return [random_value(rng, depth - 1) for _ in range(rng.randrange(6))]
    if kind == 9:
        return tuple(random_value(rng, depth - 1) for _ in range(rng.randrange(6)))
    if kind == 10:
        key = lambda: rng.choice(["x", "edge_index", "ünï", "", 3, -1, 2**40, 1.5, True, None, ("a", 1)])
        return {key(): random_value(rng, depth - 1) for _ in range(rng.randrange(6))}
    numbers = [rng.randrange(-(2**63), 2**63), rng.randrange(300), rng.gauss(0, 1)]
    plain = [None, rng.random() < 0.5, *numbers, "tëxt" * rng.randrange(9)]
    return random_tensor(rng) if kind > 5 else plain[kind]


def same(found, expect):
    if type(found) is not type(expect):
        return False
    if isinstance(expect, torch.Tensor):
        return found.dtype == expect.dtype and found.shape == expect.shape and torch.equal(found, expect)
    if isinstance(expect, dict):
        return list(found) == list(expect) and all(same(found[key], expect[key]) for key in expect)
    if isinstance(expect, (list, tuple)):
        return len(found) == len(expect) and all(map(same, found, expect))
    return found == expect


def check(path, expect):
    loads = [dict(weights_only=True), dict(weights_only=False), dict(weights_only=True, mmap=True)]
    problems = [str(how) for how in loads if not same(torch.load(path, **how), expect)]
    with zipfile.ZipFile(path) as archive:
        problems += [f"checksum of {archive.testzip()}"] if archive.testzip() else []
    return problems


def main(program, huge):
    rng = random.Random(5)
    values = [random_value(rng, 4) for _ in range(400)]
    values.append({"many": [torch.tensor([index]) for index in range(70_000)]})
    if huge:
        four = torch.arange(2**29 + 5, dtype=torch.int64)
        values.append([torch.ones(3), four, torch.ones(5), four[:7].clone()])
    wrong = 0
    for index, value in enumerate(values):
        with tempfile.TemporaryDirectory() as folder:
            theirs, ours = pathlib.Path(folder) / f"value_{index}.pt", pathlib.Path(folder) / "ours"
            ours.mkdir()
            torch.save(value, theirs)
            subprocess.run([program, ours, theirs], check=True)
            problems = check(ours / theirs.name, value)
            wrong += bool(problems)
            if problems:
                print(f"{theirs.name}: {problems}")
    print(f"{len(values)} files written, {wrong} differ for torch")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "--huge" in sys.argv))
