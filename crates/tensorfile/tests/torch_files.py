"""Files of torch.save, numpy.save and pickle.dump of every kind, and what torch itself sees in them.

    python torch_files.py fixtures          writes fixtures/made/ and fixtures/made.json, which the tests read
    python torch_files.py compare PROGRAM   writes many more into a temporary folder and holds PROGRAM against torch;
                                            PROGRAM is built by `cargo build --release -p lowtide-tensorfile --example rows`

Needs torch 2.11, numpy and, for the graphs, torch_geometric. The tests need none of them.
"""

import collections
import dataclasses
import gzip
import io
import json
import math
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile
import warnings
import zipfile
import zlib

import numpy as np
import torch

warnings.filterwarnings("ignore")
HERE = pathlib.Path(__file__).parent
Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Sample:
    x: torch.Tensor
    label: int


class Opaque:
    def __reduce__(self):
        return (print, ("fooled",))


# Kinds of which the fixtures hold a file in the older format; the comparison has them all.
LEGACY = "dtypes views shared conjugate sparse parameters numpy state_dict graph".split()
REAL = "uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64".split()
FLOAT8 = "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu".split()
COMPLEX = "complex32 complex64 complex128".split()
BYTES = "bits8 bits1x8 bits2x4 bits4x2 float4_e2m1fn_x2".split() + [f"uint{n}" for n in range(1, 8)]
BYTES += [f"int{n}" for n in range(1, 8)]


def random_tensor(rng, dtype, shape):
    count = math.prod(shape)
    if dtype in REAL and not dtype.startswith(("float", "bfloat")):
        info = torch.iinfo(getattr(torch, dtype))
        values = np.array([rng.randint(max(info.min, -(2**40)), min(info.max, 2**40)) for _ in range(count)])
        return torch.from_numpy(values.astype(dtype).reshape(shape))
    if dtype == "bool":
        return torch.tensor([rng.random() < 0.5 for _ in range(count)], dtype=torch.bool).reshape(shape)
    if dtype in BYTES:
        return torch.tensor([rng.randrange(256) for _ in range(count)], dtype=torch.uint8).reshape(shape).view(
            getattr(torch, dtype)
        )
    values = torch.tensor([rng.gauss(0, 2) for _ in range(count)], dtype=torch.float64).reshape(shape)
    if dtype == "float8_e8m0fnu":
        values = values.abs() + 0.1
    if dtype in COMPLEX:
        return torch.complex(values, values.flip(0) if shape else values + 1).to(getattr(torch, dtype))
    return values.to(torch.float32).to(getattr(torch, dtype)) if dtype in FLOAT8 else values.to(getattr(torch, dtype))


def total(tensor):
    """The sum of a tensor's values in float64; None where there is none."""
    name = str(tensor.dtype)[6:]
    if tensor.is_quantized:
        return None if "channel" in str(tensor.qscheme()) else float(tensor.dequantize().double().sum())
    if tensor.device.type == "meta" or tensor.dtype.is_complex or name.startswith(("bits", "float4", "quint")):
        return None
    tensor = tensor.detach().resolve_neg().cpu()
    if name in BYTES:
        return float(tensor.view(torch.uint8 if name[0] == "u" else torch.int8).double().sum())
    if name in ("uint16", "uint32", "uint64"):
        return float(sum(int(value) for value in tensor.contiguous().numpy().reshape(-1)))
    if name in FLOAT8:
        tensor = tensor.to(torch.float32)
    if not tensor.dtype.is_floating_point:
        return float(int(tensor.to(torch.int64).sum()))
    value = math.fsum(tensor.double().reshape(-1).tolist())
    return value if math.isfinite(value) else None


def key_name(key):
    return f"({', '.join(map(key_name, key))})" if isinstance(key, tuple) else str(key)


