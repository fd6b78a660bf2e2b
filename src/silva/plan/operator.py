"""Operators as the plan knows them: a name, a kernel, and the properties that plans rely on.

The built-in kernels live in `silva.operators` and register themselves here, with the same
`register_operator` that users call.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from silva.errors import PlanError, SilvaError

Kernel = Callable[..., Any]
"""`kernel(columns, params, draw) -> Column`: whole columns in, one column of as many rows out.
`draw` provides the rows' random numbers; kernels that are not random ignore it."""


class RowErrors(Exception):
    """Raised by a kernel that knows which rows have failed, and has the others: no row needs to be
    run again."""

    def __init__(self, errors: Mapping[int, Exception], made: Any) -> None:
        super().__init__(f"{len(errors)} rows failed")
        self.errors = errors
        """The error of each row that failed, by its number."""
        self.made = made
        """The column; what it holds at rows that failed does not count."""


@runtime_checkable
class Promising(Protocol):
    """A parameter by which results may differ from the exact ones, within a bound."""

    @property
    def promise(self) -> str | None:
        """The bound, and how it was checked; None if there is none."""


@runtime_checkable
class Grouping(Protocol):
    """A parameter by which rows share work if they come in a certain order."""

    @property
    def grouping(self) -> str | None:
        """The order, and what it has saved so far; None if rows share nothing."""


@dataclass(frozen=True)
class Operator:
    """A kernel under its registered name, with the properties that plans rely on."""

    name: str
    kernel: Kernel
    random: bool = False
    """The kernel uses the row's random numbers."""
    releases_gil: bool = True
    """The kernel runs without the GIL."""
    ragged: bool = False
    """The kernel accepts arrays of different lengths in one column."""
    revision: int = 0
    """Increased when the kernel computes other results: the fingerprints of its users then
    change."""
    by_row: bool = False
    """Each row depends on that row alone, so rows of several types may come in one column; other
    kernels get rows of one type at a time."""
    needs: tuple[str, ...] = ()
    """Libraries that only an extra of silva installs, the one named after the operator's kind. A
    plan that uses the operator without them is refused."""
    keeps_masks: bool = True
    """The kernel keeps missing what is missing within a row (numpy's masked arrays). Where it is
    False, a row of which a part is missing fails before the kernel sees it."""
    best_rows: Callable[[Mapping[str, Any]], int] | None = None
    """How many rows the kernel should get at once, given its parameters, whatever time that takes:
    of a model that answers many questions together. None: as many as take the time of a block."""
    facts: frozenset[str] = frozenset()
    """What laws may rely on, in the words of the operator's kind (`silva.operators.image.declare`
    for images). An operator without facts takes part in no law about them."""


_OPERATORS: dict[str, Operator] = {}


def register_operator(operator: Operator) -> Operator:
    """Registers an operator under its name; a name can be registered only once."""
    if operator.name in _OPERATORS and _OPERATORS[operator.name].kernel is not operator.kernel:
        raise PlanError(
            f"register_operator: an operator called {operator.name!r} is already registered; "
            "choose another name"
        )
    _OPERATORS[operator.name] = operator
    return operator


_REVISIONS: dict[str, int] = {}
"""Of built-in operators that have changed what they give since 0.1. Not beside the kernels, since a
fingerprint imports none."""


def revision_of(name: str) -> int:
    found = _OPERATORS.get(name)
    return _REVISIONS.get(name, 0 if found is None else found.revision)


def adopt_operators(operators: tuple[Operator, ...]) -> None:
    """Makes operators known that came along with a stage, in a process that does not have them."""
    for found in operators:
        _OPERATORS.setdefault(found.name, found)


def is_built_in(operator: Operator) -> bool:
    """Whether every process can find the operator by its name alone."""
    return operator.kernel.__module__.partition(".")[0] == "silva"


def operator(name: str) -> Operator:
    """The operator of that name; built-in kinds are imported when first asked for."""
    if name not in _OPERATORS:
        kind, dot, _ = name.partition(".")
        _import_kind(kind if dot else "arithmetic")
    found = _OPERATORS.get(name)
    if found is None:
        raise PlanError(f"there is no operator called {name!r}")
    if found.needs:
        _import_libraries(name.partition(".")[0], found.needs)
    return found


@functools.cache
def _import_libraries(extra: str, names: tuple[str, ...]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise SilvaError(
                f'sv.{extra} needs {error.name}: pip install "silva[{extra}]"'
            ) from error


def has_fact(name: str, fact: str) -> bool:
    """Whether a registered operator declares a fact about itself."""
    found = _OPERATORS.get(name)
    return found is not None and fact in found.facts


def known_operators() -> tuple[Operator, ...]:
    """The operators that are registered so far, in the order of their declarations."""
    return tuple(_OPERATORS.values())


def built_in_operators() -> tuple[Operator, ...]:
    """The built-in operators of every kind, in the order of their declarations."""
    import_built_in()
    return tuple(found for found in known_operators() if is_built_in(found))


def import_built_in() -> None:
    """Imports the built-in operators of every kind, for those who ask what there is."""
    for kind in ("arithmetic", "audio", "image", "list", "num", "text"):
        _import_kind(kind)


_HOMES = {
    "model": "silva.serve.models.operators",
    "cascade": "silva.serve.cascade",
    "loop": "silva.serve.loop.loop",
    "index": "silva.serve.index.operators",
}
"""The modules of kinds that are no kinds of columns."""


def _import_kind(kind: str) -> None:
    module = _HOMES.get(kind, f"silva.operators.{kind}")
    if kind.isidentifier() and importlib.util.find_spec(module) is not None:
        importlib.import_module(module)
