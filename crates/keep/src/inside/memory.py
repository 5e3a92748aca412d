"""Writes down how memory ran out, from inside of the process, before it dies.

Run once the command has imported torch. PyTorch calls `Watch.asked` when its allocator finds no memory, before the error is raised;
an error that nobody catches comes to `Watch.ended`. Each writes a report: a JSON file with what was asked for, the stacks of all
threads and who holds what, for a process that ends its large variables too, and PyTorch's own snapshot of the allocator beside it, which its viewer reads.

A process has two reports at most, of the first time and of the last, because a script may catch the error and retry. Beyond the
first, reports may take a hundredth of the time. Sizes and numbers of files are bounded, files are there as a whole or not at all, and
nothing that fails here reaches the command.
"""
import json
import os
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
LARGEST_SNAPSHOT = 64 * MIB
LARGEST_FOLDER = 512 * MIB
MOST_FILES = 256
# A disk that is nearly full is left alone.
LEAST_FREE = 1024 * MIB
SHARE_OF_TIME = 0.01
MOST_THREADS = 16
MOST_FRAMES = 80
MOST_OBJECTS = 5_000_000
MOST_TENSORS = 12
LEAST_TENSOR = MIB
LONGEST_TEXT = 300
WORDS = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "DefaultCPUAllocator",
    "_STATUS_ALLOC_FAILED",
)


def ran_out(error):
    """The error that tells of memory: this one, or one that it came from."""
    for _ in range(8):
        if error is None:
            return None
        names = [kind.__name__ for kind in type(error).__mro__]
        if "OutOfMemoryError" in names or isinstance(error, MemoryError):
            return error
        if isinstance(error, RuntimeError) and any(words in str(error) for words in WORDS):
            return error
        error = error.__cause__ or error.__context__
    return None


def asked_bytes(message):
    """What the CPU's allocator was asked for, as its message says it."""
    before, found, after = message.partition("tried to allocate ")
    digits = after.split(" ", 1)[0] if found else ""
    return int(digits) if digits.isdigit() else None


def places(frame, line=None):
    """The frames of a stack from the outermost to the innermost, and their own objects."""
    found = []
    while frame is not None and len(found) < MOST_FRAMES:
        if not frame.f_code.co_filename.startswith(HERE):
            found.append((frame, line or frame.f_lineno))
        frame, line = frame.f_back, None
    return found[::-1]


def places_of(trace):
    found = []
    while trace is not None:
        found.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return found[-MOST_FRAMES:]


def shown(place):
    import linecache

    frame, line = place
    code = frame.f_code
    text = linecache.getline(code.co_filename, line, frame.f_globals).strip()
    file, text = code.co_filename[-LONGEST_TEXT:], text[:LONGEST_TEXT]
    return {"file": file, "line": line, "function": code.co_name[:LONGEST_TEXT], "code": text}


class Bounded:
    """A file that takes so many bytes and no more."""

    def __init__(self, file, most):
        self.file, self.left = file, most

    def write(self, data):
        self.left -= memoryview(data).nbytes
        if self.left < 0:
            raise OverflowError
        return self.file.write(data)


def write(path, fill):
    """Has a file filled and puts it into its place; whether it is there."""
    begun = "%s.%d.part" % (path, os.getpid())
    try:
        with open(begun, "wb") as file:
            fill(file)
        os.replace(begun, path)
        return True
    except Exception:
        if os.path.exists(begun):
            os.remove(begun)
        return False


