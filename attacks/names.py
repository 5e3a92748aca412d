"""Names and texts from outside that would steer a terminal, or show a name that is not there."""


import forge
from damage import CPU
from harness import attack

# What must not reach a terminal as it is: controls, and characters that turn the direction of what follows.
HOSTILE = {
    "a title": "a\x1b]0;owned\x07b",
    "a colour": "a\x1b[31mb",
    "a C1 control": "a\x9b31mb",
    "a return": "a\rb",
    "a backspace": "a\bb",
    "a turn of direction": "a\u202ecod.exe",
    "an isolate": "a\u2066b\u2069",
    "a mark": "a\u200fb",
    "a separator of lines": "a\u2028b",
}
RAW = ["\x1b", "\x07", "\x9b", "\r", "\b", "\u202e", "\u2066", "\u2069", "\u200f", "\u2028"]


def is_clean(place, words, ran):
    """Checks that what was printed has no control but the end of a line, and that something was."""
    text = ran.said
    raw = sorted({character for character in text if character in RAW})
    place.check(words, not raw and text.strip(), f"exit {ran.code}: raw {[hex(ord(character)) for character in raw]}: {ran.last_line!r:.160}")


@attack("names of files and folders, to every command that prints them")
def names_of_files(place):
    log = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB of which 1.10 GiB is free.\n"
    for kind, name in HOSTILE.items():
        is_clean(place, f"{kind}: data, not there", place.run("data", name))
        folder = place.fresh("folder")
        (folder / f"{name}.npy").write_bytes(forge.npy((4,), bytes(16)))
        is_clean(place, f"{kind}: data", place.run("data", folder / f"{name}.npy"))
        is_clean(place, f"{kind}: data of a folder", place.run("data", folder))
        (folder / f"{name}.npy").write_bytes(b"rubbish")
        is_clean(place, f"{kind}: data, damaged", place.run("data", folder / f"{name}.npy"))
        is_clean(place, f"{kind}: pack", place.run("pack", folder, "--out", place.path(f"{name}-out")))
        is_clean(place, f"{kind}: explain", place.run("explain", place.write(f"{name}.log", log)))
        is_clean(place, f"{kind}: explain, not there", place.run("explain", f"{name}.txt"))
        is_clean(place, f"{kind}: train", place.run("train", f"{name}.yaml"))
        is_clean(place, f"{kind}: eval", place.run("eval", name))
        is_clean(place, f"{kind}: watch", place.run("watch", name, patience=5))
        is_clean(place, f"{kind}: report", place.run("report", name))
        is_clean(place, f"{kind}: an argument", place.run("data", f"--{name}"))
        is_clean(place, f"{kind}: a command", place.run(name))
        is_clean(place, f"{kind}: run, not there", place.run("run", "--out", place.path("r1" + kind), "--", f"./{name}"))


@attack("texts in configurations, logs and data files")
def texts_in_files(place):
    for kind, text in HOSTILE.items():
        quoted = '"' + "".join(character if " " < character < "\x7f" else f"\\u{ord(character):04x}" for character in text) + '"'
        config = place.write("hostile.yaml", f"workload: {quoted}\n".encode())
        is_clean(place, f"{kind}: a workload", place.run("train", config, *CPU))
        config = place.write("key.yaml", f"workload: gpt\n{quoted}: 1\n".encode())
        is_clean(place, f"{kind}: a key", place.run("train", config, *CPU))
        config = place.write("value.yaml", f"workload: gpt\ntrain:\n  precision: {quoted}\n".encode())
        is_clean(place, f"{kind}: a value", place.run("train", config, *CPU))
        is_clean(place, f"{kind}: a setting", place.run("train", "gpt", "--set", f"train.precision={text}", *CPU))
        is_clean(place, f"{kind}: a device", place.run("train", "gpt", "--device", text))
        names = forge.safetensors({text: {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}, bytes(16))
        is_clean(place, f"{kind}: a tensor", place.run("data", place.write("named.safetensors", names)))
        value = forge.pt(forge.mapped([(text, forge.tensor(0, 4, (4,), (1,)))]), [bytes(16)])
        is_clean(place, f"{kind}: a key of a .pt", place.run("data", place.write("named.pt", value)))
        line = f'  File "/home/{text}/train.py", line 3, in {text}\n    x = {text}\n'.replace("\r", "")
        log = f"Traceback (most recent call last):\n{line}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB of which 1.10 GiB is free.\n"
        is_clean(place, f"{kind}: lines of a log", place.run("explain", place.write("train.log", log.encode())))
