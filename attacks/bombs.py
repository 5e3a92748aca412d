"""Small files that decode to everything: all memory, or all of the disk, if what they say were believed."""

import pathlib
import zipfile

import forge
from harness import attack

GIGA = 1 << 30


def through_all_commands(place, name, data):
    """Hands a file to whatever reads data files. Listing it may succeed, since that reads no values."""
    engine = "folder"
    folder = place.fresh(engine)
    file = folder / name
    file.write_bytes(data)
    good = honest_files(place)
    suffix = "".join(pathlib.Path(name).suffixes)
    small = good / f"honest{suffix}"
    for words in (["data"], ["data", "--json"], ["data", "--sums"]):
        base = place.honest(*words, small)
        place.is_bounded(f"{' '.join(words)} {name}", place.run(*words, file), base)
    base = place.honest("data", "--host-limit", "600MiB", honest_folder(place))
    place.is_bounded(f"data --host-limit on its folder ({name})", place.run("data", "--host-limit", "600MiB", folder), base)
    base = packed_honestly(place, small)
    ran = place.run("pack", file, "--out", place.path("packed"))
    place.is_refused(f"pack {name}", ran, base, name)
    written = sum(path.stat().st_size for path in place.path("packed").glob("*") if path.is_file()) if place.path("packed").is_dir() else 0
    place.check(f"pack {name} writes nothing", written < 1 << 20, f"{written} bytes")
    base = place.honest(*training(honest_folder(place), place.path("base-run")))
    ran = place.run(*training(folder, place.path("run")))
    place.is_refused(f"train scoring --host-limit 600MiB with {name}", ran, base, name)


def training(folder, out):
    few = ["--set", "train.steps=2", "--set", "train.batch=4", "--set", "model.run=[lstm]"]
    return ["train", "scoring", "--preprocessed-dir", folder, "--host-limit", "600MiB", "--device", "cpu", "--out", out, *few]


def honest_files(place):
    """One honest file of each kind."""
    folder = place.folder.parent / f"{place.folder.name}-honest"
    if "files" not in place.shared:
        folder.mkdir()
        place.shared["files"] = folder
        place.shared.setdefault("folders", []).append(folder)
        row = bytes(16)
        (folder / "honest.npy").write_bytes(forge.npy((4, 4), row * 4))
        (folder / "honest.npz").write_bytes(forge.zipped([("a.npy", forge.npy((4, 4), row * 4))]))
        one = forge.listed([forge.tensor(0, 16, (4, 4), (4, 1))])
        (folder / "honest.pt").write_bytes(forge.pt(one, [row * 4]))
        (folder / "honest.pkl").write_bytes(forge.pickled(forge.listed([forge.mapped([("a", forge.whole(1))])])))
        (folder / "honest.pkl.gz").write_bytes(forge.gzipped_parts([(forge.pickled(forge.mapped([("a", forge.whole(1))])), 1)]))
        head = {"a": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}}
        (folder / "honest.safetensors").write_bytes(forge.safetensors(head, row * 4))
    return place.shared["files"]


def honest_folder(place):
    """A folder that scoring trains on."""
    if "samples" not in place.shared:
        folder = honest_files(place).parent / f"{honest_files(place).name}-samples"
        ran = place.run("generate", "scoring", "--out", folder, "--samples", "24", "--per-file", "8")
        assert ran.code == 0, ran.said
        place.shared["samples"] = folder
        place.shared["folders"].append(folder)
    return place.shared["samples"]


def packed_honestly(place, file):
    out = file.with_name(file.name + "-packed")
    return place.honest("pack", file, "--out", out)


@attack("rows of no bytes, 2^63 - 1 of them")
def empty_rows(place):
    through_all_commands(place, "rows.npy", forge.npy(((1 << 63) - 1, 0)))


@attack("rows of no bytes behind a dimension of nothing, and ten thousand million of them")
def empty_inner_rows(place):
    through_all_commands(place, "rows.npy", forge.npy((10_000_000_000, 3, 0, 7)))


@attack("rows of no bytes in a .npz, .safetensors and .pt")
def empty_rows_elsewhere(place):
    through_all_commands(place, "rows.npz", forge.zipped([("a.npy", forge.npy(((1 << 62), 0)))]))
    head = {"a": {"dtype": "F32", "shape": [1 << 62, 0], "data_offsets": [0, 0]}}
    through_all_commands(place, "rows.safetensors", forge.safetensors(head))
    through_all_commands(place, "rows.pt", forge.pt(forge.tensor(0, 1, (1 << 40, 0), (0, 1)), [bytes(4)]))


@attack("four samples of 2^30 floats that are one float, by a stride of 0")
def stride_zero(place):
    one = forge.tensor(0, 1, (GIGA,), (0,))
    through_all_commands(place, "wide.pt", forge.pt(forge.listed([one] * 4), [bytes(4)]))


@attack("a tensor of 2^30 rows that are one row, and of rows that overlap")
def overlapping_rows(place):
    through_all_commands(place, "rows.pt", forge.pt(forge.tensor(0, 4, (GIGA, 4), (0, 1)), [bytes(16)]))
    long = forge.tensor(0, 1 << 16, (1 << 15, 1 << 15), (1, 1))
    through_all_commands(place, "steps.pt", forge.pt(forge.listed([long] * 8), [bytes(1 << 18)]))


