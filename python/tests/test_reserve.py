"""The reserve without a GPU: what its marks see, what is refused, the arithmetic of limits, and what the guard answers."""

import ctypes
import json
import mmap
import threading
import time

import lowtide
import pytest
import torch
from lowtide import _host_pool, _memory, _native, _phase, _pinned, _reserve_inside, _stay
from lowtide._reserve import Overflow
from models import Gpt, loss_of, tokens

MIB = 1 << 20
GIB = 1 << 30


class Pages:
    """Memory as a driver would pin it."""

    def __init__(self, size):
        self._map = mmap.mmap(-1, size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def write(self, offset, size=8):
        ctypes.memset(self.address + offset, 0x5A, size)


def functions():
    library = ctypes.CDLL(_native.__file__)
    take, give_back = library.lowtide_reserve_take, library.lowtide_reserve_give_back
    take.restype = ctypes.c_void_p
    take.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    give_back.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    return take, give_back


# What torch calls.


def test_torch_is_given_each_piece_once():
    pages = Pages(6 * MIB)
    region = _native.HostRegion(pages.address, [4 * MIB, 2 * MIB], 7)
    take, give_back = functions()
    assert take(4 * MIB, 6, None) is None, "of another device"
    assert take(3 * MIB, 7, None) is None, "of another size"
    assert take(2 * MIB, 7, None) == pages.address + 4 * MIB
    assert take(2 * MIB, 7, None) is None
    assert region.is_taken
    assert not region.close(), "torch has a part of it"
    assert take(4 * MIB, 7, None) is None, "nothing of what is closed"
    give_back(pages.address + 4 * MIB, 2 * MIB, 7, None)
    assert region.close()


def test_nothing_outside_of_the_region_is_marked():
    pages = Pages(4 * MIB)
    region = _native.HostRegion(pages.address, [2 * MIB], 7)
    for block in [(pages.address - 512, MIB), (pages.address + MIB, 2 * MIB), (pages.address + 8, MIB), (0, 8)]:
        with pytest.raises(ValueError, match="outside"):
            region.mark([block])
    for address, pieces in [(0, [MIB]), (pages.address + 1, [MIB]), (pages.address, [7]), (pages.address, [0])]:
        with pytest.raises(ValueError, match="no region"):
            _native.HostRegion(address, pieces, 7)
    region.close()


# What the marks see.


@pytest.mark.parametrize("used", [1, 2, 5])
def test_a_block_that_lived_for_a_moment_is_seen(used):
    pages = Pages(8 * MIB)
    region = _native.HostRegion(pages.address, [8 * MIB], 7)
    region.mark([(pages.address, 8 * MIB)])
    assert not region.is_touched()
    assert region.touched() == 0
    pages.write(0, used * MIB)
    assert region.is_touched()
    assert region.touched() == used * MIB
    region.mark([(pages.address, 8 * MIB)])
    assert not region.is_touched()
    region.close()
    assert not region.is_touched(), "the memory may be gone"


def test_blocks_begin_where_others_end():
    pages = Pages(8 * MIB)
    region = _native.HostRegion(pages.address, [8 * MIB], 7)
    # The first 3 MiB are still in use: what is written there is no news.
    region.mark([(pages.address + 3 * MIB, 5 * MIB)])
    pages.write(0, 3 * MIB)
    assert not region.is_touched()
    pages.write(3 * MIB, 8)
    assert region.is_touched()
    assert region.touched() == MIB // 2
    region.close()


def test_whoever_waits_is_woken_by_a_write_and_by_the_end():
    pages = Pages(2 * MIB)
    region = _native.HostRegion(pages.address, [2 * MIB], 7)
    region.mark([(pages.address, 2 * MIB)])
    assert not region.wait(0.01)
    seen = []
    waiting = threading.Thread(target=lambda: seen.append(region.wait(30.0)))
    waiting.start()
    time.sleep(0.05)
    pages.write(0)
    waiting.join(10.0)
    assert seen == [True]
    region.mark([(pages.address, 2 * MIB)])
    waiting = threading.Thread(target=lambda: seen.append(region.wait(30.0)))
    waiting.start()
    region.close()
    waiting.join(10.0)
    assert seen == [True, False]


# What is refused.


@pytest.fixture
def cuda(monkeypatch):
    """A device of 12 GiB as far as the refusals look, which has nothing to compute on."""

    class Properties:
        total_memory = 12 * GIB

    class Stream:
        cuda_stream = 0

    stream = Stream()
    settings = {"max_split_size": -1, "expandable_segments": False}
    state = {"fraction": 1.0, "reserved": 0, "free": 11 * GIB, "settings": settings}
    monkeypatch.setattr(torch, "__version__", "2.11.0+cu130")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: stream)
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device=None: state["reserved"])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (state["free"], 12 * GIB))
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"allocator_settings": settings})
    monkeypatch.setattr(
        torch.cuda, "get_per_process_memory_fraction", lambda device=None: state["fraction"], raising=False
    )

    def set_fraction(fraction, device=None):
        state["fraction"] = fraction

    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", set_fraction)
    monkeypatch.setattr(_native, "host_room", lambda: (20 * GIB, 32 * GIB))
    return state


