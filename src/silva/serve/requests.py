"""`sv.requests`: the source of a pipeline that answers requests, and who a request is.

A request is known by its column `id`, if it has one, and otherwise by the digest of all its
columns: never by when it arrived. So equal requests draw equal random numbers, online and offline.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import numpy as np

from silva.columns import Column, Values
from silva.errors import PlanError
from silva.io.arrays.memory import MemorySource, from_items
from silva.io.names import check_name
from silva.io.source import register_source
from silva.pipeline import Pipeline
from silva.plan import node as logical
from silva.plan.arguments import explains, several
from silva.sources import from_source

ID = "id"
"""The column that identifies a request."""
_ROW = (1 << 56) - 1
"""The bits of an identity that are not its source."""

Row = dict[str, Any]
_BY_REQUEST = (
    logical.Source,
    logical.Derive,
    logical.Filter,
    logical.Select,
    logical.Rename,
    logical.Explode,
    logical.MapRows,
    logical.Options,
)
"""The nodes that map each row by itself."""


@register_source("requests")
@dataclass(frozen=True)
class Requests:
    """The columns of requests. It has no rows of its own: they come when it is served or run."""

    runs_user_code: ClassVar[bool] = False
    identifies_rows: ClassVar[bool] = False
    awaits_rows: ClassVar[bool] = True
    names: tuple[str, ...]

    def columns(self) -> tuple[str, ...]:
        return self.names

    def describe(self) -> str:
        return f"requests with {', '.join(self.names)}"

    def fingerprint(self) -> str:
        return "\0".join(self.names)

    def length(self) -> int:
        return 0

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        return {name: Values([]) for name in columns}


@register_source("request rows")
@dataclass(frozen=True, eq=False)
class RequestRows:
    """Requests that are answered offline, with the identities that they would have online."""

    runs_user_code: ClassVar[bool] = False
    rows: MemorySource
    identities: np.ndarray

    def columns(self) -> tuple[str, ...]:
        return self.rows.columns()

    def describe(self) -> str:
        return f"{self.rows.length():,} requests"

    def fingerprint(self) -> str:
        return self.rows.fingerprint()

    def length(self) -> int:
        return self.rows.length()

    def row_bytes(self) -> dict[str, float]:
        return self.rows.row_bytes()

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        return self.rows.read(rows, columns)


@explains
def requests(*names: str) -> Pipeline:
    """Begins a pipeline that answers requests with these columns.

    The steps after it are those of any pipeline. `run(rows)` answers many requests offline, `serve`
    over HTTP, and `ask` one within a program; all give the same answers.

    >>> import silva as sv
    >>> doubled = sv.requests("x").derive(y=lambda x: 2 * x)
    >>> doubled.ask(x=4)
    {'x': 4, 'y': 8}
    >>> doubled.run([{"x": 1}, {"x": 2}])
    [{'x': 1, 'y': 2}, {'x': 2, 'y': 4}]
    """
    for name in names:
        check_name(name)
    if not names or len(set(names)) < len(names):
        raise PlanError('requests takes the different columns of a request: requests("question")')
    return from_source(Requests(tuple(names)))


def identity_of(names: Sequence[str], row: Mapping[str, Any]) -> int:
    """The identity of a request.

    >>> identity_of(("q",), {"q": "a"}) == identity_of(("q",), {"q": "a"})
    True
    >>> names = ("id", "q")
    >>> identity_of(names, {"id": 1, "q": "a"}) == identity_of(names, {"id": 1, "q": "b"})
    True
    """
    known = [row[ID]] if ID in names else [row[name] for name in names]
    try:
        packed = msgspec.msgpack.encode(known, enc_hook=_plain, order="deterministic")
    except (OverflowError, UnicodeEncodeError, RecursionError, TypeError) as error:
        raise PlanError(
            "a request holds whole numbers of 64 bits, Unicode text, dicts with texts as keys, and "
            f"lists that are not nested too deeply: {error}"
        ) from None
    digest = hashlib.blake2b(packed, digest_size=8).digest()
    return int.from_bytes(digest, "little") & _ROW


def with_rows(plan: logical.Node, rows: Iterable[Mapping[str, Any]]) -> logical.Node:
    """The plan with these requests in place of those that would come."""
    names = source_of(plan).names
    listed = [checked(names, row) for row in several("run and over: requests", rows)]
    data = (
        from_items(listed) if listed else MemorySource({n: Values([]) for n in names}, "items", 0)
    )
    identities = np.array([identity_of(names, row) for row in listed], dtype=np.uint64)
    source = from_source(RequestRows(data, identities)).plan

    def replaced(node: logical.Node) -> logical.Node:
        if isinstance(node, logical.Source) and isinstance(node.source, Requests):
            return source
        return node

    return logical.transform(plan, replaced)


def answers_requests(plan: logical.Node) -> bool:
    """Whether a plan begins with requests."""
    sources = (node for node in logical.walk(plan) if isinstance(node, logical.Source))
    return any(isinstance(node.source, Requests) for node in sources)


def source_of(plan: logical.Node) -> Requests:
    """The requests that a plan begins with. Refuses verbs that are not about one request alone."""
    refused = [node.verb for node in logical.walk(plan) if not isinstance(node, _BY_REQUEST)]
    if refused:
        raise PlanError(
            f"{refused[0]} has no meaning for requests, of which each is answered by itself: it is "
            "for training"
        )
    for node in logical.walk(plan):
        if isinstance(node, logical.Source) and isinstance(node.source, Requests):
            return node.source
    raise PlanError(
        'only a pipeline that begins with sv.requests("question", …) answers requests: loader() '
        "reads the rows of this one"
    )


def checked(names: Sequence[str], row: object) -> Row:
    """The row as a dict, if it has exactly these columns."""
    if not isinstance(row, Mapping):
        raise PlanError(f"a request is a dict with {', '.join(names)}, not {type(row).__name__}")
    missing = [name for name in names if name not in row]
    extra = [name for name in row if name not in names]
    if missing or extra:
        found = f"has {extra[0]!r:.80}, which is not one of them" if extra else ""
        found = f"has no {missing[0]!r}" if missing else found
        if missing and extra:
            found += f", but {extra[0]!r:.80}"
        raise PlanError(f"a request has the columns {', '.join(names)}; this one {found}")
    return {name: row[name] for name in names}


def _plain(value: Any) -> Any:
    """What takes part in the identity of a request for a value that is no plain data."""
    if isinstance(value, np.ndarray):
        return [value.dtype.str, list(value.shape), np.ascontiguousarray(value).tobytes()]
    if isinstance(value, np.generic):
        return value.item()
    raise PlanError(
        f"a request holds plain values and arrays, not {type(value).__name__}: give it an id"
    )
