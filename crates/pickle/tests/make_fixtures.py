"""Writes fixtures/pickles.json: values, and the pickles that Python makes of them at every protocol.

Run with Python 3.11 from anywhere: `python3 crates/pickle/tests/make_fixtures.py`. The tests need only the file.

What a value is written as, where JSON has no word for it: {"tuple": [...]}, {"dict": [[key, value], ...]},
{"set": [...]}, {"frozenset": [...]}, {"bytes": hex}, {"bytearray": hex}, {"float": bits in hex},
{"int": decimal beyond 64 bits},
{"surrogates": hex}, {"object": "module.name", "args": [...], "state": ..., "items": [...], "pairs": [...]}.
"""

import collections
import fractions
import json
import pathlib
import pickle
import random
import struct
import sys
import types

HERE = pathlib.Path(__file__).parent
Point = collections.namedtuple("Point", "x y")


class Plain:
    def __init__(self, **fields):
        self.__dict__.update(fields)


class Words(list):
    pass


class Table(dict):
    pass


class Keywords:
    def __new__(cls, *, size):
        return super().__new__(cls)

    def __getnewargs_ex__(self):
        return (), {"size": 3}


# Pickle looks the classes up in their module, so there has to be one.
sys.modules["models"] = types.ModuleType("models")
for cls in (Plain, Words, Table, Keywords, Point):
    cls.__module__ = "models"
    setattr(sys.modules["models"], cls.__name__, cls)


def written(value):
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else {"int": str(value)}
    if isinstance(value, float):
        return {"float": struct.pack(">d", value).hex()}
    if isinstance(value, str):
        try:
            value.encode()
            return value
        except UnicodeEncodeError:
            return {"surrogates": value.encode("utf-8", "surrogatepass").hex()}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, bytearray):
        return {"bytearray": value.hex()}
    if type(value) is list:
        return [written(item) for item in value]
    if type(value) is tuple:
        return {"tuple": [written(item) for item in value]}
    if type(value) is dict:
        return {"dict": [[written(key), written(item)] for key, item in value.items()]}
    if type(value) is set:
        return {"set": [written(item) for item in value]}
    if type(value) is frozenset:
        return {"frozenset": [written(item) for item in value]}
    raise TypeError(type(value))


def random_value(rng, depth):
    kind = rng.randrange(8 if depth == 0 else 13)
    match kind:
        case 0:
            return rng.choice([None, True, False])
        case 1:
            return rng.randrange(-300, 300)
        case 2:
            return rng.randrange(-(2**40), 2**40)
        case 3:
            return rng.randrange(-(2**120), 2**120)
        case 4:
            return rng.choice([rng.random(), -1e300, float("inf"), float("nan"), -0.0])
        case 5:
            return "".join(rng.choice("ab \\'\n\r\0\x1aé€😀\ud800") for _ in range(rng.randrange(12)))
        case 6:
            return rng.randbytes(rng.randrange(300))
        case 7:
            return bytearray(rng.randbytes(rng.randrange(9)))
        case 8 | 9:
            return [random_value(rng, depth - 1) for _ in range(rng.randrange(6))]
        case 10:
            return tuple(random_value(rng, depth - 1) for _ in range(rng.randrange(6)))
        case 11:
            keys = [rng.choice([index, str(index), (index,)]) for index in range(rng.randrange(6))]
            return {key: random_value(rng, depth - 1) for key in keys}
        case _:
            return rng.choice([set, frozenset])(rng.randrange(1000) for _ in range(rng.randrange(6)))


def plain_values():
    edges = [0, 1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64, 2**127 - 1, 2**127]
    around = {sign * edge + step for edge in edges for sign in (1, -1) for step in (-1, 0, 1)}
    yield "integers", sorted(number for number in around if -(2**127) <= number < 2**127)
    yield "floats", [0.0, -0.0, 1.5, -1e-300, 5e-324, 1.7976931348623157e308, float("inf"), float("-inf"), float("nan")]
    yield "scalars", [None, True, False, {"none": None}]
    quotes = "'quoted\""
    yield "strings", ["", "a", "back\\slash", "\\u0041", "line\nend\r\0\x1a", "é€😀", "x" * 300, quotes, "\ud800 only"]
    yield "bytes", [b"", b"a", bytes(range(256)), b"x" * 300, bytearray(), bytearray(b"abc"), bytearray(range(256))]
    yield "tuples", [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), tuple(range(300))]
    yield "containers", {"list": [], "inner": [[[]], {}], "dict": {1: {2: {3: None}}}, (1, 2): "tuple", None: 0, 1.5: 1}
    yield "sets", [set(), {1}, set(range(40)), frozenset(), frozenset({1, 2}), {frozenset({1}), frozenset()}]
    yield "batches", [[None] * 1001, dict.fromkeys(range(1001)), set(range(1001))]
    rng = random.Random(7)
    for index in range(24):
        yield f"random {index}", random_value(rng, 4)


def objects():
    def thing(name, args, **more):
        return {"object": name, "args": args} | more

    state = {"dict": [["a", 1], ["b", [2]]]}
    ordered = thing("collections.OrderedDict", [], pairs=[["a", 1], ["b", 2]])
    yield "ordered dict", collections.OrderedDict(a=1, b=2), ordered, 2
    yield "named tuple", Point(1, 2), thing("models.Point", [1, 2]), 2
    yield "named tuple, old", Point(1, 2), thing("models.Point", [{"tuple": [1, 2]}]), 0
    yield "plain", Plain(a=1, b=[2]), thing("models.Plain", [], state=state), 0
    yield "words", Words(["x", "y"]), thing("models.Words", [], items=["x", "y"]), 2
    yield "table", Table(x=1), thing("models.Table", [], pairs=[["x", 1]]), 2
    yield "keywords", Keywords(size=3), thing("models.Keywords", [], kwargs={"dict": [["size", 3]]}), 4
    yield "complex", 1 - 2j, thing("builtins.complex", [written(1.0), written(-2.0)]), 0
    yield "fraction", fractions.Fraction(1, 3), thing("fractions.Fraction", [1, 3]), 4


def main():
    cases = []
    for name, value in plain_values():
        pickles = [pickle.dumps(value, protocol).hex() for protocol in range(6)]
        cases.append({"name": name, "expect": written(value), "from": 0, "pickles": pickles})
    for name, value, expect, lowest in objects():
        highest = 1 if name.endswith("old") else 5
        pickles = [pickle.dumps(value, protocol).hex() for protocol in range(lowest, highest + 1)]
        cases.append({"name": name, "expect": expect, "from": lowest, "pickles": pickles})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (HERE / "fixtures").mkdir(exist_ok=True)
    (HERE / "fixtures" / "pickles.json").write_text(f"[\n{lines}\n]\n")


main()
