"""Draws sources, and keeps what is known of a pipeline while verbs are added to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fuzz_data import ARROW, CSV, JSON, MEMORY
from fuzz_own import WRONG


@dataclass
class Scope:
    """What is known of a pipeline while verbs are added to it."""

    chance: Random
    rows: int
    """At most so many, as far as verbs tell."""
    source_rows: int
    columns: dict[str, str]
    """By name: int, float, text, ints (a list), list, array, any."""
    indexed: bool
    plain: bool = True
    """Only steps of one row to at most one row since the source."""
    traits: set[str] = field(default_factory=set)
    named: int = 0

    def pick(self, *kinds: str) -> str | None:
        found = [name for name, kind in self.columns.items() if kind in kinds]
        return self.chance.choice(found) if found else None

    def new(self, kind: str) -> str:
        """A name for a derived column; sometimes one that is there already."""
        old = [n for n, k in self.columns.items() if n != "x" and n.startswith("d")]
        if old and self.chance.random() < 0.2:
            name = self.chance.choice(old)
        else:
            name = f"d{self.named}"
            self.named += 1
        self.columns[name] = kind
        return name

    def pair(self) -> tuple[str, str]:
        names = f"d{self.named}", f"d{self.named + 1}"
        self.named += 2
        self.columns |= dict.fromkeys(names, "any")
        return names

    def some_rows(self) -> str:
        """A set of values of `x` on which a step fails."""
        count = self.chance.choice((1, 1, 1, 2, 3, 6))
        top = max(self.source_rows, 1)
        return str({self.chance.randrange(top) for _ in range(count)})


_LIST_KINDS = {"lists", "tuples", "int8", "pairs", "large", "empty"}
"""Lists of whole numbers alone: those that can be packed."""


def _kind(name: str, kind: str) -> str:
    if name == "l":
        return "ints" if kind in _LIST_KINDS else "list"
    return {"x": "int", "w": "float", "s": "text", "a": "array"}.get(name, "any")


def _kinds(
    chance: Random, lists: float, of: Mapping[str, Collection[str]], *leave_out: tuple[str, str]
) -> dict[str, str]:
    some = {"x": 1.0, "l": lists}
    names = [name for name in of if chance.random() < some.get(name, 0.35)]
    chosen = {n: chance.choice([k for k in of[n] if (n, k) not in leave_out]) for n in names}
    if chance.random() < 0.7:
        chosen["x"] = "int64"
    return chosen


SOURCES = {
    "memory": 9, "items": 3, "arrow": 4, "parquet": 5, "ipc": 2, "jsonl": 2, "csv": 1, "table": 2,
    "torch_map": 2, "torch_stream": 2, "torch_sized": 1, "tar": 1, "npy": 1, "files": 1, "lines": 1,
    "own_rows": 2, "own_units": 2,
}  # fmt: skip
_OBJECTS = ("memory", "items", "torch_map", "torch_stream", "torch_sized")
"""Sources of Python objects: dicts stay dicts."""
_CHUNKED = (
    "parquet",
    "ipc",
    "jsonl",
    "csv",
    "torch_stream",
    "torch_sized",
    "tar",
    "lines",
    "own_units",
)
_MADE = {
    "tar": {"o": "any"}, "npy": {"a": "array"}, "files": {"o": "any", "s": "text"},
    "lines": {"s": "text"}, "own_rows": {"s": "text"}, "own_units": {"s": "text"},
}  # fmt: skip
"""Columns of sources that come in one kind only, beside x."""


def any_of(chance: Random, weights: Mapping[Any, int]) -> Any:
    return chance.choices(list(weights), list(weights.values()))[0]


def _own(chance: Random, kind: str, n: int) -> tuple[str, str]:
    """The arguments of a source of the user's own, and what is wrong with it, if anything is."""
    told = ""
    if kind == "own_units":
        told = f", {chance.random() < 0.5}"
    if chance.random() < 0.6:
        return told, ""
    wrong = chance.choice(WRONG + (("length",) if kind == "own_rows" else ()))
    if wrong == "few" and kind == "own_units" and told == ", False":
        wrong = "raises"  # nobody could know that a row is missing
    return f"{told}, {wrong!r}, {chance.randrange(n)}", wrong


def draw_source(chance: Random, sources: Mapping[str, int], lists: float) -> tuple[str, Scope]:
    kind = any_of(chance, sources)
    n = chance.choice((1, 2, 3, 7, 12, 17, 23, 30, 40))
    if kind in ("memory", "arrow", "parquet") and chance.random() < 0.04:
        n = 0
    first = ""
    kinds: dict[str, str] = {}
    if kind in _OBJECTS:
        kinds = _kinds(chance, lists, MEMORY)
    elif kind == "arrow":
        kinds = _kinds(chance, lists, ARROW)
    elif kind in ("parquet", "ipc"):
        kinds = _kinds(chance, lists, ARROW, ("n", "none"))
        first = f", {chance.choice((1, 2, 3)) if n else 1}, {chance.choice((1, 4, 7, 100))}"
    elif kind == "table":
        kinds = _kinds(chance, lists, ARROW, ("n", "none"), ("s", "codes"))
    elif kind == "jsonl":
        kinds = _kinds(chance, lists, JSON)
    elif kind == "csv":
        kinds = _kinds(chance, lists, CSV)
    if kind in ("table", "jsonl", "tar", "lines"):
        first = f", {chance.choice((1, 2))}"
    wrong = ""
    if kind in ("own_rows", "own_units"):
        first, wrong = _own(chance, kind, n)
    told = "".join(f", {name}={kind!r}" for name, kind in kinds.items())
    columns = {name: _kind(name, k) for name, k in kinds.items()} or {"x": "int"}
    if kinds.get("o") == "dicts" and kind not in _OBJECTS:
        del columns["o"]
        columns |= {"o.k": "any", "o.v": "ints"}
    columns |= _MADE.get(kind, {})
    scope = Scope(chance, n, n, columns, indexed=kind not in _CHUNKED)
    if wrong:
        scope.traits.add("wrong source")
    return f"{kind}({n}{first}{told})", scope
