"""Every decoder with good inputs of its own, how they are spoilt, and how a value is read."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import torch
from fuzz_mutations import spoil_bytes, spoil_json, spoil_msgpack, spoil_tree
from numpy.exceptions import DTypePromotionError

from silva.cache.entries import Entries
from silva.cache.row_files import (
    DamagedError,
    NewFile,
    Page,
    PageSpan,
    new_page,
    read_headers,
)
from silva.cache.shelf import Data, FileSpan, Item
from silva.cache.shelf_index import decode_about
from silva.columns import Array, Column, Dictionary, Lists, Ragged, Strings, Values, concat
from silva.columns.owned import lent, owned
from silva.columns.ragged import Grouped as GroupedBatch
from silva.columns.serial.batch_codec import decode_batch, encode_batch
from silva.columns.serial.checks import CannotDecode
from silva.columns.serial.column_codec import decode_columns, encode_columns
from silva.columns.serial.python_values import decode_items, encode_items
from silva.cost.book import Book
from silva.cost.costs import Cost
from silva.errors import ColumnError, PlanError, SourceError, TableError
from silva.folders import OwnFolder
from silva.io.arrays.arrow import read_arrow
from silva.io.arrays.npy import read_npy
from silva.io.tar_members import members, read_data
from silva.sinks.progress import FILE, WriteProgress, read_progress, write_progress
from silva.store.files.pages import PagesReader, write_pages

SHARES = {
    "columns": 28, "page": 12, "items": 20, "batch": 14, "rowfile": 6, "pages": 4, "npy": 2,
    "npz": 1, "tar": 5, "arrow": 3, "costs": 2, "progress": 2, "about": 1,
    "answers": 6, "database": 1, "index": 6, "version": 3,
}  # fmt: skip
"""Shares of all inputs: by how much a decoder does itself, and how fast it is."""
_MOST_ROWS = 300
"""Longer columns, of rows without a byte, are read in part."""


class Target:
    def __init__(
        self,
        make: Callable[[Random], bytes],
        decode: Callable[[bytes], Any],
        refusal: type[Exception] | tuple[type[Exception], ...],
        touch: Callable[[Any], None],
    ) -> None:
        self.make, self._decode, self._refusal, self._touch = make, decode, refusal, touch

    def run(self, rng: Random) -> bool:
        """Whether an input decoded; raises for anything that is neither a value nor a refusal."""
        try:
            value = self._decode(self.make(rng))
        except self._refusal as error:
            cause: BaseException | None = error
            while cause is not None:
                if isinstance(cause, MemoryError) and not isinstance(cause, pa.ArrowException):
                    raise AssertionError(
                        "much more memory was wanted than there are bytes"
                    ) from error
                cause = cause.__cause__
            return False
        self._touch(value)
        return True


def open_target(name: str, folder: Path) -> Target:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    import fuzz_serve_targets

    found: Target = (globals() | vars(fuzz_serve_targets))[f"_{name}"](folder)
    return found


# Good inputs.


def given_columns() -> dict[str, Column]:
    """A column of every kind."""
    text = pa.array(["a", None, "grüße", "", "日本"])
    record = np.dtype([("a", "<i4"), ("b", "<f8", (2,)), ("c", [("d", "<U3"), ("e", "?")])])
    flags = np.array([True, False, True, True, False])
    offsets = np.array([0, 2, 2, 5, 6, 8])
    objects = np.empty(2, object)
    objects[:] = ["x", (1, 2)]
    items = [
        (1, "a"),
        {"k": [1.5, None], (1, 2): b"x"},
        np.float32(2),
        np.arange(6.0).reshape(2, 3).T,
    ]
    return {
        "i": Array(np.arange(5)),
        "image": Array(np.zeros((5, 2, 3), np.uint8)),
        "flag": Array(flags, flags),
        "unicode": Array(np.array(["ab", "c", "", "äö", "日"])),
        "time": Array(np.arange(5).astype("<M8[us]")),
        "record": Array(np.zeros(5, record)),
        "none": Array(np.zeros((5, 0), np.float32)),
        "text": Strings(text),
        "long": Strings(text.cast(pa.large_string())),
        "blob": Strings(pa.array([b"a", b"\xff", b"", b"xyz", b"q"])),
        "lists": Lists(Array(np.arange(8)), offsets, flags),
        "nested": Lists(Lists(Strings(pa.array(list("abcdefgh"))), np.arange(9)), offsets),
        "grouped": Dictionary(Strings(pa.array(["x", "y"])), np.array([0, 1, 1, 0, 1]), True),
        "union": concat([Lists(Array(np.arange(4.0)), np.array([0, 4])), Values(["a", 2, 3, 4])]),
        "arrays": Values([np.arange(i, dtype=np.int16) for i in range(5)]),
        "values": Values([*items, 1 << 80]),
        "more": Values([objects, complex(1, 2), np.datetime64(5, "s"), np.str_("s"), "\ud800"]),
    }


def given_batch() -> dict[str, Any]:
    index = np.array([0, 0, 1])
    inner = Ragged(np.arange(4), np.array([0, 1, 1, 4]))
    return {
        "x": np.arange(3),
        "m": np.ma.MaskedArray(np.arange(3), mask=[0, 1, 0]),
        "r": Ragged(inner, np.array([0, 2, 2, 3])),
        "g": GroupedBatch(np.array([5, 6, 7]), np.array([0, 2, 3]), index),
        "h": GroupedBatch(np.array([1.0, 2.0]), None, index),
        "t": torch.ones(3, 2),
        "o": np.array(["a", None, "c"], dtype=object),
        "u": np.array(["ab", "c", ""]),
        "l": ["text", 1, (2, 3)],
    }


def given_entries(exploded: bool) -> Entries:
    columns = given_columns()
    some = {name: columns[name] for name in ("i", "text", "lists", "grouped", "values", "flag")}
    if exploded:
        places, sub = np.arange(5, dtype=np.uint64), np.array([0, 1, 0, 1, 2])
        return Entries(np.array([2, 0, 3]), some, places, (sub,))
    return Entries(np.array([1, 1, 0, 1, 1, 1]), some, None, ())


# Columns, batches, values: buffers behind a table of contents.


def _spoil_buffers(rng: Random, data: bytes, other: bytes) -> bytes:
    if rng.random() < 0.25:
        return spoil_bytes(rng, data, other)
    length = int.from_bytes(data[:8], "little")
    contents, spans = msgspec.msgpack.decode(data[8 : 8 + length])
    base = -(-(8 + length) // 64) * 64
    buffers = [data[base + start : base + start + size] for start, size in spans]
    if rng.random() < 0.6:
        contents = spoil_tree(rng, contents)
    if buffers and rng.random() < 0.6:
        at = rng.randrange(len(buffers))
        spoil = spoil_msgpack if buffers[at][:1] >= b"\x90" and rng.random() < 0.7 else spoil_bytes
        buffers[at] = spoil(rng, buffers[at])
    if len(buffers) > 1 and rng.random() < 0.1:
        a, b = rng.sample(range(len(buffers)), 2)
        buffers[a], buffers[b] = buffers[b], buffers[a]
    return _joined(rng, contents, buffers)


def _joined(rng: Random, contents: Any, buffers: list[bytes]) -> bytes:
    spans: Any = []
    end = 0
    for buffer in buffers:
        spans.append([end, len(buffer)])
        end += -(-len(buffer) // 64) * 64
    if rng.random() < 0.1:
        spans = spoil_tree(rng, spans)
    try:
        head = msgspec.msgpack.encode([contents, spans])
    except (OverflowError, TypeError, RecursionError):
        head = msgspec.msgpack.encode([[], spans and []])
    return b"".join(_padded(part) for part in [len(head).to_bytes(8, "little") + head, *buffers])


def _padded(part: bytes) -> bytes:
    return part + bytes(-len(part) % 64)


def _columns(folder: Path) -> Target:
    given = given_columns()
    few = [{name: column} for name, column in given.items()]
    seeds = [bytes(encode_columns(columns)) for columns in (*few, given)]
    return Target(
        lambda rng: _spoil_buffers(rng, rng.choice(seeds), seeds[-1]),
        decode_columns,
        CannotDecode,
        read_columns,
    )


def _batch(folder: Path) -> Target:
    given = given_batch()
    few = [{name: value} for name, value in given.items()]
    seeds = [bytes(encode_batch(batch)) for batch in (*few, given)]
    return Target(
        lambda rng: _spoil_buffers(rng, rng.choice(seeds), seeds[-1]),
        lambda data: decode_batch(bytearray(data)),
        CannotDecode,
        read_value,
    )


def _items(folder: Path) -> Target:
    values = [c.items for c in given_columns().values() if isinstance(c, Values)]
    seeds = [encode_items(items, frozenset(map(type, items))) for items in values]
    seeds.append(encode_items(["a", 1, None, 2.5, b"x"], frozenset({str, int, float})))
    return Target(
        lambda rng: spoil_msgpack(rng, rng.choice(seeds)), decode_items, CannotDecode, read_value
    )


# Files of rows.


def _page(folder: Path) -> Target:
    pages = [new_page(given_entries(exploded), _memory) for exploded in (False, True)]
    seeds = [bytes(page.data or b"") for page in pages]

    def decode(data: bytes) -> Entries:
        spans = [PageSpan(0, len(data), zlib.crc32(data), page.entries) for page in pages]
        first, second = (Page(span, None, 0, data) for span in spans)
        try:
            return first.decode(data)
        except DamagedError:
            return second.decode(data)

    return Target(
        lambda rng: _spoil_buffers(rng, rng.choice(seeds), seeds[-1]),
        decode,
        DamagedError,
        read_entries,
    )


def _memory(size: int) -> memoryview:
    return np.empty(size, np.uint8).data


class _OneFile:
    """A shelf of one file, as much of it as `read_headers` needs."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.item = Item("a" * 32, "x.rows", len(data), 0.0)

    def read(self, parts: list[FileSpan]) -> Iterator[Data | OSError]:
        for _, start, length in parts:
            yield self._data[start : start + length]


