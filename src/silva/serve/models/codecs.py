"""How answers are kept, and what is an answer at all: a model may be the user's own.

What `encode` lets through is what every later run gets. A vector is one of float32 with finite
numbers, a score is a number, a text an `Answer` of the types that it declares.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from silva.errors import ColumnError
from silva.serve.models.answers import damaged
from silva.serve.models.model import Answer


class Texts:
    """Answers as MessagePack."""

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, Answer):
            raise ColumnError(f"a text is an sv.models.Answer, not {type(value).__name__}")
        data = msgspec.msgpack.encode(value)
        msgspec.msgpack.decode(data, type=Answer)  # whoever builds one may give any types
        return data

    def decode(self, data: bytes) -> Answer:
        try:
            return msgspec.msgpack.decode(data, type=Answer)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise damaged(str(error)) from error


class Scores:
    """Numbers as MessagePack. That of an answer which cannot be is minus infinity."""

    def encode(self, value: Any) -> bytes:
        is_number = isinstance(value, int | float | np.integer | np.floating)
        if not is_number or isinstance(value, bool):
            raise ColumnError(f"a score is a number, not {type(value).__name__}")
        number = float(value)
        if np.isnan(number):
            raise ColumnError("a score is a number, and not NaN")
        return msgspec.msgpack.encode(number)

    def decode(self, data: bytes) -> float:
        try:
            return msgspec.msgpack.decode(data, type=float)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise damaged(str(error)) from error


class Vectors:
    """Vectors of float32 as their bytes."""

    def encode(self, value: Any) -> bytes:
        given = np.asarray(value)
        if given.ndim != 1 or not len(given) or given.dtype.kind not in "fiu":
            shown = f"{type(value).__name__} of {given.dtype} and shape {given.shape}"
            raise ColumnError(f"a vector is a row of numbers, not {shown}")
        with np.errstate(over="ignore", under="ignore"):
            vector = given.astype("<f4")
        if not np.isfinite(vector).all():
            raise ColumnError("the vector holds NaN, infinity, or a number beyond float32")
        if given.any() and not vector.any():
            raise ColumnError("the numbers of the vector are so small that float32 makes them 0")
        return vector.tobytes()

    def decode(self, data: bytes) -> np.ndarray:
        if not data or len(data) % 4:
            raise damaged(f"{len(data)} bytes are no vector")
        return np.frombuffer(data, dtype="<f4")


CODECS: dict[str, Texts | Scores | Vectors] = {
    "embed": Vectors(),
    "generate": Texts(),
    "score": Scores(),
}
"""By the kind of a question."""
