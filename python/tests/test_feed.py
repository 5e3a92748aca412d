"""The feed: its order, its places, its memory, and what it refuses."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import lowtide
import pytest
import torch
from lowtide import _feed, _native
from torch.utils.data import DataLoader

FILES, ROWS = 7, 13
SAMPLES = FILES * ROWS

# fmt: off
FULL_ORDER = [
    7, 30, 20, 27, 39, 1, 15, 26, 19, 24, 12, 14, 36, 38, 16, 37, 29, 34, 31, 3,
    23, 10, 18, 13, 4, 25, 32, 6, 21, 5, 2, 33, 8, 28, 22, 11, 17, 0, 9, 35,
]
WINDOW_ORDER = [
    31, 7, 30, 6, 1, 0, 16, 17, 8, 9, 19, 18, 34, 25, 24, 35, 5, 4, 13, 12,
    37, 27, 26, 36, 10, 11, 15, 14, 22, 20, 23, 21, 28, 39, 38, 29, 2, 33, 3, 32,
]
# fmt: on


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files whose samples are numbered through."""
    folder = tmp_path_factory.mktemp("files")
    for file in range(FILES):
        number = torch.arange(ROWS) + file * ROWS
        torch.save(
            {
                "number": number,
                "x": number[:, None] * torch.ones(1, 5),
                "half": (number[:, None] * torch.ones(1, 3)).to(torch.bfloat16),
                "flag": number % 2 == 0,
                "name": [f"sample {value}" for value in number.tolist()],
                "ragged": [torch.full((value % 3 + 1, 2), value, dtype=torch.int32) for value in number.tolist()],
            },
            folder / f"{file}.pt",
        )
    return folder


@pytest.fixture(scope="module")
def packed(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed") / "shards"
    summary = lowtide.pack(files, folder, shard_size="2KiB")
    assert (summary.samples, summary.sources) == (SAMPLES, FILES) and summary.shards > 3
    return folder


@pytest.fixture(params=["files", "packed"])
def data(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue(request.param)


@pytest.fixture(autouse=True)
def no_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def numbers(batches: Iterator[dict] | lowtide.Feed) -> list[int]:
    return [number for batch in batches for number in batch["number"].tolist()]


def feed_of(path: Path, batch_size: int = 8, **options: object) -> lowtide.Feed:
    return lowtide.Feed(path, batch_size, limit="64MiB", **options)


@pytest.mark.parametrize("shuffle", [True, False, "full", 2])
def test_the_order_is_that_of_rust(data: Path, shuffle: bool | str | int) -> None:
    feed = feed_of(data, shuffle=shuffle, seed=3)
    for epoch in range(3):
        order = feed.order(epoch)
        assert sorted(order) == list(range(SAMPLES))
        assert numbers(feed) == order
    assert (feed.order(0) == feed.order(1)) == (shuffle is False)


def test_the_order_is_the_same_for_ever(tmp_path: Path) -> None:
    """What the Rust program `feed` of crates/data/examples gives for such data with `--print-order --seed 1`."""
    torch.save({"number": torch.arange(40)}, tmp_path / "forty.pt")
    shards = lowtide.pack(tmp_path / "forty.pt", tmp_path / "packed", shard_size=256).shards
    assert shards == 20
    full = numbers(feed_of(tmp_path / "forty.pt", 8, shuffle="full", seed=1))
    window = numbers(feed_of(tmp_path / "packed", 8, shuffle=2, seed=1))
    assert full == FULL_ORDER
    assert window == WINDOW_ORDER


def test_values_are_those_of_the_files(data: Path) -> None:
    for batch in feed_of(data):
        number = batch["number"]
        assert number.dtype == torch.int64
        assert torch.equal(batch["x"], number[:, None] * torch.ones(1, 5))
        assert batch["half"].dtype == torch.bfloat16
        assert torch.equal(batch["half"], (number[:, None] * torch.ones(1, 3)).to(torch.bfloat16))
        assert torch.equal(batch["flag"], number % 2 == 0)
        assert batch["name"] == [f"sample {value}" for value in number.tolist()]
        assert [tuple(part.shape) for part in batch["ragged"]] == [(value % 3 + 1, 2) for value in number.tolist()]
        assert all(bool((part == value).all()) for part, value in zip(batch["ragged"], number))
        batch["x"] += 1  # the memory is ours


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "float16", "float64", "complex64", "float8_e4m3fn"])
def test_every_type_of_values(tmp_path: Path, dtype: str) -> None:
    values = torch.arange(12).reshape(6, 2).to(getattr(torch, dtype))
    torch.save({"values": values}, tmp_path / "file.pt")
    (batch,) = feed_of(tmp_path, 6, shuffle=False)
    found = batch["values"]
    assert found.dtype == values.dtype and found.tolist() == values.tolist()