_START = struct.Struct("<8sIQQd")


def _rowfile(folder: Path) -> Target:
    pages = [new_page(given_entries(exploded), _memory) for exploded in (False, True)]
    keys = np.arange(9, dtype=np.uint64)
    whole = b"".join(NewFile("a" * 32, pages, keys, 1.5).parts)

    def make(rng: Random) -> bytes:
        """Checksums are right: who plants a file can count too."""
        if rng.random() < 0.2:
            return spoil_bytes(rng, whole)
        magic, _, length, entries, seconds = _START.unpack(whole[: _START.size])
        header = whole[_START.size : _START.size + length]
        body = whole[_START.size + length :]
        said = msgspec.msgpack.decode(header)
        if rng.random() < 0.5:
            said = spoil_tree(rng, said)
        elif rng.random() < 0.8:
            body = _with_page(rng, said, body)
        if rng.random() < 0.1:
            entries, seconds = rng.choice((0, 1 << 40, entries)), rng.choice((-1.0, 1e308, 1.5))
        with contextlib.suppress(OverflowError, TypeError):  # what msgpack has no word for
            header = msgspec.msgpack.encode(said)
        worth = struct.pack("<QQd", len(header), entries, seconds)
        checksum = zlib.crc32(header, zlib.crc32(worth))
        return _START.pack(magic, checksum, len(header), entries, seconds) + header + body

    return Target(make, _read_rowfile, DamagedError, _each(read_entries))