@attack("meta tensors, which have a shape and no values")
def meta(place):
    through_all_commands(place, "meta.pt", forge.pt(forge.listed([forge.meta_tensor((GIGA, 1 << 10), (1 << 10, 1))] * 4), [bytes(4)]))


@attack("2,000 entries of a .npz that are the same bytes of the file")
def shared_entries(place):
    data = forge.npy((750_000,), bytes(3_000_000))
    through_all_commands(place, "shared.npz", forge.overlapping_npz(2000, data))


@attack("samples that are all the same large tensor")
def shared_storage(place):
    one = forge.tensor(0, 250_000, (250_000,), (1,))
    through_all_commands(place, "same.pt", forge.pt(forge.listed([one] * 4000), [bytes(1_000_000)]))


@attack("a gigabyte of zeros, deflated to a megabyte: .npz, .pt and .pkl.gz")
def zeros(place):
    head = forge.npy((GIGA // 4,))

    def entry(file):
        file.write(head)
        forge.zeros(GIGA)(file)

    through_all_commands(place, "zeros.npz", forge.zipped([("a.npy", entry)], zipfile.ZIP_DEFLATED))
    value = forge.tensor(0, GIGA // 4, (16, GIGA // 64), (GIGA // 64, 1))
    through_all_commands(place, "zeros.pt", forge.pt(value, [forge.zeros(GIGA)], zipfile.ZIP_DEFLATED))
    blob = b"\x80\x04]\x8e" + (GIGA).to_bytes(8, "little")
    through_all_commands(place, "zeros.pkl.gz", forge.gzipped_parts([(blob, 1), (bytes(1 << 10), 1 << 20), (b"a.", 1)]))


@attack("a pickle of nothing but empty lists, gzipped to 30 KB")
def empty_lists(place):
    through_all_commands(place, "lists.pkl.gz", forge.repeated_pickle(b"]", 30_000_000))


@attack("pickles of empty tuples, dicts, small numbers, and notes of all of them")
def small_values(place):
    for name, opcodes in (("tuples", b")"), ("dicts", b"}"), ("numbers", b"K\1"), ("nested", b"]]a"), ("noted", b"]\x94")):
        through_all_commands(place, f"{name}.pkl.gz", forge.repeated_pickle(opcodes, 20_000_000))


@attack("25 MB of empty lists in a .pt under a host line of 400 MiB")
def empty_lists_in_pt(place):
    file = place.write("folder/lists.pt", forge.pt(b"](" + b"]" * 25_000_000 + b"e"))
    base = place.honest("data", "--host-limit", "400MiB", honest_folder(place))
    place.is_refused("data --host-limit 400MiB", place.run("data", "--host-limit", "400MiB", file.parent), base, "lists.pt")
    line = ["--host-limit", "400MiB", "--device", "cpu"]
    ran = place.run("train", "scoring", "--preprocessed-dir", file.parent, "--out", place.path("run"), *line)
    place.is_refused("train scoring --host-limit 400MiB", ran, place.honest(*training(honest_folder(place), place.path("base-run"))), "lists.pt")


@attack("zip files inside of zip entries' sizes: sizes that the directory makes up")
def made_up_sizes(place):
    data = bytearray(forge.zipped([("a.npy", forge.npy((4, 4), bytes(64)))]))
    # The size of the entry, in its head and in the directory: 4 GiB less a few.
    for signature, at in ((b"PK\3\4", 18), (b"PK\1\2", 20)):
        start = data.find(signature) + at
        data[start : start + 8] = b"\xf0\xff\xff\xff" * 2
    through_all_commands(place, "sizes.npz", bytes(data))


@attack("ordinary compressed files are read in one pass")
def honest_compressed(place):
    side = 5000
    head = forge.npy((side, side), order=True)

    def entry(file):
        file.write(head)
        forge.zeros(side * side * 4)(file)

    file = place.write("fortran.npz", forge.zipped([("a.npy", entry)], zipfile.ZIP_DEFLATED))
    for words in (["--sums"], ["--json"]):
        ran = place.run("data", *words, file)
        place.check(f"data {words[0]} of {file.stat().st_size} bytes", ran.code == 0 and ran.busy < 6, f"exit {ran.code}, {ran.busy:.1f} s, {ran.peak >> 20} MiB: {ran.last_line[:100]}")
    row = forge.called("numpy.core.multiarray", "_reconstruct", forge.named("numpy", "ndarray"), forge.several([forge.whole(0)]), b"C\1b")
    kind = forge.called("numpy", "dtype", forge.text("f4"), b"\x89", b"\x88") + forge.several([forge.whole(3), forge.text("<"), b"N", b"N", b"N", b"J\xff\xff\xff\xff", b"J\xff\xff\xff\xff", forge.whole(0)]) + b"b"
    array = row + forge.several([forge.whole(1), forge.several([forge.whole(256)]), kind, b"\x89", b"B" + (1024).to_bytes(4, "little") + bytes(range(256)) * 4]) + b"b"
    file = place.write("arrays.pkl.gz", forge.repeated_pickle(array, 8000))
    for words in (["--sums"], ["--json"]):
        ran = place.run("data", *words, file)
        place.check(f"data {words[0]} of 8,000 arrays", ran.code == 0 and ran.busy < 6, f"exit {ran.code}, {ran.busy:.1f} s, {ran.peak >> 20} MiB: {ran.last_line[:100]}")