def rows(value, path=""):
    """Every tensor of a value with its path, as the reader lists them."""
    join = lambda name: f"{path}.{name}" if path else str(name)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufcMm":
        # torch has no arrays of the other byte order.
        native = np.asarray(value, dtype=value.dtype.newbyteorder("="))
        tensor = torch.from_numpy(native.view(np.int64) if native.dtype.kind in "Mm" else native.copy(order="K"))
        # torch gives an empty array strides of its own.
        return [row(path, tensor if tensor.numel() else torch.empty(tensor.shape, dtype=tensor.dtype))]
    if isinstance(value, (torch.UntypedStorage, torch.TypedStorage)):
        if isinstance(value, torch.TypedStorage):
            tensor = torch.empty(0, dtype=value.dtype).set_(value._untyped_storage, 0, (value.size(),))
        else:
            tensor = torch.empty(0, dtype=torch.uint8).set_(value)
        return [row(path, tensor)]
    if isinstance(value, torch.Tensor):
        return tensor_rows(value, path, join)
    if hasattr(value, "stores"):
        return graph_rows(value, join)
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in rows(item, join(key_name(key)))]
    if isinstance(value, (list, tuple, collections.deque)):
        return [found for index, item in enumerate(value) for found in rows(item, join(index))]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [found for name, item in vars(value).items() for found in rows(item, join(name))]
    return []


def tensor_rows(value, path, join):
    if value.layout == torch.strided and not value.is_nested:
        return [row(path, value)]
    if value.layout == torch.sparse_coo:
        parts = {"indices": value._indices(), "values": value._values()}
    elif value.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = {"crow_indices": value.crow_indices(), "col_indices": value.col_indices(), "values": value.values()}
    elif value.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = {"ccol_indices": value.ccol_indices(), "row_indices": value.row_indices(), "values": value.values()}
    else:
        sizes, strides, offsets = (
            value._nested_tensor_size(),
            value._nested_tensor_strides(),
            value._nested_tensor_storage_offsets(),
        )
        parts = {"buffer": value.values(), "sizes": sizes, "strides": strides, "storage_offsets": offsets}
    return [row(join(name), part) for name, part in parts.items()]


def graph_rows(value, join):
    found = []
    for store in value.stores:
        key = store._key
        for name, item in store.items():
            found += rows(item, join(name if key is None else f"{key_name(key)}.{name}"))
        # What a batch needs to be taken apart again.
        for name in ("_slice_dict", "_inc_dict"):
            found += rows(store.__dict__.get(name), join(name))
    return found