def _with_page(rng: Random, said: Any, body: bytes) -> bytes:
    """The pages with one of them spoilt, and what the header says of it."""
    pages = [body[start : start + size] for start, size, _, _ in said["pages"]]
    at = rng.randrange(len(pages))
    pages[at] = _spoil_buffers(rng, pages[at], pages[0])
    end = 0
    for page, span in zip(pages, said["pages"], strict=True):
        span[:3] = [end, len(page), zlib.crc32(page)]
        end += len(page)
    return b"".join(pages)


def _read_rowfile(data: bytes) -> list[Entries]:
    shelf: Any = _OneFile(data)
    ((_, contents),) = read_headers(shelf, [shelf.item])
    if not isinstance(contents, tuple):
        raise contents
    pages, keys = contents
    keys.tolist()
    found = []
    for page, part in zip(pages, shelf.read([page.span for page in pages]), strict=True):
        found.append(page.decode(part))
    return found


# Files of tables, sources and sinks.


def _written(folder: Path, name: str) -> Callable[[bytes], Path]:
    path = folder / name

    def write(data: bytes) -> Path:
        path.write_bytes(data)
        return path

    return write


def _pages(folder: Path) -> Target:
    columns = {"x": np.arange(4200) % 77, "f": np.arange(4200) % 3 == 0, "t": np.arange(4200.0)}
    whole = (folder / write_pages(folder, columns).name).read_bytes()
    write = _written(folder, "spoilt.pages")
    end = struct.Struct("<II8s")

    def make(rng: Random) -> bytes:
        size, _, mark = end.unpack(whole[-end.size :])
        body, footer = whole[: -end.size - size], whole[-end.size - size : -end.size]
        if rng.random() < 0.2:
            return spoil_bytes(rng, whole)
        if rng.random() < 0.6:
            footer = spoil_msgpack(rng, footer)
        else:
            body, footer = _with_packed_page(rng, body, footer)
        return body + footer + end.pack(len(footer), zlib.crc32(footer), mark)

    def decode(data: bytes) -> list[Any]:
        reader = PagesReader(write(data))
        few = np.unique(np.array([0, 7, 4095, 4199]).clip(0, max(reader.rows - 1, 0)))
        rows = range(min(reader.rows, 4200))
        return [reader.take(some) for some in (rows, few if reader.rows else rows)]

    return Target(make, decode, TableError, _each(read_columns))