@pytest.mark.parametrize("version", ["2.5.1", "2.7.1+cu126"])
def test_an_old_torch_is_refused(cuda, monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(lowtide.Unsupported, match=r"2\.8 or newer"):
        lowtide.reserve("4GiB")


def test_no_cuda_is_refused():
    with pytest.raises(lowtide.Unsupported, match="CUDA device"):
        lowtide.reserve("4GiB")


def test_other_allocators_are_refused(cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "cudaMallocAsync")
    with pytest.raises(lowtide.Unsupported, match="caching allocator"):
        lowtide.reserve("4GiB")


def test_expandable_segments_are_refused_where_torch_would_raise(cuda, monkeypatch):
    cuda["settings"]["expandable_segments"] = True
    monkeypatch.setattr(torch, "__version__", "2.9.1")
    with pytest.raises(lowtide.Unsupported, match="expandable_segments"):
        lowtide.reserve("4GiB")


def test_too_little_host_memory_is_refused_before_anything_is_pinned(cuda):
    with pytest.raises(lowtide.BadLimit, match=r"at most 18\.40 GiB"):
        lowtide.reserve("19GiB")


def test_a_reserve_that_is_none_is_refused(cuda):
    for size in ("1MiB", "none", "much", 0):
        with pytest.raises(lowtide.BadLimit):
            lowtide.reserve(size)


def test_a_limit_that_was_set_grows_by_the_reserve_or_refuses_it(cuda, monkeypatch):
    cuda["fraction"] = 0.5

    class NoMemory(Exception):
        pass

    fractions = []

    def pinned(size, device):
        fractions.append(cuda["fraction"])
        raise NoMemory

    monkeypatch.setattr(_host_pool, "Pinned", pinned)
    with pytest.raises(NoMemory):
        lowtide.reserve("3GiB")
    assert fractions == [pytest.approx(0.75)]
    assert cuda["fraction"] == 0.5, "put back where there is no reserve after all"
    with pytest.raises(lowtide.BadLimit, match=r"at most 6\.00 GiB"):
        lowtide.reserve("6GiB")


# Line, context and reserve.


def test_the_line_is_held_beside_the_reserve(cuda, monkeypatch):
    monkeypatch.setitem(_memory.POOLED, 0, 3 * GIB)
    cuda["reserved"] = 3 * GIB + 512 * MIB
    memory = _memory.CudaMemory(torch.device("cuda", 0))
    # The context is taken at its largest: it grows when kernels are loaded, and a full device has no room left for them.
    memory.set_limit("8GiB")
    assert memory.limit == 8 * GIB - 768 * MIB
    assert cuda["fraction"] * 12 * GIB == pytest.approx(8 * GIB - 768 * MIB + 3 * GIB)
    with pytest.raises(lowtide.BadLimit, match="torch counts both together"):
        memory.set_limit("9.75GiB")


def test_statistics_are_told_without_the_reserve(cuda, monkeypatch):
    counts = {"current": 5 * GIB, "peak": 6 * GIB}
    stats = {"allocated_bytes": {"all": counts}, "reserved_bytes": {"all": counts}, "num_alloc_retries": 2}
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda device: stats)
    monkeypatch.setitem(_memory.POOLED, 0, 3 * GIB)
    reading = _memory.CudaMemory(torch.device("cuda", 0)).reading()
    assert reading == (5 * GIB, 2 * GIB, 6 * GIB, 3 * GIB, 2)


