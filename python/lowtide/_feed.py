"""Training data larger than memory, as batches of torch tensors."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.dlpack import from_dlpack

from . import _native
from ._errors import BadData, BadLimit, BadState, LowtideError, Unsupported

Batch = dict[str, Any]

_STATE_VERSION = 1


class Feed(IterableDataset[Batch]):
    """Batches of a data set that need not fit into memory, in an order that is a function of ``seed`` alone.

    ::

        feed = lowtide.Feed("packed", batch_size=64, limit="4GiB")
        for epoch in range(3):
            for batch in feed:                   # {"x": tensor of [64, ...], "y": tensor of [64], ...}
                guard.step(batch, closure)

    Threads read ahead, and what will be needed soonest is kept, all within ``limit``. No worker processes are needed: with a
    ``DataLoader`` use ``DataLoader(feed, batch_size=None, num_workers=0)``. A batch is a dict with a tensor for each field,
    the samples along its first dimension. A field whose samples have different shapes is a list of tensors, and one of texts
    a list of ``str``. The memory of a batch is yours: change it, keep it; it is freed with its tensors.

    A ``for`` loop is one epoch, and the next loop is the next epoch. A loop that was left before its end is begun anew by the
    next one. ``state_dict`` says how far the loop is, and after ``load_state_dict`` the next loop goes on with exactly the
    next sample.

    Ranks find themselves: those of ``torch.distributed`` where it is initialized, else the variables ``RANK`` and
    ``WORLD_SIZE``. All ranks walk one order. Each step takes the next ``batch_size`` samples for every rank, so a state of 4
    ranks is good for 2. All ranks make the same number of steps: the last samples of an epoch are divided evenly, and where
    fewer than one for each rank would be left over, the last batches of some ranks have one sample more.

    Args:
        path: a folder of shards, as ``lowtide.pack`` makes it, or of ``.pt``, ``.npy``, ``.npz``, ``.safetensors`` or pickle
            files; or one such file.
        batch_size: samples of a batch, on each rank.
        shuffle: ``True`` shuffles files, and the samples of as many files together as the limit allows; a number says how many
            files; ``"full"`` shuffles all samples, and reads them one by one; ``False`` leaves the order of the files.
        seed: which order. All ranks need the same.
        limit: all host memory that data takes on this machine, as ``"2GiB"`` or ``"25%"``, batches included. The processes of
            one machine share it by ``LOCAL_WORLD_SIZE``. Give all ranks the same one: how much is shuffled depends on it.
        epochs: where it is given, one loop goes through all epochs up to this number.
        drop_last: whether the samples at the end of an epoch that do not fill a batch are left out.
        rank, world_size: instead of those that are found.
        pin_memory: whether batches are put together in pinned memory, for ``tensor.to("cuda", non_blocking=True)``.
        threads: threads that read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        batch_size: int,
        *,
        shuffle: bool | int | str = True,
        seed: int = 0,
        limit: str | int = "2GiB",
        epochs: int | None = None,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        pin_memory: bool = False,
        threads: int = 2,
    ) -> None:
        super().__init__()
        self.batch_size = _positive("batch_size", batch_size)
        self.epochs = None if epochs is None else _positive("epochs", epochs)
        if not isinstance(seed, int) or not 0 <= seed < 1 << 64:
            raise LowtideError(f"seed is {seed!r}", "give a number from 0 to 2**64 - 1")
        if pin_memory and not torch.cuda.is_available():
            raise Unsupported("pinned memory needs a CUDA device", "leave pin_memory out")
        self.drop_last = drop_last
        self.seed = seed
        self._given_ranks = _checked_ranks(rank, world_size)
        self._pins = _Pins() if pin_memory else None
        local = _variable("LOCAL_WORLD_SIZE") or 1
        self._data = _native.DataFeed(
            os.fspath(path),
            limit=_limit_bytes(limit) // local,
            batch=self.batch_size,
            threads=_positive("threads", threads),
            # Processes of one machine read the same files at about the same time: the first read serves all of them.
            keep_page_cache=local > 1,
        )
        self._shuffle = _shuffle_text(shuffle, self._data)
        # Where the next loop begins, and where this one is.
        self._begin = self._place = (0, 0)
        self._loop = 0

    # Batches.

    def __iter__(self) -> Iterator[Batch]:
        info = get_worker_info()
        if info is not None:
            raise Unsupported(
                f"this is worker {info.id} of a DataLoader, and a Feed has threads of its own",
                "DataLoader(feed, batch_size=None, num_workers=0)",
            )
        rank, world = self._ranks()
        samples = self._data.samples
        if not self._steps(0):
            size = self.batch_size * world if self.drop_last else world
            raise BadData(
                f"{samples} samples are not enough for {world} ranks with batches of {self.batch_size}",
                f"it takes {size}",
            )
        self._loop += 1
        self._place = self._begin
        return _Loop(self, self._loop, rank, world)

    def __len__(self) -> int:
        """The batches of a loop that begins at the beginning of an epoch."""
        return self._steps(0) * (self.epochs or 1)

    def _steps(self, position: int) -> int:
        rank, world = self._ranks()
        return self._data.steps(position, rank=rank, ranks=world, batch=self.batch_size, drop_last=self.drop_last)

    def _ranks(self) -> tuple[int, int]:
        return self._given_ranks or _found_ranks()

    # Places.

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next loop is. Where that is the epoch of a state that was loaded, its place is kept."""
        if epoch < 0:
            raise LowtideError(f"there is no epoch {epoch}", "the first is 0")
        if epoch != self._begin[0]:
            self._begin = (epoch, 0)
        self._place = self._begin

    @property
    def epoch(self) -> int:
        """The epoch that the loop is in, or that the next one begins with."""
        return self._place[0]

    def state_dict(self) -> dict[str, Any]:
        """How far the loop is, behind the last batch that was given out. The same on all ranks."""
        epoch, position = self._place
        return {
            "version": _STATE_VERSION,
            "epoch": epoch,
            "position": position,
            "seed": self.seed,
            "shuffle": self._shuffle,
            "files": self._files(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Lets the next loop go on where another was, with its seed and shuffle, for any batch size and number of ranks."""
        try:
            version, files = state["version"], state["files"]
            epoch, position, seed, shuffle = state["epoch"], state["position"], state["seed"], state["shuffle"]
            self._data.order(shuffle, seed, epoch, position, 0)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BadState(f"no state of a Feed: {error!r}", "give what state_dict() returned") from None
        if version != _STATE_VERSION:
            raise BadState(f"a state of version {version}, not {_STATE_VERSION}", "use the lowtide that saved it")
        if files != self._files() or position > self._data.samples:
            raise BadState("the state is of other data: its files hold other numbers of samples", "use the same files")
        self.seed, self._shuffle = seed, shuffle
        self._begin = self._place = (epoch, position)

    def _files(self) -> int:
        return zlib.crc32(repr(self._data.file_samples()).encode())

    # The rest.

    @property
    def shuffle(self) -> str:
        """What is shuffled: ``"sequential"``, ``"full"``, or ``"window 8"``, eight files at a time."""
        return self._shuffle

    @property
    def samples(self) -> int:
        """The samples of an epoch, on all ranks together."""
        return self._data.samples

    def order(self, epoch: int = 0) -> list[int]:
        """The numbers of the samples of an epoch in their order, on all ranks together; 0 is the first of the first file."""
        return self._data.order(self._shuffle, self.seed, epoch, 0, self._data.samples)

    def stats(self) -> dict[str, float]:
        """What was done since reading began: samples found in memory, reads, bytes read, seconds waited, most bytes held."""
        return dict(zip(("hits", "reads", "bytes_read", "waited_seconds", "peak_bytes"), self._data.stats()))

    def close(self) -> None:
        """Ends the threads and gives their memory back. The next loop starts them again."""
        self._data.close()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise Unsupported(
            "a Feed cannot be sent to another process: it has threads and open files",
            "DataLoader(feed, batch_size=None, num_workers=0), or make the Feed there",
        )

    def __repr__(self) -> str:
        return f"<lowtide.Feed of {self._data.samples} samples, batches of {self.batch_size}, {self._shuffle}>"


