"""Memory snapshots of PyTorch that are none, for `lowtide replay` and `lowtide explain --snapshot`."""

import gzip
import pickle
import random

import forge
from harness import attack


def history(count):
    """An honest snapshot of some events."""
    entries = []
    for index in range(count):
        place = {"addr": 1 << 40 | index << 21, "size": 4096, "stream": 0}
        entries += [{"action": "segment_alloc", **place, "size": 2 << 20}, {"action": "alloc", **place}]
    return {"segments": [], "device_traces": [entries]}


def through_both(place, name, data):
    honest = place.path("honest.pickle")
    honest.write_bytes(pickle.dumps(history(50)))
    file = place.path(name)
    file.write_bytes(data)
    base = place.honest("replay", honest)
    place.is_refused(f"replay {name}", place.run("replay", file), base, name)
    place.is_refused(f"replay --html {name}", place.run("replay", file, "--html", place.path("page.html")), base, name)
    place.check(f"no page of {name}", not place.path("page.html").exists(), "a page")
    place.is_refused(f"explain --snapshot {name}", place.run("explain", "--snapshot", file), base, name)


@attack("a snapshot that would call something")
def calls(place):
    through_both(place, "calls.pickle", b"cos\nsystem\n(S'touch called'\ntR.")


@attack("lists of lists of lists, 2^90 in all")
def laughs(place):
    data = b"\x80\x02]q\x00" + b"".join(b"](" + b"h" + bytes([level]) + b"h" + bytes([level]) + b"eq" + bytes([level + 1]) for level in range(90)) + b"."
    through_both(place, "laughs.pickle", data)


@attack("one trace that stands for thousands of devices")
def shared(place):
    entry = {"action": "snapshot", "addr": 0, "size": 0}
    trace = [dict(entry) for _ in range(1000)]
    through_both(place, "shared.pickle", pickle.dumps({"segments": [], "device_traces": [trace] * 4000}))


@attack("a packed snapshot of nothing but zeros, and one that is cut")
def packed(place):
    through_both(place, "zeros.pickle.gz", forge.gzipped_parts([(b"\x80\x02](" + bytes(1 << 20), 1), (bytes(1 << 20), 64)]))
    through_both(place, "cut.pickle.gz", gzip.compress(pickle.dumps(history(1000)))[:-200])


@attack("a history with sizes and addresses that no device has")
def sizes(place):
    honest = place.path("honest.pickle")
    honest.write_bytes(pickle.dumps(history(50)))
    base = place.honest("replay", honest)
    for number in (0, 1 << 62, (1 << 64) - 1, 1 << 80, -1):
        entries = [{"action": "alloc", "addr": 1 << 40, "size": number, "stream": 0}]
        file = place.path(f"size-{number}.pickle")
        file.write_bytes(pickle.dumps({"segments": [], "device_traces": [entries]}))
        place.is_refused(f"replay a request of {number} bytes", place.run("replay", file), base, file.name)


@attack("random bytes")
def noise(place):
    generator = random.Random(7)
    for number in range(5):
        through_both(place, f"noise-{number}.pickle", b"\x80\x02" + generator.randbytes(4000))
