"""The reserve from its making to its end, on an allocator that falls back on pools as torch's does."""

import contextlib
import ctypes
import time
import types

import lowtide
import pytest
import torch
from lowtide import _host_pool, _memory, _native, _reserve

MIB = 1 << 20


class Stream:
    def __init__(self, number):
        self.cuda_stream = number


class Block:
    """Memory of the pool, as a tensor of bytes has it."""

    def __init__(self, pool, address, size, stream):
        self.pool, self.address, self.nbytes, self.stream = pool, address, size, stream

    def data_ptr(self):
        return self.address

    def write(self):
        ctypes.memset(self.address, 0x5A, self.nbytes)

    def __del__(self):
        self.pool.taken.pop(self.address, None)


class Pool:
    """Segments from the functions of C, cut from their beginning on and merged again."""

    def __init__(self, allocator=None, use_on_oom=False):
        self.id, self.allocator, self.segments, self.taken = (0, id(self)), allocator, [], {}
        assert use_on_oom

    def free(self, stream):
        """The free blocks of a stream, the smallest first."""
        found = []
        for start, size, of in self.segments:
            at = start
            for address in [*sorted(one for one in self.taken if start <= one < start + size), start + size]:
                if address > at and of == stream:
                    found.append((address - at, at))
                at = address + self.taken.get(address, 0)
        return sorted(found)

    def block(self, size, stream, is_overflow=False):
        fitting = [one for one in self.free(stream) if one[0] >= size]
        if not fitting and not is_overflow:
            start = self.allocator(size, stream) if self.allocator else id(object())
            if start:
                self.segments.append((start, size, stream))
                fitting = [(size, start)]
        if not fitting:
            raise torch.OutOfMemoryError("none")
        self.taken[fitting[0][1]] = size
        return Block(self, fitting[0][1], size, stream)

    def snapshot(self):
        segments = []
        for start, size, stream in self.segments:
            own = {address: length for address, length in self.taken.items() if start <= address < start + size}
            blocks = [{"size": one, "state": "active_allocated"} for one in own.values()]
            blocks += [
                {"size": one, "state": "inactive"} for one, at in self.free(stream) if start <= at < start + size
            ]
            segments.append({"device": 0, "stream": stream, "blocks": blocks})
        return segments


class Cuda:
    """What of ``torch.cuda`` the reserve calls."""

    def __init__(self):
        self.pools, self.active, self.here, self.calls = [], None, Stream(0), []
        self.library = ctypes.CDLL(_native.__file__)
        self.library.lowtide_reserve_take.restype = ctypes.c_void_p
        take, pools = self.library.lowtide_reserve_take, self.pools

        def functions(path, taking, _giving):
            assert (path, taking) == (_native.__file__, "lowtide_reserve_take")
            return types.SimpleNamespace(allocator=lambda: lambda size, stream: take(ctypes.c_ssize_t(size), 0, None))

        def made(allocator=None, use_on_oom=False):
            pools.append(Pool(allocator, use_on_oom))
            return pools[-1]

        self.memory = types.SimpleNamespace(
            CUDAPluggableAllocator=functions, _snapshot=lambda: {"allocator_settings": {"max_split_size": -1}}
        )
        self.MemPool = made
        self.is_capturing = False

    def give_back(self):
        for start, size, _ in self.pools[0].segments:
            self.library.lowtide_reserve_give_back(ctypes.c_void_p(start), ctypes.c_ssize_t(size), 0, None)

    @contextlib.contextmanager
    def use_mem_pool(self, pool, device):
        self.active = pool
        yield
        self.active = None

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.here = self.here, stream
        yield
        self.here = before

    def device(self, device):
        return contextlib.nullcontext()

    def empty(self, size, dtype, device):
        assert self.active is not None
        return self.active.block(size, self.here.cuda_stream)

    def overflow(self, size):
        return self.pools[0].block(size, self.here.cuda_stream, is_overflow=True)

    def memory_snapshot(self, name, include_traces):
        (pool,) = [pool for pool in self.pools if pool.id == name]
        return pool.snapshot()


