"""Makes the files of the attacks: tensor files, pictures and pickles, byte by byte, with nothing but Python itself.

Honest files are made here too, so that a refusal can be compared with what is taken.
"""

import gzip
import io
import json
import struct
import zipfile
import zlib


def npy(shape, data=b"", dtype="<f4", order=False, header=None, version=1):
    """A .npy file. `header` replaces the text of its dict."""
    text = header if header is not None else f"{{'descr': '{dtype}', 'fortran_order': {order}, 'shape': {shape!r}, }}"
    length = 2 if version == 1 else 4
    fill = -(len(text) + 1 + 8 + length) % 64
    text = text.encode() + b" " * fill + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(length, "little") + text + data


def zipped(entries, method=zipfile.ZIP_STORED):
    """A zip file of (name, bytes) pairs; an entry may also be a function that writes to an open entry."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in entries:
            with archive.open(zipfile.ZipInfo(name) if method == zipfile.ZIP_STORED else compressed(name), "w") as entry:
                data(entry) if callable(data) else entry.write(data)
    return file.getvalue()


def compressed(name):
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def zeros(size):
    """Writes so many zeros, a piece at a time."""

    def write(file):
        piece = bytes(1 << 20)
        left = size
        while left:
            left -= file.write(piece[: min(left, len(piece))])

    return write


def overlapping_npz(count, data):
    """A .npz whose entries all are the same bytes of the file: one local entry, `count` names for it."""
    local_name = b"a00000.npy"
    head = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 0, 0, 0, zlib.crc32(data), len(data), len(data), len(local_name), 0)
    body = head + local_name + data
    directory = b""
    for number in range(count):
        name = b"a%05d.npy" % number
        fields = (20, 20, 0, 0, 0, 0, zlib.crc32(data), len(data), len(data), len(name), 0, 0, 0, 0, 0, 0)
        directory += struct.pack("<4s6H3L5H2L", b"PK\1\2", *fields) + name
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(directory), len(body), 0)
    return body + directory + end


# Pickles: a value is the bytes that put it onto the stack.


def text(word):
    word = word.encode()
    return b"X" + struct.pack("<I", len(word)) + word


def whole(number):
    if 0 <= number < 256:
        return b"K" + bytes([number])
    if -(1 << 31) <= number < 1 << 31:
        return b"J" + struct.pack("<i", number)
    size = number.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + number.to_bytes(size, "little", signed=True)


def several(values):
    return b"(" + b"".join(values) + b"t"


def listed(values):
    return b"](" + b"".join(values) + b"e"


def mapped(pairs):
    return b"}(" + b"".join(text(key) + value for key, value in pairs) + b"u"


def named(module, name):
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def called(module, name, *arguments):
    return named(module, name) + several(arguments) + b"R"


def tensor(storage, numel, shape, stride, offset=0, kind="FloatStorage"):
    """A tensor as torch.save writes it: a view of a storage that is another entry of the zip file."""
    place = several([text("storage"), named("torch", kind), text(str(storage)), text("cpu"), whole(numel)]) + b"Q"
    sizes = several([whole(size) for size in shape])
    strides = several([whole(step) for step in stride])
    hooks = called("collections", "OrderedDict")
    return called("torch._utils", "_rebuild_tensor_v2", place, whole(offset), sizes, strides, b"\x89", hooks)


def meta_tensor(shape, stride):
    sizes = several([whole(size) for size in shape])
    strides = several([whole(step) for step in stride])
    return called("torch._utils", "_rebuild_meta_tensor_no_storage", named("torch", "float32"), sizes, strides, b"\x89")


def pt(value, storages=(), method=zipfile.ZIP_STORED):
    """What torch.save writes: the pickle of `value` and its storages."""
    entries = [("archive/data.pkl", b"\x80\x02" + value + b".")]
    entries += [(f"archive/data/{number}", data) for number, data in enumerate(storages)]
    return zipped([*entries, ("archive/version", b"3\n"), ("archive/byteorder", b"little")], method)


def pickled(value):
    return b"\x80\x02" + value + b"."


def repeated_pickle(opcodes, count):
    """A list of `count` times the same opcodes, gzipped; made without ever being in memory as a whole."""
    return gzipped_parts([(b"\x80\x02](", 1), (opcodes, count), (b"e.", 1)])


def gzipped_parts(parts):
    file = io.BytesIO()
    with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as out:
        for piece, count in parts:
            many = piece * min(count, 1 << 16)
            while count:
                now = min(count, 1 << 16)
                out.write(many[: now * len(piece)])
                count -= now
    return file.getvalue()


def safetensors(header, data=b""):
    head = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(head)) + head + data


def png(width, height, pixels=None):
    """A grey picture of 8 bits."""
    pixels = pixels or bytes((7 * x + 3 * y) % 256 for y in range(height) for x in range(width))
    rows = b"".join(b"\0" + pixels[y * width : (y + 1) * width] for y in range(height))
    chunks = [(b"IHDR", struct.pack(">2L5B", width, height, 8, 0, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    body = b"".join(struct.pack(">L", len(data)) + kind + data + struct.pack(">L", zlib.crc32(kind + data)) for kind, data in chunks)
    return b"\x89PNG\r\n\x1a\n" + body