@pytest.mark.parametrize("values", [64, 2048, 5000])
def test_values_are_right_where_batches_are_waited_for(tmp_path: Path, values: int) -> None:
    """Whoever waits copies large values, too; here somebody always does."""
    number = torch.arange(400)
    large = number[:, None] + torch.arange(values)
    ragged = [large[one, : values - one % 2] for one in range(len(number))]
    torch.save({"number": number, "x": large, "ragged": ragged}, tmp_path / "large.pt")
    for shuffle in (True, "full", False):
        feed = feed_of(tmp_path, 24, shuffle=shuffle)
        for _ in range(3):
            batches = list(feed)
            assert sorted(numbers(batches)) == number.tolist()
            for batch in batches:
                assert torch.equal(batch["x"], batch["number"][:, None] + torch.arange(values))
                for one, value in zip(batch["number"].tolist(), batch["ragged"]):
                    assert torch.equal(value, ragged[one])
        feed.close()
    gc.collect()


def test_len_and_the_last_batch(data: Path) -> None:
    feed = feed_of(data, 8)
    assert len(feed) == 12 == len(list(feed))
    assert [len(batch["number"]) for batch in feed][-1] == SAMPLES % 8
    feed = feed_of(data, 8, drop_last=True)
    assert len(feed) == 11 == len(list(feed))
    feed = feed_of(data, 8, epochs=3)
    assert len(feed) == 36
    assert numbers(feed) == [number for epoch in range(3) for number in feed.order(epoch)]
    assert list(feed) == []


@pytest.mark.parametrize("steps", [0, 1, 5, 11, 12])
def test_a_state_goes_on_with_the_next_sample(data: Path, steps: int) -> None:
    feed = feed_of(data, seed=5)
    feed.set_epoch(2)
    whole = [batch["number"].tolist() for batch in feed]
    feed.set_epoch(2)
    loop = iter(feed)
    seen = [next(loop)["number"].tolist() for _ in range(steps)]
    state = pickle.loads(pickle.dumps(feed.state_dict()))
    other = feed_of(data, shuffle="full")
    other.load_state_dict(state)
    other.set_epoch(2)
    assert seen + [batch["number"].tolist() for batch in other] == whole
    assert numbers(other) == feed.order(3)


@pytest.mark.parametrize(("before", "after"), [((1, 8), (2, 4)), ((4, 2), (1, 8)), ((2, 4), (3, 5))])
def test_a_state_is_good_for_another_number_of_ranks(
    packed: Path, before: tuple[int, int], after: tuple[int, int]
) -> None:
    order = feed_of(packed).order()
    state, seen = None, []
    for rank in range(before[0]):
        feed = feed_of(packed, before[1], rank=rank, world_size=before[0])
        loop = iter(feed)
        seen += [number for _ in range(3) for number in next(loop)["number"].tolist()]
        assert state in (None, feed.state_dict())
        state = feed.state_dict()
    assert state is not None
    assert sorted(seen) == sorted(order[: 3 * 8])
    rest = []
    for rank in range(after[0]):
        feed = feed_of(packed, after[1], rank=rank, world_size=after[0])
        feed.load_state_dict(state)
        rest += numbers(feed)
    assert sorted(rest) == sorted(order[3 * 8 :])


@pytest.mark.parametrize(("world", "batch_size"), [(2, 8), (2, 45), (3, 5), (4, 1), (5, 9), (90, 1)])
def test_ranks_are_disjoint_and_complete(data: Path, world: int, batch_size: int) -> None:
    feeds = [feed_of(data, batch_size, rank=rank, world_size=world) for rank in range(world)]
    taken = [list(feed) for feed in feeds]
    assert {len(batches) for batches in taken} == {len(feeds[0])}
    assert sorted(number for batches in taken for number in numbers(batches)) == list(range(SAMPLES))
    order = feeds[0].order()
    steps = [
        [number for batches in taken for number in batches[step]["number"].tolist()] for step in range(len(feeds[0]))
    ]
    assert [number for step in steps for number in step] == order


