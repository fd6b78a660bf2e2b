"""Bytes that somebody planted in a cache, a file or an answer are refused."""

from __future__ import annotations

import gzip
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import fuzz_decoders
import msgspec
import numpy as np
import pyarrow as pa
import pytest
from msgspec.msgpack import Ext

import silva as sv
from silva.columns import Array, Values
from silva.columns.serial.batch_codec import decode_batch
from silva.columns.serial.checks import CannotDecode
from silva.columns.serial.column_codec import decode_columns, encode_columns
from silva.columns.serial.python_values import decode_items
from silva.cost.book import Book
from silva.errors import SilvaError, SourceError

CODE, BOUNDED = "Data is never code", "Bounded"
SILENT = "Never hangs, never shortens an epoch, never drops a row silently"


def planted(contents: list[Any], *buffers: bytes) -> bytes:
    """Buffers behind a table of contents, as pages and batches are laid out."""
    spans, end = [], 0
    for buffer in buffers:
        spans.append([end, len(buffer)])
        end += -(-len(buffer) // 64) * 64
    head = msgspec.msgpack.encode([contents, spans])
    parts = [len(head).to_bytes(8, "little") + head, *buffers]
    return b"".join(part + bytes(-len(part) % 64) for part in parts)


def array(kind: Any, shape: Any, number: int = 0) -> list[Any]:
    return [kind, shape, number]


OFFSETS = np.array([0, 1 << 30], "<i4").tobytes()
HOSTILE: dict[str, bytes] = {
    "objects": planted([["x", ["array", array("|O", [1]), None]]], b"A" * 8),
    "objects in a field": planted([["x", ["array", array([["a", "|O"]], [1]), None]]], b"A" * 8),
    "objects of many": planted([["x", ["arrays", [["|O", [1]]], 0]]], b"A" * 8),
    "more rows than bytes": planted([["x", ["array", array("<i8", [9]), None]]], bytes(8)),
    "an overflow": planted([["x", ["array", array("<i8", [1 << 32, 1 << 32]), None]]], b""),
    "negative": planted([["x", ["array", array("<i8", [-1]), None]]], bytes(8)),
    "as many as there are": planted([["x", ["array", array("|V0", [-1]), None]]], bytes(8)),
    "rows of nothing": planted([["x", ["array", array("<i8", [1 << 40, 0]), None]]], b""),
    "items of nothing": planted([["x", ["array", array("|V0", [1 << 40]), None]]], b""),
    "wild text": planted([["x", ["strings", "string", array("<i4", [2]), 1, None]]], OFFSETS, b"a"),
    "no utf-8": planted(
        [["x", ["strings", "string", array("<i4", [2]), 1, None]]], b"\0\0\0\0\1\0\0\0", b"\xff"
    ),
    "text of other offsets": planted(
        [["x", ["strings", "large_string", array("<i4", [2]), 1, None]]], OFFSETS, b"a"
    ),
    "a short mask of text": planted(
        [["x", ["strings", "binary", array("<i4", [17]), 1, array("|u1", [1], 2)]]],
        bytes(68), b"", b"\0",
    ),
    "wild lists": planted(
        [["x", ["lists", ["array", array("<i8", [1]), None], array("<i8", [2], 1), None]]],
        bytes(8), np.array([0, 1 << 40]).tobytes(),
    ),
    "a place beyond": planted(
        [["x", ["grouped", ["array", array("<i8", [1]), None], array("<i8", [1], 1), False]]],
        bytes(8), np.array([7]).tobytes(),
    ),
    "a mask of bytes": planted(
        [["x", ["array", array("<i8", [1]), array("|u1", [1], 1)]]], bytes(8), b"\1"
    ),
    "a flag of 7": planted([["x", ["array", array("|b1", [1]), None]]], b"\7"),
    "no character": planted([["x", ["array", array("<U1", [1]), None]]], b"\xff\xff\xff\x7f"),
    "one buffer twice": planted(
        [["x", ["array", array("<i8", [1]), None]], ["y", ["array", array("<i8", [1]), None]]],
        bytes(8),
    ),
    "a name twice": planted([["x", ["arrays", [], 0]], ["x", ["arrays", [], 1]]], b"", b""),
    "a long table of contents": (1 << 62).to_bytes(8, "little"),
    "nothing": b"",
}  # fmt: skip


@pytest.mark.attacks(CODE)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_page_is_refused(name: str) -> None:
    with pytest.raises(CannotDecode):
        decode_columns(HOSTILE[name])


def _in_batch(kind: Any, shape: Any) -> list[Any]:
    return ["array", array(kind, shape)]


@pytest.mark.attacks(CODE)
@pytest.mark.parametrize(
    ("value", "buffers"),
    [
        (_in_batch("|O", [1]), [b"A" * 8]),
        (_in_batch("<i8", [1 << 62]), [b""]),
        (["tensor", array("<U1", [1])], [b"a\0\0\0"]),
        (["masked", array("<i8", [1]), array("|u1", [1], 1)], [bytes(8), b"\1"]),
        (
            ["ragged", _in_batch("<i8", [1]), ["array", array("<i8", [2], 1)]],
            [bytes(8), b"\7" * 16],
        ),
        (
            ["grouped", _in_batch("<i8", [1]), ["item", 1], ["array", array("<i8", [1], 2)]],
            [bytes(8), b"\x91\xc0", b"\xff" * 8],
        ),
        (["item", 0], [b"\x92\1\1"]),
        (["item", -1], [b"\x91\1"]),
        (["eval", "1"], []),
    ],
)
def test_a_hostile_batch_is_refused(value: Any, buffers: list[bytes]) -> None:
    with pytest.raises(CannotDecode):
        decode_batch(bytearray(planted([["x", value]], *buffers)))


def _ext(code: int, *parts: Any) -> bytes:
    return msgspec.msgpack.encode([Ext(code, msgspec.msgpack.encode(list(parts)))])


@pytest.mark.attacks(CODE)
@pytest.mark.parametrize(
    "data",
    [
        _ext(6, "|O", [1], False, b"A" * 8),
        _ext(6, "<i8", [1], False, Ext(7, msgspec.msgpack.encode([[1], [1]]))),
        _ext(6, "<i8", [1 << 61], False, bytes(8)),
        _ext(6, "|S0", [-1], False, bytes(8)),
        _ext(7, [1 << 40, 0], []),
        _ext(8, "|O", b"A" * 8),
        _ext(2, [1, 1], [2, 3]),
        _ext(2, [[]], [1]),
        msgspec.msgpack.encode([Ext(9, msgspec.msgpack.encode(1 << 40))]),
        msgspec.msgpack.encode([Ext(50, b"")]),
        b"\x91" * 3000 + b"\1",
        b"\xdd\xff\xff\xff\xff",
        b"\1",
    ],
)
def test_hostile_values_are_refused(data: bytes) -> None:
    with pytest.raises(CannotDecode):
        decode_items(data)


def _cached(folder: Path) -> sv.Pipeline:
    return sv.from_columns({"x": np.arange(6)}).derive(y=lambda x: f"row {x}").cache(str(folder))


def _rows(folder: Path) -> list[str]:
    with _cached(folder).batch(6).loader(backend="inline") as loader:
        (batch,) = loader
    return list(batch["y"])


def _plant(folder: Path, page: bytes) -> None:
    """Puts a page in the place of those of a cache, with checksums that are right."""
    (path,) = folder.glob("*/*.rows")
    start = struct.Struct("<8sIQQd")
    magic, _, length, entries, seconds = start.unpack(path.read_bytes()[: start.size])
    header = msgspec.msgpack.decode(path.read_bytes()[start.size : start.size + length])
    header["pages"] = [[0, len(page), zlib.crc32(page), entries]]
    said = msgspec.msgpack.encode(header)
    worth = struct.pack("<QQd", len(said), entries, seconds)
    checksum = zlib.crc32(said, zlib.crc32(worth))
    path.write_bytes(start.pack(magic, checksum, len(said), entries, seconds) + said + page)


ONES = Array(np.ones(6, np.int64))
X, Y = Array(np.arange(6)), Values(["other"] * 6)


@pytest.mark.attacks(SILENT)
@pytest.mark.parametrize(
    "page",
    [
        HOSTILE["objects"],
        HOSTILE["wild text"],
        encode_columns({"\0counts": ONES, "x": X}),
        encode_columns({"\0counts": ONES, "x": X, "y": Y, "z": Y}),
        encode_columns({"\0counts": ONES, "x": X, "y": Values(["few"])}),
        encode_columns({"\0counts": Array(np.full(6, -1)), "x": X, "y": Y}),
        encode_columns({"\0counts": Array(np.array([6, 0, 0, 0, 0, 0])), "x": X, "y": Y}),
        encode_columns({"\0counts": Array(np.ones(5, np.int64)), "x": X, "y": Y}),
        encode_columns({"\0counts": Array(np.ones(6)), "x": X, "y": Y}),
        encode_columns({"\0counts": ONES, "\0sub 0": ONES, "x": X, "y": Y}),
        encode_columns({"\0counts": ONES, "\0places": Values([0] * 6), "x": X, "y": Y}),
        encode_columns({"\0counts": ONES, "\0more": X, "x": X, "y": Y}),
        encode_columns({"x": X, "y": Y}),
        encode_columns({"\0counts": ONES, "x": X, "y": Values([[[[[1]]]]] * 6)})
        .tobytes()
        .replace(b"\x91\x91\x91\x91\x01", b"\x91\x91\x91\x91"),
    ],
)
def test_a_planted_page_costs_a_warning_and_some_computing(tmp_path: Path, page: Any) -> None:
    expected = _rows(tmp_path)
    _plant(tmp_path, bytes(page))
    with pytest.warns(UserWarning, match="computed again"):
        assert _rows(tmp_path) == expected


def _nested(folder: Path, depth: int) -> None:
    """Plants rows that are lists, so many levels deep."""
    deep: Any = b"\x96" + (b"\x91" * depth + b"\1") * 6
    whole = [["\0counts", ["array", array("<i8", [6]), None]]]
    whole += [["x", ["array", array("<i8", [6], 1), None]], ["y", ["values", 2]]]
    _plant(folder, planted(whole, ONES.data.tobytes(), X.data.tobytes(), deep))


@pytest.mark.attacks(BOUNDED)
def test_values_nested_without_end_are_computed_again(tmp_path: Path) -> None:
    expected = _rows(tmp_path)
    _nested(tmp_path, 100_000)
    with pytest.warns(UserWarning, match="computed again"):
        assert _rows(tmp_path) == expected


@pytest.mark.attacks(BOUNDED)
def test_values_nested_too_deeply_for_a_batch_are_an_error_that_says_so(tmp_path: Path) -> None:
    _rows(tmp_path)
    _nested(tmp_path, 900)
    with pytest.raises(sv.ColumnError, match="'y': lists are nested too deeply"):
        _rows(tmp_path)


# Files.


def _npy(head: str, data: bytes = bytes(64), version: bytes = b"\1\0") -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(head)) + head.encode() + data


