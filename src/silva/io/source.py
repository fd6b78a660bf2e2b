"""What a source is, and how one is declared.

A source is a class with the methods of `Indexed` or of `Chunked`, declared by `register_source`,
which checks the class and completes it: what `Defaults` lists may be left out. Silva's own sources
are declared the same way.

Readers run in worker processes and threads, several at once: `read` and `open` must be safe to call
from many threads and must not change the source. Lists of files, footers and the like are found on
first use and may be kept (`functools.cached_property`); they are not pickled with the source.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np

from silva.columns import Column
from silva.errors import PlanError, SourceError
from silva.io.conditions import Condition
from silva.io.source_checks import check_answers, check_costly, naming

Access = Literal["indexed", "chunked"]
_C = TypeVar("_C", bound=type)
_T = TypeVar("_T")
_KIND = "__silva_source__"


@runtime_checkable
class RowSource(Protocol):
    """What every source has."""

    @property
    def access(self) -> Access:
        """The kind of source; `register_source` sets it."""

    @property
    def runs_user_code(self) -> bool:
        """Whether reading calls functions of the user (a dataset's `__getitem__`, say), which may
        hold the GIL or draw from global random generators."""

    @property
    def identifies_rows(self) -> bool:
        """Whether an equal fingerprint means equal rows, in another process too. If not, rows are
        never cached for later runs."""

    @property
    def awaits_rows(self) -> bool:
        """Whether it has no rows of its own: they come one by one, as requests."""

    @property
    def costly(self) -> tuple[str, ...]:
        """Columns that cost much more to read than the others: they are read after the filters."""

    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""

    def types(self) -> dict[str, str]:
        """Short type names (`int64`, `str`, `bytes`, `list<int64>`) of the columns where known."""

    def describe(self) -> str:
        """One short line for plans, e.g. `files photos/**/*.jpg`; it must not contain secrets."""

    def fingerprint(self) -> str:
        """Identifies the rows: equal text for equal data or equal listings (relative paths and
        sizes), on any machine. `register_source` puts the source's tag in front of it."""

    def sketch(self) -> str:
        """A cheaper fingerprint, under which measured costs are remembered: a collision costs time
        and never rows."""

    def length(self) -> int | None:
        """The number of rows, where it is known without reading everything."""

    def row_bytes(self) -> dict[str, float]:
        """Average bytes per row and column, where they are known before anything is read."""


@runtime_checkable
class Indexed(RowSource, Protocol):
    """Any row can be read at the same cost; `length` is always known.

    A source with statistics or indices may also have `may_hold_rows(rows, conditions)`, which
    returns for each row whether it can meet all conditions, and `passed_over(conditions)`, a phrase
    for `explain` that says what is skipped, or None where these conditions skip nothing. A source
    whose rows come in groups has `groups()` and `group`, which `shuffle(by=…)` uses. A source that
    reads consecutive rows faster has `read_run(start, stop, columns)`.
    """

    @property
    def reads_at_once(self) -> bool:
        """Whether all rows of one call are fetched together, so that many take hardly longer than
        one, as from an object store."""

    def length(self) -> int:
        """The number of rows."""

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        """The rows at these int64 positions, in this order, with just these columns.

        May raise for the whole call if any one row is bad: the engine then reads row by row.
        """


@runtime_checkable
class Chunked(RowSource, Protocol):
    """Rows come in units, each read from its start.

    A source with statistics may also have `may_hold(unit, conditions)`, which returns whether the
    unit can hold a row that meets all conditions.
    """

    @property
    def replays(self) -> bool:
        """Whether starting at a later row means reading and dropping those before it."""

    def units(self) -> int:
        """The number of units; fewer than 2**24."""

    def unit_rows(self) -> np.ndarray | None:
        """The number of rows in each unit, where it is known for all without reading the data."""

    def open(self, unit: int, start: int, columns: tuple[str, ...]) -> Iterator[dict[str, Column]]:
        """The rows of a unit from row `start` on, in runs of at most a few MiB each.

        Every run holds at least one row and exactly these columns. Without columns, a run is one
        column called `""` of as many rows (`silva.io.arrow_batches.empty_runs`).
        """


class Defaults:
    """What a source may leave out, with the value that it then has."""

    runs_user_code: ClassVar[bool] = True
    identifies_rows: ClassVar[bool] = True
    awaits_rows: ClassVar[bool] = False
    costly: ClassVar[tuple[str, ...]] = ()
    reads_at_once: ClassVar[bool] = False
    replays: ClassVar[bool] = False

    def types(self) -> dict[str, str]:
        return {}

    def describe(self: RowSource) -> str:
        count, name = self.length(), kind_of(self).name
        return name if count is None else f"{name} of {count:,} rows"

    def sketch(self: RowSource) -> str:
        return self.fingerprint()

    def length(self) -> int | None:
        return None

    def row_bytes(self) -> dict[str, float]:
        return {}

    def unit_rows(self) -> np.ndarray | None:
        return None


@dataclass(frozen=True)
class SourceKind:
    """The declaration of a source."""

    name: str
    """What plans and errors call it; no two kinds share a name."""
    tag: str
    """The first word of its fingerprints, which must never change; empty for none."""
    access: Access
    cls: type


BUILT_IN = {
    "arrow": "silva.io.arrays.arrow",
    "arrow table": "silva.io.arrays.arrow",
    "csv": "silva.io.text.csv",
    "files": "silva.io.file_source",
    "huggingface dataset": "silva.io.datasets.huggingface",
    "huggingface samples": "silva.io.datasets.huggingface",
    "huggingface stream": "silva.io.datasets.huggingface",
    "json": "silva.io.text.json",
    "lake": "silva.io.lake.table",
    "lance": "silva.io.lake.lance",
    "lines": "silva.io.text.lines",
    "memory": "silva.io.arrays.memory",
    "npy": "silva.io.arrays.npy",
    "parquet": "silva.io.lake.parquet",
    "request rows": "silva.serve.requests",
    "requests": "silva.serve.requests",
    "table": "silva.store.derived.table_source",
    "tar": "silva.io.tar",
    "torch dataset": "silva.io.datasets.torch",
    "torch stream": "silva.io.datasets.torch",
}
"""The modules of silva's own sources. A format is imported when it is first used; its name is taken
from the start."""

_KINDS: dict[str, SourceKind] = {}


def register_source(name: str, *, tag: str | None = None) -> Callable[[_C], _C]:
    """Declares a class as a source, which `from_source` then reads.

    `name` is what plans call it. `tag`, by default the name, is the first word of its fingerprints:
    states and caches rely on it, so keep it when you rename the source. The class needs `columns`
    and `fingerprint`, with `length` and `read` if it is indexed, or `units` and `open` if it is
    chunked; docs/sources.md lists what else it may have.

    >>> import silva as sv
    >>> from silva.columns import Array
    >>> @sv.register_source("even numbers")
    ... @dataclass(frozen=True)
    ... class EvenNumbers:
    ...     count: int
    ...     def columns(self): return ("x",)
    ...     def fingerprint(self): return str(self.count)
    ...     def length(self): return self.count
    ...     def read(self, rows, columns): return {name: Array(2 * rows) for name in columns}
    >>> sv.from_source(EvenNumbers(3))
    source even numbers of 3 rows
    >>> sv.from_source(EvenNumbers(3)).shuffle(seed=0).head(3)
    [{'x': 4}, {'x': 0}, {'x': 2}]
    """
    for word, what in ((name, "name"), (name if tag is None else tag, "tag")):
        is_word = isinstance(word, str) and word.isprintable() and ":" not in word
        if not is_word or not (word or (what == "tag" and name in BUILT_IN)):
            raise PlanError(
                f"register_source: the {what} of a source is printable text without a colon, not "
                f"{word!r}"
            )

    def declare(cls: _C) -> _C:
        if not isinstance(cls, type):
            raise PlanError(f"register_source: a source is a class, not {cls!r:.80}")
        _check_name(name, cls)
        _check_tag(name if tag is None else tag, name, cls)
        kind = SourceKind(name, name if tag is None else tag, _access_of(cls), cls)
        fields = getattr(cls, "__dataclass_fields__", {})
        for attribute, default in vars(Defaults).items():
            if not (attribute.startswith("__") or attribute in fields or hasattr(cls, attribute)):
                setattr(cls, attribute, default)
        if BUILT_IN.get(name) != cls.__module__:
            check_answers(cls)
        own_fingerprint: Callable[[Any], str] = cls.fingerprint  # type: ignore[attr-defined]
        declared = {"access": kind.access, "fingerprint": _with_tag(kind.tag, own_fingerprint)}
        for attribute, value in (declared | {_KIND: kind}).items():
            setattr(cls, attribute, value)
        _KINDS[name] = kind
        return cls

    return declare


def kind_of(source: object) -> SourceKind:
    """The declaration of a source. Raises `PlanError` for an object that has none."""
    kind: SourceKind | None = getattr(type(source), _KIND, None)
    if kind is None:
        raise PlanError(
            f"{type(source).__qualname__} is not a source: put @sv.register_source(…) above its "
            "class, as in docs/sources.md"
        )
    return kind


def check_source(source: object) -> None:
    """Raises unless an object is of a class that was declared, with attributes that can be used."""
    kind = kind_of(source)
    if BUILT_IN.get(kind.name) != kind.cls.__module__:
        check_costly(source)


def registered_sources() -> tuple[SourceKind, ...]:
    """The sources that have been declared so far, by name."""
    return tuple(_KINDS[name] for name in sorted(_KINDS))


def _check_name(name: str, cls: type) -> None:
    """A name belongs to one class. The same class may be declared again: a notebook's cell that is
    run twice does so, and a module that is also run as a script."""
    known = _KINDS.get(name)
    if known is None:
        owner = BUILT_IN.get(name, cls.__module__)
        is_same = owner == cls.__module__
    else:
        owner = _path_of(known.cls)
        is_same = known.cls.__qualname__ == cls.__qualname__ and _file_of(known.cls) == _file_of(
            cls
        )
    if not is_same:
        raise PlanError(
            f"register_source: {owner} already has a source called {name!r}; give "
            f"{_path_of(cls)} another name"
        )


def _check_tag(tag: str, name: str, cls: type) -> None:
    """Two sources with one tag could have equal fingerprints, and take each other's states and
    caches. Silva's own share tags where their fingerprints tell them apart."""
    others = [kind for kind in _KINDS.values() if kind.tag == tag and kind.name != name]
    if others and BUILT_IN.get(name) != cls.__module__:
        raise PlanError(
            f"register_source: {_path_of(others[0].cls)} already has the tag {tag!r}; give "
            f"{_path_of(cls)} another one"
        )


def _path_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _file_of(cls: type) -> str:
    """The file that defines a class, or its module where there is none."""
    return getattr(sys.modules.get(cls.__module__), "__file__", None) or cls.__module__


def _access_of(cls: type) -> Access:
    """Indexed if it can read any row, chunked if it opens units. Raises for anything less."""
    access: Access = "indexed" if hasattr(cls, "read") else "chunked"
    needed = {"indexed": ("length", "read"), "chunked": ("units", "open")}[access]
    missing = [n for n in ("columns", "fingerprint", *needed) if not hasattr(cls, n)]
    if missing:
        raise PlanError(
            f"register_source: {_path_of(cls)} has no {' and no '.join(missing)}. A source has "
            "columns and fingerprint, with length and read (indexed) or units and open (chunked)"
        )
    return access


def _with_tag(tag: str, fingerprint: Callable[[Any], str]) -> Callable[[Any], str]:
    """The method with the tag in front of what it returns; of an inherited one, instead of the tag
    of the class that declared it."""
    plain = getattr(fingerprint, "__wrapped__", fingerprint)

    @functools.wraps(plain)
    def tagged(self: Any) -> str:
        with naming(self, "fingerprint", plain):
            own = plain(self)
        if not isinstance(own, str) or own.encode(errors="ignore").decode() != own:
            raise SourceError(f"{_path_of(type(self))}.fingerprint must return text, not {own!r}")
        return f"{tag}:{own}" if tag else own

    return tagged


def can_be_anywhere(source: Chunked) -> bool:
    """Whether any worker may read any run of rows of a chunked source: its rows are counted, and
    reading them neither starts at the beginning of a stream nor calls functions of the user."""
    return not source.replays and not source.runs_user_code and source.unit_rows() is not None


def may_hold(source: Chunked, unit: int, conditions: tuple[Condition, ...]) -> bool:
    """Whether a unit can hold a row that meets all conditions; True where the source has no
    statistics (a method `may_hold`)."""
    by_statistics: Callable[..., bool] | None = getattr(source, "may_hold", None)
    return by_statistics is None or not conditions or bool(by_statistics(unit, conditions))


class Travels:
    """How a source is pickled for a worker: its fields, and a few facts that it has found so far.

    What a `cached_property` holds (open files, footers, memory maps) is not pickled, unless its
    name is in `carried`: small facts that took a read from disk, and on which parent and worker
    must agree.
    """

    carried: ClassVar[tuple[str, ...]] = ()
    """The names of cached properties that are pickled once they have been computed."""

    def __getstate__(self) -> dict[str, Any]:
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        names += [name for name in self.carried if name in self.__dict__]
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def remembered(calls: int) -> Callable[[Callable[[Any, Any], _T]], Any]:
    """A method of one argument whose last results each source remembers for itself. They are not
    pickled with it."""

    def declare(method: Callable[[Any, Any], _T]) -> Any:
        def of_source(source: Any) -> Callable[[Any], _T]:
            return functools.lru_cache(calls)(functools.partial(method, source))

        return functools.cached_property(of_source)

    return declare