class _Loop(Iterator[Batch]):
    """A loop over a feed."""

    def __init__(self, feed: Feed, number: int, rank: int, world: int) -> None:
        self._feed, self._number = feed, number
        self._data = feed._data
        epoch, position = feed._begin
        self._end = epoch + 1 if feed.epochs is None else feed.epochs
        self._data.start(
            feed._shuffle,
            feed.seed,
            epoch=epoch,
            position=position,
            end=feed.epochs,
            rank=rank,
            ranks=world,
            batch=feed.batch_size,
            drop_last=feed.drop_last,
            # Into pinned memory a batch is put together once that memory is there.
            ahead=feed._pins is None,
        )

    def __next__(self) -> Batch:
        feed = self._feed
        if feed._loop != self._number:
            raise Unsupported(
                "another loop over this Feed has begun", "make a Feed for each loop that runs at the same time"
            )
        while feed._place[0] < self._end:
            pins = feed._pins
            taken, feed._place = self._data.take() if pins is None else pins.take(self._data)
            if taken is not None:
                return {name: _value(value) for name, value in taken.items()}
        feed._begin = feed._place
        raise StopIteration


class _Pins:
    """Pinned tensors into which fields are gathered, once it is known what a sample holds."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, list[int]]] = {}

    def take(self, data: _native.DataFeed) -> tuple[dict[str, Any] | None, tuple[int, int]]:
        samples = data.next_samples()
        tensors = {
            name: pinned((samples, *shape), getattr(torch, dtype)) for name, (dtype, shape) in self._seen.items()
        }
        taken, place = data.take([(name, *self._seen[name], tensor) for name, tensor in tensors.items()])
        if taken is None:
            return None, place
        batch: dict[str, Any] = {}
        for name, value in taken.items():
            if isinstance(value, _native.Part):
                self._seen[name] = (value.dtype, value.shape[1:])
            batch[name] = tensors[name] if value is None else _copied(value)
        return batch, place


def pinned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor in pinned memory, of whatever values."""
    return torch.empty(shape, dtype=dtype, pin_memory=True)