@pytest.fixture
def cuda(monkeypatch):
    fake = Cuda()
    pages = []

    class Pinned:
        def __init__(self, size, device):
            pages.append(ctypes.create_string_buffer(size + 4096))
            self.address = -(-ctypes.addressof(pages[-1]) // 4096) * 4096

        def free(self):
            fake.calls.append("unpinned")

    for name, value in {
        "MemPool": fake.MemPool,
        "use_mem_pool": fake.use_mem_pool,
        "stream": fake.stream,
        "device": fake.device,
        "memory": fake.memory,
        "memory_snapshot": fake.memory_snapshot,
        "current_stream": lambda device=None: fake.here,
        "current_device": lambda: 0,
        "is_available": lambda: True,
        "get_allocator_backend": lambda: "native",
        "get_device_properties": lambda device: types.SimpleNamespace(total_memory=12 << 30),
        "mem_get_info": lambda device=None: (MIB, 12 << 30),
        "synchronize": lambda device=None: fake.calls.append("synchronized"),
        "is_current_stream_capturing": lambda: fake.is_capturing,
        "empty_cache": lambda: fake.calls.append("released"),
        "reset_peak_memory_stats": lambda device=None: None,
        "get_per_process_memory_fraction": lambda device=None: 1.0,
        "memory_stats_as_nested_dict": lambda device: {
            "allocated_bytes": {"all": {"current": 2 << 30, "peak": 13 << 30}},
            "reserved_bytes": {"all": {"current": (11 << 30) + 64 * MIB, "peak": (11 << 30) + 64 * MIB}},
            "num_alloc_retries": 0,
        },
    }.items():
        monkeypatch.setattr(torch.cuda, name, value, raising=False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch, "__version__", "2.11.0")
    monkeypatch.setattr(torch, "empty", fake.empty)
    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", lambda call: None, raising=False)
    monkeypatch.setattr(_host_pool, "Pinned", Pinned)
    monkeypatch.setattr(_reserve, "move_to_device", lambda device, is_there: fake.calls.append("moved"))
    yield fake
    _reserve._open.clear()
    _memory.POOLED.clear()


def closed(cuda, reserve):
    """Torch gives the segments back when the pool is gone."""
    cuda.give_back()
    reserve.close()


def test_a_use_is_seen_told_and_given_back(cuda):
    reserve = lowtide.reserve("64MiB")
    assert _memory.POOLED == {0: 64 * MIB}
    assert reserve.settle() is None
    assert reserve.report() == "a reserve of 64.00 MiB of host memory, not used"
    block = cuda.overflow(24 * MIB)
    block.write()
    del block
    time.sleep(0.1)
    found = reserve.settle()
    assert (found.bytes, found.needed, found.limit) == (24 * MIB, 13 << 30, (11 << 30) + MIB)
    assert found.phase == "forward"
    assert found.seconds >= 0.05, "from the first write on, not from the look"
    assert "released" in cuda.calls
    assert "moved" not in cuda.calls, "nothing was left"
    assert reserve.used == 24 * MIB
    assert "used once: at most 24.00 MiB" in reserve.report()
    assert "a batch 19 % smaller needs no reserve" in reserve.report()
    assert reserve.settle() is None, "marks are set anew"
    cuda.overflow(8 * MIB).write()
    assert reserve.settle().bytes == 8 * MIB
    closed(cuda, reserve)
    assert cuda.calls[-1] == "unpinned"
    assert _memory.POOLED == {}


def test_a_limit_that_was_set_counts_without_the_reserve(cuda, monkeypatch):
    fraction = [0.5]
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device=None: fraction[0])
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda value, device=None: fraction.insert(0, value)
    )
    reserve = lowtide.reserve("64MiB")
    cuda.overflow(24 * MIB).write()
    assert abs(reserve.settle().limit - (6 << 30)) <= 1
    closed(cuda, reserve)
    assert abs(fraction[0] - 0.5) < 1e-9


def test_what_stays_is_moved_and_is_no_news(cuda):
    reserve = lowtide.reserve("64MiB")
    stays = cuda.overflow(4 * MIB)
    stays.write()
    assert reserve.settle().bytes == 4 * MIB
    assert "moved" in cuda.calls
    stays.write()
    assert reserve.settle() is None
    cuda.overflow(30 * MIB).write()
    assert reserve.settle().bytes == 30 * MIB
    stays = None
    closed(cuda, reserve)


def test_a_reserve_that_tensors_still_hold_is_not_unpinned(cuda):
    reserve = lowtide.reserve("64MiB")
    stays = cuda.overflow(4 * MIB)
    reserve.close()
    assert "unpinned" not in cuda.calls
    assert _memory.POOLED == {0: 64 * MIB}
    with pytest.raises(lowtide.Unsupported, match="has a reserve already"):
        lowtide.reserve("64MiB")
    del stays


def test_streams_have_their_own_part(cuda):
    side = Stream(7)
    reserve = lowtide.reserve("64MiB", streams={side: "32MiB"})
    assert reserve.size == 96 * MIB
    with cuda.stream(side):
        cuda.overflow(32 * MIB).write()
        with pytest.raises(torch.OutOfMemoryError):
            cuda.overflow(33 * MIB)
    assert reserve.settle().bytes == 32 * MIB
    with cuda.stream(Stream(9)):
        _reserve._asked_in_vain(0, 5 * MIB, 0, 0)
    assert "a request of 5.00 MiB on stream 0x9 found none of it" in reserve.report()
    with cuda.stream(side):
        _reserve._asked_in_vain(0, 33 * MIB, 0, 0)
    assert "it was too small for a request of 33.00 MiB" in reserve.report()
    closed(cuda, reserve)


def test_small_requests_have_memory_of_the_device(cuda):
    reserve = lowtide.reserve("64MiB")
    host, small = cuda.pools
    assert sum(size for size, _ in host.free(0)) == 64 * MIB
    assert [size for size, _ in small.free(0)] == [MIB] * 16
    closed(cuda, reserve)


def test_it_is_settled_after_each_step_of_an_optimizer(cuda):
    reserve = lowtide.reserve("64MiB")
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    optimizer.step()
    assert reserve.count == 0
    cuda.overflow(24 * MIB).write()
    optimizer.step()
    assert (reserve.count, reserve.overflows[0].bytes) == (1, 24 * MIB)
    closed(cuda, reserve)
    optimizer.step()


def test_what_the_gpu_has_not_written_yet_is_waited_for_where_it_is_certain(cuda, monkeypatch):
    reserve = lowtide.reserve("64MiB")
    block = cuda.overflow(24 * MIB)
    assert reserve.look() is None
    cuda.is_capturing = True
    assert reserve.look(is_certain=True) is None
    cuda.is_capturing = False
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: block.write())
    assert reserve.look(is_certain=True).bytes == 24 * MIB
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    closed(cuda, reserve)