@pytest.mark.parametrize(
    ("most", "expected"),
    [(-1, [4 * GIB]), (8 * GIB, [4 * GIB]), (512 * MIB, [510 * MIB] * 8), (GIB, [1022 * MIB] * 4)],
)
def test_max_split_size_gets_pieces_that_may_be_cut(cuda, most, expected):
    cuda["settings"]["max_split_size"] = most
    assert _pinned.pieces_of(4 * GIB) == expected


def test_memory_moves_in_place_and_all_views_see_it(cuda):
    model = torch.nn.Linear(4, 4)
    model(torch.ones(2, 4)).sum().backward()
    view, values, gradient = model.weight[1:], model.weight.detach().clone(), model.weight.grad.clone()
    addresses = {model.weight.data_ptr(), model.weight.grad.data_ptr()}
    assert _stay.move_to_device(torch.device("cpu"), addresses.__contains__) == 2 * 64
    assert torch.equal(model.weight, values)
    assert torch.equal(view, values[1:])
    assert torch.equal(model.weight.grad, gradient)
    cuda["free"] = 32 * MIB
    addresses = {model.weight.data_ptr()}
    assert _stay.move_to_device(torch.device("cpu"), addresses.__contains__) == 0, "there is no room"


# What the guard answers.


class Fake:
    """A reserve that is used as a list says, a list of what is found after each step."""

    size = 4 * GIB

    def __init__(self, found):
        self.found, self.given_back = list(found), 0

    def adopt(self, phase):
        self.phase = phase

    def look(self, is_certain=False):
        return self.found.pop(0) if self.found else None

    def give_back(self):
        self.given_back += 1
        return 0

    def report(self):
        return "a reserve"

    def guard_closed(self):
        self.is_closed = True


def too_large(phase="forward", needed=18 * GIB):
    return Overflow(phase, 6 * GIB, 0.5, needed, 12 * GIB, 2 * GIB)


def guard_with(found, tmp_path=None, **more):
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    fake = Fake(found)
    return lowtide.Guard(model, optimizer, reserve=fake, run=tmp_path, **more), model, fake


def steps(guard, model, count, samples=16):
    for number in range(count):
        guard.step(tokens(samples, number), lambda part: loss_of(model, part))


def test_an_overflow_makes_the_next_step_smaller_and_repeats_nothing(tmp_path):
    guard, model, fake = guard_with([None, too_large(), None], tmp_path / "run")
    calls = []

    def closure(part):
        calls.append(len(part.x))
        return loss_of(model, part)

    for number in range(3):
        guard.step(tokens(16, number), closure)
    assert calls == [16, 16, 8, 8]
    assert [(at, way.micro_batch) for at, way in guard.schedule()] == [(0, 16), (2, 8)]
    assert guard.errors == 0
    assert fake.given_back == 1
    guard.close()
    events = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    (overflowed,) = [event for event in events if event["event"] == "overflowed"]
    assert (overflowed["step"], overflowed["phase"], overflowed["bytes"]) == (2, "forward", 6 * GIB)
    (rung,) = [event for event in events if event["event"] == "rung_taken"]
    assert (rung["rung"], rung["measures"]["micro_batch"], rung["reason"]["why"]) == ("split", 8, "overflowed")
    assert "a batch 38 % smaller would fit" in guard.report()
    assert "from the next step on: split: micro-batch 8" in guard.report()


def test_cached_blocks_in_the_way_are_released_first():
    guard, model, _ = guard_with([too_large(needed=10 * GIB), None, None])
    steps(guard, model, 3)
    assert guard.micro_batch == 16
    guard, model, _ = guard_with([too_large(needed=10 * GIB), too_large(needed=10 * GIB), None])
    steps(guard, model, 3)
    assert guard.micro_batch == 8