_PACKED = np.dtype([("size", "<u2"), ("checksum", "<u4")])


def _with_packed_page(rng: Random, body: bytes, footer: bytes) -> tuple[bytes, bytes]:
    """A page that is spoilt, with the right checksum."""
    rows, columns = msgspec.msgpack.decode(footer)
    name = rng.choice(list(columns))
    kind, start, known = columns[name]
    pages = np.frombuffer(known, _PACKED).copy()
    at = rng.randrange(len(pages))
    first = start + int(pages["size"][:at].sum())
    page = body[first : first + int(pages["size"][at])]
    spoilt = (spoil_bytes(rng, page) + bytes(len(page)))[: len(page)]
    pages["checksum"][at] = zlib.crc32(spoilt)
    columns[name] = [kind, start, pages.tobytes()]
    body = body[:first] + spoilt + body[first + len(page) :]
    return body, msgspec.msgpack.encode([rows, columns])


_SHAPES = [
    "(-1,)", "(4294967296, 4294967296)", "(0, 4611686018427387904)", "()", "(5", "(True,)",
    "(4611686018427387904, 0)", "(3.0,)", "('a',)", "[3]", "(10,)", "((1,),)", "(2, 0)",
]  # fmt: skip
_DESCRIBED = [
    "'|O'", "'<U2'", "'|V0'", "[('a', '<i4')]", "[('a', 'O')]", "('<i4', (2,))", "'<U99999'",
    "'|b1'", "'i4,O'", "'|S0'", "'>f8'", "None", "'<i8', 'x': 1", "__import__('os')",
]  # fmt: skip


def _spoil_npy(rng: Random, data: bytes) -> bytes:
    """Mostly its header: a dict in Python's own words."""
    if rng.random() < 0.4:
        return spoil_bytes(rng, data)
    length = int.from_bytes(data[8:10], "little")
    head = data[10 : 10 + length].decode("latin1")
    start = head.index("(")
    if rng.random() < 0.7:
        head = head[:start] + rng.choice(_SHAPES) + head[head.index(")") + 1 :]
    if rng.random() < 0.6:
        head = "{'descr': " + rng.choice(_DESCRIBED) + head[head.index(", 'fortran") :]
    if rng.random() < 0.1:
        head = "(" * rng.choice((50, 5000)) + head
    raw = head.encode("latin1")
    return data[:8] + min(len(raw), 65535).to_bytes(2, "little") + raw + data[10 + length :]


