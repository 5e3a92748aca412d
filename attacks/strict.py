"""Files that the formats' own readers refuse."""

import forge
from harness import attack

ROW = bytes(16)


def refused(place, name, data, why):
    file = place.write(name, data)
    ran = place.run("data", file)
    place.check(why, ran.code == 2 and name in ran.said, f"exit {ran.code}: {ran.last_line}")


def taken(place, name, data, why):
    file = place.write(name, data)
    ran = place.run("data", "--sums", file)
    place.check(why, ran.code == 0, f"exit {ran.code}: {ran.last_line}")


def entry(begin, end, shape=(4,), dtype="F32"):
    return f'{{"dtype":"{dtype}","shape":{list(shape)},"data_offsets":[{begin},{end}]}}'


@attack("safetensors that safetensors refuses")
def safetensors(place):
    taken(place, "good.safetensors", forge.safetensors(f'{{"a":{entry(0, 16)},"b":{entry(16, 32)}}}', ROW * 2), "an honest one is taken")
    cases = {
        "a key twice": (f'{{"a":{entry(0, 16)},"a":{entry(16, 32)}}}', ROW * 2),
        "two tensors at one place": (f'{{"a":{entry(0, 16)},"b":{entry(0, 16)}}}', ROW),
        "tensors that overlap": (f'{{"a":{entry(0, 16)},"b":{entry(8, 24)}}}', ROW + ROW[:8]),
        "a hole between tensors": (f'{{"a":{entry(0, 16)},"b":{entry(20, 36)}}}', ROW * 3),
        "a hole before the first": (f'{{"a":{entry(4, 20)}}}', ROW * 2),
        "bytes behind the end": (f'{{"a":{entry(0, 16)}}}', ROW + b"more"),
        "an end before the beginning": (f'{{"a":{entry(16, 0)}}}', ROW),
        "a shape that does not fit": (f'{{"a":{entry(0, 16, (5,))}}}', ROW),
        "a shape whose product runs over": (f'{{"a":{entry(0, 16, (1 << 62, 1 << 62))}}}', ROW),
        "a type nobody has": (f'{{"a":{entry(0, 16, dtype="F33")}}}', ROW),
        "metadata that is no text": (f'{{"__metadata__":{{"a":1}},"a":{entry(0, 16)}}}', ROW),
        "two metadata": (f'{{"__metadata__":{{"a":"1"}},"__metadata__":{{"a":"2"}},"a":{entry(0, 16)}}}', ROW),
        "a field twice": ('{"a":{"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16]}}', ROW),
        "junk behind the header": (f'{{"a":{entry(0, 16)}}}x', ROW),
        "a header that is no object": ("[]", ROW),
        "a header cut short": (f'{{"a":{entry(0, 16)}', ROW),
    }
    for number, (why, (header, data)) in enumerate(cases.items()):
        refused(place, f"bad{number}.safetensors", forge.safetensors(header, data), why)


@attack(".npy that numpy refuses")
def npy(place):
    good = "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }"
    taken(place, "good.npy", forge.npy((4,), ROW, header=good), "an honest one is taken")
    cases = {
        "junk behind the dict": good + "junk",
        "another dict behind it": good + good,
        "a number behind it": good + " 3",
        "an operator behind it": good + " or 1",
        "a key too many": good.replace(", }", ", 'more': 1}"),
        "a key too few": "{'descr': '<f4', 'fortran_order': False}",
        "no dict": "('<f4', False, (4,))",
        "a call": "dict(descr='<f4', fortran_order=False, shape=(4,))",
        "a shape that is a list": good.replace("(4,)", "[4]"),
        "a shape that is a number": good.replace("(4,)", "(4)"),
        "a negative shape": good.replace("(4,)", "(-4,)"),
        "an order that is a number": good.replace("False", "0"),
        "a comma too many": good.replace("'<f4',", "'<f4',,"),
        "a quote left open": good.replace("'<f4'", "'<f4"),
        "a shape beyond all": good.replace("(4,)", "(4611686018427387904, 4)"),
    }
    for number, (why, header) in enumerate(cases.items()):
        refused(place, f"bad{number}.npy", forge.npy((4,), ROW, header=header), why)
    refused(place, "short.npy", forge.npy((5,), ROW), "data cut short")