def row(path, tensor):
    return {
        "path": path,
        "dtype": str(tensor.dtype)[6:],
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "bytes": -(-tensor.numel() // {"quint4x2": 2, "quint2x4": 4}.get(str(tensor.dtype)[6:], 1)) * tensor.itemsize,
        "sum": total(tensor),
        "checksum": checksum(tensor),
    }


def checksum(tensor):
    """The CRC-32 of the values in rows; the fixtures leave it out."""
    if tensor.device.type == "meta":
        return None
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    tensor = tensor.detach().resolve_conj().resolve_neg().reshape(-1).clone(memory_format=torch.contiguous_format)
    return zlib.crc32(tensor.view(torch.uint8).numpy().tobytes())


def can_save(tensor):
    """Whether torch itself knows how to save a tensor of this type; some types are only names yet."""
    try:
        torch.save(tensor, io.BytesIO())
        return True
    except KeyError:
        return False


def kinds(rng):
    """Name, value: one of each kind that a file may hold."""
    every = {name: random_tensor(rng, name, (2, 3)) for name in REAL + FLOAT8 + COMPLEX + BYTES + ["bool"]}
    yield "dtypes", {name: tensor for name, tensor in every.items() if can_save(tensor)}
    yield "no_dimensions", {name: random_tensor(rng, name, ()) for name in REAL + ["bool"]}
    yield "empty", [torch.empty(0), torch.empty(0, 4), torch.empty(3, 0, 2, dtype=torch.int64)]
    yield "special_floats", torch.tensor([float("inf"), 1.0, -2.0]), torch.tensor([1e-45, -0.0])
    base = torch.arange(48, dtype=torch.float32).reshape(6, 8)
    yield "views", {
        "base": base, "columns": base[:, ::2], "transposed": base.t(), "row": base[2], "corner": base[4:, 6:],
        "expanded": torch.ones(1, 3).expand(4, 3), "windows": torch.arange(10).unfold(0, 3, 1),
        "strided": torch.as_strided(base, (3, 2, 2), (9, 2, 0), 3),
    }
    lone = torch.arange(64)[32:36]
    yield "shared", [lone, lone, {"again": lone}, lone.view(2, 2)]
    pair = torch.complex(torch.tensor([1.0, 2.0]), torch.tensor([3.0, -4.0]))
    # torch does not save views of the same values as different types.
    copies = iter([pair.clone() for _ in range(3)])
    imaginary = {"imag": next(copies).conj().imag, "neg": next(copies).conj().imag[1:], "real": next(copies).real}
    yield "conjugate", {"conj": pair.conj(), "plain": pair} | imaginary
    eye = torch.eye(4)
    yield "sparse", {
        "coo": torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3)), "csr": eye.to_sparse_csr(),
        "csc": eye.to_sparse_csc(), "bsr": eye.to_sparse_bsr((2, 2)), "bsc": eye.to_sparse_bsc((2, 2)),
        "coalesced": torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 3)).coalesce(),
    }
    tagged = torch.nn.Parameter(torch.ones(3))
    tagged.note = "kept by nobody"
    extra = torch.ones(2)
    extra.note = 1
    yield "parameters", [torch.nn.Parameter(torch.ones(2, 2)), tagged, extra, torch.nn.Buffer(torch.ones(1))]
    channels = torch.tensor([0.1, 0.2]), torch.tensor([0, 1])
    yield "quantized", {
        "tensor": torch.quantize_per_tensor(torch.tensor([0.5, -1.0, 2.0]), 0.25, 3, torch.quint8),
        "wide": torch.quantize_per_tensor(torch.tensor([0.5, -1.0]), 0.25, 3, torch.qint32),
        "channel": torch.quantize_per_channel(torch.ones(2, 2), *channels, 0, torch.qint8),
    }
    yield "meta", torch.empty(3, 4, device="meta")
    yield "storages", [torch.ones(3).untyped_storage(), torch.arange(4).storage()]
    yield "named_tuple", Point(torch.ones(2), [Point(1, "two")])
    yield "dataclass", [Sample(torch.ones(2), 1), Sample(torch.zeros(2), 2)]
    yield "ordered", collections.OrderedDict(a=torch.ones(1), b=collections.OrderedDict(c=torch.zeros(2)))
    yield "collections", {
        "defaultdict": collections.defaultdict(list, a=[torch.ones(1)]), "counter": collections.Counter("aab"),
        "deque": collections.deque([torch.ones(2)], 5), "set": {1, 2}, "frozen": frozenset({3}), "range": range(3),
    }
    yield "scalars", {
        "none": None, "true": True, "int": 7, "big": 2**70, "negative": -(2**63), "float": 1.5, "complex": 1 - 2j,
        "text": "é€😀\n", "surrogate": "\ud800", "bytes": b"\x00\xff" * 40, "dtype": torch.float32,
        "device": torch.device("cuda", 1), "cpu": torch.device("cpu"), "size": torch.Size([2, 3]),
        "path": pathlib.PurePosixPath("a/b"),
    }
    yield "keys", {1: torch.ones(1), (1, "a"): torch.ones(1), None: torch.ones(1), "dotted.key": torch.ones(1), True: 0}
    deep = torch.ones(1)
    for level in range(50):
        deep = [deep] if level % 2 else {"k": deep}
    yield "deep", deep
    yield "numpy", {
        "array": np.arange(6, dtype=np.float32).reshape(2, 3), "columns": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "big": np.arange(3, dtype=">i4"), "bool": np.array([True, False]), "complex": np.array([1 + 2j]),
        "scalar": np.float32(1.5), "integer": np.int64(-3), "flag": np.bool_(True), "text": np.array(["ab", "c"]),
        "half": np.array([0.5, 2.0], dtype=np.float16), "long": np.arange(600), "zero": np.array(3.0),
        "objects": np.array([{"a": 1}, None], dtype=object), "time": np.array(["2020-01-01"], dtype="M8[D]"),
    }
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.ones(5, 3)).sum().backward()
    optimizer.step()
    yield "state_dict", model.state_dict()
    yield "optimizer", {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    yield "nested", {"nested": nested}
    yield from graphs()


def graphs():
    try:
        from torch_geometric.data import Batch, Data, HeteroData
    except ImportError:
        return
    ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
    data = [Data(x=torch.full((3, 2), float(n)), edge_index=ring, y=torch.tensor([n]), name="ring") for n in range(3)]
    yield "graph", data[0]
    yield "graphs", {"graphs": data, "split": "train"}
    yield "batch", Batch.from_data_list(data)
    hetero = HeteroData()
    hetero["user"].x = torch.ones(2, 3)
    hetero["item"].x = torch.zeros(1, 3)
    hetero["user", "buys", "item"].edge_index = torch.tensor([[0, 1], [0, 0]])
    hetero.y = torch.ones(1)
    yield "hetero", hetero


def random_value(rng, depth):
    if depth == 0 or rng.random() < 0.4:
        shape = tuple(rng.randrange(5) for _ in range(rng.randrange(4)))
        tensor = random_tensor(rng, rng.choice(REAL + FLOAT8 + COMPLEX + ["bool"]), shape)
        if tensor.dim() >= 2 and rng.random() < 0.4:
            tensor = tensor.transpose(0, 1)
        if tensor.dim() >= 1 and rng.random() < 0.3:
            tensor = tensor[:: rng.randrange(1, 4)]
        return tensor
    items = [random_value(rng, depth - 1) for _ in range(rng.randrange(5))]
    make = rng.choice([list, tuple, lambda items: {f"k{n}": item for n, item in enumerate(items)}])
    return make(items)


def write_kinds(folder, rng):
    """Writes one file of each kind, in both formats; gives what is in them."""
    for name, *value in kinds(rng):
        value = value[0] if len(value) == 1 else tuple(value)
        yield save(folder, f"{name}.pt", value)
        try:
            yield save(folder, f"{name}_legacy.pt", value, _use_new_zipfile_serialization=False)
        except (RuntimeError, ValueError, AttributeError, KeyError, NotImplementedError) as error:
            print(f"torch does not save {name} in the older format: {str(error)[:60]}", file=sys.stderr)


def save(folder, name, value, **how):
    torch.save(value, folder / name, **how)
    return folder / name, rows(value)


def write_more(folder, rng):
    for length in range(1, 65):
        # The name of the file becomes the folder within the archive.
        yield save(folder, f"{'n' * length}.pt", {"length": torch.tensor([length]), "x": torch.ones(3)})
    for protocol in range(2, 6):
        for name, *value in kinds(rng):
            if name not in ("special_floats",):
                yield save(folder, f"{name}_protocol_{protocol}.pt", value[0], pickle_protocol=protocol)
    for number in range(300):
        yield save(folder, f"random_{number}.pt", random_value(rng, 4), pickle_protocol=rng.randrange(2, 6))
    many = {f"tensor_{n}": torch.full((n % 7 + 1,), float(n)) for n in range(5000)}
    yield save(folder, "many.pt", many)
    large = torch.arange(30_000_000, dtype=torch.float32)
    columns = large[:29_999_000].view(-1, 1000)[:, 10:20]
    views = {"whole": large, "part": large[5:1_000_005], "strided": large[::7], "columns": columns}
    yield save(folder, "large.pt", views)


def write_numpy(folder, rng, length=30_000):
    arrays = [np.arange(12, dtype=kind).reshape(3, 4) for kind in "u1 i2 i4 i8 f2 f4 f8 c8 >f4 >i8".split()]
    others = [np.asfortranarray(arrays[4]), np.array(3.5), np.empty((0, 2)), np.arange(length)]
    for number, array in enumerate([*arrays, *others]):
        np.save(folder / f"array_{number}.npy", array)
        yield folder / f"array_{number}.npy", rows(array)
    arrays = {f"a{n}": array for n, array in enumerate(arrays)}
    np.savez(folder / "plain.npz", **arrays)
    yield folder / "plain.npz", rows(arrays)
    np.savez_compressed(folder / "compressed.npz", **arrays)
    yield folder / "compressed.npz", rows(arrays)
    value = {"x": np.arange(float(length)), "y": [np.arange(5), {"z": np.float32(2)}], "names": ["a", "b"]}
    for protocol in range(6):
        (folder / f"value_{protocol}.pkl").write_bytes(pickle.dumps(value, protocol))
        yield folder / f"value_{protocol}.pkl", rows(value)
        with gzip.open(folder / f"value_{protocol}.pkl.gz", "wb") as file:
            pickle.dump(value, file, protocol)
        yield folder / f"value_{protocol}.pkl.gz", rows(value)


def close(found, expect):
    if found is None or expect is None:
        return found is expect
    return found == expect or abs(found - expect) <= 1e-12 * max(abs(found), abs(expect), 1e-3)


def compare(program):
    rng = random.Random(3)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        files = [*write_kinds(folder, rng), *write_more(folder, rng), *write_numpy(folder, rng)]
        wrong = tensors = 0
        for start in range(0, len(files), 200):
            part = files[start : start + 200]
            command = [program, *(str(path) for path, _ in part)]
            output = subprocess.run(command, capture_output=True, text=True, check=True)
            for (path, expect), line in zip(part, output.stdout.splitlines(), strict=True):
                found = json.loads(line)
                tensors += len(expect)
                problem = differs(found, expect)
                if problem:
                    wrong += 1
                    print(f"{path.name}: {problem}")
    print(f"{len(files)} files, {tensors} tensors, {wrong} files differ from torch")
    return 1 if wrong else 0


def differs(found, expect):
    if "error" in found:
        return found["error"]
    if len(found["rows"]) != len(expect):
        return f"{len(found['rows'])} tensors, torch has {len(expect)}: {[row['path'] for row in found['rows']]}"
    for ours, theirs in zip(found["rows"], expect):
        same = all(ours[name] == theirs[name] for name in ("path", "dtype", "shape", "stride", "bytes"))
        if not same or not close(ours["sum"], theirs["sum"]):
            return f"{ours} where torch has {theirs}"
    for ours, theirs in zip(found["checksums"], expect):
        if ours != theirs["checksum"]:
            return f"other values than torch in {theirs}"
    return None


def save_script(path):
    """A TorchScript archive without its debug records, which name folders of the machine that wrote it."""
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), buffer)
    whole = zipfile.ZipFile(buffer)
    with zipfile.ZipFile(path, "w") as archive:
        for entry in whole.infolist():
            if not entry.filename.endswith(".debug_pkl"):
                archive.writestr(zipfile.ZipInfo(entry.filename), whole.read(entry))


def fixtures():
    folder = HERE / "fixtures" / "made"
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(3)
    files = list(write_kinds(folder, rng))
    for path, _ in files:
        if path.stem.endswith("_legacy") and path.stem.removesuffix("_legacy") not in LEGACY:
            path.unlink()
    files = [file for file in files if file[0].exists()]
    files.append(save(folder, f"{'n' * 21}.pt", torch.ones(2)))
    files += write_numpy(folder, rng, length=520)
    torch.save({"x": Opaque()}, folder / "calls_print.pt")
    save_script(folder / "script.pt")
    expect = {path.name: found for path, found in files}
    for found in expect.values():
        for one in found:
            del one["checksum"]
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in sorted(expect.items()))
    (HERE / "fixtures" / "made.json").write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["compare"]:
        sys.exit(compare(sys.argv[2]))
    fixtures()