def _saved(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


_GIVEN = [
    np.arange(5),
    np.zeros((3, 2), np.float32),
    np.array(["ab", "日"]),
    np.array([True, False]),
]


def _npy(folder: Path) -> Target:
    seeds = [_saved(array) for array in _GIVEN]
    write = _written(folder, "x.npy")
    return Target(
        lambda rng: _spoil_npy(rng, rng.choice(seeds)),
        lambda data: _read_arrays(write(data)),
        SourceError,
        read_columns,
    )


def _npz(folder: Path) -> Target:
    seeds = []
    for save in (np.savez, np.savez_compressed):
        out = io.BytesIO()
        save(out, **{f"a{i}": array[:2] for i, array in enumerate(_GIVEN)})
        seeds.append(out.getvalue())
    write = _written(folder, "x.npz")

    def make(rng: Random) -> bytes:
        if rng.random() < 0.4:
            return spoil_bytes(rng, rng.choice(seeds))
        out = io.BytesIO()
        how = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
        with zipfile.ZipFile(out, "w", how) as archive:
            for i, array in enumerate(_GIVEN[: rng.randrange(1, 4)]):
                archive.writestr(f"a{i}.npy", _spoil_npy(rng, _saved(array[:2])))
        return out.getvalue()

    return Target(
        make,
        lambda data: _read_arrays(write(data)),
        SourceError,
        read_columns,
    )


def _read_arrays(path: Path) -> dict[str, Column]:
    source = read_npy(str(path))
    rows = np.arange(min(source.length(), 100))
    picked = rows[::-1].copy()
    names = source.columns()
    return {
        **source.read(rows, names),
        **{f"-{n}": c for n, c in source.read(picked, names).items()},
    }


def _tar(folder: Path) -> Target:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, size in (("a.txt", 5), ("b" * 200 + ".txt", 600), ("ü.bin", 0)):
            info = tarfile.TarInfo(name)
            info.size = size
            archive.addfile(info, io.BytesIO(bytes(size)))
    whole = out.getvalue()

    def make(rng: Random) -> bytes:
        made = bytearray(spoil_bytes(rng, whole)) if rng.random() < 0.6 else bytearray(whole)
        for _ in range(rng.randrange(3)):
            _spoil_header(rng, made)
        return bytes([rng.randrange(2)]) + bytes(made)

    def decode(data: bytes) -> list[bytes]:
        packed, plain = data[0] == 1, data[1:]
        stream: Any = io.BytesIO(plain)
        if packed:
            stream = gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(plain, 1)))
        with stream:
            found = itertools.islice(members(stream, "x.tar", None if packed else len(plain)), 1000)
            return [read_data(stream, member, "x.tar") for member in found]

    return Target(make, decode, SourceError, read_value)


_IN_HEADERS = [
    b"-0000000017\0", b"77777777777\0", b"\x80" + bytes(3) + b"\xff" * 8, b"\xff" * 12, b"x", b"L",
    b"00000000000\0", b"0_0000_0001\0", b"g", b"K", b"S", b"5", bytes(12),
]  # fmt: skip