def _copied(value: Any) -> Any:
    if isinstance(value, _native.Part):
        tensor = tensor_of(value)
        return pinned(tuple(tensor.shape), tensor.dtype).copy_(tensor)
    return [_copied(item) for item in value] if isinstance(value, list) else value


def tensor_of(part: _native.Part) -> torch.Tensor:
    """The tensor that Rust has put together, without a copy."""
    # The capsule itself: `from_dlpack` of an object asks it for its device first, which takes as long again.
    tensor: torch.Tensor = from_dlpack(part.__dlpack__())
    return tensor.view(getattr(torch, part.dtype)) if part.is_raw else tensor


def _value(value: Any) -> Any:
    if isinstance(value, _native.Part):
        return tensor_of(value)
    return [_value(item) for item in value] if isinstance(value, list) else value


def _found_ranks() -> tuple[int, int]:
    """The rank of this process and how many there are."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    rank, world = _variable("RANK"), _variable("WORLD_SIZE")
    if rank is None or world is None:
        return 0, 1
    return _checked_ranks(rank, world) or (0, 1)


def _checked_ranks(rank: int | None, world: int | None) -> tuple[int, int] | None:
    if rank is None and world is None:
        return None
    if rank is None or world is None:
        raise LowtideError("rank and world_size go together", "give both, or none")
    if not 0 <= rank < world:
        raise LowtideError(f"there is no rank {rank} of {world}", "ranks are counted from 0")
    return rank, world


def _variable(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else None


def _positive(name: str, value: int) -> int:
    if not isinstance(value, int) or value < 1:
        raise LowtideError(f"{name} is {value!r}", "give a number from 1 on")
    return value


def _limit_bytes(limit: str | int) -> int:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        found = limit if isinstance(limit, int) else _native.limit_bytes(limit, total)
    except ValueError as error:
        raise BadLimit(str(error), 'give it as "2GiB" or "25%"') from None
    if found is None or found < 1:
        raise BadLimit(f"the limit is {limit!r}", 'a feed needs one: give it as "2GiB" or "25%"')
    return found


def _shuffle_text(shuffle: bool | int | str, data: _native.DataFeed) -> str:
    if shuffle is False:
        return "sequential"
    if shuffle is True:
        return f"window {data.window()}"
    if shuffle == "full":
        return "full"
    if isinstance(shuffle, int) and 1 <= shuffle < 1 << 32:
        return f"window {shuffle}"
    raise LowtideError(f"shuffle is {shuffle!r}", 'give True, False, "full", or a number of files')
