"""Random numbers as a function of (seed, epoch, step, row): Philox, counted by the row's identity.

Built-in operators take theirs for a whole block at once (`Draw.uniform`: Philox 4x32-10 in numpy).
Functions that ask for `rng` get one numpy generator that is re-keyed for each row, which costs
about 1.5 µs where making a new one costs 10-25 µs.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_AT_ONCE = 1 << 14
"""Numbers drawn per call: few calls, and all of it stays in the CPU cache."""


@functools.lru_cache(maxsize=1024, typed=True)
def stream_key(*parts: int | str) -> tuple[int, int]:
    """A key of two 64-bit words made from `parts`, e.g. (seed, epoch, step id)."""
    text = "\x1f".join(f"{type(p).__name__}:{p}" for p in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


@dataclass(frozen=True, eq=False)
class Draw:
    """The random numbers of the rows of one block, for one step."""

    key: tuple[int, int]
    ids: np.ndarray
    places: np.ndarray | None = None

    def uniform(self, count: int) -> np.ndarray:
        """float64 in [0, 1), shape (rows, count)."""
        pairs = (count + 1) // 2
        out = np.empty((len(self.ids), pairs, 2))
        several = max(_AT_ONCE // max(len(self.ids), 1), 1)
        for start in range(0, pairs, several):
            some = np.arange(start, min(start + several, pairs), dtype=np.uint64)
            a, b, c, d = _philox(self.key[0], some, self.ids, self.places)
            out[:, start : start + several, 0] = _double(a, b).T
            out[:, start : start + several, 1] = _double(c, d).T
        return out.reshape(len(self.ids), pairs * 2)[:, :count]

    def seeds(self) -> np.ndarray:
        """One uint64 per row, to seed other libraries' generators."""
        a, b, _, _ = _philox(self.key[1], np.zeros(1, np.uint64), self.ids, self.places)
        words: np.ndarray = ((a << _32) | b)[0]
        return words

    def slice(self, start: int, stop: int) -> Draw:
        places = None if self.places is None else self.places[start:stop]
        return Draw(self.key, self.ids[start:stop], places)

    def take(self, rows: np.ndarray) -> Draw:
        return Draw(self.key, self.ids[rows], None if self.places is None else self.places[rows])

    def generators(self) -> Iterator[np.random.Generator]:
        """One generator, re-keyed for each row: use it before asking for the next."""
        bits = np.random.Philox(key=np.array(self.key, dtype=np.uint64))
        generator = np.random.Generator(bits)
        counter = np.zeros(4, dtype=np.uint64)
        state: dict[str, Any] = {
            **bits.state,
            "state": {"counter": counter, "key": np.array(self.key, dtype=np.uint64)},
            "buffer_pos": 4,
            "has_uint32": 0,
        }
        ids = self.ids.tolist()
        places = [0] * len(ids) if self.places is None else self.places.tolist()
        for row, place in zip(ids, places, strict=True):
            counter[2] = row
            counter[3] = place
            bits.state = state  # type: ignore[assignment]
            yield generator


def _double(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    high, low = (a >> np.uint64(5)).astype(np.float64), (b >> np.uint64(6)).astype(np.float64)
    out: np.ndarray = (high * 67108864.0 + low) * (1.0 / 9007199254740992.0)
    return out


def _philox(
    key: int, blocks: np.ndarray, ids: np.ndarray, places: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Philox 4x32 with 10 rounds: four 32-bit words (held in uint64) of shape (blocks, rows), for
    each block of numbers and each row."""
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    shape = (len(blocks), len(ids))
    zero = np.zeros(1, np.uint64)
    c0: np.ndarray = np.broadcast_to(blocks[:, None], shape)
    c1 = np.broadcast_to(zero if places is None else (places ^ (places >> _32)) & _LOW, shape)
    c2, c3 = np.broadcast_to(ids & _LOW, shape), np.broadcast_to(ids >> _32, shape)
    for _ in range(10):
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = (
            (p1 >> _32) ^ c1 ^ np.uint64(k0),
            p1 & _LOW,
            (p0 >> _32) ^ c3 ^ np.uint64(k1),
            p0 & _LOW,
        )
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return c0, c1, c2, c3