class Tensors:
    """Tensors that Python can reach on a device: who holds how much, and which variables of a stack are large."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        self.kinds = {}
        self.seen = set()

    def size(self, tensor):
        """Bytes of a tensor's memory, and where that begins; `None` on another device."""
        if str(tensor.device) != self.device or tensor.layout != self.torch.strided:
            return None
        storage = tensor.untyped_storage()
        return storage.nbytes(), storage.data_ptr()

    def add(self, kind, tensor):
        try:
            if not issubclass(type(tensor), self.torch.Tensor):
                return
            size, start = self.size(tensor) or (0, 0)
            if size and start not in self.seen:
                self.seen.add(start)
                total = self.kinds.setdefault(kind, [0, 0])
                total[0] += size
                total[1] += 1
        except Exception:
            pass

    def holdings(self):
        import gc

        tensors, parameters, buffers, states = [], [], [], []
        module, optimizer = self.torch.nn.Module, self.torch.optim.Optimizer
        for thing in gc.get_objects()[:MOST_OBJECTS]:
            kind = type(thing)
            if issubclass(kind, self.torch.nn.Parameter):
                parameters.append(thing)
            elif issubclass(kind, self.torch.Tensor):
                tensors.append(thing)
            elif issubclass(kind, module):
                buffers.extend(thing.__dict__.get("_buffers", {}).values())
            elif issubclass(kind, optimizer):
                states.extend(thing.__dict__.get("state", {}).values())
        for parameter in parameters:
            self.add("parameters", parameter)
            self.add("gradients", parameter.grad)
        for state in states:
            for value in state.values() if isinstance(state, dict) else ():
                self.add("optimizer state", value)
        for kind, found in [("buffers", buffers), ("other tensors of Python", tensors)]:
            for tensor in found:
                self.add(kind, tensor)
        return [{"kind": kind, "bytes": size, "count": count} for kind, (size, count) in self.kinds.items()]

    def variables(self, places):
        """The large tensors among the variables of a stack that is over, the largest first."""
        found = {}
        for place in places:
            for name, value in list(place[0].f_locals.items()):
                try:
                    if not issubclass(type(value), self.torch.Tensor):
                        continue
                    size, start = self.size(value) or (0, 0)
                    if size >= LEAST_TENSOR:
                        shape, dtype = list(value.shape), str(value.dtype).replace("torch.", "")
                        tensor = {"name": name[:LONGEST_TEXT], "shape": shape, "dtype": dtype, "bytes": size}
                        found[start] = dict(tensor, **shown(place))
                except Exception:
                    pass
        return sorted(found.values(), key=lambda it: -it["bytes"])[:MOST_TENSORS]


