"""Files of others, read without executing anything, and packing them."""

from __future__ import annotations

import json
import pickle
import struct
from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import lowtide
import pytest
import torch

Point = namedtuple("Point", "x y")


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other))
    return type(one) is type(other) and bool(one == other)


def test_what_torch_saved(tmp_path: Path) -> None:
    whole = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    saved = {
        "model": OrderedDict(weight=whole, bias=torch.ones(3, dtype=torch.bfloat16)),
        "view": whole.t()[1:3],
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(7),
        "bools": torch.tensor([True, False]),
        "complex": torch.tensor([1 + 2j]),
        "small": torch.tensor([1.0, 2.0]).to(torch.float8_e5m2).view(torch.uint8),
        "plain": [1, -2.5, "text", None, True, b"bytes", (1, (2,)), 1 << 80, 3 + 4j],
        "size": torch.Size([2, 3]),
        "device": torch.device("cuda:1"),
        "dtype": torch.float16,
        7: {1.5: "a float as a key", (1, 2): "a tuple"},
    }
    path = tmp_path / "saved.pt"
    torch.save(saved, path)
    assert same(saved, lowtide.open(path))
    torch.save(saved["model"], path, _use_new_zipfile_serialization=False)
    assert same(dict(saved["model"]), lowtide.open(path))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "uint16", "uint64", "int8", "float64", "complex32"])
def test_every_type_of_values(tmp_path: Path, name: str) -> None:
    dtype = getattr(torch, name)
    bits = torch.arange(32, dtype=torch.uint8)
    torch.save(bits.view(dtype), tmp_path / "saved.pt")
    found = lowtide.open(tmp_path / "saved.pt")
    assert found.dtype == dtype and torch.equal(found.view(torch.uint8), bits)


def test_what_numpy_saved(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.asfortranarray(numpy.arange(6, dtype=numpy.int32).reshape(2, 3))
    numpy.save(tmp_path / "one.npy", array)
    assert same(torch.from_numpy(array.copy()), lowtide.open(tmp_path / "one.npy"))
    numpy.savez_compressed(tmp_path / "two.npz", a=array, b=numpy.float16([1.5]))
    found = lowtide.open(tmp_path / "two.npz")
    assert same({"a": torch.from_numpy(array.copy()), "b": torch.tensor([1.5], dtype=torch.float16)}, found)


def test_safetensors(tmp_path: Path) -> None:
    values = torch.tensor([1.0, 2.0, 3.0]).to(torch.bfloat16)
    head = json.dumps({"w": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}).encode()
    data = bytes(values.view(torch.uint8).tolist())
    (tmp_path / "file.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)
    assert same({"w": values}, lowtide.open(tmp_path / "file.safetensors"))


class Evil:
    def __reduce__(self) -> Any:
        return eval, ("open('evil', 'w')",)


def test_nothing_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"inner": [Evil()]}, "evil.pt")
    with pytest.raises(lowtide.LowtideError, match="eval") as refused:
        lowtide.open("evil.pt")
    assert "nothing was executed" in refused.value.hint
    assert not Path("evil").exists()


class Own:
    def __init__(self) -> None:
        self.weight, self.name = torch.ones(2), "own"


def test_what_is_no_data_is_named(tmp_path: Path) -> None:
    path = tmp_path / "own.pt"
    torch.save({"config": [1, Own()]}, path)
    with pytest.raises(lowtide.Unsupported, match=r"`config.1`: an object of the class \S*Own is not read") as refused:
        lowtide.open(path)
    assert "objects=" in refused.value.hint
    assert same({"config": [1, {"weight": torch.ones(2), "name": "own"}]}, lowtide.open(path, objects="dict"))
    path.write_bytes(pickle.dumps({"config": Own}))
    with pytest.raises(lowtide.Unsupported, match="Own"):
        lowtide.open(path)
    torch.save({"sparse": [torch.eye(2).to_sparse()]}, tmp_path / "sparse.pt")
    with pytest.raises(lowtide.Unsupported, match=r"sparse.0`: a tensor with the layout sparse_coo is not read here"):
        lowtide.open(tmp_path / "sparse.pt")


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(lowtide.MissingData, match="nowhere.pt"):
        lowtide.open(tmp_path / "nowhere.pt")
    whole = tmp_path / "whole.pt"
    torch.save(torch.ones(1000), whole)
    (tmp_path / "cut.pt").write_bytes(whole.read_bytes()[:-300])
    with pytest.raises(lowtide.BadData, match="cut.pt"):
        lowtide.open(tmp_path / "cut.pt")
    (tmp_path / "text.pt").write_text("hello, this is no tensor")
    with pytest.raises(lowtide.LowtideError, match="text.pt"):
        lowtide.open(tmp_path / "text.pt")
    torch.save(torch.ones(1).expand(1 << 27), tmp_path / "bomb.pt")
    with pytest.raises(lowtide.BadData, match="decodes to"):
        lowtide.open(tmp_path / "bomb.pt")
    with pytest.raises(lowtide.LowtideError, match="hint:"):
        lowtide.open(whole, objects="load")  # type: ignore[arg-type]
    with pytest.raises(lowtide.BadLimit):
        lowtide.open(whole, decode_limit="much")


def test_pack(tmp_path: Path) -> None:
    for file in range(3):
        torch.save(
            {"x": torch.randn(50, 100) + file, "id": list(range(50 * file, 50 * file + 50))}, tmp_path / f"{file}.pt"
        )
    shown: list[tuple[str, int, int]] = []
    sources = [tmp_path / f"{file}.pt" for file in range(3)]
    packed = lowtide.pack(sources, tmp_path / "out", compress=True, verify=True, progress=lambda *at: shown.append(at))
    assert (packed.samples, packed.sources, packed.verified, packed.left_out) == (150, 3, 150, [])
    assert shown and shown[0][0] == "packing"
    assert lowtide.pack(sources, tmp_path / "out", compress=True).samples == 150
    with pytest.raises(lowtide.BadData, match="was begun with"):
        lowtide.pack(sources, tmp_path / "out")
    assert lowtide.pack(sources, tmp_path / "out", restart=True).samples == 150


def test_pack_is_told_to_stop(tmp_path: Path) -> None:
    torch.save({"x": torch.ones(10, 3)}, tmp_path / "0.pt")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lowtide.pack(tmp_path / "0.pt", tmp_path / "out", progress=stop)
    assert lowtide.pack(tmp_path / "0.pt", tmp_path / "out").samples == 10


def test_pack_of_bad_input(tmp_path: Path) -> None:
    with pytest.raises(lowtide.MissingData):
        lowtide.pack(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(lowtide.LowtideError, match="nothing to pack"):
        lowtide.pack([], tmp_path / "out")
    with pytest.raises(lowtide.LowtideError, match="levels are 1 to 22"):
        lowtide.pack(tmp_path, tmp_path / "out", compress=99)
    with pytest.raises(lowtide.BadLimit):
        lowtide.pack(tmp_path, tmp_path / "out", shard_size="large")
    (tmp_path / "damaged.pt").write_bytes(b"PK\x03\x04")
    torch.save({"x": torch.ones(10, 3)}, tmp_path / "good.pt")
    with pytest.raises(lowtide.BadData, match="damaged.pt"):
        lowtide.pack([tmp_path / "damaged.pt", tmp_path / "good.pt"], tmp_path / "out")
    packed = lowtide.pack([tmp_path / "damaged.pt", tmp_path / "good.pt"], tmp_path / "out", skip_damaged=True)
    assert [Path(path).name for path, _ in packed.left_out] == ["damaged.pt"]
