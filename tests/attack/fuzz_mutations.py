"""Ways to spoil bytes: blindly, and where it is known what they mean."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec
from msgspec.msgpack import Ext

EXTREMES = [
    0, 1, 2, 3, 7, 8, 63, 64, 65, 127, 128, 255, 256, 1 << 15, (1 << 16) - 1, 1 << 20, 1 << 24,
    (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, 1 << 53, 1 << 61, 1 << 62,
    (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -1, -2, -8, -(1 << 31), -(1 << 62), -(1 << 63),
]  # fmt: skip
DTYPES: list[Any] = [
    "|O", "O", "|O8", "object", "<i8", "<i4", "|i1", "|u1", "<u8", ">i8", "<f8", "<f2", "<f16",
    "|b1", "<U1", "<U4", ">U3", "|S0", "|S1", "|S5", "|V8", "|V0", "<M8[s]", "<M8[0s]", "<M8",
    "<m8[25us]", "<c16", "<U999999999", "|S2147483647", "i4,i4", "<i8\0", "", "=i4", "<V4", "|T16",
    [["a", "|O"]], [["a", "<i4"], ["b", "<U2", [2]]], [["a", "<i4", [1 << 40]]], [["", "|V4"]], [],
    [["a", [["b", "|b1"], ["c", "<U1"]]]], [["a", "|S0", [1 << 30]]],
]  # fmt: skip
_VALUES: list[Any] = [
    *EXTREMES, *DTYPES, None, True, False, 0.5, float("nan"), float("inf"), "", "x", "\0counts",
    "string", "large_string", "binary", "array", "values", "lists", "grouped", "arrays", "item",
    "ragged", "tensor", "masked", b"", b"\xff" * 8, [], [[]], [1 << 62, 0], [0, 1 << 62], [-1],
    [1 << 32, 1 << 32], {}, {"a": 1}, Ext(6, b""), Ext(7, b"\x92\x91\x01\x91\x01"), Ext(9, b"\x05"),
    Ext(2, b"\x92\x92\x01\x01\x92\x01\x01"), Ext(99, b""),
]  # fmt: skip


def spoil_bytes(rng: Random, data: bytes, other: bytes = b"") -> bytes:
    """A few changes anywhere."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        _spoil_once(rng, made, other)
    return bytes(made)


def _spoil_once(rng: Random, made: bytearray, other: bytes) -> None:
    size = len(made)
    if not size:
        made += other or b"\0"
        return
    at = rng.randrange(size)
    if rng.random() < 0.3:
        at = min(at, rng.randrange(80))
    match rng.randrange(10):
        case 0 | 1 | 2:
            made[at] ^= 1 << rng.randrange(8)
        case 3:
            made[at] = rng.choice((0, 1, 0x7F, 0x80, 0xC1, 0xDC, 0xDD, 0xDF, 0xFF))
        case 4 | 5:
            _write_number(rng, made, at)
        case 6:
            del made[at:]
        case 7:
            del made[at : at + rng.randrange(1, 65)]
        case 8:
            piece = made[at : at + rng.randrange(1, 65)]
            to = rng.randrange(size)
            made[to:to] = piece
        case 9:
            source = other or bytes(made)
            start = rng.randrange(len(source))
            piece = bytearray(source[start : start + rng.randrange(1, 129)])
            made[at : at + len(piece)] = piece


def _write_number(rng: Random, made: bytearray, at: int) -> None:
    width = rng.choice((1, 2, 4, 8))
    at -= at % width if rng.random() < 0.8 else 0
    number = rng.choice(EXTREMES) & (1 << 8 * width) - 1
    made[at : at + width] = number.to_bytes(width, rng.choice(("little", "little", "big")))


def spoil_tree(rng: Random, tree: Any) -> Any:
    """A tree of lists, dicts and values with one or two of its nodes changed."""
    for _ in range(rng.choice((1, 1, 2))):
        tree = _changed(rng, tree, rng.randrange(8))
    return tree


def _changed(rng: Random, node: Any, depth: int) -> Any:
    """Goes down so deep, at random, and changes the node that is there."""
    if depth and isinstance(node, list | tuple) and node:
        at = rng.randrange(len(node))
        return [_changed(rng, x, depth - 1) if i == at else x for i, x in enumerate(node)]
    if depth and isinstance(node, dict) and node:
        at = rng.choice(list(node))
        return {k: _changed(rng, v, depth - 1) if k == at else v for k, v in node.items()}
    if depth and isinstance(node, Ext):
        return Ext(node.code, spoil_msgpack(rng, node.data))
    return _other(rng, node)


def _other(rng: Random, node: Any) -> Any:
    """Something else in the place of a node."""
    if isinstance(node, list) and node and rng.random() < 0.7:
        made, at = list(node), rng.randrange(len(node))
        match rng.randrange(5):
            case 0:
                del made[at]
            case 1:
                made.insert(at, made[at])
            case 2:
                to = rng.randrange(len(made))
                made[at], made[to] = made[to], made[at]
            case 3:
                made = [made]
            case 4:
                made = made * rng.choice((2, 50))
        return made
    if isinstance(node, bytes) and rng.random() < 0.8:
        return spoil_bytes(rng, node)
    if isinstance(node, int) and rng.random() < 0.5:
        return node + rng.choice((-8, -1, 1, 8, 64))
    if isinstance(node, str) and rng.random() < 0.5:
        return rng.choice(DTYPES)
    if isinstance(node, Ext) and rng.random() < 0.5:
        return Ext(rng.randrange(11), node.data)
    if rng.random() < 0.02:
        return _deep(rng.choice((10, 70, 300)))
    return rng.choice(_VALUES)


def _deep(levels: int) -> Any:
    node: Any = 1
    for _ in range(levels):
        node = [node]
    return node


def spoil_msgpack(rng: Random, data: bytes) -> bytes:
    """msgpack with other contents, or with other bytes."""
    if rng.random() < 0.8:
        try:
            return msgspec.msgpack.encode(spoil_tree(rng, msgspec.msgpack.decode(data)))
        except (OverflowError, RecursionError, TypeError, ValueError, msgspec.MsgspecError):
            pass  # a number too large for msgpack, or bytes that were spoilt before
    return spoil_bytes(rng, data)


def spoil_json(rng: Random, data: bytes) -> bytes:
    if rng.random() < 0.7:
        try:
            return json.dumps(spoil_tree(rng, json.loads(data))).encode()
        except (TypeError, ValueError, RecursionError):
            pass  # bytes, which JSON has no word for
    if rng.random() < 0.05:
        return b"[" * rng.choice((100, 5000)) + data
    return spoil_bytes(rng, data)