def test_ranks_are_found(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert numbers(feed_of(packed)) == numbers(feed_of(packed, rank=1, world_size=2))


@pytest.mark.skipif(not torch.distributed.is_available(), reason="needs a torch with torch.distributed")
def test_ranks_of_a_process_group_go_first(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        feed = feed_of(packed)
        assert numbers(feed) == feed.order()
    finally:
        torch.distributed.destroy_process_group()


def test_the_limit_is_shared(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed_of(packed)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "64")
    with pytest.raises(lowtide.BadLimit, match="the limit is 1.00 MiB"):
        feed_of(packed)


def test_a_loop_that_was_left_is_begun_anew(data: Path) -> None:
    feed = feed_of(data)
    first = next(iter(feed))["number"].tolist()
    old = iter(feed)
    assert numbers(feed) == feed.order(0)
    assert first == feed.order(0)[:8]
    with pytest.raises(lowtide.Unsupported, match="another loop"):
        next(old)


def test_memory_goes_with_the_tensor(packed: Path) -> None:
    gc.collect()
    before = _native.held_bytes()
    batches = list(feed_of(packed))
    held = sum(batch["x"].nbytes for batch in batches)
    assert _native.held_bytes() - before >= held
    kept = batches[3]["x"]
    del batches
    assert _native.held_bytes() - before == kept.nbytes
    view = kept[1:]
    values = view.clone()
    del kept
    assert torch.equal(view, values)
    del view
    assert _native.held_bytes() == before


def test_a_capsule_that_nobody_takes_is_freed() -> None:
    before = _native.held_bytes()
    part = lowtide.open(_saved(torch.ones(1000)))
    assert _native.held_bytes() - before == 4000
    del part
    assert _native.held_bytes() == before


def _saved(tensor: torch.Tensor) -> str:
    import tempfile

    path = Path(tempfile.mkdtemp(), "tensor.pt")
    torch.save(tensor, path)
    return str(path)


def test_others_take_it_too(packed: Path) -> None:
    numpy = pytest.importorskip("numpy")
    data = feed_of(packed)._data
    data.start("sequential", 0, epoch=0, position=0, end=1, rank=0, ranks=1, batch=4, drop_last=False, ahead=False)
    before = _native.held_bytes()
    taken, _ = data.take()
    assert taken is not None
    capsule = taken["x"].__dlpack__()
    del capsule
    assert numpy.from_dlpack(taken["number"]).tolist() == [0, 1, 2, 3]
    del taken
    gc.collect()
    assert _native.held_bytes() == before


def test_batches_in_memory_that_was_offered(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def pinned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        tensor = torch.empty(shape, dtype=dtype)
        made.append(tensor.data_ptr())
        return tensor

    monkeypatch.setattr(_feed, "pinned", pinned)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    plain, feed = feed_of(data), feed_of(data, pin_memory=True)
    for expect, batch in zip(plain, feed, strict=True):
        for name in ("number", "x", "half", "flag"):
            assert torch.equal(batch[name], expect[name])
            assert batch[name].data_ptr() in made
        assert batch["name"] == expect["name"]
        assert all(torch.equal(one, other) for one, other in zip(batch["ragged"], expect["ragged"], strict=True))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: pinned memory is CUDA's")
def test_batches_in_pinned_memory(data: Path) -> None:
    for expect, batch in zip(feed_of(data), feed_of(data, pin_memory=True), strict=True):
        for name in ("number", "x", "half", "flag"):
            assert batch[name].is_pinned()
            assert torch.equal(batch[name].to("cuda", non_blocking=True).cpu(), expect[name])
        assert all(part.is_pinned() for part in batch["ragged"])


def test_an_offer_that_does_not_fit_is_refused(packed: Path) -> None:
    data = feed_of(packed)._data
    data.start("sequential", 0, epoch=0, position=0, end=None, rank=0, ranks=1, batch=4, drop_last=False, ahead=False)
    assert data.next_samples() == 4
    for tensor in (torch.empty(3, 5), torch.empty(5, 4).t(), torch.empty(4, 5, device="meta")):
        with pytest.raises(ValueError, match="a tensor to gather into must be"):
            data.take([("x", "float32", [5], tensor)])
    taken, place = data.take(
        [("x", "float32", [5], torch.empty(4, 5)), ("half", "bfloat16", [9], torch.empty(4, 9, dtype=torch.bfloat16))]
    )
    assert taken is not None and taken["x"] is None and taken["half"].shape == [4, 3] and place == (0, 4)


def test_a_data_loader_in_this_process(packed: Path) -> None:
    feed = feed_of(packed)
    loader = DataLoader(feed, batch_size=None, num_workers=0)
    assert len(loader) == len(feed)
    assert numbers(iter(loader)) == feed.order(0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_a_data_loader_with_workers_is_refused(packed: Path, way: str) -> None:
    loader = DataLoader(feed_of(packed), batch_size=None, num_workers=1, multiprocessing_context=way)
    with pytest.raises(lowtide.Unsupported, match="num_workers=0"):
        next(iter(loader))


@pytest.mark.filterwarnings("ignore")
def test_a_fork_is_noticed(packed: Path) -> None:
    feed = feed_of(packed)
    loop = iter(feed)
    next(loop)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            next(loop)
        except lowtide.Unsupported as error:
            code = 0 if "forked" in str(error) else 2
        del loop, feed
        gc.collect()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert len(list(loop)) == len(feed) - 1


def test_a_process_that_was_forked_ends(packed: Path) -> None:
    script = f"""
import os, lowtide
feed = lowtide.Feed({str(packed)!r}, 4)
loop = iter(feed); next(loop)
child = os.fork()
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=60)


def test_bad_input(tmp_path: Path, packed: Path) -> None:
    with pytest.raises(lowtide.MissingData) as missing:
        lowtide.Feed(tmp_path / "nowhere", 1)
    assert isinstance(missing.value, FileNotFoundError) and missing.value.hint
    with pytest.raises(lowtide.BadData, match="hint: name the folder"):
        lowtide.Feed(tmp_path, 1)
    (tmp_path / "broken.pt").write_bytes(b"PK\x03\x04 and nothing else")
    with pytest.raises(lowtide.BadData, match="broken.pt"):
        lowtide.Feed(tmp_path, 1)
    for limit in ("much", "", "0", 0, -1):
        with pytest.raises(lowtide.BadLimit):
            lowtide.Feed(packed, 1, limit=limit)
    with pytest.raises(lowtide.BadLimit, match="hint: limit="):
        lowtide.Feed(packed, 1, limit="4KiB")
    for options in (
        {"batch_size": 0},
        {"epochs": 0},
        {"seed": -1},
        {"shuffle": "some"},
        {"shuffle": -2},
        {"threads": 0},
    ):
        with pytest.raises(lowtide.LowtideError, match="hint:"):
            lowtide.Feed(packed, **{"batch_size": 1, **options})
    for ranks in ({"rank": 0}, {"world_size": 2}, {"rank": 2, "world_size": 2}, {"rank": -1, "world_size": 2}):
        with pytest.raises(lowtide.LowtideError, match="rank"):
            lowtide.Feed(packed, 1, **ranks)
    with pytest.raises(lowtide.BadData, match="not enough for 92 ranks"):
        iter(lowtide.Feed(packed, 1, rank=0, world_size=SAMPLES + 1))
    if not torch.cuda.is_available():
        with pytest.raises(lowtide.Unsupported, match="pin_memory"):
            lowtide.Feed(packed, 1, pin_memory=True)


def test_hints_name_arguments_and_no_options(tmp_path: Path, packed: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    torch.save({"a": torch.ones(3, 2)}, data / "0.pt")
    lowtide.pack(data, tmp_path / "out")
    with pytest.raises(lowtide.BadData, match=r"shard_size.*\n?.*restart=True") as differs:
        lowtide.pack(data, tmp_path / "out", shard_size="1MiB")
    assert "--" not in str(differs.value)
    # Names of files stay as they are.
    broken = tmp_path / "run--restart"
    broken.mkdir()
    (broken / "broken.pt").write_bytes(b"PK\x03\x04 and nothing else")
    with pytest.raises(lowtide.BadData, match="run--restart/broken.pt"):
        lowtide.Feed(broken, 1)


def test_samples_that_do_not_belong_together(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2), "b": torch.ones(2)}, tmp_path / "0.pt")
    torch.save({"a": torch.ones(2)}, tmp_path / "1.pt")
    with pytest.raises(lowtide.BadData, match="field `b` is in some samples"):
        list(feed_of(tmp_path, 4, shuffle=False))
    torch.save({"a": torch.ones(2, dtype=torch.int64), "b": torch.ones(2)}, tmp_path / "1.pt")
    with pytest.raises(lowtide.BadData, match="field `a` holds float32 in some samples and int64 in others"):
        list(feed_of(tmp_path, 4, shuffle=False))


def test_a_file_that_changes_is_an_error_and_not_other_data(tmp_path: Path) -> None:
    for file in range(2):
        torch.save({"a": torch.ones(4, 1000)}, tmp_path / f"{file}.pt")
    feed = feed_of(tmp_path, 4, shuffle=False)
    torch.save({"a": torch.ones(3, 1000)}, tmp_path / "1.pt")
    loop = iter(feed)
    next(loop)
    with pytest.raises(lowtide.BadData, match="1.pt"):
        next(loop)


def test_a_state_of_something_else_is_refused(packed: Path, files: Path) -> None:
    feed = feed_of(packed)
    state = feed.state_dict()
    with pytest.raises(lowtide.BadState, match="other data"):
        feed_of(files).load_state_dict(state)
    for wrong in ({}, {**state, "version": 9}, {**state, "shuffle": "never"}, {**state, "position": SAMPLES + 1}):
        with pytest.raises(lowtide.BadState):
            feed.load_state_dict(wrong)
    with pytest.raises(lowtide.LowtideError, match="no epoch -1"):
        feed.set_epoch(-1)


def test_what_is_held_stays_inside_the_limit(packed: Path) -> None:
    feed = lowtide.Feed(packed, 8, limit="6MiB")
    list(feed)
    stats = feed.stats()
    assert 0 < stats["peak_bytes"] < 6 << 20 and stats["bytes_read"] > 0
    feed.close()
    assert feed.stats()["bytes_read"] == 0
    assert len(list(feed)) == len(feed)