def _spoil_header(rng: Random, made: bytearray) -> None:
    """A field of a header, with the right sum; or a record of an extended one."""
    if len(made) < 512:
        return
    at = rng.randrange(len(made) // 512) * 512
    fields = {
        "size": (124, 12),
        "kind": (156, 1),
        "name": (0, 20),
        "prefix": (345, 1),
        "magic": (257, 5),
    }
    start, width = fields[rng.choice(list(fields))]
    made[at + start : at + start + width] = rng.choice(_IN_HEADERS).ljust(width, b"\0")[:width]
    for record in (b"200 path=", b"600 size=", b"19 path="):
        where = made.find(record, at, at + 512)
        if where >= 0 and rng.random() < 0.7:
            other = rng.choice(
                (b"0 ", b"-5 ", b"9" * 30 + b" ", b"6 size=-7\n", b"30 size=" + b"9" * 21)
            )
            made[where : where + len(other)] = other
    block = made[at : at + 512]
    if len(block) == 512:
        block[148:156] = b" " * 8
        made[at + 148 : at + 156] = b"%06o\0 " % sum(block)


def _arrow(folder: Path) -> Target:
    table = pa.table(
        {
            "i": pa.array([1, None, 3, 4]),
            "s": ["a", "grüße", None, ""],
            "l": [[1, 2], [], None, [3]],
            "d": pa.array(["x", "y", "x", "y"]).dictionary_encode(),
            "f": pa.FixedSizeListArray.from_arrays(pa.array(range(8)), 2),
            "n": [{"a": 1, "b": "z"}] * 4,
            "b": [True, False, None, True],
            "v": pa.array(["long enough to lie elsewhere", "b", "c", "d"], pa.string_view()),
        }
    )
    seeds = []
    for name in table.column_names:
        for opener in (pa.ipc.new_file, pa.ipc.new_stream):
            out = io.BytesIO()
            with opener(out, table.select([name]).schema) as writer:
                writer.write_table(table.select([name]), max_chunksize=3)
            seeds.append(out.getvalue())
    write = _written(folder, "x.arrow")

    def decode(data: bytes) -> list[dict[str, Column]]:
        source = read_arrow(str(write(data)))
        names = source.columns()
        units = range(min(source.units(), 20))
        runs = itertools.chain.from_iterable(source.open(unit, 0, names) for unit in units)
        return list(itertools.islice(runs, 50)) if names else []

    return Target(
        lambda rng: spoil_bytes(rng, rng.choice(seeds)), decode, SourceError, _each(read_columns)
    )


def _costs(folder: Path) -> Target:
    book = Book(folder)
    known = Cost(
        rows=100, kept=50, seconds=2.0, cpu=1.0, columns={"x": 8}, operators={"a": (1.0, 5, 9)}
    )
    book.put("given", known)
    seed = (folder / "given.json").read_bytes()

    def decode(data: bytes) -> Cost:
        (folder / "spoilt.json").write_bytes(data)
        found = book.get("spoilt")
        if found is None:
            raise PlanError("refused")
        return found

    def touch(found: Cost) -> None:
        assert all(
            0 <= x < 1e60 for x in (found.seconds_a_row, found.selectivity, found.by_size.at(9))
        )
        found.resized(1000.0)
        found.shares()

    return Target(lambda rng: spoil_json(rng, seed), decode, PlanError, touch)


def _progress(folder: Path) -> Target:
    own = OwnFolder(folder)
    write_progress(
        own, WriteProgress("f" * 32, {"rows": 5}, ["a", "b"], [3, 4], {"schema": "x"}, {"a": [1]})
    )
    seed = (folder / FILE).read_bytes()

    def decode(data: bytes) -> WriteProgress:
        (folder / FILE).write_bytes(data)
        found = read_progress(own)
        assert found is not None
        return found

    def touch(found: WriteProgress) -> None:
        assert all(type(name) is str for name in found.shards)
        sum(found.rows)

    return Target(lambda rng: spoil_json(rng, seed), decode, PlanError, touch)


def _about(folder: Path) -> Target:
    about = {"steps": ["a"], "source": "b", "columns": ["c"], "silva": "0.1", "created": "now"}
    seed = msgspec.json.encode(about)

    def decode(data: bytes) -> Any:
        found = decode_about(data)
        if found is None:
            raise PlanError("refused")
        return found

    return Target(lambda rng: spoil_json(rng, seed), decode, PlanError, lambda found: None)


# Reading values to their last element.


def _each(touch: Callable[[Any], None]) -> Callable[[Any], None]:
    def all_of(found: list[Any]) -> None:
        for value in found:
            touch(value)

    return all_of


def read_value(value: Any) -> None:
    """Looks at every element, however deep it lies."""
    left = [value]
    while left:
        item = left.pop()
        match item:
            case dict():
                left += [*item.keys(), *item.values()]
            case list() | tuple():
                left += item
            case np.ma.MaskedArray():
                left += [item.data, np.ma.getmaskarray(item), item.filled()]
            case np.ndarray():
                _read_array(item, left)
            case Ragged():
                rows = 1 if isinstance(item.values, Ragged) else _MOST_ROWS  # or all at each level
                left += [item.values, item.offsets]
                left += [row for row in itertools.islice(item, rows) if not isinstance(row, Ragged)]
            case GroupedBatch():
                left += [item.values, item.inverse, list(itertools.islice(item, _MOST_ROWS))]
                left.append(item.expand())
            case torch.Tensor():
                left.append(item.numpy())
            case str():
                item.encode("utf-8", "surrogatepass")
            case np.generic():
                left.append(item.tobytes())
            case _:
                hash(item)


def _read_array(array: np.ndarray, left: list[Any]) -> None:
    if array.dtype == object:
        left += array.ravel().tolist()
        return
    array.tobytes()
    if array.dtype.kind in "USbV" and array.size <= _MOST_ROWS:
        left.append(array.tolist())


def read_column(column: Column) -> None:
    """All that is done with a column on its way to a batch."""
    if len(column) > _MOST_ROWS:
        column = column.slice(0, _MOST_ROWS)
    assert column.nbytes >= 0
    backwards = np.arange(len(column))[::-1]
    for each in (column, column.take(backwards), column.slice(1, 3), concat([column, column])):
        read_value(each.rows())
    with contextlib.suppress(ColumnError, DTypePromotionError):  # rows that are not alike
        read_value(column.batch())
    owned(column)
    lent(column).settled()


def read_columns(columns: dict[str, Column]) -> None:
    for column in columns.values():
        read_column(column)


def read_entries(entries: Entries) -> None:
    read_columns(entries.columns)
    backwards = entries.take(np.arange(len(entries))[::-1])
    for each in (entries, backwards, entries.slice(1, 2), Entries.concat([entries, entries])):
        read_value([each.counts, each.starts, each.places, each.origin, *each.subs])
    for column in backwards.columns.values():
        read_value(column.rows())