class Watch:
    def __init__(self, torch, settings):
        self.torch, self.settings = torch, settings
        self.begun = time.monotonic()
        self.spent = 0.0
        self.count = 0
        self.last = None
        self.ends = 0
        self.lock = threading.Lock()

    def begin(self):
        """Asks to be called. Where the process never uses a card, its library is not touched."""
        hook, thread_hook = sys.excepthook, threading.excepthook

        def excepthook(kind, error, trace):
            try:
                hook(kind, error, trace)
            finally:
                self.ended(error)

        def in_thread(args):
            try:
                thread_hook(args)
            finally:
                self.ended(args.exc_value)

        sys.excepthook, threading.excepthook = excepthook, in_thread
        import atexit

        # Where a script has put its own hook in the place of ours.
        atexit.register(lambda: self.ended(getattr(sys, "last_value", None)))
        self.torch.cuda._lazy_call(self.attach)

    def attach(self):
        try:
            self.torch._C._cuda_attach_out_of_memory_observer(self.asked)
        except Exception:
            pass
        try:
            if self.settings["history"]:
                self.torch.cuda.memory._record_memory_history("state", context="state", stacks="python")
                self.end_history_after(self.settings["history_seconds"])
        except Exception:
            pass

    def end_history_after(self, seconds):
        """Where nothing goes wrong for so long, what the history costs in each allocation is not to be paid for hours."""
        if seconds is None:
            return
        timer = threading.Timer(seconds, lambda: self.torch.cuda.memory._record_memory_history(None))
        timer.daemon = True
        timer.start()

    def asked(self, device, asked, limit, free, *_):
        """Called by the allocator, in the thread that asked, before the error is raised."""
        begun = time.monotonic()
        # A report that meets the limit itself is none, and one that another thread is writing is enough.
        if not self.lock.acquire(False):
            return
        try:
            self.count += 1
            facts = {"asked_bytes": asked, "limit_bytes": limit, "free_bytes": free, "device": "cuda:%d" % device}
            self.last = dict(facts, count=self.count)
            if self.count > 1 and self.spent > SHARE_OF_TIME * (begun - self.begun):
                return
            asking = threading.get_ident()
            stacks = {number: places(frame) for number, frame in sys._current_frames().items()}
            self.last = self.report(self.last, stacks, asking)
        except Exception:
            pass
        finally:
            self.spent += time.monotonic() - begun
            self.lock.release()

    def ended(self, error):
        """Called with an error that ends the process or a thread of it."""
        try:
            error = ran_out(error)
            # A mark, for whoever held the error would hold its frames with their tensors.
            if error is None or hasattr(error, "_lowtide_written") or not self.lock.acquire(False):
                return
            begun = time.monotonic()
            try:
                error._lowtide_written = True
                self.ends += 1
                if self.ends > 1 and self.spent > SHARE_OF_TIME * (begun - self.begun):
                    return
                message = str(error)[: 20 * LONGEST_TEXT]
                is_host = isinstance(error, MemoryError) or "DefaultCPUAllocator" in message
                if self.last is None or is_host:
                    self.count += 1
                    device = "cpu" if is_host else self.card()
                    self.last = {"device": device, "asked_bytes": asked_bytes(message), "count": self.count}
                facts = dict(self.last, error=type(error).__name__ + ": " + message)
                stack = places_of(error.__traceback__)
                if "threads" not in facts:
                    asking = threading.get_ident()
                    facts = self.report(facts, {asking: stack}, asking)
                # Only now: a frame keeps what it was asked for, and a script that goes on would keep those tensors.
                facts["variables"] = Tensors(self.torch, facts["device"]).variables(stack)
                self.save(facts)
            finally:
                self.spent += time.monotonic() - begun
                self.lock.release()
        except Exception:
            pass

    def card(self):
        """The card of this thread, where one is in use: libraries ask for memory of their own, past the allocator."""
        try:
            if self.torch.cuda.is_initialized():
                return "cuda:%d" % self.torch.cuda.current_device()
        except Exception:
            pass
        return "cpu"

    def report(self, facts, stacks, asking):
        facts = dict(facts, schema=1, start=self.settings["start"], history=bool(self.settings["history"]))
        facts.update(pid=os.getpid(), time=time.time())
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
            text = os.environ.get(name, "")
            facts[name.lower()] = int(text) if text.isdigit() else None
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        main = threading.main_thread().ident
        order = sorted(stacks, key=lambda it: (it != asking, it != main))[:MOST_THREADS]
        facts["threads"] = [
            {
                "name": str(names.get(number, number))[:LONGEST_TEXT],
                "asks": number == asking,
                "main": number == main,
                "frames": [shown(place) for place in stacks[number]],
            }
            for number in order
        ]
        # Written at once, and again with what takes longer.
        facts["file"] = "start-%d-rank-%s-%d-%s" % (
            self.settings["start"],
            "none" if facts["rank"] is None else facts["rank"],
            os.getpid(),
            "first" if facts["count"] <= 1 else "last",
        )
        self.save(facts)
        self.add_snapshot(facts)
        try:
            facts["holders"] = Tensors(self.torch, facts["device"]).holdings()
        except Exception:
            pass
        self.save(facts)
        return facts

    def save(self, facts):
        folder = self.settings["folder"]
        path = os.path.join(folder, facts["file"] + ".json")
        os.makedirs(folder, exist_ok=True)
        if os.path.exists(path) or len(os.listdir(folder)) < MOST_FILES:
            text = json.dumps(dict(facts, file=None))
            write(path, lambda file: file.write(text.encode()))

    def add_snapshot(self, facts):
        if not facts["device"].startswith("cuda"):
            return
        import pickle

        folder = self.settings["folder"]
        name = facts["file"] + ".pickle"
        sizes = [entry.stat().st_size for entry in os.scandir(folder) if entry.name != name]
        disk = os.statvfs(folder)
        if sum(sizes) > LARGEST_FOLDER or disk.f_bavail * disk.f_frsize < LEAST_FREE:
            return
        memory = self.torch.cuda.memory
        number = int(facts["device"][5:])
        facts["allocated_bytes"] = memory.memory_allocated(number)
        facts["reserved_bytes"] = memory.memory_reserved(number)
        snapshot = memory._snapshot()
        for attempt in range(2):
            if write(os.path.join(folder, name), lambda file: pickle.dump(snapshot, Bounded(file, LARGEST_SNAPSHOT), 4)):
                facts["snapshot"] = name
                return
            # Past events take the most room, and are needed least.
            snapshot["device_traces"] = []


def begin():
    if os.environ.get("LOWTIDE_WATCH_MEMORY", "").lower() in ("off", "0", "no", "false"):
        return
    with open(os.path.join(HERE, "memory.json")) as file:
        settings = json.load(file)
    Watch(sys.modules["torch"], settings).begin()


begin()