def test_an_evaluation_that_overflows_is_cut_from_the_next_batch_on():
    guard, model, _ = guard_with([too_large("eval"), None])
    sizes = []

    def closure(part):
        sizes.append(len(part.x))
        return loss_of(model, part)

    guard.evaluate([tokens(16, 0), tokens(16, 1)], closure)
    assert sizes == [16, 8, 8]


def test_weights_are_those_of_the_schedule():
    torch.manual_seed(3)
    guard, model, _ = guard_with([None, too_large(), None])
    steps(guard, model, 4)
    torch.manual_seed(3)
    other, clean, _ = guard_with([], schedule=guard.schedule())
    steps(other, clean, 4)
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), clean.parameters()))


def test_a_followed_schedule_is_not_answered():
    guard, model, fake = guard_with([too_large()] * 2, schedule=[(0, lowtide.Way(16))])
    steps(guard, model, 2)
    assert guard.micro_batch == 16
    assert fake.given_back == 2


def test_a_reserve_needs_a_model_on_a_gpu():
    model = Gpt()
    with pytest.raises(lowtide.Unsupported, match="the model is on cpu"):
        lowtide.Guard(model, torch.optim.SGD(model.parameters(), lr=0.1), reserve="4GiB")


# In a script that nobody changed.


def test_the_reserve_is_made_when_cuda_is_first_used_and_uses_are_written_down(tmp_path, monkeypatch, capfd):
    made = []

    class Made(Fake):
        pinned_seconds = 0.25

        def __init__(self, size, device, told):
            super().__init__([])
            self.size = size
            made.append((device, told))

    begun = []
    monkeypatch.setattr(_reserve_inside, "Reserve", Made)
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: begun.append(1))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: bool(begun))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setenv("LOCAL_RANK", "2")
    settings = {"bytes": 4 * GIB, "folder": str(tmp_path / "uses"), "start": 3}
    _reserve_inside.begin(settings)
    assert not made, "a process without CUDA pins nothing"
    torch.cuda._lazy_init()
    torch.cuda._lazy_init()
    ((device, told),) = made
    assert device == 2
    assert capfd.readouterr().err == "lowtide: 4.00 GiB of host memory pinned in 0.2 s\n"
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    torch.optim.SGD([weight], lr=0.1).step()
    told(too_large("backward"))
    (file,) = (tmp_path / "uses").iterdir()
    assert file.name.startswith("start-3-")
    event = json.loads(file.read_text())
    assert (event["event"], event["step"], event["phase"], event["reserve"]) == ("overflowed", 1, "backward", 4 * GIB)
    # The program reads it as an event of its own.
    assert "used 6.00 GiB of the reserve" in (_native.EventFile().write(json.dumps(event), 1) or "")


def test_a_script_goes_on_without_a_reserve_that_cannot_be_made(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    # Lightning has it ask for the number of devices.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    inside = _reserve_inside.begin({"bytes": 4 * GIB, "folder": str(tmp_path), "start": 1})
    assert inside.reserve is None
    assert "lowtide: no reserve: a reserve needs a CUDA device" in capfd.readouterr().err


def test_a_script_goes_on_where_the_reserve_fails_in_another_way(tmp_path, monkeypatch, capfd):
    def broken(*_args, **_kwargs):
        raise RuntimeError("no such thing")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(_reserve_inside, "Reserve", broken)
    inside = _reserve_inside.begin({"bytes": 4 * GIB, "folder": str(tmp_path), "start": 1})
    assert inside.reserve is None
    assert "lowtide: no reserve: no such thing" in capfd.readouterr().err


# In words.


def test_how_much_smaller_a_batch_would_have_fit():
    assert too_large().smaller() == pytest.approx(6 / 16)
    assert too_large(needed=11 * GIB).smaller() is None
    assert Overflow("forward", 1, 0.1, 20 * GIB, 12 * GIB, 13 * GIB).smaller() is None


def test_the_phase_is_read_off_the_main_thread():
    seen = []

    def backward():
        asking = threading.Thread(target=lambda: seen.append(_phase.phase_of_main_thread()))
        asking.start()
        asking.join()

    def evaluate_model():
        asking = threading.Thread(target=lambda: seen.append(_phase.phase_of_main_thread()))
        asking.start()
        asking.join()

    backward()
    evaluate_model()
    assert seen == ["backward", "eval"]