def _head(kind: str, shape: str) -> str:
    return f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}"


@pytest.mark.attacks(BOUNDED)
@pytest.mark.parametrize(
    "data",
    [
        _npy(_head("'|O'", "(8,)")),
        _npy(_head("[('a', 'O')]", "(8,)")),
        _npy(_head("'<i8'", "(-1,)")),
        _npy(_head("'<i8'", "(4294967296, 4294967296)")),
        _npy(_head("'<i8'", "(4611686018427387904, 0)")),
        _npy(_head("'|V0'", "(4611686018427387904,)")),
        _npy(_head("'<i8'", "(True,)")),
        _npy(_head("('<i4', (2,))", "(8,)")),
        _npy(_head("'<i8'", "(9,)")),
        _npy(_head("'<i8'", "(8,)"), version=b"\7\0"),
        _npy(_head("__import__('os').abort()", "(8,)")),
        _npy("(" * 9000),
        _npy(_head("'<U1'", "(2,)"), b"\xff" * 8),
        _npy(_head("'|b1'", "(2,)"), b"\2\xff"),
    ],
)
@pytest.mark.parametrize("packed", [None, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_hostile_array_is_refused(tmp_path: Path, data: bytes, packed: int | None) -> None:
    path = tmp_path / ("x.npy" if packed is None else "x.npz")
    if packed is None:
        path.write_bytes(data)
    else:
        with zipfile.ZipFile(path, "w", packed) as archive:
            archive.writestr("array.npy", data)
    with pytest.raises(SilvaError):
        sv.read_npy(str(path)).head(1)


@pytest.mark.attacks(BOUNDED)
def test_a_compressed_array_takes_memory_as_its_bytes_come(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", _npy(_head("'<i8'", "(1152921504606846976,)")))
    with pytest.raises(SourceError, match="truncated"):
        sv.read_npy(str(tmp_path / "x.npz")).head(1)


def _tar(size: bytes = b"00000000005\0", kind: bytes = b"0", body: bytes = b"hello") -> bytes:
    head = bytearray(512)
    head[:5], head[124:136], head[156:157] = b"a.txt", size, kind
    head[257:263], head[148:156] = b"ustar\0", b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + body.ljust(512, b"\0") + bytes(1024)


@pytest.mark.attacks(SILENT)
@pytest.mark.parametrize(
    "data",
    [
        _tar(b"-0000001000\0"),
        _tar(b"\xff" * 12),
        _tar(b"\x80" + b"\0" * 3 + b"\x7f" + b"\xff" * 7),
        _tar(b"77777777777\0"),
        _tar(b"00000000010\0", b"x", b"0 path=x"),
        _tar(b"00000000010\0", b"x", b"-5 path=x"),
        _tar(b"00000000014\0", b"x", b"11 size=-7\n"),
        _tar(b"00000000014\0", b"x", b"12 size=abc\n"),
        _tar(b"00000000400\0", b"x", b"255 size=" + b"9" * 245 + b"\n"),
        _tar(b"77777777777\0", b"L"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_hostile_tar_is_refused(tmp_path: Path, data: bytes, packed: bool) -> None:
    path = tmp_path / ("x.tar.gz" if packed else "x.tar")
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(SourceError):
        sv.read_tar(str(path)).head(1)


@pytest.mark.attacks(CODE)
@pytest.mark.parametrize("find", [b"needle" * 10, np.array([0, 60, 63], "<i4").tobytes()])
def test_a_hostile_arrow_file_is_refused(tmp_path: Path, find: bytes) -> None:
    """Text that is none, and offsets that lead elsewhere."""
    table = pa.table({"s": ["needle" * 10, "abc"]})
    with pa.ipc.new_file(str(tmp_path / "x.arrow"), table.schema) as writer:
        writer.write_table(table)
    data = (tmp_path / "x.arrow").read_bytes()
    assert data.count(find) == 1
    spoilt = b"\xff" * 60 if find[0] else np.array([0, 1 << 30, 63], "<i4").tobytes()
    (tmp_path / "x.arrow").write_bytes(data.replace(find, spoilt))
    with pytest.raises(SourceError, match="damaged"):
        sv.read_arrow(str(tmp_path / "x.arrow")).head(2)


@pytest.mark.attacks(BOUNDED)
@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"rows": 1e999}',
        b"\xff",
        b'{"rows": 1, "kept": 1, "seconds": 1e999, "cpu": 1, "columns": {}, "operators": {}, '
        b'"by_size": [0,0,0,0,0], "grows": [0,0,0,0,0], "disk": 0, "network": 0, "moved": 0}',
    ],
)
def test_costs_that_make_no_sense_are_measured_again(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "key.json").write_bytes(data)
    assert Book(tmp_path).get("key") is None


# Mutated inputs by the thousand; `INPUTS=1000000 python tests/attack/fuzz_decoders.py` for more.


@pytest.mark.rest
@pytest.mark.attacks(CODE)
def test_mutated_inputs_are_refused_or_read() -> None:
    assert not fuzz_decoders.fuzz(20_000, seed=14)
